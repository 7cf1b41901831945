// Talks to the management API. Every timer and request made here ends with the `stop` it returned.

import { readMembers } from "./json.js";

const POLL_MS = 2000;
const HIDDEN_POLL_MS = 10_000; // of what is polled for the title of a page in the background
const TIMEOUT_MS = 10_000;
const SAMPLE_TIMEOUT_MS = 45_000; // the proxy gives a service 40 s

/** What the API said no with: its code, message and hint, and the rest of its body. */
export class ApiError extends Error {
  constructor(status, body = {}) {
    super(body.error?.message ?? `The proxy answered ${status}.`);
    this.status = status;
    this.code = body.error?.code ?? "unknown";
    this.hint = body.error?.hint ?? "";
    this.body = body;
  }
}

/** List the last active sessions, at most a thousand, the last active first. */
export function listSessions(signal) {
  return getJson("/api/sessions?limit=1000", signal);
}

/** Read one session and its first steps, at most a thousand: {session, steps, next_cursor}. */
export function readSession(id, signal) {
  return getJson(`/api/sessions/${encodeURIComponent(id)}?limit=1000`, signal);
}

/** List what waits for a decision, the first asked first: {approvals, now_ms of the server}. */
export async function listPending(signal) {
  const response = await ask("/api/approvals/pending", { signal });
  const now = Date.parse(response.headers.get("date"));
  return { approvals: await response.json(), now_ms: Number.isFinite(now) ? now : Date.now() };
}

/** List at most `limit` approvals, the last asked first: {approvals, isAll}. */
export async function listApprovals({ status, session, limit }, signal) {
  const query = new URLSearchParams({ limit });
  if (status) query.set("status", status);
  if (session) query.set("session", session);
  const response = await ask(`/api/approvals?${query}`, { signal });
  return { approvals: await response.json(), isAll: !response.headers.has("x-next-cursor") };
}

/**
 * Read one approval whole, with what its step was asked and the schema of its tool. `request_text`
 * is the request as JSON with numbers as sent, "" where a request is not what is asked about.
 */
export async function readApproval(id, signal) {
  const response = await ask(`/api/approvals/${encodeURIComponent(id)}`, { signal });
  const text = await response.text();
  const request = readMembers(text).find((member) => member.name === "request");
  const request_text = request && request.source !== "null" ? request.source : "";
  return { ...JSON.parse(text), request_text };
}

/**
 * Decide; returns the approval. `decision` is what the API takes: {action, arguments?, reason?,
 * then?, by?}. An `ApiError` 409 has the decision that stands in `body.approval`.
 */
export function decideApproval(id, decision) {
  return postJson(`/api/approvals/${encodeURIComponent(id)}/action`, decision);
}

/** List the configured webhooks and how many deliveries of each are due, sent and dead. */
export function listWebhooks(signal) {
  return getJson("/api/webhooks", signal);
}

/** List at most `limit` deliveries, the newest first: {deliveries, isAll}. */
export async function listDeliveries({ state, limit }, signal) {
  const query = new URLSearchParams({ limit });
  if (state) query.set("state", state);
  const response = await ask(`/api/webhooks/deliveries?${query}`, { signal });
  return { deliveries: await response.json(), isAll: !response.headers.has("x-next-cursor") };
}

/** Make a delivery due at once; returns it. */
export function redeliver(id) {
  return postJson(`/api/webhooks/deliveries/${encodeURIComponent(id)}/redeliver`, {});
}

/** Send a sample to a webhook now; returns what its service said: {is_taken, status, why, ...}. */
export function sendSample(name) {
  return postJson(`/api/webhooks/${encodeURIComponent(name)}/test`, {}, SAMPLE_TIMEOUT_MS);
}

/**
 * Call `load` now and every two seconds; hand what it returns to `show` and what it throws to
 * `fail`. While the page is hidden it rests, or, with `evenHidden`, is slower. Returns {stop,
 * refresh}: after `stop` neither is called again; `refresh` loads now, also while it is loading.
 */
export function poll(load, show, fail, { evenHidden = false } = {}) {
  const ended = new AbortController();
  let timer = 0;
  let isLoading = false;
  let isStale = false; // asked for again while loading: what comes may be older than the wish

  async function tick() {
    clearTimeout(timer);
    if (isLoading || (document.hidden && !evenHidden) || ended.signal.aborted) return;
    isLoading = true;
    do {
      isStale = false;
      try {
        const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(TIMEOUT_MS)]);
        const found = await load(signal);
        if (!ended.signal.aborted && !isStale) show(found);
      } catch (error) {
        if (!ended.signal.aborted) fail(error);
      }
    } while (isStale && !ended.signal.aborted);
    isLoading = false;
    // Set before the page is hidden, it finds `document.hidden` and ends there.
    const pause = document.hidden ? HIDDEN_POLL_MS : POLL_MS;
    if (!ended.signal.aborted) timer = setTimeout(tick, pause);
  }

  document.addEventListener("visibilitychange", tick, { signal: ended.signal });
  tick();
  return {
    stop() {
      clearTimeout(timer);
      ended.abort();
    },
    refresh() {
      isStale = isLoading;
      tick();
    },
  };
}

async function getJson(path, signal) {
  const response = await ask(path, { signal });
  return response.json();
}

async function postJson(path, body, timeoutMs = TIMEOUT_MS) {
  const response = await ask(path, {
    method: "POST",
    signal: AbortSignal.timeout(timeoutMs),
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
  });
  return response.json();
}

async function ask(path, options) {
  const headers = { accept: "application/json", ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  throw new ApiError(response.status, await response.json().catch(() => ({})));
}
