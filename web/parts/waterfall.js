// When calls were in the air: a bar for each step, those at the same time below each other, and the
// sessions that hang together with this one as branches. Waiting times that would squeeze the rest
// are cut short. One unit of the picture is a pixel, so that its text has the size of text.

import { listSessions, poll } from "../api.js";
import { draw, make } from "../dom.js";
import { duration, moment, plural, statusLabel } from "../format.js";
import { visible } from "../visible.js";
import { branchesOf, drawBranch, drawSource, isShared } from "./branches.js";
import { summaryOf } from "./timeline.js";

const WIDTH_MIN = 260;
const STEP_MIN = 5; // wide, on average: with more steps than that it is pushed aside
const ROW = 24; // what a finger hits
const BAR = 18; // high
const WAIT = 4; // high, of the part in which nothing had come yet
const AXIS = 26;
const BAR_MIN = 3;
const CHAR = 7; // wide
const CUT_SHARE = 0.25; // a pause longer than this share of all work is cut to
const CUT_TO = 0.04; // this share
const BRANCHES_MAX = 20; // of a kind
const BRANCHES_PACE_MS = 5000; // any session may have become one

/**
 * Make the chart: {node, show, stop}. `show({steps, chosen, session, isEnd})` draws these steps of a
 * session, `chosen` being the index of the open one, `isEnd` = its last step is among them; it is
 * drawn anew as the page changes, until `stop`.
 */
export function waterfall(id, { hrefOf }) {
  const place = make("div");
  const node = make("div", { className: "waterfall" }, place);
  const nobody = { forks: [], children: [] };
  let related = nobody;
  let feed = null; // of the branches
  let last = null;
  let width = 0;
  const observer = new ResizeObserver(() => {
    if (last !== null && place.clientWidth !== width) redraw();
  });

  async function readBranches(signal) {
    const [forks, children] = await Promise.all([
      listSessions({ limit: BRANCHES_MAX, forked_from: id }, signal),
      listSessions({ limit: BRANCHES_MAX, parent: id }, signal),
    ]);
    return { forks: forks.sessions, children: children.sessions };
  }

  function start() {
    observer.observe(place);
    const take = (found) => {
      const isNew = JSON.stringify(found) !== JSON.stringify(related);
      related = found;
      if (isNew) redraw();
    };
    // Where they cannot be read the steps alone are shown; the session itself says what is wrong.
    feed = poll(readBranches, take, () => {}, { paceMs: BRANCHES_PACE_MS });
  }

  function redraw() {
    width = place.clientWidth;
    if (width === 0) return; // not laid out; the observer will tell
    const focused = node.contains(document.activeElement) && document.activeElement;
    place.replaceChildren(...nodesOf(last, related, width, hrefOf));
    if (!focused) return;
    const href = focused.getAttribute("href");
    [...place.querySelectorAll("a")].find((link) => link.getAttribute("href") === href)?.focus();
  }

  return {
    node,
    show(wanted) {
      last = wanted;
      if (feed === null) start();
      redraw();
    },
    stop() {
      feed?.stop();
      feed = null;
      observer.disconnect();
    },
  };
}

function nodesOf({ steps, chosen, session, isEnd }, related, room, hrefOf) {
  const bars = steps
    .filter((step) => Number.isFinite(step.created_ms))
    .map((step) => ({ step, from: step.created_ms, to: endOf(step) }));
  if (bars.length === 0) return [make("p", { className: "quiet", textContent: "No step yet." })];
  const width = Math.max(WIDTH_MIN, room, bars.length * STEP_MIN);
  const lanes = laneOut(bars);
  const place = squeeze(bars, width);
  const isStart = bars.some(({ step }) => step.index === 0);
  const sources = sourcesOf(session, bars, isStart);
  const branches = branchesOf(related, bars, { isStart, isEnd });
  const top = AXIS + sources.length * ROW;
  const under = top + lanes * ROW;
  const height = under + branches.length * ROW + 6;
  const until = Math.max(...bars.map((bar) => bar.to));
  const yOf = (bar) => top + bar.lane * ROW;
  const picture = draw("svg", {
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    class: "waterfall-picture",
    role: "group",
    "aria-label": `Waterfall of ${plural(bars.length, "step")}`,
  });
  picture.append(...axisOf(place, bars, width, height));
  sources.forEach((source, at) => {
    const y = AXIS + at * ROW + BAR / 2;
    const { bar, time } = source;
    const x = place(time);
    const end = Math.max(x + BAR / 2, place(bar.from));
    picture.append(drawSource(source, { x, y, bottom: yOf(bar) + BAR / 2, end, width }));
  });
  // What leaves last has the first lane, so that no line crosses a branch; its text is drawn last.
  branches.forEach((branch, at) => {
    const y = under + (branches.length - 1 - at) * ROW + BAR / 2;
    const from = branch.bar === null ? top : yOf(branch.bar) + BAR / 2;
    const ends = place(Math.min(branch.row.updated_ms, until));
    picture.append(drawBranch(branch, { x: place(branch.at), y, top: from, width, until: ends }));
  });
  const origin = session.forked_from;
  for (const bar of bars) {
    const link = barOf(bar, place, yOf(bar), width, hrefOf);
    if (bar.step.index === chosen) link.classList.add("is-chosen");
    if (origin && isShared(bar.step, origin)) link.classList.add("is-shared");
    picture.append(link);
  }
  const said = sayOf(bars, until - bars[0].from, place.cuts.length, branches.length, related);
  return [picture, make("p", { className: "quiet", textContent: said })];
}

