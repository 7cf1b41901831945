// The controls that edit one value of JSON: a line, an area, a choice, a box, a number, JSON text.

import { make } from "../dom.js";
import { faultOf, indent, isNumber } from "../json.js";
import { unmark, visible } from "../visible.js";

const LINE_CHARS = 80; // a longer text gets an area, not a line
const ROWS_MAX = 16;
const CHOICES_MAX = 50;

export const HIDDEN_NOTE =
  "Hidden characters are shown by their number, as in ⟨U+200B⟩; delete the number to delete one.";

/** That what is in a control cannot be sent; the message says why. */
export class FormFault extends Error {}

/**
 * What edits one value: {input, read, write, note}. `read` and `write` are in JSON text; `read`
 * throws `FormFault`; `note` says how to edit, where that is not plain.
 */
export function createControl({ id, source, property, canEdit }) {
  const sign = source[0];
  const value = sign === '"' ? JSON.parse(source) : null;
  if (value !== null && choicesOf(property)) return choiceControl(id, value, property, canEdit);
  if (value !== null && unmark(visible(value)) === value) return stringControl(id, value, canEdit);
  if (sign === "t" || sign === "f") return checkControl(id, source, canEdit);
  if (isNumber(source)) return numberControl(id, source, canEdit);
  return jsonControl(id, source, canEdit);
}

function stringControl(id, value, canEdit) {
  const shown = visible(value);
  const isShort = shown.length <= LINE_CHARS && !shown.includes("\n");
  const input = isShort
    ? make("input", { id, type: "text", readOnly: !canEdit, autocomplete: "off" })
    : area(id, shown, canEdit);
  input.spellcheck = false;
  input.value = shown;
  return {
    input,
    read: () => JSON.stringify(unmark(input.value)),
    write(source) {
      input.value = visible(JSON.parse(source));
    },
    note: shown === value ? "" : HIDDEN_NOTE,
  };
}

function choiceControl(id, value, property, canEdit) {
  const choices = new Set([value, ...property.enum]);
  const options = [...choices].map((choice) =>
    make("option", { value: choice, textContent: visible(choice) }),
  );
  const input = make("select", { id, disabled: !canEdit }, ...options);
  input.value = value;
  return {
    input,
    read: () => JSON.stringify(input.value),
    write(source) {
      input.value = JSON.parse(source);
    },
    note: "",
  };
}

function checkControl(id, source, canEdit) {
  const input = make("input", { id, type: "checkbox", disabled: !canEdit });
  input.checked = source === "true";
  return {
    input,
    read: () => String(input.checked),
    write(text) {
      input.checked = text === "true";
    },
    note: "",
  };
}

/** No input of type number: it changes with the wheel, and reads what it cannot hold as nothing. */
function numberControl(id, source, canEdit) {
  const input = make("input", {
    id,
    type: "text",
    className: "number",
    inputMode: "decimal",
    autocomplete: "off",
    readOnly: !canEdit,
    value: source,
  });
  return {
    input,
    read() {
      const text = input.value.trim();
      if (!isNumber(text)) throw new FormFault("A number is needed, as in 12 or -0.5.");
      return text;
    },
    write(text) {
      input.value = text;
    },
    note: "",
  };
}

function jsonControl(id, source, canEdit) {
  const input = area(id, indent(source), canEdit);
  input.classList.add("code-area");
  return {
    input,
    read: () => readJson(input.value),
    write(text) {
      input.value = indent(text);
    },
    note: "JSON",
  };
}

/** An area as high as its text, up to a point. */
export function area(id, value, canEdit) {
  const lines = value.split("\n");
  const rows = lines.reduce((sum, line) => sum + 1 + Math.floor(line.length / LINE_CHARS), 0);
  return make("textarea", {
    id,
    value,
    rows: Math.min(rows, ROWS_MAX),
    readOnly: !canEdit,
    spellcheck: false,
  });
}

/** JSON as typed, or a `FormFault`. */
export function readJson(text) {
  const problem = faultOf(text);
  if (problem !== null) throw new FormFault(`This is not JSON: ${problem}.`);
  return text;
}

function choicesOf(property) {
  const choices = property?.enum;
  return (
    Array.isArray(choices) &&
    choices.length <= CHOICES_MAX &&
    choices.every((choice) => typeof choice === "string" && visible(choice) === choice)
  );
}
