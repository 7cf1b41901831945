// What would be in a file of training data: how much, what the linter found, what stayed out.

import { readManifest, readReport } from "../api.js";
import { make, setText } from "../dom.js";
import { count, countShort, plural } from "../format.js";
import { visible } from "../visible.js";
import { fold } from "./turns.js";

const PLACES_MAX = 50; // lines with findings that are listed
const OUT = {
  session: "sessions that the filters leave out",
  filter: "conversations that the filters leave out",
  equal: "equal to another one",
  undecided: "waits for a decision",
  mock: "answered by the mock, beside real answers",
};
const BECAME = { mended: "mended", kept: "left as it is: look at it", left_out: "costs its line" };

/** What can be found of what is at a path: {node, check(path), clear, stop}. */
export function findings() {
  let look = new AbortController();
  const said = make("p", { className: "quiet", role: "status" });
  const fault = make("p", { className: "fault", role: "alert" });
  const place = make("div", { className: "findings" });
  const node = make("div", {}, said, fault, place);

  function clear() {
    look.abort();
    look = new AbortController();
    setText(said, "");
    setText(fault, "");
    place.replaceChildren();
  }

  return {
    node,
    clear,
    async check(path) {
      clear();
      const { signal } = look;
      setText(said, "Going through all of it…");
      try {
        const manifest = await readManifest(path, signal);
        if (signal.aborted) return;
        setText(said, sayOf(manifest));
        place.replaceChildren(...nodesOf(manifest, path, signal));
      } catch (error) {
        if (signal.aborted) return;
        setText(said, "");
        setText(fault, ["It could not be checked.", error.message, error.hint].join(" "));
      }
    },
    stop: () => look.abort(),
  };
}

function sayOf({ lines, left_out: lost }) {
  if (lines > 0) return `${plural(lines, "line")}.`;
  return lost > 0 ? "No line is left." : "Nothing of it is an example of this form.";
}

function nodesOf(manifest, path, signal) {
  const nodes = [factsOf(manifest)];
  const found = rowsOf(manifest);
  if (found.length > 0) {
    nodes.push(
      tableOf("Findings", ["Finding", "What became of it", "Times"], found),
      fold("Where they are", () => [placesOf(path, signal)], "places"),
    );
  } else if (manifest.lines > 0) {
    nodes.push(make("p", { textContent: "The linter found nothing." }));
  }
  const out = Object.entries(manifest.not_taken);
  if (out.length > 0) {
    const rows = out.map(([why, times]) => [OUT[why] ?? wordOf(why), count(times)]);
    const table = () => [tableOf("What stays out", ["Reason", "Times"], rows)];
    nodes.push(fold("What stays out", table));
  }
  return nodes;
}

function factsOf({ files, tokens, sessions, touched, secrets }) {
  const taken = sum(Object.values(secrets));
  const kinds = Object.keys(secrets).map(wordOf).join(", ");
  const each = Object.values(files);
  const facts = [
    [
      each.length > 1 ? "To train / validate" : "Lines",
      each.map(({ lines }) => count(lines)).join(" / "),
    ],
    ["Size", sizeOf(sum(each.map(({ bytes }) => bytes)))],
    ["Tokens, about", countShort(tokens.estimated)],
    ["Sessions", count(sessions)],
    ["Touched by a person", count(touched)],
    ["Secrets taken out", taken > 0 ? `${count(taken)}: ${kinds}` : "0"],
  ];
  const rows = facts.map(([title, value]) =>
    make("div", {}, make("dt", { textContent: title }), make("dd", { textContent: value })),
  );
  return make("dl", { className: "facts" }, ...rows);
}

function rowsOf({ findings: found }) {
  return Object.entries(BECAME).flatMap(([name, became]) =>
    Object.entries(found[name]).map(([code, times]) => [wordOf(code), became, count(times)]),
  );
}

function tableOf(title, heads, rows) {
  const last = heads.length - 1;
  const cell = (tag, text, at) =>
    make(tag, { className: at === last ? "num" : "", textContent: text });
  const cellOf = (text, at) => cell("td", text, at);
  const head = heads.map((text, at) => {
    const node = cell("th", text, at);
    node.scope = "col";
    return node;
  });
  return make(
    "table",
    { className: "table" },
    make("caption", { className: "unseen", textContent: title }),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map(cellOf)))),
  );
}

/** The first lines in which something was found, read when they are asked for. */
function placesOf(path, signal) {
  const list = make("ul", { className: "found-lines" });
  const said = make("p", { className: "quiet", role: "status", textContent: "Reading…" });
  readReport(path, PLACES_MAX, signal).then(
    ({ lines, isAll }) => {
      list.append(...lines.filter((line) => line.findings.length > 0).map(placeOf));
      setText(said, isAll ? "" : `The first ${PLACES_MAX}; agentstate export --report has all.`);
    },
    (error) => signal.aborted || setText(said, `They could not be read. ${error.message}`),
  );
  return make("div", {}, list, said);
}

function placeOf({ line, session, index, findings: found }) {
  const link = make("a", {
    href: `#/sessions/${encodeURIComponent(session)}?index=${index}`,
    textContent: visible(session),
  });
  const where = line === null ? "no line" : `line ${count(line)}`;
  const texts = found.map(({ path, message, is_mended: isMended }) =>
    make(
      "p",
      {},
      visible(message),
      path ? " " : "",
      path ? make("code", { textContent: visible(path) }) : "",
      isMended ? " · mended" : "",
    ),
  );
  return make("li", {}, make("p", { className: "quiet" }, link, ` · ${where}`), ...texts);
}

function wordOf(code) {
  return visible(code).replaceAll("_", " ");
}

function sum(values) {
  return values.reduce((total, value) => total + value, 0);
}

function sizeOf(bytes) {
  if (bytes < 10_000) return `${count(bytes)} B`;
  return bytes < 1_000_000 ? `${count(Math.round(bytes / 1000))} KB` : `${(bytes / 1e6).toFixed(1)} MB`;
}
