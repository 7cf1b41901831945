// What waits for a person, read once for the whole page: the bar counts it, views show it.

import { listPending, listUnknown, poll } from "./api.js";

// The Date header has whole seconds and takes its time: clocks closer than this are the same.
const SKEW_MIN_MS = 2000;
const PACE_MS = 700; // any session may have got an approval

/**
 * Watch what waits, as long as the page lives. `subscribe(listener)` calls `listener(approvals,
 * error)` at once if anything is known and on each news, until the function it returns is called:
 * `approvals` are the last known, null before the first; `error` says why they may be old.
 */
export function watchPending() {
  const listeners = new Set();
  let approvals = null;
  let calls = []; // durable ones of which nobody knows whether they happened
  let error = null;
  let skewMs = 0; // the server's clock less ours

  const tell = () => {
    for (const listener of listeners) listener(approvals, error);
  };
  const { refresh } = poll(
    async (signal) => {
      const [found, unknown] = await Promise.all([listPending(signal), listUnknown(signal)]);
      return { ...found, unknown };
    },
    (found) => {
      const apartMs = found.now_ms - Date.now();
      skewMs = Math.abs(apartMs) < SKEW_MIN_MS ? 0 : apartMs;
      approvals = found.approvals;
      calls = found.unknown;
      error = null;
      tell();
    },
    (failure) => {
      error = failure;
      tell();
    },
    { evenHidden: true, paceMs: PACE_MS },
  );

  return {
    subscribe(listener) {
      listeners.add(listener);
      if (approvals !== null || error !== null) listener(approvals, error);
      return () => listeners.delete(listener);
    },
    /** Durable calls that a person must settle, as last read. */
    unknown: () => calls,
    /** Leave out what was just settled, ahead of the next list. */
    dropUnknown(id) {
      calls = calls.filter(({ call }) => call !== id);
      tell();
      refresh();
    },
    /** The time by the server's clock, which the deadlines are from. */
    now: () => Date.now() + skewMs,
    /** Leave out what was just decided, ahead of the next list. */
    drop(id) {
      approvals = (approvals ?? []).filter((approval) => approval.approval_id !== id);
      tell();
      refresh();
    },
    refresh,
  };
}

/** How many wait and are not expired. */
export function countWaiting(approvals) {
  return (approvals ?? []).filter((approval) => approval.status === "PENDING").length;
}
