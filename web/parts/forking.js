// The dialog that makes a session of another one: {node, ask, stop}.

import { forkSession, priceRollback } from "../api.js";
import { make, setText } from "../dom.js";
import { plural } from "../format.js";
import { labelled, sheet, ticked } from "./sheet.js";

/** `ask(step)` asks for a fork that begins before a step, `ask(null)` for one that shares them all. */
export function forking(id) {
  const dialog = sheet("fork");

  async function ask(step) {
    const signal = dialog.open(step ? `Fork before step ${step.step_number}?` : "Fork all of it?");
    const shares = make("p", { role: "status", textContent: "Counting what it shares…" });
    const session = make("input", { id: "fork-id", type: "text", autocomplete: "off", spellcheck: false });
    const name = make("input", { id: "fork-name", type: "text", autocomplete: "off" });
    const inherits = ticked("fork-inherits", "What was approved or refused counts there as well");
    dialog.fill(
      [
        shares,
        labelled("Id of the new session", session, "optional; the agent is run with it"),
        labelled("Name", name, "optional; without one it is called as this session"),
        inherits.node,
      ],
      {
        title: "Fork",
        async run() {
          const made = await forkSession(id, {
            ...(step ? { index: step.index } : {}),
            ...(session.value.trim() ? { session: session.value.trim() } : {}),
            ...(name.value.trim() ? { name: name.value.trim() } : {}),
            inherit_decisions: inherits.input.checked,
          });
          dialog.close();
          location.hash = `#/sessions/${encodeURIComponent(made.session.session)}`;
        },
      },
    );
    try {
      const [all, after] = await Promise.all([
        priceRollback(id, 0, signal),
        step ? priceRollback(id, step.index, signal) : { steps_taken_back: 0 },
      ]);
      const count = all.steps_taken_back - after.steps_taken_back;
      setText(shares, describe(count, step));
    } catch (error) {
      if (!signal.aborted) setText(shares, `What it shares could not be counted. ${error.message}`);
    }
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

function describe(count, step) {
  if (count === 0) return "There is no active step before it: a fork would be empty.";
  const which = step ? `${plural(count, "step")} before step ${step.step_number}` : plural(count, "step");
  return (
    `It shares ${which}, which replay there and are paid for already; it pays only for what comes ` +
    "after. Nothing that happens to either changes the other."
  );
}
