"""Whose results messages have."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.dialects.neutral import Called
from agentstate.ground.calls import Calling
from agentstate.ground.chat import ToolCall
from agentstate.steps.said import read_turns
from agentstate.steps.tool_matches import (
    END_MAX,
    WAY_MAX,
    End,
    Way,
    begins,
    families_of,
    is_same,
    match_calls,
    told,
    whose,
)
from tests.helpers.calling import CHAT, GEMINI, MESSAGES, RESPONSES, Call, Form

SEND: Call = ("c1", "send", {"to": "ann"})


def calling_of(*calls: ToolCall, answer_id: int = 1, **changes: Any) -> Calling:
    fields: dict[str, Any] = {
        "session": "s", "step_id": 1, "index": 0, "step_number": 0, "dialect": "openai_chat",
        "model": "m", "answered_ms": 0, "response_id": None, "root_id": answer_id, "number": 0,
        "state": "active", "place": 1, "approvals": (),
    }  # fmt: skip
    made = tuple((0, call) for call in calls)
    return Calling(answer_id=answer_id, calls=made, **(fields | changes))


def arguments_of(number: int) -> str:
    return f'{{"n": {number}}}'


def way_of(form: Form) -> Way:
    dialect = dialect_by_name(form.dialect)
    assert dialect is not None
    return Way(1, dialect, 2)


def walk(way: Way, *messages: Any) -> Way | None:
    found: Way | None = way
    for place, message in enumerate(messages, 2):
        found = None if found is None else found.with_message(place, message)
    return found


@pytest.mark.parametrize(
    ("call", "same", "exact"),
    [
        (Called("c1", "send", '{ "a":1}'), True, 1),
        (Called("c1", "send", "{}"), True, 0),  # arguments that were written anew
        (Called("new", "send", '{"a": 1}'), True, 1),  # an id that was
        (Called("new", "send", "{}"), False, 0),
        (Called("c1", "read", '{"a": 1}'), False, 0),
    ],
)
def test_a_call_is_known_by_its_id_or_its_arguments(call: Called, same: bool, exact: int) -> None:
    (family,) = families_of([calling_of(ToolCall(0, "c1", "send", '{"a": 1}'))])
    match = match_calls([call], family)
    assert (match.is_whole, match.exact) == (same, exact)


def test_each_call_is_taken_once() -> None:
    calls = [ToolCall(at, None, "send", arguments_of(at)) for at in range(2)]
    (family,) = families_of([calling_of(*calls)])
    said = [Called(f"m{n}", "send", arguments_of(n)) for n in (1, 0, 0)]
    match = match_calls(said, family)
    assert [match.calls[f"m{n}"][0][2] for n in (0, 1)] == [(0, 0), (0, 1)]
    assert not match.is_whole  # one was made twice


def test_an_answer_and_its_rounds_are_one_family() -> None:
    root = calling_of(ToolCall(0, "a", "x", "{}"))
    later = calling_of(ToolCall(0, "b", "y", "{}"), answer_id=2, root_id=1, number=1)
    other = calling_of(ToolCall(0, "c", "z", "{}"), answer_id=3)
    families = families_of([root, later, other])
    assert [[call.call.name for call in one.calls] for one in families] == [["x", "y"], ["z"]]


def test_of_two_answers_the_one_that_is_repeated_best_is_meant() -> None:
    one, other = (
        calling_of(ToolCall(0, "c1", "send", arguments_of(n)), answer_id=n) for n in (1, 2)
    )
    families = families_of([one, other])
    way = way_of(CHAT)

    def meant(arguments: dict[str, int]) -> list[int]:
        messages = CHAT.said([("c1", "send", arguments)])
        turns = read_turns(way.dialect, messages)
        return [family.root_id for family, _ in whose(way, turns, families)]

    assert (meant({"n": 1}), meant({"n": 2}), meant({"n": 3})) == ([1], [2], [1, 2])


@pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_a_way_ends_before_the_models_next_answer(form: Form) -> None:
    results = form.results([("c1", "send", "sent")])
    way = walk(way_of(form), *form.said([SEND]), *results)
    assert way is not None
    assert (way.results, way.is_full, way.last) == (1, False, 3)
    assert walk(way, form.asks("and?")) is not None
    said = {"role": "model" if form is GEMINI else "assistant", "content": "x", "parts": []}
    assert walk(way, said) is None


@pytest.mark.parametrize("form", [CHAT, RESPONSES, MESSAGES, GEMINI])
def test_a_way_begins_with_what_the_model_said(form: Form) -> None:
    assert walk(way_of(form), form.asks("something else")) is None


def test_results_of_responses_may_stand_after_each_call() -> None:
    one, two = RESPONSES.said([SEND, ("c2", "read", {})])
    results = RESPONSES.results([("c1", "send", "sent"), ("c2", "read", "text")])
    way = walk(way_of(RESPONSES), one, results[0], two, results[1])
    assert way is not None
    assert way.is_full


def test_a_way_has_an_end() -> None:
    way = walk(way_of(CHAT), *CHAT.said([SEND]), *([CHAT.asks("x")] * (WAY_MAX - 1)))
    assert way is not None
    assert way.is_full


def test_an_end_is_read_up_to_the_last_answer() -> None:
    messages = [
        CHAT.asks("go"), *CHAT.said([SEND]), *CHAT.results([("c1", "send", "sent")]),
        CHAT.asks("and?"),
    ]  # fmt: skip
    end = End(1, "openai_chat", 4)
    for place in (4, 3, 2, 1):
        assert end.next == place
        end.take(messages[place - 1], place - 1)
    assert (end.next, [place for place, _ in end.messages]) == (0, [2, 3, 4])
    long = End(1, "openai_chat", 99)
    while long.next:
        long.take(CHAT.asks("x"), long.next - 1)
    assert (len(long.messages), long.has_answer) == (END_MAX, False)


def test_a_text_that_was_asked_begins_the_list() -> None:
    way = way_of(RESPONSES)
    way = Way(0, way.dialect, 1, (1,), (RESPONSES.asks("go"),))
    assert begins(way, "go")
    assert not begins(way, "stop")
    assert not begins(way, None)


def test_what_a_result_says_of_itself() -> None:
    assert told({"is_error": True, "content": "x"}) == ("x", True)
    assert told({"is_error": True}) == ({"is_error": True}, False)
    assert told("x") == ("x", False)
    assert is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not is_same("1", 1)
