// The steps of a session as a list, in windows that are read when they come into sight.

import { readTimeline } from "../api.js";
import { make, setText } from "../dom.js";
import { MISSING, countShort, duration, moment, money, plural, statusLabel } from "../format.js";
import { placesOf } from "../places.js";
import { visible } from "../visible.js";
import { virtualList } from "./virtual.js";

const WINDOW_STEPS = 100; // read at once
const WINDOWS_KEPT_MAX = 30;
const REST_MS = 40; // a window is read once the list rests there: who drags passes many
const SUMMARY_CHARS = 300;

/**
 * Make the list: {node, at, setCount, count, indexAt, placeOf, reload, select, refresh, focusRow,
 * isAtEnd, stop}.
 *
 * Steps are named by their index; where one stands in the list is its place. `hrefOf(index)` is
 * where a step leads. `onRead(found)` is told of what is read here. `heldAt(index)` says which
 * approvals wait there.
 */
export function timeline(id, { hrefOf, heldAt, onRead, onFault }) {
  const windows = new Map(); // by number, which comes from the place: the steps by their index
  const reading = new Map(); // windows on their way, by number
  let chosen = -1;
  let count = 0;
  let gaps = "[]"; // as JSON, to see whether they are others
  let places = placesOf([]);
  let longestMs = 1; // the latency that fills a bar
  let resting = 0;
  const ended = new AbortController();
  const scroller = make("div", { className: "timeline-scroller" });
  const list = virtualList({
    scroller,
    label: "Steps, in order of first arrival",
    createRow: () => createRow(hrefOf),
    onSight: () => {
      clearTimeout(resting);
      resting = setTimeout(loadSight, REST_MS);
    },
  });
  scroller.append(list.node);

  function createRow(href) {
    const row = stepRow(href);
    return {
      node: row.node,
      update(place) {
        const index = places.indexAt(place);
        row.update(index, at(index), index === chosen, heldAt(index), longestMs);
      },
    };
  }

  function at(index) {
    return windows.get(windowOf(places.placeOf(index)))?.get(index) ?? null;
  }

  function loadSight() {
    const { first, last } = list.sight();
    if (last < first) return;
    for (let number = windowOf(first); number <= windowOf(last); number += 1) load(number);
  }

  async function load(number, isAgain = false) {
    if (!isAgain && (windows.has(number) || reading.has(number))) return;
    if (reading.has(number)) {
      reading.get(number).isStale = true;
      return;
    }
    const state = { isStale: false };
    reading.set(number, state);
    try {
      do {
        state.isStale = false;
        const from = places.indexAt(number * WINDOW_STEPS);
        const found = await readTimeline(id, { from, limit: WINDOW_STEPS }, ended.signal);
        keep(number, found.steps);
        onRead(found);
      } while (state.isStale);
    } catch (error) {
      if (!ended.signal.aborted) onFault(error);
    }
    reading.delete(number);
  }

  function keep(number, steps) {
    windows.delete(number); // so that the last used is the last in order
    windows.set(number, new Map(steps.map((step) => [step.index, step])));
    for (const step of steps) longestMs = Math.max(longestMs, step.latency ?? 0);
    for (const old of windows.keys()) {
      if (windows.size <= WINDOWS_KEPT_MAX) break;
      if (old !== number) windows.delete(old);
    }
    list.refresh();
  }

  return {
    node: scroller,
    at,
    /** How many steps there are, and at which indexes none; those that are new are read if they are
     * in sight. */
    setCount(wanted, missing) {
      count = wanted;
      if (JSON.stringify(missing) !== gaps) {
        gaps = JSON.stringify(missing);
        places = placesOf(missing);
        windows.clear();
      }
      list.setCount(count);
    },
    count: () => count,
    indexAt: (place) => places.indexAt(place),
    placeOf: (index) => places.placeOf(index),
    /** Read again what is in sight and what is at the end: something changed. */
    reload() {
      const { first, last } = list.sight();
      const wanted = new Set([first, last, count - 1].map((place) => windowOf(Math.max(0, place))));
      for (const number of windows.keys()) if (!wanted.has(number)) windows.delete(number);
      for (const number of wanted) load(number, true);
    },
    select(index, { reveals = true } = {}) {
      chosen = index;
      list.refresh();
      if (reveals && index >= 0) list.reveal(places.placeOf(index));
    },
    refresh: list.refresh,
    focusRow: list.focusRow,
    isAtEnd: list.isAtEnd,
    stop() {
      clearTimeout(resting);
      ended.abort();
      list.stop();
    },
  };
}

