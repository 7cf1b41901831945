"""Requests through every pair of dialects: what both can say arrives, the rest is named."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.lenient import as_object
from agentstate.dialects.neutral import (
    Asked,
    Called,
    Image,
    Result,
    Text,
    Turn,
    Written,
    safe_id,
)
from agentstate.ground.canonical import JSON, encode
from tests.dialects.translation_contract import (
    FORMS,
    GEMINI,
    MESSAGES,
    OFFERS,
    OLLAMA,
    PAIRS,
    SAFE_ID,
    Side,
    check_rest,
    check_told,
    conversations,
    images,
    plain_texts,
    read_ollama,
    replaced,
    requests,
    rounds,
    tell,
    text_of,
    value_of,
)

steady = settings(derandomize=True, deadline=None, database=None, max_examples=12)
USER = Turn("user", (Text("hi"),))
URL = "https://example.org/cat.png"  # of the one picture that has one
pairs = pytest.mark.parametrize(("caller", "target"), PAIRS, ids=str)


def read(side: Side, body: Mapping[str, JSON], *, streams: bool = False) -> Asked:
    if side is OLLAMA:
        return read_ollama(body)
    return side.dialect(streams=streams).read_request(body)


def write(side: Side, asked: Asked) -> Written[dict[str, JSON]]:
    return side.dialect().write_request(replace(asked, model=side.receiver.model), side.receiver)


def ask(caller: Side, asked: Asked) -> tuple[dict[str, JSON], Asked]:
    """Return the body in which a caller asks, and what is read in it."""
    body = write(caller, asked).value
    return body, read(caller, body, streams=asked.streams)


def test_every_form_is_among_the_pairs() -> None:
    assert {side.form for pair in PAIRS for side in pair} == FORMS


@pairs
@steady
@given(asked=requests())
def test_what_both_can_say_survives_and_the_rest_is_named(
    caller: Side, target: Side, asked: Asked
) -> None:
    _, heard = ask(caller, asked)
    assert heard.unsaid == (), "it was written in the caller's own form"

    written = write(target, heard)

    again = read(target, written.value, streams=heard.streams)
    check_told(heard, again, written.dropped, target)
    check_rest(heard, again, written.dropped, target)


# --- what is named --------------------------------------------------------------------------------


@pairs
@steady
@given(history=conversations())
def test_cache_markers_go_on_or_are_named(
    caller: Side, target: Side, history: tuple[Turn, ...]
) -> None:
    _, heard = ask(caller, Asked("m", history, tools=OFFERS))
    marks = [item.cache for turn in heard.turns for item in turn.items if isinstance(item, Text)]

    written = write(target, heard)

    is_marked = any(mark is not None for mark in marks)
    if target is MESSAGES:
        assert (b"cache_control" in encode(written.value)) == is_marked
    else:
        assert ("cache markers" in written.dropped) == is_marked


@pairs
@steady
@given(pictures=st.lists(images, min_size=1, max_size=3), text=plain_texts, is_error=st.booleans())
def test_what_a_result_shows_is_seen_or_named(
    caller: Side, target: Side, pictures: list[Image], text: str, is_error: bool
) -> None:
    result = Result("call_1", (Text(text), *pictures), is_error)
    history = (USER, Turn("assistant", (Called("call_1", "now", "{}"),)), Turn("user", (result,)))
    _, heard = ask(caller, Asked("m", history, tools=OFFERS))

    written = write(target, heard)

    again = read(target, written.value)
    left_out = {each.url if each.data is None else each.data for each in pictures} - seen(again)
    assert not left_out or (left_out == {URL} and "images by URL" in written.dropped)
    assert any(text in found for found in words(again))


def seen(asked: Asked) -> set[str | None]:
    """Return all pictures, in results and beside them."""
    items = [item for turn in asked.turns for item in turn.items]
    items += [part for item in items if isinstance(item, Result) for part in item.parts]
    return {item.data or item.url for item in items if isinstance(item, Image)}


def words(asked: Asked) -> list[str]:
    """Return the texts of all results."""
    items = (item for turn in asked.turns for item in turn.items)
    return [text_of(item) for item in items if isinstance(item, Result)]


# --- prompt caches --------------------------------------------------------------------------------


@pairs
@steady
@given(asked=requests())
def test_the_same_request_gives_the_same_bytes(caller: Side, target: Side, asked: Asked) -> None:
    body, heard = ask(caller, asked)
    again = read(caller, body, streams=asked.streams)

    assert encode(write(target, heard).value) == encode(write(target, again).value)


@pairs
@steady
@given(history=conversations(rounds_max=2), more=rounds(9), has_ids=st.booleans())
def test_a_history_that_grows_keeps_the_bytes_of_its_beginning(
    caller: Side, target: Side, history: tuple[Turn, ...], more: list[Turn], has_ids: bool
) -> None:
    """Where calls have no ids, as Gemini's often have none, they are made of their places."""

    def bytes_of(turns: tuple[Turn, ...]) -> tuple[list[bytes], bytes]:
        body = write(caller, Asked("m", turns, tools=OFFERS)).value
        if caller is GEMINI and not has_ids:
            body = as_object(without_ids(body))
        written = write(target, read(caller, body)).value
        listed = written.pop(target.list_key)
        assert isinstance(listed, list)
        return [encode(each) for each in listed], encode(written)

    short, head = bytes_of(history)
    grown, grown_head = bytes_of((*history, *more))

    assert grown_head == head
    assert grown[: len(short)] == short
    assert len(grown) > len(short)


