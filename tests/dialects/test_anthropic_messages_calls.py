"""Tools of a request, answers that are changed and streams that go on, in the Messages form."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects.anthropic_messages import AnthropicMessages
from agentstate.dialects.base import CallsTools, Tool
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, canonical, parse
from agentstate.ground.chat import Answer, ToolCall
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects import samples_anthropic as sample
from tests.dialects.contract import CallsContract, GatedDialect, steady
from tests.dialects.samples_anthropic import (
    CALL,
    PING,
    STOP,
    block,
    body,
    call_block,
    end,
    event,
    start,
    text_block,
    thinking_block,
)
from tests.helpers import anthropic_types

MESSAGES = AnthropicMessages()
NEW = '{"city":"Rome","a":[1.50,null]}'
HI: dict[str, Any] = {"type": "text", "text": "Hi"}
THOUGHT: dict[str, Any] = {"type": "thinking", "thinking": "Hm.", "signature": "EqRk/+=="}
HIDDEN: dict[str, Any] = {"type": "redacted_thinking", "data": "b3BhcXVl"}
SEARCH: dict[str, Any] = {
    "type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"},
}  # fmt: skip
FOUND: dict[str, Any] = {
    "type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": [],
}  # fmt: skip


def tool_use(number: int, name: str = "get_weather", **fields: Any) -> dict[str, Any]:
    """Return a call with an id of its own."""
    return {**CALL, "id": f"call_{number}", "name": name, **fields}


ONE, TWO, THREE = tool_use(1), tool_use(2, "send_email"), tool_use(3, "now", input={})


def frames_of(*raw: bytes) -> list[Frame]:
    return SSEDecoder().feed(b"".join(raw))


def read(raw: bytes) -> Answer:
    assembler = MESSAGES.assembler()
    for frame in frames_of(raw):
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def events_of(raw: bytes) -> list[dict[str, Any]]:
    return [json.loads(frame.data) for frame in frames_of(raw) if frame.data is not None]


def calls_of(answer: Answer) -> list[tuple[str | None, str]]:
    return [(call.call_id, call.arguments) for _, call in answer.tool_calls]


def change(raw: Sequence[bytes], changes: Changes) -> bytes:
    return MESSAGES.changed_events(frames_of(*raw), changes)


def join(first: Sequence[bytes], second: Sequence[bytes]) -> bytes:
    return MESSAGES.joined_events(frames_of(*first), frames_of(*second))


def streamed(*blocks: tuple[bytes, ...], reason: str = "tool_use") -> tuple[bytes, ...]:
    """Return a stream of these blocks."""
    return (start(), *(each for events in blocks for each in events), end(reason), STOP)


def accumulate(raw: bytes) -> Any:
    """Read a stream as the `anthropic` package does; return its message. It refuses events of
    blocks that it does not know."""
    streaming = pytest.importorskip("anthropic.lib.streaming._messages")
    snapshot: Any = None
    buffers: dict[int, bytes] = {}
    for each in events_of(raw):
        # What the client passes over before it comes to accumulating.
        if each["type"] != "ping":
            snapshot = streaming.accumulate_event(
                event=each, current_snapshot=snapshot, json_bufs=buffers
            )
    return snapshot


# --- the contract ---------------------------------------------------------------------------------


class TestCalls(CallsContract):
    dialect: ClassVar[GatedDialect] = MESSAGES
    request: ClassVar[dict[str, JSON]] = {
        "model": sample.MODEL,
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "Mail them."}],
        "tools": [{"name": "send_email", "input_schema": {"type": "object"}}],
    }
    tools: ClassVar[tuple[str, ...]] = ("send_email",)
    texts: ClassVar[dict[str, bytes]] = {
        "text": sample.BODIES["text"],
        "thinking": sample.BODIES["thinking"],
        "citations": body({**HI, "citations": [sample.CITATION]}),
        "unknown fields": body({**HI, "x": 1e2}, x=[1.50]),
        "cut by its limit": body(HI, reason="max_tokens"),
    }
    text_streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        name: sample.STREAMS[name]
        for name in ("text", "pings", "thinking", "citations", "unknown fields", "stop sequence")
    }
    bodies: ClassVar[dict[str, bytes]] = {
        "one": body(ONE, reason="tool_use"),
        "two": body(ONE, TWO, reason="tool_use"),
        "after text": body(HI, ONE, TWO, THREE, reason="tool_use"),
        "between texts": body(HI, ONE, HI, TWO, reason="tool_use"),
        "after thoughts": body(THOUGHT, HIDDEN, HI, ONE, TWO, reason="tool_use"),
        "unknown fields": body({**ONE, "x": 1e2, "y": [1.50]}, x={"a": 1.0}, reason="tool_use"),
        "an unknown kind": body({**ONE, "type": "x_tool_use"}, reason="tool_use"),
    }
    streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        "by the book": streamed(call_block(0, "", '{"city"', ':"Oslo"}')),
        "after text": sample.STREAMS["tool calls"],
        "before text": streamed(call_block(0, "{}"), text_block(1, "Hi"), call_block(2, id="c2")),
        "after thoughts": streamed(thinking_block(0, "Hm."), text_block(1, "Hi"),
                                   call_block(2, "{}"), call_block(3, "{}", id="c2")),
        "without pieces": streamed(call_block(0), call_block(1, id="c2")),
        "shown whole at once": streamed(block(0, ONE), block(1, TWO)),
        "in the start": (
            start(content=[HI, ONE, TWO]), *text_block(3, "Hi"), end("tool_use"), STOP,
        ),
        "pings between": (start(), PING, *call_block(0, "{}"), PING, end("tool_use"), PING, STOP),
        "unknown events": (
            start(), *call_block(0, "{}"), event("x_event", index=0), *call_block(1, "{}", id="c2"),
            event("x_event", index=1), event("x_event"), end("tool_use"), STOP,
        ),
    }  # fmt: skip
    plain_end: ClassVar[str] = "end_turn"

    def heard(self, body: bytes) -> list[JSON]:
        return [{"role": "assistant", "content": json.loads(body)["content"]}]

    def heard_result(self, call: ToolCall, text: str) -> JSON:
        result = {"type": "tool_result", "tool_use_id": call.call_id, "content": text}
        return {"role": "user", "content": [result]}


def test_it_is_a_dialect_that_calls_tools() -> None:
    dialect: CallsTools = MESSAGES
    assert isinstance(dialect, CallsTools)


# --- the tools of a request -----------------------------------------------------------------------


def tools_of(*tools: JSON, **fields: JSON) -> list[tuple[str, JSON, bool]]:
    ask = MESSAGES.read_ask({"model": "m", "messages": [{}], "tools": list(tools), **fields})
    return [(tool.name, tool.schema, tool.runs_upstream) for tool in MESSAGES.tools(ask)]


def test_functions_bring_their_schema() -> None:
    schema = {"type": "object", "required": ["city"]}
    assert tools_of(
        {"name": "a", "input_schema": schema}, {"type": "custom", "name": "b"}
    ) == [("a", schema, False), ("b", None, False)]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "name", "called"),
    [
        ("bash_20250124", "bash", "bash"),
        ("text_editor_20250728", "str_replace_based_edit_tool", "str_replace_based_edit_tool"),
        ("computer_20251124", "computer", "computer"),
        ("memory_20250818", "memory", "memory"),
        ("computer_toolset_20260801", None, "computer_toolset"),
        ("browser_toolset_20260801", None, "browser_toolset"),
    ],
)
def test_the_client_runs_some_of_anthropics_tools(kind: str, name: str | None, called: str) -> None:
    named: dict[str, JSON] = {"name": name} if name else {}
    assert tools_of({"type": kind, **named}) == [(called, None, False)]


@pytest.mark.parametrize(
    ("kind", "called"),
    [
        ("web_search_20250305", ["web_search"]),
        ("web_search_20260318", ["web_search"]),
        ("web_fetch_20250910", ["web_fetch"]),
        ("code_execution_20250825",
         ["code_execution", "bash_code_execution", "text_editor_code_execution"]),
        ("tool_search_tool_regex_20251119", ["tool_search_tool_regex"]),
        ("tool_search_tool_bm25", ["tool_search_tool_bm25"]),
        ("advisor_20260301", ["advisor"]),
        ("x_tool_20991231", ["x_tool"]),  # nobody here can say that the client runs it
    ],
)  # fmt: skip
def test_anthropic_runs_the_others_whatever_they_are_called(kind: str, called: list[str]) -> None:
    assert tools_of({"type": kind, "name": "harmless"}) == [(each, None, True) for each in called]


def test_servers_are_named_alone_and_with_the_tools_they_may_run() -> None:
    servers: JSON = [
        {"type": "url", "name": "mail", "url": "https://a",
         "tool_configuration": {"allowed_tools": ["send", "read", 1]}},
        {"type": "url", "name": "files", "url": "https://b"},
        {"name": "off", "tool_configuration": {"enabled": False}},
        {"url": "https://c"},
        "x",
    ]  # fmt: skip
    assert [name for name, _, _ in tools_of(mcp_servers=servers)] == [
        "mail", "mail.send", "mail.read", "files",
    ]  # fmt: skip
    assert all(upstream for _, _, upstream in tools_of(mcp_servers=servers))


def test_a_toolset_names_tools_of_its_server() -> None:
    toolset = {
        "type": "mcp_toolset", "mcp_server_name": "mail",
        "tools": [{"name": "send", "input_schema": {}}, {"name": "burn"}],
        "configs": {"burn": {"enabled": False}, "read": {"defer_loading": True}},
    }  # fmt: skip
    named = [name for name, _, _ in tools_of(toolset, mcp_servers=[{"name": "mail"}])]
    assert named == ["mail", "mail.send", "mail.read"]
    closed = {**toolset, "default_config": {"enabled": False}}
    assert [name for name, _, _ in tools_of(closed)] == ["mail"]


def test_tools_that_are_added_on_the_way_are_offered_too() -> None:
    def added(kind: str, **fields: JSON) -> JSON:
        return {"type": "tool_addition", "tool": {"type": kind, **fields}}

    ask = MESSAGES.read_ask(
        {
            "model": "m",
            "messages": [
                {"role": "user", "content": "Hi"},
                {"role": "system", "content": "Plain."},
                {"role": "system", "content": [
                    {"type": "text", "text": "More."},
                    added("tool_definition", definition={"name": "late"}),
                    added("tool_definition", definition={"type": "web_search_20260318"}),
                    added("mcp_tool_reference", server_name="mail", name="send"),
                    added("tool_reference", tool_name="late"),
                ]},
            ],
        }
    )  # fmt: skip
    assert MESSAGES.tools(ask) == (
        Tool("late", None, runs_upstream=False),
        Tool("web_search", None, runs_upstream=True),
        Tool("mail", None, runs_upstream=True),
        Tool("mail.send", None, runs_upstream=True),
    )


# --- changed answers ------------------------------------------------------------------------------


def test_an_edited_call_gets_its_input_in_one_piece() -> None:
    made = change(streamed(call_block(0, '{"ci', 'ty":"Oslo"}')), {(0, 0): NEW})

    assert frames_of(made)[1].raw == call_block(0)[0]
    assert events_of(made)[1:4] == [
        {"type": "content_block_start", "index": 0, "content_block": {**CALL, "input": {}}},
        {"type": "content_block_delta", "index": 0,
         "delta": {"type": "input_json_delta", "partial_json": NEW}},
        {"type": "content_block_stop", "index": 0},
    ]  # fmt: skip


def test_an_input_that_was_in_the_start_is_there_no_more() -> None:
    made = change(streamed(block(0, ONE)), {(0, 0): NEW})
    assert events_of(made)[1]["content_block"] == {**ONE, "input": {}}


def test_a_dropped_call_loses_its_events_and_later_blocks_move_up() -> None:
    whole = streamed(
        text_block(0, "Hi"), call_block(1, "{}"), call_block(2, "[1]", id="call_2"),
        text_block(3, "So."), call_block(4, "{}", id="call_3"),
    )  # fmt: skip
    left = streamed(
        text_block(0, "Hi"), call_block(1, "[1]", id="call_2"), text_block(2, "So."),
    )  # fmt: skip
    assert change(whole, {(0, 0): None, (0, 2): None}) == b"".join(left)


def test_a_choice_whose_calls_are_all_dropped_ends_its_turn() -> None:
    whole = streamed(text_block(0, "Hi"), call_block(1, "{}"))
    assert change(whole, {(0, 0): None}) == b"".join(
        streamed(text_block(0, "Hi"), reason="end_turn")
    )
    cut = streamed(call_block(0, "{}"), reason="max_tokens")
    assert read(change(cut, {(0, 0): None})).finish_reason == "max_tokens"


def test_calls_that_ran_upstream_are_counted_and_do_not_hold_a_turn_open() -> None:
    whole = streamed(
        call_block(0, '{"query":"x"}', type="server_tool_use", id="srvtoolu_1", name="web_search"),
        block(1, FOUND),
        call_block(2, "{}"),
    )
    gone, raw = change(whole, {(0, 1): None}), body(SEARCH, FOUND, ONE, reason="tool_use")

    assert gone == b"".join((*whole[:6], end("end_turn"), STOP))
    assert json.loads(MESSAGES.changed_body(raw, {(0, 1): None}))["stop_reason"] == "end_turn"
    assert calls_of(read(change(whole, {(0, 1): NEW})))[1] == ("call_1", NEW)


def test_thinking_and_its_signature_come_out_byte_for_byte() -> None:
    thought = thinking_block(0, "hm \u2028", " so")
    made = change(streamed(thought, call_block(1, "{}"), call_block(2, "{}")), {(0, 0): None})
    assert made.startswith(start() + b"".join(thought))

    content = json.loads(
        MESSAGES.changed_body(body(THOUGHT, HIDDEN, ONE, TWO), {(0, 0): None, (0, 1): NEW})
    )["content"]
    assert content == [THOUGHT, HIDDEN, {**TWO, "input": json.loads(NEW)}]


def test_numbers_and_unknown_fields_of_a_body_keep_their_text() -> None:
    raw = body(ONE, TWO, reason="tool_use", x=[1.50]).replace(b"1.5", b"1.50")
    made = MESSAGES.changed_body(raw, {(0, 0): NEW})
    assert b'"x":[1.50]' in made
    assert b'"input":{"city":"Rome","a":[1.50,null]}' in made
    assert b"2512292042121000001" in made  # the other call's


def test_a_key_sent_twice_hides_no_arguments() -> None:
    raw = body(ONE).replace(b'"input": {', b'"input": {"city": "Bergen"}, "input": {')
    assert raw.count(b'"input"') == 2
    made = MESSAGES.changed_body(raw, {(0, 0): NEW})
    assert made.count(b'"input"') == 1
    assert b"Bergen" not in made


def test_what_is_no_answer_comes_out_as_it_is() -> None:
    for raw in (b"", b"{", b"[]", b'{"content":"x"}', json.dumps(sample.ERROR).encode()):
        assert MESSAGES.changed_body(raw, {(0, 0): None}) == raw
        assert MESSAGES.joined_body("Hi", raw) == raw


def test_an_error_in_a_stream_comes_out_as_it_is() -> None:
    failed = (*streamed(call_block(0, "{}"))[:3], event("error", error=sample.ERROR["error"]))
    made = change(failed, {(0, 0): None})
    assert made == failed[0] + failed[-1]


def test_a_call_whose_start_did_not_come_is_changed_all_the_same() -> None:
    pieces = [
        event("content_block_delta", delta={"type": "input_json_delta", "partial_json": piece})
        for piece in ('{"a"', ":1}")
    ]
    whole = (start(), *pieces, end("tool_use"), STOP)
    assert calls_of(read(change(whole, {(0, 0): NEW}))) == [(None, NEW)]
    assert change(whole, {(0, 0): None}) == b"".join((start(), end("end_turn"), STOP))


def test_blocks_without_an_index_are_followed_as_they_are_read() -> None:
    def bare(raw: tuple[bytes, ...]) -> tuple[bytes, ...]:
        return tuple(each.replace(b'"index":0,', b"").replace(b',"index":0', b"") for each in raw)

    whole = streamed(bare(call_block(0, '{"a":1}')))
    assert not any(b'"index"' in each for each in whole)
    assert calls_of(read(change(whole, {(0, 0): NEW}))) == [("call_1", NEW)]


@pytest.mark.parametrize("arguments", ["[]", "x", '{"a":1,"a":2}', "\ud83d", "NaN"])
def test_arguments_that_are_no_object_are_refused_by_name(arguments: str) -> None:
    with pytest.raises(BadRequest, match="must be a JSON object") as caught:
        MESSAGES.changed_body(body(ONE), {(0, 0): arguments})
    assert caught.value.param == "arguments"


# Of a message: what each block is, and in how many pieces a call's input comes.
pieces_of_input = st.sampled_from(
    ((), ("{}",), ("", '{"a"', ":1}"), ('{"x":"\\ud83d', '\\ude00"}'))
)
kinds = st.one_of(
    st.tuples(st.just("text"), st.lists(st.sampled_from(("a", "b \n", "\U0001f600")), max_size=3)),
    st.tuples(st.just("thinking"), st.just(())),
    st.tuples(st.just("server"), pieces_of_input),
    st.tuples(st.just("call"), pieces_of_input),
    st.tuples(st.just("at once"), st.just(())),
)
fates = st.sampled_from(("keep", "keep", "drop", '{"new":1.50}', '{ "new": [] }'))


def build(
    blocks: Sequence[tuple[str, Sequence[str]]], chosen: Sequence[str], pings: bool
) -> tuple[tuple[bytes, ...], dict[tuple[int, int], str | None], list[tuple[str, Any]]]:
    """Return a stream, changes to it, and what a client should get: its texts and calls."""
    events: list[tuple[bytes, ...]] = []
    changes: dict[tuple[int, int], str | None] = {}
    wanted: list[tuple[str, Any]] = []
    fate_of = iter(chosen)
    position = 0
    for index, (kind, pieces) in enumerate(blocks):
        call_id = f"call_{index}"
        if kind == "text":
            events.append(text_block(index, *pieces))
            wanted.append(("text", "".join(pieces)))
        elif kind == "thinking":
            events.append(thinking_block(index, "Hm."))
            wanted.append(("thinking", "Hm."))
        else:
            own = json.loads("".join(pieces) or "{}")
            if kind == "at once":
                own = {"once": 1}
                events.append(block(index, {**CALL, "id": call_id, "input": own}))
            else:
                served = {"type": "server_tool_use", "name": "web_search"}
                fields = served if kind == "server" else {}
                events.append(call_block(index, *pieces, id=call_id, **fields))
            fate = "keep" if kind == "server" else next(fate_of)
            if fate != "keep":
                changes[0, position] = None if fate == "drop" else fate
            if fate != "drop":
                wanted.append((call_id, own if fate == "keep" else json.loads(fate)))
            position += 1
        if pings:
            events.append((PING,))
    return streamed(*events), changes, wanted


def got_by_the_package(raw: bytes) -> list[tuple[str, Any]]:
    """Return what the `anthropic` package makes of a stream."""
    return [
        (each.id, each.input) if hasattr(each, "input") else (each.type, getattr(each, each.type))
        for each in accumulate(raw).content
    ]


@given(
    blocks=st.lists(kinds, max_size=6),
    chosen=st.lists(fates, min_size=6, max_size=6),
    pings=st.booleans(),
)
@steady
def test_a_changed_stream_is_what_was_decided_to_every_reader(
    blocks: list[tuple[str, Sequence[str]]], chosen: list[str], pings: bool
) -> None:
    whole, changes, wanted = build(blocks, chosen, pings)
    has_call = any(name.startswith("call_") for name, _ in wanted)
    has_own = any(
        kind in ("call", "at once") and changes.get((0, at), "") is not None
        for at, kind in enumerate(kind for kind, _ in blocks if kind not in ("text", "thinking"))
    )

    made = change(whole, changes)
    answer = read(made)

    # 1. our own assembler
    wanted_calls = [(name, value) for name, value in wanted if name.startswith("call_")]
    assert [(call, json.loads(text)) for call, text in calls_of(answer)] == wanted_calls
    assert [call.position for _, call in answer.tool_calls] == list(range(len(wanted_calls)))
    assert answer.text == "".join(value for name, value in wanted if name == "text")
    assert answer.is_complete
    assert has_call or not answer.tool_calls
    # 2. the real client
    assert got_by_the_package(made) == wanted
    # 3. the two forms agree
    stream_body = MESSAGES.body_from_events(frames_of(made))
    changed = MESSAGES.changed_body(MESSAGES.body_from_events(frames_of(*whole)), changes)
    assert canonical(parse(changed)) == canonical(parse(stream_body))
    # 4. the types, and how it ends
    anthropic_types.check_stream("RawMessageStreamEvent", made)
    if changes:
        assert answer.finish_reason == ("tool_use" if has_own else "end_turn")
    else:
        assert made == b"".join(whole)


# Events as no upstream should send them: any index or none, blocks that overlap or never began.
indexes = st.sampled_from((None, 0, 0, 1, 1, 2, 3))
odd_events = st.tuples(st.sampled_from(("text", "call", "a", "[", "stop")), indexes)


def build_oddly(events: Sequence[tuple[str, int | None]]) -> bytes:
    """Return a stream of such events, no two of which are the same."""
    made = [start()]
    for number, (what, index) in enumerate(events):
        placed: dict[str, Any] = {} if index is None else {"index": index}
        if what == "text":
            made.append(event("content_block_start", **placed, content_block={**HI, "text": ""}))
        elif what == "call":
            made.append(
                event("content_block_start", **placed, content_block=tool_use(number, input={}))
            )
        elif what == "stop":
            made.append(event("content_block_stop", **placed))
        else:
            kind, key = (
                ("text_delta", "text") if what == "a" else ("input_json_delta", "partial_json")
            )
            delta = {"type": kind, key: f"{what}{number}"}
            made.append(event("content_block_delta", **placed, delta=delta))
    return b"".join((*made, end("tool_use"), STOP))


@given(
    events=st.lists(odd_events, max_size=10),
    chosen=st.lists(st.sampled_from(("keep", "drop", NEW)), min_size=10, max_size=10),
)
@steady
def test_odd_streams_are_changed_as_they_are_read(
    events: list[tuple[str, int | None]], chosen: list[str]
) -> None:
    raw = build_oddly(events)
    before = read(raw)
    fates = {call.position: chosen[call.position] for _, call in before.tool_calls}
    changes = {(0, at): None if fate == "drop" else fate for at, fate in fates.items()
               if fate != "keep"}  # fmt: skip

    after = read(change([raw], changes))

    assert calls_of(after) == [
        (call.call_id, NEW if fates[call.position] == NEW else call.arguments)
        for _, call in before.tool_calls
        if fates[call.position] != "drop"
    ]
    assert sorted(after.text) == sorted(before.text)


# --- joined answers -------------------------------------------------------------------------------


def test_an_earlier_text_goes_into_the_first_one() -> None:
    made = json.loads(MESSAGES.joined_body("I look.", body({**HI, "x": 1}, ONE)))["content"]
    assert made == [{"type": "text", "text": "I look.\n\nHi", "x": 1}, ONE]


def test_an_earlier_text_goes_after_the_thinking() -> None:
    made = json.loads(MESSAGES.joined_body("I look.", body(THOUGHT, HIDDEN, ONE)))["content"]
    assert made == [THOUGHT, HIDDEN, {"type": "text", "text": "I look."}, ONE]

    late = json.loads(MESSAGES.joined_body("I look.", body(THOUGHT, SEARCH, FOUND, HI)))["content"]
    assert late == [THOUGHT, {"type": "text", "text": "I look.\n\n"}, SEARCH, FOUND, HI]


def test_a_text_with_citations_stays_by_itself() -> None:
    cited = {"type": "text", "text": "Green.", "citations": [sample.CITATION]}
    made = json.loads(MESSAGES.joined_body("I look.", body(cited)))["content"]
    assert made == [{"type": "text", "text": "I look.\n\n"}, cited]


def test_a_stream_goes_on_with_the_next_blocks() -> None:
    first = (start(), *text_block(0, "I ", "look."))
    second = streamed(thinking_block(0, "Hm."), text_block(1, "Hi"), call_block(2, "{}"))

    assert join(first, second) == b"".join(
        streamed(
            text_block(0, "I ", "look."), thinking_block(1, "Hm."), text_block(2, "\n\nHi"),
            call_block(3, "{}"),
        )
    )  # fmt: skip


def test_an_open_text_is_ended_before_the_next_blocks() -> None:
    first = (start(), *text_block(0, "I look.")[:-1])
    made = join(first, streamed(text_block(0, "Hi"), reason="end_turn"))
    assert made == b"".join(
        streamed(text_block(0, "I look."), text_block(1, "\n\nHi"), reason="end_turn")
    )
    anthropic_types.check_stream("RawMessageStreamEvent", made)


def test_a_beginning_without_text_adds_no_blank_line() -> None:
    for first in ((start(), PING), (start(), *thinking_block(0, "Hm."))):
        made = join(first, streamed(text_block(0, "Hi"), reason="end_turn"))
        assert read(made).text == "Hi"
        assert got_by_the_package(made)[-1] == ("text", "Hi")
    # Nothing has begun yet: the second one begins.
    second = streamed(text_block(0, "Hi"), reason="end_turn")
    assert join((PING,), second) == PING + b"".join(second)


def test_what_came_with_the_second_start_is_not_lost() -> None:
    second = (start(content=[HI, ONE]), *text_block(2, "."), end("tool_use"), STOP)
    made = read(join((start(), *text_block(0, "I look.")), second))
    assert made.text == "I look.\n\nHi."
    assert [(call_id, json.loads(each)) for call_id, each in calls_of(made)] == [
        ("call_1", ONE["input"])
    ]


def test_the_usage_is_the_second_ones() -> None:
    second = (start(), *text_block(0, "Hi"), end(usage={"output_tokens": 99}), STOP)
    usage = accumulate(join((start(), *text_block(0, "I look.")), second)).usage
    assert usage.output_tokens == 99


@given(
    first=st.lists(st.sampled_from(("text", "thinking")), max_size=3),
    is_open=st.booleans(),
    blocks=st.lists(kinds, max_size=4),
)
@steady
def test_a_joined_stream_is_one_answer_to_every_reader(
    first: list[str], is_open: bool, blocks: list[tuple[str, Sequence[str]]]
) -> None:
    opening = [start()]
    for index, kind in enumerate(first):
        opening += text_block(index, "a") if kind == "text" else thinking_block(index, "Hm.")
    if is_open and first:
        opening.pop()
    second, _, wanted = build(blocks, ["keep"] * 4, pings=False)

    made = join(opening, second)

    before = [("text", "a") if kind == "text" else ("thinking", "Hm.") for kind in first]
    spaced = list(wanted)
    if "text" in first:
        place = next((at for at, (kind, text) in enumerate(wanted) if kind == "text" and text), -1)
        if place >= 0:
            spaced[place] = ("text", f"\n\n{wanted[place][1]}")
    assert got_by_the_package(made) == before + spaced
    assert read(made).text == "".join(text for kind, text in before + spaced if kind == "text")
    anthropic_types.check_stream("RawMessageStreamEvent", made)


# --- heartbeats, through the real client ----------------------------------------------------------


def test_the_client_passes_over_heartbeats() -> None:
    sdk: Any = pytest.importorskip("anthropic")
    httpx: Any = pytest.importorskip("httpx2")
    beat = MESSAGES.heartbeat
    whole = streamed(text_block(0, "Hi"), call_block(1, '{"a":1}'), call_block(2, "{}", id="c2"))
    made = change(whole, {(0, 0): NEW, (0, 1): None})
    content = beat + b"".join(frame.raw + beat for frame in frames_of(made))

    def answer(_: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    transport = httpx.MockTransport(answer)
    with httpx.Client(transport=transport) as http:
        client = sdk.Anthropic(api_key="k", base_url="http://upstream", http_client=http)
        asked: Mapping[str, Any] = {"role": "user", "content": "Hi"}
        with client.messages.stream(model="m", max_tokens=9, messages=[asked]) as stream:
            message = stream.get_final_message()

    assert [each.type for each in message.content] == ["text", "tool_use"]
    assert message.content[1].input == json.loads(NEW)
    assert message.stop_reason == "tool_use"
