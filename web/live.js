// What changes on the server, as it changes: one stream for the page, and who listens to it.
//
// News say which sessions something was written of; what, each listener reads from the API. The
// stream is closed while the page is hidden, since a browser has few connections to one server, and
// opened again where it was left: nothing is missed.

const HIDDEN_MS = 5000; // a look at another tab is shorter
const RETRY_MS = 15_000; // after a refusal; a broken connection the browser mends by itself

/**
 * Follow the stream as long as the page lives. `subscribe(listener)` calls `listener(sessions)` on
 * news until the function it returns is called: `sessions` is a set, null = any may have changed.
 * `isOn()` says whether news come; where not, who needs to know must ask.
 */
export function followChanges() {
  const listeners = new Set();
  const turned = new Set(); // who is told that the stream went on or off
  let source = null;
  let cursor = "";
  let isOn = false;
  let timer = 0;

  function turn(on) {
    if (on === isOn) return;
    isOn = on;
    for (const listener of turned) listener(on);
  }

  function open() {
    clearTimeout(timer);
    if (source || document.hidden) return;
    source = new EventSource(`/api/events?${new URLSearchParams(cursor ? { after: cursor } : {})}`);
    source.addEventListener("open", () => turn(true));
    source.addEventListener("changed", (event) => {
      cursor = event.lastEventId;
      const { sessions } = JSON.parse(event.data);
      if (sessions?.length === 0) return;
      const news = sessions === null ? null : new Set(sessions);
      for (const listener of listeners) listener(news);
    });
    source.addEventListener("error", () => {
      turn(false);
      if (source?.readyState !== EventSource.CLOSED) return;
      close();
      timer = setTimeout(open, RETRY_MS);
    });
  }

  function close() {
    source?.close();
    source = null;
    turn(false);
  }

  document.addEventListener("visibilitychange", () => {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(close, HIDDEN_MS);
    else open();
  });
  open();

  return {
    isOn: () => isOn,
    subscribe(listener, onTurn = () => {}) {
      listeners.add(listener);
      turned.add(onTurn);
      return () => {
        listeners.delete(listener);
        turned.delete(onTurn);
      };
    },
  };
}

/** The page's one stream. */
export const changes = followChanges();
