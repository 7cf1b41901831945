// One session: what it is, what it cost, its steps in order, and the step that is open.

import { poll, readTimeline } from "../api.js";
import { make, setText } from "../dom.js";
import { ago, costOf, count, countShort, money, plural, statusLabel } from "../format.js";
import { about } from "../parts/about.js";
import { steering } from "../parts/steering.js";
import { stepPanel } from "../parts/step.js";
import { timeline } from "../parts/timeline.js";
import { furtherVerbs } from "../parts/verbs.js";
import { waterfall } from "../parts/waterfall.js";
import { countWaiting } from "../pending.js";
import { visible } from "../visible.js";

const FACTS = [
  { title: "Steps", read: (row) => count(row.steps) },
  {
    title: "Tokens in / out",
    read: (row) => `${countShort(row.input_tokens)} / ${countShort(row.output_tokens)}`,
  },
  { title: "Cost", read: costOf },
  { title: "Replays", read: (row) => count(row.replays) },
  { title: "Saved", read: (row) => money(row.saved_microusd) },
  { title: "Last activity", read: (row) => ago(row.updated_ms, Date.now()) },
];
const PROBLEMS_MAX = 1000; // steps that failed, to jump between
const PROBLEMS_PACE_MS = 5000; // they are looked for in all of the session
const NOTHING = []; // one list, so that a row of which nothing waits stays as it is

