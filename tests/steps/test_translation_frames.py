"""A stream of one dialect made of another one's, for every pair there is."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.dialects.base import Mark
from agentstate.dialects.neutral import AnswerHead
from agentstate.dialects.ollama_chat import OllamaChat
from agentstate.ground.chat import Answer
from agentstate.ground.errors import NotAnAnswer, UpstreamError
from agentstate.steps.translation import (
    PlainFrames,
    RefusedInside,
    TranslatedFrames,
    translation_for,
)
from agentstate.wire.sse import SSEDecoder
from tests.dialects.samples import SAMPLES, chat_chunk
from tests.steps.pairs import (
    CALLERS,
    PAIRS,
    both,
    bound,
    bytes_of,
    calls_of,
    read,
    stream_of,
    target,
    translation,
)


def test_plain_frames_come_as_they_are() -> None:
    frames = PlainFrames()

    found = frames.feed(b"data: 1\n\n: ping\n\nda")
    assert b"".join(frame.raw for frame in found) == b"data: 1\n\n: ping\n\n"
    assert not frames.is_ending
    assert [frame.raw for frame in frames.finish()] == [b"da"]
    assert PlainFrames().finish() == []
    answer = Answer(model="m")
    assert frames.complete(answer) is answer


# -- streams


@both
@pytest.mark.parametrize("name", ["text", "tool calls"])
def test_a_stream_says_the_same_in_the_callers_form(caller: str, spoken: str, name: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()
    theirs = read(bound(spoken, streams=True)[0], b"".join(stream_of(spoken, name)))
    raw = bytes_of(frames, *stream_of(spoken, name))
    dialect, _ = bound(caller, streams=True)

    ours = read(dialect, raw)

    assert theirs.is_complete
    assert ours.is_complete
    assert ours.text == theirs.text
    assert calls_of(ours) == calls_of(theirs)
    assert ours.model == "theirs"
    counted = frames.complete(ours)
    assert (counted.usage, counted.model) == (theirs.usage, theirs.model)
    assert (counted.text, counted.choices) == (ours.text, ours.choices)


@both
def test_a_stream_that_comes_byte_by_byte_is_the_same(caller: str, spoken: str) -> None:
    found = translation(caller, spoken, streams=True)
    stream = b"".join(stream_of(spoken, "tool calls"))

    whole = bytes_of(found.frames(), stream)

    assert bytes_of(found.frames(), *(bytes((byte,)) for byte in stream)) == whole


@given(st.sampled_from(PAIRS), st.lists(st.integers(0, 10_000), max_size=6))
def test_a_stream_may_be_cut_anywhere(pair: tuple[str, str], cuts: Sequence[int]) -> None:
    found = translation(*pair, streams=True)
    stream = b"".join(stream_of(pair[1], "text"))
    places = sorted({0, len(stream), *(cut % len(stream) for cut in cuts)})
    pieces = [stream[begin:end] for begin, end in pairwise(places)]

    assert bytes_of(found.frames(), *pieces) == bytes_of(found.frames(), stream)


@both
def test_text_goes_out_as_it_comes(caller: str, spoken: str) -> None:
    """A person reads along."""
    frames = translation(caller, spoken, streams=True).frames()
    out = b""
    for frame in stream_of(spoken, "text"):
        out += bytes_of(frames, frame, ends=False)
        if b"Hi " in frame:
            break

    assert b"Hi " in out


@both
def test_the_end_is_announced_once_nothing_more_is_needed_and_not_before(
    caller: str, spoken: str
) -> None:
    """Anthropic's form is no answer without its last event, so that one is waited for."""
    frames = translation(caller, spoken, streams=True).frames()
    own = bound(spoken, streams=True)[0].assembler()
    is_ending = False
    for raw in stream_of(spoken, "text"):
        for frame in SSEDecoder().feed(raw):
            if own.feed(frame) is Mark.COMPLETING:
                is_ending = spoken != "anthropic_messages"
        frames.feed(raw)
        assert frames.is_ending is is_ending


@both
def test_an_upstream_that_lingers_after_its_end_is_not_needed_for_ours(
    caller: str, spoken: str
) -> None:
    """Its socket stays open and what should follow never comes."""
    found = translation(caller, spoken, streams=True)
    frames, out = found.frames(), b""
    for raw in stream_of(spoken, "text"):
        out += bytes_of(frames, raw, ends=False)
        if frames.is_ending:
            break

    out += bytes_of(frames)

    ours = read(bound(caller, streams=True)[0], out)
    assert ours.is_complete
    assert ours.text == read(bound(spoken, streams=True)[0],
                             b"".join(stream_of(spoken, "text"))).text  # fmt: skip


