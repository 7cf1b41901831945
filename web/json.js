// Reads and changes JSON as text. What nobody touched stays as it was sent: integers of any length
// (JSON.parse rounds them), the order of keys, the spelling of numbers. JSON.parse says whether a
// text is JSON; the rest finds where its parts are and relies on that.

import { escapeHidden } from "./visible.js";

const NUMBER = /^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?$/;
const INDENT = "  ";

export function isNumber(text) {
  return NUMBER.test(text);
}

/** What is wrong with a JSON text; null = nothing. */
export function faultOf(text) {
  try {
    JSON.parse(text);
    return null;
  } catch (error) {
    return error.message;
  }
}

/**
 * The members of an object, in order, as [{name, source, start, end}]: `source` is the text of the
 * value, from `start` to `end`. null = the text is no JSON object.
 */
export function readMembers(text) {
  if (faultOf(text) !== null) return null;
  const members = [];
  let depth = 0;
  let name = null;
  let start = 0;
  let end = 0;
  const close = () => {
    if (name !== null) members.push({ name, source: text.slice(start, end), start, end });
    name = null;
  };
  for (const token of tokensOf(text)) {
    const sign = text[token.start];
    if (sign === "}" || sign === "]") depth -= 1;
    if (depth === 0) {
      if (sign !== "{" && sign !== "}") return null;
    } else if (depth === 1 && sign === ",") {
      close();
    } else if (name === null) {
      name = JSON.parse(text.slice(token.start, token.end));
      start = -1;
    } else if (depth > 1 || sign !== ":") {
      if (start < 0) start = token.start;
      end = token.end;
    }
    if (sign === "{" || sign === "[") depth += 1;
  }
  close();
  return members;
}

/**
 * A JSON text as a tree: {kind, ...} with `members` [{name, node}] of an object, `items` of an
 * array, `value` of a string, and `source` of anything else, as it was sent. null = it is no JSON.
 */
export function readTree(text) {
  if (faultOf(text) !== null) return null;
  const root = { kind: "array", items: [] };
  const open = [root];
  let name = null; // of the member whose value comes next
  const add = (node) => {
    const parent = open.at(-1);
    if (parent.kind === "array") parent.items.push(node);
    else parent.members.push({ name, node });
    name = null;
  };
  for (const { start, end } of tokensOf(text)) {
    const sign = text[start];
    if (sign === "{" || sign === "[") {
      const node = sign === "{" ? { kind: "object", members: [] } : { kind: "array", items: [] };
      add(node);
      open.push(node);
    } else if (sign === "}" || sign === "]") {
      open.pop();
    } else if (sign === '"') {
      const value = JSON.parse(text.slice(start, end));
      if (open.at(-1).kind === "object" && name === null) name = value;
      else add({ kind: "string", value });
    } else if (sign !== "," && sign !== ":") {
      add({ kind: "literal", source: text.slice(start, end) });
    }
  }
  return root.items[0];
}

/**
 * Take an object apart that comes in pieces: what is returned takes the next piece and gives the
 * objects, as text, that ended in it of the list that is its member `name`.
 */
export function listScanner(name) {
  const begins = `"${name}":[`; // in a string it would have backslashes
  let text = ""; // what has come and is not gone through, or belongs to an object that is open
  let isIn = false;
  let isOver = false;
  let at = 0;
  let depth = 0;
  let inString = false;
  return (piece) => {
    text += piece;
    const found = [];
    if (!isIn) {
      const start = text.indexOf(begins);
      if (start < 0) return found;
      isIn = true;
      text = text.slice(start + begins.length);
    }
    let first = 0; // where the object that is open begins; it was cut to 0 if it began before
    for (; at < text.length && !isOver; at += 1) {
      const sign = text[at];
      if (inString) {
        if (sign === "\\") at += 1;
        else if (sign === '"') inString = false;
      } else if (sign === '"') {
        inString = true;
      } else if (sign === "{" || sign === "[") {
        if (depth === 0) first = at;
        depth += 1;
      } else if (sign === "}" || sign === "]") {
        depth -= 1;
        if (depth === 0) found.push(text.slice(first, at + 1));
        isOver = depth < 0;
      }
    }
    const kept = isOver ? text.length : depth > 0 ? first : Math.min(at, text.length);
    text = text.slice(kept);
    at -= kept;
    return found;
  };
}

/** The text with some values replaced: `sources` are [member as read, new text], in order. */
export function replaceValues(text, sources) {
  let result = "";
  let from = 0;
  for (const [member, source] of sources) {
    result += text.slice(from, member.start) + source;
    from = member.end;
  }
  return result + text.slice(from);
}

/** Valid JSON, one value a line, with what would be invisible in strings escaped. */
export function indent(text) {
  const parts = [];
  let depth = 0;
  let before = "";
  const breakLine = () => parts.push(`\n${INDENT.repeat(depth)}`);
  for (const { start, end } of tokensOf(text)) {
    const sign = text[start];
    const isEnd = sign === "}" || sign === "]";
    if (isEnd) depth -= 1;
    const isEmpty = isEnd && (before === "{" || before === "[");
    if ((isEnd && !isEmpty) || (!isEnd && (before === "{" || before === "[")) || before === ",") {
      breakLine();
    }
    if (sign === "{" || sign === "[") depth += 1;
    const token = text.slice(start, end);
    if (sign === '"') parts.push(escapeHidden(token));
    else parts.push(sign === ":" ? ": " : token);
    before = sign;
  }
  return parts.join("");
}

/** Valid JSON in one spelling, to compare: two that say the same, numbers as sent, are equal. */
export function normalize(text) {
  let result = "";
  for (const { start, end } of tokensOf(text)) {
    const token = text.slice(start, end);
    result += text[start] === '"' ? JSON.stringify(JSON.parse(token)) : token;
  }
  return result;
}

/** Where the tokens of valid JSON are. */
function* tokensOf(text) {
  let at = 0;
  while (at < text.length) {
    const start = at;
    const sign = text[at];
    at += 1;
    if (sign === '"') at = endOfString(text, at);
    else if (isPlain(sign)) while (at < text.length && isPlain(text[at])) at += 1;
    else if (" \t\r\n".includes(sign)) continue;
    yield { start, end: at };
  }
}

/** A string ends at the first quote with an even number of backslashes before it. */
function endOfString(text, from) {
  for (let at = from; ; at += 1) {
    at = text.indexOf('"', at);
    let slashes = 0;
    while (text[at - 1 - slashes] === "\\") slashes += 1;
    if (slashes % 2 === 0) return at + 1;
  }
}

function isPlain(sign) {
  return /[-+.0-9A-Za-z]/.test(sign);
}
