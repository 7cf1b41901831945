"""What can go wrong with one answer of an upstream, as a table.

A fault is played in the form of the target, as a stream or not. Where it strikes decides what may
still be done about it: before a client has seen any content another try is made, after it none.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from tests.e2e.forms import FURTHER, GEMINI, PAIRS, PIECES, Form, delayed_refusal
from tests.helpers.upstream import End, Pair, Reply, json_reply

# A status that no HTTP server can say: the reply has no head, and all that comes are its chunks.
HEADLESS = 0
UNANSWERED = Reply(HEADLESS, end="reset")
HOURS_S = 3_600.0
HTML: tuple[Pair, ...] = ((b"content-type", b"text/html"),)
PAGE = b"<html><body><h1>Bad gateway</h1></body></html>"

Make = Callable[[Form, str, bool], Reply]  # (form, model, streams); called when it is to be sent


@dataclass(frozen=True, slots=True)
class Fault:
    """One way to fail."""

    name: str
    make: Make
    status: int | None  # of the attempt on record: what came as a status; None = nothing came
    code: str  # of the attempt on record
    answered: int  # the status that its client gets when nothing else is left
    is_slow: bool = False  # a time limit ends it
    is_seen: bool = False  # content of a stream went out before it
    streams: tuple[bool, ...] = (False, True)
    forms: tuple[str, ...] = ("chat", "messages", "responses", "gemini", "ollama")
    is_refused: bool = False  # nobody listens: no reply is made
    has_words: bool = False  # the upstream says what is wrong, and its client should read that
    # One like it is played between forms; it would be no other there.
    is_own_form_only: bool = False
    # Forms tell it, or tell of it, each in its own way: see `rows_of`.
    is_telling: bool = False


def _status(status: int, **headers: str) -> Make:
    return lambda form, model, streams: form.refusal(status, **headers)


def _in_body(form: Form, model: str, streams: bool) -> Reply:
    return delayed_refusal()


def _at_date(form: Form, model: str, streams: bool) -> Reply:
    at = datetime.now(UTC) + timedelta(seconds=2)
    return form.refusal(429, retry_after=format_datetime(at, usegmt=True))


def _half_a_head(form: Form, model: str, streams: bool) -> Reply:
    return Reply(HEADLESS, chunks=(b"HTTP/1.1 2",), end="reset")


def _silent(form: Form, model: str, streams: bool) -> Reply:
    return Reply(delays_s=(HOURS_S,), chunks=(b"too late",))


def _page(status: int) -> Make:
    return lambda form, model, streams: Reply(status, HTML, (PAGE,))


def _head_only(form: Form, model: str, streams: bool) -> Reply:
    headers = (form.stream_header,) if streams else ()
    return Reply(headers=headers, content_length=100, head_first=True, end="reset")


def _broken_off(end: End) -> Make:
    """Send half a body, or what opens a stream, and then end the socket like that."""

    def make(form: Form, model: str, streams: bool) -> Reply:
        if streams:
            return _stream(form, _opening(form, model), end)
        raw = json.dumps(form.whole(model, PIECES)).encode()
        return replace(_body(raw[: len(raw) // 2]), content_length=len(raw), end=end)

    return make


def _cut_chunked(form: Form, model: str, streams: bool) -> Reply:
    """The last chunk never comes."""
    if streams:
        return _stream(form, _opening(form, model), "eof_no_terminator")
    raw = json.dumps(form.whole(model, PIECES)).encode()
    return replace(_body(raw), framing="chunked", end="eof_no_terminator")


def _short_length(form: Form, model: str, streams: bool) -> Reply:
    """Everything was sent, and less than was announced: nobody can know."""
    if streams:
        raw, headers = b"".join(_opening(form, model)), (form.stream_header,)
    else:
        raw, headers = json.dumps(form.whole(model, PIECES)).encode(), ()
    return Reply(
        headers=headers, chunks=(raw,), content_length=len(raw) + 9, end="eof_no_terminator"
    )


def _damaged(tail: bytes) -> Make:
    """Compress the beginning of an answer, and then send `tail`."""

    def make(form: Form, model: str, streams: bool) -> Reply:
        if streams:
            return _squeezed(b"".join(_opening(form, model)), tail, (form.stream_header,))
        return _squeezed(json.dumps(form.whole(model, PIECES)).encode(), tail, ())

    return make


def _half_json(form: Form, model: str, streams: bool) -> Reply:
    if streams:
        return _stream(form, (*_opening(form, model), form.half))
    raw = json.dumps(form.whole(model, PIECES)).encode()
    return _body(raw[: len(raw) // 2])


def _error_inside(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, (form.error_event,)) if streams else json_reply(form.error(500, ""))


def _error_body_for_stream(form: Form, model: str, streams: bool) -> Reply:
    return json_reply(form.error(500, ""))


def _error_after_opening(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, (*_opening(form, model), form.error_event))


def _opening_only(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, _opening(form, model))


def _end_only(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, (form.last,))


def _nothing(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, ()) if streams else _body(b"")


# --- after content --------------------------------------------------------------------------------


def _shown(end: End) -> Make:
    """Send a stream's opening and its first content, and end the socket like that."""
    return lambda form, model, streams: _stream(form, _begun(form, model), end)