def without_ids(value: JSON) -> JSON:
    """Return JSON with no key `id` in it."""
    match value:
        case list():
            return [without_ids(each) for each in value]
        case dict():
            return {key: without_ids(each) for key, each in value.items() if key != "id"}
        case _:
            return value


# --- ids ------------------------------------------------------------------------------------------


@pairs
@steady
@given(
    history=conversations(rounds_max=2),
    shape=st.sampled_from(("{}", "functions.now:{}", "{}é/=", "x" * 60 + "{}", "toolu_{}")),
)
def test_ids_are_such_as_the_target_takes_and_stay_apart(
    caller: Side, target: Side, history: tuple[Turn, ...], shape: str
) -> None:
    body, heard = ask(caller, Asked("m", history, tools=OFFERS))
    ids = {call.call_id: shape.format(call.call_id) for call in calls_of(heard)}
    odd = read(caller, as_object(replaced(body, ids)))
    assert [call.call_id for call in calls_of(odd)] == [*ids.values()]

    written = write(target, odd)

    again = read(target, written.value)
    found = [call.call_id for call in calls_of(again)]
    assert len(set(found)) == len(found) == len(ids)
    assert all(SAFE_ID.fullmatch(call_id) for call_id in found)
    assert found == [safe_id(call_id) for call_id in ids.values()]
    for before, after in zip(tell(odd.turns, written.dropped), tell(again.turns), strict=True):
        assert after.results.keys() == {safe_id(each) for each in before.results}


@pairs
@steady
@given(
    answers=st.lists(st.lists(plain_texts, min_size=1, max_size=2), min_size=2, max_size=3),
)
def test_ids_that_begin_anew_in_every_answer_still_match(
    caller: Side, target: Side, answers: list[list[str]]
) -> None:
    """Some models call their first call `call_0` each time."""
    turns = [USER]
    for given_back in answers:
        ids = [f"call_{place}" for place in range(len(given_back))]
        turns.append(Turn("assistant", tuple(Called(each, "now", "{}") for each in ids)))
        results = zip(ids, given_back, strict=True)
        turns.append(Turn("user", tuple(Result(each, (Text(text),)) for each, text in results)))
    heard = replace(Asked("m", tuple(turns), tools=OFFERS), model=target.receiver.model)

    again = read(target, write(target, heard).value)

    told = tell(again.turns)[1:]
    for calling, answering, given_back in zip(told[::2], told[1::2], answers, strict=True):
        ids = [call.call_id for call in calling.calls]
        assert [text_of(answering.results[each]) for each in ids] == given_back
    found = [call.call_id for call in calls_of(again)]
    if target is MESSAGES:
        assert len(set(found)) == len(found), "that form takes each id once"


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("target", [side for caller, side in PAIRS if caller is GEMINI], ids=str)
def test_results_without_ids_are_of_the_calls_they_answer(target: Side, has_ids: bool) -> None:
    """Google's client sends none, also where the call has one. One result is lost, and two come in
    another order: neither may move a result to another call."""

    def call(number: int, name: str) -> JSON:
        own: dict[str, JSON] = {"id": f"call_{number}"} if has_ids else {}
        return {"functionCall": {**own, "name": name, "args": {"number": number}}}

    def result(number: int, name: str) -> JSON:
        return {"functionResponse": {"name": name, "response": {"result": f"of {number}"}}}

    body: dict[str, JSON] = {
        "contents": [
            {"role": "user", "parts": [{"text": "hi"}]},
            {"role": "model", "parts": [call(0, "now")]},
            {"role": "user", "parts": [{"text": "Never mind."}]},
            {"role": "model", "parts": [call(1, "now"), call(2, "get_weather"), call(3, "now")]},
            {"role": "user", "parts": [result(2, "get_weather"), result(1, "now"),
                                       result(3, "now")]},
        ]
    }  # fmt: skip

    again = read(target, write(target, read(GEMINI, body)).value)

    results = {item.call_id: text_of(item) for turn in again.turns for item in turn.items
               if isinstance(item, Result)}  # fmt: skip
    numbers = {call.call_id: value_of(call.arguments) for call in calls_of(again)}
    matched = {numbers[call_id]: text for call_id, text in results.items()}
    for number in (1, 2, 3):
        assert matched[b'{"number":%d}' % number] == f"of {number}"
    assert matched.get(b'{"number":0}') not in ("of 1", "of 2", "of 3")


def calls_of(asked: Asked) -> list[Called]:
    items = (item for turn in asked.turns for item in turn.items)
    return [item for item in items if isinstance(item, Called)]
