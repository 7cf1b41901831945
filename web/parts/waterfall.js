// When calls were in the air: a bar for each step, those at the same time below each other, and the
// sessions that this one began as branches. Waiting times that would squeeze the rest are cut short.

import { listSessions } from "../api.js";
import { draw, make } from "../dom.js";
import { duration, moment, statusLabel } from "../format.js";
import { visible } from "../visible.js";
import { summaryOf } from "./timeline.js";

const WIDTH = 1000;
const ROW = 22;
const AXIS = 24;
const BAR_MIN = 3;
const CUT_SHARE = 0.25; // a pause longer than this share of all work is cut to
const CUT_TO = 0.04; // this share
const BRANCHES_MAX = 20;

/** Make the chart: {node, show}. `show(steps, index)` draws these steps, `index` being open. */
export function waterfall(id, { hrefOf }) {
  const node = make("div", { className: "waterfall" });
  let branches = null; // sessions that this one began; null = not read yet
  let last = [];

  async function readBranches() {
    branches = [];
    try {
      branches = (await listSessions({ limit: BRANCHES_MAX, parent: id })).sessions;
      if (branches.length > 0) show(...last);
    } catch {
      // The steps alone are shown; the list of sessions says what is wrong.
    }
  }

  function show(steps, chosen) {
    last = [steps, chosen];
    if (branches === null) readBranches();
    const bars = steps
      .filter((step) => Number.isFinite(step.created_ms))
      .map((step) => ({ step, from: step.created_ms, to: endOf(step) }));
    if (bars.length === 0) {
      node.replaceChildren(make("p", { className: "quiet", textContent: "No step yet." }));
      return;
    }
    const lanes = laneOut(bars);
    const place = squeeze(bars);
    const first = bars[0].from;
    const until = Math.max(...bars.map((bar) => bar.to));
    const shown = (branches ?? []).filter(({ created_ms: at }) => at >= first && at <= until);
    const height = AXIS + (lanes + shown.length) * ROW + 6;
    const picture = draw("svg", {
      viewBox: `0 0 ${WIDTH} ${height}`,
      class: "waterfall-picture",
      role: "group",
      "aria-label": `Waterfall of ${bars.length} steps`,
    });
    picture.append(...axisOf(place, bars, height));
    for (const bar of bars) picture.append(barOf(bar, place, bar.step.index === chosen, hrefOf));
    shown.forEach((row, at) => picture.append(branchOf(row, place, lanes + at, bars)));
    const whole = duration(until - first);
    const said = `${bars.length} steps over ${whole}. A break in the axis is a wait that was cut short.`;
    node.replaceChildren(picture, make("p", { className: "quiet", textContent: said }));
  }

  return { node, show };
}

function endOf(step) {
  if (Number.isFinite(step.latency)) return step.created_ms + step.latency;
  if (step.state === "in_flight") return Math.max(step.created_ms, Date.now());
  return step.answered_ms ?? step.created_ms;
}

/** Give each bar the first lane that is free when it begins; returns how many lanes there are. */
export function laneOut(bars) {
  bars.sort((one, other) => one.from - other.from);
  const ends = [];
  for (const bar of bars) {
    const free = ends.findIndex((end) => end <= bar.from);
    bar.lane = free < 0 ? ends.length : free;
    ends[bar.lane] = bar.to;
  }
  return ends.length;
}

/** A function from a time to a place on the axis; `place.cuts` are the pauses that were cut. */
export function squeeze(bars) {
  const busy = [];
  for (const { from, to } of bars) {
    if (busy.length > 0 && from <= busy.at(-1).to) busy.at(-1).to = Math.max(busy.at(-1).to, to);
    else busy.push({ from, to });
  }
  const work = Math.max(1, busy.reduce((sum, { from, to }) => sum + to - from, 0));
  const parts = [];
  let at = 0;
  busy.forEach((span, number) => {
    if (number > 0) {
      const pause = span.from - busy[number - 1].to;
      const isCut = pause > work * CUT_SHARE;
      parts.push({ from: busy[number - 1].to, to: span.from, at, isCut });
      at += isCut ? work * CUT_TO : pause;
    }
    parts.push({ ...span, at, isCut: false });
    at += span.to - span.from;
  });
  const scale = WIDTH / Math.max(at, 1);
  const place = (time) => {
    const part = parts.findLast(({ from }) => from <= time) ?? parts[0];
    const next = parts[parts.indexOf(part) + 1];
    const length = (next ? next.at : at) - part.at;
    const share = part.to > part.from ? (time - part.from) / (part.to - part.from) : 0;
    return (part.at + Math.min(1, Math.max(0, share)) * length) * scale;
  };
  place.cuts = parts.filter(({ isCut }) => isCut);
  place.parts = parts;
  return place;
}

