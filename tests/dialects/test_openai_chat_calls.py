"""Tool calls of chat: the contract of the gate, and the streams of real upstreams."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from agentstate.dialects.openai_chat import OpenAIChat
from agentstate.dialects.openai_chat_calls import CallWalk
from agentstate.dialects.openai_chat_reading import read_chunk
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import ToolCall
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import Frame
from tests.dialects.contract import (
    CallsContract,
    GatedDialect,
    assemble,
    calls_by_place,
    calls_of,
    datas,
    every_change,
    expected,
    read_frames,
    steady,
)
from tests.dialects.samples import (
    CHAT_DONE,
    SAMPLES,
    call_delta,
    chat_body,
    chat_chunk,
    chat_message,
    chat_usage_chunk,
)
from tests.dialects.test_tool_deltas import STREAMS, piece
from tests.helpers.openai_schema import check
from tests.helpers.reading import read_events

CHAT = OpenAIChat()
EDITED = '{"to":"new@example.com","n":[1.5]}'


def call(number: int, name: str = "get_weather", arguments: str = '{"city":"Oslo"}') -> Any:
    """Return a whole call with an id of its own."""
    return {
        "id": f"call_id_{number}",
        "type": "function",
        "function": {"name": name, "arguments": arguments},
    }


def custom(number: int, text: str = "select 1;") -> Any:
    """Return a whole call of a custom tool."""
    return {"id": f"call_id_{number}", "type": "custom", "custom": {"name": "sql", "input": text}}


def calling(*calls: Any, index: int = 0, **fields: Any) -> dict[str, Any]:
    """Return a choice that calls tools."""
    message = chat_message(tool_calls=list(calls), **fields)
    return {"index": index, "message": message, "finish_reason": "tool_calls"}


LEGACY = {
    "message": chat_message(function_call={"name": "send_email", "arguments": '{"to":"a"}'}),
    "finish_reason": "function_call",
}


class TestCalls(CallsContract):
    """Chat keeps what the gate needs."""

    dialect: ClassVar[GatedDialect] = CHAT
    request: ClassVar[dict[str, JSON]] = {
        "model": "gpt-4o-mini",
        "messages": [
            {"role": "system", "content": "Be kind."},
            {"role": "user", "content": "Write to them."},
        ],
        "tools": [
            {"type": "function", "function": {"name": "get_weather", "parameters": {}}},
            {"type": "function", "function": {"name": "send_email"}},
            {"type": "custom", "custom": {"name": "sql"}},
        ],
        "temperature": 0,
    }
    tools = ("get_weather", "send_email", "sql")
    texts: ClassVar[dict[str, bytes]] = {
        "text": chat_body({"message": chat_message(content="Then not."), "finish_reason": "stop"}),
        "parts": chat_body(
            {
                "message": chat_message(content=[{"type": "text", "text": "Then not."}]),
                "finish_reason": "stop",
            }
        ),
    }
    text_streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        name: SAMPLES["openai_chat"].streams[name]
        for name in ("text", "usage", "one chunk", "unknown fields")
    }
    bodies: ClassVar[dict[str, bytes]] = {
        "one call": chat_body(calling(call(1))),
        "text and calls": chat_body(
            calling(call(1), call(2, "send_email"), call(3), content="I look.", x_unknown=1.50)
        ),
        "a custom call": chat_body(calling(call(1), custom(2))),
        "a legacy call": chat_body(LEGACY),
        "two choices": chat_body(
            calling(call(1), call(2)), calling(call(3), index=1, content="Or so.")
        ),
        "a choice without calls": chat_body(
            {"message": chat_message(content="Hi"), "finish_reason": "stop"},
            calling(call(1), index=1),
        ),
    }
    streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        **{
            name: SAMPLES["openai_chat"].streams[name]
            for name in ("tool calls", "legacy function call")
        },
        "text before, usage after": (
            chat_chunk({"role": "assistant", "content": ""}),
            chat_chunk({"content": "I look."}),
            chat_chunk({"tool_calls": [call_delta(0, "", "call_id_1", "get_weather")]}),
            chat_chunk({"tool_calls": [call_delta(0, '{"city":')]}),
            chat_chunk({"tool_calls": [call_delta(0, '"Oslo"}')]}),
            chat_chunk({"tool_calls": [call_delta(1, "", "call_id_2", "send_email")]}),
            chat_chunk({"tool_calls": [call_delta(1, "{}")]}),
            chat_chunk({"tool_calls": [call_delta(2, "{}", "call_id_3", "send_email")]}),
            chat_chunk({}, "tool_calls"),
            chat_usage_chunk(),
            CHAT_DONE,
        ),
        "all in one chunk": (
            chat_chunk(
                {"role": "assistant", "tool_calls": [call_delta(0, "{}", "call_id_1", "f"),
                                                     call_delta(1, "[", "call_id_2", "g")]},
                "tool_calls",
            ),
            CHAT_DONE,
        ),
        "text between and after": (
            chat_chunk({"role": "assistant", "content": "a"}),
            chat_chunk({"content": "b", "tool_calls": [call_delta(0, "{", "call_id_1", "f")]}),
            chat_chunk({"content": "c", "tool_calls": [call_delta(0, "}")]}),
            chat_chunk({"content": "d"}, "tool_calls"),
            CHAT_DONE,
        ),
    }  # fmt: skip
    plain_end = "stop"

    def heard(self, body: bytes) -> list[JSON]:
        """Return what an agent with the openai package appends."""
        answer: Any = parse(body)
        return [answer["choices"][0]["message"]]

    def heard_result(self, call: ToolCall, text: str) -> JSON:
        """Return a tool's message."""
        return {"role": "tool", "tool_call_id": call.call_id, "content": text}


