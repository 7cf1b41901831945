// The dialog that takes a session as a cassette: a file that replays it elsewhere. {node, ask, stop}.

import { readCassette } from "../api.js";
import { make } from "../dom.js";
import { plural } from "../format.js";
import { sheet, ticked } from "./sheet.js";

export function cassette(id) {
  const dialog = sheet("cassette");

  function ask() {
    const signal = dialog.open("Take it as a cassette");
    const timing = ticked("cassette-timing", "With how long answers took, and how fast streams came");
    const secrets = ticked("cassette-secrets", "Leave secrets in, if there are any");
    const lead =
      "A file of what replays of this session, which answers an agent elsewhere without a key, as in " +
      "tests. Secrets are taken out.";
    dialog.fill(
      [make("p", { className: "lead", textContent: lead }), timing.node, secrets.node],
      {
        title: "Download",
        async run() {
          dialog.say("Writing it…");
          const wanted = { timing: timing.input.checked, secrets: secrets.input.checked };
          const { name, blob } = await readCassette(id, wanted, signal);
          save(name, blob);
          dialog.fill(
            [make("p", { role: "status", textContent: `${name}: ${plural(blob.size, "byte")}.` })],
            null,
          );
        },
      },
    );
  }

  return { node: dialog.node, ask, stop: dialog.stop };
}

function save(name, blob) {
  const url = URL.createObjectURL(blob);
  make("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 60_000); // the browser has read it by then
}
