// One step: what it is, what was asked and answered, how it was tried, what is on record of it.

import { readConversation, readStepText } from "../api.js";
import { make, setText } from "../dom.js";
import {
  MISSING,
  ago,
  count,
  duration,
  moment,
  money,
  plural,
  statusLabel,
} from "../format.js";
import { indent } from "../json.js";
import { visible } from "../visible.js";
import { answersTable, kindLabel } from "./answers.js";
import { attemptsTable, missOf } from "./attempts.js";
import { comparison } from "./compare.js";
import { tabbed } from "./tabs.js";
import { longText } from "./text.js";
import { markNode, marksOf } from "./timeline.js";
import { structure } from "./tree.js";
import { answerOf, conversation, fold } from "./turns.js";

const RAW_CHARS = 20_000;

/**
 * Make the panel: {node, show, update, stop}. `show(index, step)` opens a step, `step` being its row
 * as far as it is known; `update(step)` takes what became of it. `verbs` are [{title, label(step),
 * isShown(step), run(step, found)}]: what a person can do to a step, `found` being all that was read
 * of it. `hrefOf(index)` leads to another step, and
 * `indexBefore(index)` names the one before; null = it is the first.
 */
export function stepPanel(id, { verbs, hrefOf, heldAt, indexBefore }) {
  let ended = new AbortController();
  let index = -1;
  let seen = null; // what of the step was shown: with another it is read again
  let found = null; // the step as it was read
  let tab = "conversation"; // stays while one goes from step to step

  const node = make("section", { className: "step", "aria-label": "Step", tabIndex: -1 });
  const empty = make("p", { className: "quiet none", textContent: "Choose a step." });
  let head = null;
  let facts = null;
  node.append(empty);

  async function read() {
    ended.abort();
    ended = new AbortController();
    const { signal } = ended;
    const wanted = index;
    node.ariaBusy = "true";
    try {
      found = await readConversation(id, wanted, signal);
      if (!signal.aborted) build();
    } catch (error) {
      if (signal.aborted) return;
      found = null;
      const text = [`Step at index ${wanted} could not be read.`, error.message, error.hint];
      node.replaceChildren(
        make("p", { className: "notice", role: "alert", textContent: text.join(" ") }),
      );
    }
    node.ariaBusy = "false";
  }

  function build() {
    const { step } = found;
    seen = stampOf(step);
    const tabs = tabbed(
      "What of the step",
      [
        { id: "conversation", title: "Conversation", build: buildConversation },
        {
          id: "attempts",
          title: `Attempts ${count(found.step.attempts_made.length)}`,
          build: () => attemptsTable(step),
        },
        {
          id: "answers",
          title: `Answers ${count(found.answers.length)}`,
          build: () => answersTable(id, found, ended.signal),
        },
        { id: "compare", title: "Compare", build: () => comparison(id, found, indexBefore(index), ended.signal) },
        { id: "raw", title: "Raw", build: () => rawOf(id, step.index, ended.signal) },
      ],
      (chosen) => {
        tab = chosen;
      },
    );
    head = headOf();
    facts = factsOf(step);
    node.replaceChildren(head, facts, ...notesOf(found, hrefOf), tabs.node);
    tabs.show(tab);
  }

  /** Say how often it was replayed by now: what is unfolded, and who has the focus, stay so. */
  function countReplays({ replays, saved_microusd, replayed_ms }) {
    found.step = { ...found.step, replays, saved_microusd, replayed_ms };
    const at = [...head.querySelectorAll("button")].indexOf(document.activeElement);
    const [newHead, newFacts] = [headOf(), factsOf(found.step)];
    head.replaceWith(newHead);
    facts.replaceWith(newFacts);
    [head, facts] = [newHead, newFacts];
    if (at >= 0) head.querySelectorAll("button")[at]?.focus({ preventScroll: true });
  }

  function headOf() {
    const { step } = found;
    const buttons = verbs
      .filter((verb) => verb.isShown(step))
      .map((verb) =>
        make("button", {
          type: "button",
          className: "button",
          textContent: verb.title,
          "aria-label": verb.label(step),
          onclick: () => verb.run(step, found),
        }),
      );
    const badge = make("span", { className: "badge", textContent: statusLabel(step.state) });
    badge.dataset.status = step.state;
    const marks = marksOf(step, heldAt(index)).filter(({ text }) => !isSaidByBadge(text));
    const standing = found.answers.find((answer) => answer.stands);
    if (standing && standing.kind !== "recorded") {
      marks.push({ text: kindLabel(standing.kind).toLowerCase(), is: "active" });
    }
    return make(
      "header",
      { className: "step-head" },
      make("h2", { textContent: `Step ${step.step_number}` }),
      badge,
      ...marks.map(markNode),
      make("div", { className: "step-verbs" }, ...buttons),
    );
  }

  function buildConversation() {
    const { turns, known, choices, delivered, request } = found;
    const asked =
      turns === null
        ? [make("h3", { className: "part", textContent: "Request" }), structure(textOf(request))]
        : conversation(turns, known);
    return [
      make("div", { className: "offers" }, ...offersOf(found)),
      make("div", { className: "turns" }, ...asked, ...answersOf(choices, delivered)),
    ];
  }

  function answersOf(choices, delivered) {
    if (delivered) {
      return [
        ...answerOf(delivered, "Answer, as the agent got it"),
        fold("The answer as the model gave it", () => answerOf(choices ?? [], "Answer of the model")),
      ];
    }
    if (choices) return answerOf(choices);
    const text =
      found.step.state === "in_flight" ? "No answer yet." : "No answer is on record.";
    return [make("p", { className: "quiet none", role: "status", textContent: text })];
  }

  return {
    node,
    index: () => index,
    show(wanted) {
      if (wanted === index) return;
      index = wanted;
      seen = null;
      node.parentElement?.scrollTo(0, 0);
      if (index < 0) {
        ended.abort();
        node.replaceChildren(empty);
      } else read();
    },
    /** Take the row of the step as it was read in a list: read it whole again if it changed. */
    update(step) {
      if (step?.index !== index || seen === null) return;
      if (stampOf(step) !== seen) read();
      else if (step.replays !== found?.step.replays) countReplays(step);
    },
    tab: () => tab,
    /** Do to the open step what a verb does, if it can be done now. */
    press(title) {
      if (found === null || node.ariaBusy === "true" || index < 0) return;
      const verb = verbs.find((each) => each.title === title);
      if (verb.isShown(found.step)) verb.run(found.step, found);
    },
    stop: () => ended.abort(),
  };
}

