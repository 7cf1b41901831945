// The webhooks: who is told what, and what became of each message.

import { listDeliveries, listWebhooks, poll, redeliver, sendSample } from "../api.js";
import { codeBlock, keyedList, make, setText } from "../dom.js";
import { ago, count, moment, plural, statusLabel, timeLeft } from "../format.js";
import { visible } from "../visible.js";

const FILTERS = [
  { state: "", title: "All" },
  { state: "due", title: "Due" },
  { state: "sent", title: "Sent" },
  { state: "dead", title: "Dead" },
];
const COLUMNS = [
  { title: "State" },
  { title: "Event", className: "col-main" },
  { title: "Webhook", className: "middle" },
  { title: "Tries", className: "num middle" },
  { title: "When", className: "num middle" },
  { title: "Action", className: "num tight" },
];
const PAGE_ROWS = 50;
const PAGE_ROWS_MAX = 1000; // of the API

export function webhooksView(root, context, firstQuery) {
  context.setTitle("Webhooks");
  const now = context.pending.now;
  let state = "";
  let limit = PAGE_ROWS;
  let feed = null;

  const summary = make("p", { className: "lead" });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const hooks = make("ul", { className: "hooks", "aria-label": "Configured webhooks" });
  const first = make("div", { className: "first", hidden: true }, ...howItIsSet());
  const filters = FILTERS.map((filter) => ({
    ...filter,
    link: make("a", {
      className: "tab",
      href: filter.state ? `#/webhooks?state=${filter.state}` : "#/webhooks",
      textContent: filter.title,
    }),
  }));
  const tabs = make(
    "nav",
    { className: "tabs", "aria-label": "Which deliveries" },
    ...filters.map(({ link }) => link),
  );
  const said = make("p", { className: "quiet", role: "status" });
  const fault = make("p", { className: "fault", role: "alert" });
  const body = make("tbody");
  const table = make(
    "table",
    { className: "table", hidden: true },
    make("caption", { className: "unseen", textContent: "Deliveries, the newest first" }),
    make("thead", {}, make("tr", {}, ...COLUMNS.map(createHead))),
    body,
  );
  const none = make("p", { className: "quiet", hidden: true });
  const more = make("button", {
    type: "button",
    className: "button more-rows",
    textContent: "Show more",
    hidden: true,
  });
  const deliveries = make(
    "section",
    { className: "deliveries", "aria-labelledby": "deliveries-title", hidden: true },
    make("h2", { id: "deliveries-title", textContent: "Deliveries" }),
    tabs,
    said,
    fault,
    table,
    none,
    more,
  );
  root.append(
    make("div", { className: "head" }, make("h1", { textContent: "Webhooks" }), summary),
    notice,
    hooks,
    first,
    deliveries,
  );
  const updateHooks = keyedList(hooks, (hook) => hook.name, createHook);
  const updateRows = keyedList(
    body,
    (delivery) => delivery.delivery_id,
    () => createRow(now, sendAgain),
  );

  function show({ webhooks, rows, isAll }) {
    context.setLive(true, "Live");
    notice.hidden = true;
    setText(summary, summarize(webhooks));
    first.hidden = webhooks.length > 0;
    updateHooks(webhooks.map((hook) => ({ ...hook, now_ms: now() })));
    // Deliveries outlive the row of the configuration that they were for.
    deliveries.hidden = webhooks.length === 0 && rows.length === 0 && state === "";
    showRows(rows);
    more.hidden = isAll || limit >= PAGE_ROWS_MAX;
  }

  /** A row that leaves the list hands its focus on to the one that takes its place: to the row and
   * not to its button, which a key held down would press. */
  function showRows(rows) {
    const at = [...body.rows].findIndex((row) => row.contains(document.activeElement));
    updateRows(rows);
    table.hidden = rows.length === 0;
    none.hidden = rows.length > 0;
    setText(none, state === "" ? "There was nothing to tell yet." : "None.");
    if (at < 0 || body.contains(document.activeElement)) return;
    const heir = body.rows[Math.min(at, rows.length - 1)] ?? currentFilter().link;
    heir.focus({ preventScroll: true });
  }

  async function sendAgain(delivery) {
    setText(fault, "");
    setText(said, "");
    try {
      await redeliver(delivery.delivery_id);
      setText(said, `${delivery.kind} is due again to ${visible(delivery.webhook)}.`);
    } catch (error) {
      setText(fault, ["It is not sent again.", error.message, error.hint].join(" "));
    }
    feed.refresh();
  }

  function currentFilter() {
    return filters.find((filter) => filter.state === state);
  }

  function moveTo(query) {
    const wanted = query.get("state") ?? "";
    state = FILTERS.some((filter) => filter.state === wanted) ? wanted : "";
    limit = PAGE_ROWS;
    for (const { link } of filters) link.removeAttribute("aria-current");
    currentFilter().link.setAttribute("aria-current", "page");
    for (const node of [table, none, more]) node.hidden = true;
    setText(said, "");
    setText(fault, "");
    feed?.stop();
    feed = poll(
      async (signal) => {
        const asked = [listWebhooks(signal), listDeliveries({ state, limit }, signal)];
        const [webhooks, { deliveries: rows, isAll }] = await Promise.all(asked);
        return { webhooks, rows, isAll };
      },
      show,
      (error) => {
        context.setLive(false, "Not connected");
        setText(notice, `The webhooks could not be read. ${error.message} Trying again.`);
        notice.hidden = false;
      },
      { isTold: false }, // deliveries change by themselves
    );
  }

  more.addEventListener("click", () => {
    limit = Math.min(limit * 2, PAGE_ROWS_MAX);
    feed.refresh();
  });
  moveTo(firstQuery);
  return { moveTo, unmount: () => feed.stop() };
}

