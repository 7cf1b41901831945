"""What the gate needs of text completions: texts joined, prompts that go on, prompts spliced."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.dialects.base import CallsTools, Round, Splice
from agentstate.dialects.openai_completions import OpenAICompletions
from agentstate.ground.canonical import canonical, encode, parse
from agentstate.ground.errors import BadRequest
from tests.dialects.contract import assemble, joined, read_frames
from tests.dialects.samples import (
    CHAT_DONE,
    SAMPLES,
    completion_body,
    completion_chunk,
    completion_piece,
)

DIALECT = OpenAICompletions()
SAMPLE = SAMPLES["openai_completions"]
REQUEST: dict[str, Any] = {"model": "m", "prompt": "Question: mail them.\nThought:", "stop": "\nO"}
SPELLED = completion_body(completion_piece(" I mail.\nAction: send_email", "stop"))
ASKED = Round(SPELLED, {}, "A person refused.")
TOLD = (
    "Question: mail them.\nThought: I mail.\nAction: send_email\nObservation: A person refused.\n"
)


def test_it_calls_tools_but_offers_none() -> None:
    assert isinstance(DIALECT, CallsTools)
    assert DIALECT.tools(DIALECT.read_ask(REQUEST)) == ()


def test_a_heartbeat_changes_nothing() -> None:
    for frames in SAMPLE.streams.values():
        stream = b"".join(frames)
        assert assemble(DIALECT, DIALECT.heartbeat.join(frames)) == assemble(DIALECT, stream)


def test_there_is_nothing_to_change() -> None:
    stream = b"".join(SAMPLE.streams["text"])
    body = SAMPLE.bodies["text"]

    assert DIALECT.changed_body(body, {}) is body
    assert DIALECT.changed_events(read_frames(stream), {}) == stream
    with pytest.raises(BadRequest):
        DIALECT.changed_body(body, {(0, 0): None})
    with pytest.raises(BadRequest):
        DIALECT.changed_events(read_frames(stream), {(0, 0): "{}"})


# Joining


def test_a_text_goes_before_the_first_choice_of_a_body() -> None:
    for name, body in SAMPLE.bodies.items():
        before = DIALECT.read_answer(body)
        assert DIALECT.joined_body("", body) is body
        after = DIALECT.read_answer(DIALECT.joined_body("I look.", body))
        assert after.text == joined("I look.", before.text), name
        assert after.choices[1:] == before.choices[1:], name
        assert after.usage == before.usage, name
    assert DIALECT.joined_body("x", b'{"choices":[]}') == b'{"choices":[]}'
    odd = b'{"choices":[{"index":1,"text":"b"},1,{"index":0,"text":"a","n":1.50}]}'
    assert DIALECT.joined_body("x", odd) == odd.replace(b'"a"', b'"x\\n\\na"')


def test_a_stream_goes_on_as_another_one() -> None:
    first = completion_chunk(completion_piece("I ")) + completion_chunk(completion_piece("look."))
    for name, frames in SAMPLE.streams.items():
        second = b"".join(frames).replace(b"cmpl-1", b"cmpl-2")
        made = DIALECT.joined_events(read_frames(first), read_frames(second))
        assert made.startswith(first), name
        assert b"cmpl-2" not in made, name
        after, later = assemble(DIALECT, made), assemble(DIALECT, second)
        assert after.is_complete, name
        assert after.text == joined("I look.", later.text), name
        assert after.choices[1:] == later.choices[1:], name
        assert after.usage == later.usage, name
        assert DIALECT.joined_events((), read_frames(second)) == second, name


def test_frames_that_say_nothing_of_their_answer_stay_as_they_were() -> None:
    comment = b": ping\n\n"
    plain = b'data: {"choices":[{"text":"", "n": 1.50}]}\n\n'
    late = b'data:{"choices":[{"text":"b","finish_reason":"stop"}]}\n\n'
    first = completion_chunk(completion_piece("a"))

    made = DIALECT.joined_events(
        read_frames(first), read_frames(comment + plain + late + CHAT_DONE)
    )

    assert made == first + comment + plain + (
        b'data: {"choices":[{"text":"\\n\\nb","finish_reason":"stop"}]}\n\n' + CHAT_DONE
    )


# Going on


@pytest.mark.parametrize("form", [str, lambda prompt: [prompt]])
def test_the_prompt_goes_on_with_the_text_and_an_observation(form: Any) -> None:
    request = {**REQUEST, "prompt": form(REQUEST["prompt"])}
    before = canonical(request)

    made = DIALECT.go_on({**request, "stream": True, "stream_options": {}, "n": 1}, ASKED)

    assert made == {**request, "n": 1, "prompt": form(TOLD)}
    assert canonical(request) == before


def test_an_echoed_prompt_is_not_said_twice() -> None:
    echoed = completion_body(
        completion_piece(REQUEST["prompt"] + " I mail.\nAction: send_email", "stop")
    )

    made = DIALECT.go_on({**REQUEST, "echo": True}, Round(echoed, {}, "A person refused."))

    assert made == {**REQUEST, "prompt": TOLD}


@pytest.mark.parametrize(
    ("fields", "asked"),
    [
        ({"n": 2}, ASKED),
        ({"prompt": ["a", "b"]}, ASKED),
        ({"prompt": [1, 2]}, ASKED),
        ({"prompt": [[1, 2]]}, ASKED),
        ({"prompt": None}, ASKED),
        ({"prompt": []}, ASKED),
        ({}, Round(SPELLED, {0: "no"})),
    ],
)
def test_what_cannot_go_on_is_refused(fields: dict[str, Any], asked: Round) -> None:
    with pytest.raises(BadRequest):
        DIALECT.go_on({**REQUEST, **fields}, asked)


def test_numbers_of_the_request_survive() -> None:
    request: Any = parse(b'{"model":"m","prompt":"x","temperature":0.0}')

    assert b'"temperature":0.0' in encode(DIALECT.go_on(request, ASKED))


# Splicing

FOLLOWS = completion_body(completion_piece(" Then not.\nFinal Answer: no", "stop"))
DELIVERED = completion_body(
    completion_piece(" I mail.\n\n Then not.\nFinal Answer: no", "stop")
)  # fmt: skip
SPLICE = Splice(REQUEST, (ASKED,), DELIVERED, FOLLOWS)
HEARD = "Question: mail them.\nThought: I mail.\n\n Then not.\nFinal Answer: no"


@pytest.mark.parametrize("form", [str, lambda prompt: [prompt]])
def test_what_was_told_goes_back_into_the_prompt(form: Any) -> None:
    body = {**REQUEST, "prompt": form(HEARD + "\nQuestion: and now?")}
    before = canonical(body)

    made = DIALECT.spliced(body, SPLICE)

    told = TOLD + " Then not.\nFinal Answer: no\nQuestion: and now?"
    assert made == {**body, "prompt": form(told)}
    assert canonical(body) == before


def test_an_agent_may_have_cut_white_space_off_what_it_heard() -> None:
    delivered = completion_body(completion_piece(" \n I mail.\n\nThen not. \n", "stop"))
    what = Splice(REQUEST, (ASKED,), delivered, FOLLOWS)
    for heard in (" \n I mail.\n\nThen not. \n", " \n I mail.\n\nThen not.",
                  "I mail.\n\nThen not."):  # fmt: skip
        made = DIALECT.spliced({"prompt": REQUEST["prompt"] + heard + "#"}, what)
        assert made == {"prompt": TOLD + " Then not.\nFinal Answer: no#"}


def test_several_rounds_go_back_in_order() -> None:
    again = Round(completion_body(completion_piece("Action: stripe", "stop")), {}, "No.")
    what = Splice(REQUEST, (ASKED, again), DELIVERED, FOLLOWS)

    made = DIALECT.spliced({"prompt": HEARD}, what)

    told = TOLD + "Action: stripe\nObservation: No.\n Then not.\nFinal Answer: no"
    assert made == {"prompt": told}


@pytest.mark.parametrize(
    "prompt",
    [
        REQUEST["prompt"], "Question: other\nThought: I mail.\n\n Then not.\nFinal Answer: no",
        "Question: mail them.\nThought: Something else.", "", None, [1, 2], [HEARD, HEARD],
    ],
)  # fmt: skip
def test_a_prompt_that_does_not_go_on_from_it_is_left_alone(prompt: Any) -> None:
    assert DIALECT.spliced({**REQUEST, "prompt": prompt}, SPLICE) is None


def test_an_answer_without_text_is_no_anchor() -> None:
    empty = completion_body(completion_piece("", "stop"))
    for delivered in (empty, b"{", b'{"choices":[]}'):
        assert (
            DIALECT.spliced({"prompt": HEARD}, Splice(REQUEST, (ASKED,), delivered, empty)) is None
        )


def test_texts_are_found_in_streams_choice_by_choice() -> None:
    assembler = DIALECT.assembler(2)
    found = []
    for frame in read_frames(b"".join(SAMPLE.streams["two choices"])):
        assembler.feed(frame)
        found.append(assembler.new_text())

    assert found == [[(0, "Az")], [(1, "Bl")], [(0, "ure."), (1, "ue.")], [], []]
