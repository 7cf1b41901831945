// Talks to the management API. Every timer and request made here ends with the `stop` it returned.

import { listScanner, readMembers } from "./json.js";
import { changes } from "./live.js";
import { readName } from "./name.js";

/** The name of the event that says that a token is needed. */
export const ASKED = "login-asked";

const LOGIN = "/api/login";
const POLL_MS = 2000; // where no news come
const SAFETY_POLL_MS = 30_000; // where they do: for what changes by the clock alone
const NEWS_PACE_MS = 400; // a run that streams steps is looked at a few times a second
const HIDDEN_POLL_MS = 10_000; // of what is polled for the title of a page in the background
const TIMEOUT_MS = 10_000;
const MANIFEST_TIMEOUT_MS = 120_000; // all that is on record may be gone through for it
const WORK_TIMEOUT_MS = 60_000; // a long session is gone through, and written of
const MODEL_TIMEOUT_MS = 15 * 60_000; // a model that thinks
const UNKNOWN_MAX = 200; // shown at once
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

/** Say who is logged in: {needs_token, role}; without a role nobody. */
export function readLogin() {
  return getJson(LOGIN, AbortSignal.timeout(TIMEOUT_MS));
}

/** Change a token for a cookie. */
export function logIn(token) {
  return postJson(LOGIN, { token });
}

/**
 * List sessions, the last active first: {sessions, next}. `filter` is {status, search, tag, parent,
 * forked_from};
 * `next` is what gets the next page as `after`, null = there is none.
 */
export async function listSessions({ limit, after, ...filter }, signal) {
  const query = new URLSearchParams({ limit });
  for (const [name, value] of Object.entries({ after, ...filter })) {
    if (value) query.set(name, value);
  }
  const response = await ask(`/api/sessions?${query}`, { signal });
  return { sessions: await response.json(), next: response.headers.get("x-next-cursor") };
}

/** Read a session and at most `limit` of its steps from an index on: {session, rollbacks, steps}. */
export function readTimeline(id, { from, limit, state = "" }, signal) {
  const query = new URLSearchParams({ from, limit });
  if (state) query.set("state", state);
  return getJson(`${pathOf(id)}/timeline?${query}`, signal);
}

/** Read what a step was asked and answered, as turns. */
export function readConversation(id, index, signal) {
  return getJson(`${pathOf(id)}/steps/${index}/conversation`, signal);
}

/** Read a step as it is on record, as text: {request, answer, delivered, ...}. */
export async function readStepText(id, index, signal) {
  const response = await ask(`${pathOf(id)}/steps/${index}`, { signal });
  return response.text();
}

/** Sum up what all sessions did in a range, as in "24h". */
export function readOverview(range, signal) {
  return getJson(`/api/overview?${new URLSearchParams({ range })}`, signal);
}

/** Read every setting and where it came from. */
export function readSettings(signal) {
  return getJson("/api/settings", signal);
}

/** Say what a rollback to a step would take back and cost; changes nothing. */
export function priceRollback(id, index, signal) {
  return postJson(`${pathOf(id)}/reset`, { index, dry_run: true }, TIMEOUT_MS, signal);
}

/** Take back a step and those after it. */
export function rollBack(id, index) {
  return postJson(`${pathOf(id)}/reset`, signed({ index }));
}

/** Undo a rollback, an edit or a rerun. */
export function restoreSession(id, rollbackId) {
  return postJson(`${pathOf(id)}/restore`, signed({ rollback_id: rollbackId }));
}

/** Write another answer of a step; `edit` is what the API takes. Returns what became of it. */
export function editAnswer(id, index, edit) {
  return postJson(`${pathOf(id)}/steps/${index}/edit`, signed(edit), WORK_TIMEOUT_MS);
}

/**
 * Ask the model again for a step; `wanted` is what the API takes. `request` is another request as
 * JSON text, so that its numbers stay as they are typed; null = the recorded one.
 */
export function rerunStep(id, index, wanted, request) {
  const body = JSON.stringify(signed(wanted));
  const text = request === null ? body : `${body.slice(0, -1)},"request":${request}}`;
  return sendText("POST", `${pathOf(id)}/steps/${index}/rerun`, text, MODEL_TIMEOUT_MS);
}

/** Read one of the answers that a step has had, whole. */
export function readAnswer(id, index, answerId, signal) {
  return getJson(`${pathOf(id)}/steps/${index}/answers/${answerId}`, signal);
}