function createHead({ title, className }) {
  return make("th", { scope: "col", className, textContent: title });
}

function summarize(webhooks) {
  if (webhooks.length === 0) return "";
  const sum = (field) => webhooks.reduce((total, hook) => total + hook[field], 0);
  const parts = ["due", "sent", "dead"].map((field) => `${count(sum(field))} ${field}`);
  return [plural(webhooks.length, "webhook"), ...parts].join(" · ");
}

function createHook({ name }) {
  const where = make("p", { className: "quiet" });
  const wants = make("p", { className: "quiet" });
  const fares = make("p", { className: "hook-fares" });
  const said = make("p", { className: "hook-said", role: "status" });
  const button = make("button", {
    type: "button",
    className: "button",
    textContent: "Send a sample",
    "aria-label": `Send a sample to ${visible(name)}`,
  });
  button.addEventListener("click", () =>
    whileBusy(button, async () => {
      said.dataset.is = "";
      setText(said, "Sending…");
      const { isTaken, text } = await trySample(name);
      said.dataset.is = isTaken ? "taken" : "refused";
      setText(said, text);
    }),
  );
  const title = make("h2", { textContent: visible(name) });
  return {
    node: make(
      "li",
      { className: "hook" },
      make("div", { className: "hook-head" }, title, button),
      where,
      wants,
      fares,
      said,
    ),
    update(hook) {
      setText(where, `${hook.format} · ${visible(hook.host)}`);
      const sessions = hook.sessions.map(visible).join(", ");
      const ofWhich = sessions ? `, in sessions ${sessions}` : "";
      setText(wants, `Is told of ${hook.events.join(", ")}${ofWhich}`);
      const facts = ["due", "sent", "dead"].map((field) => `${count(hook[field])} ${field}`);
      if (hook.rests_until_ms !== null) {
        facts.push(`rests for ${timeLeft(hook.rests_until_ms - hook.now_ms)}`);
      }
      setText(fares, facts.join(" · "));
    },
  };
}

