"""Tools of a request, and answers that are changed, in the Responses form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.base import CallsTools, Tool
from agentstate.ground.approvals import Changes
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, ToolCall
from agentstate.ground.errors import BadRequest
from tests.dialects import samples_responses as sample
from tests.dialects.contract import CallsContract, GatedDialect
from tests.dialects.samples_responses import (
    added,
    body,
    call,
    call_events,
    done,
    end,
    event,
    message,
    part,
    reasoning,
    response,
    stream,
    text_events,
)
from tests.dialects.streams_responses import (
    CUSTOM,
    LOCAL,
    PATCH,
    RESPONSES,
    SEARCH,
    SHELL,
    Event,
    accumulate,
    custom_events,
    events_of,
    frames_of,
    names_of,
    objects,
    outputs,
    read,
    shell_events,
    streams,
    whole_events,
)

A, B = '{"a":1}', '{"b":2}'
NEW = '{"to":"new@example.com","amount":1.50}'
ONE, TWO = call(1, arguments=A), call(2, name="send_email", arguments=B)
HI = message(part("Hi"))
THOUGHT = reasoning("Hm.", encrypted_content="gAAAA")


def arguments_of(answer: Answer) -> list[tuple[str | None, str]]:
    return [(each.call_id, each.arguments) for _, each in answer.tool_calls]


def change(raw: Sequence[bytes], changes: Changes) -> bytes:
    return RESPONSES.changed_events(frames_of(*raw), changes)


# --- the contract ---------------------------------------------------------------------------------


class TestCalls(CallsContract):
    dialect: ClassVar[GatedDialect] = RESPONSES
    request: ClassVar[dict[str, JSON]] = {
        "model": "m",
        "input": [{"role": "user", "content": "Mail them."}],
        "tools": [{"type": "function", "name": "send_email", "parameters": {"type": "object"}}],
    }
    tools: ClassVar[tuple[str, ...]] = ("send_email",)
    texts: ClassVar[dict[str, bytes]] = {
        "text": body(HI),
        "after a thought": body(THOUGHT, HI),
        "refusal": body(HI, message({"type": "refusal", "refusal": "No."}, id="msg_2")),
        "cut by its limit": json.dumps(sample.cut_short("Hi")).encode(),
    }
    text_streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        name: sample.STREAMS[name]
        for name in ("text", "cut by its limit", "reasoning", "unknown fields")
    }
    bodies: ClassVar[dict[str, bytes]] = {
        "one": body(ONE),
        "two": body(ONE, TWO),
        "after text": body(HI, ONE, TWO),
        "after thoughts": body(THOUGHT, ONE, reasoning("Then.", id="rs_2"), TWO),
        "before text": body(ONE, HI, CUSTOM),
        "custom": body(CUSTOM),
        "built in": body(LOCAL, SHELL, PATCH),
        "unknown fields": body(call(x=1e2, y=[1.50]), x_unknown={"a": 1.0}),
        "no item ids": body(
            *({key: each[key] for key in each if key != "id"} for each in (ONE, TWO))
        ),
    }  # fmt: skip
    streams: ClassVar[dict[str, tuple[bytes, ...]]] = {
        "by the book": stream(*call_events(0, ONE, '{"a"', ":1}"), end(ONE)),
        "after text": stream(
            *text_events(0, "Hi"), *call_events(1, ONE, A), *call_events(2, TWO, '{"b', '":2}'),
            end(HI, ONE, TWO),
        ),
        "before text": stream(
            *call_events(0, ONE, A), *text_events(1, "Hi"),
            *custom_events(2, CUSTOM, "delete ", "x"), end(ONE, HI, CUSTOM),
        ),
        "a thought before": stream(
            added(0, THOUGHT), done(0, THOUGHT), *call_events(1, ONE, A), end(THOUGHT, ONE)
        ),
        "interleaved": sample.STREAMS["interleaved tool calls"],
        "built in": stream(
            *whole_events(0, LOCAL), *shell_events(1, SHELL), *whole_events(2, PATCH),
            end(LOCAL, SHELL, PATCH),
        ),
        "shown whole at once": stream(*whole_events(0, ONE), *whole_events(1, TWO), end(ONE, TWO)),
        "no output at the end": sample.STREAMS["no output at the end"],
        "deltas alone": sample.STREAMS["deltas alone"],
        "nothing but the end": sample.STREAMS["nothing but the end"],
        "listed before the end": (
            *stream(),
            event("response.in_progress", 2, response={**sample.HEAD, "output": [ONE]}),
            event("response.completed", 3, response=response(ONE, TWO)),
        ),
        "[DONE] after it": (*stream(*call_events(0, ONE, A), end(ONE)), b"data: [DONE]\n\n"),
        "not numbered": tuple(
            event(name, None, **fields)
            for name, fields in (
                ("response.created", {"response": sample.HEAD}),
                *call_events(0, ONE, A), *call_events(1, TWO, B), end(ONE, TWO),
            )
        ),
        # GitHub Copilot: an id of its own in each event.
        "new ids": stream(
            added(0, call(1, id="a", arguments="")),
            ("response.function_call_arguments.delta",
             {"output_index": 0, "item_id": "b", "delta": A}),
            done(0, call(1, id="c", arguments=A)),
            added(1, call(2, id="d", arguments="")),
            ("response.function_call_arguments.delta",
             {"output_index": 1, "item_id": "e", "delta": B}),
            done(1, call(2, id="f", arguments=B)),
            end(call(1, id="g", arguments=A), call(2, id="h", arguments=B)),
        ),
        # Gateways that number texts and calls apart.
        "one place for all": stream(
            *text_events(0, "Hi"), *call_events(0, ONE, A), *call_events(0, TWO, B),
            end(HI, ONE, TWO),
        ),
    }  # fmt: skip
    plain_end: ClassVar[str] = "completed"

    def heard(self, body: bytes) -> list[JSON]:
        output: list[JSON] = json.loads(body)["output"]
        return output

    def heard_result(self, call: ToolCall, text: str) -> JSON:
        kinds = {"function": "function_call_output", "custom": "custom_tool_call_output"}
        kind = kinds.get(call.kind, f"{call.kind}_output")
        return {"type": kind, "call_id": call.call_id, "output": text}


def test_it_is_a_dialect_that_calls_tools() -> None:
    dialect: CallsTools = RESPONSES

    assert isinstance(dialect, CallsTools)
    assert frames_of(dialect.heartbeat)[0].data is None


# --- tools ----------------------------------------------------------------------------------------


def tools_of(*tools: Any) -> list[tuple[str, bool]]:
    ask = RESPONSES.read_ask({"model": "m", "input": "hi", "tools": list(tools)})
    return [(tool.name, tool.runs_upstream) for tool in RESPONSES.tools(ask)]


def test_functions_have_a_schema_and_custom_tools_have_none() -> None:
    schema: JSON = {"type": "object", "properties": {"amount": {"type": "number", "maximum": 1.50}}}
    ask = RESPONSES.read_ask(
        {
            "model": "m",
            "input": "hi",
            "tools": [
                {"type": "function", "name": "pay", "parameters": schema},
                {"type": "function", "name": "bare"},
                {"type": "custom", "name": "run_sql", "format": {"type": "text"}},
                {"type": "tool_search", "execution": "client", "parameters": schema},
            ],
        }
    )

    assert RESPONSES.tools(ask) == (
        Tool("pay", schema, False),
        Tool("bare", None, False),
        Tool("run_sql", None, False),
        Tool("tool_search", schema, False),
    )


@pytest.mark.parametrize(
    ("tool", "runs_upstream"),
    [
        ({"type": "local_shell"}, False),
        ({"type": "shell"}, False),
        ({"type": "shell", "environment": None}, False),
        ({"type": "shell", "environment": {"type": "local"}}, False),
        ({"type": "shell", "environment": {"type": "container_auto"}}, True),
        ({"type": "shell", "environment": {"type": "container_reference"}}, True),
        ({"type": "apply_patch"}, False),
        ({"type": "computer_use_preview"}, False),
        ({"type": "computer"}, False),
        ({"type": "web_search"}, True),
        ({"type": "web_search_preview_2025_03_11"}, True),
        ({"type": "file_search"}, True),
        ({"type": "code_interpreter"}, True),
        ({"type": "image_generation"}, True),
        ({"type": "tool_search", "execution": "server"}, True),
        ({"type": "tool_search"}, True),
        # Who runs a tool that nobody here knows is not known either.
        ({"type": "some_news"}, True),
    ],
)
def test_a_built_in_tool_is_run_by_the_client_or_upstream(
    tool: dict[str, Any], runs_upstream: bool
) -> None:
    assert tools_of(tool) == [(tool["type"], runs_upstream)]


def test_the_tools_of_a_namespace_are_told() -> None:
    inner = [{"type": "function", "name": "drop"}, {"type": "custom", "name": "say"}]

    assert tools_of({"type": "namespace", "name": "crm", "tools": inner}) == [
        ("drop", False),
        ("say", False),
    ]


@pytest.mark.parametrize(
    ("setting", "server", "read", "drop"),
    [
        ("always", False, False, False),
        ("never", True, True, True),
        # OpenAI asks unless told otherwise; not all who copy it do.
        (None, True, True, True),
        ({"never": {"tool_names": ["read"]}}, True, True, False),
        ({"always": {"tool_names": ["drop"]}}, True, True, False),
        ({"always": {"tool_names": ["read", "drop"]}}, False, False, False),
        (
            {"always": {"tool_names": ["drop"]}, "never": {"tool_names": ["drop"]}},
            True,
            False,
            True,
        ),
        ({"never": {"read_only": True}}, True, True, True),
        ({}, True, True, True),
        ([], True, True, True),
    ],
)
@pytest.mark.parametrize("names", [["read", "drop"], {"tool_names": ["read", "drop"]}])
def test_the_tools_of_a_server_run_upstream_unless_the_model_asks_first(
    setting: Any, server: bool, read: bool, drop: bool, names: Any
) -> None:
    mcp = {"type": "mcp", "server_label": "crm", "allowed_tools": names}

    assert tools_of({**mcp, "require_approval": setting}) == [
        ("crm", server),
        ("crm.read", read),
        ("crm.drop", drop),
    ]


def test_a_server_whose_tools_are_not_named_is_told_by_its_label() -> None:
    mcp = {"type": "mcp", "server_label": "crm"}
    exempt = {"never": {"tool_names": ["read"]}}

    assert tools_of({**mcp, "require_approval": "always"}) == [("crm", False)]
    assert tools_of({**mcp, "require_approval": exempt}) == [("crm", True)]


# --- who runs a call ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "runs_upstream"),
    [
        (ONE, False),
        (CUSTOM, False),
        (LOCAL, False),
        (SHELL, False),
        ({**SHELL, "environment": {"type": "local"}}, False),
        ({**SHELL, "environment": {"type": "container_reference", "container_id": "c"}}, True),
        (PATCH, False),
        (sample.COMPUTER, False),
        (sample.MCP_APPROVAL, False),
        ({"type": "some_future_call"}, False),
        ({"type": "tool_search_call", "execution": "client"}, False),
        ({"type": "tool_search_call", "execution": "server"}, True),
        (sample.MCP_CALL, True),
        (sample.WEB_SEARCH, True),
        (sample.FILE_SEARCH, True),
        (sample.INTERPRETER, True),
        (sample.IMAGE, True),
    ],
)
def test_a_call_says_who_runs_it(item: dict[str, Any], runs_upstream: bool) -> None:
    ((_, whole),) = RESPONSES.read_answer(body(item)).tool_calls
    ((_, streamed),) = read(b"".join(stream(*whole_events(0, item), end(item)))).tool_calls

    assert whole.runs_upstream is streamed.runs_upstream is runs_upstream


# --- new arguments --------------------------------------------------------------------------------


def edit(item: dict[str, Any], arguments: str) -> dict[str, Any]:
    raw = RESPONSES.changed_body(body(item), {(0, 0): arguments})
    ((_, shown),) = RESPONSES.read_answer(raw).tool_calls
    whole = read(change(stream(*whole_events(0, item), end(item)), {(0, 0): arguments}))
    assert arguments_of(whole) == [(shown.call_id, shown.arguments)]
    edited: dict[str, Any] = json.loads(raw)["output"][0]
    return edited


@pytest.mark.parametrize(
    ("item", "arguments", "field", "value"),
    [
        (ONE, ' {"a": 2}', "arguments", ' {"a": 2}'),
        (call(arguments=""), "{}", "arguments", "{}"),
        ({key: ONE[key] for key in ONE if key != "arguments"}, "{}", "arguments", "{}"),
        (CUSTOM, "select 1", "input", "select 1"),
        (LOCAL, '{"type":"exec","command":["ls"]}', "action", {"type": "exec", "command": ["ls"]}),
        (SHELL, '{"commands":["pwd"]}', "action", {"commands": ["pwd"]}),
        (PATCH, '{"type":"x"}', "operation", {"type": "x"}),
        (sample.COMPUTER, '{"type":"wait"}', "action", {"type": "wait"}),
        ({"type": "computer_call", "id": "c", "actions": [{"type": "wait"}]},
         '{"actions":[]}', "actions", []),
        ({"type": "local_shell_call", "id": "c"}, '{"command":[]}', "action", {"command": []}),
        ({"type": "tool_search_call", "id": "c", "arguments": {}},
         '{"q":1}', "arguments", {"q": 1}),
        ({"type": "some_future_call", "id": "c", "operation": {"a": 1}},
         '{"b":2}', "operation", {"b": 2}),
        ({"type": "some_future_call", "id": "c", "code": "1"}, '{"code":"2"}', "code", "2"),
    ],
)  # fmt: skip
def test_new_arguments_go_where_the_old_ones_were(
    item: dict[str, Any], arguments: str, field: str, value: Any
) -> None:
    edited = edit(item, arguments)

    assert edited == {**item, field: value}


def test_a_client_may_look_into_either_of_two_fields_so_both_are_shown_and_edited() -> None:
    item = {**sample.COMPUTER, "actions": [{"type": "type", "text": "rm"}]}
    ((_, shown),) = RESPONSES.read_answer(body(item)).tool_calls

    assert json.loads(shown.arguments) == {"action": item["action"], "actions": item["actions"]}
    new = {"action": {"type": "wait"}, "actions": []}
    assert edit(item, json.dumps(new)) == {**item, **new}


@pytest.mark.parametrize(
    ("item", "arguments", "says"),
    [
        (LOCAL, "ls", "must be a JSON object"),
        (SHELL, "[1]", "a list"),
        ({"type": "computer_call", "actions": [1]}, '{"actions":1}', "`actions` (a list)"),
        ({"type": "computer_call", "actions": [1]}, '{"actions":[],"x":1}', "nothing else"),
        ({"type": "computer_call", "action": {}, "actions": []}, '{"action":{}}', "and `actions`"),
        ({"type": "some_future_call"}, "{}", "it is not known where"),
        ({"type": "some_future_call", "code": "1"}, '{"code":1}', "`code` (a string)"),
        # The provider runs it with the arguments that it asked about: an edit would be a lie.
        (sample.MCP_APPROVAL, "{}", "asked about"),
        (sample.MCP_CALL, "{}", "has run this mcp_call"),
        (sample.INTERPRETER, '{"code":"1"}', "has run this code_interpreter_call"),
        ({**SHELL, "environment": {"type": "container_reference"}}, "{}", "has run"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    item: dict[str, Any], arguments: str, says: str
) -> None:
    with pytest.raises(BadRequest, match="arguments") as whole:
        RESPONSES.changed_body(body(item), {(0, 0): arguments})
    with pytest.raises(BadRequest, match="arguments") as streamed:
        change(stream(*whole_events(0, item), end(item)), {(0, 0): arguments})

    assert says in whole.value.message
    assert streamed.value.message == whole.value.message
    assert whole.value.param == "arguments"


# --- changed bodies -------------------------------------------------------------------------------


def test_what_is_not_changed_stays_as_it_was_sent() -> None:
    raw = (
        b'{"x":1.50,"output":[{"type":"function_call","arguments":"{}","z":1e2},'
        b'{"type":"function_call","call_id":"b"},{"type":"web_search_call","n":1.0}, 7],"id":"r"}'
    )

    assert RESPONSES.changed_body(raw, {(0, 1): None}) == (
        b'{"x":1.50,"output":[{"type":"function_call","arguments":"{}","z":1e2},'
        b'{"type":"web_search_call","n":1.0},7],"id":"r"}'
    )


def test_calls_that_the_provider_ran_count_and_stay() -> None:
    raw = body(SEARCH, ONE, sample.MCP_TOOLS, sample.MCP_CALL, TWO)

    changed = RESPONSES.changed_body(raw, {(0, 1): None, (0, 3): NEW})

    assert arguments_of(RESPONSES.read_answer(changed)) == [
        ("ws_1", '{"type":"search","query":"oslo"}'), ("mcp_1", "{}"), ("call_2", NEW),
    ]  # fmt: skip
    assert [each["type"] for each in json.loads(changed)["output"]] == [
        "web_search_call", "mcp_list_tools", "mcp_call", "function_call",
    ]  # fmt: skip


def test_an_answer_cut_by_its_limit_still_is_when_its_calls_are_gone() -> None:
    cut = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    whole = RESPONSES.changed_body(body(ONE, **cut), {(0, 0): None})
    raw = stream(
        *call_events(0, ONE, A), ("response.incomplete", {"response": response(ONE, **cut)})
    )
    streamed = read(change(raw, {(0, 0): None}))

    for answer in (RESPONSES.read_answer(whole), streamed):
        assert (answer.is_complete, answer.finish_reason) == (True, "max_output_tokens")
        assert answer.tool_calls == ()


@pytest.mark.parametrize("raw", [b"", b"{", b"[" * 200_000])
def test_a_body_that_cannot_be_read_is_not_changed(raw: bytes) -> None:
    with pytest.raises(BadRequest, match="cannot be read"):
        RESPONSES.changed_body(raw, {(0, 0): None})


# --- changed streams ------------------------------------------------------------------------------


def test_an_edited_call_comes_in_one_piece_and_the_numbers_close_up() -> None:
    raw = stream(*call_events(0, ONE, '{"a"', ":", "1}"), *call_events(1, TWO, B), end(ONE, TWO))

    made = change(raw, {(0, 0): NEW})

    assert names_of(made) == [
        "created", "in_progress",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done",
        "output_item.added", "function_call_arguments.delta", "function_call_arguments.done",
        "output_item.done", "completed",
    ]  # fmt: skip
    events = events_of(made)
    assert [each["sequence_number"] for each in events] == list(range(11))
    assert events[2]["item"]["arguments"] == ""
    assert events[3]["delta"] == events[4]["arguments"] == events[5]["item"]["arguments"] == NEW
    assert [each["arguments"] for each in events[10]["response"]["output"]] == [NEW, B]
    # What came before the first event that is changed did not change.
    assert made.startswith(b"".join(raw[:3]))


def test_a_dropped_call_leaves_no_gap() -> None:
    raw = stream(
        *text_events(0, "Hi"), *call_events(1, ONE, A), *call_events(2, TWO, B), end(HI, ONE, TWO)
    )

    made = change(raw, {(0, 0): None})

    events = events_of(made)
    assert [each["sequence_number"] for each in events] == list(range(len(events)))
    assert [each["output_index"] for each in events if "output_index" in each] == [0] * 6 + [1] * 4
    assert [each["type"] for each in events[-1]["response"]["output"]] == [
        "message",
        "function_call",
    ]
    assert b"call_1" not in made
    assert b"fc_1" not in made


def test_frames_that_need_no_change_stay_byte_for_byte() -> None:
    odd = b'data: {"type":"response.output_text.delta",  "output_index":0,"delta":"\\u0041"}\n\n'
    raw = (*stream(*text_events(0, "Hi")), odd, *stream(*call_events(1, ONE, A), end(HI, ONE))[2:])

    edited = change(raw, {(0, 0): NEW})
    kept = [frame.raw for frame in frames_of(edited)]

    assert (
        kept[: len(stream(*text_events(0, "Hi"))) + 2]
        == [frame.raw for frame in frames_of(*raw)][: len(stream(*text_events(0, "Hi"))) + 2]
    )
    assert odd in kept


def test_an_item_that_was_shown_before_keeps_its_place() -> None:
    raw = stream(
        added(1, call(2, name="send_email", arguments="")),
        *call_events(0, ONE, A),
        ("response.function_call_arguments.delta",
         {"output_index": 1, "item_id": "fc_2", "delta": B}),
        done(1, TWO),
        *call_events(2, call(3, arguments="{}"), "{}"),
        end(ONE, TWO, call(3, arguments="{}")),
    )  # fmt: skip
    assert [name for _, name in arguments_of(read(b"".join(raw)))] == [B, A, "{}"]

    made = change(raw, {(0, 1): None})

    assert made.startswith(b"".join(raw[:3]))
    assert [each["output_index"] for each in events_of(made) if "output_index" in each] == [
        1, 1, 1, 2, 2, 2, 2,
    ]  # fmt: skip
    assert arguments_of(read(made)) == [("call_2", B), ("call_3", "{}")]


def test_a_place_that_others_have_too_is_not_closed() -> None:
    """Gateways that number texts and calls apart."""
    text, first, second = text_events(0, "Hi"), call_events(0, ONE, A), call_events(1, TWO, B)

    for happened in ((*text, *first, *second), (*first, *text, *second)):
        made = change(stream(*happened, end(HI, ONE, TWO)), {(0, 0): None})
        assert [each["output_index"] for each in events_of(made) if "output_index" in each] == (
            [0] * 6 + [1] * 4
        )


@pytest.mark.parametrize(
    "more",
    [
        ("response.function_call_state.changed", {"output_index": 1, "secret": 1}),
        ("response.some_news", {"item_id": "fc_1", "secret": 1}),
        ("response.some_news", {"output_index": 1, "secret": 1}),
        ("response.some_news", {"call_id": "call_1", "secret": 1}),
        ("response.function_call_arguments.delta", {"item_id": "fc_1", "delta": {"secret": 1}}),
        ("response.function_call_arguments.news", {"output_index": 1, "secret": 1}),
        # Of a call, but nobody can tell of which.
        ("response.other_call.secret", {}),
    ],
)
def test_events_of_unknown_forms_go_with_their_call(more: Event) -> None:
    raw = stream(*text_events(0, "Hi"), *call_events(1, ONE, A), more, end(HI, ONE))

    for new in (None, NEW):
        made = change(raw, {(0, 0): new})
        assert b"secret" not in made
        assert [each["sequence_number"] for each in events_of(made)] == list(
            range(len(events_of(made)))
        )


def test_other_events_of_unknown_forms_stay() -> None:
    others: tuple[Event, ...] = (
        ("response.some_news", {"item_id": "msg_1", "kept": 1}),
        ("response.some_news", {"kept": 1}),
        ("response.web_search_call.searching", {"output_index": 1, "item_id": "ws_1", "kept": 1}),
        ("keepalive", {"kept": 1}),
    )
    raw = stream(
        *text_events(0, "Hi"), added(1, SEARCH), *call_events(2, ONE, A), *others, end(HI, ONE)
    )

    assert change(raw, {(0, 1): None}).count(b'"kept"') == 4


def test_the_progress_of_an_edited_call_stays_and_what_it_shows_does_not() -> None:
    at = {"output_index": 0, "item_id": "sh_1"}
    raw = stream(*shell_events(0, SHELL), ("response.shell_call.in_progress", at), end(SHELL))

    made = change(raw, {(0, 0): '{"commands":["pwd"]}'})

    assert names_of(made) == [
        "created", "in_progress", "output_item.added", "output_item.done", "shell_call.in_progress",
        "completed",
    ]  # fmt: skip
    assert b'"ls"' not in made
    # What is added may be run at once.
    assert events_of(made)[2]["item"]["action"] == {"commands": ["pwd"]}


def test_a_call_that_is_added_whole_gets_no_second_text() -> None:
    raw = stream(
        added(0, ONE),
        ("response.function_call_arguments.delta",
         {"output_index": 0, "item_id": "fc_1", "delta": A}),
        done(0, ONE),
        end(ONE),
    )  # fmt: skip

    made = change(raw, {(0, 0): NEW})

    assert names_of(made)[2:] == ["output_item.added", "output_item.done", "completed"]
    assert accumulate(made).output[0].arguments == NEW


def test_what_is_listed_before_the_end_is_changed_there_too() -> None:
    raw = (
        *stream(),
        event("response.in_progress", 2, response={**sample.HEAD, "output": [ONE, HI, TWO]}),
        event("response.completed", 3, response=response(ONE, HI, TWO)),
    )
    assert arguments_of(read(b"".join(raw))) == [("call_1", A), ("call_2", B)]

    made = change(raw, {(0, 0): None, (0, 1): NEW})

    for each in events_of(made)[2:]:
        assert [item.get("arguments") for item in each["response"]["output"]] == [None, NEW]


def test_an_event_that_lists_calls_is_kept_like_one() -> None:
    assembler = RESPONSES.assembler()
    listing = event("response.in_progress", 0, response={"output": [HI, TWO]})

    marks = [assembler.feed(frame).value for frame in frames_of(listing)]

    assert marks == ["tool"]
    assert assembler.call_names() == [(0, 0, "send_email")]
    assert assembler.new_text() == [(0, "Hi")]


def test_numbers_and_unknown_fields_survive_in_a_changed_event() -> None:
    raw = (
        b'data: {"type":"response.output_item.added","output_index":0,'
        b'"item":{"type":"function_call","arguments":""}}\n\n'
        b'event: e\ndata: {"b":1.50,"type":"response.output_item.done","output_index":0,'
        b'"item":{"z":1e2,"type":"function_call","arguments":"{}","id":12345678901234567890}}\n\n'
    )

    assert change((raw,), {(0, 0): NEW}).split(b"\n\n")[1] == (
        b'event: e\ndata: {"b":1.50,"type":"response.output_item.done","output_index":0,'
        b'"item":{"z":1e2,"type":"function_call","arguments":%b,"id":12345678901234567890}}'
        % json.dumps(NEW).encode()
    )


# --- any stream, any change -----------------------------------------------------------------------


def fates(answer: Answer) -> st.SearchStrategy[dict[tuple[int, int], str | None]]:
    places = [(0, each.position) for _, each in answer.tool_calls if not each.runs_upstream]
    news = st.none() | objects.map(json.dumps)
    chosen = st.lists(st.sampled_from(places), unique=True) if places else st.just([])
    return chosen.flatmap(lambda some: st.fixed_dictionaries(dict.fromkeys(some, news)))


@given(raw=streams(), data=st.data())
@settings(derandomize=True, deadline=None, database=None, max_examples=100)
def test_a_changed_stream_reads_as_exactly_the_calls_that_are_left(
    raw: tuple[bytes, ...], data: st.DataObject
) -> None:
    before = read(b"".join(raw))
    changes = data.draw(fates(before))
    want = [
        (each.call_id, each.name, changes.get((0, each.position), each.arguments))
        for _, each in before.tool_calls
        if changes.get((0, each.position), "") is not None
    ]

    made = change(raw, changes)

    after = read(made)
    assert [(id, name, one_form(text)) for id, name, text in told(after)] == [
        (id, name, one_form(text or "")) for id, name, text in want
    ]
    assert (after.text, after.choices[0].reasoning) == (before.text, before.choices[0].reasoning)
    assert (after.is_complete, after.usage) == (True, before.usage)
    whole = accumulate(made)
    assert whole.output_text == before.text
    assert [each.call_id for each in whole.output if hasattr(each, "call_id")] == [
        id for id, _, _ in want if id is not None and id.startswith("call_")
    ]


@given(items=outputs(), data=st.data())
@settings(derandomize=True, deadline=None, database=None, max_examples=60)
def test_a_changed_stream_and_a_changed_body_say_the_same(
    items: list[dict[str, Any]], data: st.DataObject
) -> None:
    raw = body(*items)
    changes = data.draw(fates(RESPONSES.read_answer(raw)))
    events = RESPONSES.events_from_body(raw, include_usage=True)

    whole, made = RESPONSES.changed_body(raw, changes), change(events, changes)

    assert json.loads(RESPONSES.body_from_events(frames_of(made))) == json.loads(whole)
    # Items one after the other: no place is left empty.
    places = {each["output_index"] for each in events_of(made) if "output_index" in each}
    assert places == set(range(len(json.loads(whole)["output"])))
    assert [each.id for each in accumulate(made).output] == [
        each["id"] for each in json.loads(whole)["output"]
    ]


def told(answer: Answer) -> list[tuple[str | None, str, str]]:
    """Return the calls of an answer as what they say."""
    return [(each.call_id, each.name, each.arguments) for _, each in answer.tool_calls]


def one_form(text: str) -> Any:
    """Return arguments as what they say; free text as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text
