"""Answers through every pair of dialects: whole, and as a stream that is cut anywhere.

What comes in is written by the other form's own writer (Ollama's, which has none, by hand), so that
the pieces are such as its assembler gives of a stream of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects.base import Mark
from agentstate.dialects.call_arguments import wrap_free_text
from agentstate.dialects.lenient import as_object, read_exact
from agentstate.dialects.neutral import AnswerHead, Ending, TellsPieces, safe_id
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer, Choice, Piece, ToolCall, Usage
from agentstate.wire.lines import LinesDecoder
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects.translation_contract import (
    CHAT,
    ELSEWHERE,
    GEMINI,
    MESSAGES,
    OLLAMA,
    PAIRS,
    RESPONSES,
    Side,
    arguments,
    joined,
    value_of,
)

steady = settings(derandomize=True, deadline=None, database=None, max_examples=12)
# The form that answers is what counts here, not who speaks it.
pairs = pytest.mark.parametrize(
    ("caller", "spoken"), [pair for pair in PAIRS if pair[1] is not ELSEWHERE], ids=str
)

BODIES: dict[str, dict[str, JSON]] = {
    "openai_chat": {"stream_options": {"include_usage": True}},
    "gemini": {"generationConfig": {"thinkingConfig": {"includeThoughts": True}}},
}
FILTERED = "The answer was stopped by a content filter."  # where a form has to have words for it

said = st.text('ab \n"{}\\\u2028\u00e9\U0001f600\ud83d\ude00', max_size=12)
call_ids = st.sampled_from(("call_{}", "toolu_{}", "functions.f:{}", "{}" + "é" * 50))


@st.composite
def calls(draw: st.DrawFn) -> tuple[ToolCall, ...]:
    shape = draw(call_ids)
    names = draw(st.lists(st.sampled_from(("get_weather", "now", "a.b-c")), max_size=3))
    return tuple(
        ToolCall(at, shape.format(at), name, draw(arguments)) for at, name in enumerate(names)
    )


@st.composite
def usages(draw: st.DrawFn) -> Usage:
    fresh, cached, written, visible, thought = (draw(st.integers(0, 9)) for _ in range(5))
    return Usage(fresh + cached + written + 1, visible + thought, cached, written, thought)


@st.composite
def answers(draw: st.DrawFn) -> tuple[Answer, Ending]:
    """Draw an answer and why it ended."""
    called = draw(calls())
    ending: Ending = draw(
        st.sampled_from(("tool_calls", "length") if called else ("stop", "length", "filtered"))
    )
    refusal = draw(st.none() | said.filter(bool)) if ending == "filtered" else None
    reasoning = draw(st.none() | said.filter(bool))
    choice = Choice(0, draw(said), refusal, reasoning, called, "as it was")
    return Answer((choice,), usage=draw(usages()), is_complete=True), ending


# --- writing and reading --------------------------------------------------------------------------


def head_of(side: Side, seed: str, body: dict[str, JSON] | None = None) -> AnswerHead:
    return AnswerHead(seed, "asked-for", 1_767_225_600, body or BODIES.get(side.form, {}))


def cut(text: str, size: int) -> Iterator[str]:
    yield from (text[at : at + size] for at in range(0, len(text), size))


def pieces_of(answer: Answer, size: int) -> Iterator[Piece]:
    """Yield what a stream of an answer tells, call after call, as all models do."""
    (choice,) = answer.choices
    for part in cut(choice.reasoning or "", size):
        yield Piece(0, "reasoning", part)
    for part in cut(choice.text, size):
        yield Piece(0, "text", part)
    for part in cut(choice.refusal or "", size):
        yield Piece(0, "refusal", part)
    for call in choice.tool_calls:
        head = Piece(0, "call", "", call.position, call.call_id, call.name, call.kind)
        yield from (replace(head, text=part) for part in ("", *cut(call.arguments, size)))


def stream_of(side: Side, answer: Answer, ending: Ending, size: int) -> bytes:
    """Return an answer as a stream of this form."""
    if side is OLLAMA:
        return b"".join(ollama_lines(answer, ending, size))
    writer = side.dialect().answer_writer(head_of(side, "beef"))
    frames = [writer.begin(), *(writer.write([piece]) for piece in pieces_of(answer, size))]
    return b"".join((*frames, writer.end(answer, ending)))


def ollama_lines(answer: Answer, ending: Ending, size: int) -> Iterator[bytes]:
    (choice,), usage = answer.choices, answer.usage
    assert usage is not None
    head: dict[str, JSON] = {"model": "qwen3", "created_at": "2026-11-01T00:00:00Z"}

    def line(message: dict[str, JSON], **more: JSON) -> bytes:
        said: JSON = {"role": "assistant", "content": "", **message}
        return encode({**head, "message": said, "done": False, **more}) + b"\n"

    yield from (line({"thinking": part}) for part in cut(choice.reasoning or "", size))
    yield from (line({"content": part}) for part in cut(choice.text + (choice.refusal or ""), size))
    for call in choice.tool_calls:
        yield line({"tool_calls": [ollama_call(call)]})
    yield line(
        {}, done=True, done_reason="length" if ending == "length" else "stop",
        prompt_eval_count=usage.input_tokens, eval_count=usage.output_tokens,
    )  # fmt: skip


def whole_message(answer: Answer) -> JSON:
    (choice,) = answer.choices
    called: list[JSON] = [ollama_call(call) for call in choice.tool_calls]
    text = choice.text + (choice.refusal or "")
    return {"role": "assistant", "content": text, "tool_calls": called}


def ollama_call(call: ToolCall) -> JSON:
    return {"function": {"name": call.name, "arguments": read_exact(call.arguments)}}


def translate(caller: Side, spoken: Side, chunks: Iterable[bytes], head: AnswerHead) -> bytes:
    """Return a stream in the caller's form, made of one that comes in chunks."""
    dialect = spoken.dialect()
    assembler = cast(TellsPieces, dialect.assembler())
    decoder = LinesDecoder() if spoken is OLLAMA else SSEDecoder()
    writer = caller.dialect().answer_writer(head)
    assembler.new_pieces()
    written = [writer.begin()]

    def take(frames: Iterable[Frame]) -> None:
        for frame in frames:
            assert assembler.feed(frame) is not Mark.ERROR
            written.append(writer.write(assembler.new_pieces()))

    for chunk in chunks:
        take(decoder.feed(chunk))
    rest = decoder.finish()
    take([] if rest is None else [rest])
    answer = assembler.finish(clean_end=True)
    assert answer.is_complete, answer.fault
    return b"".join((*written, writer.end(answer, dialect.ending(answer))))


