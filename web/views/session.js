// One session: what it is, what it cost, and its steps in order.

import { poll, readSession } from "../api.js";
import { keyedList, make, setText } from "../dom.js";
import {
  MISSING,
  ago,
  costOf,
  count,
  countShort,
  duration,
  moment,
  money,
  plural,
  statusLabel,
} from "../format.js";
import { visible } from "../visible.js";

const COLUMNS = [
  { title: "Step", className: "num tight" },
  { title: "State" },
  { title: "Prompt and response", className: "col-main" },
  { title: "Model", className: "wide" },
  { title: "Tokens", className: "num middle" },
  { title: "Latency", className: "num middle" },
  { title: "Cost", className: "num middle" },
  { title: "Replays", className: "num middle" },
];

const FACTS = [
  { title: "Steps", read: (row) => count(row.steps) },
  {
    title: "Tokens in / out",
    read: (row) => `${countShort(row.input_tokens)} / ${countShort(row.output_tokens)}`,
  },
  { title: "Cost", read: costOf },
  { title: "Replays", read: (row) => count(row.replays) },
  { title: "Saved", read: (row) => money(row.saved_microusd) },
  { title: "Last activity", read: (row) => ago(row.updated_ms, Date.now()) },
];

export function sessionView(root, context, id) {
  context.setTitle(id);
  const badge = make("span", { className: "badge", hidden: true });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const facts = FACTS.map(({ title }) => {
    const value = make("dd", { textContent: MISSING });
    return { value, node: make("div", {}, make("dt", { textContent: title }), value) };
  });
  const body = make("tbody");
  const head = COLUMNS.map(({ title, className }) =>
    make("th", { scope: "col", className, textContent: title }),
  );
  const table = make(
    "table",
    { className: "table steps", hidden: true },
    make("caption", { className: "unseen", textContent: "Steps in order of first arrival" }),
    make("thead", {}, make("tr", {}, ...head)),
    body,
  );
  const heldCount = make("span");
  const waiting = make("p", { className: "waiting", hidden: true }, heldCount, " ", linkToAll(id));
  const more = make("p", { className: "lead more", hidden: true });
  const list = make("dl", { className: "facts", hidden: true }, ...facts.map(({ node }) => node));
  root.append(
    make("a", { className: "back", href: "#/sessions", textContent: "← All sessions" }),
    make("div", { className: "head" }, make("h1", { textContent: id }), badge),
    list,
    waiting,
    notice,
    table,
    more,
  );
  const update = keyedList(body, (step) => step.index, createRow);
  let steps = [];
  let held = new Map(); // the approvals that wait, by the index of their step
  const showSteps = () =>
    update(steps.map((step) => ({ ...step, held: held.get(step.index) ?? [] })));

  const unsubscribe = context.pending.subscribe((approvals) => {
    const ours = (approvals ?? []).filter((approval) => approval.session === id);
    held = Map.groupBy(ours, (approval) => approval.index);
    waiting.hidden = ours.length === 0;
    setText(heldCount, `${plural(ours.length, "call")} held for a decision.`);
    showSteps();
  });
  const { stop } = poll(
    (signal) => readSession(id, signal),
    ({ session, steps: found, next_cursor: next }) => {
      steps = found;
      context.setLive(true, "Live");
      notice.hidden = true;
      badge.hidden = false;
      list.hidden = false;
      badge.dataset.status = session.status;
      setText(badge, statusLabel(session.status));
      FACTS.forEach(({ read }, at) => setText(facts[at].value, read(session)));
      table.hidden = steps.length === 0;
      showSteps();
      more.hidden = next === null || next === undefined;
      setText(more, `The first ${count(steps.length)} steps are shown.`);
    },
    (error) => {
      context.setLive(error.status === 404, error.status === 404 ? "Live" : "Not connected");
      setText(notice, ["This session could not be read.", error.message, error.hint].join(" "));
      notice.hidden = false;
    },
  );
  return {
    unmount() {
      stop();
      unsubscribe();
    },
  };
}

function linkToAll(session) {
  const query = new URLSearchParams({ session });
  return make("a", { href: `#/approvals?${query}`, textContent: "Decide" });
}

function createRow() {
  const number = make("th", { scope: "row", className: "num tight" });
  const badge = make("span", { className: "badge" });
  const prompt = make("div", { className: "clamp prompt" });
  const response = make("div", { className: "clamp" });
  const holds = make("div", { className: "holds", hidden: true });
  const updateHolds = keyedList(holds, (approval) => approval.approval_id, createHold);
  const brief = make("span", { className: "brief" });
  const cells = COLUMNS.slice(3).map(({ className }) => make("td", { className }));
  const node = make(
    "tr",
    {},
    number,
    make("td", {}, badge),
    make("td", { className: "col-main" }, prompt, response, holds, brief),
    ...cells,
  );
  return {
    node,
    update(step) {
      setText(number, String(step.step_number));
      badge.dataset.status = step.state;
      setText(badge, statusLabel(step.state));
      prompt.hidden = !step.prompt;
      setText(prompt, step.prompt ?? "");
      setText(response, readResponse(step));
      holds.hidden = step.held.length === 0;
      updateHolds(step.held);
      const tokens = readTokens(step);
      const latency = duration(step.latency);
      const texts = [
        step.model ?? MISSING,
        tokens,
        latency,
        money(step.cost_microusd),
        count(step.replays ?? 0),
      ];
      texts.forEach((text, at) => setText(cells[at], text));
      cells[0].title = step.model ?? "";
      node.classList.toggle("is-inactive", Number.isFinite(step.rolled_back_ms));
      number.title = moment(step.created_ms);
      setText(
        brief,
        [`${tokens} tokens`, latency, plural(step.replays ?? 0, "replay")].join(" · "),
      );
    },
  };
}

/** A link to the approval of a call that waits. */
function createHold({ approval_id: id }) {
  const link = make("a", { href: `#/approvals/${encodeURIComponent(id)}` });
  return {
    node: link,
    update: ({ tool, status }) =>
      setText(link, `${visible(tool)} ${status === "EXPIRED" ? "expired undecided" : "waits"}`),
  };
}

/** The text of an answer; for an answer without text what it was instead, or what went wrong. */
function readResponse(step) {
  if (step.response) return step.response;
  if (step.error) return step.error;
  if (step.state === "in_flight") return "…";
  if (step.finish_reason === "tool_calls") return "(tool calls, no text)";
  return step.finish_reason ? `(no text; finished with ${step.finish_reason})` : MISSING;
}

function readTokens(step) {
  if (!step.usage) return MISSING;
  const { prompt_tokens: input, completion_tokens: output, is_estimate: isEstimate } = step.usage;
  return `${isEstimate ? "~" : ""}${countShort(input)} / ${countShort(output)}`;
}
