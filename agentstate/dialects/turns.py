"""Puts what an agent has not seen back into the conversation that it sends; see `Splice`.

For dialects whose messages are lists of blocks (Anthropic, Gemini); each brings a `Form`. Agents
send a conversation back as they keep it: messages of one side merged or split, a text for a block,
cache marks moved, thoughts left out. So conversations are compared by *turns*, which is all that
one side says before the other does, and of a turn only what counts.

Pure: what is given is left alone. The invariant: a conversation is changed at one turn and in the
results after it; every other message comes out as the object that went in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Literal, Protocol

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.lenient import Unreadable, as_list, read
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest

Spot = tuple[int, int]  # (message, block): a block, or the place before it


@dataclass(frozen=True, slots=True)
class Piece:
    """What counts of one block."""

    kind: Literal["text", "call", "result", "other"]
    at: int  # the block's place in its message
    # The text; of a call [name, arguments]; of others what stays from request to request. Compared
    # by `is_same`, since agents write numbers in their own way.
    value: JSON
    call_id: str = ""  # of a call; '' = it has none
    position: int = 0  # of a call: as the assembler numbers it


class Form(Protocol):
    """How a dialect writes a conversation."""

    answers_in_order: bool  # results are told apart by their order, not by ids

    def read(self, message: JSON) -> tuple[str, list[Piece]]:
        """Return whose message it is and what counts of it, in order."""
        ...

    def blocks(self, message: JSON) -> list[JSON]:
        """Return a message's blocks; a bare text as one."""
        ...

    def with_blocks(self, message: JSON, blocks: list[JSON]) -> JSON:
        """Return a message with other blocks."""
        ...

    def answer(self, body: bytes) -> JSON:
        """Return an answer that was not streamed as the message it is in a request.

        Raises:
            BadRequest: it is none.
        """
        ...

    def results(self, answer: JSON, told: Mapping[int, str]) -> list[JSON]:
        """Return the blocks that tell the model what became of calls, by their positions.

        Raises:
            BadRequest: a call cannot be told apart from others.
        """
        ...

    def text(self, text: str) -> JSON:
        """Return a text as a block."""
        ...

    def reply(self, blocks: list[JSON]) -> JSON:
        """Return a message of the client's side."""
        ...


def round_messages(form: Form, asked: Round) -> list[JSON]:
    """Return an answer whose calls were all refused, and what the model is told, as two messages.

    Raises:
        BadRequest: there is no form for that, or a call that nothing is told about.
    """
    answer = form.answer(asked.answer)
    if any(call.position not in asked.told for call in _calls(form.read(answer)[1])):
        raise BadRequest(
            "The model can only be told of a refusal when all the calls of its answer were refused."
        )
    blocks = form.results(answer, asked.told)
    if asked.observation:
        # As frameworks that spell calls in text tell their models what came of one.
        blocks.append(form.text(f"Observation: {asked.observation}"))
    if not blocks:
        raise BadRequest("The answer has no call that the model could be told about.")
    return [answer, form.reply(blocks)]


def splice_messages(
    form: Form, messages: Sequence[JSON], splice: Splice, list_key: str
) -> list[JSON] | None:
    """Return a conversation with what it lacks, by the rules of `CallsTools.spliced`; None = it has
    no place for it, or what should go there cannot be read."""
    try:
        return _splice(form, messages, as_list(splice.request.get(list_key)), splice)
    except (BadRequest, RecursionError):
        return None  # nothing that was sent is lost, and the step shows that nothing was spliced


def is_same(one: JSON, other: JSON) -> bool:
    """Say whether two values mean the same: agents send 1.50 back as 1.5.

    Raises:
        BadRequest: nested too deeply to be compared.
    """
    try:
        return one == other or read(encode(one)) == read(encode(other))
    except (Unreadable, RecursionError) as error:
        raise BadRequest("The conversation is nested too deeply to be compared.") from error


@dataclass(frozen=True, slots=True)
class _Turn:
    """All that one side says before the other does."""

    role: str
    begin: int  # its first message
    end: int  # the message after its last
    pieces: tuple[tuple[int, Piece], ...]  # each with the message it is in

    def spots(self, kind: str) -> list[Spot]:
        return [(message, piece.at) for message, piece in self.pieces if piece.kind == kind]


