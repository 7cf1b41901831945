// One approval: what would happen, and the decision.
//
// Once shown it is not built again: news only changes the time left and, when somebody else
// decides, puts the outcome in the place of the buttons. So nothing that is being typed is lost.

import { decideApproval, readApproval } from "../api.js";
import { make, setText } from "../dom.js";
import { ago, moment, statusLabel, timeLeft } from "../format.js";
import { visible } from "../visible.js";
import { argumentsForm } from "./arguments.js";
import { FormFault } from "./controls.js";
import { decisionBar } from "./decision.js";
import { callOf, moreOf, outcomeOf, promptOf, requestOf, sourceOf, warningsOf } from "./shown.js";

// What has just appeared is not decided by a click or key that was meant for what was there before.
const SETTLE_MS = 600;
const URGENT_MS = 60_000;

const KICKERS = {
  tool_call: "The model asks to call",
  text: "The text of the answer asks to call",
  request: "A request asks to go to",
  durable: "A durable tool asks to act",
  budget: "The session has come to a cap, and asks to go on past",
};

/**
 * Show an approval: {node, id, appear, take, tick, isStarted, isInSight, bringIntoSight, approve,
 * goToReason, goToForm, destroy}.
 *
 * `desk` is what the view offers: {pending, readName, linkTo, listOthers, decided}. `listOthers` has
 * what else waits of the same answer; `decided(approval)` is called when a decision of this page
 * was taken.
 */
export function approvalDetail(id, desk) {
  const ended = new AbortController();
  const node = make("article", { className: "detail", "aria-labelledby": "detail-title" });
  const loading = make("p", { className: "quiet", role: "status", textContent: "Loading…" });
  node.append(loading);
  let parts = null; // once it is read
  let settling = 0;
  let isReading = false;

  async function read() {
    if (isReading) return;
    isReading = true;
    try {
      const approval = await readApproval(id, ended.signal);
      if (parts === null) fill(approval);
      else parts.take(approval);
    } catch (error) {
      if (ended.signal.aborted) return;
      if (parts === null) setText(loading, ["It could not be read.", error.message].join(" "));
    } finally {
      isReading = false;
    }
  }

  function fill(approval) {
    parts = buildDetail(approval, { ...desk, isSettling: () => node.ariaBusy === "true" });
    node.replaceChildren(...parts.nodes);
    parts.tick(desk.pending.now());
    appear();
  }

  /** Take no decision for a moment: the eye has to follow. */
  function appear() {
    clearTimeout(settling);
    node.ariaBusy = "true";
    settling = setTimeout(() => {
      node.ariaBusy = "false";
    }, SETTLE_MS);
  }

  read();
  return {
    node,
    id,
    appear,
    /** Take news: `row` is what the list of what waits has, or undefined. */
    take(row) {
      if (parts === null) read();
      else if (row) parts.take(row);
      else if (parts.isOpen()) read(); // it waits no longer: somebody decided
    },
    tick(nowMs) {
      parts?.tick(nowMs);
    },
    /** Say whether something was typed that would be lost with the node. */
    isStarted: () => parts?.isStarted() ?? false,
    /** Say whether one can see what a key would decide: the name of the tool is in the window. */
    isInSight: () => parts?.isInSight() ?? false,
    bringIntoSight: () => parts?.bringIntoSight(),
    approve: () => parts?.approve(),
    goToReason: () => parts?.goToReason(),
    goToForm: () => parts?.goToForm(),
    destroy() {
      clearTimeout(settling);
      ended.abort();
    },
  };
}