def read_stream(side: Side, raw: bytes) -> Answer:
    assembler, decoder = side.dialect().assembler(), SSEDecoder()
    for frame in decoder.feed(raw):
        assert assembler.feed(frame) is not Mark.ERROR
    assert decoder.finish() is None, "frames are whole"
    return assembler.finish(clean_end=True)


# --- comparing ------------------------------------------------------------------------------------


def check(answer: Answer, ending: Ending, got: Answer, caller: Side, spoken: Side) -> None:
    """Hold what the caller reads against what was said."""
    assert got.is_complete, got.fault
    (theirs,), (ours,) = answer.choices, got.choices
    expected, found = (joined(each.text + (each.refusal or "")) for each in (theirs, ours))
    assert found == expected or (ending == "filtered" and found == expected + FILTERED)
    if ending == "filtered" and spoken is OLLAMA:
        ending = "stop"  # it does not say why
    assert caller.dialect().ending(got) == ending
    check_usage(answer.usage, got.usage, {caller, spoken})
    assert [call.name for call in ours.tool_calls] == [call.name for call in theirs.tool_calls]
    ids = [call.call_id for call in ours.tool_calls]
    if spoken is OLLAMA:  # which gave none
        assert len({each for each in ids if each}) == len(ids)
    elif MESSAGES in (caller, spoken):
        assert ids == [safe_id(call.call_id or "") for call in theirs.tool_calls]
    else:
        assert ids == [call.call_id for call in theirs.tool_calls]


def check_usage(theirs: Usage | None, ours: Usage | None, forms: set[Side]) -> None:
    """Compare counts, without those that one of two forms has no word for."""
    assert theirs is not None
    if GEMINI in forms:
        theirs = replace(theirs, cache_write_tokens=0)
    if OLLAMA in forms:
        theirs = Usage(theirs.input_tokens, theirs.output_tokens)
    assert ours == theirs