function isSaidByBadge(text) {
  return ["failed", "interrupted", "in flight"].includes(text);
}

/** What of a step's row must be another for the step to be shown anew. */
function stampOf(step) {
  const { state, answered_ms, rolled_back_ms, cost_microusd, attempts, answer_id } = step;
  return JSON.stringify([state, answered_ms, rolled_back_ms, cost_microusd, attempts, answer_id]);
}

function factsOf(step) {
  const { usage } = step;
  const provider = step.provider ? ` at ${visible(step.provider)}` : "";
  const first = Number.isFinite(step.first_content_ms)
    ? `, first content after ${duration(step.first_content_ms)}`
    : "";
  const cached = usage?.cached_tokens ? `, ${count(usage.cached_tokens)} of it cached` : "";
  const reasoning = usage?.reasoning_tokens ? `, ${count(usage.reasoning_tokens)} of it reasoning` : "";
  const sign = usage?.is_estimate ? "about " : "";
  const rows = [
    ["Model", `${visible(step.model ?? MISSING)}${provider}`],
    ["Asked", moment(step.created_ms)],
    ["Latency", `${duration(step.latency)}${first}`],
    ["Tokens in", usage ? `${sign}${count(usage.prompt_tokens)}${cached}` : MISSING],
    ["Tokens out", usage ? `${sign}${count(usage.completion_tokens)}${reasoning}` : MISSING],
    ["Cost", money(step.cost_microusd)],
    [
      "Replays",
      step.replays
        ? `${count(step.replays)}, saved ${money(step.saved_microusd)}, last ${ago(step.replayed_ms, Date.now())}`
        : "None",
    ],
  ];
  if (step.run_id) rows.push(["Run", visible(step.run_id)]);
  return make(
    "dl",
    { className: "step-facts" },
    ...rows.map(([title, value]) =>
      make("div", {}, make("dt", { textContent: title }), make("dd", { textContent: value })),
    ),
  );
}

