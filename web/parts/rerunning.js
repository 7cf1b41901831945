// The dialog that asks a model again for a step: the same, another model, or another request.

import { readStepText, rerunStep } from "../api.js";
import { make } from "../dom.js";
import { money } from "../format.js";
import { indent, readMembers } from "../json.js";
import { unmark, visible } from "../visible.js";
import { area, readJson } from "./controls.js";
import { costSaid, showRevised } from "./revised.js";
import { labelled, reasonField, sheet, ticked } from "./sheet.js";

const REQUEST_CHARS_MAX = 500_000; // areas get slow; longer ones go by the command line

/** {node, ask, stop}: `ask(step, found)` takes a step and all that was read of it. */
export function rerunning(id, changed) {
  const dialog = sheet("rerun");

  function ask(step, found) {
    const signal = dialog.open(`Ask again for step ${step.step_number}`);
    const model = make("input", {
      id: "rerun-model",
      type: "text",
      autocomplete: "off",
      spellcheck: false,
      placeholder: visible(step.model ?? ""),
    });
    const edits = ticked("rerun-edits", "Edit the request");
    const place = make("div", { className: "fields" });
    const reason = reasonField("rerun-reason");
    let request = null; // the area and what was in it; null = the request as it was

    edits.input.addEventListener("change", async () => {
      request = null;
      place.replaceChildren();
      if (!edits.input.checked) return;
      place.replaceChildren(make("p", { className: "quiet", textContent: "Reading…" }));
      try {
        const text = await requestOf(id, step.index, signal);
        const input = area("rerun-request", visible(text), true);
        input.classList.add("code-area");
        place.replaceChildren(labelled("Request", input, "JSON, as the agent sent it; no stream"));
        request = { input, before: text };
        input.focus();
      } catch (error) {
        if (signal.aborted) return;
        edits.input.checked = false;
        place.replaceChildren(make("p", { className: "fault", textContent: error.message }));
      }
    });
    dialog.fill(
      [
        make("p", {
          className: "lead",
          textContent:
            `The model is asked now, with the key that is configured here, and paid${lastCost(step)}. ` +
            "What it says is the answer from then on; the old one is kept, and it can be undone.",
        }),
        labelled("Model", model, "empty = the same"),
        edits.node,
        place,
        reason.node,
      ],
      {
        title: "Ask again",
        async run() {
          const wanted = {
            answer_id: step.answer_id,
            ...(model.value.trim() ? { model: model.value.trim() } : {}),
            ...(reason.input.value.trim() ? { reason: reason.input.value.trim() } : {}),
          };
          const typed = request ? readJson(unmark(request.input.value)) : null;
          dialog.say("The model is being asked. This may take a while…");
          const made = await rerunStep(id, step.index, wanted, typed);
          changed();
          const said = costSaid(made);
          const before = found.choices;
          showRevised(dialog, id, { index: step.index, made, before, said, signal, changed });
        },
      },
    );
    model.focus();
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

function lastCost({ cost_microusd: cost }) {
  return cost > 0 ? `; the answer that stands cost ${money(cost)}` : "";
}

/** The request of a step as JSON with its numbers as they were sent. */
async function requestOf(id, index, signal) {
  const members = readMembers(await readStepText(id, index, signal)) ?? [];
  const text = members.find(({ name }) => name === "request")?.source ?? "null";
  if (text.length > REQUEST_CHARS_MAX) {
    throw new Error("This request is too long to edit here: use agentstate sessions rerun --request.");
  }
  return indent(text);
}