def _splice(
    form: Form, messages: Sequence[JSON], asked: Sequence[JSON], splice: Splice
) -> list[JSON] | None:
    if not splice.rounds and splice.follows is None:
        return None
    (got,) = _read_turns(form, [form.answer(splice.delivered)])
    place = _after_asked(form, messages, asked, got) or _by_calls(form, messages, got)
    if place is None:
        return None
    own, following = place
    before, mine = list(messages[: own.begin]), list(messages[own.begin : own.end])
    after = list(messages[own.end :])
    # Where the agent changed the text it is left in its own words.
    is_said = _text(own) == _text(got)
    if not (splice.rounds or is_said):
        return None  # its own words, or the answer that stands
    if splice.follows is not None:
        put = [message for each in splice.rounds for message in round_messages(form, each)]
        if is_said:
            mine = _restored(form, form.answer(splice.follows), own, messages, {})
        return [*before, *put, *mine, *after]
    *earlier, last = splice.rounds
    put = [message for each in earlier for message in round_messages(form, each)]
    answer = form.answer(last.answer)
    calls = _calls(form.read(answer)[1])
    is_told = [call.position in last.told for call in calls]
    if put and is_said:
        mine = _restored(form, answer, own, messages, last.told)
    else:
        blocks = form.blocks(answer)
        refused = [blocks[call.at] for call in calls if call.position in last.told]
        end = (len(mine) - 1, len(form.blocks(mine[-1])))
        anchors = [(message - own.begin, at) for message, at in own.spots("call")]
        mine = _put_in(form, mine, _beside(is_told, refused, anchors, end))
    results = form.results(answer, last.told)
    return [*before, *put, *mine, *_with_results(form, after, following, results, is_told)]


def _read_turns(
    form: Form, messages: Sequence[JSON], begin: int = 0, turns_max: int | None = None
) -> list[_Turn]:
    """Return the turns from a message on that begins one."""
    turns: list[_Turn] = []
    for index in range(begin, len(messages)):
        role, read_pieces = form.read(messages[index])
        pieces = tuple((index, piece) for piece in read_pieces)
        if turns and turns[-1].role == role:
            last = turns.pop()
            turns.append(_Turn(role, last.begin, index + 1, last.pieces + pieces))
        elif len(turns) == turns_max:
            break
        else:
            turns.append(_Turn(role, index, index + 1, pieces))
    return turns


_Place = tuple[_Turn, _Turn | None]  # the turn that is what was delivered, and the one after it


def _after_asked(
    form: Form, messages: Sequence[JSON], asked: Sequence[JSON], got: _Turn
) -> _Place | None:
    """1. What was asked, and then what was delivered. Ids of calls do not count: some frameworks
    make new ones.

    What is the same as it stands is not read: a conversation of a megabyte is passed in a moment.
    """
    begin = 0
    while begin < min(len(messages), len(asked)) and messages[begin] == asked[begin]:
        begin += 1
    # Back to where the turn begins.
    begin = max(begin - 1, 0)
    while begin and form.read(messages[begin])[0] == form.read(messages[begin - 1])[0]:
        begin -= 1
    theirs = _read_turns(form, asked, begin)
    ours = _read_turns(form, messages, begin, len(theirs) + 2)
    if len(ours) <= len(theirs) or not all(map(_is_same_turn, ours, theirs)):
        return None
    own, *rest = ours[len(theirs) :]
    if own.role != got.role or _text(own) != _text(got) or not _has_calls(own, got):
        return None
    return own, rest[0] if rest else None


def _by_calls(form: Form, messages: Sequence[JSON], got: _Turn) -> _Place | None:
    """2. The calls that were delivered, at one place only. An id alone says too little: some models
    begin with call_0 in every conversation."""
    if not got.spots("call"):
        return None
    turns = _read_turns(form, messages)
    places = [
        index
        for index, turn in enumerate(turns)
        if turn.role == got.role and _has_ids(turn, got) and _has_calls(turn, got)
    ]
    if len(places) != 1:
        return None
    (index,) = places
    return turns[index], turns[index + 1] if index + 1 < len(turns) else None


def _is_same_turn(one: _Turn, other: _Turn) -> bool:
    ours, theirs = _said(one), _said(other)
    return one.role == other.role and len(ours) == len(theirs) and all(map(is_same, ours, theirs))


