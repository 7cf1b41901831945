"""Who calls, which step they say it is, and the keys their request is found by.

Pure functions on headers and bodies. The counterpart is `replay.py`, which looks the keys up. The
one invariant: two requests get the same fingerprint only if an upstream could not tell them apart
in anything that changes an answer.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, cast

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.approvals import Then
from agentstate.ground.canonical import JSON, canonical, digest
from agentstate.ground.control import About
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.records import Identity, Part, RequestRecord
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor
from agentstate.ground.settings import ReplaySettings
from agentstate.steps.about import check_name, parse_tags, without_secrets
from agentstate.steps.caps import HEADER as BUDGET_HEADER
from agentstate.steps.caps import parse_budget
from agentstate.wire.message import Headers

ReplayMode = Literal["pinned", "exact", "refresh", "off"]

# A name has to fit a URL, a log line and a list; four times a UUID pair leaves room for any scheme.
SESSION_CHARS_MAX = 512
# Ids of runs and calls are UUIDs or the like; longer ones are a mistake.
ID_CHARS_MAX = 256
# SQLite's integers end at 2^63; a number over this is a time stamp in nanoseconds, not a step.
STEP_NUMBER_MAX = 2**53 - 1

PROMPT_CHARS_MAX = 200  # kept on the step for lists; the whole is in the request
PROMPT_READ_CHARS_MAX = 2_000  # of it; a secret that begins in what is kept has ended there

# The first one present names the session. Aliases are what other tools already send.
SESSION_HEADERS = (
    b"x-agent-session-id",
    b"x-claude-code-session-id",
    b"session-id",
    b"helicone-session-id",
    b"x-litellm-trace-id",
    b"x-session-id",
)
# What it is called, which session began it, and its tags.
ABOUT_HEADERS = (b"x-agent-session-name", b"x-agent-parent-session", b"x-agent-tags")


@dataclass(frozen=True, slots=True)
class Caller:
    """What a call says about itself."""

    session: str
    step_number: int | None  # None = the caller did not say
    run_id: str | None
    call_id: str | None
    is_retry: bool  # the client's own retry of a call it made before
    replay: ReplayMode
    cancels_on_disconnect: bool
    requires_approval: bool = False  # a person is to decide before the request goes upstream
    on_reject: Then | None = None  # what follows a rejection; None = as the setting says
    hold_timeout_s: float | None = None  # how long it waits for a decision; None = as set, 0 = any
    about: About | None = None  # what it says of its session; None = nothing

    def deadline_ms(self, timeout_s: float, at_ms: int) -> int | None:
        """Return until when a question that it asks then can be decided; None = for ever."""
        if self.hold_timeout_s is not None:
            timeout_s = self.hold_timeout_s
        return at_ms + int(timeout_s * 1000) if timeout_s else None


@dataclass(frozen=True, slots=True)
class Scope:
    """What counts for the fingerprint besides the body."""

    dialect: str
    path: str  # below the base, so that /s/{id}/v1 and /v1 are the same
    query: str  # as sent, without a key in it
    provider: str  # named by the caller in the URL; '' = not named
    headers: tuple[bytes, ...]  # values of the dialect's counted headers, b'' where absent

    def key(self) -> bytes:
        """Render as bytes that no other scope renders to."""
        return digest(
            self.dialect.encode(),
            self.path.encode(),
            self.query.encode(),
            self.provider.encode(),
            *self.headers,
        )


@dataclass(frozen=True, slots=True)
class Sought:
    """A call as it is looked for in the record."""

    dialect: Dialect
    caller: Caller
    identity: Identity
    ask: Ask
    chain: tuple[bytes, ...]  # digests of its messages
    goes_to_mock: bool
    redactor: Redactor = NOTHING_KNOWN  # what is on record is compared with what it leaves


def read_caller(
    headers: Headers,
    url_session: str | None,
    settings: ReplaySettings,
    redactor: Redactor = NOTHING_KNOWN,
) -> Caller | None:
    """Read who calls; None if the call names no session, so goes through unrecorded.

    `redactor` knows the caller's keys: what is kept of it has none.

    Raises:
        BadRequest: an empty or overlong session id, an odd step number, an unknown replay mode,
            names, tags or caps that cannot be; an id that is a key.
    """
    session = _read_session(headers, url_session)
    if session is None:
        if _read_require_approval(headers):
            raise BadRequest(
                "x-agent-require-approval asks that a person approves this call first, and only "
                "calls of a session can be held. Name one with x-agent-session-id.",
                param="x-agent-require-approval",
            )
        return None
    call_id = _read_id(headers, b"x-agent-call-id") or _read_id(headers, b"idempotency-key")
    caller = Caller(
        session=session,
        step_number=_read_step_number(headers),
        run_id=_read_id(headers, b"x-agent-run-id") or settings.run_id,
        call_id=call_id,
        is_retry=(headers.get(b"x-stainless-retry-count") or b"0") not in (b"0", b""),
        replay=_read_replay(headers, settings),
        cancels_on_disconnect=_read_on_disconnect(headers),
        requires_approval=_read_require_approval(headers),
        on_reject=_read_on_reject(headers),
        hold_timeout_s=_read_hold_timeout(headers),
        about=_read_about(headers, session),
    )
    return _without_keys(caller, redactor)


def _without_keys(caller: Caller, redactor: Redactor) -> Caller:
    """Return who calls as it may be kept.

    Raises:
        BadRequest: an id is a key, or holds one. What is found by its name cannot be masked.
    """
    for value, header in (
        (caller.session, "x-agent-session-id"),
        (caller.run_id, "x-agent-run-id"),
        (caller.call_id, "x-agent-call-id"),
    ):
        if value is not None and redactor.text_without_keys(value) != value:
            raise BadRequest(
                f"{header} holds an API key or a token, and ids are written down and shown. Choose "
                "another id; a digest of the key will do.",
                param=header,
            )
    if caller.about is None:
        return caller
    return replace(caller, about=without_secrets(caller.about, redactor))


def check_session(name: str, source: str) -> str:
    """Return a session id that is safe in URLs, logs and file names, or raise `BadRequest`."""
    if not name:
        raise BadRequest(f"{source} is empty; send a session id of 1 to {SESSION_CHARS_MAX} "
                         "characters, or leave it out.", param=source)  # fmt: skip
    if len(name) > SESSION_CHARS_MAX:
        raise BadRequest(
            f"{source} has {len(name)} characters; a session id has at most {SESSION_CHARS_MAX}.",
            param=source,
        )
    if name in (".", ".."):
        # Every URL library takes these for steps in the path, escaped or not.
        raise BadRequest(f"{source} is {name!r}, which no URL can name; choose another id.",
                         param=source)  # fmt: skip
    if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000 for char in name):
        raise BadRequest(f"{source} holds control characters: {shorten(repr(name))}.", param=source)
    return name


def read_scope(
    dialect: Dialect, path: str, query: str, provider: str | None, headers: Headers
) -> Scope:
    """Collect what counts besides the body."""
    # Google's clients may send their key in the query, and the form of the answer: neither who asks
    # nor how it is shown changes what it says.
    counted_query = "&".join(
        each for each in query.split("&") if not each.startswith(("key=", "alt="))
    )
    counted = tuple(b",".join(headers.all(name)) for name in dialect.counted_headers)
    return Scope(dialect.name, path, counted_query, provider or "", counted)


def raw_key(scope: Scope, raw: bytes) -> bytes:
    """Return the key of the exact bytes: found without parsing anything."""
    return hashlib.sha256(scope.key() + raw).digest()


def identify(
    dialect: Dialect, scope: Scope, raw: bytes, ask: Ask, mask: Callable[[str], str]
) -> tuple[Identity, RequestRecord]:
    """Compute the keys of a request and split its body for the store.

    `mask` takes clocks (and what else may drift) out of a system text; see `drift.py`.
    """
    parts: list[Part] = []
    pinned: list[bytes] = []
    masked: list[bytes] = []
    for message in ask.messages:
        whole = message_digest(message)
        parts.append(Part(whole, message))
        blank = dialect.tool_result_blank(message)
        calm = hashlib.sha256(canonical(blank)).digest() if blank is not None else whole
        pinned.append(calm)
        still = dialect.masked(message, mask)
        masked.append(hashlib.sha256(canonical(still)).digest() if still is not None else calm)

    # The raw key keeps the whole path: it is looked up before anybody knows what counts of it.
    scope_key = (replace(scope, path=ask.counted_path) if ask.counted_path else scope).key()
    envelope = canonical(cast(JSON, ask.envelope))
    masked_fields = dialect.mask_envelope(ask.envelope, mask)
    still_envelope = envelope if masked_fields is None else canonical(cast(JSON, masked_fields))
    chain = b"".join(part.digest for part in parts)
    identity = Identity(
        raw=raw_key(scope, raw),
        exact=digest(scope_key, envelope, chain),
        pinned=digest(scope_key, envelope, b"".join(pinned)),
        masked=digest(scope_key, still_envelope, b"".join(masked)),
    )
    return identity, split_body(dialect, ask, tuple(parts))


def message_digest(message: JSON) -> bytes:
    """Return what names one message of a conversation."""
    return hashlib.sha256(canonical(message)).digest()


def last_prompt(messages: tuple[JSON, ...], redactor: Redactor = NOTHING_KNOWN) -> str:
    """Return the beginning of the last user message that has text, without secrets; '' if there is
    none."""
    for message in reversed(messages):
        if not isinstance(message, dict) or message.get("role") != "user":
            continue
        # Anthropic's tool results are user messages too: nobody says anything in them.
        if text := _text_of(message.get("content", message.get("parts"))):
            # Cleared before it is cut: the beginning of a key is a secret too.
            return redactor.text(text[:PROMPT_READ_CHARS_MAX])[:PROMPT_CHARS_MAX]
    return ""


def _text_of(content: JSON) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str))
    return ""


def split_body(dialect: Dialect, ask: Ask, parts: tuple[Part, ...]) -> RequestRecord:
    """Split a request for the store; `parts` are its messages, named."""
    envelope: dict[str, JSON] = {}
    shared: list[tuple[str, Part]] = []
    if not isinstance(ask.body.get(dialect.list_key), list):
        parts = ()  # a text that stands for one message: it stays as it was sent
    for key, value in ask.body.items():
        if key == dialect.list_key and parts:
            envelope[key] = None  # keeps its place in the order of keys
        elif key in dialect.shared_keys and value:
            envelope[key] = None
            shared.append((key, Part(hashlib.sha256(canonical(value)).digest(), value)))
        else:
            envelope[key] = value
    return RequestRecord(
        envelope=envelope,
        shared=tuple(shared),
        list_key=dialect.list_key if parts else "",
        chain=parts,
    )


def _read_session(headers: Headers, url_session: str | None) -> str | None:
    if (own := headers.get(SESSION_HEADERS[0])) is not None:
        return check_session(_decode(own, SESSION_HEADERS[0]), "x-agent-session-id")
    if url_session is not None:
        return check_session(url_session, "The session in the URL")
    for name in SESSION_HEADERS[1:]:
        # An empty alias is another tool's habit, not a wish to be recorded.
        if value := headers.get(name):
            return check_session(_decode(value, name), name.decode())
    return None


def _read_about(headers: Headers, session: str) -> About | None:
    name, parent, tags = (headers.get(each) for each in ABOUT_HEADERS)
    budget = headers.get(BUDGET_HEADER)
    if not (name or parent or tags or budget):
        return None
    source = [each.decode() for each in ABOUT_HEADERS]
    begun_by = check_session(_decode(parent, ABOUT_HEADERS[1]), source[1]) if parent else None
    if begun_by == session:
        raise BadRequest(f"{source[1]} names the session itself.", param=source[1])
    return About(
        name=(check_name(_decode(name, ABOUT_HEADERS[0]), source[0]) or None) if name else None,
        parent=begun_by,
        tags=parse_tags(_decode(tags, ABOUT_HEADERS[2]), source[2]) if tags else (),
        budget=parse_budget(_decode(budget, BUDGET_HEADER), BUDGET_HEADER.decode())
        if budget
        else None,
    )


def _decode(value: bytes, name: bytes) -> str:
    try:
        return value.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"The header {name.decode()} must be UTF-8; byte {error.start} is not.",
            param=name.decode(),
        ) from error


def _read_id(headers: Headers, name: bytes) -> str | None:
    value = headers.get(name)
    if not value:
        return None
    text = _decode(value, name)
    if len(text) > ID_CHARS_MAX:
        raise BadRequest(
            f"{name.decode()} has {len(text)} characters; at most {ID_CHARS_MAX} are taken.",
            param=name.decode(),
        )
    return text or None


def _read_step_number(headers: Headers) -> int | None:
    value = headers.get(b"x-agent-step-number")
    if value is None:
        return None
    # isdigit of bytes is ASCII only, so '٣' and '1_0', which int() takes, are refused.
    if value.isdigit() and len(value) <= 16 and int(value) <= STEP_NUMBER_MAX:
        return int(value)
    raise BadRequest(
        "x-agent-step-number must be an integer from 0; found "
        f"{shorten(value.decode('latin-1'))!r}. Leave it out to have the step found by its body.",
        param="x-agent-step-number",
    )


def _read_replay(headers: Headers, settings: ReplaySettings) -> ReplayMode:
    value = headers.text(b"x-agent-replay")
    if value is None:
        return settings.mode
    if value in ("pinned", "exact", "refresh", "off"):
        return cast(ReplayMode, value)
    raise BadRequest(
        f"x-agent-replay must be pinned, exact, refresh or off; found {shorten(value)!r}.",
        param="x-agent-replay",
    )


def _read_require_approval(headers: Headers) -> bool:
    value = (headers.text(b"x-agent-require-approval") or "false").lower()
    if value in ("true", "1", "yes"):
        return True
    if value in ("false", "0", "no"):
        return False
    # Fail closed: who asks for a person in words nobody knows is not answered without one.
    raise BadRequest(
        f"x-agent-require-approval must be true or false; found {shorten(value)!r}.",
        param="x-agent-require-approval",
    )


def _read_on_reject(headers: Headers) -> Then | None:
    value = headers.text(b"x-agent-on-reject")
    if value in (None, "stop", "continue"):
        return cast(Then | None, value)
    raise BadRequest(
        f"x-agent-on-reject must be stop or continue; found {shorten(str(value))!r}.",
        param="x-agent-on-reject",
    )


def _read_hold_timeout(headers: Headers) -> float | None:
    value = headers.text(b"x-agent-hold-timeout")
    if value is None:
        return None
    if re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,3})?", value, re.ASCII):
        return float(value)
    raise BadRequest(
        "x-agent-hold-timeout must be seconds from 0, which is no limit; found "
        f"{shorten(value)!r}.",
        param="x-agent-hold-timeout",
    )


def _read_on_disconnect(headers: Headers) -> bool:
    value = headers.text(b"x-agent-on-disconnect")
    if value in (None, "finish"):
        return False
    if value == "cancel":
        return True
    raise BadRequest(
        f"x-agent-on-disconnect must be finish or cancel; found {shorten(str(value))!r}.",
        param="x-agent-on-disconnect",
    )