export function sessionView(root, context, id, firstQuery) {
  context.setTitle(visible(id));
  const badge = make("span", { className: "badge", hidden: true });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const facts = FACTS.map(({ title }) => {
    const value = make("dd", { textContent: "–" });
    return { value, node: make("div", {}, make("dt", { textContent: title }), value) };
  });
  const heldCount = make("span");
  const waiting = make("p", { className: "waiting", hidden: true }, heldCount, " ", linkToAll(id));
  const exporting = make("a", {
    className: "button export-link",
    href: `#/export?${new URLSearchParams({ session: id })}`,
    textContent: "Export",
  });
  const list = make("dl", { className: "facts", hidden: true }, ...facts.map(({ node }) => node));
  const names = about();
  const steer = steering(id, () => refresh());
  const further = furtherVerbs(id, () => refresh());

  let session = null;
  let problems = []; // indexes of steps that failed
  let held = new Map(); // the approvals that wait, by the index of their step
  let wanted = indexOf(firstQuery); // what the address names; null = the last step, also when it grows
  const heldAt = (index) => held.get(index) ?? NOTHING;

  // What a person can do to a step; a further verb is a further row.
  const verbs = [
    {
      title: "Roll back here",
      label: ({ step_number: number }) => `Roll back here, to step ${number}`,
      isShown: (step) => !Number.isFinite(step.rolled_back_ms),
      run: (step) => steer.askRollback(step),
    },
    ...further.ofStep,
  ];
  const steps = timeline(id, {
    hrefOf,
    heldAt,
    onRead: take,
    onFault: fail,
  });
  const panel = stepPanel(id, { verbs, hrefOf, heldAt, indexBefore });
  const fall = waterfall(id, { hrefOf });
  const chart = make(
    "details",
    { className: "unfold waterfall-fold" },
    make("summary", { textContent: "Waterfall" }),
    fall.node,
  );
  chart.addEventListener("toggle", () => (chart.open ? showWaterfall() : fall.stop()));
  const jump = make("button", {
    type: "button",
    className: "link-button",
    hidden: true,
    onclick: () => goToProblem(1),
  });
  const newer = make("a", { className: "newer", hidden: true });
  const pane = make(
    "section",
    { className: "timeline-pane", "aria-label": "Timeline" },
    make("header", { className: "pane-head" }, make("h2", { textContent: "Timeline" }), jump, newer),
    steps.node,
  );
  const back = make("a", { className: "back narrow-only", href: hrefOf(null), textContent: "← All steps" });
  const desk = make(
    "div",
    { className: "session-desk", hidden: true },
    pane,
    make("div", { className: "step-place" }, back, panel.node),
  );
  root.append(
    make(
      "nav",
      { className: "ways", "aria-label": "Other sessions" },
      make("a", { className: "back", href: "#/sessions", textContent: "← All sessions" }),
      make("a", {
        className: "back",
        href: `#/sessions?${new URLSearchParams({ parent: id })}`,
        textContent: "Sessions it began",
      }),
      make("a", {
        className: "back",
        href: `#/sessions?${new URLSearchParams({ forked_from: id })}`,
        textContent: "Forks of it",
      }),
    ),
    make(
      "div",
      { className: "head" },
      make("h1", { textContent: visible(id) }),
      badge,
      steer.buttons,
      exporting,
      further.node,
    ),
    names.node,
    list,
    steer.bars,
    waiting,
    notice,
    chart,
    desk,
    ...further.dialogs,
  );

  function hrefOf(index) {
    const path = `#/sessions/${encodeURIComponent(id)}`;
    return index === null ? path : `${path}?index=${index}`;
  }

  /** The index of the step before one in the list; null = it is the first. */
  function indexBefore(index) {
    const place = steps.placeOf(index);
    return place > 0 ? steps.indexAt(place - 1) : null;
  }

  // --- news -------------------------------------------------------------------------------------

  /** Take a session that was read, with some of its steps. */
  function take({ session: row, rollbacks, gaps, steps: found }) {
    session = row;
    context.setLive(true, "Live");
    notice.hidden = true;
    badge.hidden = false;
    list.hidden = false;
    desk.hidden = row.steps === 0;
    badge.dataset.status = row.status;
    setText(badge, statusLabel(row.status));
    names.update(row);
    steer.update(row, rollbacks);
    FACTS.forEach(({ read }, at) => setText(facts[at].value, read(row)));
    const isNew = row.steps !== steps.count();
    const isFirst = steps.count() === 0;
    const wasAtEnd = isFirst || steps.isAtEnd();
    if (isNew) steps.setCount(row.steps, gaps);
    for (const step of found) panel.update(step);
    if (isNew) follow(isFirst, wasAtEnd);
    if (chart.open) showWaterfall();
  }

  function fail(error) {
    context.setLive(error.status === 404, error.status === 404 ? "Live" : "Not connected");
    setText(notice, ["This session could not be read.", error.message, error.hint].join(" "));
    notice.hidden = false;
  }

  /** The list has grown: who looks at its end goes on looking at it; who does not is told. */
  function follow(isFirst, isFollowing) {
    if (steps.count() === 0) return;
    if (isFirst && wanted !== null) open(nearest(wanted));
    else if (wanted === null && isWide() && isFollowing) open(lastIndex());
    else if (!isFirst) {
      newer.hidden = false;
      newer.href = hrefOf(null);
      setText(newer, "New steps ↓");
    }
  }

  const unsubscribe = context.pending.subscribe((approvals) => {
    const ours = (approvals ?? []).filter((approval) => approval.session === id);
    held = Map.groupBy(ours, (approval) => approval.index);
    const left = countWaiting(ours);
    waiting.hidden = ours.length === 0;
    const what = left > 0 ? "held for a decision." : "expired undecided.";
    setText(heldCount, `${plural(left || ours.length, "call")} ${what}`);
    steps.refresh();
  });
  const concerns = (sessions) => sessions.has(id);
  const { stop, refresh } = poll(
    (signal) => readTimeline(id, { from: lastIndex() + 1, limit: 1 }, signal),
    (found) => {
      const isKnown = steps.count() > 0;
      take({ ...found, steps: [] });
      if (isKnown) steps.reload();
    },
    fail,
    { concerns },
  );
  const failed = poll(
    (signal) => readTimeline(id, { from: 0, limit: PROBLEMS_MAX, state: "failed" }, signal),
    (found) => {
      problems = found.steps.map((row) => row.index);
      jump.hidden = problems.length === 0;
      setText(jump, `${plural(problems.length, "failed step")}: next`);
    },
    () => {}, // what is wrong is said of the session itself
    { concerns, paceMs: PROBLEMS_PACE_MS },
  );

  // --- going from step to step ------------------------------------------------------------------

  /** The last step's; -1 = there is none. */
  function lastIndex() {
    return steps.count() === 0 ? -1 : steps.indexAt(steps.count() - 1);
  }

  /** An index that has a step: this one, else the next, else the last. */
  function nearest(index) {
    return steps.indexAt(Math.min(steps.placeOf(index), steps.count() - 1));
  }

  function open(index, reveals = true) {
    steps.select(index, { reveals });
    panel.show(index);
    if (index === lastIndex()) newer.hidden = true;
    if (chart.open) showWaterfall();
  }

  function go(place) {
    const index = steps.indexAt(Math.max(0, Math.min(place, steps.count() - 1)));
    history.replaceState(null, "", hrefOf(index));
    moveTo(id, new URLSearchParams({ index }));
  }

  function goToProblem(by) {
    const from = panel.index();
    const next = problems.find((index) => index > from) ?? problems[0];
    if (by > 0 && next !== undefined) go(steps.placeOf(next));
  }

  function showWaterfall() {
    if (!chart.open || session === null) return;
    const around = stepsAround();
    const isEnd = around.at(-1)?.index === lastIndex();
    fall.show({ steps: around, chosen: panel.index(), session, isEnd });
  }

  /** The steps that are known around the open one. */
  function stepsAround() {
    const around = placeOfOpen() ?? steps.count() - 1;
    const found = [];
    for (let place = Math.max(0, around - 60); place <= around + 60; place += 1) {
      const step = steps.at(steps.indexAt(place));
      if (step) found.push(step);
    }
    return found;
  }

  function moveTo(other, query) {
    if (other !== id) return false;
    const isBack = wanted !== null && indexOf(query) === null;
    wanted = indexOf(query);
    root.classList.toggle("has-step", wanted !== null);
    if (steps.count() > 0) {
      if (wanted !== null) open(nearest(wanted));
      else if (isWide()) open(lastIndex());
      else {
        panel.show(-1);
        steps.select(-1);
      }
    }
    if (!isWide()) {
      if (wanted !== null) scrollTo(0, desk.offsetTop);
      else if (isBack) scrollTo(0, pane.offsetTop);
    }
    return true;
  }

  /** Where the open step stands; null = none is open. */
  const placeOfOpen = () => (panel.index() < 0 ? null : steps.placeOf(panel.index()));
  const step = (by) => go((placeOfOpen() ?? steps.count()) + by);
  context.setKeys([
    { key: "j", text: "Next step", repeats: true, run: () => step(1) },
    { key: "k", text: "Previous step", repeats: true, run: () => step(-1) },
    { key: "g", text: "First step", run: () => go(0) },
    { key: "G", text: "Last step, and those that come", run: () => (location.hash = hrefOf(null)) },
    { key: "n", text: "Next step that failed", run: () => goToProblem(1) },
    { key: "w", text: "Waterfall", run: () => (chart.open = !chart.open) },
    { key: "e", text: "Edit the answer of the open step", run: () => panel.press("Edit answer") },
    { key: "r", text: "Rerun the open step", run: () => panel.press("Rerun") },
    { key: "f", text: "Fork before the open step", run: () => panel.press("Fork here") },
    { key: "o", text: "Go into the open step", run: () => panel.node.focus() },
  ]);
  root.classList.toggle("has-step", wanted !== null);
  root.classList.add("is-session");

  return {
    moveTo,
    unmount() {
      root.classList.remove("has-step", "is-session");
      stop();
      failed.stop();
      steps.stop();
      panel.stop();
      fall.stop();
      steer.stop();
      further.stop();
      unsubscribe();
    },
  };
}

function indexOf(query) {
  const text = query.get("index") ?? "";
  return /^[0-9]{1,9}$/.test(text) ? Number(text) : null;
}

/** As in the style sheet: list and step stand side by side. */
function isWide() {
  return matchMedia("(min-width: 60.0625rem)").matches;
}

function linkToAll(session) {
  const query = new URLSearchParams({ session });
  return make("a", { href: `#/approvals?${query}`, textContent: "Decide" });
}
