"""One target of one call: what it is sent, and how what comes back is read.

Same dialect in and out: the body goes as it came (only a model's provider prefix is taken off) and
the answer is untouched. Another dialect: both are translated. Who asks (`upstream.py`, `stream.py`,
`rounds.py`) does not see the difference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import ceil
from urllib.parse import quote

from agentstate.dialects.base import Ask, Dialect, ErrorFacts
from agentstate.dialects.lenient import as_object, read_exact
from agentstate.dialects.neutral import translates
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest, UpstreamError, UpstreamRefused, shorten
from agentstate.ground.records import RecordedAnswer
from agentstate.steps import forward
from agentstate.steps.failures import Failure, failure_of_error, failure_of_status
from agentstate.steps.reply import EVENTS_TYPE, JSON_TYPE, passed_headers
from agentstate.steps.target import Target, upstream_headers
from agentstate.steps.translation import (
    Frames,
    PlainFrames,
    RefusedInside,
    Translation,
    silent_error,
    translation_for,
)
from agentstate.wire.message import Exchange, Headers, OutCall, Pair

WORDS_CHARS_MAX = 300  # of an upstream's own message, in ours

# Between a caller and another vendor's upstream, these say nothing true of the other.
_NOT_TRANSLATED = (b"openai-", b"anthropic-", b"x-ratelimit-", b"x-request-id", b"request-id")
_OF_BODY = frozenset((b"content-type", b"content-encoding"))


@dataclass(frozen=True, slots=True)
class Failed:
    """How an attempt came to nothing."""

    error: UpstreamError
    failure: Failure
    refusal: RecordedAnswer | None = None  # the error response to pass on; None = `error` is it
    excerpt: bytes = b""  # of what came, for the record
    # A client has seen a part of its answer, or it is on record: nothing else can be tried.
    is_out: bool = False


@dataclass(frozen=True, slots=True)
class Outgoing:
    """What is asked, whatever target it goes to: the caller's own call."""

    dialect: Dialect
    ask: Ask
    headers: Headers
    path: str
    query: str
    raw: bytes  # the body as received
    # The body to send in its place, in the caller's form; None = as it came.
    changed: Mapping[str, JSON] | None = None
    missed: tuple[str, ...] = ()  # what could not be put into it, for the record
    # The same with all in it that the upstream keeps (`chains.py`), for targets that keep nothing;
    # None = it is not all known, and they cannot be asked.
    written_out: Mapping[str, JSON] | None = None
    kept_by: str | None = None  # the provider that keeps it; None = not known
    # Gives `written_out` to whoever comes to need it; None = there is nothing to give.
    write_out: Callable[[], Awaitable[Mapping[str, JSON] | None]] | None = None

    def is_unknown_to(self, target: Target) -> bool:
        """Say whether a part of what is asked is kept where a target does not look."""
        is_kept_here = not is_elsewhere(target) and self.kept_by in (None, target.provider)
        return self.ask.has_hidden_part and not is_kept_here


def is_elsewhere(target: Target) -> bool:
    """Say whether a target is not the upstream that the caller's SDK is made for."""
    return bool(target.dialect) or target.is_stranger


