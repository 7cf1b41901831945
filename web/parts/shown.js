// What is shown of one approval beside its form: nodes made from an approval as the API has it. All
// text of it was written by a model or an agent, so all of it goes through `visible`.

import { make, setText } from "../dom.js";
import { MISSING, ago, count, moment, statusLabel } from "../format.js";
import { indent } from "../json.js";
import { lookalikes, visible } from "../visible.js";

const IN_ANSWERS = ["tool_call", "text"]; // kinds that ask about a part of an answer
const SENT = { budget: "As offered", durable: "As the tool began it" };
const RAW_CHARS_MAX = 200_000; // shown at once; the rest on demand, since layout takes long

/** What a decision was, by whom and when. */
export function outcomeOf(approval, lead, nowMs) {
  const by = approval.decided_by ? ` by ${visible(approval.decided_by)}` : "";
  const word = statusLabel(approval.status).toLowerCase();
  const edited = approval.edited_arguments === null ? "" : " with edits";
  const then = { stop: " The agent was stopped.", continue: " The model was told." }[approval.then];
  const when = `${ago(approval.decided_ms, nowMs)} (${moment(approval.decided_ms)})`;
  const what = `${lead}${word}${edited}${by}`;
  return [
    make(
      "p",
      {},
      make("strong", { textContent: what[0].toUpperCase() + what.slice(1) }),
      ` · ${when}.${then ?? ""}`,
    ),
    approval.reason
      ? make("p", { className: "said", textContent: visible(approval.reason) })
      : null,
  ].filter((node) => node !== null);
}

export function warningsOf(approval) {
  const found = [];
  const doubles = approval.duplicate_keys.map((key) => `“${visible(key)}”`);
  if (doubles.length > 0) {
    found.push(
      `The arguments have the same key twice: ${doubles.join(", ")}. Two programs may read ` +
        "them differently, so what you see need not be what the tool does.",
    );
  } else if (approval.kind === "tool_call" && approval.arguments_json === null) {
    found.push("The arguments are no JSON that every program reads alike. Read them as text.");
  }
  const strange = lookalikes(approval.tool);
  if (strange.length > 0) {
    found.push(`The name has letters that may pass for others: ${strange.join(", ")}.`);
  }
  if (visible(approval.tool) !== approval.tool) {
    found.push("The name has hidden characters; they are shown by their numbers.");
  }
  return found.map((text) => make("p", { className: "warning", role: "note", textContent: text }));
}

/** Where it comes from and what held it; `asked` has the time since, which goes on. */
export function sourceOf(approval, asked) {
  const session = make("a", {
    href: `#/sessions/${encodeURIComponent(approval.session)}`,
    textContent: visible(approval.session),
  });
  const { step_number: number } = approval;
  const facts = [number === null ? "" : `step ${number}`, visible(approval.model ?? ""), asked];
  const line = facts.filter(Boolean).flatMap((fact) => [" · ", fact]);
  const rule = [approval.rule, approval.why].filter(Boolean).map(visible).join(": ");
  return [
    make("p", { className: "source" }, session, ...line),
    ...(rule ? [make("p", { className: "source", textContent: `Held by ${rule}` })] : []),
  ];
}

export function promptOf({ prompt }) {
  if (!prompt) return [];
  return [
    make(
      "details",
      { className: "fold" },
      make("summary", { textContent: "What the model was asked" }),
      make("p", { className: "said", textContent: visible(prompt) }),
    ),
  ];
}

export function callOf(approval, form) {
  const edited = approval.edited_arguments;
  const sent = [
    make("h3", {
      textContent: SENT[approval.kind] ?? "As the model sent them",
    }),
    rawBlock(approval.arguments_display, "The arguments as the model sent them"),
  ];
  if (form.isEmpty && edited === null) {
    setText(sent[0], "Arguments, as the model sent them");
    return sent;
  }
  return [
    make("h3", { textContent: edited === null ? "Arguments" : "Arguments, as edited" }),
    ...uncheckedOf(approval),
    form.isEmpty ? rawBlock(visible(edited), "The arguments as edited") : form.node,
    ...sent,
  ];
}

function uncheckedOf({ schema, schema_unchecked: unchecked, can_edit: canEdit }) {
  if (!canEdit) return [];
  const names = (unchecked ?? []).map(visible).join(", ");
  let text = "";
  if (schema === null) text = "The tool came without a schema: edits are not checked.";
  else if (names) text = `Edits are checked against the tool's schema, but for ${names}.`;
  return text ? [make("p", { className: "hint", textContent: text })] : [];
}

export function requestOf({ request_text: text }) {
  return [
    make("h3", { textContent: "The request" }),
    rawBlock(visible(indent(text)), "The request as the agent sent it"),
  ];
}

/** Text as it is, every character to be seen. Long text is cut, and the cut says so. */
function rawBlock(text, label) {
  const code = make("code", { textContent: text.slice(0, RAW_CHARS_MAX) });
  const block = make(
    "pre",
    { className: "code raw", tabIndex: 0, role: "region", "aria-label": label },
    code,
  );
  if (text === "") setText(code, "(empty)");
  if (text.length <= RAW_CHARS_MAX) return block;
  const rest = count(text.length - RAW_CHARS_MAX);
  const more = make("button", {
    type: "button",
    className: "button more-text",
    textContent: `${rest} more characters are not shown. Show them`,
  });
  more.addEventListener("click", () => {
    setText(code, text);
    more.remove();
    block.focus();
  });
  return make("div", {}, block, more);
}

export function moreOf(approval) {
  const rows = [
    ["Approval", approval.approval_id],
    ["Call id (of the provider, need not be unique)", visible(approval.call_id ?? "") || MISSING],
    ["Run", visible(approval.run_id ?? "") || MISSING],
    ...(IN_ANSWERS.includes(approval.kind)
      ? [
          ["Dialect", approval.dialect],
          ["Place in the answer", `choice ${approval.choice}, call ${approval.position}`],
        ]
      : []),
    ["First asked", moment(approval.created_ms)],
  ];
  return make(
    "details",
    { className: "fold" },
    make("summary", { textContent: "More about this call" }),
    make(
      "dl",
      { className: "about" },
      ...rows.map(([title, value]) =>
        make("div", {}, make("dt", { textContent: title }), make("dd", { textContent: value })),
      ),
    ),
  );
}
