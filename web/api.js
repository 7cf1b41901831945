// Talks to the management API. Every timer and request made here ends with the `stop` it returned.

const POLL_MS = 2000;
const TIMEOUT_MS = 10_000;

/** What the API said no with: its code, message and hint. */
export class ApiError extends Error {
  constructor(status, error = {}) {
    super(error.message ?? `The proxy answered ${status}.`);
    this.status = status;
    this.code = error.code ?? "unknown";
    this.hint = error.hint ?? "";
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

/**
 * Call `load` now and every two seconds while the page is visible; hand what it returns to `show`
 * and what it throws to `fail`. Returns `stop`, after which neither is called again.
 */
export function poll(load, show, fail) {
  const ended = new AbortController();
  let timer = 0;
  let isLoading = false;

  async function tick() {
    clearTimeout(timer);
    if (isLoading || document.hidden || ended.signal.aborted) return;
    isLoading = true;
    try {
      const signal = AbortSignal.any([ended.signal, AbortSignal.timeout(TIMEOUT_MS)]);
      const found = await load(signal);
      if (!ended.signal.aborted) show(found);
    } catch (error) {
      if (!ended.signal.aborted) fail(error);
    } finally {
      isLoading = false;
    }
    // Set before the page is hidden, it finds `document.hidden` and ends there.
    if (!ended.signal.aborted) timer = setTimeout(tick, POLL_MS);
  }

  document.addEventListener("visibilitychange", tick, { signal: ended.signal });
  tick();
  return () => {
    clearTimeout(timer);
    ended.abort();
  };
}

async function getJson(path, signal) {
  const response = await fetch(path, { signal, headers: { accept: "application/json" } });
  const body = await response.json().catch(() => ({}));
  if (!response.ok) throw new ApiError(response.status, body.error);
  return body;
}
