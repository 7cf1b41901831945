// A step beside another one, line by line; and an answer beside what the agent got instead.

import { readConversation } from "../api.js";
import { answerLines, diffLines, foldSame, linesOf } from "../diff.js";
import { make, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { visible } from "../visible.js";

const ROWS_MAX = 3000; // shown at once; a diff that long is not read
const LINE_CHARS_MAX = 2000;
const SIGNS = { same: " ", gone: "−", new: "+" };

/**
 * Choose what a step is compared with, and show it: at first the step at the index `before`, null =
 * none. Of an answer that was edited at the gate it is the model's own.
 */
export function comparison(id, found, before, signal) {
  const { step, choices, delivered } = found;
  const place = make("div", { className: "diff-place", role: "status" });
  const input = make("input", {
    id: "compare-index",
    type: "number",
    className: "number",
    min: 0,
    value: String(before ?? step.index),
  });
  const ask = async () => {
    setText(place, "Reading…");
    try {
      const other = await readConversation(id, Number(input.value), signal);
      show(linesOf(other), linesOf(found), `index ${other.step.index}`, `index ${step.index}`);
    } catch (error) {
      if (signal.aborted) return;
      setText(place, error.message);
    }
  };
  const show = (before, after, left, right) => {
    place.replaceChildren(...diffBlock(before, after, left, right));
  };
  const form = make(
    "form",
    { className: "compare-form" },
    make("label", { htmlFor: input.id, textContent: "With the step at index" }),
    input,
    make("button", { className: "button", textContent: "Compare" }),
  );
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    ask();
  });
  if (delivered) {
    const original = make("button", {
      type: "button",
      className: "button",
      textContent: "With the model's own answer",
      onclick: () => showOriginal(),
    });
    form.append(original);
  }
  const showOriginal = () =>
    show(answerLines(choices ?? []), answerLines(delivered), "the model's answer", "what the agent got");
  if (delivered) showOriginal();
  else if (before !== null) ask();
  else setText(place, "It is the first step.");
  return make("div", {}, form, place);
}

/** What differs between two lists of lines, as nodes. */
export function diffBlock(before, after, left, right) {
  const rows = diffLines(before, after);
  const changed = rows.filter((row) => row.kind !== "same").length;
  if (changed === 0) {
    return [make("p", { className: "quiet", textContent: "They say the same." })];
  }
  const gone = rows.filter((row) => row.kind === "gone").length;
  const folded = foldSame(rows);
  const said = `${plural(gone, "line")} only at ${left}, ${count(changed - gone)} only at ${right}.`;
  const lines = folded.slice(0, ROWS_MAX).map(lineOf);
  if (folded.length > ROWS_MAX) {
    lines.push(make("div", { className: "diff-fold", textContent: "… and more: see Raw." }));
  }
  return [
    make("p", { className: "lead", textContent: said }),
    make(
      "div",
      { className: "diff", tabIndex: 0, role: "region", "aria-label": "What differs" },
      ...lines,
    ),
  ];
}

function lineOf(row) {
  if (row.kind === "fold") {
    return make("div", {
      className: "diff-fold",
      textContent: `${plural(row.count, "line")} the same`,
    });
  }
  const text = visible(row.line.slice(0, LINE_CHARS_MAX));
  const node = make(
    "div",
    { className: "diff-line" },
    make("span", { className: "diff-sign", textContent: SIGNS[row.kind] }),
    make("span", { textContent: text || " " }),
  );
  node.dataset.is = row.kind;
  return node;
}
