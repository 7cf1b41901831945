// A list of any length of which only what is in sight is in the page. All rows are equally high.

import { make } from "../dom.js";

const MARGIN_ROWS = 8; // beyond the sight, so that a short scroll shows no gap

/**
 * Make the list: {node, setCount, refresh, reveal, isAtEnd, stop}.
 *
 * `scroller` is the element that scrolls it; the window scrolls it where that one does not. A row is
 * made by `createRow()` as {node, update(index)} and used for one index after another. `onSight(first,
 * last)` is told which rows are in sight, so that they can be loaded; then `refresh` shows them.
 */
export function virtualList({ scroller, createRow, onSight, label }) {
  const node = make("ol", { className: "virtual", "aria-label": label });
  const rows = new Map(); // by index
  const places = new WeakMap(); // the index of each node in the list
  const spare = [];
  let count = 0;
  let height = 0; // of a row, measured from the first one
  let sight = { first: 0, last: -1 };
  let frame = 0;

  function measure() {
    if (height > 0 && node.firstChild) height = node.firstChild.offsetHeight || height;
    if (height > 0 || count === 0) return;
    const probe = spare.pop() ?? createRow();
    probe.update(0);
    node.append(probe.node);
    height = probe.node.offsetHeight;
    probe.node.remove();
    spare.push(probe);
  }

  function lookAround() {
    const box = node.getBoundingClientRect();
    const view = isOwn() ? scroller.getBoundingClientRect() : { top: 0, bottom: innerHeight };
    const top = Math.max(view.top, 0);
    const bottom = Math.min(view.bottom, innerHeight);
    const above = Math.floor((top - box.top) / height) - MARGIN_ROWS;
    const below = Math.ceil((bottom - box.top) / height) + MARGIN_ROWS;
    // Some are there even where the list is out of sight: the Tab key has to find them.
    const first = Math.max(0, Math.min(above, count - MARGIN_ROWS));
    return { first, last: Math.min(count - 1, Math.max(below, first + MARGIN_ROWS)) };
  }

  /** Whether the scroller scrolls, and not the window. */
  function isOwn() {
    return getComputedStyle(scroller).overflowY === "auto";
  }

  function layOut() {
    cancelAnimationFrame(frame);
    frame = 0;
    measure();
    node.style.height = `${count * height}px`;
    if (height === 0) return; // not in sight at all
    sight = lookAround();
    for (const [index, row] of rows) {
      if (index >= sight.first && index <= sight.last) continue;
      if (row.node.contains(document.activeElement) && index < count) continue; // focus stays
      row.node.remove();
      rows.delete(index);
      spare.push(row);
    }
    for (let index = sight.first; index <= sight.last; index += 1) {
      if (rows.has(index)) continue;
      const row = spare.pop() ?? createRow();
      rows.set(index, row);
      row.node.style.transform = `translateY(${index * height}px)`;
      row.node.ariaPosInSet = String(index + 1);
      row.node.ariaSetSize = String(count);
      row.update(index);
      insert(row.node, index);
    }
    onSight(sight.first, sight.last);
  }

  /** In the order of their indexes, which is the order the Tab key goes in. */
  function insert(child, index) {
    places.set(child, index);
    let before = node.lastChild;
    while (before && places.get(before) > index) before = before.previousSibling;
    node.insertBefore(child, before ? before.nextSibling : node.firstChild);
  }

  function schedule() {
    if (frame === 0) frame = requestAnimationFrame(layOut);
  }

  const ended = new AbortController();
  const { signal } = ended;
  document.addEventListener("scroll", schedule, { capture: true, passive: true, signal });
  addEventListener("resize", schedule, { signal });
  const sizes = new ResizeObserver(schedule);
  sizes.observe(scroller);

  return {
    node,
    setCount(wanted) {
      if (wanted !== count) {
        count = wanted;
        for (const row of rows.values()) row.node.ariaSetSize = String(count);
      }
      layOut();
    },
    /** Write all rows that are in sight anew. */
    refresh() {
      for (const [index, row] of rows) if (index < count) row.update(index);
    },
    /** The first and the last row that are in the page. */
    sight: () => sight,
    /** Scroll as little as is needed to have a row in sight. */
    reveal(index) {
      measure();
      const top = index * height;
      if (isOwn()) {
        const offset = node.offsetTop - scroller.offsetTop;
        const from = scroller.scrollTop - offset;
        if (top < from) scroller.scrollTop = top + offset;
        else if (top + height > from + scroller.clientHeight) {
          scroller.scrollTop = top + height - scroller.clientHeight + offset;
        }
      }
      layOut();
      if (!isOwn()) rows.get(index)?.node.scrollIntoView({ block: "nearest" });
    },
    /** Whether the last row is in sight. */
    isAtEnd() {
      const bottom = isOwn() ? scroller.getBoundingClientRect().bottom : innerHeight;
      return node.getBoundingClientRect().bottom - Math.min(bottom, innerHeight) < height;
    },
    focusRow(index) {
      rows.get(index)?.node.querySelector("a, button")?.focus({ preventScroll: true });
    },
    stop() {
      cancelAnimationFrame(frame);
      sizes.disconnect();
      ended.abort();
    },
  };
}
