"""One call in another dialect than the caller's: its request, its answer, its stream, its errors.

The caller's side sees no more than its own form: the rest of the house (checkpoint, gate, replay)
works on what is written here as if an upstream had sent it. The parts that know a form are the
dialects' (`dialects/neutral.py`); this puts two of them together.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Protocol, cast

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Ask, Dialect, ErrorFacts, Mark
from agentstate.dialects.neutral import (
    AnswerHead,
    Ending,
    Receiver,
    StreamsLines,
    TellsFaults,
    TellsPieces,
    TranslatingDialect,
    Written,
    translates,
)
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import NotAnAnswer, UpstreamRefused, shorten
from agentstate.steps.forward import with_counts
from agentstate.steps.target import Target
from agentstate.wire.lines import LinesDecoder
from agentstate.wire.sse import Frame, SSEDecoder

SEED_BYTES = 12


class RefusedInside(UpstreamRefused):
    """A translated stream carried an error. `body` is that error in the caller's form."""

    def __init__(
        self, message: str, *, status: int, provider: str, facts: ErrorFacts, body: bytes
    ) -> None:
        super().__init__(message, upstream_status=status, provider=provider)
        self.facts = facts
        self.body = body


class Frames(Protocol):
    """Where the frames of one stream come from, in the caller's form."""

    # The answer is whole and its end will be written when the body ends: soon, or it is not waited
    # for. Of an untranslated stream the assembler knows that, so it is always False.
    is_ending: bool
    # It needs no more, not even an end of the body: what cuts that takes nothing away. Of an
    # untranslated stream this is asked only once it is so.
    is_whole: bool
    dropped: tuple[str, ...]  # of the answer, what could not be said; known at its end

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that these bytes bring.

        Raises:
            UpstreamError: what came is an error, or is no stream.
        """
        ...

    def finish(self) -> list[Frame]:
        """Return what is left when the body has ended.

        Raises:
            UpstreamError: it ended before the answer did.
        """
        ...

    def complete(self, answer: Answer) -> Answer:
        """Return what was read of the frames with what only the upstream's own form could say."""
        ...


class PlainFrames:
    """Frames as they come."""

    is_ending = False
    is_whole = True
    dropped: tuple[str, ...] = ()

    def __init__(self) -> None:
        self._decoder = SSEDecoder()

    def feed(self, data: bytes) -> list[Frame]:
        """See `Frames`."""
        return self._decoder.feed(data)

    def finish(self) -> list[Frame]:
        """See `Frames`."""
        rest = self._decoder.finish()
        return [] if rest is None else [rest]

    def complete(self, answer: Answer) -> Answer:
        """See `Frames`."""
        return answer


@dataclass(frozen=True, slots=True)
class TranslatedAnswer:
    """A whole answer, translated."""

    body: bytes  # in the caller's form; b'' where it is no answer
    answer: Answer  # as it was read in the upstream's form
    dropped: tuple[str, ...] = ()


class Translation:
    """One call between two dialects. Pure, but for the seed of ids and the time."""

    def __init__(
        self, caller: TranslatingDialect, spoken: TranslatingDialect, target: Target,
        ask: Ask, body: Mapping[str, JSON],
    ) -> None:  # fmt: skip
        """`body` is what is asked, in the caller's form: `ask.body`, or it with more in it."""
        self.caller = caller
        self.spoken = spoken
        self._target = target
        self._body = body
        self._head = AnswerHead(
            seed=secrets.token_hex(SEED_BYTES),
            model=target.model,
            created_s=now_ms() // 1000,
            body=ask.body,
        )
        self._choices = ask.choices

    def request(self, output_tokens_max: int | None) -> Written[dict[str, JSON]]:
        """Return the request in the target's form.

        Raises:
            BadRequest: it cannot be said in it.
        """
        target = self._target
        asked = replace(self.caller.read_request(self._body), model=target.model)
        receiver = Receiver(target.provider, target.model, output_tokens_max)
        return self.spoken.write_request(asked, receiver)

    def answer(self, raw: bytes) -> TranslatedAnswer:
        """Return a whole answer; what is none has its fault in `answer`."""
        answer = _checked(self.spoken, self.spoken.read_answer(raw))
        if not answer.is_complete:
            return TranslatedAnswer(b"", answer)
        ending = self.spoken.ending(answer)
        written = self.caller.write_answer(answer, ending, self._head)
        dropped = (*written.dropped, *_reason_dropped(answer, ending))
        return TranslatedAnswer(written.value, answer, dropped)

    def frames(self) -> TranslatedFrames:
        """Return what turns the upstream's stream into the caller's."""
        return TranslatedFrames(
            self.caller, self.spoken, self._target, self._head, choices=self._choices
        )

    def error(self, facts: ErrorFacts | None, status: int) -> bytes:
        """Return an upstream's error in the caller's form; `facts` None = it could not be read."""
        return self.caller.write_error(facts or silent_error(self._target.provider, status), status)


def translation_for(
    caller: Dialect, target: Target, ask: Ask, body: Mapping[str, JSON]
) -> Translation | None:
    """Return how a call is translated for a target; None = it goes as it is."""
    if not target.dialect:
        return None
    spoken = dialect_by_name(target.dialect)
    assert spoken is not None, "the targets know only forms there are"
    assert translates(spoken), "and only those that can be translated into"
    assert translates(caller), "and choose them for nobody else"
    return Translation(caller, spoken, target, ask, body)


