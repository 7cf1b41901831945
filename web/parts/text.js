// Long text that a model or a tool wrote: its beginning at once, the rest in pieces on demand, since
// laying out millions of characters takes long.

import { make, setText } from "../dom.js";
import { count } from "../format.js";
import { visible } from "../visible.js";

const PIECE_CHARS = 200_000;

/** A block of text: {node}; shows `first` characters, every one of them to be seen. */
export function longText(text, { first = 4000, className = "prose", label = "" } = {}) {
  let shown = text.length <= first * 1.25 ? text.length : first;
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
    const next = Math.min(text.length, shown + PIECE_CHARS);
    body.append(visible(text.slice(shown, next)));
    shown = next;
    if (shown === text.length) more.remove();
    else say();
  });
  say();
  return make("div", { className: "long" }, body, more);
}
