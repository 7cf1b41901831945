"""Looks at one line before it is written: what a trainer would refuse is mended, or costs the line.

Not where lines come from (`export_examples.py`, `export_forms.py`); the linter believes nothing of
it, since a history is what some agent sent. Invariant: what `lint` returns keeps the rules of its
form; `tests/helpers/training_lines.py` has them a second time and shares no code with this.

The rules of OpenAI's forms are those of its fine-tuning (schemas FineTuneChatRequestInput and
FineTunePreferenceRequestInput, November 2026); TRL's are its conversational data sets, in which
arguments are objects; Axolotl's those of its `chat_template`, with arguments as text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from agentstate.ground.canonical import JSON, Number
from agentstate.house.export_base import Finding, Format
from agentstate.house.export_lint_messages import Lost, Message, Notes, Rules, lint_messages

FINDINGS_MAX = 100  # of one line; whoever reads them has seen enough by then
TOOLS_MAX = 128  # of a request: OpenAI's limit
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")  # of a tool, as OpenAI takes it

_TOOL_KEYS = frozenset(("type", "function"))
_FUNCTION_KEYS = frozenset(("name", "description", "parameters", "strict"))
# `datasets`, which TRL and Axolotl read with, refuses a whole file for one half of a pair, and for
# one number that it has no place for (measured: datasets 5.2, pyarrow 26). Readers of OpenAI's take
# the first as it is, and have numbers nowhere but in schemas.
_READ_BY_DATASETS = ("trl", "axolotl", "kto")
_INTEGER_MIN, _INTEGER_MAX = -(2**63), 2**63 - 1
_HALF = re.compile("[\ud800-\udbff][\udc00-\udfff]|[\ud800-\udfff]")


def lint(
    line: Mapping[str, JSON], form: Format, known: Sequence[Finding] = ()
) -> tuple[Message | None, tuple[Finding, ...]]:
    """Return a line as its form wants it, None where it cannot be, and what was found in it.

    The line that is handed over is left as it is. A finding's path is a place in it. `known` is
    what was found before; it comes first.
    """
    notes = Notes(known)
    mended: Message | None
    try:
        mended = _FORMS[form](line, notes)
        mended = _write_plainly(mended, form, notes)
    except Lost:
        mended = None
    except RecursionError:
        notes.seen("too_deep", "", "It is nested too deeply.")
        mended = None
    found = notes.findings
    if len(found) > FINDINGS_MAX:
        # The last one says why a line is lost.
        more = len(found) - FINDINGS_MAX
        is_mended = all(finding.is_mended for finding in found[FINDINGS_MAX - 1 : -1])
        found = [
            *found[: FINDINGS_MAX - 1],
            Finding("more", "", f"{more} more findings are not listed.", is_mended),
            found[-1],
        ]
    return mended, tuple(found)


# --- forms ----------------------------------------------------------------------------------------


def _chat(rules: Rules) -> Callable[[Mapping[str, JSON], Notes], Message]:
    """Return the linter of a form that is a conversation."""

    def lint_chat(line: Mapping[str, JSON], notes: Notes) -> Message:
        messages = lint_messages(line.get("messages"), "messages", rules, notes)
        keys = ("messages", "tools", "parallel_tool_calls")
        _lint_keys(line, keys, "", notes)
        return {"messages": _listed(messages), **_lint_tools(line, messages, "", notes)}

    return lint_chat


def _lint_dpo(line: Mapping[str, JSON], notes: Notes) -> Message:
    """A preference: what came before, and two answers to it of which one was preferred."""
    asked = line.get("input")
    if not isinstance(asked, dict):
        raise notes.lost("no_prompt", "input", "Expected an object with messages.")
    before = lint_messages(asked.get("messages"), "input.messages", Rules("prompt"), notes)
    answers = {
        key: lint_messages(line.get(key), key, Rules("one"), notes)
        for key in ("preferred_output", "non_preferred_output")
    }
    if answers["preferred_output"] == answers["non_preferred_output"]:
        raise notes.lost("pair_equal", "", "Both answers are the same.")
    _lint_keys(line, ("input", *answers), "", notes)
    _lint_keys(asked, ("messages", "tools", "parallel_tool_calls"), "input.", notes)
    said = [*before, *answers["preferred_output"], *answers["non_preferred_output"]]
    return {
        "input": {"messages": _listed(before), **_lint_tools(asked, said, "input.", notes)},
        **{key: _listed(answer) for key, answer in answers.items()},
    }


def _lint_kto(line: Mapping[str, JSON], notes: Notes) -> Message:
    """One answer and whether it was a good one."""
    label = line.get("label")
    if not isinstance(label, bool):
        raise notes.lost("label_type", "label", "A label is true or false.")
    before = lint_messages(line.get("prompt"), "prompt", Rules("prompt", "object"), notes)
    answer = lint_messages(line.get("completion"), "completion", Rules("one", "object"), notes)
    _lint_keys(line, ("prompt", "completion", "label", "tools"), "", notes)
    tools = _lint_tools(line, [*before, *answer], "", notes)
    tools.pop("parallel_tool_calls", None)
    return {"prompt": _listed(before), "completion": _listed(answer), "label": label, **tools}


_FORMS: Mapping[Format, Callable[[Mapping[str, JSON], Notes], Message]] = {
    "openai": _chat(Rules("answer", has_weights=True)),
    "trl": _chat(Rules("answer", "object")),
    "axolotl": _chat(Rules("answer")),
    "dpo": _lint_dpo,
    "kto": _lint_kto,
}


def _lint_keys(value: Mapping[str, JSON], known: Sequence[str], path: str, notes: Notes) -> None:
    for key in value:
        if key not in known:
            notes.mended("key_removed", path.rstrip("."), "This form has no such key.")


def _listed(messages: Sequence[Message]) -> JSON:
    return [message for message in messages]  # noqa: C416  # a list of another type


# --- tools ----------------------------------------------------------------------------------------


def _lint_tools(
    line: Mapping[str, JSON], messages: Sequence[Message], path: str, notes: Notes
) -> Message:
    """Return `tools` with all that are called, and `parallel_tool_calls` where there are any."""
    value = line.get("tools")
    tools: dict[str, JSON] = {}
    for at, tool in enumerate(value if isinstance(value, list) else ()):
        where = f"{path}tools[{at}]"
        kept = _lint_tool(tool, where, notes)
        if kept is None:
            continue
        name, mended = kept
        if name in tools:
            notes.mended("tool_twice", where, "A tool of this name is there already: left out.")
        else:
            tools[name] = mended
    if value is not None and not isinstance(value, list):
        notes.mended("tools_type", f"{path}tools", "Tools are a list: left out.")
    for name in dict.fromkeys(_called(messages)):
        if name not in tools:
            tools[name] = {"type": "function", "function": {"name": name, "parameters": _ANY}}
            notes.mended("tool_added", f"{path}tools", "A tool that is called was not offered.")
    odd = sum(1 for name in tools if not NAME.fullmatch(name))
    if odd:
        notes.seen("tool_name", f"{path}tools", f"{odd} names are none that OpenAI takes.")
    if len(tools) > TOOLS_MAX:
        notes.seen("tools_many", f"{path}tools", f"OpenAI takes at most {TOOLS_MAX}.")
    found: Message = {"tools": list(tools.values())} if tools else {}
    parallel = line.get("parallel_tool_calls")
    if tools and isinstance(parallel, bool):
        found["parallel_tool_calls"] = parallel
    elif "parallel_tool_calls" in line:
        where = f"{path}parallel_tool_calls"
        notes.mended("parallel_removed", where, "It is true or false, and goes with tools.")
    return found


# What is known of a tool of which there is only a call. It says that it takes anything.
_ANY: JSON = {"type": "object", "properties": {}}


def _lint_tool(value: JSON, path: str, notes: Notes) -> tuple[str, Message] | None:
    """Return a tool's name and the tool; None = it is left out."""
    function = value.get("function") if isinstance(value, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    is_function = isinstance(value, dict) and value.get("type") == "function"
    if not is_function or not isinstance(function, dict) or not isinstance(name, str) or not name:
        notes.mended("tool_removed", path, "A tool is a function with a name: left out.")
        return None
    assert isinstance(value, dict), "it is a function"
    kept: Message = {"name": name}
    for key, wants in (("description", str), ("parameters", dict), ("strict", bool)):
        if isinstance(function.get(key), wants):
            kept[key] = function[key]
    if set(value) - _TOOL_KEYS or set(function) - set(kept):
        notes.mended("tool_keys", path, f"Of a tool only {', '.join(sorted(_FUNCTION_KEYS))}.")
    return name, {"type": "function", "function": kept}


def _called(messages: Sequence[Message]) -> Iterator[str]:
    for message in messages:
        calls = message.get("tool_calls")
        for call in calls if isinstance(calls, list) else ():
            function = call.get("function") if isinstance(call, dict) else None
            name = function.get("name") if isinstance(function, dict) else None
            if isinstance(name, str):
                yield name


# --- what stands in a file ------------------------------------------------------------------------


def _write_plainly(line: Message, form: Format, notes: Notes) -> Message:
    """Return a line whose every text and number a reader of its form takes."""
    counts = {"half": 0, "number": 0, "large": 0}
    mends = form in _READ_BY_DATASETS

    def text_of(text: str) -> str:
        if text.isascii() or _HALF.search(text) is None:
            return text
        # Two halves of one character that came apart, as in two pieces of a stream, are joined.
        joined = _HALF.sub(lambda found: _joined(found[0], mends=mends), text)
        counts["half"] += sum(1 for found in _HALF.finditer(text) if len(found[0]) == 1)
        return joined

    def plain(value: JSON) -> JSON:
        match value:
            case str():
                return text_of(value)
            case float() if not math.isfinite(value):
                counts["number"] += 1
                return None
            case int() | Number() if mends and (held := _held(value)) is not None:
                counts["large"] += 1
                return held
            case list():
                return [plain(item) for item in value]
            case dict():
                return {text_of(key): plain(item) for key, item in value.items()}
            case _:
                return value

    found = plain(line)
    assert isinstance(found, dict), "an object stays one"
    if counts["half"] and mends:
        notes.mended("half_character", "", f"{counts['half']} are U+FFFD: no file can hold them.")
    elif counts["half"]:
        notes.seen("half_character", "", f"{counts['half']} are kept: not every reader takes them.")
    if counts["large"]:
        notes.mended("number_large", "", f"{counts['large']} are rounded, or text: too large.")
    if counts["number"]:
        raise notes.lost("number", "", f"{counts['number']} are no numbers that JSON has.")
    return found


def _held(value: int | Number) -> float | str | None:
    """Return what stands for a number that 64 bits do not hold: for an integer its text, so that an
    id keeps its digits; for others the nearest, beyond all bounds their text. None = it fits."""
    if isinstance(value, int):
        return None if _INTEGER_MIN <= value <= _INTEGER_MAX else str(value)
    number = float(value)
    if not math.isfinite(number):
        return value.text
    # Written without an exponent it is read as an integer first.
    is_long = abs(number) > _INTEGER_MAX and "e" not in value.text.lower()
    return number if is_long else None


def _joined(found: str, *, mends: bool) -> str:
    if len(found) == 2:
        return found.encode("utf-16-le", "surrogatepass").decode("utf-16-le")
    return "\ufffd" if mends else found
