// Who acts here, for the record; kept in this browser.

const NAME_KEY = "agentstate.name";

/** The name that was given, "" = none. */
export function readName() {
  try {
    return localStorage.getItem(NAME_KEY) ?? "";
  } catch {
    return ""; // a browser that keeps nothing
  }
}

/** Keep a name; in a browser that keeps nothing it is forgotten with the page. */
export function keepName(name) {
  try {
    localStorage.setItem(NAME_KEY, name);
  } catch {
    // As above.
  }
}
