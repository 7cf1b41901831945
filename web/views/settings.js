// What is configured, and where each value came from. Secrets are never shown, only that they are set.

import { readSettings } from "../api.js";
import { make, setText } from "../dom.js";
import { visible } from "../visible.js";

const ABOUT_TOP = "Top of the file";

export function settingsView(root, context) {
  context.setTitle("Settings");
  const ended = new AbortController();
  const notice = make("p", { className: "notice", role: "alert", hidden: true });
  const search = make("input", { id: "find-setting", type: "search", autocomplete: "off" });
  const onlySet = make("input", { id: "only-set", type: "checkbox" });
  const said = make("p", { className: "lead", role: "status" });
  const warnings = make("div", { className: "warnings" });
  const place = make("div", { className: "settings" });
  let rows = []; // [{node, text, isSet, section}]
  root.append(
    make("div", { className: "head" }, make("h1", { textContent: "Settings" }), said),
    make("p", {
      className: "lead wide-text",
      textContent:
        "As this process started with them. Flags beat the environment, the environment beats " +
        "agentstate.toml, the file beats the defaults. A change needs a restart.",
    }),
    make(
      "div",
      { className: "filters" },
      make("label", { htmlFor: search.id, textContent: "Find" }),
      search,
      make("label", { className: "check" }, onlySet, " Only what was set"),
    ),
    notice,
    warnings,
    place,
  );

  async function read() {
    try {
      show(await readSettings(ended.signal));
      context.setLive(true, "Live");
    } catch (error) {
      if (ended.signal.aborted) return;
      context.setLive(false, "Not connected");
      setText(notice, `The settings could not be read. ${error.message}`);
      notice.hidden = false;
    }
  }

  function show({ version, warnings: told, sections }) {
    setText(said, `AgentState ${version}`);
    warnings.replaceChildren(
      ...told.map((text) => make("p", { className: "waiting", textContent: visible(text) })),
    );
    rows = [];
    place.replaceChildren(...sections.map(sectionOf));
    filter();
  }

  function sectionOf({ name, title, settings }) {
    const isRow = title.startsWith("[[");
    const heading = isRow ? `${title} ${visible(name.split(".").at(-1))}` : title || ABOUT_TOP;
    const list = make("dl", { className: "setting-list" });
    const node = make("section", {}, make("h2", { textContent: heading }), list);
    for (const setting of settings) {
      const row = rowOf(setting, isRow);
      list.append(row);
      const isSet = isRow ? setting.is_set : setting.source !== "default";
      rows.push({ node: row, section: node, isSet, text: `${setting.name} ${setting.help}`.toLowerCase() });
    }
    return node;
  }

  function filter() {
    const wanted = search.value.trim().toLowerCase();
    const seen = new Set();
    for (const { node, section, isSet, text } of rows) {
      node.hidden = !text.includes(wanted) || (onlySet.checked && !isSet);
      if (!node.hidden) seen.add(section);
    }
    for (const section of place.children) section.hidden = !seen.has(section);
  }

  search.addEventListener("input", filter);
  onlySet.addEventListener("change", filter);
  context.setKeys([{ key: "/", text: "Find a setting", run: () => search.focus() }]);
  read();
  return { unmount: () => ended.abort() };
}

function rowOf({ key, value, is_secret: isSecret, is_set: isSet, source, default: usual, help }, isRow) {
  const isDefault = source === "default";
  const shown = isSecret ? (isSet ? "set, not shown" : "not set") : wordOf(value);
  const from = isDefault ? (isRow ? "as it is without" : "default") : visible(source);
  const usually =
    isDefault || isRow || isSecret
      ? null
      : make("span", { className: "quiet", textContent: `; default ${wordOf(usual)}` });
  const node = make(
    "div",
    { className: isDefault ? "" : "is-set" },
    make("dt", {}, make("code", { textContent: key })),
    make("dd", { className: "setting-value" }, make("code", { textContent: shown })),
    make("dd", { className: "setting-source" }, make("span", { textContent: from }), usually),
    make("dd", { className: "setting-help", textContent: help }),
  );
  return node;
}

function wordOf(value) {
  if (value === null) return "none";
  if (Array.isArray(value)) return value.length === 0 ? "none" : value.map(visible).join(", ");
  return visible(String(value)) || "none";
}
