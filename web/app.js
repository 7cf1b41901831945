// The composition root: which view belongs to which address, and what all views share.

import { make, setText } from "./dom.js";
import { showCount } from "./icon.js";
import { listenForKeys } from "./keys.js";
import { themeButton } from "./parts/theme.js";
import { countWaiting, watchPending } from "./pending.js";
import { whenAdmitted } from "./parts/login.js";
import { approvalsView } from "./views/approvals.js";
import { exportView } from "./views/export.js";
import { overviewView } from "./views/overview.js";
import { sessionView } from "./views/session.js";
import { sessionsView } from "./views/sessions.js";
import { settingsView } from "./views/settings.js";
import { webhooksView } from "./views/webhooks.js";

// A view is mount(root, context, ...parts of its address, query) and returns {unmount, moveTo}:
// moveTo takes the parts and query of another address of the same view; one without it, or that
// returns false, is mounted anew. The first pattern that matches wins; `nav` names those that stand in the bar.
const VIEWS = [
  { pattern: /^#\/overview$/, href: "#/overview", nav: "Overview", key: "O", mount: overviewView },
  { pattern: /^#\/sessions$/, href: "#/sessions", nav: "Sessions", key: "S", mount: sessionsView },
  { pattern: /^#\/sessions\/([^/]+)$/, href: "#/sessions", nav: null, mount: sessionView },
  {
    pattern: /^#\/approvals(?:\/([^/]+))?$/,
    href: "#/approvals",
    nav: "Approvals",
    key: "A",
    mount: approvalsView,
  },
  { pattern: /^#\/webhooks$/, href: "#/webhooks", nav: "Webhooks", key: "W", mount: webhooksView },
  { pattern: /^#\/export$/, href: "#/export", nav: "Export", key: "E", mount: exportView },
  { pattern: /^#\/settings$/, href: "#/settings", nav: "Settings", key: "C", mount: settingsView },
];
const HOME = "#/sessions";

const root = document.getElementById("view");
const live = document.getElementById("live");
const nav = document.getElementById("nav");
const links = VIEWS.filter((view) => view.nav).map((view) =>
  make("a", { href: view.href, textContent: view.nav }),
);
nav.append(...links);

const theme = themeButton();
const keys = listenForKeys([
  ...VIEWS.filter((view) => view.nav).map(({ key, nav: name, href }) => ({
    key,
    text: name,
    run: () => (location.hash = href),
  })),
  { key: "t", text: "Colours: light, dark, as the system", run: theme.turn },
]);
const sheetButton = document.getElementById("keys");
sheetButton.before(theme.node);
sheetButton.addEventListener("click", keys.openSheet);

const pending = watchPending();
const counted = {
  number: make("span", { className: "count", "aria-hidden": "true", hidden: true }),
  words: make("span", { className: "unseen" }),
};
links.find((link) => link.hash === "#/approvals").append(counted.number, counted.words);

let title = "";
let waiting = 0;
let shown = { view: null, unmount() {} };

const context = {
  /** Say whether what is shown is fresh: "live", or why not. */
  setLive(isLive, text) {
    live.classList.toggle("is-live", isLive);
    setText(live, text);
  },
  setTitle(text) {
    title = text;
    const name = text ? `${text} · AgentState` : "AgentState";
    document.title = waiting > 0 ? `(${waiting}) ${name}` : name;
  },
  /** Set the keys of the view, as `listenForKeys` wants them; they end with it. */
  setKeys: keys.set,
  pending,
};

pending.subscribe((approvals) => {
  const count = countWaiting(approvals) + pending.unknown().length;
  if (count === waiting) return;
  waiting = count;
  counted.number.hidden = count === 0;
  setText(counted.number, String(count));
  setText(counted.words, count === 0 ? "" : `, ${count} waiting`);
  showCount(count);
  context.setTitle(title);
});

function show() {
  if (location.hash === "#view") return; // the skip link, not an address
  const [address, query = ""] = location.hash.split("?", 2);
  const found = VIEWS.find((view) => view.pattern.test(address));
  if (!found) {
    location.replace(HOME);
    return;
  }
  const parts = address.match(found.pattern).slice(1).map(decodePart);
  parts.push(new URLSearchParams(query));
  if (found === shown.view && shown.moveTo && shown.moveTo(...parts) !== false) return;
  const isFirst = shown.view === null;
  shown.unmount();
  root.replaceChildren();
  keys.set([]);
  root.dataset.view = found.href;
  for (const link of links) {
    if (link.getAttribute("href") === found.href) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  shown = { view: found, ...found.mount(root, context, ...parts) };
  // A screen reader goes on reading where the new view begins; on the first load it is there.
  if (!isFirst) root.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function decodePart(part = "") {
  try {
    return decodeURIComponent(part);
  } catch {
    return part; // typed by hand; the API will say that there is no such session
  }
}

whenAdmitted(() => {
  addEventListener("hashchange", show);
  show();
});