async function trySample(name) {
  try {
    const { is_taken: isTaken, status, why } = await sendSample(name);
    const text = answerOf({ status, error: why });
    return { isTaken, text: `${isTaken ? "Taken" : "Not taken"}. ${text}` };
  } catch (error) {
    return { isTaken: false, text: [error.message, error.hint].filter(Boolean).join(" ") };
  }
}

function createRow(now, sendAgain) {
  let delivery = null;
  const badge = make("span", { className: "badge" });
  const kind = make("span", { className: "delivery-kind" });
  const session = make("a", { className: "name-link" });
  const step = make("span");
  const approval = make("a", { textContent: "Approval" });
  const beside = make("span", {}, " · ", approval);
  const answer = make("p", { className: "delivery-answer" });
  const brief = make("span", { className: "brief" });
  const [webhook, tries, when] = COLUMNS.slice(2, 5).map(({ className }) =>
    make("td", { className }),
  );
  const button = make("button", { type: "button", className: "button", textContent: "Send again" });
  button.addEventListener("click", () => whileBusy(button, () => sendAgain(delivery)));
  const node = make(
    "tr",
    { tabIndex: -1 },
    make("td", {}, badge),
    make(
      "th",
      { scope: "row", className: "col-main" },
      kind,
      make("p", { className: "quiet" }, session, step, beside),
      answer,
      brief,
    ),
    webhook,
    tries,
    when,
    make("td", { className: "num tight" }, button),
  );
  return {
    node,
    update(row) {
      delivery = row;
      const name = visible(row.webhook);
      badge.dataset.status = row.state;
      setText(badge, statusLabel(row.state));
      setText(kind, row.kind);
      kind.title = `${row.event_id}, ${moment(row.created_ms)}`;
      session.href = `#/sessions/${encodeURIComponent(row.session)}`;
      setText(session, visible(row.session));
      setText(step, row.step_number === null ? "" : ` · step ${row.step_number}`);
      beside.hidden = row.approval_id === null;
      approval.href = `#/approvals/${encodeURIComponent(row.approval_id ?? "")}`;
      setText(answer, answerOf(row));
      answer.classList.toggle("is-refused", row.error !== null && row.state !== "sent");
      const time = whenOf(row, now());
      setText(webhook, name);
      setText(tries, count(row.tries));
      setText(when, time);
      when.title = moment(row.next_ms ?? row.settled_ms);
      setText(brief, [name, plural(row.tries, "try", "tries"), time].join(" · "));
      button.ariaLabel = `Send again: ${row.kind} of ${visible(row.session)} to ${name}`;
    },
  };
}

/** What came of the last try; "" = there was none. */
function answerOf({ status, error }) {
  const why = visible(error ?? "");
  if (status === null) return why && `No answer: ${why}`;
  return why ? `It answered ${status}: ${why}` : `It answered ${status}`;
}

function whenOf(row, nowMs) {
  if (row.state !== "due") return ago(row.settled_ms, nowMs);
  if (row.is_being_sent) return "being sent";
  return row.next_ms > nowMs ? `in ${timeLeft(row.next_ms - nowMs)}` : "now";
}

/** Not `disabled`, which would take the focus away. */
async function whileBusy(button, work) {
  if (button.ariaDisabled === "true") return;
  button.ariaDisabled = "true";
  try {
    await work();
  } finally {
    button.ariaDisabled = "false";
  }
}

function howItIsSet() {
  const settings = `[[webhook]]
name = "ops"
url = "env:SLACK_WEBHOOK_URL"
events = ["approval.required", "session.failed", "session.stalled"]
sessions = ["prod-*"]`;
  return [
    make("h2", { textContent: "No webhook is configured" }),
    make("p", {
      textContent:
        "A webhook tells Slack, Discord or a service of your own what waits for a person. One " +
        "variable is enough; set it and start the proxy again:",
    }),
    codeBlock("environment", "export WEBHOOK_URL=https://hooks.slack.com/services/..."),
    make("p", {
      textContent: "For more than one, or a choice of what is told, put rows in agentstate.toml:",
    }),
    codeBlock("agentstate.toml", settings),
  ];
}