/** What a person should know before reading on: what went wrong, what waits, what is special. */
function notesOf({ step, answers, approvals, goes_on_from: before, releases }, hrefOf) {
  const notes = [];
  if (step.error) {
    const code = step.error_code ? `${step.error_code}: ` : "";
    notes.push(note("bad", `${code}${visible(step.error)}`));
  }
  for (const approval of approvals) {
    const link = make("a", {
      href: `#/approvals/${encodeURIComponent(approval.approval_id)}`,
      textContent: visible(approval.tool),
    });
    const is = approval.status === "PENDING" ? "waiting" : "quiet";
    notes.push(note(is, link, ` ${statusLabel(approval.status).toLowerCase()}${byOf(approval)}`));
  }
  // A rerun at another model is no fallback.
  if (step.asked_of && !answers.some(({ kind }) => kind === "rerun")) {
    notes.push(note("quiet", `Asked first: ${visible(step.asked_of)}. Another one answered.`));
  }
  const dropped = step.attempts_made.flatMap((attempt) => attempt.dropped);
  if (dropped.length > 0) {
    notes.push(note("quiet", `Not said to the target: ${[...new Set(dropped)].map(visible).join(", ")}`));
  }
  if (step.miss) notes.push(note("quiet", ...missOf(step.miss, hrefOf)));
  if (before?.index !== undefined && before?.index !== null) {
    const link = make("a", { href: hrefOf(before.index), textContent: `index ${before.index}` });
    notes.push(note("quiet", "Goes on from the answer of the step at ", link, "."));
  }
  if (releases.length > 1) {
    notes.push(note("quiet", `Its approved calls went out ${plural(releases.length, "time")}.`));
  }
  return notes;
}

function byOf({ decided_by: by, reason }) {
  return `${by ? ` by ${visible(by)}` : ""}${reason ? `: ${visible(reason)}` : ""}`;
}

function note(is, ...parts) {
  const node = make("p", { className: "note" }, ...parts);
  node.dataset.is = is;
  return node;
}

/** The tools that were offered, and what else the request asked for. */
function offersOf({ tools, wishes, unsaid }) {
  const parts = [];
  if (tools?.length > 0) {
    parts.push(
      fold(plural(tools.length, "tool") + " offered", () =>
        tools.map((tool) =>
          make(
            "section",
            { className: "tool-card is-offer" },
            make("header", {}, make("code", { className: "tool-name", textContent: visible(tool.name) })),
            tool.description ? longText(tool.description, { first: 600 }) : null,
            tool.schema ? fold("Schema", () => [structure(textOf(tool.schema))]) : null,
          ),
        ),
      ),
    );
  }
  const said = Object.entries(wishes ?? {});
  if (said.length > 0) {
    parts.push(
      make("p", {
        className: "quiet wrap",
        textContent: said.map(([name, value]) => `${name} ${visible(JSON.stringify(value))}`).join(" · "),
      }),
    );
  }
  if (unsaid?.length > 0) {
    parts.push(
      make("p", {
        className: "quiet wrap",
        textContent: `Only in the raw request: ${unsaid.map(visible).join(", ")}`,
      }),
    );
  }
  return parts;
}

function textOf(value) {
  return JSON.stringify(value ?? null);
}

/** The step as the API has it: request, answer, stream. */
function rawOf(id, index, signal) {
  const place = make("div", { className: "raw-place", ariaBusy: "true" });
  place.append(make("p", { className: "quiet", textContent: "Reading…" }));
  readStepText(id, index, signal)
    .then((text) => place.replaceChildren(...rawParts(text)))
    .catch((error) => {
      if (signal.aborted) return;
      place.replaceChildren(make("p", { className: "notice", textContent: error.message }));
    })
    .finally(() => {
      place.ariaBusy = "false";
    });
  return place;
}

function rawParts(text) {
  const { answer, delivered } = JSON.parse(text);
  const parts = [];
  for (const [title, found] of [
    ["Answer, as it is on record", answer],
    ["Answer, as the agent got it", delivered],
  ]) {
    if (!found) continue;
    const is = found.form === "events" ? "a stream" : "a body";
    parts.push(
      make("h3", { className: "part", textContent: `${title}: ${is}, status ${found.status}` }),
      found.form === "events" ? framesOf(found.content) : bodyOf(found.content, title),
    );
  }
  parts.push(
    make("h3", { className: "part", textContent: "All of the step" }),
    bodyOf(text, "All of the step"),
  );
  return parts;
}

function bodyOf(text, label) {
  let shown = text;
  try {
    shown = text.length < 2_000_000 ? indent(text) : text;
  } catch {
    // No JSON: as it came.
  }
  return longText(shown, { first: RAW_CHARS, className: "code raw", label });
}

/** The frames of a stream, in the order in which they came. */
function framesOf(content) {
  const frames = content.split(/\r?\n\r?\n/).filter((frame) => frame.trim() !== "");
  return fold(plural(frames.length, "frame"), () => [
    longText(frames.join("\n\n"), { first: RAW_CHARS, className: "code raw", label: "Frames" }),
  ]);
}
