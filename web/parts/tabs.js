// Panels of which one is shown, chosen by tabs: clicked, or with the arrow keys.

import { make } from "../dom.js";

/**
 * Make tabs: {node, show, current}. A row is {id, title, build}; `build()` returns the content of
 * its panel, made each time it is chosen. `onShow(id)` is told of each choice of a person.
 */
export function tabbed(label, rows, onShow = () => {}) {
  const panel = make("div", { className: "tab-panel", role: "tabpanel", id: "tab-panel" });
  let current = "";
  const buttons = rows.map(({ id, title }) =>
    make("button", {
      type: "button",
      className: "tab",
      role: "tab",
      id: `tab-${id}`,
      textContent: title,
      "aria-controls": "tab-panel",
      onclick: () => choose(id),
    }),
  );
  const list = make("div", { className: "tabs", role: "tablist", "aria-label": label }, ...buttons);
  list.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    const at = rows.findIndex((row) => row.id === current) + by;
    const next = rows[(at + rows.length) % rows.length];
    choose(next.id);
    buttons[rows.indexOf(next)].focus();
    event.preventDefault();
  });

  function choose(id) {
    show(id);
    onShow(id);
  }

  function show(id) {
    current = rows.some((row) => row.id === id) ? id : rows[0].id;
    rows.forEach((row, at) => {
      buttons[at].ariaSelected = String(row.id === current);
      buttons[at].tabIndex = row.id === current ? 0 : -1;
    });
    panel.setAttribute("aria-labelledby", `tab-${current}`);
    const built = rows.find((row) => row.id === current).build();
    panel.replaceChildren(...[built].flat().filter(Boolean));
  }

  return { node: make("div", {}, list, panel), show, choose, current: () => current };
}
