// Shows what a font hides: controls, marks that change the direction of text or have no width, and
// letters of another script that look like Latin ones. For text that a model wrote.

// What is hidden: controls but tab and line feed; format characters (bidi marks and overrides,
// zero-width ones, tags); what is private, unassigned or half a pair; line and paragraph
// separators; fillers, blanks and variation selectors, which are letters or marks by category and
// show nothing. An emoji is shown whole, with the joiners and selectors that belong to it. The rest
// is as agentstate/ground/visible.py has it, which has no emoji: it shows text as it is on record.
const FILLERS = String.raw`\u{34f}\u{115f}\u{1160}\u{17b4}\u{17b5}\u{2800}\u{3164}\u{ffa0}`;
const UNSEEN = String.raw`[\p{Cc}--[\t\n]]\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}\p{Variation_Selector}`;
const HIDDEN = new RegExp(String.raw`\p{RGI_Emoji}|[${UNSEEN}${FILLERS}]`, "gv");
const EMOJI = /^\p{RGI_Emoji}$/v;
const MARK = /⟨U\+([0-9A-F]{4,6})⟩/g;

/** The text with each hidden character as its number, as in ⟨U+202E⟩. */
export function visible(text) {
  return replaceHidden(text, (sign) => `⟨${number(sign)}⟩`);
}

/** What `visible` was made of, if no mark stood in the text itself; compare to be sure. */
export function unmark(text) {
  return text.replace(MARK, (mark, digits) => {
    const code = Number.parseInt(digits, 16);
    return code <= 0x10ffff ? String.fromCodePoint(code) : mark;
  });
}

export function hasHidden(text) {
  return visible(text) !== text;
}

/** The inside of a JSON string with each hidden character as its escape: the same value. */
export function escapeHidden(source) {
  return replaceHidden(source, (sign) =>
    Array.from({ length: sign.length }, (_, at) => unitEscape(sign.charCodeAt(at))).join(""),
  );
}

/** The letters of a name that are not ASCII, as in "а is U+0430"; they may pass for others. */
export function lookalikes(name) {
  const found = new Set(name.match(/[^\p{ASCII}]/gv) ?? []);
  return [...found].filter((sign) => !hasHidden(sign)).map((sign) => `${sign} is ${number(sign)}`);
}

function replaceHidden(text, render) {
  return text.replace(HIDDEN, (found) => (EMOJI.test(found) ? found : render(found)));
}

function number(sign) {
  return `U+${sign.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`;
}

function unitEscape(unit) {
  return `\\u${unit.toString(16).padStart(4, "0")}`;
}
