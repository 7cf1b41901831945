// The dialog in which a person writes another answer of a step: its text, or arguments of one call.

import { editAnswer } from "../api.js";
import { make } from "../dom.js";
import { readMembers } from "../json.js";
import { unmark, visible } from "../visible.js";
import { argumentsForm } from "./arguments.js";
import { FormFault, HIDDEN_NOTE, area } from "./controls.js";
import { showRevised } from "./revised.js";
import { labelled, reasonField, sheet } from "./sheet.js";

/** {node, ask, stop}: `ask(step, found)` takes a step and all that was read of it. */
export function editing(id, changed) {
  const dialog = sheet("edit");

  function ask(step, found) {
    const signal = dialog.open(`Edit the answer of step ${step.step_number}`);
    const parts = partsOf(found);
    if (parts.length === 0) {
      dialog.fill([make("p", { textContent: "This answer has no text and no call to edit." })], null);
      return;
    }
    const select = make(
      "select",
      { id: "edit-part" },
      ...parts.map(({ title }, at) => make("option", { value: String(at), textContent: title })),
    );
    const place = make("div", { className: "fields" });
    const reason = reasonField("edit-reason");
    let editor = null;
    const choose = () => {
      editor = parts[Number(select.value)].edit();
      place.replaceChildren(...editor.nodes);
    };
    select.addEventListener("change", choose);
    choose();
    dialog.fill(
      [
        make("p", {
          className: "lead",
          textContent:
            "It replays from now on; the old answer is kept. Later steps that go on from the old " +
            "one are taken back, and it can be undone.",
        }),
        ...(parts.length > 1 ? [labelled("What to edit", select)] : []),
        place,
        reason.node,
      ],
      {
        title: "Answer that",
        async run() {
          const wanted = editor.read();
          if (wanted === null) throw new FormFault("Nothing is edited yet.");
          let made = null;
          try {
            made = await editAnswer(id, step.index, {
              ...wanted,
              answer_id: step.answer_id,
              ...(reason.input.value.trim() ? { reason: reason.input.value.trim() } : {}),
            });
          } catch (error) {
            if (error.status !== 400 || !editor.showFault) throw error;
            editor.showFault([error.message, error.hint].filter(Boolean).join(" "));
            return;
          }
          changed();
          const said = `Step ${step.step_number} answers that from now on.`;
          const before = found.choices;
          showRevised(dialog, id, { index: step.index, made, before, said, signal, changed });
        },
      },
    );
    (place.querySelector("textarea, input") ?? select).focus();
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

/** What of an answer can be edited, as [{title, edit}]. */
function partsOf({ choices, tools }) {
  const many = (choices ?? []).length > 1;
  return (choices ?? []).flatMap((choice) => {
    const of = many ? ` of answer ${choice.index + 1}` : "";
    const calls = choice.tool_calls
      .map((call, position) => ({ call, position }))
      .filter(({ call }) => !call.runs_upstream)
      .map(({ call, position }) => ({
        title: `Arguments of ${visible(call.name)}${of}`,
        edit: () => callEditor(choice.index, position, call, schemaOf(tools, call.name)),
      }));
    const text = { title: `Text${of}`, edit: () => textEditor(choice) };
    // What somebody wants to change of an answer with calls is mostly a call.
    return choice.text || calls.length === 0 ? [text, ...calls] : [...calls, text];
  });
}

function textEditor({ index, text }) {
  const before = text ?? "";
  const input = area("edit-text", visible(before), true);
  input.rows = Math.max(input.rows, 4);
  return {
    nodes: [labelled("Text", input, visible(before) === before ? "" : HIDDEN_NOTE)],
    read() {
      const typed = unmark(input.value);
      return typed === before ? null : { text: typed, choice: index };
    },
  };
}

function callEditor(choice, position, call, schema) {
  const form = argumentsForm(
    {
      id: `edit-call-${choice}-${position}`,
      text: call.arguments,
      original: call.arguments,
      schema,
      hasFields: hasFields(call.arguments),
      canEdit: true,
    },
    () => {},
  );
  const hint = schema ? "Checked against the tool's schema." : "The tool came without a schema.";
  return {
    nodes: [form.node, make("p", { className: "hint", textContent: hint })],
    read() {
      const typed = form.read();
      return typed === null ? null : { arguments: typed, choice, position };
    },
    showFault: form.showFault,
  };
}

function schemaOf(tools, name) {
  return (tools ?? []).find((tool) => tool.name === name)?.schema ?? null;
}

/** Whether a text is one object to every reader: then it can be a form. */
function hasFields(text) {
  const names = (readMembers(text) ?? []).map((member) => member.name);
  return names.length > 0 && new Set(names).size === names.length;
}
