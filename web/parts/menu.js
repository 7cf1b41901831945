// A button that shows further ones. They stay where they are in the order of the page, so the Tab
// key goes through them as through any others.

import { make } from "../dom.js";

/** Make it of rows {title, isBad, run}; it closes when one is chosen. */
export function menu(title, rows) {
  const node = make(
    "details",
    { className: "export menu" },
    make("summary", { className: "button", textContent: title }),
  );
  const buttons = rows.map((row) =>
    make("button", {
      type: "button",
      className: row.isBad ? "button is-no" : "button",
      textContent: row.title,
      onclick: () => {
        node.open = false;
        node.querySelector("summary").focus(); // where a dialog gives the focus back to
        row.run();
      },
    }),
  );
  node.append(make("div", { className: "export-box" }, ...buttons));
  node.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !node.open) return;
    node.open = false;
    node.querySelector("summary").focus();
  });
  return node;
}