def _shown_and_half_a_frame(form: Form, model: str, streams: bool) -> Reply:
    frame = form.streamed(model, PIECES).content[1]
    return _stream(form, (*_begun(form, model), frame[: len(frame) // 2]), "reset")


def _shown_and_error(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, (*_begun(form, model), form.error_event))


def _shown_and_damaged(form: Form, model: str, streams: bool) -> Reply:
    return _squeezed(b"".join(_begun(form, model)), b"\xff" * 64, (form.stream_header,))


def _begun(form: Form, model: str) -> tuple[bytes, ...]:
    return (*_opening(form, model), form.streamed(model, PIECES).content[0])


def _shown_and_half_an_event(form: Form, model: str, streams: bool) -> Reply:
    return _stream(form, (*_begun(form, model), form.half))


def _opening(form: Form, model: str) -> tuple[bytes, ...]:
    return form.streamed(model, PIECES).opening


def _stream(form: Form, frames: tuple[bytes, ...], end: End = "ok") -> Reply:
    # All in one write would be all in one read: what was shown before the fault is to be shown.
    delays_s = (0.0,) * (len(frames) - 1)
    return Reply(
        headers=(form.stream_header,),
        chunks=frames,
        framing="chunked",
        delays_s=delays_s,
        end=end,
    )


def _body(raw: bytes) -> Reply:
    return Reply(headers=((b"content-type", b"application/json"),), chunks=(raw,))


def _squeezed(raw: bytes, tail: bytes, headers: tuple[Pair, ...]) -> Reply:
    deflate = zlib.compressobj(wbits=31)
    sent = deflate.compress(raw) + deflate.flush(zlib.Z_SYNC_FLUSH)
    chunks = (sent, tail) if tail else (sent,)
    gzip = (b"content-encoding", b"gzip")
    return Reply(headers=(*headers, gzip), chunks=chunks, framing="chunked")


REFUSED_AS = "upstream_refused"
NOBODY = "upstream_unreachable"
CUT = "upstream_cut"
LATE = "upstream_timeout"
NO_ANSWER = "incomplete_answer"
BROKEN = "upstream_protocol"

UNSEEN: tuple[Fault, ...] = (
    Fault("429-seconds", _status(429, retry_after="1"), 429, REFUSED_AS, 429, has_words=True),
    Fault("429-date", _at_date, 429, REFUSED_AS, 429, has_words=True, is_own_form_only=True),
    Fault("429-ms", _status(429, retry_after_ms="400"), 429, REFUSED_AS, 429, has_words=True,
          is_own_form_only=True),
    Fault("429-body", _in_body, 429, REFUSED_AS, 429, has_words=True, forms=("gemini",),
          is_telling=True),
    Fault("408", _status(408), 408, REFUSED_AS, 408, has_words=True, is_own_form_only=True),
    Fault("500", _status(500), 500, REFUSED_AS, 500, has_words=True, is_own_form_only=True),
    Fault("503", _status(503), 503, REFUSED_AS, 503, has_words=True, is_telling=True),
    Fault("529", _status(529), 529, REFUSED_AS, 529, has_words=True),
    Fault("html-502", _page(502), 502, REFUSED_AS, 502),
    Fault("html-200", _page(200), 200, NO_ANSWER, 502),
    Fault("reset-in-head", _half_a_head, None, CUT, 502),
    Fault("reset-after-head", _head_only, 200, CUT, 502),
    Fault("reset-midway", _broken_off("reset"), 200, CUT, 502, is_telling=True),
    Fault("hang-before-head", _silent, None, LATE, 504, is_slow=True),
    Fault("hang-midway", _broken_off("stall"), 200, LATE, 504, is_slow=True),
    Fault("short-length", _short_length, 200, CUT, 502, is_own_form_only=True),
    Fault("cut-chunked", _cut_chunked, 200, CUT, 502),
    Fault("damaged-gzip", _damaged(b"\xff" * 64), 200, BROKEN, 502),
    Fault("cut-gzip", _damaged(b""), 200, CUT, 502, is_own_form_only=True),
    Fault("half-json", _half_json, 200, NO_ANSWER, 502, streams=(False,), is_telling=True),
    Fault("half-a-json-event", _half_json, 200, REFUSED_AS, 502, streams=(True,), is_telling=True),
    Fault("error-inside", _error_inside, 200, REFUSED_AS, 500, has_words=True, is_telling=True),
    Fault("error-body", _error_body_for_stream, 200, REFUSED_AS, 500, streams=(True,),
          has_words=True),
    Fault("error-after-opening", _error_after_opening, 200, REFUSED_AS, 500, streams=(True,),
          has_words=True),
    Fault("opening-only", _opening_only, 200, NO_ANSWER, 502, streams=(True,)),
    Fault("end-only", _end_only, 200, NO_ANSWER, 502, streams=(True,),
          forms=("chat", "messages")),
    Fault("nothing", _nothing, 200, NO_ANSWER, 502),
)  # fmt: skip

# It stays so, which is why the target that refuses never answers later, as the others do.
REFUSES = Fault("refuses", lambda form, model, streams: UNANSWERED, None, NOBODY, 502,
                is_refused=True, is_telling=True)  # fmt: skip

SEEN: tuple[Fault, ...] = tuple(
    Fault(name, make, 200, code, 200, is_slow=is_slow, is_seen=True, streams=(True,),
          is_telling=name in ("shown-reset", "shown-hang", "shown-end", "shown-error"))
    for name, make, code, is_slow in (
        ("shown-reset", _shown("reset"), CUT, False),
        ("shown-half-a-frame", _shown_and_half_a_frame, CUT, False),
        ("shown-hang", _shown("stall"), LATE, True),
        ("shown-cut-chunked", _shown("eof_no_terminator"), CUT, False),
        ("shown-end", _shown("ok"), NO_ANSWER, False),
        ("shown-half-json", _shown_and_half_an_event, REFUSED_AS, False),
        ("shown-error", _shown_and_error, REFUSED_AS, False),
        ("shown-damaged-gzip", _shown_and_damaged, BROKEN, False),
    )
)  # fmt: skip


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Row:
    """One fault played once: in which plan, for whose call, at whose target."""

    plan: str
    caller: Form
    target: Form
    fault: Fault
    streams: bool
    has_session: bool = True

    @property
    def name(self) -> str:
        """Its own session, and the model it asks for: what upstreams tell rows apart by."""
        kind = "stream" if self.streams else "whole"
        plan = self.plan if self.has_session else f"{self.plan}-unrecorded"
        return f"{plan}-{self.caller.name}-{self.target.name}-{self.fault.name}-{kind}"

    @property
    def first(self) -> Form:
        """The form of the target that is asked first: in the plan `fallback` it is the caller's."""
        return self.caller if self.plan == "fallback" else self.target

    @property
    def first_provider(self) -> str:
        """The provider that is asked first: the endpoint's own, where it will do."""
        if self.fault.is_refused:
            return f"{self.first.name}0"
        return self.caller.own if self.first is self.caller else f"{self.first.name}1"

    @property
    def model(self) -> str:
        """What the client calls the model of the first target."""
        is_own = self.first_provider == self.caller.own
        return self.name if is_own or self.path_prefix else f"{self.first_provider}/{self.name}"

    @property
    def path_prefix(self) -> str:
        """What the client's path begins with, where its model can name no provider."""
        is_own = self.first_provider == self.caller.own
        return "" if is_own or self.caller is not GEMINI else f"/p/{self.first_provider}"

    @property
    def answered(self) -> int:
        """The status that the client gets when nothing else is left."""
        is_inside = self.fault.status == 200 and self.fault.answered == 500
        return self.first.error_status if is_inside else self.fault.answered


def rows_of(plan: str, faults: tuple[Fault, ...], *, has_session: bool = True) -> list[Row]:
    """Return the rows of a plan for all pairs of forms; without a session, for some: the way to a
    target is the same, only who reads the answer is another."""
    pairs = (*PAIRS, *FURTHER) if has_session else PAIRS[:5]
    rows = [
        Row(plan, caller, target, fault, streams, has_session)
        for caller, target in pairs
        for fault in faults
        for streams in fault.streams
        if caller is target or not fault.is_own_form_only
        if (caller, target) in PAIRS or _is_for_further(plan, fault, is_own=caller is target)
    ]
    return [row for row in rows if row.first.name in row.fault.forms]


def _is_for_further(plan: str, fault: Fault, *, is_own: bool) -> bool:
    """Whether the further pairs play a fault in a plan: each once, and again what a form tells in
    its own way. Of two targets the first decides what is told, and that is proven already."""
    if plan == "retry" or not fault.is_telling:
        return plan == "retry"
    return is_own or plan in ("alone", "shown") or (plan == "fallback" and fault.name == "503")
