"""What the model is told about refused calls, and later requests: beyond the contract."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.base import Round, Splice, Tool
from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.ground.canonical import JSON, canonical, encode, parse
from agentstate.ground.errors import BadRequest
from tests.dialects.samples import chat_body, chat_message

CHAT = OpenAIChat()
SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "Write to them."}
LATER = {"role": "user", "content": "And now?"}
REQUEST: dict[str, Any] = {"model": "m", "messages": [SYSTEM, USER]}


def call(call_id: str | None, name: str = "f", arguments: Any = "{}", **fields: Any) -> Any:
    """Return a whole call."""
    own = {} if call_id is None else {"id": call_id}
    function = {"name": name, "arguments": arguments}
    return {**own, "type": "function", "function": function, **fields}


def said(*calls: Any, **fields: Any) -> dict[str, Any]:
    """Return an assistant's message that calls tools."""
    return chat_message(**fields, **({"tool_calls": list(calls)} if calls else {}))


def answer(message: dict[str, Any]) -> bytes:
    """Return an answer with one choice."""
    return chat_body({"message": message, "finish_reason": "stop"})


def result(call_id: str, content: Any = "done") -> dict[str, Any]:
    """Return a tool's message."""
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def added(asked: Round, **request: Any) -> list[Any]:
    """Return the messages that going on adds."""
    made = CHAT.go_on({**REQUEST, **request}, asked)
    messages: Any = made["messages"]
    assert messages[:2] == [SYSTEM, USER]
    return list(messages[2:])


def splice(messages: list[Any], what: Splice) -> Any:
    """Return the messages of a request after splicing; None = there was no place."""
    body = {**REQUEST, "messages": messages}
    before = canonical(body)
    made = CHAT.spliced(body, what)
    assert canonical(body) == before
    return None if made is None else made["messages"]


# Tools


@pytest.mark.parametrize(
    ("fields", "tools"),
    [
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"a": 1}}}]},
         [Tool("f", {"a": 1}, False)]),
        ({"tools": [{"function": {"name": "f", "parameters": None}}]}, [Tool("f", None, False)]),
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, [Tool("f", {}, False)]),
        ({"tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}]},
         [Tool("$web_search", None, False)]),
        ({"tools": [{"type": "custom", "custom": {"name": "sql", "format": {"type": "text"}}}]},
         [Tool("sql", None, False)]),
        ({"tools": [{"type": "custom", "name": "sql"}]}, [Tool("sql", None, False)]),
        ({"functions": [{"name": "f", "parameters": {"a": 1}}, {}, None]},
         [Tool("f", {"a": 1}, False)]),
        ({"tools": [{"type": "browser_search"}]}, [Tool("browser_search", None, True)]),
        ({"tools": [{"type": "mcp", "server_label": "crm", "allowed_tools": ["find", 1]}]},
         [Tool("crm", None, True), Tool("crm.find", None, True)]),
        ({"tools": [{"type": "mcp"}]}, [Tool("mcp", None, True)]),
        ({"web_search_options": {}}, [Tool("web_search", None, True)]),
        ({"tools": [{"type": "custom"}, {"type": ["function"]}], "functions": "x"}, []),
    ],
)  # fmt: skip
def test_tools_are_told_with_their_schemas_and_where_they_run(
    fields: dict[str, JSON], tools: list[Tool]
) -> None:
    assert list(CHAT.tools(CHAT.read_ask({**REQUEST, **fields}))) == tools


# Going on


def test_the_models_message_goes_back_as_it_was_with_a_result_for_each_call() -> None:
    message = said(call("a"), call("b", x=1), reasoning_content="Hm.", x_unknown=[1])

    messages = added(Round(answer(message), {0: "no", 1: "never"}))

    assert messages == [message, result("a", "no"), result("b", "never")]
    assert json.loads(encode(messages)) == messages