function windowOf(place) {
  return Math.floor(place / WINDOW_STEPS);
}

function stepRow(hrefOf) {
  const number = make("span", { className: "row-number" });
  const state = make("span", { className: "row-state", "aria-hidden": "true" });
  const what = make("span", { className: "row-what" });
  const facts = make("span", { className: "row-facts" });
  const marks = make("span", { className: "row-marks" });
  const bar = make("span", { className: "row-bar", "aria-hidden": "true" });
  const link = make("a", { className: "step-link" }, number, state, what, facts, marks, bar);
  const node = make("li", { className: "step-row" }, link);
  let shown = []; // what was written last
  return {
    node,
    update(index, step, isChosen, held, longestMs) {
      const wanted = [index, step, isChosen, held, longestMs];
      if (wanted.every((value, at) => value === shown[at])) return;
      shown = wanted;
      link.href = hrefOf(index);
      if (isChosen) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
      setText(number, step ? String(step.step_number) : "…");
      if (!step) {
        link.dataset.state = "";
        for (const part of [what, facts, marks]) setText(part, "");
        bar.style.inlineSize = "0";
        return;
      }
      link.dataset.state = held.length > 0 ? "held" : step.state;
      link.classList.toggle("is-inactive", Number.isFinite(step.rolled_back_ms));
      const summary = summaryOf(step);
      setText(what, summary.text);
      what.dataset.is = summary.is;
      setText(facts, factsOf(step));
      link.title = `${statusLabel(step.state)}, ${moment(step.created_ms)}`;
      marks.replaceChildren(...marksOf(step, held).map((mark) => markNode(mark)));
      bar.style.inlineSize = `${(100 * (step.latency ?? 0)) / longestMs}%`;
    },
  };
}

/** A mark as a small word: {text, is, title}. */
export function markNode({ text, is = "", title = "" }) {
  const node = make("span", { className: "mark", textContent: text });
  if (is) node.dataset.is = is;
  if (title) node.title = title;
  return node;
}

/** What happened at a step, in a few words. */
export function summaryOf(step) {
  if (step.tools.length > 0) {
    const others = step.tool_calls - step.tools.length;
    const names = step.tools.map((name) => visible(name)).join(", ");
    return { is: "calls", text: others > 0 ? `${names} and ${others} more` : names };
  }
  if (step.response) return { is: "text", text: visible(step.response.slice(0, SUMMARY_CHARS)) };
  if (step.error) return { is: "error", text: visible(step.error.slice(0, SUMMARY_CHARS)) };
  if (step.state === "in_flight") return { is: "quiet", text: "The model is being asked" };
  if (step.state === "interrupted") {
    return { is: "error", text: "The proxy died while it was in flight; it is asked again" };
  }
  if (step.finish_reason === "tool_calls") return { is: "quiet", text: "Tool calls, no text" };
  const reason = step.finish_reason ? `No text; finished: ${visible(step.finish_reason)}` : MISSING;
  return { is: "quiet", text: reason };
}

function factsOf(step) {
  const usage = step.usage;
  const sign = usage?.is_estimate ? "~" : "";
  const tokens = usage
    ? `${sign}${countShort(usage.prompt_tokens)} → ${countShort(usage.completion_tokens)}`
    : null;
  const cost = Number.isFinite(step.cost_microusd) ? money(step.cost_microusd) : null;
  const latency = Number.isFinite(step.latency) ? duration(step.latency) : null;
  return [visible(step.model ?? MISSING), latency, tokens, cost].filter(Boolean).join(" · ");
}

/** The marks of a step, those that need a person first. */
export function marksOf(step, held = []) {
  const marks = [];
  if (held.some(({ status }) => status === "PENDING")) marks.push({ text: "held", is: "waiting" });
  else if (held.length > 0) marks.push({ text: "undecided", is: "waiting" });
  if (step.state === "failed") marks.push({ text: "failed", is: "bad" });
  if (step.state === "interrupted") marks.push({ text: "interrupted", is: "waiting" });
  if (step.state === "in_flight") marks.push({ text: "in flight", is: "active" });
  if (Number.isFinite(step.rolled_back_ms)) marks.push({ text: "rolled back" });
  if (step.asked_of) {
    marks.push({ text: "fallback", is: "waiting", title: `Asked first: ${visible(step.asked_of)}` });
  } else if (step.attempts > 1) marks.push({ text: plural(step.attempts, "try", "tries") });
  if (step.replays > 0) {
    marks.push({ text: `replayed ×${step.replays}`, is: "good", title: "Answered from the record" });
  }
  if (step.is_mock) marks.push({ text: "mock" });
  return marks;
}
