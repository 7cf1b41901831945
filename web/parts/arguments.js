// The arguments of a call as a form: one field for each key of the object, or its text as a whole.
//
// A field changes the text of its own value and nothing else: what nobody touched is sent as the
// model sent it, to the digit. Text that is no JSON object, or has a key twice, has no fields: two
// readers might take it for two things.

import { make, setText } from "../dom.js";
import { count } from "../format.js";
import { faultOf, indent, normalize, readMembers, replaceValues } from "../json.js";
import { unmark, visible } from "../visible.js";
import { FormFault, HIDDEN_NOTE, area, createControl, readJson } from "./controls.js";

const FIELDS_MAX = 200; // with more keys the text as a whole is easier to work with
const EDIT_CHARS_MAX = 500_000; // longer arguments are for reading only: areas get slow
const DESCRIPTION_CHARS_MAX = 300;

/**
 * Make the form: {node, isEmpty, read, names, isEdited, focus, lock, showFault}.
 *
 * `text` is what to show and `original` what the model sent; they differ where a decision edited
 * it. `hasFields` says that the text is one object to every reader. `read` returns the edited text,
 * null = as the model sent it; it throws `FormFault`, with the focus where the fault is. `onInput`
 * is called on every change.
 */
export function argumentsForm({ id, text, original, schema, hasFields, canEdit }, onInput) {
  const isLong = text.length > EDIT_CHARS_MAX;
  const isOpen = canEdit && !isLong;
  const members = hasFields && !isLong ? readMembers(text) : null;
  const fits = members !== null && members.length > 0 && members.length <= FIELDS_MAX;
  const settings = { id, text, original, schema, canEdit: isOpen };
  const fault = make("p", { className: "fault", role: "alert" });
  const body = make("div", { className: "fields" });
  let editor = null;
  let isLocked = !isOpen;

  const modes = [
    { name: "Fields", make: (from) => fieldsEditor({ ...settings, text: from }, changed) },
    { name: "JSON", make: (from) => textEditor({ ...settings, text: from }, changed) },
  ].map((mode) => ({
    ...mode,
    button: make("button", { type: "button", className: "tab", textContent: mode.name }),
  }));
  const tabs = make(
    "div",
    { className: "tabs", role: "group", "aria-label": "Edit as", hidden: !fits || isLocked },
    ...modes.map(({ button }) => button),
  );
  for (const mode of modes) mode.button.addEventListener("click", () => change(mode));

  function show(mode, from) {
    editor = mode.make(from);
    body.replaceChildren(editor.node);
    for (const { name, button } of modes) {
      button.setAttribute("aria-pressed", String(name === mode.name));
    }
  }

  /** Take what was typed over to the other editor, if it can be. */
  function change(mode) {
    if (mode.button.getAttribute("aria-pressed") === "true") return;
    try {
      const typed = editor.read();
      if (mode.name === "Fields" && !readMembers(typed)?.length) {
        throw new FormFault("Only an object with keys has fields.");
      }
      setText(fault, "");
      show(mode, typed);
      changed();
    } catch (error) {
      if (!(error instanceof FormFault)) throw error;
      setText(fault, error.message);
    }
  }

  function changed() {
    setText(fault, "");
    onInput();
  }

  const [byFields, byText] = modes;
  if (fits) show(byFields, text);
  else if (isOpen) show(byText, text);
  if (isLong && canEdit) {
    setText(body, `These arguments have ${count(text.length)} characters: too many to edit here.`);
  }
  const node = make("div", { className: "arguments" }, tabs, fault, body);

  return {
    node,
    isEmpty: body.childNodes.length === 0,
    read() {
      if (isLocked) return null;
      const typed = editor.read();
      return isSame(typed, original) ? null : typed;
    },
    /** The names of the fields that were edited, for people; empty = none was, or not by fields. */
    names: () => (isLocked ? [] : editor.names()),
    isEdited: () => !isLocked && editor.isEdited(),
    focus() {
      if (!isLocked) editor.focus();
    },
    /** End editing; what was typed stays to be read. */
    lock() {
      isLocked = true;
      tabs.hidden = true;
      for (const control of body.querySelectorAll("input, textarea, select")) {
        if (control.matches("select, [type=checkbox]")) control.disabled = true;
        else control.readOnly = true;
      }
      for (const button of body.querySelectorAll("button")) button.hidden = true;
    },
    showFault(message) {
      setText(fault, message);
      fault.scrollIntoView({ block: "nearest" });
      editor?.point(message);
    },
  };
}

function isSame(text, original) {
  if (text === original) return true;
  if (faultOf(text) !== null || faultOf(original) !== null) return false;
  return normalize(text) === normalize(original);
}