def test_a_further_request_is_not_streamed() -> None:
    made = CHAT.go_on(
        {**REQUEST, "stream": True, "stream_options": {"include_usage": True}},
        Round(answer(said(call("a"))), {0: "no"}),
    )

    assert made.keys() == REQUEST.keys()


@pytest.mark.clients
def test_the_messages_of_a_further_request_are_as_the_openai_package_types_them() -> None:
    types = pytest.importorskip("openai.types.chat")
    pydantic = pytest.importorskip("pydantic")
    custom = {"id": "b", "type": "custom", "custom": {"name": "sql", "input": "x"}}

    messages = added(Round(answer(said(call(None), custom)), {0: "no", 1: "no"}))

    adapter = pydantic.TypeAdapter(types.ChatCompletionMessageParam)
    assert [adapter.validate_python(message)["role"] for message in messages] == [
        "assistant", "tool", "tool",
    ]  # fmt: skip


def test_calls_without_ids_get_ours_in_both_places() -> None:
    message = said(call(None), call("b"), call(""))

    messages = added(Round(answer(message), {0: "no", 1: "no", 2: "no"}))

    assert [each["id"] for each in messages[0]["tool_calls"]] == ["call_0", "b", "call_2"]
    assert [each["tool_call_id"] for each in messages[1:]] == ["call_0", "b", "call_2"]


def test_a_legacy_call_is_answered_by_its_name() -> None:
    message = said(function_call={"name": "f", "arguments": "{}"})

    assert added(Round(answer(message), {0: "no"})) == [
        message, {"role": "function", "name": "f", "content": "no"},
    ]  # fmt: skip


def test_a_spelled_call_is_answered_by_an_observation() -> None:
    message = said(content="Action: send_email")

    assert added(Round(answer({**message, "tool_calls": []}), {}, "A person refused.")) == [
        message, {"role": "user", "content": "Observation: A person refused."},
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "forced", "free"),
    [
        ("tool_choice", "required", "auto"),
        ("tool_choice", "any", "auto"),
        ("tool_choice", {"type": "function", "function": {"name": "f"}}, "auto"),
        ("tool_choice", {"type": "allowed_tools",
                         "allowed_tools": {"mode": "required", "tools": [1]}},
         {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [1]}}),
        ("tool_choice", "auto", "auto"),
        ("tool_choice", "none", "none"),
        ("tool_choice", None, None),
        ("function_call", {"name": "f"}, "auto"),
    ],
)  # fmt: skip
def test_no_call_is_forced_once_more(key: str, forced: JSON, free: JSON) -> None:
    asked = Round(answer(said(call("a"))), {0: "no"})

    assert CHAT.go_on({**REQUEST, key: forced}, asked)[key] == free


@pytest.mark.parametrize(
    ("request_", "asked", "says"),
    [
        ({**REQUEST, "n": 2}, Round(answer(said(call("a"))), {0: "no"}), "several choices"),
        ({"model": "m"}, Round(answer(said(call("a"))), {0: "no"}), "messages"),
        (REQUEST, Round(answer(said(call("a"), call("b"))), {0: "no"}), "call 1 "),
        (REQUEST, Round(answer(said(content="Hi")), {}), "no tool"),
        (REQUEST, Round(b'{"choices":[]}', {0: "no"}), "no choice"),
        (REQUEST, Round(b"{", {0: "no"}), "no JSON"),
    ],
)
def test_where_nothing_can_go_on_it_says_why(request_: Any, asked: Round, says: str) -> None:
    with pytest.raises(BadRequest, match=says):
        CHAT.go_on(request_, asked)


def test_numbers_of_the_request_survive() -> None:
    request: Any = parse(b'{"model":"m","messages":[{"role":"user","n":1.50}],"temperature":0.0}')

    made = encode(CHAT.go_on(request, Round(answer(said(content="Hi")), {}, "no")))

    assert b'"n":1.50' in made
    assert b'"temperature":0.0' in made


# Splicing: what was delivered

