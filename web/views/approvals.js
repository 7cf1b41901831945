// What waits for a person, and what was decided: a list to work down, and the one that is open.

import { listApprovals, poll } from "../api.js";
import { codeBlock, keyedList, make, setText } from "../dom.js";
import { ago, count, statusLabel, timeLeft } from "../format.js";
import { keepName, readName } from "../name.js";
import { approvalDetail } from "../parts/approval.js";
import { unknownCalls } from "../parts/unknown.js";
import { countWaiting } from "../pending.js";
import { visible } from "../visible.js";

const FILTERS = [
  { status: "", title: "Waiting" },
  { status: "APPROVED", title: "Approved" },
  { status: "REJECTED", title: "Rejected" },
  { status: "ALL", title: "All" },
];
const PAGE_ROWS = 50;
const PAGE_ROWS_MAX = 1000; // of the API
const TICK_MS = 1000;
const URGENT_MS = 60_000;

export function approvalsView(root, context, firstId, firstQuery) {
  context.setTitle("Approvals");
  const { pending } = context;
  const started = new Map(); // details with something typed, by id, while another is shown
  let address = { id: firstId, status: "", session: "" };
  let rows = null; // what the list shows; null = not read yet
  let waitingRows = null; // of all sessions, whatever the list shows
  let limit = PAGE_ROWS;
  let detail = null;
  let lastAt = 0; // where in the list the open one stood: the next one moves up into its place
  let decidedFeed = null;
  let isMounted = true;

  const name = nameField();
  const said = make("p", { className: "lead", role: "status" });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const filters = FILTERS.map((filter) => ({
    ...filter,
    link: make("a", { className: "tab", textContent: filter.title }),
  }));
  const onlySession = make("p", { className: "only", hidden: true });
  const list = make("ol", { className: "list" });
  const more = make("button", {
    type: "button",
    className: "button more-rows",
    textContent: "Show more",
    hidden: true,
  });
  const none = make("p", { className: "quiet none", hidden: true });
  const first = make("div", { className: "first", hidden: true }, ...howItIsSet(location.origin));
  const back = make("a", { className: "back narrow-only", textContent: "← All approvals" });
  const place = make("div", { className: "place", tabIndex: -1 });
  const pane = make(
    "section",
    { className: "pane", "aria-label": "List" },
    onlySession,
    list,
    none,
    more,
  );
  const desk = make("div", { className: "desk" }, pane, make("div", {}, back, place));
  const tabs = make(
    "nav",
    { className: "tabs", "aria-label": "Which approvals" },
    ...filters.map(({ link }) => link),
  );
  const head = make("div", { className: "head" });
  head.append(make("h1", { textContent: "Approvals" }), said, name.node);
  const unknown = unknownCalls({ settled: ({ call }) => pending.dropUnknown(call) });
  const whole = make(
    "div",
    { className: "approvals" },
    head,
    notice,
    unknown.link,
    tabs,
    desk,
    ...unknown.nodes, // below: what can be decided by one key has the first place
    first,
  );
  root.append(whole);
  const update = keyedList(list, (row) => row.approval_id, createRow);
  const tickers = new Map(); // by id

  const offered = {
    pending,
    readName: name.read,
    linkTo: (id) => hrefOf({ ...address, id }),
    listOthers: (approval) =>
      (waitingRows ?? []).filter(
        (row) => isOfSameAnswer(row, approval) && row.approval_id !== approval.approval_id,
      ),
    decided,
  };

  // --- the list ---------------------------------------------------------------------------------

  function createRow({ approval_id: id }) {
    const tool = make("span", { className: "row-tool" });
    const when = make("span", { className: "row-when" });
    const where = make("span", { className: "row-where" });
    const link = make("a", { className: "item" }, tool, when, where);
    const node = make("li", {}, link);
    return {
      node,
      update(row) {
        link.href = hrefOf({ ...address, id });
        if (detail?.id === id) link.setAttribute("aria-current", "true");
        else link.removeAttribute("aria-current");
        setText(tool, visible(row.tool) || "(no name)");
        setText(where, `${visible(row.session)} · ${placeOf(row)}`);
        const tick = (nowMs) => {
          const status = statusAt(row, nowMs);
          link.dataset.status = status;
          setText(when, timeOf(row, status, nowMs));
          const leftMs = row.deadline_ms === null ? Infinity : row.deadline_ms - nowMs;
          when.classList.toggle("is-urgent", status === "PENDING" && leftMs < URGENT_MS);
        };
        tick(pending.now());
        tickers.set(id, tick);
      },
    };
  }

  function show(found) {
    rows = found;
    const ids = new Set(rows.map((row) => row.approval_id));
    for (const id of tickers.keys()) if (!ids.has(id)) tickers.delete(id);
    choose();
    update(rows);
    const isWaiting = address.status === "";
    const isBare = rows.length === 0 && detail === null;
    first.hidden = !isBare || !isWaiting || address.session !== "";
    desk.hidden = !first.hidden;
    none.hidden = rows.length > 0;
    setText(none, isWaiting ? "Nothing waits for a decision." : "None.");
    if (isWaiting) sayCount();
  }

  function sayCount() {
    const waiting = countWaiting(rows);
    setText(filters[0].link, waiting > 0 ? `Waiting ${count(waiting)}` : "Waiting");
  }

  // --- the open one -----------------------------------------------------------------------------

  /** Open what the address names, else keep what is open, else the first of the list. */
  function choose() {
    const id = address.id || detail?.id || rows?.[0]?.approval_id;
    if (id && id !== detail?.id) open(id);
    const at = rows?.findIndex((row) => row.approval_id === detail?.id) ?? -1;
    if (at >= 0) lastAt = at;
  }

  function open(id) {
    const hadFocus = place.contains(document.activeElement);
    close();
    detail = started.get(id) ?? approvalDetail(id, offered);
    started.delete(id);
    place.replaceChildren(detail.node);
    detail.appear();
    detail.tick(pending.now());
    if (hadFocus) place.focus({ preventScroll: true });
  }

  /** Put away the open one; what was typed in it is kept. */
  function close() {
    if (detail === null) return;
    if (detail.isStarted()) started.set(detail.id, detail);
    else detail.destroy();
    detail = null;
    place.replaceChildren();
  }

  function decided(approval) {
    if (!isMounted) {
      pending.drop(approval.approval_id); // whoever has gone elsewhere is left there
      return;
    }
    const what = `${statusLabel(approval.status)} ${visible(approval.tool)}`;
    setText(said, `${what}, ${placeOf(approval)} of ${visible(approval.session)}.`);
    if (detail?.id === approval.approval_id && address.status === "") {
      const next = nextAfter(approval);
      rows = rows.filter((row) => row.approval_id !== approval.approval_id);
      close();
      if (address.id) replaceAddress(next?.approval_id ?? "");
      else if (next) open(next.approval_id);
    }
    pending.drop(approval.approval_id);
    decidedFeed?.refresh();
  }

  /** The one that moves up into the place of the decided one; a stop ends its whole answer. */
  function nextAfter(approval) {
    const isGone = (row) =>
      row.approval_id === approval.approval_id ||
      (approval.then === "stop" && isOfSameAnswer(row, approval));
    const left = rows.filter((row) => !isGone(row));
    return left.at(Math.min(lastAt, left.length - 1));
  }

  /** Open the next or the one before; the address follows, without a new entry in the history. */
  function step(by) {
    if (!rows?.length) return;
    const at = rows.findIndex((row) => row.approval_id === detail?.id);
    const isHere = address.id !== "" || isWide();
    const wanted = at < 0 || !isHere ? lastAt : at + by;
    replaceAddress(rows[Math.max(0, Math.min(wanted, rows.length - 1))].approval_id);
  }

  function replaceAddress(id) {
    const href = hrefOf({ ...address, id });
    history.replaceState(null, "", href);
    moveTo(id, new URLSearchParams(href.split("?")[1]));
  }

  // --- news -------------------------------------------------------------------------------------

  function takePending(approvals, error) {
    if (error) fail(error);
    else if (address.status === "") succeed();
    if (approvals === null) return;
    showUnknown();
    waitingRows = approvals;
    for (const id of started.keys()) {
      if (!approvals.some((row) => row.approval_id === id)) {
        started.get(id).destroy();
        started.delete(id);
      }
    }
    const { session } = address;
    if (address.status === "") {
      show(session ? approvals.filter((row) => row.session === session) : approvals);
    }
    detail?.take(approvals.find((row) => row.approval_id === detail.id));
  }

  function showUnknown() {
    const isOurs = ({ session }) => address.session === "" || session === address.session;
    unknown.update(address.status === "" ? pending.unknown().filter(isOurs) : []);
  }

  function startDecided() {
    decidedFeed?.stop();
    decidedFeed = null;
    more.hidden = true;
    if (address.status === "") return;
    const status = address.status === "ALL" ? "" : address.status;
    decidedFeed = poll(
      (signal) => listApprovals({ status, session: address.session, limit }, signal),
      ({ approvals, isAll }) => {
        succeed();
        more.hidden = isAll || limit >= PAGE_ROWS_MAX;
        show(approvals);
      },
      fail,
    );
  }

  function succeed() {
    context.setLive(true, "Live");
    notice.hidden = true;
  }

  function fail(error) {
    context.setLive(false, "Not connected");
    setText(notice, `The list could not be read. ${error.message} Trying again.`);
    notice.hidden = false;
  }

  function moveTo(id, query) {
    const before = address;
    const status = query.get("status") ?? "";
    address = {
      id,
      status: FILTERS.some((filter) => filter.status === status) ? status : "",
      session: query.get("session") ?? "",
    };
    whole.classList.toggle("is-chosen", id !== "");
    back.href = hrefOf({ ...address, id: "" });
    showFilters();
    showUnknown();
    const isSameList = before.status === address.status && before.session === address.session;
    if (isSameList && rows !== null) {
      show(rows);
      if (id && !isWide()) scrollTo(0, 0);
      return;
    }
    limit = PAGE_ROWS;
    rows = null;
    if (!id) close();
    update([]);
    none.hidden = true;
    choose();
    startDecided();
    if (address.status === "" && waitingRows !== null) takePending(waitingRows, null);
  }

  function showFilters() {
    for (const { status, link } of filters) {
      link.href = hrefOf({ ...address, id: "", status });
      if (status === address.status) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    onlySession.hidden = address.session === "";
    onlySession.replaceChildren(
      make("span", { textContent: `Only of ${visible(address.session)} ` }),
      make("a", { href: hrefOf({ ...address, id: "", session: "" }), textContent: "Show all" }),
    );
  }

  /** Do something with the open approval, if it can be seen. */
  const onOpen = (run) => () => {
    if (detail?.node.checkVisibility()) run(detail);
  };
  context.setKeys([
    { key: "j", text: "Next approval", repeats: true, run: () => step(1) },
    { key: "k", text: "Previous approval", repeats: true, run: () => step(-1) },
    {
      key: "a",
      text: "Approve, with the edits if there are any",
      run: onOpen((it) => {
        if (it.isInSight()) it.approve();
        else it.bringIntoSight();
      }),
    },
    { key: "r", text: "Reject: go to the reason", run: onOpen((it) => it.goToReason()) },
    { key: "e", text: "Edit: go to the first argument", run: onOpen((it) => it.goToForm()) },
    { key: "Ctrl Enter", text: "In the reason: reject, in the way that is usual here" },
  ]);
  more.addEventListener("click", () => {
    limit = Math.min(limit * 2, PAGE_ROWS_MAX);
    decidedFeed?.refresh();
  });

  moveTo(firstId, firstQuery);
  const unsubscribe = pending.subscribe(takePending);
  const ticking = setInterval(() => {
    if (document.hidden) return;
    const nowMs = pending.now();
    for (const tick of tickers.values()) tick(nowMs);
    detail?.tick(nowMs);
  }, TICK_MS);

  return {
    moveTo,
    unmount() {
      isMounted = false;
      clearInterval(ticking);
      unsubscribe();
      decidedFeed?.stop();
      for (const each of started.values()) each.destroy();
      detail?.destroy();
    },
  };
}

function hrefOf({ id, status, session }) {
  const query = new URLSearchParams();
  if (status) query.set("status", status);
  if (session) query.set("session", session);
  const path = id ? `#/approvals/${encodeURIComponent(id)}` : "#/approvals";
  return query.size > 0 ? `${path}?${query}` : path;
}

/** As in the style sheet: both the list and the open one are on the page. */
function isWide() {
  return matchMedia("(min-width: 60.0625rem)").matches;
}

function isOfSameAnswer(one, other) {
  return one.index !== null && one.session === other.session && one.index === other.index;
}

/** Which step; a durable tool asks for itself, and belongs to none. */
function placeOf({ step_number: number }) {
  return number === null ? "durable tool" : `step ${number}`;
}

function statusAt({ status, deadline_ms: deadlineMs }, nowMs) {
  const isOver = status === "PENDING" && deadlineMs !== null && deadlineMs <= nowMs;
  return isOver ? "EXPIRED" : status;
}

function timeOf(row, status, nowMs) {
  if (status === "PENDING") {
    return row.deadline_ms === null ? ago(row.asked_ms, nowMs) : timeLeft(row.deadline_ms - nowMs);
  }
  if (status === "EXPIRED") return statusLabel(status);
  return `${statusLabel(status)} ${ago(row.decided_ms, nowMs)}`;
}

/** Who decides, for the record. */
function nameField() {
  const input = make("input", {
    id: "name",
    type: "text",
    maxLength: 200,
    autocomplete: "nickname",
    placeholder: "nobody named",
    value: readName(),
  });
  input.addEventListener("change", () => keepName(input.value.trim()));
  return {
    node: make(
      "p",
      { className: "name" },
      make("label", { htmlFor: "name", textContent: "You decide as" }),
      input,
    ),
    read: () => input.value.trim(),
  };
}

function howItIsSet(origin) {
  const settings = `[gate]
tools = ["send_email", "execute_command", "delete_database", "stripe_charge"]

[[gate.rule]]
tool = "stripe_*"
when = "args.amount > 5000"
action = "ask"`;
  const curl = `curl ${origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -H 'authorization: Bearer mock-key' \\
  -H 'x-agent-session-id: my-first-approval' \\
  -H 'x-agent-require-approval: true' \\
  -d '{"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}'`;
  return [
    make("h2", { textContent: "Nothing waits for a decision" }),
    make("p", {
      textContent:
        "When a model asks to call a tool that the gate guards, the call is held here before the " +
        "agent sees it. Approve it, edit its arguments, or reject it. Which tools are guarded " +
        "stands in agentstate.toml:",
    }),
    codeBlock("agentstate.toml", settings),
    make("p", {
      textContent:
        "To see one now, ask for approval of a single request. It uses the built-in mock model, " +
        "needs no key, and waits until you decide:",
    }),
    codeBlock("curl", curl),
  ];
}
