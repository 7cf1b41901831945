// What a person does to a run: pause and resume it, say that it is done, take steps back and undo.

import {
  completeSession,
  pauseSession,
  priceRollback,
  restoreSession,
  resumeSession,
  rollBack,
} from "../api.js";
import { make, setText } from "../dom.js";
import { ago, costOf, count, countShort, plural, statusLabel } from "../format.js";
import { visible } from "../visible.js";

/**
 * The controls of one session: {buttons, bars, update, askRollback, stop}. `update(session,
 * rollbacks)` shows how it stands; `askRollback(step)` asks whether to take back from there on;
 * `changed` is called after each change.
 */
export function steering(id, changed) {
  const fault = make("p", { className: "fault", role: "alert" });
  const act = async (button, work) => {
    button.disabled = true;
    setText(fault, "");
    try {
      await work();
      changed();
    } catch (error) {
      setText(fault, [error.message, error.hint].filter(Boolean).join(" "));
    }
    button.disabled = false;
  };

  let isPaused = false;
  const hold = makeButton("Pause", () =>
    act(hold, () => (isPaused ? resumeSession(id) : pauseSession(id))),
  );
  const complete = makeButton("Complete", () => act(complete, () => completeSession(id)));
  const buttons = make("div", { className: "steer", hidden: true }, hold, complete);

  const pause = make("p", { className: "waiting", hidden: true });
  const said = make("span");
  let last = null; // the last change that is in force: a rollback, an edit or a rerun
  const undo = makeButton("Undo", () =>
    act(undo, () => restoreSession(id, last.rollback_id)),
  );
  const rolled = make("p", { className: "rolled", role: "status", hidden: true }, said, " ", undo);
  const status = make("p", { className: "status-why", hidden: true });
  const bars = make("div", { className: "steer-bars" }, status, pause, rolled, fault);
  const question = rollbackQuestion(id, changed);
  bars.append(question.node);

  return {
    buttons,
    bars,
    askRollback: question.ask,
    update(session, rollbacks) {
      isPaused = session.pause !== null;
      buttons.hidden = false;
      setText(hold, isPaused ? "Resume" : "Pause");
      complete.hidden = session.status === "COMPLETED";
      pause.hidden = !isPaused;
      if (isPaused) setText(pause, describePause(session.pause));
      last = rollbacks.find((row) => row.kind !== "restore" && row.undone_ms === null) ?? null;
      rolled.hidden = last === null;
      if (last) setText(said, describeChange(last));
      const why = describeStatus(session);
      status.hidden = why === "";
      setText(status, why);
    },
    stop: question.stop,
  };
}

/** The dialog that says what a rollback costs before it is done: {node, ask, stop}. */
function rollbackQuestion(id, changed) {
  let ended = new AbortController();
  let index = 0;
  const title = make("h2", { id: "rollback-title" });
  const price = make("p", { role: "status" });
  const fault = make("p", { className: "fault", role: "alert" });
  const confirm = makeButton("Roll back", async () => {
    confirm.disabled = true;
    try {
      await rollBack(id, index);
      node.close();
      changed();
    } catch (error) {
      setText(fault, [error.message, error.hint].filter(Boolean).join(" "));
      confirm.disabled = false;
    }
  });
  const cancel = makeButton("Cancel", () => node.close());
  const node = make(
    "dialog",
    { className: "sheet", "aria-labelledby": title.id },
    title,
    price,
    make("p", {
      className: "lead",
      textContent: "They stay visible here, and it can be undone.",
    }),
    fault,
    make("div", { className: "steer" }, confirm, cancel),
  );
  node.addEventListener("close", () => ended.abort());
  return {
    node,
    async ask(step) {
      ended = new AbortController();
      const { signal } = ended;
      index = step.index;
      confirm.disabled = true;
      setText(title, `Roll back to step ${step.step_number}?`);
      setText(price, "Working out what it costs…");
      setText(fault, "");
      node.showModal();
      try {
        const found = await priceRollback(id, index, signal);
        setText(price, describePrice(found));
        confirm.disabled = found.steps_taken_back === 0;
      } catch (error) {
        if (!signal.aborted) setText(fault, error.message);
      }
    },
    stop() {
      ended.abort();
      node.close();
    },
  };
}

function describePause({ since_ms: since, reason, by }) {
  const who = by ? ` by ${visible(by)}` : "";
  const why = reason ? `: ${visible(reason)}` : "";
  return `Paused ${ago(since, Date.now())}${who}${why}. Its next call is held until you resume it.`;
}

/** Who gave a session its status, when and why; "" = nobody did, it came of its calls. */
function describeStatus({ status, status_reason: reason, status_by: by, status_ms: ms }) {
  if (status === "PAUSED" || !(reason || by)) return "";
  const who = by ? ` by ${visible(by)}` : "";
  return `${statusLabel(status)} ${ago(ms, Date.now())}${who}${reason ? `: ${visible(reason)}` : ""}`;
}

function describeChange(row) {
  if (row.kind === "rollback") return describeRollback(row);
  const what = row.kind === "edit" ? "edited" : "asked for again";
  const who = row.by ? ` by ${visible(row.by)}` : "";
  const where = row.answers.map(({ index }) => index).join(", ");
  const taken = row.steps_taken_back;
  const also = taken > 0 ? `, and ${plural(taken, "later step")} taken back` : "";
  return `The answer at index ${where} was ${what} ${ago(row.made_ms, Date.now())}${who}${also}.`;
}

function describeRollback(row) {
  const from = row.step_number === null ? `index ${row.index}` : `step ${row.step_number}`;
  const who = row.by ? ` by ${visible(row.by)}` : "";
  const when = ago(row.made_ms, Date.now());
  return `${plural(row.steps_taken_back, "step")} from ${from} on rolled back ${when}${who}.`;
}

function describePrice({ steps_taken_back: steps, cost_to_rerun: cost }) {
  if (steps === 0) return "There is no active step to take back.";
  const tokens = `${countShort(cost.input_tokens)} tokens in, ${countShort(cost.output_tokens)} out`;
  const what = steps === 1 ? "This step" : `This step and ${count(steps - 1)} after it`;
  const again = steps === 1 ? "it" : "them";
  return `${what} will no longer replay. Running ${again} again costs about ${costOf(cost)}: ${tokens}.`;
}

function makeButton(title, onclick) {
  return make("button", { type: "button", className: "button", textContent: title, onclick });
}