@both
def test_nothing_comes_after_the_end(caller: str, spoken: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()
    stream = b"".join(stream_of(spoken, "text"))
    bytes_of(frames, stream)

    assert bytes_of(frames, stream, b"rest") == b""


@both
@pytest.mark.parametrize("name", ["text", "tool calls"])
def test_a_stream_that_ends_before_its_answer_never_passes_for_one(
    caller: str, spoken: str, name: str
) -> None:
    found, (dialect, _) = translation(caller, spoken, streams=True), bound(caller, streams=True)
    stream = stream_of(spoken, name)
    ended: list[bool] = []
    for count in range(len(stream) + 1):
        frames, part = found.frames(), stream[:count]
        out = bytes_of(frames, *part, ends=False)
        is_whole = read(bound(spoken, streams=True)[0], b"".join(part)).is_complete
        ended.append(is_whole)
        if is_whole:
            assert read(dialect, out + bytes_of(frames)).is_complete
            continue
        with pytest.raises(NotAnAnswer, match="up sent a stream that is no complete answer"):
            frames.finish()
        assert not read(dialect, out).is_complete
        assert frames.finish() == [], "it is over"

    assert (ended[0], ended[-1]) == (False, True)


@both
def test_an_end_with_no_answer_before_it_is_none(caller: str, spoken: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()

    with pytest.raises(UpstreamError):
        bytes_of(frames, b"data: [DONE]\n\n")


@both
def test_an_error_in_a_stream_is_raised_in_the_callers_form(caller: str, spoken: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()
    *before, error = SAMPLES[spoken].error_stream
    out = bytes_of(frames, *before, ends=False)
    dialect, _ = bound(caller, streams=True)

    with pytest.raises(RefusedInside, match=r"up answered with an error .*Overloaded") as caught:
        frames.feed(error)

    facts = dialect.read_error(caught.value.body)
    assert facts is not None
    assert facts.message == "Overloaded"
    assert dialect.mend_error_body(502, caught.value.body) is None
    assert (caught.value.upstream_status or 0) >= 500
    assert caught.value.provider == "up"
    assert caught.value.facts.message == "Overloaded"
    assert b"Overloaded" not in out
    assert not read(dialect, out).is_complete


@both
def test_an_error_that_comes_first_lets_nothing_out(caller: str, spoken: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()
    error = SAMPLES[spoken].error_stream[-1]

    with pytest.raises(RefusedInside, match="Overloaded"):
        frames.feed(error)


@both
def test_an_event_that_cannot_be_read_is_an_error(caller: str, spoken: str) -> None:
    frames = translation(caller, spoken, streams=True).frames()

    with pytest.raises(RefusedInside) as caught:
        frames.feed(b'data: {"broken\n\n')

    assert caught.value.upstream_status == 502
    assert bound(caller, streams=True)[0].read_error(caught.value.body) is not None


def test_what_an_error_says_decides_its_status() -> None:
    frames = translation("anthropic_messages", "openai_chat", streams=True).frames()

    with pytest.raises(RefusedInside) as caught:
        frames.feed(b'data: {"error": {"message": "No.", "code": "context_length_exceeded"}}\n\n')

    assert caught.value.upstream_status == 400
    assert caught.value.facts.code == "context_length_exceeded"


def test_a_second_choice_is_waited_for() -> None:
    """The completing frame is the last one's of as many as were asked for."""
    dialect, body = bound("openai_chat", streams=True)
    ask = dialect.read_ask({**body, "n": 2})
    spoken, _ = bound("openai_responses", streams=True)
    assert ask.choices == 2
    found = translation_for(dialect, target("openai_responses"), ask, ask.body)
    assert found is not None
    assert "n" in found.request(None).dropped
    reversed_pair = TranslatedFrames(spoken, dialect, target("openai_chat"), head(), choices=2)
    reversed_pair.feed(chat_chunk({"role": "assistant", "content": "a"}, "stop"))

    assert not reversed_pair.is_ending
    reversed_pair.feed(chat_chunk({"content": "b"}, "stop", index=1))
    assert reversed_pair.is_ending
    assert not reversed_pair.is_whole  # a cut before `[DONE]` would take it back
    reversed_pair.feed(b"data: [DONE]\n\n")


def test_what_has_its_own_end_cannot_be_cut() -> None:
    frames = translation("openai_chat", "openai_responses", streams=True).frames()
    for raw in stream_of("openai_responses", "text"):
        frames.feed(raw)
    assert frames.is_whole


def head() -> AnswerHead:
    return AnswerHead(seed="00", model="asked", created_s=1, body=SAMPLES["openai_responses"].ask)


# -- lines


def line(content: str, *, done: bool = False) -> bytes:
    told: dict[str, Any] = {"message": {"role": "assistant", "content": content}, "done": done}
    if done:
        told |= {"done_reason": "stop", "prompt_eval_count": 5, "eval_count": 7}
    return json.dumps({"model": "llama3", **told}).encode() + b"\n"


def lines_to(caller: str) -> TranslatedFrames:
    dialect, body = bound(caller, streams=True)
    ask = dialect.read_ask(body)
    return TranslatedFrames(
        dialect,
        OllamaChat(),
        target("ollama_chat"),
        AnswerHead(seed="00", model="asked", created_s=1, body=ask.body),
        choices=1,
    )


@pytest.mark.parametrize("caller", CALLERS)
def test_lines_become_frames(caller: str) -> None:
    stream = line("Hi ") + line("there") + line("", done=True)
    dialect, _ = bound(caller, streams=True)

    whole = bytes_of(lines_to(caller), stream)

    assert bytes_of(lines_to(caller), *(bytes((byte,)) for byte in stream)) == whole
    ours = read(dialect, whole)
    assert (ours.is_complete, ours.text) == (True, "Hi there")


@pytest.mark.parametrize("caller", CALLERS)
def test_the_last_line_needs_no_end(caller: str) -> None:
    frames = lines_to(caller)
    out = bytes_of(frames, line("Hi") + line("", done=True).rstrip())

    assert read(bound(caller, streams=True)[0], out).is_complete


def test_lines_that_stop_before_the_last_are_no_answer() -> None:
    frames = lines_to("openai_chat")
    frames.feed(line("Hi"))

    with pytest.raises(NotAnAnswer):
        frames.finish()
