// The list of sessions with its filters, or, while there is none, how to send the first call.

import { listSessions, poll } from "../api.js";
import { keyedList, make, setText } from "../dom.js";
import { ago, costOf, count, countShort, moment, money, plural, statusLabel } from "../format.js";
import { about } from "../parts/about.js";
import { firstCall } from "../parts/first.js";
import { visible } from "../visible.js";

const COLUMNS = [
  { title: "Session", className: "col-main" },
  { title: "Status" },
  { title: "Steps", className: "num middle" },
  { title: "Tokens", className: "num wide" },
  { title: "Cost", className: "num middle" },
  { title: "Replays", className: "num wide" },
  { title: "Saved", className: "num middle" },
  { title: "Last activity", className: "num middle" },
];
const STATUSES = ["RUNNING", "WAITING", "PAUSED", "FAILED", "COMPLETED"];
const PAGE_ROWS = 50;
const PACE_MS = 1000; // a busy server changes something all the time
const TYPING_MS = 250;

export function sessionsView(root, context, firstQuery) {
  context.setTitle("Sessions");
  let filter = filterOf(firstQuery);
  let feed = null;
  let typing = 0;
  const pages = []; // where the pages before this one began, as they were gone through
  const summary = make("p", { className: "lead", role: "status" });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const search = make("input", { id: "search", type: "search", autocomplete: "off" });
  const status = make(
    "select",
    { id: "status" },
    make("option", { value: "", textContent: "Any status" }),
    ...STATUSES.map((value) => make("option", { value, textContent: statusLabel(value) })),
  );
  const chips = make("div", { className: "chips" });
  const body = make("tbody");
  const head = COLUMNS.map(({ title, className }) =>
    make("th", { scope: "col", className, textContent: title }),
  );
  const table = make(
    "table",
    { className: "table", hidden: true },
    make("caption", { className: "unseen", textContent: "Sessions, the last active first" }),
    make("thead", {}, make("tr", {}, ...head)),
    body,
  );
  const none = make("p", { className: "quiet none", hidden: true });
  const before = make("a", { className: "button", textContent: "← Newer" });
  const after = make("a", { className: "button", textContent: "Older →" });
  const pager = make("nav", { className: "pager", "aria-label": "Pages" }, before, after);
  const first = make("div", { className: "first", hidden: true }, ...firstCall(location.origin));
  const exporting = make("a", {
    className: "button export-link",
    textContent: "Export",
    hidden: true,
  });
  const filters = make(
    "div",
    { className: "filters", hidden: true },
    make("label", { htmlFor: search.id, textContent: "Find" }),
    search,
    make("label", { htmlFor: status.id, className: "unseen", textContent: "Status" }),
    status,
    chips,
  );
  root.append(
    make(
      "div",
      { className: "head" },
      make("h1", { textContent: "Sessions" }),
      summary,
      exporting,
    ),
    filters,
    notice,
    table,
    none,
    pager,
    first,
  );
  const update = keyedList(body, (row) => row.session, createRow);

  function start() {
    feed?.stop();
    search.value = document.activeElement === search ? search.value : filter.search;
    status.value = filter.status;
    chips.replaceChildren(...chipsOf(filter));
    exporting.href = hrefOf({ ...filter, after: "" }, "#/export");
    feed = poll((signal) => listSessions({ limit: PAGE_ROWS, ...filter }, signal), show, fail, {
      paceMs: PACE_MS,
    });
  }

  function show({ sessions, next }) {
    context.setLive(true, "Live");
    notice.hidden = true;
    const isFiltered = Object.values(filter).some(Boolean);
    const isBare = sessions.length === 0 && !isFiltered;
    first.hidden = !isBare;
    filters.hidden = isBare;
    table.hidden = sessions.length === 0;
    none.hidden = isBare || sessions.length > 0;
    setText(none, "No session is like that.");
    exporting.hidden = isBare;
    pager.hidden = !next && !filter.after;
    before.hidden = !filter.after;
    before.href = hrefOf({ ...filter, after: pages.at(-1) ?? "" });
    after.hidden = !next;
    after.href = hrefOf({ ...filter, after: next ?? "" });
    setText(summary, summarize(sessions, next !== null || filter.after !== ""));
    update(sessions);
  }

  function fail(error) {
    context.setLive(false, "Not connected");
    setText(notice, `The list could not be read. ${error.message} Trying again.`);
    notice.hidden = false;
  }

  function moveTo(query) {
    const wanted = filterOf(query);
    if (wanted.after === "") pages.length = 0;
    else if (wanted.after === pages.at(-1)) pages.pop();
    else pages.push(filter.after);
    filter = wanted;
    start();
    return true;
  }

  function change(changes) {
    clearTimeout(typing);
    filter = { ...filter, ...changes, after: "" };
    pages.length = 0;
    history.replaceState(null, "", hrefOf(filter));
    start();
  }

  search.addEventListener("input", () => {
    clearTimeout(typing);
    exporting.href = hrefOf({ ...filter, search: search.value.trim(), after: "" }, "#/export");
    typing = setTimeout(() => change({ search: search.value.trim() }), TYPING_MS);
  });
  status.addEventListener("change", () => change({ status: status.value }));

  function step(by) {
    const links = [...body.querySelectorAll(".row-link")];
    const at = links.indexOf(document.activeElement);
    links[Math.max(0, Math.min(at + by, links.length - 1))]?.focus();
  }
  const press = (link) => () => link.hidden || pager.hidden || link.click();
  context.setKeys([
    { key: "j", text: "Next session", repeats: true, run: () => step(1) },
    { key: "k", text: "Previous session", repeats: true, run: () => step(-1) },
    { key: "Enter", text: "Open it" },
    { key: "/", text: "Find a session by its id or name", run: () => search.focus() },
    { key: "]", text: "Older sessions", run: press(after) },
    { key: "[", text: "Newer sessions", run: press(before) },
  ]);
  start();

  return {
    moveTo,
    unmount() {
      clearTimeout(typing);
      feed.stop();
    },
  };
}