function axisOf(place, bars, height) {
  const nodes = [];
  const start = bars[0].from;
  let free = -Infinity; // where the last label ends
  for (const { from, isCut } of place.parts) {
    if (isCut) continue;
    const x = place(from);
    if (x < free || x > WIDTH - 60) continue;
    nodes.push(draw("line", { class: "tick", x1: x, x2: x, y1: AXIS - 6, y2: height }));
    const label = from === start ? moment(from) : `+${duration(from - start)}`;
    nodes.push(draw("text", { class: "tick-label", x: x + 2, y: 12 }, label));
    free = x + label.length * 7 + 16;
  }
  for (const cut of place.cuts) {
    const x = (place(cut.from) + place(cut.to)) / 2;
    nodes.push(
      draw("path", { class: "cut", d: `M${x - 4} ${AXIS}l4 5l-4 5l4 5` }),
      draw("path", { class: "cut", d: `M${x} ${AXIS}l4 5l-4 5l4 5` }),
    );
  }
  return nodes;
}

function barOf({ step, from, to, lane }, place, isChosen, hrefOf) {
  const x = place(from);
  const width = Math.max(BAR_MIN, place(to) - x);
  const y = AXIS + lane * ROW;
  const name = `Step ${step.step_number}: ${statusLabel(step.state)}, ${duration(to - from)}, ${summaryOf(step).text.slice(0, 120)}`;
  const link = draw(
    "a",
    { href: hrefOf(step.index), class: "bar-link", "aria-label": name },
    draw("title", {}, name),
    draw("rect", { class: "bar", x, y, width, height: ROW - 6, rx: 3 }),
  );
  if (Number.isFinite(step.first_content_ms) && step.latency > 0) {
    const wait = Math.max(0, place(from + step.first_content_ms) - x);
    link.append(draw("rect", { class: "bar-wait", x, y, width: wait, height: ROW - 6, rx: 3 }));
  }
  const label = String(step.step_number);
  if (width > label.length * 8 + 6) {
    link.append(draw("text", { class: "bar-label", x: x + 4, y: y + 12 }, label));
  }
  link.dataset.state = Number.isFinite(step.rolled_back_ms) ? "rolled" : step.state;
  if (isChosen) link.classList.add("is-chosen");
  return link;
}

function branchOf(row, place, lane, bars) {
  const x = place(row.created_ms);
  const y = AXIS + lane * ROW + ROW / 2 - 3;
  const until = Math.min(row.updated_ms, Math.max(...bars.map((bar) => bar.to)));
  const name = visible(row.name || row.session);
  const width = Math.max(BAR_MIN * 4, place(until) - x - 10);
  const isLate = x + width > WIDTH * 0.7; // no room for its name on the right
  return draw(
    "a",
    { href: `#/sessions/${encodeURIComponent(row.session)}`, class: "branch", "aria-label": `Begun here: ${name}` },
    draw("title", {}, `Begun here: ${name}`),
    draw("path", { class: "branch-line", d: `M${x} ${AXIS}V${y - 6}q0 6 6 6h4` }),
    draw("rect", { class: "branch-bar", x: x + 10, y: y - 4, width, height: 8, rx: 4 }),
    draw(
      "text",
      isLate
        ? { class: "tick-label", x: x - 8, y: y + 4, "text-anchor": "end" }
        : { class: "tick-label", x: x + width + 16, y: y + 4 },
      name.slice(0, 40),
    ),
  );
}