ASKED = Round(answer(said(call("a", "send_email"), content="I write.")), {0: "no"})
FOLLOWS = said(content="Then not.", reasoning_content="Hm.")
GONE_ON = Splice(REQUEST, (ASKED,), answer(said(content="I write.\n\nThen not.")), answer(FOLLOWS))
GONE_ON_MESSAGES = [
    SYSTEM, USER, said(call("a", "send_email"), content="I write."), result("a", "no"), FOLLOWS,
]  # fmt: skip


@pytest.mark.parametrize(
    "heard",
    [
        {"role": "assistant", "content": "I write.\n\nThen not."},
        {"role": "assistant", "content": " I write.\n\nThen not.\n", "name": "x", "audio": None},
        {"content": [{"type": "text", "text": "I write.\n\n"}, {"type": "text",
         "text": "Then not."}], "role": "assistant", "tool_calls": [], "function_call": None},
    ],
)  # fmt: skip
def test_an_answer_is_known_whatever_agents_drop_or_add(heard: Any) -> None:
    assert splice([SYSTEM, USER, heard, LATER], GONE_ON) == [*GONE_ON_MESSAGES, LATER]


@pytest.mark.parametrize(
    "messages",
    [
        [SYSTEM, USER],
        [SYSTEM, USER, {"role": "assistant", "content": "Then not."}],
        [SYSTEM, USER, {"role": "user", "content": "I write.\n\nThen not."}],
        [SYSTEM, USER, {**said(call("z")), "content": "I write.\n\nThen not."}],
        [SYSTEM, LATER, {"role": "assistant", "content": "I write.\n\nThen not."}],
        [USER, {"role": "assistant", "content": "I write.\n\nThen not."}],
        ["x", None, 1],
        [],
    ],
)
def test_what_does_not_go_on_from_it_is_left_alone(messages: list[Any]) -> None:
    assert splice(messages, GONE_ON) is None


def test_a_prefix_is_the_same_though_marks_wander_and_tools_ran_again() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    text = {"type": "text", "text": "Look."}
    mark = {"cache_control": {"type": "ephemeral"}}
    before: list[Any] = [
        USER, {"role": "user", "content": [{**text, **mark}, {**image, **mark}]},
        said(call("t")), result("t", "at 12:01"), {"role": "user", "content": "Go."},
    ]  # fmt: skip
    now = [
        USER, {"role": "user", "content": [text, image]},
        {"role": "assistant", "content": "", "tool_calls": [call("t")]}, result("t", "at 12:07"),
        {"role": "user", "content": [{"type": "text", "text": "Go.", **mark}]},
    ]  # fmt: skip
    what = Splice(
        {**REQUEST, "messages": before}, GONE_ON.rounds, GONE_ON.delivered, GONE_ON.follows
    )
    heard = {"role": "assistant", "content": "I write.\n\nThen not."}

    assert splice([*now, heard, LATER], what) == [*now, *GONE_ON_MESSAGES[2:], LATER]
    for at, other in ((0, SYSTEM), (1, USER), (2, said(call("u"))), (3, result("u"))):
        assert splice([*now[:at], other, *now[at + 1 :], heard, LATER], what) is None


def test_calls_that_followed_stay_as_the_agent_has_them() -> None:
    follows = said(call(None, "g", '{"n": 1.50}'), content="So.", reasoning_content="Hm.")
    delivered = said(call(None, "g", '{"n": 1.50}'), content="I write.\n\nSo.")
    what = Splice(REQUEST, (ASKED,), answer(delivered), answer(follows))
    # Some agents make ids of their own, and write JSON their own way.
    own = call("own", "g", '{"n":1.5}')
    heard = {"role": "assistant", "content": "I write.\n\nSo.", "tool_calls": [own]}

    assert splice([SYSTEM, USER, heard, result("own")], what) == [
        *GONE_ON_MESSAGES[:4], {**follows, "tool_calls": [own]}, result("own"),
    ]  # fmt: skip