function filterOf(query) {
  const read = (name) => query.get(name) ?? "";
  const status = STATUSES.includes(read("status")) ? read("status") : "";
  return {
    search: read("search"),
    status,
    tag: read("tag"),
    parent: read("parent"),
    forked_from: read("forked_from"),
    after: read("after"),
  };
}

function hrefOf(filter, path = "#/sessions") {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(filter)) if (value) query.set(name, value);
  return query.size > 0 ? `${path}?${query}` : path;
}

/** What else is filtered by, each with a way out. */
function chipsOf(filter) {
  const found = [];
  const add = (text, without) =>
    found.push(
      make("a", {
        className: "chip",
        href: hrefOf({ ...filter, ...without, after: "" }),
        textContent: `${text} ×`,
        "aria-label": `${text}: do not filter by it`,
      }),
    );
  if (filter.tag) add(visible(filter.tag), { tag: "" });
  if (filter.parent) add(`begun by ${visible(filter.parent)}`, { parent: "" });
  if (filter.forked_from) add(`forked from ${visible(filter.forked_from)}`, { forked_from: "" });
  return found;
}

function summarize(sessions, isPart) {
  const sum = (field) => sessions.reduce((total, row) => total + (row[field] ?? 0), 0);
  if (sessions.length === 0) return "";
  const cost = costOf({ cost_microusd: sum("cost_microusd"), unknown_costs: sum("unknown_costs") });
  const parts = [
    `${plural(sessions.length, "session")}${isPart ? " on this page" : ""}`,
    plural(sum("steps"), "step"),
    `${cost} spent`,
    `${money(sum("saved_microusd"))} saved by ${plural(sum("replays"), "replay")}`,
  ];
  return parts.join(" · ");
}

function createRow({ session }) {
  const link = make("a", {
    className: "row-link",
    title: visible(session),
    href: `#/sessions/${encodeURIComponent(session)}`,
    textContent: visible(session),
  });
  const names = about();
  const brief = make("span", { className: "brief" });
  const badge = make("span", { className: "badge" });
  const cells = COLUMNS.slice(2).map(({ className }) => make("td", { className }));
  const node = make(
    "tr",
    { className: "row" },
    make("th", { scope: "row", className: "col-main" }, link, names.node, brief),
    make("td", {}, badge),
    ...cells,
  );
  return {
    node,
    update(row) {
      names.update(row);
      badge.dataset.status = row.status;
      setText(badge, statusLabel(row.status));
      const when = ago(row.updated_ms, Date.now());
      const texts = [
        count(row.steps),
        countShort((row.input_tokens ?? 0) + (row.output_tokens ?? 0)),
        costOf(row),
        count(row.replays),
        money(row.saved_microusd),
        when,
      ];
      texts.forEach((text, at) => setText(cells[at], text));
      cells.at(-1).title = moment(row.updated_ms);
      setText(brief, [plural(row.steps, "step"), costOf(row), when].join(" · "));
    },
  };
}
