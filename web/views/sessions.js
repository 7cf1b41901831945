// The list of sessions, or, while there is none, how to send the first call.

import { listSessions, poll } from "../api.js";
import { codeBlock, keyedList, make, setText } from "../dom.js";
import { ago, costOf, count, countShort, moment, money, plural, statusLabel } from "../format.js";

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

export function sessionsView(root, context) {
  context.setTitle("Sessions");
  const summary = make("p", { className: "lead" });
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
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
  const first = make("div", { className: "first", hidden: true }, ...firstCall(location.origin));
  root.append(
    make("div", { className: "head" }, make("h1", { textContent: "Sessions" }), summary),
    notice,
    table,
    first,
  );
  const update = keyedList(body, (row) => row.session, createRow);

  const { stop } = poll(
    listSessions,
    (sessions) => {
      context.setLive(true, "Live");
      notice.hidden = true;
      table.hidden = sessions.length === 0;
      first.hidden = sessions.length > 0;
      setText(summary, summarize(sessions));
      update(sessions);
    },
    (error) => {
      context.setLive(false, "Not connected");
      setText(notice, `The list could not be read. ${error.message} Trying again.`);
      notice.hidden = false;
    },
  );
  return { unmount: stop };
}

function summarize(sessions) {
  const sum = (field) => sessions.reduce((total, row) => total + (row[field] ?? 0), 0);
  if (sessions.length === 0) return "";
  const parts = [
    plural(sessions.length, "session"),
    plural(sum("steps"), "step"),
    `${costOf({ cost_microusd: sum("cost_microusd"), unknown_costs: sum("unknown_costs") })} spent`,
    `${money(sum("saved_microusd"))} saved by ${plural(sum("replays"), "replay")}`,
  ];
  return parts.join(" · ");
}

function createRow({ session }) {
  const link = make("a", {
    className: "row-link",
    title: session,
    href: `#/sessions/${encodeURIComponent(session)}`,
    textContent: session,
  });
  const brief = make("span", { className: "brief" });
  const badge = make("span", { className: "badge" });
  const cells = COLUMNS.slice(2).map(({ className }) => make("td", { className }));
  const node = make(
    "tr",
    { className: "row" },
    make("th", { scope: "row", className: "col-main" }, link, brief),
    make("td", {}, badge),
    ...cells,
  );
  return {
    node,
    update(row) {
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

function firstCall(origin) {
  const curl = `curl ${origin}/v1/chat/completions \\
  -H 'content-type: application/json' \\
  -H 'authorization: Bearer mock-key' \\
  -H 'x-agent-session-id: my-first-run' \\
  -d '{"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}'`;
  const python = `from openai import OpenAI

client = OpenAI(
    base_url="${origin}/v1",
    api_key="mock-key",
    default_headers={"x-agent-session-id": "my-first-run"},
)
answer = client.chat.completions.create(
    model="mock/hello",
    messages=[{"role": "user", "content": "Hello"}],
)
print(answer.choices[0].message.content)`;
  return [
    make("h2", { textContent: "No session yet" }),
    make("p", {
      textContent:
        "Point an agent at this proxy and name its session; each call appears here as a step. " +
        "These two use the built-in mock model and need no key. Run one twice: the second " +
        "answer is a replay.",
    }),
    codeBlock("curl", curl),
    codeBlock("Python", python),
  ];
}
