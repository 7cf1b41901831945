"""Tools of a request, answers that are changed and streams that go on, in Gemini's own form."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects.base import CallsTools, Tool
from agentstate.dialects.gemini import Gemini
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON, canonical, parse
from agentstate.ground.chat import Answer, ToolCall
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects import samples_gemini as sample
from tests.dialects.contract import CallsContract, GatedDialect, steady
from tests.dialects.samples_gemini import USAGE, body, candidate, event, text

GEMINI = Gemini(sample.MODEL)
NEW = '{"city":"Rome","a":[1.50,null]}'
HI = text("Hi")
THOUGHT = text("Hm.", thought=True)
EMPTY = text("")


def call(number: int, name: str = "get_weather", **fields: Any) -> dict[str, Any]:
    """Return a call with an id of its own."""
    return {"functionCall": {"id": f"call_{number}", "name": name, "args": {"n": number}}, **fields}


def bare(name: str, **args: Any) -> dict[str, Any]:
    """Return a call without an id, as older models make it."""
    return {"functionCall": {"name": name, "args": args}}


ONE = call(1, thoughtSignature="c2lnbmF0dXJl")
TWO, THREE = call(2, "send_email"), call(3, "now")


def answered(*parts: dict[str, Any], **fields: Any) -> bytes:
    return body(candidate(*parts, reason="STOP"), **fields)


def streamed(*pieces: Sequence[dict[str, Any]]) -> tuple[bytes, ...]:
    """Return a stream of these parts, one list of them an event, as Google sends it."""
    events = [event(candidate(*parts), usageMetadata={"promptTokenCount": 20}) for parts in pieces]
    return (*events, event(candidate(EMPTY, reason="STOP"), usageMetadata=USAGE))


def frames_of(*raw: bytes) -> list[Frame]:
    return SSEDecoder().feed(b"".join(raw))


def read(raw: bytes, choices: int = 1) -> Answer:
    assembler = GEMINI.assembler(choices)
    for frame in frames_of(raw):
        assembler.feed(frame)
    return assembler.finish(clean_end=True)


def parts_of(raw: bytes) -> list[list[dict[str, Any]]]:
    """Return the parts of the first candidate of each event."""
    datas = [json.loads(frame.data) for frame in frames_of(raw) if frame.data is not None]
    return [each["candidates"][0]["content"]["parts"] for each in datas]


def calls_of(answer: Answer) -> list[tuple[str, str]]:
    return [(each.name, each.arguments) for _, each in answer.tool_calls]


def change(raw: Sequence[bytes], changes: Changes) -> bytes:
    return GEMINI.changed_events(frames_of(*raw), changes)


def join(first: Sequence[bytes], second: Sequence[bytes]) -> bytes:
    return GEMINI.joined_events(frames_of(*first), frames_of(*second))


# --- the contract ---------------------------------------------------------------------------------


class TestCalls(CallsContract):
    dialect: ClassVar[GatedDialect] = GEMINI
    request: ClassVar[dict[str, JSON]] = {
        "contents": [{"role": "user", "parts": [{"text": "Mail them."}]}],
        "tools": [{"functionDeclarations": [{"name": "send_email"}]}],
    }
    tools: ClassVar[tuple[str, ...]] = ("send_email",)
    texts: ClassVar[dict[str, bytes]] = {
        name: sample.BODIES[name] for name in ("text", "thoughts", "unknown fields")
    } | {"cut by its limit": body(candidate(HI, reason="MAX_TOKENS"))}
    text_streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        name: sample.STREAMS[name]
        for name in ("text", "usage in every event", "thoughts", "unknown fields")
    }
    bodies: ClassVar[dict[str, bytes]] = {
        "one": answered(ONE),
        "two": answered(ONE, TWO),
        "after text": answered(HI, ONE, TWO, THREE),
        "between texts": answered(HI, ONE, HI, TWO),
        "after thoughts": answered(THOUGHT, HI, ONE, TWO),
        "without ids": answered(bare("get_weather", a=1.5), bare("send_email", to="b")),
        "snake case": answered({"function_call": TWO["functionCall"]}, THREE),
        "two choices": body(
            candidate(ONE, reason="STOP"), candidate(HI, TWO, reason="STOP", index=1)
        ),
        "unknown fields": answered({**ONE, "x": 1e2}, x={"a": 1.0}),
    }
    streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        "by the book": streamed([HI], [ONE]),
        "after text": sample.STREAMS["tool calls"],
        "in one event": streamed([THOUGHT, HI, ONE, TWO, THREE]),
        "before text": streamed([ONE], [HI], [TWO]),
        "with its end": (event(candidate(ONE, TWO, reason="STOP"), usageMetadata=USAGE),),
        "without ids": streamed([bare("get_weather", a=1)], [bare("send_email", to="b")]),
        "with other line ends": tuple(
            each.replace(b"\r\n", b"\n") for each in streamed([HI], [ONE], [TWO])
        ),
    }
    plain_end: ClassVar[str] = "STOP"

    def heard(self, body: bytes) -> list[JSON]:
        return [json.loads(body)["candidates"][0]["content"]]

    def heard_result(self, call: ToolCall, text: str) -> JSON:
        response: dict[str, Any] = {"name": call.name, "response": {"output": text}}
        if call.call_id:
            response["id"] = call.call_id
        return {"role": "user", "parts": [{"functionResponse": response}]}


def test_it_is_a_dialect_that_calls_tools() -> None:
    dialect: CallsTools = GEMINI
    assert isinstance(dialect, CallsTools)
    assert isinstance(Gemini().at(sample.STREAM_PATH, "alt=sse"), CallsTools)


# --- the tools of a request -----------------------------------------------------------------------


def tools_of(*tools: Any) -> tuple[Tool, ...]:
    return GEMINI.tools(GEMINI.read_ask({"contents": [{}], "tools": list(tools)}))


def test_functions_bring_their_schema_as_json_schema() -> None:
    schema = {"type": "object", "properties": {"a": {"type": ["STRING", "NULL"]}}}
    assert tools_of(
        {
            "functionDeclarations": [
                {"name": "a", "parametersJsonSchema": schema},
                {"name": "b", "parameters": {"type": "OBJECT"}},
                {"name": "c"},
                {"description": "no name"},
                "x",
            ]
        },
        {"function_declarations": [{"name": "d", "parameters_json_schema": schema}]},
    ) == (
        Tool("a", schema, runs_upstream=False),
        Tool("b", {"type": "object"}, runs_upstream=False),
        Tool("c", None, runs_upstream=False),
        Tool("d", schema, runs_upstream=False),
    )


def test_googles_schema_says_the_same_as_json_schema() -> None:
    parameters = {
        "type": "OBJECT",
        "required": ["who"],
        "propertyOrdering": ["who"],
        "properties": {
            "who": {"type": "STRING", "enum": ["a", "b"], "nullable": True, "maxLength": "9"},
            "type": {"type": "INTEGER", "minimum": 1, "nullable": False},
            "many": {"type": "ARRAY", "items": {"type": "NUMBER"}, "min_items": "1"},
            "one_of": {"any_of": [{"type": "BOOLEAN"}, {"type": "TYPE_UNSPECIFIED"}]},
            "odd": {"type": 1, "maxLength": "x", "items": None},
        },
    }
    (tool,) = tools_of({"functionDeclarations": [{"name": "a", "parameters": parameters}]})
    assert tool.schema == {
        "type": "object",
        "required": ["who"],
        "propertyOrdering": ["who"],
        "properties": {
            "who": {"type": ["string", "null"], "enum": ["a", "b", None], "maxLength": 9},
            "type": {"type": "integer", "minimum": 1},
            "many": {"type": "array", "items": {"type": "number"}, "minItems": 1},
            "one_of": {"anyOf": [{"type": "boolean"}, {}]},
            "odd": {"type": 1, "maxLength": "x", "items": None},
        },
    }


def test_a_schema_that_is_nested_too_deeply_is_none() -> None:
    deep: JSON = {}
    for _ in range(5_000):
        deep = {"type": "ARRAY", "items": deep}
    (tool,) = tools_of({"functionDeclarations": [{"name": "a", "parameters": deep}]})
    assert tool == Tool("a", None, runs_upstream=False)


def test_googles_own_tools_go_by_both_spellings() -> None:
    assert [(tool.name, tool.runs_upstream) for tool in tools_of(
        {"googleSearch": {}, "urlContext": {}}, {"code_execution": {}}, {"codeExecution": None},
        {"computerUse": {"environment": "ENVIRONMENT_BROWSER"}}, {"xTool2Go": {}},
    )] == [
        ("google_search", True), ("googleSearch", True), ("url_context", True),
        ("urlContext", True), ("code_execution", True),
        ("computer_use", False), ("computerUse", False),  # the client clicks
        ("x_tool2_go", True), ("xTool2Go", True),
    ]  # fmt: skip


def test_servers_go_by_their_names() -> None:
    servers = [{"name": "mail", "streamableHttpTransport": {"url": "https://a"}}, {}, "x"]
    for key in ("mcpServers", "mcp_servers"):
        assert tools_of({key: servers}) == (Tool("mail", None, runs_upstream=True),)


# --- changed answers ------------------------------------------------------------------------------


def test_an_edited_call_keeps_its_place_its_id_and_its_signature() -> None:
    made = change(streamed([HI], [ONE, TWO]), {(0, 0): NEW})
    edited = {**ONE, "functionCall": {**ONE["functionCall"], "args": json.loads(NEW)}}
    assert parts_of(made) == [[HI], [edited, TWO], [EMPTY]]
    assert b'"args":{"city":"Rome","a":[1.50,null]}' in made


def test_an_event_that_has_lost_all_it_had_is_left_out() -> None:
    whole = streamed([HI], [ONE], [TWO, HI])
    assert parts_of(change(whole, {(0, 0): None})) == [[HI], [TWO, HI], [EMPTY]]
    assert parts_of(change(whole, {(0, 1): None})) == [[HI], [ONE], [HI], [EMPTY]]
    assert change(whole, {(0, 0): None, (0, 1): None}).startswith(whole[0])


def test_an_event_that_says_something_else_stays() -> None:
    ended = (event(candidate(HI)), event(candidate(ONE, reason="STOP"), usageMetadata=USAGE))
    assert parts_of(change(ended, {(0, 0): None})) == [[HI], [EMPTY]]
    # Usage that comes once, and not at the end.
    once = (event(candidate(ONE), usageMetadata=USAGE), event(candidate(HI, reason="STOP")))
    made = change(once, {(0, 0): None})
    assert parts_of(made) == [[EMPTY], [HI]]
    assert read(made).usage == read(b"".join(once)).usage
    rated = (event(candidate(ONE, safetyRatings=[])), event(candidate(HI, reason="STOP")))
    assert parts_of(change(rated, {(0, 0): None})) == [[EMPTY], [HI]]


def test_a_body_whose_calls_are_all_dropped_still_has_a_part() -> None:
    made = json.loads(GEMINI.changed_body(answered(ONE, TWO), {(0, 0): None, (0, 1): None}))
    assert made["candidates"][0]["content"] == {"role": "model", "parts": [EMPTY]}
    assert made["candidates"][0]["finishReason"] == "STOP"


def test_a_call_in_pieces_is_one_call() -> None:
    pieces = streamed(
        [{"functionCall": {"name": "a", "willContinue": True}}],
        [{"functionCall": {"partialArgs": [{"jsonPath": "$.x", "stringValue": "y"}]}}],
        [{"functionCall": {}}],
        [TWO],
    )
    assert parts_of(change(pieces, {(0, 0): None})) == [[TWO], [EMPTY]]
    made = change(pieces, {(0, 0): NEW})
    assert calls_of(read(made))[0] == ("a", NEW)
    assert parts_of(made) == [
        [{"functionCall": {"name": "a", "args": json.loads(NEW)}}], [TWO], [EMPTY],
    ]  # fmt: skip


def test_a_call_in_both_spellings_hides_no_arguments() -> None:
    twice = {"functionCall": TWO["functionCall"], "function_call": THREE["functionCall"]}
    made = GEMINI.changed_body(answered(twice), {(0, 0): NEW})
    assert b'"n"' not in made
    assert made.count(NEW.encode()) == 2


def test_each_candidate_has_calls_of_its_own() -> None:
    both = (
        event(candidate(ONE, index=0), candidate(TWO, index=1)),
        event(candidate(HI, reason="STOP", index=0), candidate(HI, reason="STOP", index=1)),
    )
    answer = read(change(both, {(0, 0): None, (1, 0): NEW, (2, 0): None}), choices=2)
    assert [(choice, each.name, each.arguments) for choice, each in answer.tool_calls] == [
        (1, "send_email", NEW)
    ]
    assert [choice.text for choice in answer.choices] == ["Hi", "Hi"]


def test_what_is_not_changed_comes_out_byte_for_byte() -> None:
    whole = streamed([HI], [ONE], [TWO])
    made = change(whole, {(0, 1): NEW})
    assert made.startswith(b"".join(whole[:2]))
    assert made.endswith(whole[3])
    for raw in (
        b"",
        b"{",
        b"[]",
        b'{"candidates":1}',
        json.dumps(sample.ERROR).encode(),
    ):
        assert GEMINI.changed_body(raw, {(0, 0): None}) == raw
    assert GEMINI.changed_body(answered(HI), {(0, 0): None}) == answered(HI)
    failed = (event(candidate(HI)), *sample.ERROR_STREAM)
    assert change(failed, {(0, 0): None}) == b"".join(failed)


def test_a_changed_event_ends_as_it_did() -> None:
    whole = b"".join(streamed([ONE], [TWO]))
    for ends in (b"\n\n", b"\r\n\r\n", b"\r\r"):
        made = change([whole.replace(b"\r\n\r\n", ends)], {(0, 0): NEW})
        assert len(frames_of(made)) == 3
        assert made.count(ends) == 3
    # Cut between the CR and the LF that belong together.
    decoder = SSEDecoder()
    frames = [frame for byte in whole for frame in decoder.feed(bytes((byte,)))]
    assert GEMINI.changed_events(frames, {(0, 0): NEW}) == change([whole], {(0, 0): NEW})


@pytest.mark.parametrize("arguments", ["[]", "x", '{"a":1,"a":2}', "\ud83d", "NaN"])
def test_arguments_that_are_no_object_are_refused_by_name(arguments: str) -> None:
    with pytest.raises(BadRequest, match="must be a JSON object") as caught:
        GEMINI.changed_body(answered(ONE), {(0, 0): arguments})
    assert caught.value.param == "arguments"


kinds = st.sampled_from((HI, text("\U0001f600 \n"), THOUGHT, {"inlineData": {"data": "AAAA"}}))
part_lists = st.lists(
    st.lists(st.one_of(kinds, st.just("call")), min_size=1, max_size=3), max_size=4
)
fates = st.sampled_from(("keep", "keep", "drop", '{"new":1.50}', '{ "new": [] }'))


@given(
    drawn=part_lists,
    chosen=st.lists(fates, min_size=12, max_size=12),
    has_ids=st.booleans(),
)
@steady
def test_a_changed_stream_is_what_was_decided_to_every_reader(
    drawn: list[list[Any]], chosen: list[str], has_ids: bool
) -> None:
    numbers: Iterator[int] = iter(range(12))
    changes: dict[tuple[int, int], str | None] = {}
    wanted: list[tuple[str, Any]] = []
    pieces: list[list[dict[str, Any]]] = []
    for parts in drawn:
        pieces.append([])
        for part in parts:
            if part != "call":
                pieces[-1].append(part)
                continue
            number = next(numbers)
            made_call = call(number, f"do_{number}") if has_ids else bare(f"do_{number}", n=number)
            pieces[-1].append(made_call)
            fate = chosen[number]
            if fate != "keep":
                changes[0, number] = None if fate == "drop" else fate
            if fate != "drop":
                wanted.append(
                    (f"do_{number}", {"n": number} if fate == "keep" else json.loads(fate))
                )
    whole = streamed(*pieces)

    made = change(whole, changes)
    answer = read(made)

    # 1. our own assembler
    assert [(name, json.loads(value)) for name, value in calls_of(answer)] == wanted
    assert answer.text == read(b"".join(whole)).text
    assert (answer.is_complete, answer.finish_reason) == (True, "STOP")
    assert answer.usage == read(b"".join(whole)).usage
    # 2. the real types
    assert got_by_the_package(made) == wanted
    # 3. the two forms agree, but for texts with nothing in them
    one = json.loads(GEMINI.changed_body(GEMINI.body_from_events(frames_of(*whole)), changes))
    other = json.loads(GEMINI.body_from_events(frames_of(made)))
    for each in (one, other):
        content = each["candidates"][0]["content"]
        content["parts"] = [
            part for part in content["parts"] if part != EMPTY and "text" not in part
        ]
    assert canonical(one) == canonical(other)
    if not changes:
        assert made == b"".join(whole)


def got_by_the_package(raw: bytes) -> list[tuple[str, Any]]:
    """Return the calls that the types of the `google-genai` package find in a stream."""
    types: Any = pytest.importorskip("google.genai.types")
    found: list[tuple[str, Any]] = []
    for frame in frames_of(raw):
        if frame.data is not None:
            response = types.GenerateContentResponse.model_validate_json(frame.data)
            assert all(each.content.parts for each in response.candidates)
            found += [(each.name, each.args) for each in response.function_calls or ()]
    return found


# Parts and candidates as Google should not send them.
odd_parts = st.sampled_from(
    (
        HI, EMPTY, THOUGHT, None, bare("a", n=1), {"functionCall": {"args": {"n": 2}}},
        {"functionCall": {"partialArgs": [1]}}, {"functionCall": {}},
        {"function_call": {"name": "b"}},
        {"functionCall": None, "function_call": {"name": "c"}},
    )
)  # fmt: skip
odd_candidates = st.none() | st.fixed_dictionaries(
    {"content": st.fixed_dictionaries({"parts": st.lists(odd_parts, max_size=3)})},
    optional={"index": st.sampled_from((0, 1)), "finishReason": st.just("STOP")},
)


@given(
    chunks=st.lists(st.lists(odd_candidates, max_size=2), max_size=4),
    changes=st.dictionaries(
        st.tuples(st.integers(0, 1), st.integers(0, 3)), st.none() | st.just(NEW), max_size=4
    ),
)
@steady
def test_odd_streams_are_changed_as_they_are_read(
    chunks: list[list[Any]], changes: dict[tuple[int, int], str | None]
) -> None:
    raw = b"".join(event(*candidates) for candidates in chunks)
    before, after = read(raw), read(change([raw], changes))

    wanted = [
        (choice, call.name, changes.get((choice, call.position), call.arguments))
        for choice, call in before.tool_calls
    ]
    assert [(choice, call.name, call.arguments) for choice, call in after.tool_calls] == [
        each for each in wanted if each[2] is not None
    ]
    assert [choice.text for choice in after.choices if choice.text] == [
        choice.text for choice in before.choices if choice.text
    ]


# --- joined answers -------------------------------------------------------------------------------


def joined_parts(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    made = json.loads(GEMINI.joined_body("I look.", answered(*parts)))
    found: list[dict[str, Any]] = made["candidates"][0]["content"]["parts"]
    return found


def test_an_earlier_text_goes_before_a_body_and_after_its_thoughts() -> None:
    assert joined_parts(HI, ONE) == [text("I look.\n\nHi"), ONE]
    assert joined_parts(THOUGHT, HI) == [THOUGHT, text("I look.\n\nHi")]
    assert joined_parts(THOUGHT, ONE) == [THOUGHT, text("I look."), ONE]
    assert joined_parts(EMPTY) == [text("I look.")]
    assert joined_parts() == [text("I look.")]
    signed = text("Hi", thoughtSignature="c2ln")
    assert joined_parts(signed) == [text("I look.\n\n"), signed]
    assert joined_parts(ONE, HI) == [text("I look.\n\n"), ONE, HI]


def test_a_body_without_content_gets_one() -> None:
    made = json.loads(GEMINI.joined_body("I look.", body({"finishReason": "STOP"})))
    assert made["candidates"] == [
        {"finishReason": "STOP", "content": {"role": "model", "parts": [text("I look.")]}}
    ]


def test_there_is_no_answer_to_put_a_text_before() -> None:
    for raw in (b"", b"{}", body(promptFeedback={"blockReason": "SAFETY"}), b'{"candidates":[1]}'):
        assert GEMINI.joined_body("I look.", raw) == raw


def test_a_blank_line_comes_before_the_next_text_alone() -> None:
    first = streamed([THOUGHT, HI])[:1]
    second = streamed([THOUGHT], [EMPTY, HI], [ONE, HI])
    made = join(first, second)

    assert parts_of(made) == [
        [THOUGHT, HI], [THOUGHT], [EMPTY, text("\n\nHi")], [ONE, HI], [EMPTY],
    ]  # fmt: skip
    assert made.startswith(first[0] + second[0])
    assert made.endswith(b"".join(second[2:]))


def test_a_beginning_without_text_adds_no_blank_line() -> None:
    second = streamed([HI])
    for first in ((b": held\n",), streamed([THOUGHT])[:1]):
        assert join(first, second) == b"".join((*first, *second))


# --- heartbeats, through the real client ----------------------------------------------------------


def through_the_client(content: bytes) -> list[Any]:
    """Return what `google-genai` makes of a stream."""
    genai: Any = pytest.importorskip("google.genai")
    httpx: Any = pytest.importorskip("httpx2")

    def answer(_: Any) -> Any:
        return httpx.Response(200, headers={"content-type": "text/event-stream"}, content=content)

    options = genai.types.HttpOptions(
        base_url="http://upstream", httpx_client=httpx.Client(transport=httpx.MockTransport(answer))
    )
    client = genai.Client(api_key="k", http_options=options)
    return list(client.models.generate_content_stream(model=sample.MODEL, contents="Hi"))


def test_the_client_passes_over_heartbeats() -> None:
    beat = GEMINI.heartbeat
    whole = streamed([HI], [ONE], [TWO])
    made = change(whole, {(0, 0): NEW, (0, 1): None})
    chunks = through_the_client(beat + b"".join(frame.raw + beat for frame in frames_of(made)))

    assert [chunk.candidates[0].content.parts[0].text for chunk in chunks] == ["Hi", None, ""]
    (found,) = chunks[1].function_calls
    assert (found.name, found.args) == ("get_weather", json.loads(NEW))


def test_the_client_does_not_pass_over_comments() -> None:
    # The day that it does, heartbeats can be comments as in other dialects.
    errors: Any = pytest.importorskip("google.genai.errors")
    with pytest.raises(errors.UnknownApiResponseError):
        through_the_client(streamed([HI])[0] + b": held\n\n" + streamed()[0])


def test_googles_go_client_finds_its_events_between_heartbeats() -> None:
    # It cuts at LF LF where its buffer has one, else at CR LF CR LF, and skips what is empty.
    stream = GEMINI.heartbeat + b"".join(
        frame.raw + GEMINI.heartbeat
        for frame in frames_of(change(streamed([HI], [ONE]), {(0, 0): NEW}))
    )
    assert b"\n\n" not in stream
    events = [each for each in stream.split(b"\r\n\r\n") if each]
    assert [each[:6] for each in events] == [b"data: "] * 3


def test_the_frame_of_the_other_form_is_changed_as_well() -> None:
    (whole,) = GEMINI.events_from_body(answered(HI, ONE), include_usage=True)
    made = change([whole], {(0, 0): NEW})
    assert canonical(parse(made[6:])) == canonical(
        parse(GEMINI.changed_body(answered(HI, ONE), {(0, 0): NEW}))
    )
