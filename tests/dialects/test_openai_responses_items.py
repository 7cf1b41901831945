"""Which item a piece belongs to, in streams by the book and in those that real upstreams send."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.base import Mark
from agentstate.dialects.openai_responses_items import Output, is_call
from tests.dialects.samples_responses import (
    MCP_APPROVAL,
    SHELL,
    added,
    call,
    call_events,
    done,
    message,
    part,
    reasoning,
    text_events,
)

Event = tuple[str, dict[str, Any]]


def output_of(*happened: Event, final: list[Any] | None = None) -> Output:
    output = Output()
    for name, fields in happened:
        output.take(name, fields)
    if final is not None:
        output.take_final(final)
    return output


def items_of(*happened: Event, final: list[Any] | None = None) -> list[dict[str, Any]]:
    return [item.whole() for item in output_of(*happened, final=final).items]


def arguments_of(*happened: Event, final: list[Any] | None = None) -> list[Any]:
    calls = output_of(*happened, final=final).calls
    return [(item.call_id, item.name, item.whole().get("arguments")) for item in calls]


def delta(text: str, **at: Any) -> Event:
    return "response.function_call_arguments.delta", {"delta": text, **at}


def opened(number: int, **fields: Any) -> dict[str, Any]:
    """Return a call as it is added."""
    return call(number, arguments="", status="in_progress", **fields)


A, B = '{"a":1}', '{"b":2}'
TWO = [("call_1", "get_weather", A), ("call_2", "get_weather", B)]


# --- by the book ----------------------------------------------------------------------------------


def test_an_item_is_the_last_whole_form_of_it() -> None:
    whole = [reasoning("Hm."), message(part("Hi")), call()]

    assert items_of(
        added(0, reasoning()), done(0, whole[0]), *text_events(1, "H", "i"),
        *call_events(2, call(), "{", "}"),
    ) == whole  # fmt: skip


def test_texts_that_are_interleaved_are_told_apart() -> None:
    assert (
        arguments_of(
            added(0, opened(1)),
            added(1, opened(2)),
            delta('{"b"', output_index=1, item_id="fc_2"),
            delta('{"a"', output_index=0, item_id="fc_1"),
            delta(":2}", output_index=1, item_id="fc_2"),
            delta(":1}", output_index=0, item_id="fc_1"),
        )
        == TWO
    )


def test_parts_are_put_in_their_order() -> None:
    def piece(text: str, index: int) -> Event:
        at = {"output_index": 0, "item_id": "msg_1", "content_index": index}
        return "response.output_text.delta", {**at, "delta": text}

    (item,) = items_of(
        added(0, message()), piece("c", 1), piece("a", 0), piece("d", 1), piece("b", 0)
    )

    assert item["content"] == [part("ab"), part("cd")]


def test_a_text_that_is_shown_whole_replaces_its_pieces() -> None:
    at = {"output_index": 0, "item_id": "msg_1", "content_index": 0}
    (item,) = items_of(
        added(0, message()),
        ("response.output_text.delta", {**at, "delta": "Hj"}),
        ("response.output_text.done", {**at, "text": "Hi"}),
    )

    assert item["content"] == [part("Hi")]


def test_a_part_keeps_what_is_not_its_text() -> None:
    cited = part("", annotations=[{"type": "file_path"}], x=1)
    at = {"output_index": 0, "item_id": "msg_1", "content_index": 0}

    (item,) = items_of(
        added(0, message()),
        ("response.output_text.delta", {**at, "delta": "Hi"}),
        ("response.content_part.done", {**at, "part": cited}),
    )

    assert item["content"] == [{**cited, "text": "Hi"}]


def test_the_two_halves_of_a_character_become_one() -> None:
    assert arguments_of(
        added(0, opened(1)), delta('"\ud83d', output_index=0), delta('\ude00"', output_index=0)
    ) == [("call_1", "get_weather", '"\U0001f600"')]


# --- ids and places that are not what they should be ----------------------------------------------


def test_ids_may_be_new_with_every_event() -> None:
    """GitHub Copilot: an encrypted id, another one in each event."""
    happened: list[Event] = []
    for place, (call_id, _, arguments) in enumerate(TWO):
        at = {"output_index": place}
        happened += [
            added(place, opened(place + 1, id=f"x{place}")),
            delta(arguments[:3], **at, item_id=f"y{place}"),
            delta(arguments[3:], **at, item_id=f"z{place}"),
            done(place, call(place + 1, id=f"w{place}", call_id=call_id, arguments=arguments)),
        ]
    final = [
        call(at + 1, id=f"v{at}", arguments=arguments) for at, (_, _, arguments) in enumerate(TWO)
    ]

    assert arguments_of(*happened) == TWO
    assert arguments_of(*happened, final=final) == TWO


def test_new_ids_of_texts_do_not_double_them() -> None:
    at = {"output_index": 0, "content_index": 0}
    happened = (
        added(0, message(id="a")),
        ("response.output_text.delta", {**at, "item_id": "b", "delta": "H"}),
        ("response.output_text.delta", {**at, "item_id": "c", "delta": "i"}),
        done(0, message(part("Hi"), id="d")),
    )

    assert items_of(*happened, final=[message(part("Hi"), id="e")]) == [message(part("Hi"), id="e")]
    # Not even where the last event has an item before it that was never streamed.
    assert items_of(*happened, final=[reasoning("Hm."), message(part("Hi"), id="e")]) == [
        reasoning("Hm."),
        message(part("Hi"), id="e"),
    ]


@pytest.mark.parametrize("places", [(0, 0), (None, None)])
def test_all_items_may_have_one_place_or_none(places: tuple[int | None, int | None]) -> None:
    """Gateways that number texts and calls apart, or leave numbers out."""
    happened: list[Event] = list(text_events(0, "Hi"))
    for place, (number, (_, _, arguments)) in zip(places, enumerate(TWO, 1), strict=True):
        at = {} if place is None else {"output_index": place}
        happened += [
            ("response.output_item.added", {**at, "item": opened(number)}),
            delta(arguments, **at, item_id=f"fc_{number}"),
            ("response.output_item.done", {**at, "item": call(number, arguments=arguments)}),
        ]

    assert arguments_of(*happened) == TWO
    assert items_of(*happened)[0] == message(part("Hi"))


@pytest.mark.parametrize("item_id", ["fc_x", "", None])
def test_all_items_may_have_one_id_or_none(item_id: str | None) -> None:
    happened: list[Event] = []
    for place, (_, _, arguments) in enumerate(TWO):
        at = {"output_index": place, "item_id": item_id}
        happened += [added(place, opened(place + 1, id=item_id)), delta(arguments, **at)]
    for place, (_, _, arguments) in enumerate(TWO):
        happened.append(done(place, call(place + 1, id=item_id, arguments=arguments)))
    final = [call(at + 1, id=item_id, arguments=text) for at, (_, _, text) in enumerate(TWO)]

    assert arguments_of(*happened) == TWO
    assert arguments_of(*happened, final=final) == TWO


def test_two_calls_with_one_place_and_one_id_are_told_apart_by_their_call_ids() -> None:
    happened: list[Event] = []
    for number, (_, _, arguments) in enumerate(TWO, 1):
        at = {"output_index": 0, "item_id": "fc_x"}
        happened += [
            added(0, opened(number, id="fc_x")),
            delta(arguments, **at),
            done(0, call(number, id="fc_x", arguments=arguments)),
        ]

    assert arguments_of(*happened) == TWO


def test_two_calls_with_one_call_id_are_two() -> None:
    """Some models repeat the id of a call."""
    happened = [
        *call_events(0, call(1, arguments=A), A),
        *call_events(1, call(2, call_id="call_1", arguments=B), B),
    ]

    assert [text for _, _, text in arguments_of(*happened)] == [A, B]


def test_a_done_at_another_place_finds_its_item_by_id_or_call_id() -> None:
    assert arguments_of(added(0, opened(1)), done(3, call(1, arguments=A))) == TWO[:1]
    assert arguments_of(added(0, opened(1)), done(3, call(1, id="x", arguments=A))) == TWO[:1]


def test_an_item_that_is_added_twice_is_one() -> None:
    assert (
        arguments_of(
            added(0, opened(1)), added(0, opened(1)), *call_events(0, call(1, arguments=A), A)
        )
        == TWO[:1]
    )


# --- items that are not shown ---------------------------------------------------------------------


def test_an_item_may_be_known_by_its_deltas_alone() -> None:
    at = {"output_index": 0, "item_id": "msg_1", "content_index": 0}

    assert items_of(("response.output_text.delta", {**at, "delta": "Hi"})) == [
        {"type": "message", "id": "msg_1", "role": "assistant", "content": [part("Hi")]}
    ]
    assert items_of(delta(A)) == [{"type": "function_call", "arguments": A}]


def test_a_call_may_be_named_when_its_arguments_are_done() -> None:
    output = output_of(
        delta(A, output_index=0),
        (
            "response.function_call_arguments.done",
            {"output_index": 0, "name": "get_weather", "arguments": A},
        ),
    )

    assert [item.name for item in output.calls] == ["get_weather"]


def test_deltas_before_their_item_are_its() -> None:
    assert arguments_of(delta(A, output_index=0, item_id="fc_1"), added(0, opened(1))) == TWO[:1]


def test_an_empty_part_opens_no_item() -> None:
    at = {"output_index": 0, "item_id": "rs_1", "content_index": 0}

    assert items_of(("response.content_part.added", {**at, "part": part()})) == []
    # vLLM opens a text inside a thought.
    assert items_of(
        added(0, reasoning()), ("response.content_part.added", {**at, "part": part()})
    ) == [{**reasoning(), "content": [part()]}]


@pytest.mark.parametrize("fields", [{}, {"item": None}, {"item": {"type": ""}}, {"item": []}])
def test_what_is_no_item_is_none(fields: dict[str, Any]) -> None:
    output = Output()

    assert output.take("response.output_item.added", fields) is Mark.PREFACE
    assert output.items == []


def test_an_event_of_an_unknown_form_speaks_of_the_item_it_names() -> None:
    output = output_of(
        *text_events(0, "Hi"), added(1, SHELL), added(2, {"type": "shell_call_output", "id": "o_1"})
    )
    items = dict(zip(("message", "call", "output"), output.items, strict=True))

    for name, fields, wanted in (
        ("response.shell_call_command.delta", {}, "call"),
        ("response.shell_call_command.delta", {"output_index": 1}, "call"),
        ("response.shell_call_output_content.delta", {}, "output"),
        ("response.some_news", {"item_id": "msg_1"}, "message"),
        ("response.some_news", {"output_index": 2}, "output"),
        ("response.some_news", {"call_id": "call_1"}, "call"),
        ("response.some_news", {"output_index": 7, "item_id": "x"}, None),
        ("response.some_news", {}, None),
    ):
        found = output.find_spoken_of(name, dict(fields))
        assert found is (None if wanted is None else items[wanted]), (name, fields)


def test_a_list_before_the_end_opens_items() -> None:
    output = Output()

    assert output.take_begun([message(), "x", {}, call(1, arguments=A)]) is Mark.TOOL
    assert [item.kind for item in output.listed] == ["message", "", "function_call"]
    assert output.take_begun([message(part("Hi"))]) is Mark.CONTENT
    assert output.take_begun([]) is Mark.PREFACE
    assert output.listed == []
    # What comes of them later is theirs.
    output.take("response.output_item.done", done(3, call(1, arguments=A))[1])
    assert [item.kind for item in output.items] == ["message", "function_call"]


# --- the last event -------------------------------------------------------------------------------


def test_the_last_event_may_lack_items_or_what_they_said() -> None:
    streamed = (*text_events(0, "Hi"), *call_events(1, call(1, arguments=A), A))
    whole = [message(part("Hi")), call(1, arguments=A)]

    assert items_of(*streamed, final=[]) == whole
    assert items_of(*streamed, final=[call(1, arguments=A)]) == [whole[1], whole[0]]
    assert items_of(*streamed, final=[message(), call(1, arguments="")]) == whole
    assert items_of(*streamed, final=[message(part()), call(1, arguments="")]) == whole


def test_the_last_event_may_have_items_that_were_not_streamed() -> None:
    assert (
        arguments_of(
            *call_events(0, call(1, arguments=A), A),
            final=[call(1, arguments=A), call(2, arguments=B)],
        )
        == TWO
    )


def test_the_last_event_moves_no_call() -> None:
    streamed = call_events(0, call(2, arguments=B), B)

    late = output_of(*streamed, final=[call(1, arguments=A), call(2, arguments=B)])

    assert [item.call_id for item in late.calls] == ["call_2", "call_1"]
    assert [item.call_id for item in late.items] == ["call_2", "call_1"]


def test_a_call_of_another_id_is_another_call() -> None:
    """An upstream that changes its mind shows both: a gate has to see both."""
    assert (
        arguments_of(
            *call_events(0, call(1, id=None, arguments=A), A), final=[call(2, id=None, arguments=B)]
        )
        == TWO
    )


def test_a_call_that_had_no_id_gets_the_last_events() -> None:
    assert arguments_of(delta(A, output_index=0), final=[call(1, arguments=A)]) == TWO[:1]


def test_a_consent_that_is_asked_for_is_a_call() -> None:
    output = output_of(added(0, MCP_APPROVAL), done(0, MCP_APPROVAL))

    assert [item.name for item in output.calls] == ["drop_table"]


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        ("function_call", True),
        ("some_future_call", True),
        ("mcp_approval_request", True),
        ("function_call_output", False),
        ("message", False),
        ("reasoning", False),
        ("mcp_list_tools", False),
        ("", False),
    ],
)
def test_calls_are_known_by_their_type(kind: str, wanted: bool) -> None:
    assert is_call(kind) is wanted