function buildDetail(first, desk) {
  let approval = first;
  const id = approval.approval_id;
  const badge = make("span", { className: "badge" });
  const left = make("span", { className: "left" });
  const asked = make("span");
  const outcome = make("div", { className: "outcome", tabIndex: -1, hidden: true });
  const form = argumentsForm(
    {
      id,
      text: approval.edited_arguments ?? approval.arguments,
      original: approval.arguments,
      schema: approval.schema,
      hasFields: hasFields(approval),
      canEdit: approval.can_edit,
    },
    () => bar.showEdits(form.isEdited(), form.names()),
  );
  const bar = decisionBar(approval, { approve, reject });
  const others = make("p", { className: "others", hidden: true });
  let isBusy = false;
  let isUnsure = false; // whether a decision of ours was taken

  function take(news) {
    if (isBusy) return; // the reply to our own decision says more
    const wasOpen = isOpen();
    const wasStarted = isStarted();
    approval = { ...approval, ...news };
    if (!wasOpen || isOpen()) return;
    close(isUnsure ? "" : "Somebody was faster: ");
    if (wasStarted && !isUnsure) {
      outcome.append(make("p", { textContent: "What you typed was not sent." }));
    }
  }

  const isOpen = () => approval.status === "PENDING" || approval.status === "EXPIRED";

  /** Put the outcome in the place of the buttons. */
  function close(lead) {
    const hadFocus = bar.node.contains(document.activeElement);
    form.lock();
    bar.node.hidden = true;
    outcome.replaceChildren(...outcomeOf(approval, lead, desk.pending.now()));
    outcome.dataset.status = approval.status;
    outcome.hidden = false;
    if (hadFocus) outcome.focus();
  }

  function approve() {
    try {
      const edited = form.read();
      send(edited === null ? { action: "APPROVED" } : { action: "APPROVED", arguments: edited });
    } catch (error) {
      if (!(error instanceof FormFault)) throw error; // the field says it
    }
  }

  function reject(then) {
    send({ action: "REJECTED", then });
  }

  async function send(decision) {
    if (isBusy || !isOpen() || desk.isSettling()) return;
    isBusy = true;
    bar.setBusy(true);
    bar.showFault("");
    const reason = bar.readReason();
    const by = desk.readName();
    try {
      const body = { ...decision, ...(reason && { reason }), ...(by && { by }) };
      approval = { ...approval, ...(await decideApproval(id, body)) };
      close("");
      desk.decided(approval);
    } catch (error) {
      fail(error, decision);
    } finally {
      isBusy = false;
      bar.setBusy(false);
    }
  }

  function fail(error, decision) {
    if (error.status === 409 && error.body.approval) {
      isBusy = false;
      take(error.body.approval);
      desk.pending.drop(id);
      return;
    }
    isUnsure = error.status === undefined;
    const text = !isUnsure
      ? [error.message, error.hint].filter(Boolean).join(" ")
      : "No answer came: it is not known whether the decision was taken. If it was, it shows here.";
    if (error.status === 400 && decision.arguments !== undefined) {
      form.showFault(text);
    } else {
      bar.showFault(text);
    }
    desk.pending.refresh();
  }

  function tick(nowMs) {
    const remainingMs = approval.deadline_ms === null ? null : approval.deadline_ms - nowMs;
    const isOver = isOpen() && remainingMs !== null && remainingMs <= 0;
    const status = isOver ? "EXPIRED" : approval.status;
    badge.dataset.status = status;
    setText(badge, statusLabel(status));
    setText(asked, `asked ${ago(approval.asked_ms, nowMs)}`);
    asked.title = moment(approval.asked_ms);
    left.title = approval.deadline_ms === null ? "" : `until ${moment(approval.deadline_ms)}`;
    setText(left, isOpen() ? describeTime(remainingMs) : "");
    left.classList.toggle("is-urgent", isOpen() && remainingMs !== null && remainingMs < URGENT_MS);
    bar.showExpired(status === "EXPIRED");
    showOthers();
  }

  /** Other calls of the same answer: the agent gets none before all are decided. */
  function showOthers() {
    const rows = desk.listOthers(approval);
    others.hidden = rows.length === 0 || !isOpen();
    if (others.dataset.ids === rows.map((row) => row.approval_id).join()) return;
    others.dataset.ids = rows.map((row) => row.approval_id).join();
    const links = rows.flatMap((row) => [
      " ",
      make("a", { href: desk.linkTo(row.approval_id), textContent: visible(row.tool) }),
    ]);
    others.replaceChildren("The same answer also waits for:", ...links);
  }

  const isStarted = () => isOpen() && (form.isEdited() || bar.readReason() !== "");

  const heading = make("h2", {
    id: "detail-title",
    className: "tool",
    tabIndex: -1,
    textContent: visible(approval.tool) || "(no name)",
  });

  function isInSight() {
    const { top, bottom } = heading.getBoundingClientRect();
    return top >= 0 && bottom <= bar.node.getBoundingClientRect().top;
  }

  function bringIntoSight() {
    heading.scrollIntoView({ block: "center" });
    bar.showFault("This was out of sight. Press a again to approve it.");
  }

  if (!isOpen()) close("");
  return {
    nodes: [
      make("p", { className: "kicker" }, badge, left),
      make("p", { className: "quiet", textContent: KICKERS[approval.kind] ?? "Asked for" }),
      heading,
      ...sourceOf(approval, asked),
      ...warningsOf(approval),
      others,
      outcome,
      ...promptOf(approval),
      ...(approval.kind === "request" ? requestOf(approval) : callOf(approval, form)),
      moreOf(approval),
      bar.node,
    ],
    take,
    tick,
    isOpen,
    isStarted,
    isInSight,
    bringIntoSight,
    approve: () => isOpen() && approve(),
    goToReason: () => isOpen() && bar.focusReason(),
    goToForm: () => isOpen() && form.focus(),
  };
}

/** Say that the arguments are one object to every reader: then they can be a form. */
function hasFields({ arguments_json: value, edited_arguments: edited }) {
  return (typeof value === "object" && value !== null && !Array.isArray(value)) || Boolean(edited);
}

function describeTime(remainingMs) {
  if (remainingMs === null) return "No deadline";
  return remainingMs > 0 ? `${timeLeft(remainingMs)} left` : "Nobody decided in time";
}
