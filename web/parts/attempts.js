// How a step was tried: which targets, how each ended, and why it was asked at all.

import { make } from "../dom.js";
import { MISSING, duration, moment, plural } from "../format.js";
import { visible } from "../visible.js";
import { longText } from "./text.js";

const COLUMNS = ["Target", "Status", "Began", "First byte", "Took"];

/** The attempts of a step as a table. */
export function attemptsTable({ attempts_made: attempts }) {
  if (attempts.length === 0) {
    return make("p", { className: "quiet none", textContent: "No attempt has ended yet." });
  }
  const rows = attempts.flatMap((attempt) => {
    const row = make(
      "tr",
      {},
      make("th", { scope: "row", textContent: `${visible(attempt.provider)} / ${visible(attempt.model)}` }),
      make("td", {}, outcomeOf(attempt)),
      make("td", { className: "num", textContent: moment(attempt.started_ms) }),
      make("td", { className: "num", textContent: duration(attempt.first_byte_ms) }),
      make("td", { className: "num", textContent: duration(attempt.ended_ms - attempt.started_ms) }),
    );
    return [row, ...(attempt.error || attempt.excerpt ? [detailRow(attempt)] : [])];
  });
  return make(
    "div",
    { className: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Attempts" },
    make(
      "table",
      { className: "table attempts" },
      make("caption", { className: "unseen", textContent: "Attempts, in order" }),
      make(
        "thead",
        {},
        make("tr", {}, ...COLUMNS.map((title) => make("th", { scope: "col", textContent: title }))),
      ),
      make("tbody", {}, ...rows),
    ),
    make("p", { className: "lead more", textContent: `${plural(attempts.length, "attempt")}.` }),
  );
}

function outcomeOf({ ok, status, error_code: code }) {
  const text = ok ? `answered${status ? `, ${status}` : ""}` : (status ?? code ?? "failed");
  const badge = make("span", { className: "badge", textContent: String(text) });
  badge.dataset.status = ok ? "complete" : "failed";
  return badge;
}

function detailRow({ error, excerpt, error_code: code }) {
  const cell = make(
    "td",
    { colSpan: COLUMNS.length },
    error ? make("p", { className: "fault wrap", textContent: `${code}: ${visible(error)}` }) : null,
    excerpt ? longText(excerpt, { first: 1000, className: "prose code-text" }) : null,
  );
  return make("tr", { className: "is-detail" }, cell);
}

/** Why a call went upstream although it looked like a recorded step, as parts of a sentence. */
export function missOf({ step_number: number, index, path, sent, recorded }, hrefOf) {
  const link = make("a", { href: hrefOf(index), textContent: `step ${number}` });
  const values = [sent, recorded].map((value) =>
    value === undefined || value === null ? MISSING : visible(String(value)),
  );
  return ["Not a replay: like ", link, ` but for ${visible(path)}. Sent ${values[0]}, on record ${values[1]}.`];
}
