// The sessions that hang together with one, as branches of its waterfall: what it began, what was
// forked from it, and what it comes from itself, each with the place where it leaves.

import { draw } from "../dom.js";
import { plural, statusLabel } from "../format.js";
import { visible } from "../visible.js";

const PILL = 26; // wide
const CHAR = 6.6; // wide, in the type of labels
const BEND = 6;

/**
 * What leaves between these bars, the first first: [{row, at, bar, title}]. `at` is a time, `bar`
 * the last one before it that both share, null = none does.
 * `isStart` and `isEnd` say whether the first and the last step are among the bars.
 */
export function branchesOf({ forks, children }, bars, { isStart, isEnd }) {
  const first = bars[0].from;
  const until = Math.max(...bars.map((bar) => bar.to));
  const found = [];
  for (const row of children) {
    const at = row.created_ms;
    if ((at < first && !isStart) || (at > until && !isEnd)) continue;
    const during = bars.findLast((bar) => bar.from <= at) ?? null;
    found.push({ row, at: Math.min(Math.max(at, first), until), bar: during, title: "Begun here" });
  }
  for (const row of forks) {
    const shared = bars.filter(({ step }) => isShared(step, row.forked_from));
    if ((shared.length === 0 && !isStart) || (shared.length === bars.length && !isEnd)) continue;
    const bar = shared.toSorted((one, other) => one.step.index - other.step.index).at(-1) ?? null;
    found.push({ row, at: bar?.to ?? first, bar, title: forkTitle(row.forked_from) });
  }
  return found.sort((one, other) => one.at - other.at);
}

/** Whether a fork has a step in common with what it was forked from. */
export function isShared(step, { index, step_number: number, made_ms: made }) {
  if (index !== null) return step.index < index;
  if (number !== null) return step.step_number < number;
  return step.created_ms < made;
}

function forkTitle({ index, step_number: number }) {
  if (number !== null) return `Forked before step ${number}`;
  return index === null ? "Forked after all of it" : `Forked before index ${index}`;
}

/** A branch in the lane `y` is the middle of, as a link. */
export function drawBranch({ row, title, bar }, { x, y, top, width, until }) {
  const name = visible(row.name || row.session);
  const own = row.forked_from ? row.steps - row.forked_from.shared_steps : row.steps;
  const facts = [name, `${plural(Math.max(0, own), "step")} of its own`, statusLabel(row.status)];
  const left = x + BEND + 4;
  const long = row.forked_from ? PILL : Math.max(PILL, until - left);
  const pill = Math.max(8, Math.min(long, width - left));
  const end = left + pill;
  const said = row.forked_from && bar !== null ? `${name} · ${title.toLowerCase()}` : name;
  return link(
    `#/sessions/${encodeURIComponent(row.session)}`,
    `${title}: ${facts.join(", ")}`,
    "branch",
    draw("path", {
      class: "branch-line",
      d: `M${x} ${top}V${y - BEND}q0 ${BEND} ${BEND} ${BEND}H${left}`,
    }),
    draw("rect", { class: "branch-bar", x: left, y: y - 5, width: pill, height: 10, rx: 5 }),
    label(said, { from: end + 6, before: x - 6, y: y + 4, width }),
  );
}

/** Where this session comes from: a line from the left to where it goes on alone. */
export function drawSource({ href, text }, { x, y, bottom, end, width }) {
  const down = `M0 ${y}H${Math.max(0, x - BEND)}q${BEND} 0 ${BEND} ${BEND}V${bottom - BEND}`;
  return link(
    href,
    text,
    "branch is-source",
    draw("path", { class: "branch-line", d: `${down}q0 ${BEND} ${BEND} ${BEND}H${end}` }),
    draw("circle", { class: "branch-bar", cx: 5, cy: y, r: 5 }),
    label(text, { from: x + BEND + 6, before: x - BEND - 4, y: y + 4, width }),
  );
}

/** Its title is its name: what is drawn of that may be cut. */
function link(href, name, className, ...children) {
  return draw("a", { href, class: className }, draw("title", {}, name), ...children);
}

/** Text where there is more room for it, after a place or before one; cut where there is not. */
function label(text, { from, before, y, width }) {
  const isAfter = width - from >= Math.min(before, text.length * CHAR);
  const room = Math.max(3, Math.floor((isAfter ? width - from : before) / CHAR));
  const signs = Array.from(text);
  const shown = signs.length > room ? `${signs.slice(0, room - 1).join("")}…` : text;
  const place = isAfter ? { x: from } : { x: before, "text-anchor": "end" };
  return draw("text", { class: "branch-label", y, ...place }, shown);
}
