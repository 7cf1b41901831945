"""A cassette is read line by line, and what is wrong with it is said with its line."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import encode
from agentstate.ground.control import About
from agentstate.ground.records import Identity, RecordedAnswer
from agentstate.house.cassette import BadCassette, Take, Taped, Timing
from agentstate.house.cassette_read import ReadSession, ReadStep, read_cassette
from agentstate.house.cassette_write import StepWriter, write_end, write_head, write_session
from tests.house.test_cassette_content import CONTENT
from tests.house.test_cassette_requests import BODIES

DIGESTS = st.binary(min_size=32, max_size=32)
TEXTS = st.text(max_size=5)
COUNTS = st.integers(0, 10**12)
IDENTITIES = st.builds(
    lambda raw, exact, pinned, masked: Identity(raw, exact, pinned or exact, masked or exact),
    DIGESTS, DIGESTS, st.none() | DIGESTS, st.none() | DIGESTS,
)  # fmt: skip
ANSWERS = st.builds(
    RecordedAnswer,
    st.sampled_from([200, 201]),
    st.sampled_from([(), ((b"content-type", b"text/plain"),)]),
    st.sampled_from(["body", "events"]),
    CONTENT,
)
TAKES = st.builds(
    Take,
    step_number=st.integers(0, 5),
    dialect=st.sampled_from(["openai_chat", "openai_embeddings"]),
    path=TEXTS,
    model=TEXTS,
    streams=st.booleans(),
    is_mock=st.booleans(),
    identity=IDENTITIES,
    request=BODIES,
    answer=ANSWERS,
    provider=TEXTS,
    answered_by=TEXTS,
    cost_microusd=st.none() | COUNTS,
    timing=st.none() | st.builds(Timing, COUNTS, st.none() | COUNTS),
)


def written(*sessions: tuple[Taped, list[Take]]) -> bytes:
    lines = [write_head()]
    for taped, takes in sessions:
        writer = StepWriter()
        lines += [write_session(taped), *map(writer.write, takes)]
    steps = sum(len(takes) for _, takes in sessions)
    return b"".join((*lines, write_end(len(sessions), steps, Counter(), Counter())))


@given(st.lists(st.lists(TAKES, min_size=1, max_size=4), max_size=3))
def test_what_is_written_is_read(runs: list[list[Take]]) -> None:
    about = About("N", None, (("a", "b"),))
    sessions = [(Taped(f"s{number}", about), takes) for number, takes in enumerate(runs)]

    found = list(read_cassette(written(*sessions)))

    expected = [one for taped, takes in sessions for one in (taped, *takes)]
    assert len(found) == len(expected)
    for one, wanted in zip(found, expected, strict=True):
        if isinstance(one, ReadSession):
            assert one.taped == wanted
            continue
        assert isinstance(wanted, Take)
        take = one.take
        assert encode_fields(take.request) == encode_fields(wanted.request)
        assert (take.identity, take.answer) == (wanted.identity, wanted.answer)
        assert (take.step_number, take.path, take.model) == (
            wanted.step_number, wanted.path, wanted.model
        )  # fmt: skip
        assert (take.streams, take.is_mock, take.provider) == (
            wanted.streams, wanted.is_mock, wanted.provider
        )  # fmt: skip
        assert (take.answered_by, take.cost_microusd, take.timing) == (
            wanted.answered_by, wanted.cost_microusd, wanted.timing
        )  # fmt: skip


def encode_fields(body: Any) -> dict[str, bytes]:
    return {key: encode(value) for key, value in body.items()}


HEAD = {"format": "agentstate-cassette", "version": 1}
KEYS = {"raw": "00" * 32, "exact": "11" * 32}
STEP = {
    "dialect": "openai_chat",
    "path": "/v1/chat/completions",
    "model": "m",
    "keys": KEYS,
    "request": {"model": "m", "messages": []},
    "answer": {"provider": "openai", "body": {}},
}
END = {"end": {"sessions": 1, "steps": 1}}


def whole(*lines: Any) -> bytes:
    return b"\n".join(line if isinstance(line, bytes) else json.dumps(line).encode()
                      for line in lines)  # fmt: skip


def test_blank_lines_line_ends_of_others_and_a_mark_of_utf8_are_passed_over() -> None:
    raw = b"\xef\xbb\xbf" + b"\r\n".join(
        json.dumps(line).encode() for line in (HEAD, {"session": "s"}, STEP, END)
    )

    [session, step] = read_cassette(raw.replace(b"\r\n", b"\r\n\r\n") + b"\r\n")

    assert isinstance(session, ReadSession)
    assert isinstance(step, ReadStep)
    assert (session.line, step.line, step.take.step_number) == (3, 5, 0)


def step(**changes: Any) -> dict[str, Any]:
    return {**STEP, **changes}


def answering(**changes: Any) -> dict[str, Any]:
    return step(answer={**STEP["answer"], **changes})  # type: ignore[dict-item]


S = {"session": "s"}
DAMAGE = {
    "nothing": ([], "Line 1.*begins with"),
    "something else": ([{"a": 1}], "Line 1.*begins with"),
    "no JSON": ([HEAD, b'{"session":'], "Line 2.*must be JSON; at column"),
    "no UTF-8": ([HEAD, b'{"session":"\xff"}'], "Line 2.*UTF-8"),
    "a key twice": ([HEAD, b'{"session":"a","session":"b"}'], "Line 2.*twice"),
    "no object": ([HEAD, [1]], r"Line 2.*object; found \[1\]"),
    "another version": ([{**HEAD, "version": 2}], "Line 1.*reads version 1; found 2.*newer"),
    "a step of no session": ([HEAD, STEP, END], "Line 2.*must come before"),
    "an empty session": ([HEAD, S, {"end": {"sessions": 1, "steps": 0}}], "Line 3.*has no step"),
    "another empty session": ([HEAD, S, {"session": "t"}], "Line 3.*has no step"),
    "a session twice": ([HEAD, S, STEP, S, STEP], "Line 4.*there twice"),
    "a cut file": ([HEAD, S, STEP], "Line 3.*the file was cut"),
    "a line too few": ([HEAD, S, STEP, {"end": {"sessions": 1, "steps": 2}}], "Line 4.*found 1"),
    "an odd end": ([HEAD, S, STEP, {"end": 1}], "Line 4.*must be an object"),
    "more after the end": ([HEAD, S, STEP, END, S], "Line 5.*after the end"),
    "an unknown key": ([HEAD, S, step(modle="m")], 'Line 3.*modle.*Did you mean "model"\\?'),
    "a missing key": ([HEAD, S, {"dialect": "openai_chat"}], "Line 3.*path is missing"),
    "an unknown dialect": ([HEAD, S, step(dialect="smoke")], "Line 3.*no dialect 'smoke'"),
    "an odd number": ([HEAD, S, step(step=-1)], "Line 3.*step must be an integer"),
    "a number that is none": ([HEAD, S, step(step=True)], "Line 3.*step must be an integer"),
    "an odd flag": ([HEAD, S, step(stream=1)], "Line 3.*stream must be true or false"),
    "an odd text": ([HEAD, S, step(model=1)], "Line 3.*model must be a text"),
    "a short digest": ([HEAD, S, step(keys={**KEYS, "raw": "00"})], "Line 3.*64 hexadecimal"),
    "no digest": ([HEAD, S, step(keys={"raw": "00" * 32})], "Line 3.*exact is missing"),
    "odd keys": ([HEAD, S, step(keys=1)], "Line 3.*keys must be an object"),
    "a step too far": ([HEAD, S, step(like=1)], "Line 3.*like must say"),
    "no answer": ([HEAD, S, step(answer=None)], "Line 3.*answer must be an object"),
    "two answers": ([HEAD, S, answering(text="")], "Line 3.*one of body"),
    "an error": ([HEAD, S, answering(status=500)], "Line 3.*status must be"),
    "an odd status": ([HEAD, S, answering(status=100)], "Line 3.*from 200"),
    "an odd type": ([HEAD, S, answering(type="a\nb")], "Line 3.*content type"),
    "an odd pace": ([HEAD, S, answering(pace=[[1]])], "Line 3.*pace must be pairs"),
    "an odd name": ([HEAD, {"session": ""}], "Line 2.*session is empty"),
    "an odd tag": ([HEAD, {**S, "tags": {"a=": "b"}}], "Line 2.*tag's name"),
    "odd tags": ([HEAD, {**S, "tags": []}], "Line 2.*tags must be an object"),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGE)
def test_damage_is_said_with_its_line(name: str) -> None:
    lines, said = DAMAGE[name]
    with pytest.raises(BadCassette, match=said) as caught:
        list(read_cassette(whole(*lines)))
    assert caught.value.message.endswith("Nothing was imported.")


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with pytest.raises(BadCassette):
        list(read_cassette(raw))


def test_each_beginning_of_a_cassette_is_refused() -> None:
    raw = whole(HEAD, S, STEP, STEP, {"end": {"sessions": 1, "steps": 2}})
    for end in range(len(raw)):
        with pytest.raises(BadCassette):
            list(read_cassette(raw[:end]))


def test_the_pace_of_an_answer_that_was_edited_is_dropped() -> None:
    for content, kept in (("ab", True), ("abc", False)):
        line = step(answer={"provider": "p", "text": content, "latency_ms": 5, "pace": [[2, 9]]})
        [_, found] = read_cassette(whole(HEAD, S, line, END))
        assert isinstance(found, ReadStep)
        assert bool(found.take.answer.pace) is kept
