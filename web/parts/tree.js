// JSON as a structure that is folded and unfolded, numbers as they were sent.

import { make } from "../dom.js";
import { plural } from "../format.js";
import { readTree } from "../json.js";
import { visible } from "../visible.js";
import { longText } from "./text.js";

const PARSED_CHARS_MAX = 1_000_000; // of a longer text the tree would take longer than reading it
const OPEN_ITEMS_MAX = 8; // with more an inner structure is folded at first
const ROWS_AT_ONCE = 100;
const STRING_CHARS = 600;

/** A JSON text as a structure; text that is none, or only one value, as text. */
export function structure(text) {
  const tree = text.length <= PARSED_CHARS_MAX ? readTree(text) : null;
  if (tree === null || isPlain(tree)) return longText(text);
  if (sizeOf(tree) === 0) return longText(text, { className: "prose code-text" });
  return rowsOf(tree, 0);
}

function isPlain(tree) {
  return tree.kind === "string" || tree.kind === "literal";
}

function entriesOf(tree) {
  if (tree.kind === "object") return tree.members;
  return tree.items.map((node, at) => ({ name: String(at), node }));
}

function sizeOf(tree) {
  return tree.kind === "object" ? tree.members.length : tree.items.length;
}

function rowsOf(tree, depth) {
  const entries = entriesOf(tree);
  const list = make("dl", { className: "tree" });
  let shown = 0;
  const showMore = () => {
    const next = entries.slice(shown, shown + ROWS_AT_ONCE);
    list.append(...next.map((entry) => rowOf(entry, depth)));
    shown += next.length;
  };
  showMore();
  if (shown === entries.length) return list;
  const more = make("button", { type: "button", className: "link-button more-text" });
  const say = () => {
    more.textContent = `Show more: ${plural(entries.length - shown, "value")}`;
  };
  more.addEventListener("click", () => {
    showMore();
    if (shown === entries.length) more.remove();
    else say();
  });
  say();
  return make("div", {}, list, more);
}

function rowOf({ name, node }, depth) {
  const title = make("dt", { textContent: visible(name) || "(empty)" });
  if (isPlain(node)) return make("div", { className: "leaf" }, title, make("dd", {}, leafOf(node)));
  const size = sizeOf(node);
  const what = node.kind === "object" ? plural(size, "key") : plural(size, "item");
  if (size === 0) {
    const text = node.kind === "object" ? "{}" : "[]";
    return make("div", { className: "leaf" }, title, make("dd", {}, literal(text)));
  }
  const fold = make("details", {}, make("summary", { textContent: what }));
  let isBuilt = false;
  const build = () => {
    if (!isBuilt) fold.append(rowsOf(node, depth + 1));
    isBuilt = true;
  };
  if (size <= OPEN_ITEMS_MAX && depth < 2) {
    build();
    fold.open = true;
  }
  fold.addEventListener("toggle", build);
  return make("div", { className: "branch" }, title, make("dd", {}, fold));
}

function leafOf(node) {
  if (node.kind === "literal") return literal(node.source);
  if (node.value === "") return literal('""');
  return longText(node.value, { first: STRING_CHARS, className: "prose is-string" });
}

function literal(text) {
  return make("code", { className: "literal", textContent: text });
}
