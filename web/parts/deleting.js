// The dialog that deletes a session: it says first what would go. {node, ask, stop}.

import { deleteSession, weighDeletion } from "../api.js";
import { make } from "../dom.js";
import { costOf, count, plural } from "../format.js";
import { visible } from "../visible.js";
import { sheet } from "./sheet.js";

const FORKS_SHOWN = 5;

export function deleting(id) {
  const dialog = sheet("delete");

  async function ask() {
    const signal = dialog.open(`Delete ${visible(id)}?`);
    dialog.fill([make("p", { role: "status", textContent: "Looking at what would go…" })], null);
    try {
      const found = await weighDeletion(id, signal);
      dialog.fill(
        describe(found).map((text) => make("p", { textContent: text })),
        {
          title: "Delete for good",
          isBad: true,
          async run() {
            await deleteSession(id);
            dialog.close();
            location.hash = "#/sessions";
          },
        },
      );
    } catch (error) {
      if (!signal.aborted) dialog.fault(error);
    }
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

function describe({ spent, content_bytes: bytes, forks }) {
  const tokens = `${count(spent.input_tokens)} tokens in, ${count(spent.output_tokens)} out`;
  const found = [
    `${plural(spent.steps, "step")} would go, with ${plural(bytes, "byte")} of answers. ` +
      `${costOf(spent)} was paid in it: ${tokens}.`,
  ];
  if (forks.length > 0) {
    const names = forks.slice(0, FORKS_SHOWN).map(visible).join(", ");
    const more = forks.length > FORKS_SHOWN ? ` and ${count(forks.length - FORKS_SHOWN)} more` : "";
    found.push(`${plural(forks.length, "fork")} of it would stay: ${names}${more}.`);
  }
  found.push(
    "A call that waits in it ends with an error. It cannot be undone; what a backup has, it keeps.",
  );
  return found;
}
