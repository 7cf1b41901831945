// The decision on one approval: the reason and the buttons. To send it is the caller's part.

import { make, setText } from "../dom.js";

const REASON_CHARS_MAX = 4000; // as the API has it

/**
 * Make the bar: {node, readReason, focusReason, showEdits, showFault, showExpired, setBusy}.
 * `approve()` and `reject(then)` are called when a person says so.
 */
export function decisionBar(approval, { approve, reject }) {
  const isDefault = (then) => approval.on_reject === then;
  const reason = make("textarea", { id: "reason", rows: 1, maxLength: REASON_CHARS_MAX });
  const yes = make("button", {
    type: "button",
    className: "button is-yes",
    textContent: "Approve",
  });
  const stop = make("button", {
    type: "button",
    className: "button is-no",
    textContent: "Reject and stop",
    title: "The agent gets an error; the session has failed",
  });
  const goOn = make("button", {
    type: "button",
    className: "button is-no",
    hidden: ["request", "budget"].includes(approval.kind), // no model was asked that could be told
    textContent: "Reject and continue",
    title: "The model is told that a person refused, and why, and answers anew",
  });
  const edits = make("p", { className: "edits", role: "status", hidden: true });
  const fault = make("p", { className: "fault", role: "alert" });
  const expired = make("p", {
    className: "quiet",
    hidden: true,
    textContent:
      "The agent was told that nobody decided. A decision still counts: it is what the agent " +
      "gets when it asks again.",
  });
  yes.addEventListener("click", approve);
  stop.addEventListener("click", () => reject("stop"));
  goOn.addEventListener("click", () => reject("continue"));
  reason.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || !(event.ctrlKey || event.metaKey)) return;
    event.preventDefault();
    reject(isDefault("continue") && !goOn.hidden ? "continue" : "stop");
  });
  const buttons = [yes, stop, goOn];
  const node = make(
    "section",
    { className: "decision", "aria-label": "Decision" },
    expired,
    edits,
    fault,
    make(
      "div",
      { className: "field" },
      make(
        "label",
        { htmlFor: "reason", textContent: "Reason" },
        make("span", { className: "hint", textContent: ` optional; ${forWhom(goOn)}` }),
      ),
      reason,
    ),
    make("div", { className: "buttons" }, ...buttons),
  );

  return {
    node,
    readReason: () => reason.value.trim(),
    focusReason: () => reason.focus(),
    showEdits(isEdited, names) {
      setText(yes, isEdited ? "Approve with edits" : "Approve");
      edits.hidden = !isEdited;
      setText(edits, isEdited && names.length > 0 ? `Edited: ${names.join(", ")}` : "Edited");
    },
    showFault(text) {
      setText(fault, text);
    },
    showExpired(isExpired) {
      expired.hidden = !isExpired;
    },
    /** Not `disabled`, which would take the focus away. */
    setBusy(isBusy) {
      for (const button of buttons) button.ariaDisabled = String(isBusy);
    },
  };
}

function forWhom(goOn) {
  return goOn.hidden ? "the agent is told" : "“continue” tells the model";
}
