// What all sessions did in a span of time: sums, charts, models and tools.

import { poll, readOverview } from "../api.js";
import { make, setText } from "../dom.js";
import { MISSING, costOf, count, countShort, duration, money, plural } from "../format.js";
import { chartOf } from "../parts/chart.js";
import { firstCall } from "../parts/first.js";
import { visible } from "../visible.js";

const RANGES = [
  { range: "1h", title: "Last hour" },
  { range: "24h", title: "24 hours" },
  { range: "7d", title: "7 days" },
  { range: "30d", title: "30 days" },
  { range: "all", title: "All" },
];
const DEFAULT_RANGE = "24h";
const PACE_MS = 5000; // sums move slowly, and counting a long span costs the server something
const HOUR_MS = 3_600_000;
const DAY_MS = 24 * HOUR_MS;

const TILES = [
  { title: "Calls answered", read: (it) => count(it.calls), note: failedNote },
  { title: "Spent", read: costOf, note: (it) => `${countShort(it.input_tokens + it.output_tokens)} tokens` },
  {
    title: "Saved by replay",
    read: (it) => money(it.saved_microusd),
    note: (it) => `${plural(it.replays, "replay")}, ${longTime(it.saved_ms)} of waiting`,
  },
  {
    title: "Latency, median",
    read: (it) => duration(it.latency_p50_ms),
    note: (it) => `p95 ${duration(it.latency_p95_ms)}, p99 ${duration(it.latency_p99_ms)}`,
  },
  {
    title: "First content, median",
    read: (it) => duration(it.first_content_p50_ms),
    note: (it) => `of streams; p95 ${duration(it.first_content_p95_ms)}`,
  },
  { title: "Fallbacks", read: (it) => count(it.fallbacks), note: () => "steps tried at several targets" },
];

const CHARTS = [
  {
    title: "Calls",
    form: "bars",
    show: countShort,
    series: [
      { title: "answered", read: (slot) => slot.calls },
      { title: "replayed", read: (slot) => slot.replays },
      { title: "failed", read: (slot) => slot.failed },
    ],
    said: (it) => `${count(it.calls)} answered, ${count(it.replays)} replayed, ${count(it.failed)} failed`,
  },
  {
    title: "Money",
    form: "bars",
    show: money,
    series: [
      { title: "spent", read: (slot) => slot.cost_microusd },
      { title: "saved by replay", read: (slot) => slot.saved_microusd },
    ],
    said: (it) => `${costOf(it)} spent, ${money(it.saved_microusd)} saved`,
  },
  {
    title: "Tokens",
    form: "bars",
    show: countShort,
    series: [
      { title: "in", read: (slot) => slot.input_tokens },
      { title: "out", read: (slot) => slot.output_tokens },
    ],
    said: (it) =>
      `${countShort(it.input_tokens)} in, ${countShort(it.cached_tokens)} of it cached, ${countShort(it.output_tokens)} out`,
  },
  {
    title: "Latency",
    form: "lines",
    show: duration,
    series: [
      { title: "median", read: (slot) => slot.latency_p50_ms },
      { title: "p95", read: (slot) => slot.latency_p95_ms },
    ],
    said: (it) => `median ${duration(it.latency_p50_ms)}, p95 ${duration(it.latency_p95_ms)}`,
  },
];

