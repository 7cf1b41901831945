"""What announces a call, and how a name is read, is the same however much of the text is there."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.steps.textforms import (
    NAME_CHARS_MAX,
    Brace,
    Names,
    Word,
    WordFound,
    begun_at,
    find_word,
    read_fence,
    read_list,
    read_tag,
    read_value,
    unescape,
)

NOTHING = ()


def readings(value: Names | Brace | None) -> tuple[str, ...]:
    assert isinstance(value, Names)
    return value.readings


@pytest.mark.parametrize(
    ("stretch", "word", "start", "is_quoted"),
    [
        ("Action", Word.CALL, 0, False),
        ("so, ACTION 12 ", Word.CALL, 4, False),
        ("Reaction", Word.CALL, 2, False),
        ('{"action"', Word.CALL, 2, True),
        ("{'action' ", Word.CALL, 2, True),
        ('{\\"action\\"', Word.CALL, 3, True),
        ("**Tool Name**", Word.CALL, 2, False),
        ("toolName", Word.CALL, 0, False),
        ("tool-name", Word.CALL, 0, False),
        ("my_tool", Word.CALL, 3, False),
        ("Action\u0661\u2003", Word.CALL, 0, False),
        ('"function"', Word.QUOTED_CALL, 1, True),
        ("function", Word.QUOTED_CALL, 0, False),
        ("\u273fFUNCTION\u273f", Word.QUOTED_CALL, 1, True),
        ('"recipient_name"', Word.QUOTED_CALL, 1, True),
        ("name", Word.NAME, 0, False),
        ("Action Input 1", Word.INPUT, 7, False),
        ('"action_input"', Word.INPUT, 1, True),
        ("toolInput", Word.INPUT, 0, False),
        ('"\\u0061ction"', Word.CALL, 1, True),
        ('"\\u006e\\u0061\\u006d\\u0065" ', Word.NAME, 1, True),
        ('"actio\\x4E"', Word.CALL, 1, True),
        ("\u0130action", Word.CALL, 1, False),
    ],
)
def test_a_word_before_a_colon_is_found(
    stretch: str, word: Word, start: int, is_quoted: bool
) -> None:
    assert find_word(stretch) == WordFound(word, start, is_quoted)


@pytest.mark.parametrize(
    "stretch",
    ["", " ", "1", "actions", "username", "file_name", "user_\\u006eame", "Note", "act ion",
     "\\u006eam", "malfunction", "user input text"],
)  # fmt: skip
def test_other_words_announce_nothing(stretch: str) -> None:
    assert find_word(stretch) is None


@pytest.mark.parametrize(
    ("text", "begun"),
    [
        ("", 0), ("an act", 3), ("the Action", 4), ("the Action 1 ", 4), ("**Tool", 2),
        ("a tool na", 2), ("a tool_", 2), ("recipient_", 0), ("x na", 2), ("plain.", 6),
        ("by you", 6), ("ask ", 4), ('"\\u0061', 0), ("caf\u00e9 \\", 0), ("\\alpha x", 8),
        ('10 "\\', 4),
    ],
)  # fmt: skip
def test_where_a_word_may_have_begun_is_kept(text: str, begun: int) -> None:
    assert begun_at(text) == begun


@settings(max_examples=300, deadline=None)
@given(
    st.text(max_size=8) | st.text(st.sampled_from('01 "\\u_'), max_size=8),
    st.sampled_from(
        ["action", "Tool Name", "recipient_name", '"name"', "Action 1 Input 2", '"\\u0061ction"',
         '"\\u006e\\u0061\\u006d\\u0065"', "tool" + " " * 300, "\u0130tool\u0661"]
    ),
)  # fmt: skip
def test_no_part_of_a_word_is_let_go_before_its_colon(before: str, word: str) -> None:
    stretch = f"{before} {word}"
    found = find_word(stretch)
    assert found is not None

    for end in range(found.start + 1, len(stretch) + 1):
        assert begun_at(stretch[:end]) <= found.start


VALUES = [
    (" send_email\n", ("send_email",)),
    ("\n\n  **send_email**\n", ("send_email",)),
    (' "send_email", "x"', ("send_email",)),
    (" '\\u0073end_email'", ("send_email",)),
    (' \\"send_email\\", x', ("send_email",)),
    (' "Send Mail" x', ("Send Mail", "Send")),
    (" send_email to Bob.\n", ("send_email", "send_email to Bob")),
    (" SendEmail(x)\n", ("SendEmail", "Send_Email")),
    (" send\\_email\n", ("send_email", "send\\_email")),
    (" send_email2 \n", ("send_email2",)),
    (" _send\n", ("_send",)),
    (" 1) search\n", ("search",)),
    (" search[query]\n", ("search",)),
    (" search|lookup\n", ("search",)),
    (" searchAction 1 Input: x\n", ("search",)),
    (" // not this\n that\n", ("that",)),
    (" /* nor * this */ that\n", ("that",)),
    (" {that}\n", ("that",)),
    (" {{ that }}\n", ("that",)),
    (" `that` or so\n", ("that",)),
    (' "", x', NOTHING),
    (" '' }", NOTHING),
    (" [], x", NOTHING),
    (' ""that", x', ("that",)),
    (" null, x\n", NOTHING),
    (' "None"', NOTHING),
    (" Final Answer: that\n", NOTHING),
    (' "final_answer"', NOTHING),
    (" final_answers\n", ("final_answers",)),
    (" 42\n", NOTHING),
    (" ___\n", NOTHING),
    (' "' + "x" * (NAME_CHARS_MAX + 1) + '"', NOTHING),
    (" yes " + "x" * NAME_CHARS_MAX, ("yes",)),
]


@pytest.mark.parametrize(("text", "names"), VALUES)
def test_a_name_is_read_in_every_way_a_parser_reads_it(text: str, names: tuple[str, ...]) -> None:
    assert readings(read_value(text, 0, is_last=False)) == names


@pytest.mark.parametrize("text", [" send_email", ' "send_em', " ", "", " {a", " // x", "```js"])
def test_a_name_that_may_go_on_needs_more_text_if_there_is_any(text: str) -> None:
    assert read_value(text, 0, is_last=False) is None
    assert read_value(text, 0, is_last=True) is not None


@pytest.mark.parametrize("before", ["", " ", "\n```\n", "\n```json\n", " ```JSON [ [", " [\n "])
def test_an_object_is_told_by_its_brace(before: str) -> None:
    assert read_value(before + '{"a"', 0, is_last=False) == Brace(len(before), is_call=True)


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        ("<function=send_email>", ("send_email",)),
        ('<function = "send_email" >', ("send_email",)),
        ("<invoke name='send_email' id=1>", ("send_email",)),
        ('<invoke name="send_email">', ("send_email",)),
        ('<tool_use id="a" name="send_email">', ("send_email",)),
        ("<tool> send_email </tool>", ("send_email",)),
        ("<TOOL_NAME>\nsend_email</TOOL_NAME>", ("send_email",)),
        ("<tool_call>\nsend_email\n<arg_key>", ("send_email",)),
        ("<|tool_call_begin|>functions.a:0<|", ("functions.a:0",)),
        ("<\uff5ctool\u2581sep\uff5c>send_email\n", ("send_email",)),
        ("<execute_command>", ("execute_command",)),
        ("<execute_command />", ("execute_command",)),
        ("<tool_call><function=a>", NOTHING),
        ("<tool_result>", NOTHING),
        ("<my_tag a=1>", NOTHING),
        ("<|im_start|>", NOTHING),
        ("<div>", NOTHING),
        ("<tool is not closed\n", NOTHING),
        ("< b", NOTHING),
        ("</tool>", NOTHING),
        ("<<", NOTHING),
    ],
)
def test_a_tag_that_names_a_tool_is_read(tag: str, names: tuple[str, ...]) -> None:
    assert readings(read_tag(tag, 0, is_last=False)) == names


def test_a_tag_may_announce_an_object() -> None:
    assert read_tag('<tool_call>\n {"', 0, is_last=False) == Brace(13, is_call=True)


@pytest.mark.parametrize("tag", ["<", "<to", "<a_b", "<a_b /", "<tool", "<tool name='x'", "<tool>"])
def test_a_tag_that_is_not_whole_needs_more_text_if_there_is_any(tag: str) -> None:
    assert read_tag(tag, 0, is_last=False) is None
    assert readings(read_tag(tag, 0, is_last=True)) == NOTHING


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("```{", Brace(3, is_call=False)),
        ("````json\n[{", Brace(10, is_call=False)),
        ("```python\nx", Names((), 3, 3)),
        ("`{", Names((), 1, 1)),
        ("``x", Names((), 2, 2)),
    ],
)
def test_a_fence_announces_an_object_that_comes_first_in_it(
    text: str, value: Names | Brace
) -> None:
    assert read_fence(text, 0, is_last=False) == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("[{", Brace(1, is_call=False)),
        ("[ [\n{", Brace(4, is_call=False)),
        ("[1", Names((), 1, 1)),
        ("[ [x", Names((), 2, 2)),
        ('[TOOL_CALLS] [{"', Brace(14, is_call=True)),
        ("[TOOL_CALLS]a[ARGS]{}\n", Names(("a",), 13, 21)),
        ("[TOOL_CALLS]Action Input: [\n", Names((), 1, 1)),
        ('[TOOL_REQUEST]\n{"', Brace(15, is_call=True)),
    ],
)
def test_a_list_and_the_marks_of_chat_templates_are_read(text: str, value: Names | Brace) -> None:
    assert read_list(text, 0, is_last=False) == value


@pytest.mark.parametrize(
    ("text", "plain"),
    [("a\\u0062\\x63\\/", "abc/"), ('\\"\\n\\t', '"  '), ("\\\\u0061", "\\u0061"), ("\\", "\\")],
)
def test_escapes_are_read(text: str, plain: str) -> None:
    assert unescape(text) == plain


Reader = Callable[[str, bool], Names | Brace | None]
READERS: dict[str, Reader] = {
    ":": lambda text, is_last: read_value(text, 1, is_last=is_last),
    "<": lambda text, is_last: read_tag(text, 0, is_last=is_last),
    "`": lambda text, is_last: read_fence(text, 0, is_last=is_last),
    "[": lambda text, is_last: read_list(text, 0, is_last=is_last),
}
STARTS = [
    *(f":{text}" for text, _ in VALUES),
    "<function=a>", "<tool_call>\n```json\n{", "<a_b>", "```js\n[{", "[TOOL_CALLS]a{", "[ [{",
    "<tool name='x'>",
]  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(STARTS) | st.builds("".join, st.tuples(st.sampled_from(":<`["), st.text())),
    st.text(max_size=4) | st.sampled_from(["{", "\n", '"', "*/", "\\", "x: {", "}"]),
    st.data(),
)
def test_what_is_read_does_not_change_when_more_text_comes(
    text: str, more: str, data: st.DataObject
) -> None:
    read = READERS[text[0]]
    whole = text + more
    length = data.draw(st.integers(1, len(whole)))

    early = read(whole[:length], False)

    assert early is None or early == read(whole, False) == read(whole, True)
    assert read(whole, True) is not None
