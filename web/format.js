// How values look. Pure functions of values; times in milliseconds, money in micro-dollars.

const WHOLE = new Intl.NumberFormat("en-US");
const SHORT = new Intl.NumberFormat("en-US", { notation: "compact", maximumFractionDigits: 1 });
const STATUS_LABELS = {
  RUNNING: "Running",
  WAITING: "Waiting",
  PAUSED: "Paused",
  FAILED: "Failed",
  COMPLETED: "Completed",
  in_flight: "In flight",
  complete: "Complete",
  failed: "Failed",
  interrupted: "Interrupted",
  PENDING: "Waiting",
  APPROVED: "Approved",
  REJECTED: "Rejected",
  EXPIRED: "Expired",
  due: "Due",
  sent: "Sent",
  dead: "Dead",
};

export const MISSING = "–";

/** 12,345 */
export function count(value) {
  return Number.isFinite(value) ? WHOLE.format(value) : MISSING;
}

/** 12.3K, from 100,000 on; below it every digit. */
export function countShort(value) {
  if (!Number.isFinite(value)) return MISSING;
  return value < 100_000 ? WHOLE.format(value) : SHORT.format(value);
}

/** $0.0042: two digits from a dollar on, four below it, six below a hundredth of a cent. */
export function money(microusd) {
  if (!Number.isFinite(microusd)) return MISSING;
  if (microusd === 0) return "$0";
  const usd = microusd / 1_000_000;
  if (usd < 0.0001) return `$${usd.toFixed(6)}`;
  return usd < 1 ? `$${usd.toFixed(4)}` : `$${usd.toFixed(2)}`;
}

/** What a session's answers cost; where some costs are not known, what it was at least. */
export function costOf({ cost_microusd: known, unknown_costs: unknown }) {
  if (!unknown) return money(known);
  return known > 0 ? `≥ ${money(known)}` : MISSING;
}

/** 840 ms, 4.2 s, 3 min 5 s */
export function duration(ms) {
  if (!Number.isFinite(ms)) return MISSING;
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
}

/** just now, 12 s ago, 5 min ago, 3 h ago, then the date. */
export function ago(thenMs, nowMs) {
  if (!Number.isFinite(thenMs)) return MISSING;
  const seconds = Math.max(0, Math.round((nowMs - thenMs) / 1000));
  if (seconds < 5) return "just now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`;
  return new Date(thenMs).toLocaleDateString();
}

/** 9 s, 4 min 12 s, 2 h 5 min, 3 d 4 h: two units are enough to judge how long there is. */
export function timeLeft(ms) {
  const seconds = Math.max(0, Math.ceil(ms / 1000));
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 1440) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor(minutes / 60) % 24} h`;
}

/** The full local date and time. */
export function moment(thenMs) {
  return Number.isFinite(thenMs) ? new Date(thenMs).toLocaleString() : MISSING;
}

/** A status or state in words; one that is not known is shown as it is. */
export function statusLabel(status) {
  return STATUS_LABELS[status] ?? String(status ?? MISSING);
}

/** 3 steps, 1 step */
export function plural(value, noun, nouns = `${noun}s`) {
  return `${count(value)} ${value === 1 ? noun : nouns}`;
}
