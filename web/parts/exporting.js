// The control that takes runs as training data: in which form, what would be in it, the file.

import { readManifest } from "../api.js";
import { make, setText } from "../dom.js";
import { count, plural } from "../format.js";
import { visible } from "../visible.js";

const FORMS = [
  { value: "openai", title: "OpenAI: conversations" },
  { value: "dpo", title: "OpenAI: preferences (DPO)" },
  { value: "trl", title: "TRL: conversations" },
  { value: "kto", title: "TRL: approved or rejected (KTO)" },
  { value: "axolotl", title: "Axolotl: conversations" },
];

/** What exports what is at `path` of the API: {node, stop}. `of` says for people what that is. */
export function exportControl(path, of) {
  const ended = new AbortController();
  let look = 0; // an answer to an older question is dropped
  const select = make(
    "select",
    { id: "export-form" },
    ...FORMS.map(({ value, title }) => make("option", { value, textContent: title })),
  );
  const download = make("a", { className: "button", download: "", textContent: "Download" });
  const check = make("button", { type: "button", className: "button", textContent: "Check" });
  const said = make("p", { className: "export-said", role: "status" });
  const fault = make("p", { className: "fault", role: "alert" });
  const node = make(
    "details",
    { className: "export" },
    make("summary", { className: "button", textContent: "Export" }),
    make(
      "div",
      { className: "export-box" },
      make("label", { htmlFor: select.id, textContent: `${of} as training data for` }),
      select,
      download,
      check,
      said,
      fault,
    ),
  );

  function choose() {
    look += 1;
    check.disabled = false;
    setText(said, "");
    setText(fault, "");
    download.href = `${path}?format=${select.value}`;
  }

  async function inspect() {
    choose();
    const own = look;
    check.disabled = true;
    setText(said, "Looking…");
    try {
      const manifest = await readManifest(`${path}?format=${select.value}`, ended.signal);
      if (own === look) setText(said, describe(manifest));
    } catch (error) {
      if (ended.signal.aborted || own !== look) return;
      setText(said, "");
      setText(fault, ["It could not be checked.", error.message, error.hint].join(" "));
    }
    if (own === look) check.disabled = false;
  }

  select.addEventListener("change", choose);
  check.addEventListener("click", inspect);
  choose();
  return { node, stop: () => ended.abort() };
}

function describe(manifest) {
  const { lines, mended, left_out: lost, secrets, tokens, findings } = manifest;
  const taken = Object.values(secrets).reduce((sum, one) => sum + one, 0);
  const parts = [
    lines === 0
      ? "Nothing of it is an example of this form."
      : `${plural(lines, "line")}, about ${count(tokens.estimated)} tokens.`,
  ];
  if (mended > 0) parts.push(`${plural(mended, "line")} mended: ${list(findings.mended)}.`);
  if (Object.keys(findings.kept).length > 0) parts.push(`Worth a look: ${list(findings.kept)}.`);
  if (lost > 0) parts.push(`${plural(lost, "line")} could not be saved: ${list(findings.left_out)}.`);
  if (taken > 0) parts.push(`${plural(taken, "secret")} taken out.`);
  return parts.join(" ");
}

function list(codes) {
  return Object.entries(codes)
    .map(([code, times]) => `${visible(code)} ${count(times)}`)
    .join(", ");
}
