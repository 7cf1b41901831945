"""Text completions: what the contract does not say about them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.base import Mark
from agentstate.dialects.openai_completions import OpenAICompletions
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest
from agentstate.wire.sse import SSEDecoder
from tests.dialects.samples import (
    CHAT_DONE,
    SAMPLES,
    completion_body,
    completion_chunk,
    completion_piece,
)
from tests.helpers.openai_schema import check

DIALECT = OpenAICompletions()


def marks_of(*frames: bytes, choices: int = 1) -> list[Mark]:
    """Feed a stream and return what each frame was."""
    assembler = DIALECT.assembler(choices)
    return [assembler.feed(frame) for frame in SSEDecoder().feed(b"".join(frames))]


@pytest.mark.parametrize(
    ("prompt", "n", "choices"),
    [
        ("Once", 1, 1),
        ("Once", 3, 3),
        (["a", "b"], 2, 4),
        ([[1, 2], [3]], 1, 2),
        ([1, 2, 3], 1, 1),  # one prompt, as tokens
        (None, 1, 1),
        ([], 1, 1),
    ],
)
def test_each_prompt_is_answered_n_times(prompt: JSON, n: int, choices: int) -> None:
    assert DIALECT.read_ask({"model": "m", "prompt": prompt, "n": n}).choices == choices


def test_a_request_has_no_list_that_grows_and_its_prompt_counts() -> None:
    ask = DIALECT.read_ask({"model": "m", "prompt": "Once", "user": "u", "stream": True})

    assert ask.messages == ()
    assert ask.envelope == {"model": "m", "prompt": "Once"}
    assert ask.streams


@pytest.mark.parametrize(
    ("body", "param"),
    [({"prompt": "x"}, "model"), ({"model": 1}, "model"), ({"model": "m", "stream": 1}, "stream")],
)
def test_a_wrong_field_is_named(body: JSON, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        DIALECT.read_ask(body)
    assert refused.value.param == param


def test_the_last_of_all_choices_completes_the_stream() -> None:
    frames = (
        completion_chunk(completion_piece("a", "stop")),
        completion_chunk(completion_piece("b", "stop", index=1)),
        completion_chunk(usage={"prompt_tokens": 1, "completion_tokens": 2}),
        CHAT_DONE,
    )
    assert marks_of(*frames, choices=2) == [Mark.CONTENT, Mark.COMPLETING, Mark.TAIL, Mark.DONE]


@pytest.mark.parametrize("reason", [None, "", "error"])
def test_a_choice_that_did_not_finish_makes_no_answer(reason: str | None) -> None:
    answer = DIALECT.read_answer(completion_body(completion_piece("a", reason)))

    assert not answer.is_complete
    assert "choice 0" in str(answer.fault)


def test_done_alone_is_no_answer() -> None:
    assembler = DIALECT.assembler()
    for frame in SSEDecoder().feed(completion_chunk(completion_piece("a")) + CHAT_DONE):
        assembler.feed(frame)

    assert not assembler.finish(True).is_complete


@pytest.mark.parametrize(
    "frame", [b'event: error\ndata: {"message":"Overloaded"}\n\n', b"data: <html>\n\n"]
)
def test_an_event_that_is_no_chunk_is_an_error(frame: bytes) -> None:
    assert marks_of(completion_chunk(completion_piece("a")), frame)[-1] is Mark.ERROR


def test_empty_events_keep_a_stream_alive() -> None:
    assert marks_of(b"data: \n\n", completion_chunk(completion_piece("", "stop"))) == [
        Mark.PREFACE,
        Mark.COMPLETING,
    ]


def test_what_we_make_is_what_openai_says_it_is() -> None:
    samples = SAMPLES["openai_completions"]
    for name in ("text", "logprobs", "two choices"):
        for event in DIALECT.events_from_body(samples.bodies[name], include_usage=True)[:-1]:
            chunk = json.loads(event.removeprefix(b"data: "))
            check("CreateCompletionResponse", chunk)
        body = DIALECT.body_from_events(SSEDecoder().feed(b"".join(samples.streams[name])))
        check("CreateCompletionResponse", json.loads(body))


def test_logprobs_are_joined_list_by_list() -> None:
    stream = b"".join(SAMPLES["openai_completions"].streams["logprobs"])

    body: Any = json.loads(DIALECT.body_from_events(SSEDecoder().feed(stream)))

    assert body["choices"][0]["text"] == "ab"
    assert body["choices"][0]["logprobs"]["tokens"] == ["a", "b"]
    assert body["choices"][0]["logprobs"]["token_logprobs"] == [-0.5, -0.5]
