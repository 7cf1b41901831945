// Long text that a model or a tool wrote: its beginning at once, the rest in pieces on demand, since
// laying out millions of characters takes long.

import { make, setText } from "../dom.js";
import { count } from "../format.js";
import { visible } from "../visible.js";

const PIECE_CHARS = 200_000;

/** Where to cut a text at most `at` units in: not between the halves of a character. */
function cutAt(text, at) {
  const code = text.charCodeAt(at - 1);
  return at < text.length && code >= 0xd800 && code < 0xdc00 ? at - 1 : Math.min(at, text.length);
}

/** A block of text: {node}; shows `first` characters, every one of them to be seen. */
export function longText(text, { first = 4000, className = "prose", label = "" } = {}) {
  let shown = text.length <= first * 1.25 ? text.length : cutAt(text, first);
  const body = make("pre", { className });
  if (label) {
    body.tabIndex = 0;
    body.setAttribute("role", "region");
    body.setAttribute("aria-label", label);
  }
  setText(body, visible(text.slice(0, shown)));
  if (shown === text.length) return body;
  const more = make("button", { type: "button", className: "link-button more-text" });
  const say = () => setText(more, `Show more: ${count(text.length - shown)} characters are folded`);
  more.addEventListener("click", () => {
    const next = cutAt(text, shown + PIECE_CHARS);
    body.append(visible(text.slice(shown, next)));
    shown = next;
    if (shown === text.length) more.remove();
    else say();
  });
  say();
  return make("div", { className: "long" }, body, more);
}
