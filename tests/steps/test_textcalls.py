"""Calls that a text spells are found in every spelling, and none of them gets past the screen."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from functools import lru_cache

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from agentstate.steps import textcalls, textobjects
from agentstate.steps.names import loose_readings
from agentstate.steps.textcalls import TextCall, TextScreen, find_calls

GUARDED = "send_email"


@lru_cache(1000)  # as the policy remembers names
def could_hold(name: str) -> bool:
    return GUARDED in loose_readings(name)


def anything(name: str) -> bool:
    return True


def held_calls(text: str, guards: Callable[[str], bool] = could_hold) -> list[TextCall]:
    return [call for call in find_calls(text, guards) if guards(call.name)]


def held_start(text: str) -> int:
    return min((call.start for call in held_calls(text)), default=len(text))


# Each text spells one call of `send_email`: (text, name, arguments, what goes out before it).
LINES = [
    ("Action: send_email\nAction Input: {\"to\": 1}", "send_email", '{"to": 1}', ""),
    ("Thought: hm.\nAction: send_email\nAction Input: hi\nObservation: ok", "send_email", "hi",
     "Thought: hm.\n"),
    ("action : send_email", "send_email", "", ""),
    ("ACTION:send_email\nACTION INPUT:x", "send_email", "x", ""),
    ("Action 1: send_email\nAction 1 Input: a\nb", "send_email", "a\nb", ""),
    ("Action 1: send_email\nAction Input 1: {}", "send_email", "{}", ""),
    ("Action \u0661:\tsend_email", "send_email", "", ""),
    ("Action" + " " * 500 + ":" + "\n" * 500 + "send_email", "send_email", "", ""),
    ("**Action:** send_email\n**Action Input:** {}", "send_email", "{}", "**"),
    ("- **Action**: `send_email`", "send_email", "", "- **"),
    ("Action: **send_email**", "send_email", "", ""),
    ('Action: "send_email"', "send_email", "", ""),
    ("Action: 'send_email'\nAction Input: \"x\"", "send_email", '"x"', ""),
    ("Action: [send_email]", "send_email", "", ""),
    ("Action: {send_email}", "send_email", "", ""),
    ("Action: 1. send_email", "send_email", "", ""),
    ("Action: - send_email.", "send_email", "", ""),
    ("Action: send_email({\"to\": \"a)\"})", "send_email", '{"to": "a)"}', ""),
    ("Action: send_email[bob]", "send_email", "bob", ""),
    ("Action: send_email(", "send_email", "", ""),
    ("Action:\tsend_email\r\nAction Input:\tx\r\n", "send_email", "x", ""),
    ("Action:\n  send_email\nAction Input:\n```json\n{\"a\": 1}\n```", "send_email", '{"a": 1}',
     ""),
    ("Action: send_emailAction Input: x", "send_email", "x", ""),
    ("Action: // which?\nsend_email", "send_email", "", ""),
    ("Action: /* which? */ send_email", "send_email", "", ""),
    ("Action\uff1asend_email", "send_email", "", ""),
    ("Reaction: send_email", "send_email", "", "Re"),
    ("The action: send_email was taken", "send_email", "", "The "),
    ("Action: send_email to Bob\nAction Input: {}", "send_email", "{}", ""),
    ("Action: Send Email\nAction Input: {}", "Send Email", "{}", ""),
    ("Action: SendEmail\nAction Input: {}", "Send_Email", "{}", ""),
    ("Action: send\\_email", "send_email", "", ""),
    ("Action: functions.send_email", "functions.send_email", "", ""),
    ("Action: Action: send_email", "send_email", "", ""),
    ("Tool: send_email\nTool Input: x", "send_email", "x", ""),
    ("Tool Name: send_email", "send_email", "", ""),
    ("\u273fFUNCTION\u273f: send_email\n\u273fARGS\u273f: {}", "send_email", "{}", "\u273f"),
]  # fmt: skip
OBJECTS = [
    ('{"action": "send_email", "action_input": "hi"}', "send_email", '"hi"', ""),
    ('{"action":"send_email","action_input":{"a":{"b":[1,"}"]}}}', "send_email",
     '{"a":{"b":[1,"}"]}}', ""),
    ('So: {"action_input": [{"b": 2}], "action": "send_email"} done', "send_email", '[{"b": 2}]',
     "So: "),
    ("Thought: x\nAction:\n```json\n{\"action\": \"send_email\"}\n```", "send_email",
     '{"action": "send_email"}', "Thought: x\n"),
    ("x\n```\n{\"action\": \"send_email\", \"args\": null}\n```", "send_email", "null", "x\n"),
    ('[{"action": "send_email", "input": 1}, {"action": "other"}]', "send_email", "1", ""),
    ('[{"action": "other"}, {"action": "send_email", "input": 1}]', "send_email", "1",
     '[{"action": "other"}, '),
    ("{'action': 'send_email', 'action_input': {'to': 'it\\'s'}}", "send_email",
     "{'to': 'it\\'s'}", ""),
    ('{action: send_email, input: {a: "x"}}', "send_email", '{a: "x"}', ""),
    ('{"tool": "send_email", "args": {}}', "send_email", "{}", ""),
    ('{"tool_name": "send_email", "tool_input": ""}', "send_email", '""', ""),
    ('{"toolName": "send_email", "toolInput": 7 }', "send_email", "7", ""),
    ('{"function": "send_email", "parameters": {}}', "send_email", "{}", ""),
    ('{"recipient_name": "functions.send_email", "parameters": {}}', "functions.send_email",
     "{}", ""),
    ('{"name": "send_email", "arguments": {"q": 1}}', "send_email", '{"q": 1}', ""),
    ('{"name": "send_email", "description": "x", "parameters": {}}', "send_email", "{}", ""),
    ('{"arguments": "{\\"q\\": 1}", "name": "send_email"}', "send_email", '"{\\"q\\": 1}"', ""),
    ('{"function": {"name": "send_email"}}', "send_email", '{"name": "send_email"}', ""),
    ('{"tool_calls": [{"name": "send_email"}]}', "send_email", '{"name": "send_email"}', ""),
    ('{"thoughts": {"name": "x"}, "command": {"name": "send_email", "args": {}}}', "send_email",
     "{}", ""),
    ('{"\\u0061ction": "\\u0073end_email", "arg\\u0073": {}}', "send_email", "{}", ""),
    ('{"\\u006e\\u0061\\u006d\\u0065": "send\\u005femail", "\\u0061rgs": {}}', "send_email", "{}",
     ""),
    ('{"\\x41ction": "send_email", "x": 1}', "send_email",
     '{"\\x41ction": "send_email", "x": 1}', ""),
    ('{"action": "Send_Email ", "input": 1}', "Send_Email", "1", ""),
    ('{"action": /* why */ "send_email", "input": 1}', "send_email", "1", ""),
    ('{"note": "5" tall", "action": "send_email", "input": 1}', "send_email", "1", ""),
    ('{"note": "5" tall", "name": "send_email", "input": 1}', "send_email", "1", ""),
    ('{"answer": "Action: send_email\\nAction Input: {}"}', "send_email", "{}", ""),
    ('{"a": "{\\"action\\": \\"send_email\\"}"}', "send_email",
     '{"a": "{\\"action\\": \\"send_email\\"}"}', ""),
    ('"action": "send_email", "action_input": {"a": 1}', "send_email", '{"a": 1}', '"'),
    ('"name": "send_email"', "send_email", "", '"'),
    ('{\u201caction\u201d: \u201csend_email\u201d}', "send_email",
     '{\u201caction\u201d: \u201csend_email\u201d}', ""),
    ('{"action": "send_email', "send_email", '{"action": "send_email', ""),
    ('{"action": "send_email", "action_input": {"a": "b', "send_email", '{"a": "b', ""),
    ('{ // mine\n"action": "send_email"}', "send_email", "", '{ // mine\n"'),
]  # fmt: skip
TAGS = [
    ('Ok <tool_call>\n{"name": "send_email", "arguments": {}}\n</tool_call>', "send_email", "{}",
     "Ok "),
    ('<tool_call>{"name": "send_email"}</tool_call>', "send_email", '{"name": "send_email"}', ""),
    ("<tool_call>send_email\n<arg_key>a</arg_key></tool_call>", "send_email",
     "<arg_key>a</arg_key>", ""),
    ('<function=send_email>{"a": "</x>"}</function>', "send_email", '{"a": "</x>"}', ""),
    ("<function=send_email>\n<parameter=to>\nx\n</parameter>\n</function>", "send_email",
     "<parameter=to>\nx\n</parameter>", ""),
    ('<invoke name="send_email"><parameter name="to">x</parameter></invoke>', "send_email",
     '<parameter name="to">x</parameter>', ""),
    ("<invoke name='send_email'>", "send_email", "", ""),
    ("<tool>send_email</tool><tool_input>hi</tool_input>", "send_email", "hi", ""),
    ("<invoke><tool_name>send_email</tool_name>", "send_email", "", "<invoke>"),
    ("<send_email>\n<to>x</to>\n</send_email>", "send_email", "<to>x</to>", ""),
    ("[TOOL_CALLS]send_email[ARGS]{\"a\": 1}", "send_email", '{"a": 1}', ""),
    ('[TOOL_CALLS] [{"name": "send_email"}]', "send_email", '{"name": "send_email"}', ""),
    ('[TOOL_REQUEST]{"name": "send_email"}[END_TOOL_REQUEST]', "send_email",
     '{"name": "send_email"}', ""),
    ("<|tool_call_begin|>functions.send_email:0<|tool_call_argument_begin|>{}<|tool_call_end|>",
     "functions.send_email:0", "{}", ""),
    ("<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>send_email\n"
     "```json\n{}\n```", "send_email", "{}",
     "<\uff5ctool\u2581call\u2581begin\uff5c>function"),
]  # fmt: skip
SPELLED = [*LINES, *OBJECTS, *TAGS]

# None of these spells a call, of whatever tool.
PLAIN = [
    "",
    "A call to action, a tool for everything: ",
    "The name: Alice. Command: none. Function: to please.",
    '{"name": "Alice", "age": 3}',
    '[{"name": "a"}, {"name": "b", "x": {"input": 1}}]',
    '{"answer": {"title": "Actions", "tools": ["a", "b"], "name": "x", "actions": {"k": "v"}}}',
    '{"transactions": "x", "username": "bob", "arguments": 1}',
    '{"action": "", "tool": [], "function": {}, "command": null, "action_name": 7}',
    '{"action": "Final Answer", "action_input": "42"}',
    "Action: None\nAction: Final Answer: it is done",
    "if (a < b && c > d) { return x; }\n\\frac{a}{b} {x} {{y}}",
    "<div class='tool'><b>bold</b></div> <think>hm</think> <tool is free",
    "<tool_response>{}</tool_response><final_answer>x</final_answer>",
    "```python\nprint({'a': 1}['a'])\n```",
    "[link](https://example.com) [1] [TOOL] [x]",
    "Action:",
    "Action: \n\n",
    '{"action": ',
    '{"name": "cut off, "',
    "<tool_call>",
    "[TOOL_CALLS",
    "send_email(to='bob')",
]


@pytest.mark.parametrize(("text", "name", "arguments", "before"), SPELLED)
def test_a_call_is_found_in_every_spelling(
    text: str, name: str, arguments: str, before: str
) -> None:
    [call] = held_calls(text)

    assert (call.name, call.arguments, text[: call.start]) == (name, arguments, before)


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_call_is_none(text: str) -> None:
    assert find_calls(text) == ()


def test_calls_are_numbered_in_their_order_whether_held_or_not() -> None:
    text = (
        "Action: search\nAction Input: a\nObservation: b\n"
        'Action: send_email\nAction Input: {"name": "c", "input": {}}\n'
        '<function=y>2</function> {"tool": "x", "args": 1}'
    )

    calls = find_calls(text)

    assert [(call.position, call.name, call.arguments) for call in calls] == [
        (0, "search", "a"),
        (1, "send_email", '{"name": "c", "input": {}}'),
        (2, "c", "{}"),
        (3, "y", "2"),
        (4, "x", "1"),
    ]
    assert [text[call.start : call.end] for call in calls] == [
        "Action: search\nAction Input: a",
        'Action: send_email\nAction Input: {"name": "c", "input": {}}',
        '{"name": "c", "input": {}}',
        "<function=y>2",
        '{"tool": "x", "args": 1}',
    ]


def test_a_name_is_read_as_the_gate_would_hold_it() -> None:
    text = "Action: Send Email\nAction Input: x"

    assert find_calls(text)[0].name == "Send"
    assert find_calls(text, could_hold)[0].name == "Send Email"
    assert find_calls(text, lambda name: name == "Send_Email")[0].arguments == ""


def test_arguments_within_arguments_are_not_copied_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(textcalls, "ARGUMENTS_CHARS_MAX", 50)
    text = '{"action": "a", "args": ' * 9 + "1" + "}" * 9

    calls = find_calls(text)

    assert len(calls) == 9
    assert [bool(call.arguments) for call in calls] == [True] + [False] * 8


# --- the screen -------------------------------------------------------------------------------


def feed(screen: TextScreen, pieces: Iterator[str]) -> Iterator[int]:
    """Feed pieces one by one and yield what is safe after each."""
    for piece in pieces:
        screen.feed(piece)
        yield screen.safe


def cut(text: str, cuts: list[int]) -> Iterator[str]:
    at = 0
    for place in [*sorted(cuts), len(text)]:
        yield text[at:place]
        at = max(at, place)


def check_screen(text: str, cuts: list[int]) -> None:
    start = held_start(text)
    screen, before, length = TextScreen(could_hold), 0, 0

    for piece in cut(text, cuts):
        screen.feed(piece)
        length += len(piece)
        assert before <= screen.safe <= min(start, length)
        # What has gone out is no call by itself either, if the stream should end here.
        assert screen.safe == before or not held_calls(text[: screen.safe])
        before = screen.safe
    screen.finish()

    assert screen.safe == start


@pytest.mark.parametrize("text", [*(row[0] for row in SPELLED), *PLAIN])
def test_the_screen_stops_where_a_call_begins_at_every_cut(text: str) -> None:
    check_screen(text, [])
    check_screen(text, list(range(len(text))))
    for at in range(len(text)):
        check_screen(text, [at])
        check_screen(f"Well.\n{text}\nThat is all.", [at + 6])


PIECES = [
    "Action", ":", "Action:", " ", "\n", "send_email", "send", "_email", "search", "{", "}", "[",
    "]", '"', "'", "```", "```json\n", "`", "\\", "\\n", '"action"', '"name"', '"arguments"',
    '"args":', ": ", ", ", '{"', '"}', "<tool_call>", "</tool_call>", "<function=", ">", "<", "/",
    "<send_email>", "[TOOL_CALLS]", "Action Input: ", "\\u0061", "\\u0073", '"\\u0061ction"',
    '"\\u0073end_email"', "1", "**", "tool", "function", '"function": {', '{"a": 1}', "the ",
    "name", "Tool Name", "\u201c", "\u201d", "\uff1a", "\r\n", "\t", "\u00e9", "\u0130", "\ud800",
    "don't ", "recipient_name", '"tool": "send_email"', '{"name": "send_email"', "action_input",
    "(", ")", "null", "//", "/*", "*/", "<|tool_call_begin|>", '<invoke name="send_email">',
    "tool_", "_name", '\\"', "_", "-", ".", "Final Answer", "Send Email", "SendEmail", "x" * 40,
]  # fmt: skip
anything_like_calls = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.sampled_from([row[0] for row in SPELLED]),
        st.text(max_size=5),
    ),
    max_size=14,
).map("".join)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(anything_like_calls, st.data())
def test_nothing_of_a_held_call_goes_out_however_the_text_is_cut(
    text: str, data: st.DataObject
) -> None:
    check_screen(text, data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
    check_screen(text, list(range(len(text))))


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(anything_like_calls, st.integers(0, 60), st.integers(1, 3), st.integers(1, 30), st.data())
def test_nothing_goes_out_where_objects_are_over_their_bounds(
    text: str, chars_max: int, depth_max: int, unread_max: int, data: st.DataObject
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(textobjects, "OBJECT_CHARS_MAX", chars_max)
        patch.setattr(textobjects, "DEPTH_MAX", depth_max)
        patch.setattr(textcalls, "UNREAD_CHARS_MAX", unread_max)
        check_screen(text, data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        check_screen(text, list(range(len(text))))


@given(st.lists(st.text(max_size=4), max_size=4), st.data())
def test_whatever_is_fed_nothing_is_raised(pieces: list[str], data: st.DataObject) -> None:
    screen = TextScreen(anything)
    for piece in pieces:
        screen.feed(piece)
        screen.feed(data.draw(st.text(st.characters(), max_size=8)))
    screen.finish()


# --- against what parsers take -----------------------------------------------------------------

# How the frameworks find a name, each in an expression of ours that takes the same texts.
REACT = re.compile(r"Action\s*\d*\s*:(.*?)Action\s*\d*\s*Input\s*\d*\s*:", re.DOTALL)
CONVERSATIONAL = re.compile(r"Action: (.*?)\n*Action Input: ", re.DOTALL)
LLAMA_INDEX = re.compile(r"\nAction: ([^\n() ]+).*?\nAction Input: .*?\{", re.DOTALL)
XML = re.compile(r"<tool>(.*?)</tool>", re.DOTALL)
FUNCTION = re.compile(r"<function=([^>]*)>")
NAME_KEYS = ("action", "tool", "tool_name", "function", "command", "recipient_name")
INPUT_KEYS = ("arguments", "args", "parameters", "input")


def names_in(value: object) -> Iterator[object]:
    if isinstance(value, dict):
        yield from (value.get(key) for key in NAME_KEYS)
        if any(key in value for key in INPUT_KEYS):
            yield value.get("name")
        for part in value.values():
            yield from names_in(part)
    elif isinstance(value, list):
        for part in value:
            yield from names_in(part)


def names_that_parsers_take(text: str) -> Iterator[object]:
    for pattern in (REACT, CONVERSATIONAL, LLAMA_INDEX, XML, FUNCTION):
        if match := pattern.search(text):
            yield match[1].strip(" \n\t*`\"'")
    decoder = json.JSONDecoder(strict=False)
    for place in re.finditer(r"[\[{]", text):
        try:
            value, _ = decoder.raw_decode(text, place.start())
        except ValueError:
            continue
        yield from names_in(value)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(anything_like_calls)
@example("Action: x\nAction: send_email\nAction Input: {}")
def test_what_a_parser_takes_for_a_call_is_found(text: str) -> None:
    if GUARDED in names_that_parsers_take(text):
        assert held_calls(text)


json_names = st.sampled_from([GUARDED, "search", "Send_Email", "x"])
json_keys = st.sampled_from([*NAME_KEYS, *INPUT_KEYS, "name", "a", "note", "type"])
json_values = st.recursive(
    st.one_of(json_names, st.text(max_size=6), st.integers(), st.none()),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(json_keys, inner, max_size=4)
    ),
    max_leaves=12,
)


def escaped(text: str, every: int) -> str:
    """Write every n-th letter of the strings in a JSON text as an escape."""
    letters = 0

    def one(match: re.Match[str]) -> str:
        nonlocal letters
        letters += not match[0].startswith("\\")
        return match[0] if match[0][0] == "\\" or letters % every else f"\\u{ord(match[0]):04x}"

    return re.sub(
        r'"(?:[^"\\]|\\.)*"',
        lambda string: re.sub(r"\\u[0-9a-f]{4}|\\.|[A-Za-z_]", one, string[0]),
        text,
    )


@pytest.mark.slow
@settings(max_examples=200, deadline=None)
@given(json_values, st.integers(1, 9), st.sampled_from([None, 2]), st.sampled_from(["", "x: "]))
def test_a_call_in_json_is_found_however_it_is_written(
    value: object, every: int, indent: int | None, before: str
) -> None:
    plain = json.dumps({"answer": value}, indent=indent)
    text = escaped(plain, every) if every < 9 else plain
    assert json.loads(text) == {"answer": value}

    found = held_calls(before + text)

    names = [name for name in names_in(value) if isinstance(name, str)]
    if any(could_hold(name) for name in names):
        assert found
        assert found[0].start <= len(before)


# --- what flows, and what it costs -------------------------------------------------------------

PROSE = (
    "To take action, an actor acts: in tools we trust, and in names; a functional, commanding"
    " tone (or 2 of them) helps. C'est l'action! 3 * 4 < 13, x > y, [1], `code`, {braces}."
    " It's \\frac.\n"
)


def test_prose_is_kept_back_by_a_few_characters_at_most() -> None:
    screen = TextScreen(anything)

    for length, safe in enumerate(feed(screen, iter(PROSE * 3)), start=1):
        assert length - safe <= len("function call ")

    screen.finish()
    assert screen.safe == len(PROSE * 3)


def test_a_line_after_a_colon_goes_out_once_it_is_no_name() -> None:
    screen = TextScreen(could_hold)

    screen.feed("A call to action: buy n")
    assert screen.safe == len("A call to ")
    screen.feed("ow!\n")
    assert screen.safe == len("A call to action: buy now!\n")


def test_an_object_is_kept_until_it_closes_since_an_action_may_come_last() -> None:
    text = 'Here: {"answer": [1, {"b": "}"}], "c": "d"} That is it.'
    screen = TextScreen(could_hold)

    safe = list(feed(screen, iter(text)))

    closes = text.index("} That")
    assert set(safe[6:closes]) == {6}
    assert safe[closes] == closes + 1
    assert safe[-1] == len(text)


@pytest.mark.parametrize(
    "text", ["{ return x; }", "{a}", "{1, 2}", "{ }", "\\frac{a}{b}", "{see {here}", "{... "]
)
def test_a_brace_that_opens_no_object_keeps_nothing(text: str) -> None:
    screen = TextScreen(anything)

    screen.feed(f"{text} ~ ")

    assert screen.safe == len(text) + 3


def test_what_is_open_is_read_in_larger_pieces_and_let_go_in_time() -> None:
    text = '{"rows": [' + '{"k": 1}, ' * 500 + "0]} ~"
    screen = TextScreen(could_hold)

    safe = list(feed(screen, iter(text)))

    assert safe[-4:] == [0, len(text) - 2, len(text) - 1, len(text)]


def test_a_json_answer_without_a_tool_asks_nobody_even_if_all_tools_are_guarded() -> None:
    row = {"id": 1, "name": "Alice", "note": "It's {fine}", "tags": ["a"], "sub": {"input": 2}}
    text = json.dumps({"rows": [row] * 1000})
    screen = TextScreen(anything)

    screen.feed(text)
    screen.finish()

    assert len(text) > 80_000
    assert screen.safe == len(text)
    assert find_calls(text) == ()


def test_a_long_object_flows_after_its_bound_but_a_name_in_it_does_not() -> None:
    long = '{"input": "' + "x" * textobjects.OBJECT_CHARS_MAX
    text = long + '", "action": "send_email"}'
    screen = TextScreen(could_hold)

    screen.feed(long)
    screen.feed("yy")
    assert screen.safe > textobjects.OBJECT_CHARS_MAX
    screen.feed(text[len(long) + 2 :])
    screen.finish()

    assert screen.safe == text.index("action", 20) == held_start(text)


def test_a_name_in_an_object_that_was_too_long_to_be_kept_counts_without_company() -> None:
    filler = "x" * textobjects.OBJECT_CHARS_MAX
    short = '{"name": "send_email", "x": ""}'
    long = f'{{"name": "send_email", "x": "{filler}"}}'

    assert held_calls(short) == []
    assert [call.start for call in held_calls(long)] == [0]
    check_screen(long, [20, 100])


def test_after_a_held_call_nothing_is_read_any_more() -> None:
    screen = TextScreen(could_hold)

    screen.feed("ok Action: send_email\n")
    screen.feed("x" * 100)
    screen.finish()

    assert screen.safe == 3


FLOOD_CHARS = 200_000
FLOODS = [  # (what comes once, what then comes again and again)
    ("", PROSE),
    ("", json.dumps({"id": 1, "title": "It's", "x": {"y": 1.5, "name": "a"}, "input": "b"})),
    ("Action", " "),
    ("Action", "\u0661 "),
    ("Action:", "\n"),
    ("Action:", "1. "),
    ("Action: /*", "*"),
    ("Action: send_email\nAction Input:", "\n"),
    ("Action: send_email(", "("),
    ("Action: send_email\nAction Input: {", "[']"),
    ("<send_email>", "\n"),
    ("<function=send_email>", "</a>"),
    ('{"action": "send_email", "args": ', '["'),
    ("", ":"),
    ("", "action:"),
    ("", "tool ["),
    ("", "{"),
    ("", "{ "),
    ("{", " "),
    ("", '{"a":'),
    ("", '{"action": "x", "args": '),
    ("", '{"name": "send_email", "x": '),
    ("", "["),
    ("", "[ "),
    ("", "`"),
    ("```", "["),
    ("", "<a_"),
    ("", "<tool "),
    ("", "\\"),
    ("", "\\u0061"),
    ('{"a": "', "\\"),
    ("{'a': ", "' "),
    ("", "a"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("once", "again"), FLOODS)
def test_reading_costs_no_more_than_some_times_the_length(once: str, again: str) -> None:
    text = (once + again * (FLOOD_CHARS // len(again)))[:FLOOD_CHARS]
    screen = TextScreen(could_hold)
    began_s = time.process_time()

    for at in range(0, len(text), 4):
        screen.feed(text[at : at + 4])
    screen.finish()
    start = held_start(text)

    assert screen.safe == start
    # Up to 2 s where the machine is slow and busy; if it grew with the square, minutes.
    assert time.process_time() - began_s < 15