def silent_error(provider: str, status: int) -> ErrorFacts:
    """Return what can be said of an error that says nothing of itself."""
    return ErrorFacts(f"{provider} answered {status} with no error that can be read.")


class TranslatedFrames:
    """Frames of one form made of those of another, as they come."""

    def __init__(
        self, caller: TranslatingDialect, spoken: TranslatingDialect, target: Target,
        head: AnswerHead, *, choices: int,
    ) -> None:  # fmt: skip
        self.is_ending = False
        self.is_whole = False
        self._caller = caller
        self._spoken = spoken
        self._target = target
        self._decoder = LinesDecoder() if isinstance(spoken, StreamsLines) else SSEDecoder()
        self._assembler = cast(TellsPieces, spoken.assembler(choices))
        self._assembler.new_pieces()
        self._writer = caller.answer_writer(head)
        self._has_begun = False
        self._is_over = False
        self._head = head
        self._answer: Answer | None = None  # once it is whole
        self.dropped: tuple[str, ...] = ()

    def feed(self, data: bytes) -> list[Frame]:
        """See `Frames`."""
        written: list[bytes] = []
        for frame in self._decoder.feed(data):
            written.append(self._take(frame))
        return _cut(written)

    def finish(self) -> list[Frame]:
        """See `Frames`."""
        written: list[bytes] = []
        rest = self._decoder.finish()
        if rest is not None:
            written.append(self._take(rest))
        if not self._is_over:
            written.append(self._end())
        return _cut(written)

    def complete(self, answer: Answer) -> Answer:
        """See `Frames`."""
        if self._answer is None:
            return answer
        return with_counts(answer, self._answer)

    def _take(self, frame: Frame) -> bytes:
        if self._is_over:
            return b""
        mark = self._assembler.feed(frame)
        if mark is Mark.ERROR:
            raise self._refusal(frame)
        if mark is Mark.DONE:
            return self._end()
        if mark is Mark.COMPLETING:
            # Some forms have an end of their own after it, and are no answer without.
            self.is_ending = self._assembler.finish(clean_end=True).is_complete
            self.is_whole = self._assembler.finish(clean_end=False).is_complete
        return self._begin() + self._writer.write(self._assembler.new_pieces())

    def _begin(self) -> bytes:
        if self._has_begun:
            return b""
        self._has_begun = True
        return self._writer.begin()

    def _end(self) -> bytes:
        """Return the end of the stream.

        Raises:
            NotAnAnswer: the upstream's answer has none.
        """
        self._is_over = True
        answer = _checked(self._spoken, self._assembler.finish(clean_end=True))
        if not answer.is_complete:
            raise NotAnAnswer(
                f"{self._target.provider} sent a stream that is no complete answer: "
                f"{answer.fault or 'it has no end'}. It was not recorded; ask again.",
                provider=self._target.provider,
            )
        self._answer = answer
        ending = self._spoken.ending(answer)
        rest = self._writer.write(self._assembler.new_pieces())
        # A stream leaves out what the whole answer does.
        whole = self._caller.write_answer(_outline(answer), ending, self._head)
        self.dropped = (*whole.dropped, *_reason_dropped(answer, ending))
        return self._begin() + rest + self._writer.end(answer, ending)

    def _refusal(self, frame: Frame) -> RefusedInside:
        provider = self._target.provider
        facts = self._spoken.read_error(frame.data or b"")
        fault = self._assembler.snapshot().fault or "an event that cannot be read"
        status = (facts.status if facts else None) or 502
        facts = facts or ErrorFacts(f"{provider} sent an error event: {fault}")
        words = shorten(facts.message or facts.code or "it says nothing more", 300)
        return RefusedInside(
            f"{provider} answered with an error inside its stream: {words}",
            status=status,
            provider=provider,
            facts=facts,
            body=self._caller.write_error(facts, status),
        )


def _outline(answer: Answer) -> Answer:
    """Return an answer that says as many things in fewer words: what of it a form leaves out does
    not depend on how long it is."""
    return replace(
        answer,
        choices=tuple(
            replace(
                choice,
                text=choice.text[:1],
                refusal=choice.refusal and choice.refusal[:1],
                reasoning=choice.reasoning and choice.reasoning[:1],
                tool_calls=tuple(replace(call, arguments="") for call in choice.tool_calls),
            )
            for choice in answer.choices
        ),
    )


def _reason_dropped(answer: Answer, ending: Ending) -> tuple[str, ...]:
    """Return the upstream's own word for why it filtered an answer: other forms have one for all
    such reasons."""
    reason = answer.finish_reason
    return (f"reason {shorten(reason)}",) if ending == "filtered" and reason else ()


def _checked(spoken: Dialect, answer: Answer) -> Answer:
    """Return an answer, with its fault where only its own form can say that it has one."""
    if not (answer.is_complete and isinstance(spoken, TellsFaults)):
        return answer
    fault = spoken.model_fault(answer)
    return answer if fault is None else replace(answer, is_complete=False, fault=fault)


def _cut(written: list[bytes]) -> list[Frame]:
    """Return what was written as the frames it is."""
    whole = b"".join(written)
    return SSEDecoder().feed(whole) if whole else []