/** Make a session of this one; `wanted` is what the API takes. */
export function forkSession(id, wanted) {
  return postJson(`${pathOf(id)}/fork`, signed(wanted), WORK_TIMEOUT_MS);
}

/** Say what a deletion would delete; changes nothing. */
export function weighDeletion(id, signal) {
  return sendJson("DELETE", pathOf(id), { dry_run: true }, TIMEOUT_MS, signal);
}

/** Delete a session for good. */
export function deleteSession(id) {
  return sendJson("DELETE", pathOf(id), signed({}), WORK_TIMEOUT_MS);
}

/** Read how a session stands with its caps. */
export function readBudget(id, signal) {
  return getJson(`${pathOf(id)}/budget`, signal);
}

/** Set caps of a session; returns how it stands then. */
export function setBudget(id, caps) {
  return postJson(`${pathOf(id)}/budget`, signed(caps));
}

/** Read a session as a cassette, as a file. */
export async function readCassette(id, { timing, secrets }, signal) {
  const query = new URLSearchParams();
  if (timing) query.set("timing", "1");
  if (secrets) query.set("secrets", "keep");
  const timeout = AbortSignal.timeout(MANIFEST_TIMEOUT_MS);
  const path = `${pathOf(id)}/cassette?${query}`;
  const response = await ask(path, { signal: AbortSignal.any([signal, timeout]) });
  const named = /filename="([^"]+)"/.exec(response.headers.get("content-disposition") ?? "");
  return { name: named?.[1] ?? "cassette.jsonl", blob: await response.blob() };
}

/** List durable calls of which nobody knows whether they happened, the newest first. */
export function listUnknown(signal) {
  const query = new URLSearchParams({ state: "unknown", limit: UNKNOWN_MAX });
  return getJson(`/api/tool-calls?${query}`, signal);
}

/** Read the arguments of a durable call as JSON text, with its numbers as they were sent. */
export async function readCallArguments(call) {
  const path = `/api/tool-calls/${encodeURIComponent(call)}`;
  const response = await ask(path, { signal: AbortSignal.timeout(TIMEOUT_MS) });
  const found = readMembers(await response.text()).find(({ name }) => name === "arguments").source;
  return found.startsWith('"') ? JSON.parse(found) : found;
}

/**
 * Say what is so of a durable call: `settlement` is {outcome, reason?, by?}, `result` what a replay
 * gives, as JSON text, null = nothing.
 */
export function settleCall({ session, call }, settlement, result) {
  const body = JSON.stringify(settlement);
  const text = result === null ? body : `${body.slice(0, -1)},"result":${result}}`;
  const path = `${pathOf(session)}/tool-calls/${encodeURIComponent(call)}/settle`;
  return sendText("POST", path, text, WORK_TIMEOUT_MS);
}

/** Hold the calls of a session from now on. */
export function pauseSession(id) {
  return postJson(`${pathOf(id)}/pause`, signed({}));
}

/** Let them go on. */
export function resumeSession(id) {
  return postJson(`${pathOf(id)}/resume`, {});
}

/** Say that a session is done, until its next call. */
export function completeSession(id) {
  return sendJson("PATCH", pathOf(id), signed({ status: "COMPLETED" }));
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

/** Describe what an export would be; `path` names what and its form. */
export function readManifest(path, signal) {
  const timeout = AbortSignal.timeout(MANIFEST_TIMEOUT_MS);
  return getJson(`${path}&manifest=1`, AbortSignal.any([signal, timeout]));
}

/** Read at most `max` lines of an export: {lines, isAll}. The rest is not fetched. */
export async function readLines(path, max, signal) {
  const lines = [];
  let rest = "";
  const isAll = await readPieces(path, signal, (piece) => {
    const parts = piece.split("\n");
    parts[0] = rest + parts[0];
    rest = parts.pop();
    lines.push(...parts);
    return lines.length <= max;
  });
  return { lines: lines.slice(0, max), isAll };
}

/**
 * Read what was found in at most `max` lines of an export: {lines, isAll}. A line is {line, session,
 * index, findings: [{code, path, message, is_mended}], ...}. The rest is not fetched.
 */
export async function readReport(path, max, signal) {
  const scanner = listScanner("lines");
  const found = [];
  const isAll = await readPieces(`${path}&report=1`, signal, (piece) => {
    found.push(...scanner(piece));
    return found.length <= max;
  });
  return { lines: found.slice(0, max).map((text) => JSON.parse(text)), isAll };
}

/** Hand over an answer piece by piece while `take` returns true; returns whether that was all. */
async function readPieces(path, signal, take) {
  const enough = new AbortController();
  const timeout = AbortSignal.timeout(MANIFEST_TIMEOUT_MS);
  const ends = AbortSignal.any([signal, timeout, enough.signal]);
  const response = await ask(path, { signal: ends });
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return true;
    if (take(value)) continue;
    await reader.cancel();
    enough.abort();
    return false;
  }
}

