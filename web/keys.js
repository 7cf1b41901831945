// The keys of the page and the sheet that lists them. One listener; keys rest while someone types.

import { make } from "./dom.js";

const TYPED_IN =
  "textarea, select, input:not([type=checkbox], [type=radio], [type=button]), [contenteditable]";

/**
 * Listen for keys as long as the page lives. A row is {key, text, run, repeats}: `run` is called on
 * the key, and again while it is held down only with `repeats`; a row without `run` is only listed.
 * `set` replaces the rows of the view; `shared` are those of all views.
 */
export function listenForKeys(shared = []) {
  let rows = [];
  const list = make("dl", { className: "keys" });
  const close = make("button", { type: "button", className: "button", textContent: "Close" });
  const sheet = make(
    "dialog",
    { className: "sheet", "aria-labelledby": "keys-title" },
    make("h2", { id: "keys-title", textContent: "Keys" }),
    list,
    close,
  );
  close.addEventListener("click", () => sheet.close());
  document.body.append(sheet);

  const own = [
    ...shared,
    { key: "?", text: "These keys", run: () => openSheet() },
    { key: "Esc", text: "Leave a field, so that keys work again" },
  ];

  function openSheet() {
    const entries = [...rows, ...own].map(({ key, text }) =>
      make(
        "div",
        {},
        make("dt", {}, make("kbd", { textContent: key })),
        make("dd", { textContent: text }),
      ),
    );
    list.replaceChildren(...entries);
    sheet.showModal();
  }

  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
    if (document.querySelector("dialog[open]")) return; // it has keys of its own
    if (event.target instanceof Element && event.target.matches(TYPED_IN)) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const row = [...rows, ...own].find(({ key }) => key === event.key);
    if (!row?.run || (event.repeat && !row.repeats)) return;
    event.preventDefault();
    row.run();
  });

  return {
    set(wanted) {
      rows = wanted;
    },
    openSheet,
  };
}
