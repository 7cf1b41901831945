// What is on record as training data: which of it, in which form, what it looks like, the file.
//
// The filters are those of the API, and stand in the address under its names.

import { readLines } from "../api.js";
import { make, setText } from "../dom.js";
import { plural, statusLabel } from "../format.js";
import { exportedLine } from "../parts/exported.js";
import { findings } from "../parts/findings.js";
import { labelled, ticked } from "../parts/sheet.js";

const FORMS = [
  ["openai", "OpenAI: conversations"],
  ["dpo", "OpenAI: preferences (DPO)"],
  ["trl", "TRL: conversations"],
  ["kto", "TRL: approved or rejected (KTO)"],
  ["axolotl", "Axolotl: conversations"],
];
const STATUSES = ["RUNNING", "WAITING", "PAUSED", "FAILED", "COMPLETED"];
const TOUCHED = [["", "Touched or not"], ["1", "Only these"], ["0", "None of these"]];
const INCLUDES = [
  ["failed", "Sessions that failed"],
  ["cut", "Answers that were cut"],
  ["rolled_back", "What was rolled back"],
  ["replaced", "Answers that another took the place of"],
];
const GROUPS = [
  ["Sessions", ["search", "status", "tag", "session", "parent", "forked_from"]],
  ["Conversations", ["since", "until", "model", "tool", "cost_max_usd", "touched"]],
  ["Also", ["include", "dedupe", "images"]],
  ["Split", ["split", "seed"]],
];
const OF_ITSELF = { format: "openai" }; // what the API takes where nothing is said
const PREVIEW_LINES = 10;
const TYPING_MS = 400;

export function exportView(root, context, firstQuery) {
  context.setTitle("Export");
  const fields = makeFields();
  let typing = 0;
  let look = new AbortController(); // what is being read for the preview
  const fault = make("p", { className: "notice", role: "alert", hidden: true });
  const said = make("p", { className: "quiet", role: "status" });
  const lines = make("div", { className: "exported-lines" });
  const downloads = make("span", { className: "steer" });
  const check = make("button", {
    type: "button",
    className: "button",
    textContent: "Check all of it",
    onclick: () => inside.check(pathOf()),
  });
  const reset = make("a", { className: "back", href: "#/export", textContent: "Without filters" });
  const inside = findings();
  const form = make("form", { className: "export-form" }, ...fields.nodes, reset);
  root.append(
    make(
      "div",
      { className: "head" },
      make("h1", { textContent: "Export" }),
      make("p", {
        className: "lead",
        textContent: "What is on record as training data: a line for each conversation.",
      }),
    ),
    fault,
    make(
      "div",
      { className: "export-desk" },
      form,
      make(
        "div",
        { className: "export-result" },
        make("div", { className: "steer" }, downloads, check),
        inside.node,
        make(
          "section",
          { "aria-labelledby": "preview" },
          make("h2", { id: "preview", textContent: "Preview" }),
          said,
          lines,
        ),
      ),
    ),
  );

  /** What the API is asked for the file. */
  function pathOf(more = {}) {
    const { session, ...query } = { ...OF_ITSELF, ...fields.read(), ...more };
    const one = `/api/sessions/${encodeURIComponent(session)}/export`;
    return `${session ? one : "/api/export/dataset"}?${new URLSearchParams(query)}`;
  }

  function show() {
    clearTimeout(typing);
    inside.clear();
    const { split } = fields.read();
    const link = (textContent, more) =>
      make("a", { className: "button is-yes", download: "", href: pathOf(more), textContent });
    if (split) {
      downloads.replaceChildren(
        link("Download to train", { part: "train" }),
        link("Download to validate", { part: "validation" }),
      );
    } else downloads.replaceChildren(link("Download"));
    preview();
  }

  async function preview() {
    look.abort();
    look = new AbortController();
    const { signal } = look;
    setText(said, "Reading…");
    try {
      const { lines: found, isAll } = await readLines(pathOf(), PREVIEW_LINES, signal);
      if (signal.aborted) return;
      context.setLive(true, "Live");
      fault.hidden = true;
      lines.replaceChildren(...found.map((text, at) => exportedLine(text, at + 1)));
      setText(said, sayOf(found.length, isAll));
      if (isAll) inside.check(pathOf()); // it was gone through already, so it does not take long
    } catch (error) {
      if (signal.aborted) return;
      lines.replaceChildren();
      setText(said, "");
      setText(fault, [error.message, error.hint].filter(Boolean).join(" "));
      fault.hidden = false;
      if (error.status === undefined) context.setLive(false, "Not connected");
    }
  }

  function change() {
    const query = new URLSearchParams(fields.read());
    history.replaceState(null, "", query.size > 0 ? `#/export?${query}` : "#/export");
    fields.sayCounts();
    show();
  }

  function moveTo(query) {
    fields.write(query);
    show();
    return true;
  }

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    clearTimeout(typing);
    if (target.matches("select, [type=checkbox]")) change();
    else typing = setTimeout(change, TYPING_MS);
  });
  const find = () => {
    fields.find.closest("details").open = true;
    fields.find.focus();
  };
  const step = (by) => {
    const titles = [...lines.querySelectorAll(".exported > summary")];
    const at = titles.indexOf(document.activeElement);
    titles[Math.max(0, Math.min(at + by, titles.length - 1))]?.focus();
  };
  context.setKeys([
    { key: "j", text: "Next line of the preview", repeats: true, run: () => step(1) },
    { key: "k", text: "Previous line", repeats: true, run: () => step(-1) },
    { key: "/", text: "Find sessions by their id or name", run: find },
    { key: "c", text: "Check all of it", run: () => check.click() },
    { key: "d", text: "Download", run: () => downloads.firstChild.click() },
  ]);
  moveTo(firstQuery);

  return {
    moveTo,
    unmount() {
      clearTimeout(typing);
      look.abort();
      inside.stop();
    },
  };
}