/**
 * Call `load` now and on news, and hand what it returns to `show` and what it throws to `fail`.
 * Where no news come it is called every two seconds. `concerns(sessions)` says whether a set of
 * changed sessions is news to it; without it all are. `paceMs` is the least time between two calls.
 * With `isTold` false it is of something that news do not tell of, and asked for as if none came.
 * While the page is hidden it rests, or, with `evenHidden`, is slower. Returns {stop, refresh}:
 * after `stop` neither is called again; `refresh` loads now, also while it is loading.
 */
export function poll(load, show, fail, settings = {}) {
  const { evenHidden = false, concerns = () => true, paceMs = NEWS_PACE_MS } = settings;
  const { isTold = true } = settings;
  const ended = new AbortController();
  let timer = 0;
  let dueMs = Infinity; // when the timer rings
  let startedMs = -Infinity;
  let isLoading = false;
  let isStale = false; // asked for again while loading: what comes may be older than the wish
  let hasNews = false; // came while loading: once more, after the pace

  function wait(ms) {
    clearTimeout(timer);
    dueMs = performance.now() + ms;
    timer = setTimeout(tick, ms);
  }

  async function tick() {
    clearTimeout(timer);
    dueMs = Infinity;
    if (isLoading || (document.hidden && !evenHidden) || ended.signal.aborted) return;
    isLoading = true;
    do {
      isStale = false;
      hasNews = false;
      startedMs = performance.now();
      try {
        const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(TIMEOUT_MS)]);
        const found = await load(signal);
        if (!ended.signal.aborted && !isStale) show(found);
      } catch (error) {
        if (!ended.signal.aborted) fail(error);
      }
    } while (isStale && !ended.signal.aborted);
    isLoading = false;
    if (ended.signal.aborted) return;
    if (hasNews) {
      hear();
      return;
    }
    // Set before the page is hidden, it finds `document.hidden` and ends there.
    if (document.hidden) wait(HIDDEN_POLL_MS);
    else wait(isTold && changes.isOn() ? SAFETY_POLL_MS : POLL_MS);
  }

  /** Something may be new: load soon, but not more often than the pace allows. */
  function hear() {
    if (isLoading) {
      hasNews = true;
      return;
    }
    const inMs = Math.max(0, startedMs + paceMs - performance.now());
    if (performance.now() + inMs < dueMs) wait(inMs);
  }

  const unsubscribe = changes.subscribe(
    (sessions) => {
      if (sessions === null || concerns(sessions)) hear();
    },
    () => hear(), // what was written between the last look and the first news
  );
  document.addEventListener("visibilitychange", tick, { signal: ended.signal });
  tick();
  return {
    stop() {
      clearTimeout(timer);
      unsubscribe();
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

function pathOf(session) {
  return `/api/sessions/${encodeURIComponent(session)}`;
}

function postJson(path, body, timeoutMs = TIMEOUT_MS, signal = undefined) {
  return sendJson("POST", path, body, timeoutMs, signal);
}

/** A change with the name of who makes it, if one was given. */
function signed(body) {
  const by = readName();
  return by ? { ...body, by } : body;
}

function sendJson(method, path, body, timeoutMs = TIMEOUT_MS, signal = undefined) {
  return sendText(method, path, JSON.stringify(body), timeoutMs, signal);
}

async function sendText(method, path, body, timeoutMs, signal = undefined) {
  const timeout = AbortSignal.timeout(timeoutMs);
  const response = await ask(path, {
    method,
    signal: signal ? AbortSignal.any([signal, timeout]) : timeout,
    headers: { "content-type": "application/json" },
    body,
  });
  return response.json();
}

async function ask(path, options) {
  const headers = { accept: "application/json", ...options.headers };
  const response = await fetch(path, { ...options, headers });
  if (response.ok) return response;
  if (response.status === 401 && !path.startsWith(LOGIN)) dispatchEvent(new Event(ASKED));
  throw new ApiError(response.status, await response.json().catch(() => ({})));
}
