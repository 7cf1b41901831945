"""Messages of chat requests, into turns and out of them, held against OpenAI's schema."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.call_arguments import unwrap_free_text
from agentstate.dialects.neutral import (
    Audio,
    Called,
    Document,
    Image,
    Item,
    Receiver,
    Refused,
    Result,
    Text,
    Turn,
    made_id,
    map_ids,
    safe_id,
)
from agentstate.dialects.openai_chat_messages import read_turns, write_messages
from agentstate.ground.canonical import encode, parse
from tests.helpers.openai_requests import check_chat_request

MARK = {"type": "ephemeral", "ttl": "1h"}
PNG = "iVBORw0KGgo="
CALL = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1.50}'}}
CALLED = Called("c1", "f", '{"a":1.50}')


def read(*messages: Any) -> tuple[tuple[Turn, ...], list[str]]:
    unsaid: list[str] = []
    value = parse(json.dumps(messages).encode())
    return read_turns(value, unsaid), unsaid


def read_items(message: Any) -> tuple[tuple[Item, ...], list[str]]:
    (turn,), unsaid = read(message)
    return turn.items, unsaid


def write(*turns: Turn, provider: str = "openai") -> tuple[list[Any], list[str]]:
    dropped: list[str] = []
    receiver = Receiver(provider, "m")
    messages = json.loads(encode(write_messages(turns, receiver, dropped)))
    check_chat_request({"model": "m", "messages": messages or [_USER]})
    return messages, dropped


_USER = {"role": "user", "content": "q"}
ASKED = Turn("user", (Text("q"),))


def user(*items: Item) -> Turn:
    return Turn("user", items)


def model(*items: Item) -> Turn:
    return Turn("assistant", items)


# Reading


@pytest.mark.parametrize(
    ("message", "turn"),
    [
        ({"role": "user", "content": "q"}, Turn("user", (Text("q"),))),
        ({"role": "system", "content": "s", "name": "n"}, Turn("system", (Text("s"),), "n")),
        ({"role": "developer", "content": "s"}, Turn("system", (Text("s"),))),
        ({"role": "user", "content": "a\u2028\ud83d"}, Turn("user", (Text("a\u2028\ud83d"),))),
        ({"role": "user", "content": ""}, Turn("user", ())),
        ({"role": "assistant", "content": None}, Turn("assistant", ())),
        ({"role": "user", "content": ["a", {"type": "text", "text": ""}]},
         Turn("user", (Text("a"),))),
        ({"role": "assistant", "content": None, "refusal": "No."},
         Turn("assistant", (Refused("No."),))),
        ({"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
         Turn("assistant", (Refused("No."),))),
        ({"role": "assistant", "content": "a", "tool_calls": [CALL], "refusal": None,
          "annotations": [], "audio": None, "function_call": None},
         Turn("assistant", (Text("a"), CALLED))),
    ],
)  # fmt: skip
def test_a_message_is_a_turn(message: Any, turn: Turn) -> None:
    assert read(message) == ((turn,), [])


@pytest.mark.parametrize(
    ("part", "item"),
    [
        ({"type": "text", "text": "a", "cache_control": MARK}, Text("a", MARK)),
        ({"type": "text", "text": "a", "prompt_cache_breakpoint": {"mode": "explicit"}},
         Text("a", {"type": "ephemeral"})),
        ({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
         Image(PNG, "image/png")),
        ({"type": "image_url", "image_url": {"url": f"DATA:image/png;x=1;base64,{PNG}",
                                             "detail": "low"}},
         Image(PNG, "image/png", detail="low")),
        ({"type": "image_url", "image_url": {"url": "https://a/b,c.png"}},
         Image(url="https://a/b,c.png")),
        ({"type": "image_url", "image_url": "https://a/b"}, Image(url="https://a/b")),
        ({"type": "image_url", "image_url": {"url": "data:image/svg+xml,%3Csvg/%3E"}},
         Image(url="data:image/svg+xml,%3Csvg/%3E")),
        ({"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}},
         Audio("UklG", "mp3")),
        ({"type": "file", "file": {"file_data": "data:application/pdf;base64,JVBE",
                                   "filename": "a.pdf"}},
         Document("JVBE", "application/pdf", name="a.pdf")),
        ({"type": "file", "file": {"file_data": "JVBE"}}, Document("JVBE", "application/pdf")),
    ],
)  # fmt: skip
def test_a_part_is_an_item(part: Any, item: Item) -> None:
    assert read_items({"role": "user", "content": [part]}) == ((item,), [])


@pytest.mark.parametrize(
    ("message", "unsaid"),
    [
        ({"role": "user", "content": ["a", {"type": "file", "file": {"file_id": "f_1"}}]},
         ["messages[0].content[1]"]),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {}}]},
         ["messages[0].content[0]"]),
        ({"role": "user", "content": [{"type": "odd"}, 1]},
         ["messages[0].content[0]", "messages[0].content[1]"]),
        ({"role": "user", "content": {"type": "text"}}, ["messages[0].content"]),
        ({"role": "user", "content": [{"type": "text", "text": "a", "odd": 1}]},
         ["messages[0].content[0].odd"]),
        ({"role": "user", "content": [{"type": "input_audio", "input_audio": {"data": "U"},
                                       "cache_control": MARK}]},
         ["messages[0].content[0].cache_control"]),
        ({"role": "assistant", "content": "a", "prefix": True}, ["messages[0].prefix"]),
        ({"role": "assistant", "audio": {"id": "a_1"}}, ["messages[0].audio"]),
        ({"role": "assistant", "content": "a", "reasoning_content": "r", "reasoning": "r"},
         ["messages[0]: thinking", "messages[0]: thinking"]),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": []}, "a"]},
         ["messages[0]: thinking"]),
        ({"role": "assistant", "tool_calls": [{"type": "odd", "odd": {}}]},
         ["messages[0].tool_calls[0]"]),
        ({"role": "assistant", "tool_calls": [{**CALL, "index": 0, "extra_content": {"g": 1}}]},
         ["messages[0]: thinking"]),
        ({"role": "assistant", "tool_calls": {"id": "c1"}}, ["messages[0].tool_calls"]),
        ({"role": "assistant", "tool_calls": [{**CALL, "odd": 1}]},
         ["messages[0].tool_calls[0].odd"]),
        ({"role": "user", "content": "", "cache_control": MARK}, ["messages[0].cache_control"]),
    ],
)  # fmt: skip
def test_what_has_no_place_is_named(message: Any, unsaid: list[str]) -> None:
    assert read(message)[1] == unsaid


@pytest.mark.parametrize("message", [{"role": "odd", "content": "a"}, {"content": "a"}])
def test_a_message_of_nobody_is_named(message: Any) -> None:
    assert read(_USER, message) == ((ASKED,), ["messages[1]"])


def test_system_messages_stay_where_they_are() -> None:
    roles = ("system", "developer", "user", "system", "user")

    turns, _ = read(*({"role": role, "content": role} for role in roles))

    assert [turn.role for turn in turns] == ["system", "system", "user", "system", "user"]


def test_a_result_is_what_the_user_says() -> None:
    turns, unsaid = read(
        {"role": "assistant", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "5C", "name": "f"},
    )

    assert turns[1] == user(Result("c1", (Text("5C"),), name="f"))
    assert unsaid == []


def test_a_marker_on_a_message_goes_to_its_last_item() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]

    assert read_items({"role": "system", "content": parts, "cache_control": MARK})[0] == (
        Text("a"), Text("b", MARK),
    )  # fmt: skip
    assert read_items({"role": "assistant", "tool_calls": [CALL], "cache_control": MARK})[0] == (
        Called("c1", "f", '{"a":1.50}', cache=MARK),
    )
    assert read_items(
        {"role": "tool", "tool_call_id": "c1", "content": "5C", "cache_control": MARK}
    )[0] == (Result("c1", (Text("5C"),), cache=MARK),)


def test_a_marker_of_its_own_is_nearer() -> None:
    own = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}

    assert read_items({"role": "user", "content": [own], "cache_control": MARK})[0] == (
        Text("a", {"type": "ephemeral"}),
    )


@pytest.mark.parametrize(
    ("arguments", "text"),
    [("", ""), (None, ""), ("{", "{"), ({"a": 2512292042121000001, "b": 1.5},
                                        '{"a":2512292042121000001,"b":1.5}')],
)  # fmt: skip
def test_arguments_are_text_to_the_letter(arguments: Any, text: str) -> None:
    call = {"id": "c1", "function": {"name": "f", "arguments": arguments}}

    assert read_items({"role": "assistant", "tool_calls": [call]})[0] == (Called("c1", "f", text),)


def test_a_custom_call_and_its_result_are_known() -> None:
    call = {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": "a\u2028"}}

    turns, _ = read(
        {"role": "assistant", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
    )

    assert turns[0].items == (Called("c1", "patch", "a\u2028", is_custom=True),)
    assert turns[1].items == (Result("c1", (Text("done"),), is_custom=True),)


def test_calls_without_ids_have_those_of_their_results() -> None:
    nameless = {"id": "", "type": "function", "function": {"name": "f", "arguments": "{}"}}

    turns, unsaid = read(
        _USER,
        {"role": "assistant", "tool_calls": [CALL, nameless]},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "tool", "tool_call_id": "", "content": "2"},
        {"role": "assistant", "content": None, "function_call": {"name": "g", "arguments": "{}"}},
        {"role": "function", "name": "g", "content": "3"},
    )

    first, second = made_id("history", 1, 1), made_id("history", 4, 0)
    assert [item.call_id for turn in turns for item in turn.items if isinstance(item, Called)] == [
        "c1", first, second,
    ]  # fmt: skip
    assert [item.call_id for turn in turns for item in turn.items if isinstance(item, Result)] == [
        "c1", first, second,
    ]  # fmt: skip
    assert unsaid == []


# Writing


def test_a_conversation_to_the_letter() -> None:
    messages, dropped = write(
        Turn("system", (Text("s"),)),
        Turn("user", (Text("q"),), "ann"),
        model(Text("a"), CALLED, Called("c2", "g", "")),
        user(Result("c2", (Text("2"),)), Result("c1", (Text("1"),)), Text("and?")),
        Turn("system", (Text("t"),)),
        model(Text("b")),
    )

    assert messages == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "q", "name": "ann"},
        {
            "role": "assistant",
            "content": "a",
            "tool_calls": [
                CALL,
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": ""}},
            ],
        },
        {"role": "tool", "tool_call_id": "c2", "content": "2"},
        {"role": "tool", "tool_call_id": "c1", "content": "1"},
        {"role": "user", "content": "and?"},
        {"role": "system", "content": "t"},
        {"role": "assistant", "content": "b"},
    ]
    assert dropped == []


def test_results_come_before_all_else_that_follows_their_calls() -> None:
    messages, _ = write(
        model(CALLED, Called("c2", "g", "{}")),
        Turn("system", (Text("s"),)),
        user(Text("a"), Result("c1", ())),
        user(Result("c2", (Text("2"),))),
    )

    assert [message["role"] for message in messages] == [
        "assistant", "tool", "tool", "system", "user",
    ]  # fmt: skip
    assert messages[1]["content"] == ""


def test_turns_of_the_model_after_a_call_are_one_message() -> None:
    messages, _ = write(
        model(Text("a")),
        model(CALLED),
        model(Called("c2", "g", "{}")),
        model(Text("b")),
        user(Result("c1", ()), Result("c2", ())),
    )

    assert [message["role"] for message in messages] == ["assistant", "assistant", "tool", "tool"]
    assert messages[1]["content"] == "b"
    assert [call["id"] for call in messages[1]["tool_calls"]] == ["c1", "c2"]


def test_calls_without_text_have_empty_content() -> None:
    assert write(model(CALLED))[0] == [{"role": "assistant", "content": "", "tool_calls": [CALL]}]


def test_a_turn_that_says_nothing_is_left_out_unless_it_is_the_users() -> None:
    assert write(model(), Turn("system", ()), user()) == ([{"role": "user", "content": ""}], [])


@pytest.mark.parametrize("provider", ["openai", "groq"])
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
def test_several_texts_are_parts_only_for_openai(role: Any, provider: str) -> None:
    ((message,), _) = write(Turn(role, (Text("a"), Text("b"))), provider=provider)

    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert message["content"] == (parts if provider == "openai" else "a\n\nb")


def test_what_a_user_shows_is_written_as_parts() -> None:
    ((message,), dropped) = write(
        user(
            Text("look"),
            Image(PNG, "image/png"),
            Image(url="https://a/b", detail="high"),
            Document("JVBE", "application/pdf", name="a.pdf"),
            Document("JVBE"),
            Document(text="t", name="notes"),
            Document(text="t"),
            Audio("UklG", "wav"),
        )
    )

    file = {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}
    assert message["content"] == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
        {"type": "image_url", "image_url": {"url": "https://a/b", "detail": "high"}},
        {"type": "file", "file": file},
        {"type": "file", "file": {**file, "filename": "document.pdf"}},
        {"type": "text", "text": "notes\n\nt"},
        {"type": "text", "text": "t"},
        {"type": "input_audio", "input_audio": {"data": "UklG", "format": "wav"}},
    ]
    assert dropped == []


@pytest.mark.parametrize(
    ("turn", "dropped"),
    [
        (Turn("system", (Text("s"), Image(PNG, "image/png"))), ["images"]),
        (model(Text("a"), Image(PNG, "image/png"), Audio("U", "wav")), ["images", "audio"]),
        (user(Text("a"), Document(url="https://a/b.pdf")), ["documents"]),
        (user(Text("a", MARK)), ["cache markers"]),
        (model(Called("c1", "f", "{}", cache=MARK), Text("b", MARK)), ["cache markers"]),
        (user(Result("c1", (Text("a", MARK),))), ["cache markers"]),
        (user(Text("a"), CALLED), ["tool calls"]),
        (model(Text("a"), Result("c1", ())), ["tool results"]),
    ],
)
def test_what_has_no_form_is_named(turn: Turn, dropped: list[str]) -> None:
    messages, named = write(turn)

    assert named == dropped
    assert len(messages) == 1


def test_pictures_in_results_follow_after_all_results() -> None:
    messages, dropped = write(
        model(CALLED, Called("c2", "g", "{}"), Called("c3", "g", "{}")),
        user(Result("c1", (Text("done"), Image(PNG, "image/png")))),
        user(Result("c2", (Document("JVBE", "application/pdf"),))),
        user(Result("c3", (Text("3"),)), Text("and?")),
    )

    assert messages[1:] == [
        {"role": "tool", "tool_call_id": "c1", "content": "done"},
        {
            "role": "tool",
            "tool_call_id": "c2",
            "content": "The result is in the user message below.",
        },
        {"role": "tool", "tool_call_id": "c3", "content": "3"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "From the result of the tool call c1:"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {"type": "text", "text": "From the result of the tool call c2:"},
                {
                    "type": "file",
                    "file": {
                        "filename": "document.pdf",
                        "file_data": "data:application/pdf;base64,JVBE",
                    },
                },
            ],
        },
        {"role": "user", "content": "and?"},
    ]
    assert dropped == []


@pytest.mark.parametrize(
    ("texts", "content"),
    [
        ((), "Error"),
        (("no file",), "Error: no file"),
        (("Error: no file",), "Error: no file"),
        ((" error 5",), " error 5"),
    ],
)
def test_a_failed_result_says_so(texts: tuple[str, ...], content: str) -> None:
    result = Result("c1", tuple(map(Text, texts)), is_error=True)

    messages, _ = write(model(CALLED), user(result))

    assert messages[1]["content"] == content


def test_ids_are_such_that_all_take_them_and_still_pair() -> None:
    odd = ("functions.f:0", "functions_f_0", "x" * 41)
    messages, _ = write(
        model(*(Called(each, "f", "{}") for each in odd)), user(*(Result(each, ()) for each in odd))
    )

    ids = [call["id"] for call in messages[0]["tool_calls"]]
    assert ids == [message["tool_call_id"] for message in messages[1:]]
    assert ids == [safe_id(each) for each in odd]
    assert len(set(ids)) == 3


def test_a_refusal_is_one_for_openai_and_words_for_others() -> None:
    refused = model(Refused("No."))

    assert write(refused)[0][0]["content"] == [{"type": "refusal", "refusal": "No."}]
    assert write(refused, provider="groq")[0][0]["content"] == "No."
    assert write(model(Text("a"), Refused("No.")))[0][0]["content"] == [
        {"type": "text", "text": "a"}, {"type": "text", "text": "No."},
    ]  # fmt: skip


def test_a_custom_call_is_a_function_where_there_is_nothing_else() -> None:
    called = model(Called("c1", "patch", 'a"\u2028', is_custom=True))

    assert write(called)[0][0]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "patch", "input": 'a"\u2028'}}
    ]
    ((message,), _) = write(called, provider="groq")
    function = message["tool_calls"][0]["function"]
    assert function["name"] == "patch"
    assert json.loads(function["arguments"]) == {"input": 'a"\u2028'}
    assert unwrap_free_text(function["arguments"]) == 'a"\u2028'


def test_for_gemini_the_first_of_parallel_calls_has_what_stands_for_a_signature() -> None:
    ((message,), _) = write(model(CALLED, Called("c2", "g", "{}")), provider="gemini")

    first, second = message["tool_calls"]
    signature = {"google": {"thought_signature": "skip_thought_signature_validator"}}
    assert first == {**CALL, "extra_content": signature}
    assert "extra_content" not in second


# Both ways

_TEXTS = st.text(st.sampled_from("ab \u2028\ud83d\U0001f600"), min_size=1, max_size=4).map(Text)
_SHOWN = st.one_of(
    _TEXTS,
    st.sampled_from(
        (
            Image(PNG, "image/png"),
            Image(url="https://a/b", detail="low"),
            Document("JVBE", "application/pdf", name="a.pdf"),
            Audio("UklG", "wav"),
        )
    ),
)


@st.composite
def _conversations(draw: Any) -> tuple[Turn, ...]:
    turns: list[Turn] = []
    for at in range(draw(st.integers(1, 3))):
        if draw(st.booleans()):
            turns.append(Turn("system", tuple(draw(st.lists(_TEXTS, min_size=1, max_size=2)))))
        turns.append(user(*draw(st.lists(_SHOWN, min_size=1, max_size=3))))
        calls = [
            Called(f"c{at}.{place}", "f", text.text, draw(st.booleans()))
            for place, text in enumerate(draw(st.lists(_TEXTS, max_size=2)))
        ]
        turns.append(model(*draw(st.lists(_TEXTS, min_size=1, max_size=2)), *calls))
        for call in calls:
            parts = tuple(draw(st.lists(_TEXTS, max_size=2)))
            turns.append(user(Result(call.call_id, parts, is_custom=call.is_custom)))
    return tuple(turns)


@given(_conversations())
@settings(derandomize=True, deadline=None, database=None, max_examples=60)
def test_what_the_form_can_say_comes_back(turns: tuple[Turn, ...]) -> None:
    messages, dropped = write(*turns)

    assert read(*messages) == (map_ids(turns, safe_id), [])
    assert dropped == []


@given(_conversations(), st.sampled_from(("openai", "groq", "gemini")))
@settings(derandomize=True, deadline=None, database=None, max_examples=40)
def test_a_history_that_grows_keeps_its_bytes(turns: tuple[Turn, ...], provider: str) -> None:
    grown = (*turns, ASKED) if turns[-1].role == "assistant" else (*turns, model(Text("z")))

    before, _ = write(*turns, provider=provider)
    after, _ = write(*grown, provider=provider)

    assert after[: len(before)] == before
