// A line of training data as something to read: the conversation in it, as on the page of a session.
// A number stands as it stands in the file: JSON.parse would round it.

import { make } from "../dom.js";
import { count, plural } from "../format.js";
import { readTree } from "../json.js";
import { visible } from "../visible.js";
import { longText } from "./text.js";
import { structure } from "./tree.js";
import { conversation, fold } from "./turns.js";

const READ_CHARS_MAX = 1_000_000; // of a longer line it takes long to make a conversation
const GIST_CHARS = 90;

/** A line as a fold: what it is about, then the conversation and the text itself. */
export function exportedLine(text, number) {
  const line = text.length <= READ_CHARS_MAX ? readTree(text) : null;
  const title = `${number} · ${gistOf(line) || `${count(text.length)} characters`}`;
  return fold(title, () => bodyOf(line, text, number), "exported");
}

function bodyOf(line, text, number) {
  const raw = fold("The line as it stands in the file", () => [
    longText(text, { className: "code raw", label: `Line ${number}` }),
  ]);
  if (line === null) return [raw];
  return [...partsOf(line).flatMap(partNodes), ...toolsOf(line), raw];
}

/** What of a line is a conversation, in each of the forms: [{title, messages, said}]. */
function partsOf(line) {
  const part = (title, messages) => ({ title, messages: itemsOf(messages) });
  if (member(line, "preferred_output")) {
    return [
      part("", member(member(line, "input"), "messages")),
      part("Preferred", member(line, "preferred_output")),
      part("Not preferred", member(line, "non_preferred_output")),
    ];
  }
  if (member(line, "completion")) {
    const isGood = member(line, "label")?.source === "true";
    return [
      part("", member(line, "prompt")),
      part(isGood ? "Approved" : "Rejected", member(line, "completion")),
    ];
  }
  return [part("", member(line, "messages"))];
}

function partNodes({ title, messages }) {
  const heading = title ? [make("h3", { className: "exported-part", textContent: title })] : [];
  return [...heading, ...conversation(messages.map(turnOf), 0)];
}

function toolsOf(line) {
  const tools = member(line, "tools") ?? member(member(line, "input"), "tools");
  const size = itemsOf(tools).length;
  return size > 0 ? [fold(plural(size, "tool"), () => [structure(sourceOf(tools))])] : [];
}

/** A message as the API has turns. */
function turnOf(message) {
  const text = (name) => member(message, name)?.value ?? "";
  const calls = itemsOf(member(message, "tool_calls")).map((call) => {
    const asked = member(call, "function");
    const given = member(asked, "arguments");
    return {
      kind: "call",
      id: member(call, "id")?.value,
      name: member(asked, "name")?.value ?? "",
      arguments: given?.kind === "string" ? given.value : sourceOf(given),
    };
  });
  const said = contentOf(member(message, "content"));
  const isUnlearnt = member(message, "weight")?.source === "0";
  if (text("role") === "tool") {
    const result = { kind: "result", id: text("tool_call_id"), name: text("name"), items: said };
    return { role: "user", items: [result] };
  }
  const name = isUnlearnt ? "weight 0: not learnt from" : "";
  return { role: text("role"), name, items: [...said, ...calls] };
}

function contentOf(content) {
  if (content?.kind === "string") return [{ kind: "text", text: content.value }];
  return itemsOf(content).map((part) => {
    const url = member(member(part, "image_url"), "url")?.value;
    return url === undefined
      ? { kind: "text", text: member(part, "text")?.value ?? sourceOf(part) }
      : { kind: "image", url };
  });
}

/** What was asked first and said last, in few words; "" = it says nothing. */
function gistOf(line) {
  if (line === null) return "";
  const messages = partsOf(line).flatMap((part) => part.messages);
  const said = (message) => {
    const first = turnOf(message).items[0];
    return first?.kind === "call" ? `${first.name}(…)` : (first?.text ?? "");
  };
  const asked = messages.find((message) => member(message, "role")?.value === "user");
  const ends = [asked, messages.at(-1)].filter(Boolean).map((message) => short(said(message)));
  return `${ends.filter(Boolean).join(" → ")} · ${plural(messages.length, "message")}`;
}

function short(text) {
  const plain = visible(text.slice(0, 4 * GIST_CHARS)).replace(/\s+/g, " ");
  const signs = Array.from(plain);
  return signs.length > GIST_CHARS ? `${signs.slice(0, GIST_CHARS).join("")}…` : plain;
}

// --- trees, as `readTree` makes them --------------------------------------------------------------

function member(tree, name) {
  return tree?.kind === "object" ? tree.members.find((each) => each.name === name)?.node : undefined;
}

function itemsOf(tree) {
  return tree?.kind === "array" ? tree.items : [];
}

function sourceOf(tree) {
  if (tree === undefined) return "";
  if (tree.kind === "string") return JSON.stringify(tree.value);
  if (tree.kind === "array") return `[${tree.items.map(sourceOf).join(",")}]`;
  if (tree.kind === "literal") return tree.source;
  const members = tree.members.map(({ name, node }) => `${JSON.stringify(name)}:${sourceOf(node)}`);
  return `{${members.join(",")}}`;
}