function sayOf(count, isAll) {
  if (!isAll) return `The first ${PREVIEW_LINES} lines; there are more.`;
  return count > 0 ? `All of it: ${plural(count, "line")}.` : "No line is like that.";
}

/** The controls by the names of the API: {nodes, find, read(), write(query)}. */
function makeFields() {
  const rows = new Map(); // by name: {node, read(), write(text)}
  const add = (name, title, input, hint = "") => {
    input.id = `export-${name}`;
    const node = labelled(title, input, hint);
    const write = (text) => (input.value = text);
    rows.set(name, { node, read: () => input.value.trim(), write });
  };
  const text = (name, title, hint = "", more = {}) =>
    add(name, title, make("input", { type: "text", autocomplete: "off", ...more }), hint);
  const choice = (name, title, values) => {
    const options = values.map(([value, textContent]) => make("option", { value, textContent }));
    add(name, title, make("select", {}, ...options));
  };
  const time = (name, title) => {
    const input = make("input", { type: "datetime-local" });
    add(name, title, input);
    Object.assign(rows.get(name), {
      read: () => (input.value ? new Date(input.value).toISOString() : ""),
      write: (said) => (input.value = localTime(said)),
    });
  };
  const tick = (name, title, on) => {
    const { node, input } = ticked(`export-${name}`, title);
    rows.set(name, {
      node,
      read: () => (input.checked ? on : ""),
      write: (said) => (input.checked = said === on),
    });
  };

  choice("format", "Form", FORMS);
  text("search", "Id or name", "a part of it");
  const statuses = STATUSES.map((status) => [status, statusLabel(status)]);
  choice("status", "Status", [["", "Not failed"], ...statuses]);
  text("tag", "Tag", "name=value,…");
  text("session", "Only this session", "its whole id");
  text("parent", "Begun by", "the id of a session");
  text("forked_from", "Forked from", "the id of a session");
  time("since", "From");
  time("until", "Before");
  text("model", "Model", "gpt-*");
  text("tool", "With a call of", "send_*");
  text("cost_max_usd", "Cost at most", "US dollars", { inputMode: "decimal" });
  choice("touched", "Decided or edited by a person", TOUCHED);
  const includes = INCLUDES.map(([name, title]) => {
    const { node, input } = ticked(`export-include-${name}`, title);
    return { name, node, input };
  });
  rows.set("include", {
    node: make("div", { className: "export-ticks" }, ...includes.map(({ node }) => node)),
    read: () => includes.filter(({ input }) => input.checked).map(({ name }) => name).join(","),
    write(said) {
      const names = said.split(",");
      for (const { name, input } of includes) input.checked = names.includes(name);
    },
  });
  tick("dedupe", "Equal conversations as often as they are there", "0");
  tick("images", "Pictures of users", "1");
  text("split", "Share to validate", "0.1; two files", { inputMode: "decimal" });
  text("seed", "Seed", "another split", { inputMode: "numeric" });

  const nodesOf = (names) => names.map((name) => rows.get(name).node);
  const groups = GROUPS.map(([title, names]) => {
    const set = make("span", { className: "quiet" });
    const fold = make(
      "details",
      { className: "export-group", open: isWide() },
      make("summary", {}, title, " ", set),
      make("div", { role: "group", "aria-label": title }, ...nodesOf(names)),
    );
    return {
      fold,
      say() {
        const count = names.filter((name) => rows.get(name).read()).length;
        setText(set, count > 0 ? `· ${count} set` : "");
        return count;
      },
    };
  });
  return {
    nodes: [...nodesOf(["format"]), ...groups.map(({ fold }) => fold)],
    find: rows.get("search").node.querySelector("input"),
    /** Say beside each group how many of it are set. */
    sayCounts: () => groups.forEach(({ say }) => say()),
    read() {
      const found = [...rows].map(([name, { read }]) => [name, read()]);
      return Object.fromEntries(found.filter(([name, value]) => value && value !== OF_ITSELF[name]));
    },
    write(query) {
      for (const [name, { write }] of rows) write(query.get(name) ?? OF_ITSELF[name] ?? "");
      for (const { fold, say } of groups) if (say() > 0) fold.open = true;
    },
  };
}

/** As in the style sheet: the filters stand beside what they find. */
function isWide() {
  return matchMedia("(min-width: 60.0625rem)").matches;
}

/** A moment, as an address has it, for a control of local time; "" = it is none. */
function localTime(text) {
  const at = new Date(/^\d{9,}$/.test(text) ? Number(text) : text);
  if (text === "" || Number.isNaN(at.getTime())) return "";
  return new Date(at.getTime() - at.getTimezoneOffset() * 60_000).toISOString().slice(0, 16);
}
