// The composition root: which view belongs to which address, and what all views share.

import { make, setText } from "./dom.js";
import { sessionView } from "./views/session.js";
import { sessionsView } from "./views/sessions.js";

// A view is mount(root, context, ...parts of its address) and returns unmount. The first pattern
// that matches wins; `nav` names those that stand in the bar.
const VIEWS = [
  { pattern: /^#\/sessions$/, href: "#/sessions", nav: "Sessions", mount: sessionsView },
  { pattern: /^#\/sessions\/([^/]+)$/, href: "#/sessions", nav: null, mount: sessionView },
];
const HOME = "#/sessions";

const root = document.getElementById("view");
const live = document.getElementById("live");
const nav = document.getElementById("nav");
const links = VIEWS.filter((view) => view.nav).map((view) =>
  make("a", { href: view.href, textContent: view.nav }),
);
nav.append(...links);

let unmount = () => {};

const context = {
  /** Say whether what is shown is fresh: "live", or why not. */
  setLive(isLive, text) {
    live.classList.toggle("is-live", isLive);
    setText(live, text);
  },
  setTitle(text) {
    document.title = text ? `${text} · AgentState` : "AgentState";
  },
};

function show() {
  if (location.hash === "#view") return; // the skip link, not an address
  const found = VIEWS.find((view) => view.pattern.test(location.hash));
  if (!found) {
    location.replace(HOME);
    return;
  }
  const isFirst = root.dataset.view === undefined;
  unmount();
  root.replaceChildren();
  root.dataset.view = found.href;
  for (const link of links) {
    if (link.getAttribute("href") === found.href) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  const parts = location.hash.match(found.pattern).slice(1).map(decodePart);
  unmount = found.mount(root, context, ...parts);
  // A screen reader goes on reading where the new view begins; on the first load it is there.
  if (!isFirst) root.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function decodePart(part) {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand; the API will say that there is no such session
  }
}

addEventListener("hashchange", show);
show();
