// The button that chooses between light, dark and what the system says; `theme.js` applies it first.

import { make, setText } from "../dom.js";

const KEY = "agentstate.theme"; // also in theme.js
const THEMES = ["system", "light", "dark"];
const SIGNS = { system: "◐", light: "☀", dark: "☾" };

/** The button: {node, turn}; `turn` goes to the next of the three. */
export function themeButton() {
  const sign = make("span", { "aria-hidden": "true" });
  const words = make("span", { className: "unseen" });
  const node = make("button", { type: "button", className: "button bar-button" }, sign, words);

  function current() {
    return document.documentElement.dataset.theme ?? "system";
  }

  function show() {
    setText(sign, SIGNS[current()]);
    setText(words, `Colours: ${current()}`);
    node.title = `Colours: ${current()} (t)`;
  }

  function turn() {
    const next = THEMES[(THEMES.indexOf(current()) + 1) % THEMES.length];
    if (next === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = next;
    try {
      localStorage.setItem(KEY, next);
    } catch {
      // It holds until the page is closed.
    }
    show();
  }

  node.addEventListener("click", turn);
  show();
  return { node, turn };
}
