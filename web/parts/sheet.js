// A dialog in which a person says what is to be done. What it says and takes is its verb's.

import { make, setText } from "../dom.js";

/**
 * Make the dialog: {node, open, fill, say, close, stop}. `open(title)` shows it anew and returns a
 * signal that ends when it is closed. `fill(nodes, verb)` puts these in it, with the button of
 * `verb`, {title, isBad, run()}, null = there is nothing to do but to close it. What `run` throws
 * is said, and the dialog stays.
 */
export function sheet(name) {
  let ended = new AbortController();
  let verb = null;
  let isBusy = false;
  const title = make("h2", { id: `${name}-title` });
  const body = make("div", { className: "sheet-body" });
  const said = make("p", { className: "quiet", role: "status" });
  const fault = make("p", { className: "fault", role: "alert" });
  const confirm = make("button", { className: "button" });
  const cancel = make("button", { type: "button", className: "button", onclick: () => node.close() });
  const form = make(
    "form",
    { noValidate: true },
    title,
    body,
    said,
    fault,
    make("div", { className: "steer" }, confirm, cancel),
  );
  const node = make("dialog", { className: "sheet is-form", "aria-labelledby": title.id }, form);
  node.addEventListener("close", () => {
    ended.abort();
    body.replaceChildren(); // what was typed is not there the next time
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    act();
  });

  async function act() {
    if (verb === null || isBusy) return;
    const { signal } = ended;
    isBusy = true;
    confirm.ariaDisabled = "true"; // not `disabled`, which would take the focus away
    setText(fault, "");
    try {
      await verb.run();
    } catch (error) {
      if (!signal.aborted) sayFault(error);
    }
    if (!signal.aborted) setText(said, "");
    isBusy = false;
    confirm.ariaDisabled = "false";
  }

  function sayFault(error) {
    if (error instanceof TypeError || error.name === "TimeoutError") {
      setText(fault, "The proxy gave no answer. Whether it was done is not known: look again.");
      return;
    }
    setText(fault, [error.message, error.hint].filter(Boolean).join(" "));
    fault.scrollIntoView({ block: "nearest" });
  }

  return {
    node,
    open(text) {
      ended.abort();
      ended = new AbortController();
      setText(title, text);
      this.fill([], null);
      node.showModal();
      return ended.signal;
    },
    fill(nodes, wanted) {
      verb = wanted;
      body.replaceChildren(...nodes);
      setText(said, "");
      setText(fault, "");
      confirm.hidden = verb === null;
      setText(confirm, verb?.title ?? "");
      confirm.classList.toggle("is-no", verb?.isBad ?? false);
      setText(cancel, verb === null || verb.isDone ? "Close" : "Cancel");
      if (verb === null) cancel.focus();
    },
    /** Say what goes on; with `error`, what went wrong. */
    say: (text) => setText(said, text),
    fault: sayFault,
    close: () => node.close(),
    stop() {
      ended.abort();
      node.close();
    },
  };
}

/** A control with its label, and a hint if there is one. */
export function labelled(title, input, hint = "") {
  const parts = [make("label", { htmlFor: input.id, textContent: title }), input];
  if (hint) {
    const node = make("p", { className: "hint", id: `${input.id}-hint`, textContent: hint });
    input.setAttribute("aria-describedby", node.id);
    parts.push(node);
  }
  return make("div", { className: "field" }, ...parts);
}

/** A box to tick, with its label beside it. */
export function ticked(id, title, isOn = false) {
  const input = make("input", { id, type: "checkbox", checked: isOn });
  const node = make(
    "div",
    { className: "tick-line" },
    input,
    make("label", { htmlFor: id, textContent: title }),
  );
  return { node, input };
}

/** A field for why it is done. */
export function reasonField(id) {
  const input = make("input", { id, type: "text", maxLength: 1000, autocomplete: "off" });
  return { node: labelled("Reason", input, "optional; it is on record with the change"), input };
}
