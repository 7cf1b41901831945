// A conversation as turns: who said what, with tool calls and results as structures and pictures
// shown. Everything in it was written by models, tools and agents, so it only ever becomes text.

import { make } from "../dom.js";
import { count, plural } from "../format.js";
import { visible } from "../visible.js";
import { longText } from "./text.js";
import { structure } from "./tree.js";

const ROLES = { system: "System", user: "User", assistant: "Assistant" };
const IMAGE_TYPES = ["image/png", "image/jpeg", "image/gif", "image/webp"];
const IMAGE_CHARS_MAX = 20_000_000; // of base64; more is no picture that a vendor takes

/** Turns of a request; the first `known` were there in the call before and are folded. */
export function conversation(turns, known) {
  const names = callNames(turns);
  const build = (some) => some.flatMap((turn) => turnOf(turn, names));
  const nodes = build(turns.slice(known));
  if (known === 0) return nodes;
  const title = `${plural(known, "earlier message")}, known from the call before`;
  return [fold(title, () => build(turns.slice(0, known)), "earlier"), ...nodes];
}

/** What a model answered, one block for each alternative. */
export function answerOf(choices, title = "Answer") {
  return choices.map((choice, at) => {
    const parts = [
      choice.reasoning
        ? fold("Reasoning", () => [longText(choice.reasoning, { className: "prose is-soft" })])
        : null,
      choice.text ? longText(choice.text) : null,
      choice.refusal
        ? make("div", { className: "refusal" }, badge("refused"), longText(choice.refusal))
        : null,
      ...choice.tool_calls.map((call) =>
        callOf({ ...call, is_custom: call.kind === "custom" }, call.runs_upstream),
      ),
    ].filter(Boolean);
    if (parts.length === 0) parts.push(make("p", { className: "quiet", textContent: "No text." }));
    const name = choices.length > 1 ? `${title} ${at + 1} of ${choices.length}` : title;
    const reason = choice.finish_reason ? visible(choice.finish_reason) : "not finished";
    return make(
      "article",
      { className: "turn is-answer" },
      make(
        "header",
        { className: "turn-head" },
        make("h3", { textContent: name }),
        make("span", { className: "quiet", textContent: `finished: ${reason}` }),
      ),
      make("div", { className: "turn-body" }, ...parts),
    );
  });
}

/** A part that is folded, and made when it is unfolded for the first time. */
export function fold(title, build, className = "") {
  const node = make(
    "details",
    { className: `unfold ${className}` },
    make("summary", { textContent: title }),
  );
  const open = () => {
    node.append(...build());
    node.removeEventListener("toggle", open);
  };
  node.addEventListener("toggle", open);
  return node;
}

/** The names of tools by the ids of their calls, for results that do not say whose they are. */
function callNames(turns) {
  const calls = turns.flatMap(({ items }) => items.filter((item) => item.kind === "call"));
  return new Map(calls.map(({ id, name }) => [id, name]));
}

/** A turn; results of tools stand in a turn of the user and are shown as the tools'. */
function turnOf(turn, names) {
  const results = turn.items.filter((item) => item.kind === "result");
  const others = turn.items.filter((item) => item.kind !== "result");
  const nodes = [];
  if (results.length > 0) nodes.push(frame("Tool", "tool", "", results, names));
  if (others.length > 0 || results.length === 0) {
    const title = ROLES[turn.role] ?? visible(turn.role);
    nodes.push(frame(title, turn.role, visible(turn.name ?? ""), others, names));
  }
  return nodes;
}

function frame(title, role, name, items, names) {
  const body = items.map((item) => itemOf(item, names));
  if (body.length === 0) body.push(make("p", { className: "quiet", textContent: "Nothing." }));
  return make(
    "article",
    { className: `turn is-${role}` },
    make(
      "header",
      { className: "turn-head" },
      make("h3", { textContent: title }),
      name ? make("span", { className: "quiet", textContent: name }) : null,
    ),
    make("div", { className: "turn-body" }, ...body),
  );
}

function itemOf(item, names) {
  switch (item.kind) {
    case "text":
      return longText(item.text);
    case "refusal":
      return make("div", { className: "refusal" }, badge("refused"), longText(item.text));
    case "call":
      return callOf(item, false);
    case "result":
      return resultOf(item, names);
    case "image":
      return imageOf(item);
    case "document":
      return documentOf(item);
    default:
      return make("p", {
        className: "quiet",
        textContent: `Audio, ${visible(item.format ?? "")}, ${count(item.data_chars)} characters.`,
      });
  }
}

function callOf(call, isUpstreams) {
  const said = isUpstreams ? "run by the provider" : "";
  return card(call.name, "call", said, call.arguments ? structure(call.arguments) : empty());
}

function resultOf(item, names) {
  const name = item.name || names.get(item.id) || "";
  const inner = item.items.map((part) =>
    part.kind === "text" ? structure(part.text) : itemOf(part, names),
  );
  if (inner.length === 0) inner.push(empty());
  return card(name, item.is_error ? "error" : "result", "", ...inner);
}

function card(name, kind, said, ...body) {
  return make(
    "section",
    { className: `tool-card is-${kind}` },
    make(
      "header",
      {},
      make("code", { className: "tool-name", textContent: visible(name) || "(no name)" }),
      badge(kind),
      said ? make("span", { className: "quiet", textContent: said }) : null,
    ),
    ...body,
  );
}

function badge(text) {
  return make("span", { className: "mark", textContent: text });
}

function empty() {
  return make("p", { className: "quiet", textContent: "Empty." });
}

/** A picture that is in the request itself; one that is elsewhere is named and not fetched. */
function imageOf({ data, media_type: type, url }) {
  const isShown = data && IMAGE_TYPES.includes(type) && data.length <= IMAGE_CHARS_MAX;
  if (isShown && /^[A-Za-z0-9+/=\s]*$/.test(data)) {
    return make("img", {
      className: "picture",
      src: `data:${type};base64,${data}`,
      alt: `A picture in the request, ${type}`,
      decoding: "async",
    });
  }
  if (url?.startsWith("data:")) {
    const found = /^data:(image\/[a-z]+);base64,(.*)$/s.exec(url);
    if (found) return imageOf({ data: found[2], media_type: found[1], url: null });
  }
  const what = url ? visible(url.slice(0, 500)) : `${visible(type ?? "of no type")}, not shown`;
  return make("p", { className: "quiet wrap", textContent: `Picture: ${what}` });
}

function documentOf({ name, media_type: type, text, url, data_chars: chars }) {
  const facts = [name, type, url, chars === null ? null : `${count(chars)} characters of base64`];
  const title = `Document: ${facts.filter(Boolean).map(visible).join(", ")}`;
  if (text === null) return make("p", { className: "quiet wrap", textContent: title });
  return fold(title, () => [longText(text)]);
}