def _said(turn: _Turn) -> list[JSON]:
    """Return what a turn says, texts that follow one another as one."""
    said: list[JSON] = []
    for kind, group in groupby(turn.pieces, key=lambda each: each[1].kind):
        values = [piece.value for _, piece in group]
        said += ["".join(map(str, values))] if kind == "text" else [[kind, each] for each in values]
    return said


def _text(turn: _Turn) -> str:
    """Return a turn's text without white space: agents trim it, and join blocks as they like."""
    texts = (str(piece.value) for _, piece in turn.pieces if piece.kind == "text")
    return "".join("".join(texts).split())


def _calls(pieces: Iterable[Piece]) -> list[Piece]:
    return [piece for piece in pieces if piece.kind == "call"]


def _has_calls(turn: _Turn, got: _Turn) -> bool:
    """Say whether a turn makes the calls that were delivered."""
    ours, theirs = (_calls(piece for _, piece in each.pieces) for each in (turn, got))
    return len(ours) == len(theirs) and all(
        is_same(one.value, other.value) for one, other in zip(ours, theirs, strict=True)
    )


def _has_ids(turn: _Turn, got: _Turn) -> bool:
    """Say whether the calls of a turn have the ids of those that were delivered, as far as both
    sides have any."""
    ours, theirs = (_calls(piece for _, piece in each.pieces) for each in (turn, got))
    return len(ours) == len(theirs) and all(
        one.call_id == other.call_id or not (one.call_id and other.call_id)
        for one, other in zip(ours, theirs, strict=True)
    )


def _restored(
    form: Form, answer: JSON, own: _Turn, messages: Sequence[JSON], told: Mapping[int, str]
) -> list[JSON]:
    """Return the model's answer, with the agent's own block for a call that it got edited: that is
    the one it carried out. An answer that says nothing is no message."""
    blocks = form.blocks(answer)
    kept = [call for call in _calls(form.read(answer)[1]) if call.position not in told]
    got = [(message, piece) for message, piece in own.pieces if piece.kind == "call"]
    for call, (message, piece) in zip(kept, got, strict=False):
        if not is_same(piece.value, call.value):
            blocks[call.at] = form.blocks(messages[message])[piece.at]
    return [form.with_blocks(answer, blocks)] if blocks else []


def _beside(
    is_put: Sequence[bool], blocks: Sequence[JSON], anchors: Sequence[Spot], end: Spot
) -> list[tuple[Spot, JSON]]:
    """Say where blocks go among those that are there: before the next one, else after the last.

    `is_put` says of all in their order which are put in, `anchors` where the others are.
    """
    put: list[tuple[Spot, JSON]] = []
    waiting, seen = iter(blocks), 0
    for is_new in is_put:
        if not is_new:
            seen += 1
        elif seen < len(anchors):
            put.append((anchors[seen], next(waiting)))
        elif anchors:
            message, at = anchors[-1]
            put.append(((message, at + 1), next(waiting)))
        else:
            put.append((end, next(waiting)))
    return put


def _put_in(form: Form, messages: Sequence[JSON], put: Sequence[tuple[Spot, JSON]]) -> list[JSON]:
    """Return messages with blocks put in before their spots."""
    changed = list(messages)
    for index in {message for (message, _), _ in put}:
        old = form.blocks(messages[index])
        new: list[JSON] = []
        for place in range(len(old) + 1):
            new += [block for spot, block in put if spot == (index, place)]
            new += old[place : place + 1]
        changed[index] = form.with_blocks(messages[index], new)
    return changed


def _with_results(
    form: Form,
    after: list[JSON],
    following: _Turn | None,
    results: list[JSON],
    is_told: Sequence[bool],
) -> list[JSON]:
    """Return the messages after a turn, with the results of its refused calls among the others."""
    if not results:
        return after
    own = following.spots("result") if following is not None else []
    if following is None or not own:
        return [form.reply(results), *after]
    first = (0, 0)
    anchors = [(message - following.begin, at) for message, at in own]
    if form.answers_in_order and len(anchors) == is_told.count(False):
        return _put_in(form, after, _beside(is_told, results, anchors, first))
    return _put_in(form, after, [(first, block) for block in results])
