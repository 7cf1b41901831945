// What became of a step whose answer was replaced: what was taken back, old beside new, the way back.

import { readAnswer, restoreSession } from "../api.js";
import { answerLines } from "../diff.js";
import { make } from "../dom.js";
import { costOf, money, plural } from "../format.js";
import { diffBlock } from "./compare.js";

/**
 * Show in `dialog` what an edit or a rerun has `made`, as the API answers; `before` are the choices
 * of the old answer. `changed` is called when it is undone.
 */
export async function showRevised(dialog, id, { index, made, before, said, signal, changed }) {
  if (signal.aborted) return; // closed meanwhile; the page says what was done
  const place = make("div", { className: "diff-place", role: "status", textContent: "Reading…" });
  const undo = {
    title: "Undo",
    isDone: true,
    async run() {
      await restoreSession(id, made.rollback.rollback_id);
      dialog.fill([make("p", { role: "status", textContent: "It is as it was before." })], null);
      changed();
    },
  };
  dialog.fill([make("p", { role: "status", textContent: `${said} ${describe(made)}` }), place], undo);
  try {
    const answer = await readAnswer(id, index, made.answer_id, signal);
    const lines = [answerLines(before ?? []), answerLines(answer.choices ?? [])];
    place.replaceChildren(...diffBlock(...lines, "the old answer", "the new one"));
  } catch (error) {
    if (!signal.aborted) place.textContent = error.message;
  }
}

function describe({ steps_taken_back: steps, cost_to_rerun: cost }) {
  if (steps === 0) return "No later step goes on from the old answer.";
  return (
    `${plural(steps, "later step")} that ${steps === 1 ? "goes" : "go"} on from the old answer ` +
    `${steps === 1 ? "is" : "are"} taken back; running ${steps === 1 ? "it" : "them"} again costs ` +
    `about ${costOf(cost)}.`
  );
}

/** What asking again has cost. */
export function costSaid({ cost_microusd: cost, attempts, step }) {
  const price = Number.isFinite(cost) ? `It cost ${money(cost)}` : "What it cost is not known";
  const model = step.model ? ` at ${step.model}` : "";
  return `${price}${model}, in ${plural(attempts, "try", "tries")}.`;
}