class Leg:
    """One call's way to one target."""

    def __init__(self, target: Target, out: Outgoing) -> None:
        self.target = target
        self._out = out
        body = out.ask.body if out.changed is None else out.changed
        # What an upstream keeps, no other one has.
        self._is_unknown = out.is_unknown_to(target)
        if self._is_unknown and out.written_out is not None:
            body, self._is_unknown = out.written_out, False
        self._body = body
        self._translation: Translation | None = translation_for(out.dialect, target, out.ask, body)
        # What could not be said: of the request once `call` was made, of the answer once it is read
        self.dropped_of_request = out.missed
        self.dropped_of_answer: tuple[str, ...] = ()

    @property
    def dropped(self) -> tuple[str, ...]:
        """What could not be said, either way."""
        return *self.dropped_of_request, *self.dropped_of_answer

    def call(self, *, is_fallback: bool = False) -> OutCall:
        """Return the request as it goes upstream.

        `is_fallback`: it is not the first of its call, so an upstream must not take it for a
        repetition of that.

        Raises:
            BadRequest: it cannot be said in the target's form.
        """
        out, target = self._out, self.target
        if self._is_unknown:
            raise BadRequest(
                f"The request goes on from what its upstream keeps and {target.provider} does not "
                "know, and it is not all on record here. Send the whole conversation.",
                param="previous_response_id",
            )
        headers = out.headers.without(frozenset((b"idempotency-key",))) if is_fallback else (
            out.headers
        )  # fmt: skip
        if self._translation is None:
            changed = None if self._body is out.ask.body else dict(self._body)
            query = _for_stranger(out.query) if target.is_stranger else out.query
            if target.is_native and target.model != out.ask.model:
                path = _with_model(out.path, target.model)
                return forward.out_call(target, headers, path, query, out.raw, None, changed)
            return forward.out_call(target, headers, out.path, query, out.raw, out.ask, changed)
        written = self._translation.request(None)
        self.dropped_of_request = (*out.missed, *written.dropped)
        spoken = self._translation.spoken
        path, query = spoken.request_path(target.model, streams=out.ask.streams)
        kept = headers.without(frozenset((b"content-encoding", b"content-type")))
        return OutCall(
            method="POST",
            origin=target.origin,
            target=target.path(path, query),
            headers=(*upstream_headers(kept, target), *spoken.request_headers, JSON_TYPE),
            body=encode(written.value),
        )

    @property
    def _spoken(self) -> Dialect:
        """The form the target answers in."""
        return self._out.dialect if self._translation is None else self._translation.spoken

    def frames(self) -> Frames:
        """Return what cuts a stream of this target into frames of the caller's form."""
        return PlainFrames() if self._translation is None else self._translation.frames()

    def headers(self, exchange: Exchange) -> tuple[Pair, ...]:
        """Return the headers that go to the client and into the record."""
        found = forward.answer_headers(exchange, self.target)
        if self._translation is None:
            return found
        return EVENTS_TYPE if forward.is_stream(exchange) else JSON_TYPE, *_for_other(found)

    def read(self, exchange: Exchange, raw: bytes) -> tuple[bytes, Answer, Failed | None]:
        """Read a whole answer; return it in the caller's form, read, and what is wrong with it."""
        if self._translation is None:
            answer, body = self._out.dialect.read_answer(raw), raw
        else:
            translated = self._translation.answer(raw)
            answer, body = translated.answer, translated.body
            self.dropped_of_answer = translated.dropped
        error = forward.judge(answer, exchange, self.target.provider)
        if error is None:
            return body, self._complete(body, answer), None
        inside = self.refusal_inside(exchange, raw)
        if inside is not None:
            return b"", answer, inside
        return b"", answer, Failed(error, failure_of_error(error), excerpt=raw)

    def read_events(self, exchange: Exchange, raw: bytes) -> tuple[RecordedAnswer, Answer] | Failed:
        """Read a whole stream, for who wants no pieces of it."""
        frames, dialect = self.frames(), self._out.dialect
        assembler = dialect.assembler(self._out.ask.choices)
        try:
            found = [*frames.feed(raw), *frames.finish()]
        except UpstreamError as error:
            return self.failed(error, raw)
        for frame in found:
            assembler.feed(frame)
        answer = frames.complete(assembler.finish(clean_end=True))
        fault = forward.judge(answer, exchange, self.target.provider)
        if fault is not None:
            return Failed(fault, failure_of_error(fault), excerpt=raw)
        content = b"".join(frame.raw for frame in found)
        return RecordedAnswer(exchange.status, self.headers(exchange), "events", content), answer

    async def read_refusal(self, exchange: Exchange) -> Failed:
        """Read an error response. One in the caller's own form passes as it is."""
        raw = await exchange.read(forward.ERROR_BODY_BYTES_MAX)
        dialect = self._spoken
        facts = dialect.read_error(raw)
        mended = dialect.mend_error_body(exchange.status, raw)
        if mended is not None:
            facts = dialect.read_error(mended)
        return self._refused(exchange, exchange.status, facts, raw if mended is None else mended,
                             is_as_sent=mended is None, excerpt=raw)  # fmt: skip

    def refusal_inside(self, exchange: Exchange, data: bytes) -> Failed | None:
        """Return an error that came inside a success as the HTTP error it is; None = it is none."""
        dialect = self._spoken
        facts = dialect.read_error(data)
        if facts is None or dialect.mend_error_body(502, data) is not None:
            return None
        status, body = facts.status or 502, data
        # In the events of Responses an error stands bare, or in the response: that is no body.
        if "error" not in as_object(read_exact(data)) and translates(dialect):
            body = dialect.write_error(facts, status)
        return self._refused(exchange, status, facts, body, is_as_sent=False, excerpt=data)

    def filtered(self, answer: Answer) -> Failed | None:
        """Return an answer that a content filter emptied as a failure; None = it is none."""
        dialect = self._out.dialect
        has_said = any(choice.text or choice.tool_calls for choice in answer.choices)
        if has_said or not translates(dialect) or dialect.ending(answer) != "filtered":
            return None
        error = UpstreamRefused(
            f"{self.target.provider} answered nothing: a content filter refused.",
            provider=self.target.provider,
        )
        return Failed(error, Failure("filter"))

    def failed(self, error: UpstreamError, excerpt: bytes = b"") -> Failed:
        """Return an error of the transport, or of a stream, as how the attempt ended."""
        named = forward.name_provider(error, self.target.provider)
        if isinstance(error, RefusedInside):
            status = error.upstream_status or 502
            refusal = RecordedAnswer(status, (JSON_TYPE,), "body", error.body)
            failure = failure_of_status(status, error.facts, Headers(), now_ms())
            return Failed(named, failure, refusal, excerpt)
        return Failed(named, failure_of_error(named), excerpt=excerpt)

    def _complete(self, body: bytes, answer: Answer) -> Answer:
        """Return a translated answer as its caller's form reads, with the upstream's own count."""
        if self._translation is None:
            return answer
        read = self._out.dialect.read_answer(body)
        return forward.with_counts(read, answer)

    def _refused(
        self, exchange: Exchange, status: int, facts: ErrorFacts | None, body: bytes, *,
        is_as_sent: bool, excerpt: bytes,
    ) -> Failed:  # fmt: skip
        """Make the error response that goes to the client. `is_as_sent`: `body` is the upstream's
        own and its headers tell of it."""
        provider = self.target.provider
        headers = passed_headers(exchange.headers)
        if not is_as_sent:
            headers = JSON_TYPE, *(pair for pair in headers if pair[0].lower() not in _OF_BODY)
        if self._translation is not None:
            body = self._translation.error(facts, status)
            headers = JSON_TYPE, *_for_other(headers), *_pause(facts, headers)
        known = facts or silent_error(provider, status)
        words = shorten(known.message or known.code or "", WORDS_CHARS_MAX)
        where = "" if status == exchange.status else " with an error inside"
        error = UpstreamRefused(
            f"{provider} answered {exchange.status}{where}" + (f": {words}" if words else "."),
            upstream_status=status,
            provider=provider,
        )
        failure = failure_of_status(status, facts, exchange.headers, now_ms())
        return Failed(error, failure, RecordedAnswer(status, headers, "body", body), excerpt)


def _with_model(path: str, model: str) -> str:
    """Return a path of Gemini's own form, which names the model, with another model."""
    head, _, verb = path.rpartition(":")
    return f"{head.rpartition('/')[0]}/{quote(model.removeprefix('models/'), safe='')}:{verb}"


def _for_stranger(query: str) -> str:
    """Return what of a query says nothing of anybody: in Gemini's form, that the answer streams."""
    return "&".join(field for field in query.split("&") if field == "alt=sse")


def _for_other(headers: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the headers of an upstream that are true for a client of another vendor's."""
    for pair in headers:
        name = pair[0].lower()
        if name not in _OF_BODY and not name.startswith(_NOT_TRANSLATED):
            yield pair


def _pause(facts: ErrorFacts | None, headers: Iterable[Pair]) -> Iterator[Pair]:
    """Yield the pause that an error asks for in its body, which no other form has a place for, as
    the header that every client reads; nothing where a header says it already."""
    if facts is None or facts.retry_after_s is None:
        return
    if not any(name.lower() in (b"retry-after", b"retry-after-ms") for name, _ in headers):
        yield b"retry-after", b"%d" % ceil(facts.retry_after_s)  # whole seconds: RFC 9110, 10.2.3