def check_arguments(answer: Answer, got: Answer, *, is_exact: bool) -> None:
    """Compare the arguments of all calls: as texts, or as the values they are."""
    for (_, theirs), (_, ours) in zip(answer.tool_calls, got.tool_calls, strict=True):
        if is_exact:
            assert ours.arguments == theirs.arguments
        else:
            assert value_of(ours.arguments) == value_of(theirs.arguments)


# --- properties -----------------------------------------------------------------------------------


@pairs
@steady
@given(drawn=answers())
def test_a_whole_answer_survives(caller: Side, spoken: Side, drawn: tuple[Answer, Ending]) -> None:
    answer, ending = drawn
    if spoken is OLLAMA:
        *_, last = ollama_lines(answer, ending, 99)
        raw = encode({**as_object(read_exact(last)), "message": whole_message(answer)})
    else:
        raw = spoken.dialect().write_answer(answer, ending, head_of(spoken, "beef")).value
    theirs = spoken.dialect().read_answer(raw)

    why = spoken.dialect().ending(theirs)
    ours = caller.dialect().write_answer(theirs, why, head_of(caller, "cafe")).value

    got = caller.dialect().read_answer(ours)
    check(answer, ending, got, caller, spoken)
    check_arguments(answer, got, is_exact={caller, spoken} <= {CHAT, RESPONSES})


@pairs
@steady
@given(drawn=answers(), piece_chars=st.integers(1, 9), chunk_bytes=st.integers(1, 400))
def test_a_stream_survives_wherever_it_is_cut(
    caller: Side, spoken: Side, drawn: tuple[Answer, Ending], piece_chars: int, chunk_bytes: int
) -> None:
    answer, ending = drawn
    raw = stream_of(spoken, answer, ending, piece_chars)
    chunks = (raw[at : at + chunk_bytes] for at in range(0, len(raw), chunk_bytes))

    ours = translate(caller, spoken, chunks, head_of(caller, "cafe"))

    got = read_stream(caller, ours)
    check(answer, ending, got, caller, spoken)
    check_arguments(answer, got, is_exact={caller, spoken} <= {CHAT, RESPONSES, MESSAGES})


@pairs
@steady
@given(drawn=answers(), piece_chars=st.integers(1, 9))
def test_a_stream_replays_to_a_caller_who_wants_it_whole(
    caller: Side, spoken: Side, drawn: tuple[Answer, Ending], piece_chars: int
) -> None:
    """And the other way round: both are made of the record, in the caller's form."""
    answer, ending = drawn
    dialect = caller.dialect()
    raw = stream_of(spoken, answer, ending, piece_chars)
    stream = translate(caller, spoken, [raw], head_of(caller, "cafe"))

    whole = dialect.body_from_events(SSEDecoder().feed(stream))
    back = b"".join(dialect.events_from_body(whole, True))

    for got in (dialect.read_answer(whole), read_stream(caller, back)):
        check(answer, ending, got, caller, spoken)
        check_arguments(answer, got, is_exact={caller, spoken} <= {CHAT, RESPONSES})


@pairs
@steady
@given(text=said, piece_chars=st.integers(1, 9))
def test_a_custom_tool_gets_its_text_back(
    caller: Side, spoken: Side, text: str, piece_chars: int
) -> None:
    """Where it was a function upstream."""
    if not caller.has_custom:
        return
    tool: JSON = {"type": "custom", "name": "patch"}
    if caller is CHAT:
        tool = {"type": "custom", "custom": {"name": "patch"}}
    head = head_of(caller, "cafe", {**BODIES["openai_chat"], "tools": [tool]})
    call = ToolCall(0, "call_1", "patch", wrap_free_text(joined(text)))
    answer = Answer((Choice(0, "", tool_calls=(call,)),), usage=Usage(3, 2), is_complete=True)
    raw = stream_of(spoken, answer, "tool_calls", piece_chars)

    got = read_stream(caller, translate(caller, spoken, [raw], head))

    (found,) = got.choices[0].tool_calls
    assert (found.kind, found.name, found.arguments) == ("custom", "patch", joined(text))


@pairs
def test_an_answer_of_the_same_seed_is_the_same(caller: Side, spoken: Side) -> None:
    call = ToolCall(0, None, "now", "{}")
    answer = Answer((Choice(0, "Hm.", tool_calls=(call,)),), usage=Usage(3, 2), is_complete=True)
    raw = stream_of(spoken, answer, "tool_calls", 2)

    first, second = (translate(caller, spoken, [raw], head_of(caller, "cafe")) for _ in range(2))

    assert first == second
