"""What every dialect must keep, whichever wire form it speaks.

`test_dialects.py` runs `DialectContract` over `DIALECTS`; the material is in `samples.py`. A
dialect that fails here would break an invariant: a cut answer replayed, a frame lost, an error no
client can read. `CallsContract` is for dialects whose answers can call tools: the test file of each
subclasses it with samples; one that fails would let a refused call reach an agent.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import ClassVar, Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from agentstate.dialects import DIALECTS, dialect_for_path
from agentstate.dialects.base import Assembler, CallsTools, Dialect, Mark, Round, Splice
from agentstate.dialects.lenient import join_text
from agentstate.ground.approvals import Changes, Place
from agentstate.ground.canonical import JSON, canonical, parse
from agentstate.ground.chat import Answer, Choice, ToolCall
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

    def test_new_text_is_the_text_of_the_snapshot(self, dialect: Dialect, samples: Samples) -> None:
        for name, frames in samples.streams.items():
            for asks_every in (1, 2, len(frames)):
                assembler = dialect.assembler()
                pieces: list[tuple[int, str]] = []
                for number, frame in enumerate(read_frames(b"".join(frames)), start=1):
                    assembler.feed(frame)
                    if number % asks_every == 0:
                        pieces += assembler.new_text()
                pieces += assembler.new_text()
                assert assembler.new_text() == [], name
                for choice in assembler.snapshot().choices:
                    texts = [text for index, text in pieces if index == choice.index]
                    assert join_text(texts) == choice.text, name

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
            assembler.new_text()
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


class GatedDialect(Dialect, CallsTools, Protocol):
    """A dialect whose answers can call tools."""


class CallsContract:
    """What the gate needs of a dialect. Subclass it with samples and the two `heard_` methods.

    Its sample answers are complete, answer `request`, and hold only calls that can be edited and
    refused; ids, where the dialect has any, are not the same twice.
    """

    dialect: ClassVar[GatedDialect]
    request: ClassVar[dict[str, JSON]]  # offers tools; its list does not end with an answer
    tools: ClassVar[tuple[str, ...]]  # their names
    texts: ClassVar[dict[str, bytes]]  # bodies with text and without calls
    text_streams: ClassVar[dict[str, tuple[bytes, ...]]]
    bodies: ClassVar[dict[str, bytes]]  # with calls, one to three of them
    streams: ClassVar[dict[str, tuple[bytes, ...]]]
    plain_end: ClassVar[str]  # the finish reason of an answer that called none
    edited: ClassVar[str] = '{"to":"new@example.com","id":2512292042121000001,"a":[1.50,null]}'

    def heard(self, body: bytes) -> list[JSON]:
        """Return the items a plain agent adds to its list for an answer it got."""
        raise NotImplementedError

    def heard_result(self, call: ToolCall, text: str) -> JSON:
        """Return the item a plain agent adds for the result of a call."""
        raise NotImplementedError

    def test_it_calls_tools(self) -> None:
        assert isinstance(self.dialect, CallsTools)
        assert self.bodies
        assert self.streams

    def test_the_tools_of_a_request_are_told(self) -> None:
        ask = self.dialect.read_ask(self.request)

        assert tuple(tool.name for tool in self.dialect.tools(ask)) == self.tools

    @pytest.mark.parametrize("tools", [None, "x", 1, {}, [], [None, "x", 1, [], {}, {"type": 1}]])
    def test_odd_tools_are_passed_over(self, tools: JSON) -> None:
        ask = self.dialect.read_ask({**self.request, "tools": tools})

        assert self.dialect.tools(ask) == ()

    def test_a_heartbeat_between_frames_changes_nothing(self) -> None:
        beat = self.dialect.heartbeat
        for name, frames in (self.streams | self.text_streams).items():
            # The first frame of a stream is the upstream's: a beat comes only once it has begun.
            talky = frames[0] + b"".join(beat + frame for frame in frames[1:])
            assert self.assemble(talky) == self.assemble(b"".join(frames)), name

    # Changes

    def test_no_changes_change_nothing(self) -> None:
        for name, body in self.bodies.items():
            assert read_json(self.dialect.changed_body(body, {})) == read_json(body), name
        for name, frames in self.streams.items():
            stream = b"".join(frames)
            assert self.dialect.changed_events(read_frames(stream), {}) == stream, name

    def test_a_body_is_changed_in_its_calls_alone(self) -> None:
        for name, body in self.bodies.items():
            answer = self.dialect.read_answer(body)
            for changes in every_change(answer, self.edited):
                changed = self.dialect.read_answer(self.dialect.changed_body(body, changes))
                self._compare(changed, answer, changes, name)

    def test_a_stream_is_changed_in_its_calls_alone(self) -> None:
        for name, frames in self.streams.items():
            stream = b"".join(frames)
            answer = self.assemble(stream)
            for changes in every_change(answer, self.edited):
                made = self.dialect.changed_events(read_frames(stream), changes)
                self._compare(self.assemble(made), answer, changes, name)
                again = self.dialect.body_from_events(read_frames(made))
                self._compare(self.dialect.read_answer(again), answer, changes, name)

    def test_frames_before_the_first_change_go_out_as_they_came(self) -> None:
        for name, frames in self.streams.items():
            answer = self.assemble(b"".join(frames))
            for changes in every_change(answer, self.edited):
                before = self._before(read_frames(b"".join(frames)), set(changes))
                made = self.dialect.changed_events(read_frames(b"".join(frames)), changes)
                assert made.startswith(before), (name, changes)

    def test_comments_in_a_changed_stream_stay(self) -> None:
        for name, frames in self.streams.items():
            talky = b": held\n".join((*frames, b""))
            answer = self.assemble(talky)
            for changes in every_change(answer, self.edited):
                made = self.dialect.changed_events(read_frames(talky), changes)
                assert made.count(b": held\n") == len(frames), name
                self._compare(self.assemble(made), answer, changes, name)

    def test_nothing_of_a_dropped_call_is_left(self) -> None:
        for name, body in self.bodies.items():
            answer = self.dialect.read_answer(body)
            for place, call in calls_by_place(answer).items():
                if call.call_id:
                    made = self.dialect.changed_body(body, {place: None})
                    assert call.call_id.encode() not in made, name
        for name, frames in self.streams.items():
            stream = b"".join(frames)
            for place, call in calls_by_place(self.assemble(stream)).items():
                if call.call_id:
                    made = self.dialect.changed_events(read_frames(stream), {place: None})
                    assert call.call_id.encode() not in made, name

    @pytest.mark.parametrize(
        "arguments", ["", "x", "[1]", "null", "1", '{"a":1,"a":2}', "{", "NaN"]
    )
    def test_new_arguments_are_an_object(self, arguments: str) -> None:
        for body in self.bodies.values():
            for place, call in calls_by_place(self.dialect.read_answer(body)).items():
                if call.kind == "function":
                    with pytest.raises(BadRequest):
                        self.dialect.changed_body(body, {place: arguments})
        for frames in self.streams.values():
            stream = b"".join(frames)
            for place, call in calls_by_place(self.assemble(stream)).items():
                if call.kind == "function":
                    with pytest.raises(BadRequest):
                        self.dialect.changed_events(read_frames(stream), {place: arguments})

    # Joining

    def test_text_of_an_earlier_round_goes_before_a_body(self) -> None:
        for name, body in (self.bodies | self.texts).items():
            before = self.dialect.read_answer(body)
            assert self.dialect.joined_body("", body) == body, name
            after = self.dialect.read_answer(self.dialect.joined_body("I look.", body))
            assert after.is_complete, name
            first, *rest = after.choices
            text = joined("I look.", before.choices[0].text)
            assert first == replace(before.choices[0], text=text), name
            assert rest == list(before.choices[1:]), name

    def test_a_stream_goes_on_as_another_one(self) -> None:
        openings = {
            name: opening
            for name, frames in self.text_streams.items()
            if (opening := self._opening(read_frames(b"".join(frames))))
        }
        assert openings
        for name, opening in openings.items():
            first = b"".join(frame.raw for frame in opening)
            begun = self.dialect.assembler()
            feed(begun, opening)
            earlier = begun.snapshot()
            for other, frames in (self.streams | self.text_streams).items():
                second = b"".join(frames)
                later = self.assemble(second)
                assert self.dialect.joined_events((), read_frames(second)) == second
                made = self.dialect.joined_events(opening, read_frames(second))
                assert made.startswith(first), (name, other)
                answer = self.assemble(made)
                assert answer.is_complete, (name, other)
                text = joined(earlier.text, later.text)
                assert answer.text == text, (name, other)
                assert answer.tool_calls == later.tool_calls, (name, other)
                assert answer.finish_reason == later.finish_reason, (name, other)
                body = self.dialect.body_from_events(read_frames(made))
                assert self.dialect.read_answer(body).text == text, (name, other)

    # Going on

    def test_the_model_is_told_what_was_refused(self) -> None:
        before = canonical(self.request)
        for name, body in self.bodies.items():
            answer = self.dialect.read_answer(body)
            if len(answer.choices) > 1:
                continue
            told = refusals(answer)
            request = self.dialect.go_on({**self.request, "stream": True}, Round(body, told))

            ask = self.dialect.read_ask(request)
            assert not ask.streams, name
            own = self.items(self.request)
            assert list(ask.messages[: len(own)]) == own, name
            added = list(ask.messages[len(own) :])
            results = [each for item in added for each in self.dialect.tool_results(item)]
            assert len(results) == len(told), name
            for text in told.values():
                assert canonical(added).count(text.encode()) == 1, name
            for _, call in answer.tool_calls:
                if call.call_id:
                    assert call.call_id in [call_id for call_id, _ in results], name
        assert canonical(self.request) == before

    def test_a_spelled_call_is_answered_as_an_observation(self) -> None:
        for name, body in self.texts.items():
            asked = Round(body, {}, "A person refused.")
            request = self.dialect.go_on(self.request, asked)

            added = self.items(request)[len(self.items(self.request)) :]
            assert len(added) >= 2, name
            assert b"Observation: A person refused." in canonical(added[-1]), name

    # Splicing

    def test_rounds_that_were_all_refused_are_put_back(self) -> None:
        later: list[JSON] = [*self.items(self.request)[:1]]
        for name, body in self.bodies.items():
            if len(self.dialect.read_answer(body).choices) > 1:
                continue
            asked = Round(body, refusals(self.dialect.read_answer(body)))
            for follows in self.texts.values():
                text = self.dialect.read_answer(body).text
                splice = Splice(
                    self.request, (asked,), self.dialect.joined_body(text, follows), follows
                )
                items = [*self.items(self.request), *self.heard(splice.delivered), *later]

                spliced = self._splice(items, splice)

                assert spliced is not None, name
                told = self.items(self.dialect.go_on(self.request, asked))
                assert spliced[: len(told)] == told, name
                assert spliced[-1:] == later, name
                rest = spliced[len(told) : -1]
                assert len(rest) == len(self.heard(follows)), name
                whole = self.dialect.read_answer(follows).text
                assert canonical(whole)[1:-1] in canonical(rest), name

    def test_refused_calls_are_put_back_between_the_others(self) -> None:
        for name, body in self.bodies.items():
            answer = self.dialect.read_answer(body)
            calls = [call for _, call in answer.tool_calls]
            if len(answer.choices) > 1 or len(calls) < 2:
                continue
            for refused in calls:
                told = {refused.position: "refused, alas"}
                changes: Changes = {(answer.choices[0].index, refused.position): None}
                delivered = self.dialect.changed_body(body, changes)
                splice = Splice(self.request, (Round(body, told),), delivered, None)
                kept = [call for _, call in self.dialect.read_answer(delivered).tool_calls]
                results = [self.heard_result(call, f"done {call.position}") for call in kept]
                items = [*self.items(self.request), *self.heard(delivered), *results]

                spliced = self._splice(items, splice)

                assert spliced is not None, name
                text = canonical(spliced[len(self.items(self.request)) :])
                assert text.count(b"refused, alas") == 1, name
                for call in kept:
                    assert text.count(b"done %d" % call.position) == 1, name
                marks = [(call.call_id or call.name).encode() for call in calls]
                places = [text.index(b'"%s"' % mark) for mark in marks]
                assert places == sorted(places), name

    def test_only_what_descends_from_an_answer_is_spliced(self) -> None:
        for name, body in self.bodies.items():
            answer = self.dialect.read_answer(body)
            if len(answer.choices) > 1:
                continue
            asked = Round(body, refusals(answer))
            bodies = list(self.texts.values())
            splice = Splice(self.request, (asked,), bodies[0], bodies[0])
            own = self.items(self.request)
            other: list[JSON] = self.heard(body)

            assert self._splice(own, splice) is None, name
            assert self._splice([*own, *other], splice) is None, name
            assert self._splice([*own[:-1], *other, *self.heard(bodies[0])], splice) is None, name
            assert self._splice([*self.heard(bodies[0])], splice) is None, name

    # Odd input

    def test_odd_answers_are_changed_or_refused(self) -> None:
        # A function of each class: hypothesis wants no test that several of them share.
        @given(
            odd=st.lists(datas, max_size=6),
            changes=st.dictionaries(
                st.tuples(st.integers(0, 1), st.integers(0, 2)),
                st.none() | st.just("{}"),
                max_size=2,
            ),
        )
        @steady
        def change(odd: list[bytes], changes: dict[Place, str | None]) -> None:
            frames = [Frame(b"data: " + data + b"\n\n", data) for data in odd]
            for data in odd:
                with suppress(BadRequest):
                    self.dialect.changed_body(data, changes)
            with suppress(BadRequest):
                made = self.dialect.changed_events(frames, changes)
                assert changes or made == b"".join(frame.raw for frame in frames)

        change()

    def assemble(self, stream: bytes) -> Answer:
        """Read a whole stream into an answer."""
        return assemble(self.dialect, stream)

    def items(self, body: Mapping[str, JSON]) -> list[JSON]:
        """Return the list that grows."""
        items = body[self.dialect.list_key]
        assert isinstance(items, list)
        return items

    def _splice(self, items: list[JSON], splice: Splice) -> list[JSON] | None:
        body = {**self.request, self.dialect.list_key: items}
        before = canonical(body)
        spliced = self.dialect.spliced(body, splice)
        assert canonical(body) == before, "what was sent is left alone"
        if spliced is None:
            return None
        assert {**spliced, self.dialect.list_key: None} == {**body, self.dialect.list_key: None}
        return self.items(spliced)

    def _compare(self, changed: Answer, before: Answer, changes: Changes, name: str) -> None:
        assert changed.fault is None, (name, changes)
        assert changed.usage == before.usage, (name, changes)
        assert changed.response_id == before.response_id, (name, changes)
        assert len(changed.choices) == len(before.choices), (name, changes)
        for now, then in zip(changed.choices, before.choices, strict=True):
            assert calls_of(now) == calls_of(expected(then, changes)), (name, changes)
            has_lost_all = then.tool_calls and not now.tool_calls
            reason = self.plain_end if has_lost_all else then.finish_reason
            assert replace(now, tool_calls=()) == replace(
                then, tool_calls=(), finish_reason=reason
            ), (name, changes)

    def _before(self, frames: Sequence[Frame], places: set[Place]) -> bytes:
        """Return the bytes of the frames that come before the first one of a changed call."""
        assembler = self.dialect.assembler()
        for number, frame in enumerate(frames):
            assembler.feed(frame)
            if any((choice, at) in places for choice, at, _ in assembler.call_names()):
                return b"".join(each.raw for each in frames[:number])
        raise AssertionError("a call that is changed is never shown")

    def _opening(self, frames: Sequence[Frame]) -> list[Frame]:
        """Return the frames of a text before its end."""
        assembler = self.dialect.assembler()
        opening: list[Frame] = []
        for frame in frames:
            if assembler.feed(frame) is Mark.COMPLETING:
                break
            opening.append(frame)
        return opening


def every_change(answer: Answer, edited: str) -> Iterator[Changes]:
    """Yield each way to keep, edit or drop each call of an answer, but to keep all."""
    places = list(calls_by_place(answer))
    assert 1 <= len(places) <= 4
    for fates in itertools.product(("keep", "edit", "drop"), repeat=len(places)):
        changes = {
            place: edited if fate == "edit" else None
            for place, fate in zip(places, fates, strict=True)
            if fate != "keep"
        }
        if changes:
            yield changes


def calls_by_place(answer: Answer) -> dict[Place, ToolCall]:
    """Return the calls of an answer by the place that names them."""
    return {(choice, call.position): call for choice, call in answer.tool_calls}


def refusals(answer: Answer) -> dict[int, str]:
    """Return what the model is told about each call of the first choice."""
    return {call.position: f"no. {call.position}" for call in answer.choices[0].tool_calls}


def expected(choice: Choice, changes: Changes) -> Choice:
    """Return a choice as it should be after changes."""
    calls: list[ToolCall] = []
    for call in choice.tool_calls:
        new = changes.get((choice.index, call.position), call.arguments)
        if new is not None:
            calls.append(replace(call, position=len(calls), arguments=new))
    return replace(choice, tool_calls=tuple(calls))


def calls_of(choice: Choice) -> list[ToolCall]:
    """Return the calls of a choice, arguments that are JSON in the one form that compares."""
    return [
        replace(call, arguments=one_form(call.arguments)) if call.kind != "custom" else call
        for call in choice.tool_calls
    ]


def one_form(arguments: str) -> str:
    """Return arguments in canonical form; what is no JSON as it is."""
    try:
        return canonical(parse(arguments.encode())).decode()
    except BadRequest:
        return arguments


def joined(first: str, second: str) -> str:
    """Return two texts with a blank line between them, if there are two."""
    return f"{first}\n\n{second}" if first and second else first or second


def read_json(body: bytes) -> bytes:
    """Return a body in canonical form."""
    return canonical(parse(body))