function sayOf(bars, wholeMs, cuts, shown, { forks, children }) {
  const elsewhere = forks.length + children.length - shown;
  const parts = [`${plural(bars.length, "step")} over ${duration(wholeMs)}.`];
  if (cuts > 0) parts.push("A break in the axis is a wait that was cut short.");
  if (elsewhere > 0) parts.push(`${plural(elsewhere, "branch", "branches")} before or after these.`);
  return parts.join(" ");
}

/** Where a session comes from: [{href, text, bar, time}], `bar` being the first that is its own. */
function sourcesOf({ forked_from: origin, parent }, bars, isStart) {
  const found = [];
  if (parent && isStart) {
    const href = `#/sessions/${encodeURIComponent(parent)}`;
    found.push({ href, text: `Begun by ${visible(parent)}`, bar: bars[0], time: bars[0].from });
  }
  const shared = origin ? bars.filter(({ step }) => isShared(step, origin)) : [];
  if (shared.length > 0) {
    const before = shared.at(-1);
    const own = bars.find((bar) => bar.from >= before.from && !shared.includes(bar));
    const query = new URLSearchParams({ index: before.step.index });
    const href = `#/sessions/${encodeURIComponent(origin.session)}?${query}`;
    const text = `Forked from ${visible(origin.session)}`;
    found.push({ href, text, bar: own ?? before, time: before.to });
  }
  return found;
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
export function squeeze(bars, width) {
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
  const scale = width / Math.max(at, 1);
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

function axisOf(place, bars, width, height) {
  const nodes = [];
  const start = bars[0].from;
  let free = -Infinity; // where the last label ends
  for (const { from, isCut } of place.parts) {
    if (isCut) continue;
    const x = place(from);
    
    const label = from === start ? moment(from) : `+${duration(from - start)}`;
    const length = label.length * CHAR;
    if (x < free || x + length > width) continue;
    nodes.push(draw("line", { class: "tick", x1: x, x2: x, y1: AXIS - 8, y2: height }));
    nodes.push(draw("text", { class: "tick-label", x: x + 2, y: 13 }, label));
    free = x + length + 12;
  }
  for (const cut of place.cuts) {
    const x = (place(cut.from) + place(cut.to)) / 2;
    nodes.push(
      draw("path", { class: "cut", d: `M${x - 4} ${AXIS - 14}l4 4l-4 4l4 4` }),
      draw("path", { class: "cut", d: `M${x} ${AXIS - 14}l4 4l-4 4l4 4` }),
    );
  }
  return nodes;
}

function barOf({ step, from, to }, place, y, end, hrefOf) {
  const x = Math.min(place(from), end - BAR_MIN);
  const width = Math.max(BAR_MIN, place(to) - x);
  const facts = [statusLabel(step.state), duration(to - from), summaryOf(step).text.slice(0, 120)];
  const name = `Step ${step.step_number}: ${facts.join(", ")}`;
  const link = draw(
    "a",
    { href: hrefOf(step.index), class: "bar-link", "aria-label": name },
    draw("title", {}, name),
    draw("rect", { class: "bar", x, y, width, height: BAR, rx: 3 }),
  );
  if (Number.isFinite(step.first_content_ms) && step.latency > 0) {
    const wait = Math.min(width, Math.max(0, place(from + step.first_content_ms) - x));
    const low = { y: y + BAR - WAIT, height: WAIT };
    link.append(draw("rect", { class: "bar-wait", x, width: wait, ...low }));
  }
  const label = String(step.step_number);
  if (width > label.length * 8 + 8) {
    link.append(draw("text", { class: "bar-label", x: x + 4, y: y + 13 }, label));
  }
  link.dataset.state = Number.isFinite(step.rolled_back_ms) ? "rolled" : step.state;
  return link;
}
