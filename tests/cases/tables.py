"""What the suite does otherwise than a case file says, each with its reason.

Four tables by case id. `LATER` is what the product does not do yet: the row goes when it does.
`DIFFERS` is what the design settles in another way. `SET_UP` is what a case takes for granted or
says only in words, and needs to be played. `SCALE` shortens the waits of a case in which the length
has no meaning. A row takes parts out (`drop`, dotted paths, "*" is the whole case) and
puts others in (`put`), so that what can be checked in the meantime is. A path that is not in the
file is an error: rows cannot go stale.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Settled:
    """One row."""

    reason: str
    drop: tuple[str, ...] = ()  # in this order, so of a list the last item first
    put: Mapping[str, Any] = field(default_factory=dict)


def _whole(reason: str) -> Settled:
    return Settled(reason, drop=("*",))


_RETRY = "later: retry"
_FALLBACK = "later: fallback"
_EXPORT = "later: export"
_DASHBOARD = "later: dashboard"
_TRANSLATION = "later: translation between dialects"
_SECURITY = "later: tokens, redaction and origin checks"
_HEARTBEAT = "later: heartbeats while nothing comes"
_PACKAGING = "later: dashboard in the package"

LATER: dict[str, Settled] = {
    "006-sse-ids-and-own-keepalive": Settled(
        _HEARTBEAT, drop=("client.note", "expect.client.own_heartbeat")
    ),
    "017-sse-done-only": Settled(
        _FALLBACK,
        drop=(
            "client.setup.fallback", "upstream.1", "expect.client.text",
            "expect.client.finish_reason", "expect.step.served_by",
        ),
        put={
            "expect.client.status": 502,
            "expect.client.error.shape": "OpenAI error JSON",
            "expect.upstream.calls": 1,
            "expect.step.status": "failed",
        },
    ),
    "025-error-after-content-in-200-stream": Settled(_FALLBACK, drop=("client.setup.fallback",)),
    "026-anthropic-overloaded-in-200-stream": Settled(
        _FALLBACK + "; with nothing left to try, the head goes out at the first event",
        drop=(
            "client.setup.fallback", "upstream.1", "expect.client.status_any_of",
            "expect.client.no_event_before_error", "expect.upstream.calls",
        ),
        put={"expect.client.status": 200, "expect.upstream.calls": 1},
    ),
    "045-chat-nan-infinity-json": Settled(_EXPORT, drop=("expect.export",)),
    "046-chat-refusal-stream": Settled(_EXPORT, drop=("expect.export",)),
    "050-chat-finish-reason-variants": Settled(_EXPORT, drop=("expect.export",)),
    "051-chat-200-error-body": Settled(
        _FALLBACK,
        drop=(
            "client.setup.fallback", "upstream.1", "expect.client.text", "expect.step.served_by",
            "expect.step.attempts",
        ),
        put={
            "expect.client.status": 502,
            "expect.client.error.message_contains": "Provider returned error",
            "expect.upstream.calls": 1,
            "expect.step.status": "failed",
        },
    ),
    "052-chat-200-all-null": Settled(
        _RETRY,
        drop=("client.setup.retries", "upstream.1", "expect.client.text"),
        put={
            "expect.client.status": 502,
            "expect.client.error.shape": "OpenAI error JSON",
            "expect.upstream.calls": 1,
            "expect.step.status": "failed",
        },
    ),
    "074-http-short-body-content-length": Settled(
        _RETRY,
        drop=("client.setup.retries", "upstream.1", "expect.client.text", "expect.step.attempts"),
        put={
            "expect.client.status": 502,
            "expect.client.error.shape": "OpenAI error JSON",
            "expect.upstream.calls": 1,
            "expect.step.status": "failed",
        },
    ),
    "080-http-html-200": Settled(
        _FALLBACK,
        drop=("client.setup.fallback", "upstream.1", "expect.client.text", "expect.step.served_by"),
        put={
            "expect.client.status": 502,
            "expect.client.error.shape": "OpenAI error JSON",
            "expect.upstream.calls": 1,
            "expect.step.status": "failed",
            "expect.step.raw_excerpt_kept": True,
        },
    ),
    "085-http-sse-head-not-withheld": Settled(
        _HEARTBEAT, drop=("client.setup.heartbeat_s", "expect.client.bytes_at_least_every_ms")
    ),
    "086-http-model-slash-colon": Settled(_DASHBOARD, drop=("expect.dashboard",)),
    "090-retry-after-seconds": _whole(_RETRY),
    "092-retry-after-ms": _whole(_RETRY),
    "096-retry-insufficient-quota": _whole(_FALLBACK),
    "098-retry-context-length": _whole(_FALLBACK),
    "099-fallback-smaller-window-masks-error": _whole(_FALLBACK),
    "100-retry-529-overloaded": _whole(_RETRY),
    "105-tr-parallel-tool-results": _whole(_TRANSLATION),
    "106-tr-tool-id-charset": _whole(_TRANSLATION),
    "108-tr-empty-arguments-to-input": _whole(_TRANSLATION),
    "112-tr-cache-control": _whole(_TRANSLATION),
    "113-tr-system-merge-order": _whole(_TRANSLATION),
    "114-tr-image-in-tool-result": _whole(_TRANSLATION),
    "116-tr-stop-sequence-back": _whole(_TRANSLATION),
    "118-tr-json-schema": _whole(_TRANSLATION),
    "119-tr-stop-reason-refusal": _whole(_TRANSLATION),
    "122-tr-refusal-to-anthropic": _whole(_TRANSLATION),
    "123-tr-gemini-schema": _whole(_TRANSLATION),
    "124-tr-ollama-stream-tools": _whole(_TRANSLATION),
    "140-key-tenant-and-auth": _whole(_SECURITY),
    "141-storage-session-id-odd": Settled(
        _DASHBOARD + " and export",
        drop=("client.then.2", "client.then.1", "expect.dashboard", "expect.export"),
        put={"expect.step.opens_by_escaped_name": True},
    ),
    "156-storage-lone-surrogate": Settled(_EXPORT, drop=("expect.export",)),
    "160-export-line-separators": _whole(_EXPORT),
    "161-export-tool-calls": _whole(_EXPORT),
    "163-dash-stored-xss": _whole(_DASHBOARD),
    "164-sec-secrets-not-stored": Settled(
        _SECURITY,
        drop=("expect.also",),
    ),
    "166-pkg-wheel-has-assets": _whole(_PACKAGING),
}  # fmt: skip

_NO_ANSWER = (
    "what is no complete answer must not end like one: its frames go out as they came, but in "
    "place of `[DONE]` the client gets an error event, so that it asks again"
)
DISK_FULL = "full"
DISK_FILLS = "fills once the call is upstream"
IF_AN_ANSWER = "if it is an answer; else up to its end, and then an error"

DIFFERS: dict[str, Settled] = {
    "016-sse-done-without-finish": Settled(
        _NO_ANSWER, put={"expect.client.bytes_same_as_upstream": IF_AN_ANSWER}
    ),
    "021-azure-prompt-filter-first-chunk": Settled(
        "every endpoint is below /v1: an Azure client sets its base URL there, so the query and "
        "the odd first chunk are what is left of the case",
        put={"client.path": "/v1/chat/completions?api-version=2024-10-21"},
    ),
    "050-chat-finish-reason-variants": Settled(
        _NO_ANSWER, put={"expect.client.bytes_same_as_upstream": IF_AN_ANSWER}
    ),
    "061-http-br-response": Settled(
        "upstream is offered gzip and identity only, and one that heeds that does not send br; the "
        "client's own offer does not travel",
        put={
            "upstream.0.headers": {"content-type": "application/json"},
            "upstream.0.body_raw": (
                '{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,'
                '"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}'
            ),
            "expect.upstream.encodings_offered": ["gzip", "identity"],
        },
    ),
    "141-storage-session-id-odd": Settled(
        "a blank value is no header value once its white space is off (RFC 9110 section 5.5): 400",
        drop=("client.matrix.session.10",),
    ),
    "142-hitl-one-of-parallel": Settled(
        "a rejection that stops is an error, here as an event, since the stream has begun; the "
        "completion that the case wants is what a rejection that goes on leads to",
        put={"client.then.0.then": "continue"},
    ),
    "147-hitl-fails-closed": Settled(
        "a file that takes no writes is played as a full disk, once from the beginning and once "
        "from when the call has gone upstream, so that its answer and its question cannot be "
        "written",
        drop=("client.setup.sqlite",),
        put={
            "client.matrix.disk": [DISK_FULL, DISK_FILLS],
            "client.setup.disk": "{{disk}}",
        },
    ),
    "158-storage-disk-full": Settled(
        "`store.on_failure = refuse`: on a full disk the claim fails, 503, before anything is "
        "paid; that it fills between claim and answer is in tests/e2e/test_disk.py",
        drop=(
            "client.setup.sqlite", "expect.client.text", "expect.client.headers", "expect.health",
            "expect.approval", "expect.step",
        ),
        put={
            "client.setup.disk": DISK_FULL,
            "expect.client.status": 503,
            "expect.client.error.code": "store_unavailable",
            "expect.upstream.calls": 0,
        },
    ),
}  # fmt: skip

_AS_IT_IS_AND_GUARDED = "the case is played as it is, and once more with its tool guarded"
_APPROVED = [{"action": "approve"}]

SET_UP: dict[str, Settled] = {
    "034-tool-arguments-before-name": Settled(
        _AS_IT_IS_AND_GUARDED,
        put={
            "client.matrix.sensitive": [[], ["get_weather"]],
            "client.setup.sensitive_tools": "{{sensitive}}",
            "client.then": _APPROVED,
        },
    ),
    "038-tool-bigint-arguments": Settled(
        _AS_IT_IS_AND_GUARDED,
        put={
            "client.matrix.sensitive": [[], ["delete_rows"]],
            "client.setup.sensitive_tools": "{{sensitive}}",
            "client.then": _APPROVED,
        },
    ),
    "126-resp-stream-no-terminal": Settled(
        _AS_IT_IS_AND_GUARDED + "; then the whole answer to the retry is held",
        put={
            "client.matrix.sensitive": [[], ["delete_rows"]],
            "client.setup.sensitive_tools": "{{sensitive}}",
            "client.then.0.action": "approve",
        },
    ),
    "148-hitl-gate-name-tricks": Settled(
        "in the end it is approved, so that what was held back is seen to come",
        put={"client.then": _APPROVED, "expect.client.bytes_same_as_upstream": True},
    ),
    "149-hitl-approved-args-bound": Settled(
        "the sentence speaks of arguments that were approved and of ones that were edited",
        put={
            "client.matrix.decision": [
                {"action": "approve"},
                {"action": "approve_with_edited_args", "args": '{"table":"tmp"}'},
            ],
            "client.then": ["{{decision}}"],
        },
    ),
    "165-sec-dns-rebinding-csrf": Settled(
        "each value of the matrix is a Host and an Origin; and there has to be a call on hold",
        put={
            "client.headers.host": "{{host_origin.0}}",
            "client.headers.origin": "{{host_origin.1}}",
            "client.setup.sensitive_tools": ["delete_rows"],
        },
    ),
}

_HELD = 0.02  # a heartbeat each 0.2 s: the play waits for two

SCALE: dict[str, float] = {
    "004-sse-comment-keepalive": 0.05,
    "006-sse-ids-and-own-keepalive": 0.005,
    "034-tool-arguments-before-name": _HELD,
    "038-tool-bigint-arguments": _HELD,
    "078-http-keepalive-race": 0.1,
    "085-http-sse-head-not-withheld": 0.005,
    "088-http-client-disconnect-nonstream": 0.2,
    "089-http-slow-client": 0.1,
    "104-timeout-between-chunks": 0.25,
    "126-resp-stream-no-terminal": _HELD,
    "129-resp-hold-tool": _HELD,
    "131-key-partial-after-client-abort": 0.5,
    "132-key-concurrent-identical": 0.4,
    "133-key-leader-disconnects": 0.4,
    "142-hitl-one-of-parallel": _HELD,
    "143-hitl-withheld-stream-silence": 0.1,
    "146-hitl-restart-while-pending": _HELD,
    "148-hitl-gate-name-tricks": _HELD,
    "149-hitl-approved-args-bound": _HELD,
}