function fieldsEditor({ id, text, original, schema, canEdit }, onInput) {
  const first = new Map((readMembers(original) ?? []).map(({ name, source }) => [name, source]));
  const fields = readMembers(text).map((member, at) =>
    createField(
      {
        id: `${id}-field-${at}`,
        member,
        original: first.get(member.name),
        property: propertyOf(schema, member.name),
        canEdit,
      },
      onInput,
    ),
  );
  const node = make("div", {}, ...fields.map((field) => field.node));
  return {
    node,
    read() {
      const sources = fields.map((field) => [field.member, field.read()]);
      return replaceValues(
        text,
        sources.filter(([member, source]) => source !== member.source),
      );
    },
    names: () => fields.filter((field) => field.isEdited()).map((field) => field.label),
    isEdited: () =>
      fields.some((field) => field.isEdited()) ||
      (first.size !== fields.length && !isSame(text, original)),
    focus: () => fields[0].focus(),
    /** Mark the fields that a message of the server names, as in `arguments.amount`. */
    point(message) {
      const named = fields.filter((field) => isNamed(field.member.name, message));
      for (const field of fields) field.mark(named.includes(field));
      named[0]?.focus();
    },
  };
}

function isNamed(name, message) {
  const at = message.indexOf(name);
  return (
    name !== "" &&
    at >= 0 &&
    !/[\p{L}\p{N}_]/u.test(message[at - 1] ?? "") &&
    !/[\p{L}\p{N}_]/u.test(message[at + name.length] ?? "")
  );
}

function createField({ id, member, original, property, canEdit }, onInput) {
  const label = visible(member.name) || "(empty name)";
  const control = createControl({ id, source: member.source, property, canEdit });
  const mark = make("span", { className: "edited", hidden: true, textContent: "edited" });
  const undo = make("button", {
    type: "button",
    className: "link-button",
    hidden: true,
    textContent: "Undo",
    "aria-label": `Undo the edit of ${label}`,
  });
  const fault = make("p", { className: "fault", id: `${id}-fault`, hidden: true });
  const hint = hintOf(id, property, control.note);
  control.input.setAttribute("aria-describedby", `${id}-hint ${id}-fault`);
  const node = make(
    "div",
    { className: "field" },
    make(
      "div",
      { className: "field-head" },
      make("label", { htmlFor: id, textContent: label }),
      mark,
      undo,
    ),
    control.input,
    hint,
    fault,
  );

  function read() {
    const source = control.read();
    return isSame(source, member.source) ? member.source : source;
  }

  function isEdited() {
    try {
      return original === undefined || !isSame(read(), original);
    } catch (error) {
      if (error instanceof FormFault) return true; // it was not broken when it came
      throw error;
    }
  }

  function refresh() {
    const isNew = isEdited();
    mark.hidden = !isNew;
    undo.hidden = !isNew || original === undefined || !canEdit;
    node.classList.toggle("is-edited", isNew);
  }

  function showFault(message) {
    fault.hidden = message === "";
    setText(fault, message);
    control.input.setAttribute("aria-invalid", String(message !== ""));
  }

  control.input.addEventListener("input", () => {
    showFault("");
    refresh();
    onInput();
  });
  undo.addEventListener("click", () => {
    control.write(original);
    showFault("");
    refresh();
    onInput();
    control.input.focus();
  });
  refresh();

  return {
    node,
    member,
    label,
    isEdited,
    focus: () => control.input.focus(),
    mark: (isMarked) => control.input.setAttribute("aria-invalid", String(isMarked)),
    read() {
      try {
        return read();
      } catch (error) {
        if (error instanceof FormFault) {
          showFault(error.message);
          control.input.focus();
        }
        throw error;
      }
    },
  };
}

function hintOf(id, property, note) {
  const description = typeof property?.description === "string" ? property.description : "";
  const cut = visible(description.slice(0, DESCRIPTION_CHARS_MAX));
  return make("p", {
    className: "hint",
    id: `${id}-hint`,
    hidden: !cut && !note,
    textContent: [cut, note].filter(Boolean).join(" "),
  });
}

/** The whole text in one area: JSON if it was JSON, else whatever the tool takes. */
function textEditor({ id, text, original, canEdit }, onInput) {
  const isJson = faultOf(text) === null;
  const isText = !isJson && unmark(visible(text)) === text;
  const shown = isJson ? indent(text) : visible(text);
  const input = area(`${id}-text`, shown, canEdit);
  input.classList.add("code-area");
  input.setAttribute("aria-label", isJson ? "The arguments as JSON" : "The arguments");
  input.addEventListener("input", () => {
    input.removeAttribute("aria-invalid");
    onInput();
  });
  const note = make("p", {
    className: "hint",
    hidden: isJson || shown === text,
    textContent: HIDDEN_NOTE,
  });

  function read() {
    if (input.value === shown) return text;
    if (isJson) return readJson(input.value);
    return isText ? unmark(input.value) : input.value;
  }

  return {
    node: make("div", { className: "field" }, input, note),
    read() {
      try {
        return read();
      } catch (error) {
        if (error instanceof FormFault) {
          input.setAttribute("aria-invalid", "true");
          input.focus();
        }
        throw error;
      }
    },
    names: () => [],
    isEdited() {
      try {
        return !isSame(read(), original);
      } catch (error) {
        if (error instanceof FormFault) return true;
        throw error;
      }
    },
    focus: () => input.focus(),
    point: () => input.setAttribute("aria-invalid", "true"),
  };
}

function propertyOf(schema, name) {
  const properties = schema?.properties;
  const isThere = typeof properties === "object" && properties !== null;
  const property = isThere && Object.hasOwn(properties, name) ? properties[name] : null;
  return typeof property === "object" ? property : null;
}
