// The answers that a step has had: the model's, those a person wrote, those that were asked for
// again; which one stands, and what differs between two.

import { readAnswer } from "../api.js";
import { answerLines } from "../diff.js";
import { make, setText } from "../dom.js";
import { MISSING, moment, money } from "../format.js";
import { visible } from "../visible.js";
import { diffBlock } from "./compare.js";
import { markNode } from "./timeline.js";

const COLUMNS = ["Answer", "Model", "Came", "Cost", "Why"];
const KINDS = { recorded: "From the model", edit: "Edited", rerun: "Asked again" };

/** Show the answers of a step and compare two of them; the first two are the last change. */
export function answersTable(id, { step, answers }, signal) {
  if (answers.length === 0) {
    return make("p", { className: "quiet none", textContent: "No answer is on record." });
  }
  const table = make(
    "div",
    { className: "scroll-x", tabIndex: 0, role: "region", "aria-label": "Answers" },
    make(
      "table",
      { className: "table attempts" },
      make("caption", { className: "unseen", textContent: "Answers, in the order in which they came" }),
      make(
        "thead",
        {},
        make("tr", {}, ...COLUMNS.map((title) => make("th", { scope: "col", textContent: title }))),
      ),
      make("tbody", {}, ...answers.map((answer, at) => rowOf(answer, at))),
    ),
  );
  if (answers.length === 1) return table;
  return make("div", {}, table, comparisonOf(id, step.index, answers, signal));
}

/** What an answer is called: its place, and where it came from. */
export function kindLabel(kind) {
  return KINDS[kind] ?? visible(kind);
}

function rowOf(answer, at) {
  const marks = [];
  if (answer.stands) marks.push(markNode({ text: "stands", is: "good" }));
  if (answer.is_taken_back) marks.push(markNode({ text: "taken back" }));
  if (answer.asked_otherwise) marks.push(markNode({ text: "asked otherwise" }));
  const by = answer.by ? ` by ${visible(answer.by)}` : "";
  const cost = answer.kind === "edit" ? MISSING : money(answer.cost_microusd);
  return make(
    "tr",
    {},
    make("th", { scope: "row" }, `${at + 1}. ${kindLabel(answer.kind)}${by} `, ...marks),
    make("td", { textContent: visible(answer.model ?? MISSING) }),
    make("td", { className: "num", textContent: moment(answer.answered_ms) }),
    make("td", { className: "num", textContent: cost }),
    make("td", { textContent: answer.reason ? visible(answer.reason) : MISSING }),
  );
}

function comparisonOf(id, index, answers, signal) {
  const place = make("div", { className: "diff-place", role: "status" });
  const stands = answers.findIndex((answer) => answer.stands);
  const last = stands < 0 ? answers.length - 1 : stands;
  const replaced = answers.findIndex(({ answer_id: each }) => each === answers[last].replaces);
  const first = replaced >= 0 ? replaced : last === 0 ? 1 : last - 1;
  const [left, right] = [["answer-left", first], ["answer-right", last]].map(([name, at]) => {
    const options = answers.map((answer, number) =>
      make("option", {
        value: String(number),
        textContent: `${number + 1}. ${kindLabel(answer.kind)}`,
      }),
    );
    const input = make("select", { id: name }, ...options);
    input.value = String(at);
    return input;
  });
  let look = 0; // what an older choice asked for is dropped

  async function compare() {
    const own = (look += 1);
    setText(place, "Reading…");
    const sides = [left, right].map((input) => Number(input.value));
    try {
      const found = await Promise.all(
        sides.map((at) => readAnswer(id, index, answers[at].answer_id, signal)),
      );
      if (own !== look) return;
      const lines = found.map(({ choices }) => answerLines(choices ?? []));
      place.replaceChildren(...diffBlock(...lines, ...sides.map((at) => `answer ${at + 1}`)));
    } catch (error) {
      if (!signal.aborted && own === look) setText(place, error.message);
    }
  }

  for (const input of [left, right]) input.addEventListener("change", compare);
  compare();
  return make(
    "div",
    {},
    make(
      "div",
      { className: "compare-form" },
      make("label", { htmlFor: left.id, textContent: "Compare" }),
      left,
      make("label", { htmlFor: right.id, textContent: "with" }),
      right,
    ),
    place,
  );
}
