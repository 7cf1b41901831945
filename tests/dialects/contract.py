"""What every dialect must keep, whichever wire form it speaks.

`test_dialects.py` runs it over `DIALECTS`; the material is in `samples.py`. A dialect that fails
here would break an invariant: a cut answer replayed, a frame lost, an error no client can read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentstate.dialects import DIALECTS, dialect_for_path
from agentstate.dialects.base import Assembler, Dialect, Mark
from agentstate.ground.canonical import JSON, canonical, parse
from agentstate.ground.chat import Answer
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    StoreError,
    UpstreamCut,
    UpstreamRefused,
)
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.samples import SAMPLES, Samples

steady = settings(
    derandomize=True,
    deadline=None,
    database=None,
    max_examples=60,
    # The dialects are frozen tables: nothing of one example can leak into the next.
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)

ERRORS: tuple[AgentStateError, ...] = (
    BadRequest('`model` is "odd" \ud83d\n', param="model", hint="Send another."),
    UpstreamCut("The answer stopped.", provider="openai"),
    UpstreamRefused("It said no.", upstream_status=503),
    StoreError("The disk is full."),
)

# JSON that has the keys dialects look for, with values of every wrong kind.
KEYS = (
    "choices", "delta", "message", "index", "finish_reason", "content", "tool_calls", "function",
    "name", "arguments", "id", "type", "function_call", "custom", "input", "usage", "error",
    "model", "logprobs", "output", "item", "content_block", "candidates", "parts", "text",
    "response", "prompt_tokens", "completion_tokens", "refusal", "role", "status",
)  # fmt: skip
junk: st.SearchStrategy[JSON] = st.recursive(
    st.sampled_from((None, True, False, 0, 1, -1, 10**30, 1.5, "", "x", "stop", "error", "\ud83d")),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    ),
    max_leaves=12,
)
shaped_junk = st.fixed_dictionaries(
    {"choices": st.lists(st.dictionaries(st.sampled_from(KEYS), junk, max_size=5), max_size=3)}
)
datas = st.one_of(
    st.binary(max_size=30),
    st.one_of(junk, shaped_junk).map(lambda value: json.dumps(value).encode()),
    st.sampled_from((b"[DONE]", b"", b" ", b"{", b"[" * 200_000, b"NaN", b"\xff", b"1" * 5000)),
)


@pytest.fixture(params=DIALECTS, ids=lambda dialect: str(dialect.name))
def dialect(request: pytest.FixtureRequest) -> Dialect:
    """Each row of the table."""
    chosen: Dialect = request.param
    path = SAMPLES[chosen.name].path
    bound = dialect_for_path(path) if path else chosen
    assert bound is not None
    return bound


@pytest.fixture
def samples(dialect: Dialect) -> Samples:
    """The material for that row."""
    return SAMPLES[dialect.name]


def read_frames(stream: bytes) -> list[Frame]:
    """Decode a whole stream, its unended rest included."""
    decoder = SSEDecoder()
    frames = decoder.feed(stream)
    rest = decoder.finish()
    return frames if rest is None else [*frames, rest]


def feed(assembler: Assembler, frames: Iterable[Frame]) -> list[Mark]:
    """Feed all and return the marks."""
    return [assembler.feed(frame) for frame in frames]


def assemble(
    dialect: Dialect, stream: bytes, choices: int = 1, *, clean_end: bool = True
) -> Answer:
    """Read a whole stream into an answer."""
    assembler = dialect.assembler(choices)
    feed(assembler, read_frames(stream))
    return assembler.finish(clean_end)


class DialectContract:
    """Subclass it in a test file to run it."""

    def test_the_row_says_what_it_is(self, dialect: Dialect, samples: Samples) -> None:
        assert dialect.paths
        assert all(path.startswith("/") for path in dialect.paths)
        assert all(name == name.lower() for name in dialect.counted_headers)
        assert not dialect.list_key or isinstance(samples.ask[dialect.list_key], list)

    # Requests

    def test_a_request_is_split_without_loss(self, dialect: Dialect, samples: Samples) -> None:
        body = {**samples.ask, **samples.uncounted}

        ask = dialect.read_ask(body)

        assert ask.model == samples.model
        assert ask.body == body
        assert list(ask.messages) == samples.ask.get(dialect.list_key, [])
        assert ask.choices == 1

    def test_fields_that_change_no_answer_do_not_count(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        plain = dialect.read_ask(samples.ask)
        for key, value in samples.uncounted.items():
            assert dialect.read_ask({**samples.ask, key: value}).envelope == plain.envelope

    def test_every_other_field_counts(self, dialect: Dialect, samples: Samples) -> None:
        plain = dialect.read_ask(samples.ask)
        for key in {*samples.ask, "x_unknown"} - {dialect.list_key}:
            # `model` takes no other type than text; it is as good as any for the rest.
            changed = dialect.read_ask({**samples.ask, key: "other"})
            assert changed.envelope != plain.envelope

    def test_a_stream_is_asked_for_by_true_alone(self, dialect: Dialect, samples: Samples) -> None:
        if samples.stream_path:
            streaming = dialect_for_path(samples.stream_path, "alt=sse")
            assert streaming is not None
            assert streaming.read_ask(samples.ask).streams
            assert not dialect.read_ask(samples.ask).streams
            return
        # Some answers are never streamed.
        assert dialect.read_ask({**samples.ask, "stream": True}).streams is bool(samples.streams)
        assert not dialect.read_ask({**samples.ask, "stream": False}).streams
        assert not dialect.read_ask(samples.ask).streams

    @pytest.mark.parametrize("body", [None, [], "x", 1, {}])
    def test_what_is_no_request_is_refused(self, dialect: Dialect, body: JSON) -> None:
        with pytest.raises(BadRequest):
            dialect.read_ask(body)

    def test_a_tool_result_is_blanked_and_keeps_its_id(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        blanks = [dialect.tool_result_blank(each) for each in self._messages(dialect, samples)]
        before = canonical(samples.ask)

        found = [blank for blank in blanks if blank is not None]

        assert len(found) == (1 if samples.result else 0)
        for blank in found:
            assert samples.result.encode() not in canonical(blank)
            assert b"call_1" in canonical(blank)
        assert canonical(samples.ask) == before

    def test_system_text_is_masked_and_nothing_else(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        def mask(text: str) -> str:
            return text.replace(samples.clock, "CLOCK")

        ask = dialect.read_ask(samples.ask)
        before = canonical(samples.ask)
        masked = [dialect.masked(each, mask) for each in ask.messages]
        envelope = dialect.mask_envelope(ask.envelope, mask)

        found = [each for each in (*masked, envelope) if each is not None]

        assert len(found) == (1 if samples.clock else 0)
        for calm in found:
            assert b"CLOCK" in canonical(calm)
            assert samples.clock.encode() not in canonical(calm)
        assert canonical(samples.ask) == before

    # Streams

    def test_every_sample_stream_is_complete(self, dialect: Dialect, samples: Samples) -> None:
        for name, frames in samples.streams.items():
            answer = assemble(dialect, b"".join(frames))
            assert (answer.is_complete, answer.fault) == (True, None), name

    def test_byte_by_byte_gives_the_same_answer(self, dialect: Dialect, samples: Samples) -> None:
        for frames in samples.streams.values():
            stream = b"".join(frames)
            decoder, assembler = SSEDecoder(), dialect.assembler()
            for index in range(len(stream)):
                feed(assembler, decoder.feed(stream[index : index + 1]))
            assert assembler.finish(True) == assemble(dialect, stream)

    def test_every_cut_gives_the_same_answer(self, dialect: Dialect, samples: Samples) -> None:
        streams = sorted(map(b"".join, samples.streams.values()), key=len)
        for stream in streams[:3]:
            whole = assemble(dialect, stream)
            for cut in range(len(stream)):
                decoder, assembler = SSEDecoder(), dialect.assembler()
                feed(assembler, [*decoder.feed(stream[:cut]), *decoder.feed(stream[cut:])])
                assert assembler.finish(True) == whole

    def test_a_stream_cut_before_its_completing_frame_is_no_answer(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for name, frames in samples.streams.items():
            choices = len(assemble(dialect, b"".join(frames)).choices)
            marks = feed(dialect.assembler(choices), read_frames(b"".join(frames)))
            assert marks.count(Mark.COMPLETING) == 1, name
            for kept in range(marks.index(Mark.COMPLETING) + 1):
                assembler = dialect.assembler(choices)
                feed(assembler, read_frames(b"".join(frames[:kept])))
                assert not assembler.finish(True).is_complete, (name, kept)
                assert assembler.finish(True).fault, (name, kept)

    def test_an_unclean_end_is_no_answer_unless_the_stream_had_ended(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for name, frames in samples.streams.items():
            for kept in range(1, len(frames) + 1):
                stream = b"".join(frames[:kept])
                marks = feed(dialect.assembler(), read_frames(stream))
                last = Mark.COMPLETING if samples.ends_with_completing else Mark.DONE
                is_ended = last in marks
                answer = assemble(dialect, stream, clean_end=False)
                assert answer.is_complete is is_ended, (name, kept)

    def test_the_completing_frame_comes_before_the_tail(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for name, frames in samples.streams.items():
            choices = len(assemble(dialect, b"".join(frames)).choices)
            marks = feed(dialect.assembler(choices), read_frames(b"".join(frames)))
            after = marks[marks.index(Mark.COMPLETING) + 1 :]
            assert set(after) <= {Mark.TAIL, Mark.DONE}, name

    def test_the_snapshot_at_the_completing_frame_is_the_answer_but_for_usage(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for frames in samples.streams.values():
            whole = assemble(dialect, b"".join(frames))
            assembler = dialect.assembler(len(whole.choices))
            for frame in read_frames(b"".join(frames)):
                if assembler.feed(frame) is Mark.COMPLETING:
                    assert replace(assembler.snapshot(), usage=None) == replace(whole, usage=None)

    def test_call_names_are_those_of_the_snapshot(self, dialect: Dialect, samples: Samples) -> None:
        for frames in samples.streams.values():
            assembler = dialect.assembler()
            for frame in read_frames(b"".join(frames)):
                assembler.feed(frame)
                assert assembler.call_names() == [
                    (choice, call.position, call.name)
                    for choice, call in assembler.snapshot().tool_calls
                ]

    def test_comments_change_nothing(self, dialect: Dialect, samples: Samples) -> None:
        for frames in samples.streams.values():
            talky = b": ping\n\n" + b": held\n".join(frames) + b": bye\n"
            assert assemble(dialect, talky) == assemble(dialect, b"".join(frames))

    def test_an_upstream_error_is_marked_and_told(self, dialect: Dialect, samples: Samples) -> None:
        assembler = dialect.assembler()

        marks = feed(assembler, read_frames(b"".join(samples.error_stream)))

        assert marks[-1] is Mark.ERROR
        assert Mark.ERROR not in marks[:-1]
        answer = assembler.finish(True)
        assert not answer.is_complete
        assert answer.fault is not None
        assert "Overloaded" in answer.fault

    @given(frames=st.lists(st.tuples(datas, st.sampled_from((b"", b"error", b"ping"))), max_size=8))
    @steady
    def test_an_assembler_never_raises(
        self, dialect: Dialect, frames: list[tuple[bytes, bytes]]
    ) -> None:
        assembler = dialect.assembler()
        for data, event in frames:
            assembler.feed(Frame(b"", data, event))
            assembler.call_names()
            answer = assembler.snapshot()
            assert answer.is_complete == (answer.fault is None)
        dialect.body_from_events([Frame(b"", data, event) for data, event in frames])

    # Bodies

    def test_every_sample_body_is_complete(self, dialect: Dialect, samples: Samples) -> None:
        for name, body in samples.bodies.items():
            answer = dialect.read_answer(body)
            assert (answer.is_complete, answer.fault) == (True, None), name

    def test_a_body_cut_anywhere_is_no_answer(self, dialect: Dialect, samples: Samples) -> None:
        for body in samples.bodies.values():
            for cut in range(len(body)):
                answer = dialect.read_answer(body[:cut])
                assert not answer.is_complete
                assert answer.fault

    def test_an_error_body_is_no_answer(self, dialect: Dialect, samples: Samples) -> None:
        answer = dialect.read_answer(samples.error_body)

        assert not answer.is_complete
        assert answer.fault is not None
        assert "Overloaded" in answer.fault

    @given(body=datas)
    @steady
    def test_reading_a_body_never_raises(self, dialect: Dialect, body: bytes) -> None:
        answer = dialect.read_answer(body)
        assert answer.is_complete == (answer.fault is None)
        dialect.events_from_body(body, True)
        dialect.read_error(body)
        dialect.mend_error_body(502, body)

    # The other form

    def test_events_made_from_a_body_say_the_same(self, dialect: Dialect, samples: Samples) -> None:
        for name, body in samples.streamable.items():
            whole = dialect.read_answer(body)
            stream = b"".join(dialect.events_from_body(body, include_usage=True))
            assert assemble(dialect, stream, len(whole.choices)) == whole, name

    def test_usage_comes_only_when_asked_for(self, dialect: Dialect, samples: Samples) -> None:
        for body in samples.streamable.values():
            whole = dialect.read_answer(body)
            stream = b"".join(dialect.events_from_body(body, include_usage=False))
            assert assemble(dialect, stream) in (replace(whole, usage=None), whole)

    def test_made_events_are_whole_frames_that_end_as_the_dialect_does(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for body in samples.streamable.values():
            events = dialect.events_from_body(body, include_usage=True)
            frames = SSEDecoder().feed(b"".join(events))
            assert [frame.raw for frame in frames] == events
            choices = len(dialect.read_answer(body).choices)
            marks = feed(dialect.assembler(choices), frames)
            assert marks.count(Mark.COMPLETING) == 1
            assert events[-1] == dialect.done_frame() or not dialect.done_frame()

    def test_a_body_made_from_events_says_the_same(
        self, dialect: Dialect, samples: Samples
    ) -> None:
        for name, frames in samples.streams.items():
            stream = b"".join(frames)
            body = dialect.body_from_events(read_frames(stream))
            assert dialect.read_answer(body) == assemble(dialect, stream), name

    def test_there_and_back_is_the_same_body(self, dialect: Dialect, samples: Samples) -> None:
        for name, body in samples.streamable.items():
            stream = b"".join(dialect.events_from_body(body, include_usage=True))
            again = dialect.body_from_events(read_frames(stream))
            # Numbers and their texts included; only the order of keys is free.
            assert canonical(parse(again)) == canonical(parse(body)), name

    def test_unknown_fields_survive_both_ways(self, dialect: Dialect, samples: Samples) -> None:
        key = samples.unknown.encode()
        for body in samples.streamable.values():
            made = b"".join(dialect.events_from_body(body, include_usage=False))
            # Some dialects show a thing twice, as it begins and as it is done.
            assert made.count(key) >= body.count(key)
        if samples.streams:
            stream = b"".join(samples.streams["unknown fields"])
            assert key in dialect.body_from_events(read_frames(stream))

    # Errors

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_our_errors_can_be_read_back(self, dialect: Dialect, error: AgentStateError) -> None:
        body = dialect.error_body(error)

        facts = dialect.read_error(body)

        assert facts is not None
        assert facts.message == " ".join(filter(None, (error.message, error.hint)))
        assert not dialect.read_answer(body).is_complete
        assert dialect.mend_error_body(502, body) is None

    @pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
    def test_our_error_event_ends_no_stream(
        self, dialect: Dialect, samples: Samples, error: AgentStateError
    ) -> None:
        opening = samples.streams["text"][0] if samples.streams else b""
        assembler = dialect.assembler()

        marks = feed(assembler, read_frames(opening + dialect.error_event(error)))

        assert marks[-1] is Mark.ERROR
        assert not assembler.finish(True).is_complete

    @pytest.mark.parametrize(
        "body", [b"", b"  ", b"<html>502</html>", b"busy", b"[]", b'"x"', b"null", b"\xff"]
    )
    def test_a_body_no_client_can_read_is_mended(self, dialect: Dialect, body: bytes) -> None:
        mended = dialect.mend_error_body(503, body)

        assert mended is not None
        facts = dialect.read_error(mended)
        assert facts is not None
        assert "503" in facts.message
        assert "html" not in facts.message  # nothing of the page itself

    @pytest.mark.parametrize("body", [b'{"error":{"message":"x"}}', b'{"detail":"x"}', b"{}"])
    def test_a_json_object_passes_as_it_is(self, dialect: Dialect, body: bytes) -> None:
        assert dialect.mend_error_body(503, body) is None

    @staticmethod
    def _messages(dialect: Dialect, samples: Samples) -> tuple[JSON, ...]:
        return dialect.read_ask(samples.ask).messages
