// What a person can do to a step and to a session, beside pausing and taking back: a dialog each.

import { budgeting } from "./budgeting.js";
import { cassette } from "./cassette.js";
import { deleting } from "./deleting.js";
import { editing } from "./editing.js";
import { forking } from "./forking.js";
import { menu } from "./menu.js";
import { rerunning } from "./rerunning.js";

const isActive = (step) => !Number.isFinite(step.rolled_back_ms);
const isAnswered = (step) => isActive(step) && step.state === "complete" && step.answer_id !== null;

/**
 * Make them: {ofStep, node, dialogs, stop}. `ofStep` are rows as the step panel wants them, `node`
 * the menu of the session. `changed` is called after each change.
 */
export function furtherVerbs(id, changed) {
  const fork = forking(id);
  const edit = editing(id, changed);
  const rerun = rerunning(id, changed);
  const budget = budgeting(id, changed);
  const tape = cassette(id);
  const remove = deleting(id);
  const all = [fork, edit, rerun, budget, tape, remove];
  return {
    ofStep: [
      {
        title: "Edit answer",
        label: ({ step_number: number }) => `Edit answer of step ${number}`,
        isShown: isAnswered,
        run: edit.ask,
      },
      {
        title: "Rerun",
        label: ({ step_number: number }) => `Rerun step ${number}: ask the model again`,
        isShown: isAnswered,
        run: rerun.ask,
      },
      {
        title: "Fork here",
        label: ({ step_number: number }) => `Fork here, before step ${number}`,
        isShown: (step) => step.index > 0,
        run: fork.ask,
      },
    ],
    node: menu("More", [
      { title: "Budget", run: budget.ask },
      { title: "Fork all of it", run: () => fork.ask(null) },
      { title: "Cassette", run: tape.ask },
      { title: "Delete", isBad: true, run: remove.ask },
    ]),
    dialogs: all.map(({ node }) => node),
    stop() {
      for (const verb of all) verb.stop();
    },
  };
}
