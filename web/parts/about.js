// What a session is called besides its id: its name, who began it, what it was forked from, and its
// tags. Each leads to the sessions that are alike.

import { keyedList, make, setText } from "../dom.js";
import { plural } from "../format.js";
import { visible } from "../visible.js";

/** A line of it, hidden while there is nothing: {node, update(session)}. */
export function about() {
  const name = make("strong");
  const parent = make("a");
  const by = make("span", {}, "begun by ", parent);
  const origin = make("a");
  const shares = make("span");
  const fork = make("span", {}, "forked from ", origin, shares);
  const tags = make("span", { className: "about" });
  const node = make("div", { className: "about", hidden: true }, name, by, fork, tags);
  const updateTags = keyedList(tags, ([key]) => key, createTag);
  return {
    node,
    update(session) {
      const found = Object.entries(session.tags ?? {});
      const { forked_from: from } = session;
      node.hidden = !(session.name || session.parent || from || found.length);
      name.hidden = !session.name;
      setText(name, visible(session.name ?? ""));
      by.hidden = !session.parent;
      parent.href = `#/sessions/${encodeURIComponent(session.parent ?? "")}`;
      setText(parent, visible(session.parent ?? ""));
      fork.hidden = !from;
      if (from) {
        origin.href = `#/sessions/${encodeURIComponent(from.session)}`;
        setText(origin, visible(from.session));
        setText(shares, describeFork(from));
      }
      tags.hidden = found.length === 0;
      updateTags(found);
    },
  };
}

function describeFork({ step_number: number, index, shared_steps: shared, by }) {
  const before = number === null ? `index ${index}` : `step ${number}`;
  const place = number === null && index === null ? "" : ` before ${before}`;
  return `${place}, ${plural(shared, "step")} shared${by ? `, by ${visible(by)}` : ""}`;
}

function createTag() {
  const node = make("a", { className: "tag" });
  return {
    node,
    update([key, value]) {
      const text = value === "" ? key : `${key}=${value}`;
      node.href = `#/sessions?${new URLSearchParams({ tag: text })}`;
      setText(node, visible(text));
    },
  };
}
