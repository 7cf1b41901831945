// Durable calls of which nobody knows whether they happened, each with what a person can say of it.

import { readCallArguments, settleCall } from "../api.js";
import { keyedList, make, setText } from "../dom.js";
import { ago, moment, plural } from "../format.js";
import { readName } from "../name.js";
import { visible } from "../visible.js";
import { FormFault, area, readJson } from "./controls.js";
import { structure } from "./tree.js";

const OUTCOMES = [
  {
    outcome: "happened",
    title: "It happened",
    said: "is taken as done",
    help: "It is not run again; a replay gives the result below.",
  },
  {
    outcome: "not_happened",
    title: "It did not happen",
    said: "is run at its next begin",
    help: "The agent's next begin runs it.",
  },
  { outcome: "skip", title: "Skip it", said: "is skipped", help: "The agent goes on without it." },
];

/**
 * Make the list: {nodes, link, update(calls)}; it is hidden while there are none, as is the link that
 * leads there. `settled(call)` is told.
 */
export function unknownCalls({ settled }) {
  const list = make("ol", { className: "unknown-list" });
  const title = make("h2", { id: "unknown-title", tabIndex: -1 });
  const said = make("p", { className: "lead", role: "status" });
  const node = make(
    "section",
    { className: "unknown", "aria-labelledby": title.id, hidden: true },
    title,
    make("p", {
      className: "quiet",
      textContent:
        "These durable calls were begun and never reported. Look where they act, and say what is so.",
    }),
    list,
  );
  const write = keyedList(list, ({ call }) => call, (call) => unknownCard(call, done));

  function done(call, word) {
    const hadFocus = list.contains(document.activeElement);
    setText(said, `${visible(call.name)} of ${visible(call.session)} ${word}.`);
    settled(call);
    if (hadFocus) (node.hidden ? said : title).focus();
  }
  said.tabIndex = -1;
  const link = make("button", {
    type: "button",
    className: "link-button to-unknown",
    hidden: true,
    onclick() {
      title.scrollIntoView();
      title.focus({ preventScroll: true });
    },
  });

  return {
    nodes: [said, node],
    link,
    update(calls) {
      node.hidden = calls.length === 0;
      link.hidden = node.hidden;
      setText(link, `${plural(calls.length, "durable call")} to settle ↓`);
      const whether = calls.length === 1 ? "it happened" : "they happened";
      setText(title, `${plural(calls.length, "call")} of which nobody knows whether ${whether}`);
      write(calls);
    },
  };
}

function unknownCard(first, done) {
  let call = first;
  let isBusy = false;
  const id = `unknown-${call.call}`;
  const session = make("a", {
    href: `#/sessions/${encodeURIComponent(call.session)}`,
    textContent: visible(call.session),
  });
  const facts = make("span");
  const result = area(`${id}-result`, "", true);
  result.rows = 2;
  result.classList.add("code-area");
  const reason = make("input", {
    id: `${id}-reason`,
    type: "text",
    maxLength: 1000,
    autocomplete: "off",
  });
  const fault = make("p", { className: "fault", role: "alert" });
  const buttons = OUTCOMES.map(({ outcome, title, said, help }) => {
    const node = make("button", {
      type: "button",
      className: "button",
      textContent: title,
      title: help,
      onclick: () => settle(outcome, said),
    });
    return node;
  });

  async function settle(outcome, said) {
    if (isBusy) return;
    isBusy = true;
    for (const button of buttons) button.ariaDisabled = "true";
    setText(fault, "");
    try {
      const typed = result.value.trim();
      if (typed !== "" && outcome === "not_happened") {
        throw new FormFault("What has not happened has no result: empty the field, or say it happened.");
      }
      const by = readName();
      const why = reason.value.trim();
      const settlement = { outcome, ...(why ? { reason: why } : {}), ...(by ? { by } : {}) };
      await settleCall(call, settlement, typed === "" ? null : readJson(typed));
      done(call, said);
    } catch (error) {
      setText(fault, [error.message, error.hint].filter(Boolean).join(" "));
    }
    isBusy = false;
    for (const button of buttons) button.ariaDisabled = "false";
  }

  const args = make("div", {}, make("p", { className: "quiet", textContent: "Reading…" }));
  readCallArguments(call.call)
    .then((text) => args.replaceChildren(structure(text)))
    .catch((error) => setText(args, `Its arguments could not be read. ${error.message}`));
  const node = make(
    "li",
    { className: "unknown-card" },
    make("h3", { className: "tool-name", textContent: visible(call.name) }),
    make("p", { className: "quiet wrap" }, session, " · ", facts),
    args,
    make(
      "div",
      { className: "field" },
      make(
        "label",
        { htmlFor: result.id, textContent: "Result, if it happened" },
        make("span", { className: "hint", textContent: " optional; JSON, what a replay gives" }),
      ),
      result,
    ),
    make(
      "div",
      { className: "field" },
      make(
        "label",
        { htmlFor: reason.id, textContent: "Reason" },
        make("span", { className: "hint", textContent: " optional" }),
      ),
      reason,
    ),
    fault,
    make(
      "div",
      { className: "buttons", role: "group", "aria-label": `What is so of ${visible(call.name)}` },
      ...buttons,
    ),
  );
  return {
    node,
    update(row) {
      call = row;
      const owner = row.owner ? `, by ${visible(row.owner)}` : "";
      const times = row.runs > 1 ? `, for the ${row.runs}th time` : "";
      setText(facts, `begun ${ago(row.begun_ms, Date.now())}${owner}${times}`);
      facts.title = moment(row.begun_ms);
    },
  };
}
