// The dialog that shows the caps of a session, and sets them: {node, ask, stop}.

import { readBudget, setBudget } from "../api.js";
import { make } from "../dom.js";
import { ago, count } from "../format.js";
import { isNumber } from "../json.js";
import { visible } from "../visible.js";
import { FormFault } from "./controls.js";
import { labelled, sheet } from "./sheet.js";

const CAPS = [
  { name: "steps", title: "Steps", hint: "answers that are paid" },
  { name: "tokens", title: "Tokens", hint: "in and out" },
  { name: "cost_usd", title: "Cost in $", hint: "as far as prices are known" },
  { name: "repeats", title: "Repeats", hint: "the same tool calls in a row" },
];
const COLUMNS = [["Cap"], ["Limit", "num"], ["Used", "num"], ["Left", "num"], ["From"]];
const ACTIONS = [
  { value: "hold", title: "A person is asked" },
  { value: "refuse", title: "The call is refused" },
];

export function budgeting(id, changed) {
  const dialog = sheet("budget");

  async function ask() {
    const signal = dialog.open("Budget");
    dialog.fill([make("p", { role: "status", textContent: "Reading…" })], null);
    try {
      show((await readBudget(id, signal)).budget, "");
    } catch (error) {
      if (!signal.aborted) dialog.fault(error);
    }
  }

  function show(budget, said) {
    const fields = CAPS.map((cap) => capField(cap, budget.caps[cap.name]));
    const action = make(
      "select",
      { id: "budget-action" },
      ...ACTIONS.map(({ value, title }) => make("option", { value, textContent: title })),
    );
    action.value = budget.action;
    const clear = make("button", {
      type: "button",
      className: "link-button",
      hidden: budget.set_ms === null,
      textContent: "Forget what was set here",
      onclick: async () => {
        try {
          await set({ clear: true }, "It is forgotten.");
        } catch (error) {
          dialog.fault(error);
        }
      },
    });
    dialog.fill(
      [
        standingOf(budget),
        ...(budget.note ? [make("p", { className: "warning", textContent: `Note: ${visible(budget.note)}.` })] : []),
        make("div", { className: "sheet-columns" }, ...fields.map(({ node }) => node)),
        labelled("At a cap", action),
        clear,
        make("p", { role: "status", textContent: said }),
      ],
      {
        title: "Set",
        async run() {
          const caps = {};
          for (const field of fields) {
            const value = field.read();
            if (value !== null) caps[field.name] = value;
          }
          if (action.value !== budget.action) caps.action = action.value;
          if (Object.keys(caps).length === 0) throw new FormFault("Nothing is changed yet.");
          await set(caps, "It is set. Calls that wait for more go on.");
        },
      },
    );
  }

  async function set(caps, said) {
    const found = await setBudget(id, caps);
    changed();
    show(found.budget, said);
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

function capField({ name, title, hint }, limit) {
  const input = make("input", {
    id: `budget-${name}`,
    type: "text",
    className: "number",
    inputMode: "decimal",
    autocomplete: "off",
    placeholder: limit ? String(limit.cap) : "no cap",
  });
  return {
    name,
    node: labelled(title, input, hint),
    /** What was typed; null = nothing. */
    read() {
      const text = input.value.trim();
      if (text === "") return null;
      if (isNumber(text)) return Number(text);
      input.focus();
      throw new FormFault(`${title}: a number is needed, as in 12 or 0.5.`);
    },
  };
}

/** How it stands with each cap, as a table. */
function standingOf({ caps, used, set_ms: setMs, set_by: setBy }) {
  const rows = CAPS.map(({ name, title }) => {
    const limit = caps[name];
    const spent = limit?.used ?? used[name];
    const cells = [limit ? shown(limit.limit) : "none", shown(spent), limit ? shown(limit.left) : ""];
    const row = make(
      "tr",
      {},
      make("th", { scope: "row", textContent: title }),
      ...cells.map((textContent) => make("td", { className: "num", textContent })),
      make("td", { textContent: limit ? limit.from : "" }),
    );
    if (limit?.reached) row.dataset.is = "reached";
    return row;
  });
  const by = setBy ? ` by ${visible(setBy)}` : "";
  const set = setMs === null ? "" : `Set ${ago(setMs, Date.now())}${by}.`;
  return make(
    "div",
    { className: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Caps" },
    make(
      "table",
      { className: "table caps" },
      make("caption", { className: set ? "quiet" : "unseen", textContent: set || "Caps" }),
      make(
        "thead",
        {},
        make(
          "tr",
          {},
          ...COLUMNS.map(([textContent, className]) =>
            make("th", { scope: "col", className, textContent }),
          ),
        ),
      ),
      make("tbody", {}, ...rows),
    ),
  );
}

function shown(value) {
  return Number.isInteger(value) ? count(value) : String(value ?? "–");
}