def test_a_call_that_is_another_one_is_no_anchor() -> None:
    delivered = said(call("g", "g", '{"n":1}'), content="So.")
    what = Splice(REQUEST, (ASKED,), answer(delivered), answer(delivered))
    for other in (call("h", "g", '{"n":1}'), call("g", "h", '{"n":1}'), call("g", "g", '{"n":2}'),
                  call("g", "g", "{")):  # fmt: skip
        assert splice([SYSTEM, USER, said(other, content="So."), result("g")], what) is None


# Splicing: between siblings

SIBLINGS = said(call("a", "f"), call("b", "send_email"), call("c", "g"), call("d", "send_email"),
                content="I do.")  # fmt: skip
LEFT = said(call("a", "f"), call("c", "g"), content="I do.")
BESIDE = Splice(REQUEST, (Round(answer(SIBLINGS), {1: "no b", 3: "no d"}),), answer(LEFT), None)


def test_refused_calls_go_back_between_the_agents_own() -> None:
    edited = [call("a", "f", '{"edited":1}'), call("c", "g")]
    delivered = said(*edited, content="I do.")
    what = Splice(REQUEST, BESIDE.rounds, answer(delivered), None)
    heard = {"role": "assistant", "content": "I do.", "name": "x", "tool_calls": edited}

    assert splice([SYSTEM, USER, heard, result("a"), result("c"), LATER], what) == [
        SYSTEM, USER,
        {**heard, "tool_calls": [edited[0], call("b", "send_email"), edited[1],
                                 call("d", "send_email")]},
        result("b", "no b"), result("d", "no d"), result("a"), result("c"), LATER,
    ]  # fmt: skip


def test_a_refused_call_without_an_id_gets_ours_beside_ids_the_agent_made() -> None:
    what = Splice(
        REQUEST, (Round(answer(said(call(None), call(None, "send_email"))), {1: "no"}),),
        answer(said(call(None))), None,
    )  # fmt: skip

    assert splice([SYSTEM, USER, said(call("own")), result("own")], what) == [
        SYSTEM, USER, said(call("own"), call(None, "send_email", id="call_1")),
        result("call_1", "no"), result("own"),
    ]  # fmt: skip


def test_a_refused_legacy_call_goes_back_beside_the_others() -> None:
    legacy = {"name": "send_email", "arguments": "{}"}
    what = Splice(
        REQUEST, (Round(answer({**said(call("a")), "function_call": legacy}), {1: "no"}),),
        answer(said(call("a"))), None,
    )  # fmt: skip

    assert splice([SYSTEM, USER, said(call("a")), result("a")], what) == [
        SYSTEM, USER, {**said(call("a")), "function_call": legacy},
        {"role": "function", "name": "send_email", "content": "no"}, result("a"),
    ]  # fmt: skip