# Streams as real upstreams send them


def stream_of(deltas: list[dict[str, Any]], *, in_one: bool = False) -> bytes:
    """Render pieces of calls as a stream, each in a chunk of its own or all in one."""
    lists = [deltas] if in_one else [[delta] for delta in deltas]
    chunks = [chat_chunk({"tool_calls": each}) for each in lists]
    return b"".join(
        (chat_chunk({"role": "assistant", "content": None}), *chunks,
         chat_chunk({}, "tool_calls"), CHAT_DONE)
    )  # fmt: skip


def changed(stream: bytes, changes: Changes) -> bytes:
    """Change a stream."""
    return CHAT.changed_events(read_frames(stream), changes)


def assert_reads(stream: bytes, changes: Changes) -> bytes:
    """Change a stream and check that it reads as the calls that are left; return it."""
    before = assemble(CHAT, stream)
    made = changed(stream, changes)
    after = assemble(CHAT, made)
    assert [calls_of(choice) for choice in after.choices] == [
        calls_of(expected(choice, changes)) for choice in before.choices
    ]
    return made


@pytest.mark.parametrize("in_one", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_calls_of_odd_streams_are_changed(name: str, in_one: bool) -> None:
    stream = stream_of(STREAMS[name][0], in_one=in_one)

    for changes in every_change(assemble(CHAT, stream), EDITED):
        assert_reads(stream, changes)


# With some pieces gone, what is left would be taken for something else.
TELLING: dict[str, tuple[list[dict[str, Any]], Changes]] = {
    "a name again, with neither index nor id": (
        [piece("{}", id="c1", name="f"), piece("{}", name="g"), piece("[]", name="f")],
        {(0, 1): None},
    ),
    "a name that comes last, at an index of its own": (
        [piece("", index=0, name="f"), piece("{}", index=1, name="g"), piece("{", index=2),
         piece("}", index=2, name="h")],
        {(0, 1): None},
    ),
    "a name again with its id, at the index of a call that is gone": (
        [piece("{", index=0, id="c1", name="f"), piece("{}", index=1, id="c2", name="g"),
         piece("}", index=1, id="c1", name="f")],
        {(0, 1): None},
    ),
    "an id and a name, after arguments that are new": (
        [piece("", index=0), piece("", id="c1", name="f")],
        {(0, 0): EDITED},
    ),
    "calls that share an index and an id": (
        [piece("", index=0, id="c1", name="g"), piece("b"), piece("a", index=0, id="c2", name="g"),
         piece("a", index=1, id="c2", name="g"), piece(index=2, id="c2", name="f"),
         piece("", index=0, id="c1", name="g"), piece("a", index=1)],
        {(0, 0): EDITED, (0, 1): None, (0, 3): EDITED},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", TELLING)
def test_what_is_left_is_written_so_that_it_reads_as_it_did(name: str) -> None:
    deltas, changes = TELLING[name]

    assert_reads(stream_of(deltas), changes)


pieces = st.builds(
    piece,
    st.sampled_from((None, "", "a", "b")),
    index=st.sampled_from((None, 0, 1, 2)),
    id=st.sampled_from((None, "", "c1", "c2", "c3")),
    name=st.sampled_from((None, "", "f", "g")),
)


@pytest.mark.slow
@given(st.lists(pieces, min_size=1, max_size=8), st.data())
@settings(derandomize=True, deadline=None, database=None, max_examples=200)
def test_whatever_the_pieces_say_what_is_left_reads_as_it_did(
    deltas: list[dict[str, Any]], data: st.DataObject
) -> None:
    stream = stream_of(deltas)
    before = assemble(CHAT, stream)
    fates = {place: data.draw(st.sampled_from((EDITED, None, ...))) for place in
             calls_by_place(before)}  # fmt: skip
    changes = {place: fate for place, fate in fates.items() if fate is not ...}

    try:
        made = changed(stream, changes)
    except BadRequest:
        reject()  # rare: then nothing comes out

    left = calls_of(expected(before.choices[0], changes))
    read = calls_of(assemble(CHAT, made).choices[0])
    # A call with neither name nor id, which nobody can carry out, may get an id of ours.
    assert [each if each.call_id or each.name else replace(each, call_id=now.call_id)
            for each, now in zip(left, read, strict=True)] == read  # fmt: skip


@pytest.mark.slow
@given(st.integers(0, 2), st.lists(st.integers(1, 12), max_size=40), st.data())
@settings(derandomize=True, deadline=None, database=None, max_examples=60)
def test_however_arguments_are_cut_over_chunks_and_choices(
    calls: int, cuts: list[int], data: st.DataObject
) -> None:
    # Choices and calls take turns, each with the next piece of its arguments.
    texts = {
        (choice, position): json.dumps({"choice": choice, "position": position, "é": "\U0001f600"})
        for choice in (0, 1)
        for position in range(calls + 1)
    }
    chunks = [
        chat_chunk(
            {"tool_calls": [call_delta(position, "", f"id{choice}{position}", "f")]}, index=choice
        )
        for choice, position in texts
    ]
    rests = dict(texts)
    for cut in (*cuts, 1000, 1000, 1000, 1000, 1000, 1000):
        place = data.draw(st.sampled_from(sorted(rests))) if len(rests) > 1 else min(rests)
        part, rests[place] = rests[place][:cut], rests[place][cut:]
        chunks.append(chat_chunk({"tool_calls": [call_delta(place[1], part)]}, index=place[0]))
        if not rests[place]:
            del rests[place]
        if not rests:
            break
    for (choice, position), rest in rests.items():
        chunks.append(chat_chunk({"tool_calls": [call_delta(position, rest)]}, index=choice))
    ends = [chat_chunk({}, "tool_calls", index=index) for index in (0, 1)]
    stream = b"".join((*chunks, *ends, CHAT_DONE))
    assert {
        place: call.arguments for place, call in calls_by_place(assemble(CHAT, stream)).items()
    } == texts
    fates = {place: data.draw(st.sampled_from((EDITED, None, ...))) for place in texts}

    assert_reads(stream, {place: fate for place, fate in fates.items() if fate is not ...})


# What comes out


def chunks_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the chunks of a stream as a client reads them."""
    return [json.loads(event.data) for event in read_events(stream) if event.data != "[DONE]"]


def deltas_of(stream: bytes) -> list[dict[str, Any]]:
    """Return the pieces of calls of a stream, in order."""
    return [
        delta
        for chunk in chunks_of(stream)
        for choice in chunk["choices"]
        for delta in choice["delta"].get("tool_calls", ())
    ]


BY_THE_BOOK = stream_of(
    [
        call_delta(0, "", "c0", "f"), call_delta(0, '{"a":'), call_delta(0, "1}"),
        call_delta(1, "", "c1", "send_email"), call_delta(1, '{"b":'), call_delta(1, "2}"),
        call_delta(2, "", "c2", "g"), call_delta(2, "{}"),
    ]
)  # fmt: skip


def test_a_dropped_call_leaves_no_frame_and_those_after_it_move_up() -> None:
    made = changed(BY_THE_BOOK, {(0, 1): None})

    assert deltas_of(made) == [
        call_delta(0, "", "c0", "f"), call_delta(0, '{"a":'), call_delta(0, "1}"),
        call_delta(1, "", "c2", "g"), call_delta(1, "{}"),
    ]  # fmt: skip
    assert len(chunks_of(made)) == len(chunks_of(BY_THE_BOOK)) - 3
    assert chunks_of(made)[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_an_edited_call_gets_its_arguments_where_the_old_ones_began() -> None:
    made = changed(BY_THE_BOOK, {(0, 1): '{"b": 3.50}'})

    assert deltas_of(made)[3:5] == [call_delta(1, "", "c1", "send_email"),
                                    call_delta(1, '{"b": 3.50}')]  # fmt: skip
    before, after = read_frames(BY_THE_BOOK), read_frames(made)
    assert [frame.raw for frame in after if frame not in before] == [after[5].raw]


def test_frames_that_need_no_change_stay_as_they_were() -> None:
    odd = b'data: {"choices" : [{"index":0, "delta":{"content":"x"}}], "n": 1.50}\r\n\r\n'
    late = b'data:{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":2}}\n\n'
    frames = [frame.raw for frame in read_frames(BY_THE_BOOK)]
    stream = b"".join((*frames[:5], odd, *frames[5:-1], late, frames[-1]))

    made = changed(stream, {(0, 1): None})

    assert odd in made
    assert made.endswith(late + CHAT_DONE)


def test_a_choice_that_has_lost_all_calls_ends_plainly() -> None:
    made = chunks_of(changed(BY_THE_BOOK, {(0, 0): None, (0, 1): None, (0, 2): None}))

    assert [choice["finish_reason"] for chunk in made for choice in chunk["choices"]] == [
        None, "stop",
    ]  # fmt: skip
    for chunk in made:
        check("CreateChatCompletionStreamResponse", chunk)


def test_an_end_that_is_out_before_the_call_stays_as_it_was() -> None:
    end = chat_chunk({"role": "assistant"}, "tool_calls")
    stream = end + stream_of([call_delta(0, "{}", "c", "f")])

    assert changed(stream, {(0, 0): None}).startswith(end)


def test_another_finish_reason_stays() -> None:
    stream = BY_THE_BOOK.replace(b'"finish_reason":"tool_calls"', b'"finish_reason":"length"')

    made = chunks_of(changed(stream, {(0, 0): None, (0, 1): None, (0, 2): None}))

    assert made[-1]["choices"][0]["finish_reason"] == "length"


def test_what_a_frame_says_besides_a_dropped_call_stays() -> None:
    delta = {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [call_delta(0, "{}", "c", "f")],
    }
    usage = {"prompt_tokens": 1, "completion_tokens": 2}
    stream = b"".join(
        (chat_chunk(delta, logprobs={"content": [], "refusal": None}),
         chat_chunk({"tool_calls": [call_delta(0, "")]}).replace(b"}\n\n", b',"usage":%s}\n\n' %
                    json.dumps(usage).encode()),
         chat_chunk({}, "tool_calls"), CHAT_DONE)
    )  # fmt: skip

    made = chunks_of(changed(stream, {(0, 0): None}))

    assert made[0]["choices"][0]["delta"] == {"role": "assistant", "content": "I look."}
    assert made[1]["usage"] == usage
    assert made[1]["choices"][0]["delta"] == {}


def test_an_event_keeps_its_name() -> None:
    stream = stream_of([call_delta(0, "{}", "c", "f"), call_delta(1, "{}", "d", "g")])
    stream = stream.replace(b"data: {", b"event: chunk\ndata: {")

    made = changed(stream, {(0, 0): EDITED})

    assert [event.name for event in read_events(made)] == ["chunk"] * 4 + ["message"]


def test_a_key_that_comes_twice_counts_as_the_reader_takes_it() -> None:
    # The reader, and clients, see the last one; neither must reach them where it is refused.
    twice = (
        b'data: {"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":'
        b'{"name":"f","name":"send_email","arguments":"{}"}}],"tool_calls":[{"index":0,"id":"c2",'
        b'"function":{"name":"f","name":"send_email","arguments":"{}"}}]}}]}\n\n'
    )
    stream = twice + chat_chunk({}, "tool_calls") + CHAT_DONE
    assert [call.call_id for _, call in assemble(CHAT, stream).tool_calls] == ["c2"]

    body = (
        b'{"choices":[{"index":0,"finish_reason":"tool_calls","message":{"tool_calls":[{"id":"c1",'
        b'"function":{"name":"send_email","arguments":"{}"}}],"tool_calls":[{"id":"c2","function":'
        b'{"name":"send_email","arguments":"{}"}}]}}]}'
    )
    assert b"send_email" not in CHAT.changed_body(body, {(0, 0): None})
    assert b"send_email" not in changed(stream, {(0, 0): None})
    assert b"send_email" not in CHAT.changed_body(CHAT.body_from_events(read_frames(stream)),
                                                  {(0, 0): None})  # fmt: skip


def test_arguments_sent_as_an_object_are_changed_as_one() -> None:
    whole = {"id": "c", "function": {"name": "f", "arguments": {"a": 1.50}}}
    body = CHAT.changed_body(chat_body(calling(whole)), {(0, 0): '{"id":2512292042121000001}'})
    events = changed(stream_of([{"index": 0, **whole}]), {(0, 0): '{"id":2512292042121000001}'})

    assert b'"arguments":{"id":2512292042121000001}' in body
    assert b'"arguments":{"id":2512292042121000001}' in events


def test_a_custom_tool_takes_any_text_and_a_function_an_object() -> None:
    stream = stream_of(
        [{"index": 0, "id": "c", "type": "custom", "custom": {"name": "sql", "input": "a"}},
         {"index": 0, "custom": {"input": "b"}}]
    )  # fmt: skip

    made = assert_reads(stream, {(0, 0): "drop nothing\n\ud83d"})

    assert deltas_of(made) == [
        {"index": 0, "id": "c", "type": "custom",
         "custom": {"name": "sql", "input": "drop nothing\n\ud83d"}}
    ]  # fmt: skip
    with pytest.raises(BadRequest) as caught:
        changed(stream_of([call_delta(0, "{}", "c", "f")]), {(0, 0): '{"a":"\ud83d"}'})
    assert caught.value.param == "arguments"


def test_legacy_and_other_calls_are_numbered_alike_in_both_forms() -> None:
    legacy: Any = {"function_call": {"name": "send_email", "arguments": "{}"}}
    deltas: Any = [{"tool_calls": [call_delta(at, "{}", f"c{at}", "g")]} for at in (0, 1)]
    for at in range(3):
        sent = [*deltas[:at], legacy, *deltas[at:]]
        stream = b"".join((*map(chat_chunk, sent), chat_chunk({}, "tool_calls"), CHAT_DONE))
        calls = assemble(CHAT, stream).tool_calls
        assert [call.name for _, call in calls].index("send_email") == at

        body = CHAT.body_from_events(read_frames(stream))
        assert CHAT.read_answer(body).tool_calls == calls
        again = b"".join(CHAT.events_from_body(body, include_usage=False))
        assert assemble(CHAT, again).tool_calls == calls
        assert b"send_email" not in assert_reads(stream, {(0, at): None})
        assert b"send_email" not in CHAT.changed_body(body, {(0, at): None})


def test_a_call_that_is_not_there_cannot_be_changed() -> None:
    for place in ((0, 3), (1, 0), (0, -1)):
        with pytest.raises(BadRequest, match="no tool call"):
            changed(BY_THE_BOOK, {place: None})
        with pytest.raises(BadRequest, match="no tool call"):
            CHAT.changed_body(chat_body(calling(call(1))), {place: None})


def test_what_cannot_be_read_cannot_be_changed() -> None:
    for body in (b"{", b"[" * 200_000, b""):
        with pytest.raises(BadRequest):
            CHAT.changed_body(body, {(0, 0): None})


def test_a_body_without_its_calls_has_a_text_and_is_as_the_schema_says() -> None:
    made = json.loads(CHAT.changed_body(chat_body(calling(call(1))), {(0, 0): None}))

    assert made["choices"][0]["message"] == {"role": "assistant", "content": "", "refusal": None}
    assert made["choices"][0]["finish_reason"] == "stop"
    check("CreateChatCompletionResponse", made)


def test_what_is_not_changed_in_a_body_keeps_its_order_and_numbers() -> None:
    body = (
        b'{"x":1.50,"choices":[{"finish_reason":"tool_calls","index":0,"message":{"y":1e2,'
        b'"tool_calls":[{"id":"c1","z":-0.0,"function":{"arguments":"{}","name":"f"}},null,'
        b'{"id":"c2","function":{"name":"g","arguments":"{}"}}],"function_call":null}}]}'
    )

    assert CHAT.changed_body(body, {(0, 1): None}) == body.replace(
        b',{"id":"c2","function":{"name":"g","arguments":"{}"}}', b""
    )
    assert CHAT.changed_body(body, {(0, 1): '{"n":1.0}'}) == body.replace(
        b'"name":"g","arguments":"{}"', b'"name":"g","arguments":"{\\"n\\":1.0}"'
    )


@given(st.lists(datas, max_size=6))
@steady
def test_the_walk_numbers_calls_as_the_reader_does(odd: list[bytes]) -> None:
    frames = [Frame(b"", data) for data in odd]
    assembler, walk = CHAT.assembler(), CallWalk()
    for frame in frames:
        assembler.feed(frame)
        if (chunk := read_chunk(frame)) is not None:
            walk.take(chunk, "delta")

    assert calls_by_place(assembler.snapshot()) == {
        (choice, call.position): call.build()
        for choice, tools in sorted(walk.tools.items())
        for call in tools.calls
    }


# Clients


def read_by_openai(stream: bytes) -> list[dict[str, Any]]:
    """Return the calls of a stream as the openai package adds them up."""
    streaming = pytest.importorskip("openai.lib.streaming.chat")
    types = pytest.importorskip("openai.types.chat")
    state = streaming.ChatCompletionStreamState()
    for chunk in chunks_of(stream):
        state.handle_chunk(types.ChatCompletionChunk.model_validate(chunk))
    choice = state.get_final_completion().choices[0]
    calls = [each.model_dump() for each in choice.message.tool_calls or ()]
    assert choice.finish_reason == ("tool_calls" if calls else "stop")
    return calls


@pytest.mark.clients
def test_the_openai_package_reads_a_changed_stream_as_we_do() -> None:
    for changes in every_change(assemble(CHAT, BY_THE_BOOK), EDITED):
        made = changed(BY_THE_BOOK, changes)

        assert [
            (each["id"], each["function"]["name"], each["function"]["arguments"])
            for each in read_by_openai(made)
        ] == [(call.call_id, call.name, call.arguments) for _, call in
              assemble(CHAT, made).tool_calls]  # fmt: skip
