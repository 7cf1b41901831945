// What differs between two texts, line by line. Pure.

import { faultOf, indent } from "./json.js";

const CELLS_MAX = 4_000_000; // of the table; beyond it the middle counts as replaced as a whole

/**
 * Compare two lists of lines: [{kind, line}] with kind "same", "gone" or "new", in reading order.
 */
export function diffLines(before, after) {
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head += 1;
  let tail = 0;
  while (
    tail < before.length - head &&
    tail < after.length - head &&
    before[before.length - 1 - tail] === after[after.length - 1 - tail]
  ) {
    tail += 1;
  }
  const same = (line) => ({ kind: "same", line });
  return [
    ...before.slice(0, head).map(same),
    ...middleOf(before.slice(head, before.length - tail), after.slice(head, after.length - tail)),
    ...before.slice(before.length - tail).map(same),
  ];
}

/** By the longest common subsequence, which is what people would mark. */
function middleOf(before, after) {
  const gone = (line) => ({ kind: "gone", line });
  const added = (line) => ({ kind: "new", line });
  if (before.length === 0 || after.length === 0 || before.length * after.length > CELLS_MAX) {
    return [...before.map(gone), ...after.map(added)];
  }
  const width = after.length + 1;
  const lengths = new Uint32Array((before.length + 1) * width);
  for (let row = before.length - 1; row >= 0; row -= 1) {
    for (let column = after.length - 1; column >= 0; column -= 1) {
      const at = row * width + column;
      lengths[at] =
        before[row] === after[column]
          ? lengths[at + width + 1] + 1
          : Math.max(lengths[at + width], lengths[at + 1]);
    }
  }
  const found = [];
  let row = 0;
  let column = 0;
  while (row < before.length && column < after.length) {
    const at = row * width + column;
    if (before[row] === after[column]) {
      found.push({ kind: "same", line: before[row] });
      row += 1;
      column += 1;
    } else if (lengths[at + width] >= lengths[at + 1]) {
      found.push(gone(before[row]));
      row += 1;
    } else {
      found.push(added(after[column]));
      column += 1;
    }
  }
  return [...found, ...before.slice(row).map(gone), ...after.slice(column).map(added)];
}

/** Leave out long runs of lines that are the same, but for `around` lines beside what differs. */
export function foldSame(rows, around = 3) {
  const isNear = rows.map(() => false);
  rows.forEach((row, at) => {
    if (row.kind === "same") return;
    for (let near = at - around; near <= at + around; near += 1) isNear[near] = true;
  });
  const found = [];
  rows.forEach((row, at) => {
    if (isNear[at]) found.push(row);
    else if (found.at(-1)?.kind === "fold") found.at(-1).count += 1;
    else found.push({ kind: "fold", count: 1 });
  });
  return found;
}

/** A step as lines to compare: its turns, then its answer. */
export function linesOf({ turns, request, choices, delivered }) {
  const lines = [];
  const say = (title, text) => lines.push(title, ...text.split("\n"), "");
  if (turns === null) say("Request", JSON.stringify(request, null, 2));
  for (const turn of turns ?? []) {
    for (const item of turn.items) {
      if (item.kind === "call") say(`${turn.role} calls ${item.name}`, pretty(item.arguments));
      else if (item.kind === "result") {
        say(`result of ${item.name || item.id}`, item.items.map(textOf).join("\n"));
      } else say(turn.role, textOf(item));
    }
  }
  lines.push(...answerLines(delivered ?? choices ?? []));
  return lines;
}

/** An answer as lines to compare. */
export function answerLines(choices) {
  const lines = [];
  for (const choice of choices) {
    const text = choice.text || choice.refusal || "";
    lines.push("answer", ...text.split("\n"), "");
    for (const call of choice.tool_calls) {
      lines.push(`answer calls ${call.name}`, ...pretty(call.arguments).split("\n"), "");
    }
  }
  return lines;
}

function textOf(item) {
  if (item.kind === "text" || item.kind === "refusal") return item.text;
  return `(${item.kind})`;
}

/** Arguments one value a line, so that a change of one is a change of one line. */
function pretty(text) {
  return faultOf(text) === null ? indent(text) : text;
}