def test_rounds_before_go_in_front_and_their_text_out_of_the_agents() -> None:
    delivered = said(call("a", "f"), call("c", "g"), content="I write.\n\nI do.")
    what = Splice(REQUEST, (ASKED, *BESIDE.rounds), answer(delivered), None)

    made = splice([SYSTEM, USER, delivered, result("a"), result("c")], what)

    assert made == [
        *GONE_ON_MESSAGES[:4], SIBLINGS,
        result("b", "no b"), result("d", "no d"), result("a"), result("c"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    "before",
    [
        [{"role": "system", "content": "It is 12:07."}, USER],  # a clock
        [{"role": "user", "content": "Earlier."}, {"role": "assistant", "content": "Yes."}, USER],
        [USER],  # what was before is cut off
    ],
)
def test_calls_are_found_by_their_ids_where_what_was_before_has_changed(before: list[Any]) -> None:
    made = splice([*before, LEFT, result("a"), result("c"), LATER], BESIDE)

    told = [result("b", "no b"), result("d", "no d")]
    assert made == [*before, SIBLINGS, *told, result("a"), result("c"), LATER]


def test_ids_that_other_conversations_have_as_well_are_no_anchor() -> None:
    # Models that say call_0 every time: another agent of the session, with another task.
    other = [SYSTEM, {"role": "user", "content": "Something else."}]
    assert splice([*other, LEFT, result("a")], BESIDE) is None
    # The same task, but at another place of it.
    assert splice([SYSTEM, USER, said(call("z")), result("z"), LEFT, result("a")], BESIDE) is None
    # The same tool's result before, but not the same task.
    first = said(call("z"))
    asked = {**REQUEST, "messages": [SYSTEM, USER, first, result("z", "1")]}
    what = Splice(asked, BESIDE.rounds, BESIDE.delivered, None)
    clock = {"role": "system", "content": "12:07"}
    assert splice([clock, USER, first, result("z", "2"), LEFT, result("a")], what) is not None
    assert splice([*other, first, result("z", "2"), LEFT, result("a")], what) is None


def test_calls_without_ids_are_no_anchor() -> None:
    what = Splice(
        REQUEST, (Round(answer(said(call(None), call(None, "send_email"))), {1: "no"}),),
        answer(said(call(None))), None,
    )  # fmt: skip
    clock = {"role": "system", "content": "12:07"}

    assert splice([clock, USER, said(call("own")), result("own")], what) is None


def test_of_two_places_neither_is_taken() -> None:
    clock = {"role": "system", "content": "12:07"}
    turn = [USER, LEFT, result("a"), result("c")]

    assert splice([clock, *turn, *turn], BESIDE) is None
    assert splice([clock, *turn, LATER], BESIDE) is not None


def test_what_was_edited_by_hand_is_no_anchor() -> None:
    clock = {"role": "system", "content": "12:07"}
    for calls in ([call("a", "f")], [call("a", "f"), call("c", "g"), call("x")],
                  [call("a", "f"), call("c", "other")]):  # fmt: skip
        assert splice([clock, USER, said(*calls), result("a")], BESIDE) is None


def test_splices_go_into_each_other_the_last_one_first() -> None:
    heard = {"role": "assistant", "content": "I write.\n\nThen not."}
    second_request = {**REQUEST, "messages": [SYSTEM, USER, heard, LATER]}
    second = Splice(second_request, BESIDE.rounds, BESIDE.delivered, None)
    messages = [SYSTEM, USER, heard, LATER, LEFT, result("a"), result("c")]

    made = splice(splice(messages, second), GONE_ON)

    assert made == [
        *GONE_ON_MESSAGES, LATER, SIBLINGS,
        result("b", "no b"), result("d", "no d"), result("a"), result("c"),
    ]  # fmt: skip


def test_an_observation_goes_between_what_was_spelled_and_what_followed() -> None:
    spelled = said(content="Thought: x\nAction: send_email")
    what = Splice(
        REQUEST, (Round(answer(spelled), {}, "A person refused."),),
        answer(said(content="Thought: x\n\nThen not.")), answer(said(content="Then not.")),
    )  # fmt: skip
    heard = {"role": "assistant", "content": "Thought: x\n\nThen not."}

    assert splice([SYSTEM, USER, heard, LATER], what) == [
        SYSTEM, USER, spelled, {"role": "user", "content": "Observation: A person refused."},
        said(content="Then not."), LATER,
    ]  # fmt: skip


def test_what_cannot_be_read_has_no_place() -> None:
    heard = {"role": "assistant", "content": "I write.\n\nThen not."}
    for odd in (
        Splice(REQUEST, (ASKED,), b"{", None),
        Splice(REQUEST, (ASKED,), GONE_ON.delivered, b"{"),
        Splice(REQUEST, (Round(b"{", {0: "no"}),), GONE_ON.delivered, GONE_ON.follows),
        Splice({}, (ASKED,), GONE_ON.delivered, GONE_ON.follows),
    ):
        assert splice([SYSTEM, USER, heard], odd) is None