export function overviewView(root, context, firstQuery) {
  context.setTitle("Overview");
  let range = rangeOf(firstQuery);
  let feed = null;
  let shown = ""; // the last answer as text: the same again changes nothing on the page
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const tabs = RANGES.map((row) => ({
    ...row,
    link: make("a", {
      className: "tab",
      href: `#/overview?range=${row.range}`,
      textContent: row.title,
    }),
  }));
  const tiles = TILES.map(({ title }) => {
    const value = make("dd", { className: "tile-value", textContent: MISSING });
    const note = make("dd", { className: "tile-note" });
    return { value, note, node: make("div", {}, make("dt", { textContent: title }), value, note) };
  });
  const charts = make("div", { className: "charts" });
  const tops = make("div", { className: "tops" });
  const first = make("div", { className: "first", hidden: true }, ...firstCall(location.origin));
  const body = make(
    "div",
    { hidden: true },
    make("dl", { className: "tiles" }, ...tiles.map(({ node }) => node)),
    charts,
    tops,
  );
  root.append(
    make("div", { className: "head" }, make("h1", { textContent: "Overview" })),
    make("nav", { className: "tabs", "aria-label": "Span of time" }, ...tabs.map(({ link }) => link)),
    notice,
    body,
    first,
  );

  function start() {
    feed?.stop();
    for (const { range: name, link } of tabs) {
      if (name === range) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    feed = poll((signal) => readOverview(range, signal), show, fail, { paceMs: PACE_MS });
  }

  function show(found) {
    context.setLive(true, "Live");
    notice.hidden = true;
    const { totals, slots } = found;
    const isBare = range === "all" && totals.calls + totals.failed === 0;
    first.hidden = !isBare;
    body.hidden = isBare;
    TILES.forEach(({ read, note }, at) => {
      setText(tiles[at].value, read(totals));
      setText(tiles[at].note, note(totals));
    });
    const text = JSON.stringify([found.range, slots, found.models, found.tools]);
    if (text === shown) return;
    shown = text;
    const isOpen = [...charts.querySelectorAll("details")].map((fold) => fold.open);
    charts.replaceChildren(...CHARTS.map((chart) => chartFrom(chart, found)));
    charts.querySelectorAll("details").forEach((fold, at) => (fold.open = isOpen[at] ?? false));
    tops.replaceChildren(modelsTable(found.models), toolsTable(found.tools));
  }

  function fail(error) {
    context.setLive(false, "Not connected");
    setText(notice, `The overview could not be read. ${error.message} Trying again.`);
    notice.hidden = false;
  }

  context.setKeys(
    RANGES.map(({ range: name, title }, at) => ({
      key: String(at + 1),
      text: title,
      run: () => (location.hash = `#/overview?range=${name}`),
    })),
  );
  start();
  return {
    moveTo(query) {
      range = rangeOf(query);
      start();
      return true;
    },
    unmount: () => feed.stop(),
  };
}

function rangeOf(query) {
  const wanted = query.get("range");
  return RANGES.some(({ range }) => range === wanted) ? wanted : DEFAULT_RANGE;
}

function failedNote({ calls, failed }) {
  if (failed === 0) return "none failed";
  const share = (100 * failed) / (calls + failed);
  return `${plural(failed, "step")} failed, ${share < 1 ? share.toFixed(1) : Math.round(share)} %`;
}

/** 40 s, 12 min, 5.2 h, 3.1 d */
function longTime(ms) {
  if (ms < 60_000) return duration(ms);
  if (ms < HOUR_MS) return `${Math.round(ms / 60_000)} min`;
  return ms < DAY_MS ? `${(ms / HOUR_MS).toFixed(1)} h` : `${(ms / DAY_MS).toFixed(1)} d`;
}

function chartFrom({ title, form, show, series, said }, { slots, slot_ms: width, totals }) {
  return chartOf({
    title,
    form,
    show,
    said: said(totals),
    slots: slots.map(({ at_ms: at }) => slotOf(at, width)),
    series: series.map(({ title: name, read }) => ({ title: name, values: slots.map(read) })),
  });
}

function slotOf(at, width) {
  const when = new Date(at);
  const day = when.toLocaleDateString(undefined, { month: "short", day: "numeric" });
  const time = when.toLocaleTimeString(undefined, { hour: "2-digit", minute: "2-digit" });
  if (width >= DAY_MS) return { label: day, title: day };
  return { label: width >= 3 * HOUR_MS ? day : time, title: `${day}, ${time}` };
}

function modelsTable(models) {
  const columns = [
    ["Calls", (row) => count(row.calls)],
    ["Tokens", (row) => countShort(row.input_tokens + row.output_tokens), "middle"],
    ["Cost", costOf],
    ["Median", (row) => duration(row.latency_p50_ms), "middle"],
    ["p95", (row) => duration(row.latency_p95_ms), "middle"],
  ];
  const most = Math.max(1, ...models.map((row) => row.calls));
  return topTable("Models", "Model", columns, models, (row) => ({
    name: row.model === null ? "All others" : visible(row.model),
    said: row.provider === null ? "" : visible(row.provider),
    share: row.calls / most,
  }));
}

function toolsTable(tools) {
  const most = Math.max(1, ...tools.map((row) => row.calls));
  return topTable("Tools", "Tool", [["Calls", (row) => count(row.calls)]], tools, (row) => ({
    name: visible(row.name) || "(no name)",
    said: "",
    share: row.calls / most,
  }));
}

function topTable(title, what, columns, rows, describe) {
  const head = make(
    "tr",
    {},
    make("th", { scope: "col", className: "col-main", textContent: what }),
    ...columns.map(([name, , className = ""]) =>
      make("th", { scope: "col", className: `num ${className}`, textContent: name }),
    ),
  );
  const body = rows.map((row) => {
    const { name, said, share } = describe(row);
    const bar = make("span", { className: "share", "aria-hidden": "true" });
    bar.style.inlineSize = `${(100 * share).toFixed(1)}%`;
    return make(
      "tr",
      {},
      make(
        "th",
        { scope: "row", className: "col-main" },
        make("span", { textContent: name }),
        said ? make("span", { className: "quiet", textContent: ` ${said}` }) : null,
        bar,
      ),
      ...columns.map(([, read, className = ""]) =>
        make("td", { className: `num ${className}`, textContent: read(row) }),
      ),
    );
  });
  const table = make(
    "table",
    { className: "table" },
    make("caption", { className: "unseen", textContent: `${title}, the most called first` }),
    make("thead", {}, head),
    make("tbody", {}, ...body),
  );
  const none = make("p", { className: "quiet", textContent: "None in this span." });
  return make(
    "section",
    {},
    make("h2", { textContent: title }),
    rows.length > 0 ? table : none,
  );
}
