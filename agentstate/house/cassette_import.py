"""From a cassette to the record: the sessions it holds, as the store takes them. Pure.

What is worked out of an answer (its text, its calls, its usage) is worked out anew, as when it
came. What it cost is what it cost there. Imported steps belong to a run of their own, so an agent
that asks for them is another run, and is forgiven what a run that starts over is forgiven.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, replace

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.canonical import encode
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest, Conflict, TooLarge, shorten
from agentstate.ground.prices import Prices
from agentstate.ground.records import Claim, Part
from agentstate.ground.tapes import TAPE_RUN, TapedSession, TapedStep
from agentstate.house.cassette import BadCassette, Take
from agentstate.house.cassette_read import ReadSession, ReadStep, read_cassette
from agentstate.house.cassette_requests import BACK_MAX
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.identify import last_prompt, message_digest, split_body
from agentstate.steps.reading import read_recorded

# Messages of all requests together, each counted as often as it is sent: eight bytes each in
# memory. A cassette of the largest size stays far below; one that was made to grow does not.
MESSAGES_MAX = 20_000_000
SAID_CHARS_MAX = 300  # of what another reader says of a line


@dataclass(frozen=True, slots=True)
class Imported:
    """What a cassette holds."""

    sessions: tuple[TapedSession, ...]

    @property
    def steps(self) -> int:
        """How many steps it has."""
        return sum(len(each.steps) for each in self.sessions)


def read_sessions(raw: bytes, *, at_ms: int, renamed: str | None = None) -> Imported:
    """Return the sessions of a cassette, for `Store.import_sessions`.

    `at_ms`: when they come into the record. `renamed`: what its one session is to be called.

    Raises:
        BadCassette: see `read_cassette`.
        Conflict: it is to be renamed and has several sessions.
        TooLarge: its requests hold too much.
    """
    found: list[tuple[str, About, list[TapedStep]]] = []
    parts: deque[tuple[Part, ...]] = deque(maxlen=BACK_MAX)
    count = 0
    for each in read_cassette(raw):
        if isinstance(each, ReadSession):
            if found and renamed is not None:
                raise Conflict(
                    "The cassette has several sessions, and one name was given for it. Import it "
                    "under the names that it has."
                )
            found.append((renamed or each.taped.session, each.taped.about, []))
            parts.clear()
            continue
        name, about, steps = found[-1]
        messages, ask = _read_ask(each, parts)
        count += len(messages)
        if count > MESSAGES_MAX:
            raise TooLarge(
                f"Line {each.line} of the cassette: its requests hold over {MESSAGES_MAX} "
                "messages together. Split it into several files."
            )
        said = None if steps or about == About() else about
        # In order also to those who look at times alone.
        steps.append(_step(each, name, said, ask, messages, at_ms))
    return Imported(tuple(TapedSession(name, tuple(steps)) for name, _, steps in found))


def _read_ask(step: ReadStep, parts: deque[tuple[Part, ...]]) -> tuple[tuple[Part, ...], Ask]:
    """Return the messages of a request, named, and the request; what it shares with one before is
    not gone through again."""
    try:
        ask = step.dialect.read_ask(step.take.request)
        shared = parts[-step.like][: step.keep] if step.keep else ()
        if len(shared) < step.keep:
            shared = ()  # the messages of that request are not the items of its list
        new = ask.messages[len(shared) :]
        messages = (*shared, *(Part(message_digest(each), each) for each in new))
    except BadRequest as error:
        raise _wrong(step, f"its request is none: {error.message}") from error
    parts.append(messages)
    return messages, ask


def _step(
    step: ReadStep,
    session: str,
    about: About | None,
    ask: Ask,
    messages: tuple[Part, ...],
    at_ms: int,
) -> TapedStep:
    take = step.take
    answer = read_recorded(step.dialect, take.answer)
    if not answer.is_complete:
        raise _wrong(step, f"its answer is not complete: {answer.fault or 'it has no end'}")
    timing = take.timing
    checkpoint = make_checkpoint(
        step_id=0,
        now_ms=at_ms,
        ask=ask,
        input_chars=0 if answer.usage else len(encode(take.request)),
        attempts=(),
        answer=answer,
        recorded=take.answer,
        provider=take.provider,
        prices=Prices({}),
        latency_ms=0 if timing is None else timing.latency_ms,
        first_content_ms=None if timing is None else timing.first_content_ms,
        model=take.answered_by,
    )
    checkpoint = replace(checkpoint, cost_microusd=take.cost_microusd, model=take.answered_by)
    return TapedStep(_claim(take, step.dialect, session, about, ask, messages, at_ms), checkpoint)


def _claim(
    take: Take,
    dialect: Dialect,
    session: str,
    about: About | None,
    ask: Ask,
    messages: tuple[Part, ...],
    at_ms: int,
) -> Claim:
    return Claim(
        session=session,
        step_number=take.step_number,
        run_id=TAPE_RUN,
        call_id=None,
        occurrence=0,
        dialect=take.dialect,
        path=take.path,
        model=take.model,
        streams=take.streams,
        identity=take.identity,
        request=split_body(dialect, ask, messages),
        created_ms=at_ms,
        prompt=last_prompt(ask.messages),
        is_mock=take.is_mock,
        about=about,
    )


def _wrong(step: ReadStep, said: str) -> BadCassette:
    said = shorten(said.removesuffix("."), SAID_CHARS_MAX)
    return BadCassette(f"Line {step.line} of the cassette: {said}. Nothing was imported.")
