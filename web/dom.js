// Builds and updates nodes. Data only ever becomes text: nothing here parses markup.

/**
 * Make an element. `attributes` sets properties that exist on the node (className, textContent,
 * onclick) and attributes otherwise; undefined and null are left out.
 */
export function make(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null) continue;
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

/** Make an element of a drawing; all of `attributes` are set as such. */
export function draw(tag, attributes = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

/** Set the text of a node if it differs, so that a selection in it survives a refresh. */
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/**
 * Make the children of `parent` follow `items`: one node for each key, kept while its key stays,
 * so that focus, selection and scrolling survive a refresh.
 *
 * `create(item)` returns {node, update}; `update(item)` writes the item into the node.
 */
export function keyedList(parent, keyOf, create) {
  const rows = new Map();
  return (items) => {
    const wanted = new Set(items.map(keyOf));
    for (const [key, row] of rows) {
      if (wanted.has(key)) continue;
      row.node.remove();
      rows.delete(key);
    }
    const focused = parent.contains(document.activeElement) ? document.activeElement : null;
    let next = parent.firstChild;
    for (const item of items) {
      const key = keyOf(item);
      let row = rows.get(key);
      if (!row) {
        row = create(item);
        rows.set(key, row);
      }
      row.update(item);
      if (row.node === next) next = next.nextSibling;
      else parent.insertBefore(row.node, next);
    }
    // A node that is moved loses it.
    if (focused?.isConnected && focused !== document.activeElement) {
      focused.focus({ preventScroll: true });
    }
  };
}

/** A block of code with a button that copies it. */
export function codeBlock(title, code) {
  const block = make(
    "pre",
    { className: "code", tabIndex: 0 },
    make("code", { textContent: code }),
  );
  const button = make("button", {
    type: "button",
    className: "button",
    textContent: "Copy",
    "aria-label": `Copy the ${title} example`,
  });
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code);
      setText(button, "Copied");
    } catch {
      // Browsers give no clipboard to pages over plain HTTP from another machine.
      getSelection().selectAllChildren(block);
      setText(button, "Selected: press Ctrl+C");
    }
  });
  return make(
    "section",
    { className: "snippet" },
    make("header", { className: "snippet-head" }, make("h3", { textContent: title }), button),
    block,
  );
}
