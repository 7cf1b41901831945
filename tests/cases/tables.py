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


_DASHBOARD = "later: dashboard"
_SECURITY = "later: tokens, redaction and origin checks"
_PACKAGING = "later: dashboard in the package"

LATER: dict[str, Settled] = {
    "086-http-model-slash-colon": Settled(_DASHBOARD, drop=("expect.dashboard",)),
    "140-key-tenant-and-auth": _whole(_SECURITY),
    "141-storage-session-id-odd": Settled(
        _DASHBOARD,
        drop=("client.then.1", "expect.dashboard"),
        put={"expect.step.opens_by_escaped_name": True},
    ),
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
NO_HEARTBEAT = "none once the stream has begun"

DIFFERS: dict[str, Settled] = {
    "006-sse-ids-and-own-keepalive": Settled(
        "within a stream that has begun all bytes are the upstream's, its silences too; what the "
        "heartbeat of a stream that has not begun looks like is checked in the case of the head",
        drop=("client.note",),
        put={
            "client.setup.heartbeat_s": 5,
            "expect.client.own_heartbeat": NO_HEARTBEAT,
            "expect.client.bytes_same_as_upstream": True,
        },
    ),
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
    "051-chat-200-error-body": Settled(
        "an attempt has the status that HTTP had, and the words of the error; both attempts are on "
        "record, the one that was answered too",
        put={
            "expect.step.attempts": [
                {
                    "to": "primary", "status": 200, "ok": False, "error_code": "upstream_refused",
                    "error_contains": "Provider returned error",
                },
                {"to": "fallback", "status": 200, "ok": True, "error": None},
            ],
        },
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
    "119-tr-stop-reason-refusal": Settled(
        "an answer is on record as its client got it, with the reason of the client's own form; "
        "the upstream's own word is on the attempt, among what could not be said",
        drop=("expect.step.raw_stop_reason",),
        put={"expect.step.finish_reason": "content_filter"},
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
        _AS_IT_IS_AND_GUARDED + "; with nothing left to try, so that the role is let out alone",
        put={
            "client.setup.retries": 0,
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
    "065-http-gzip-sse-corrupt": Settled(
        "it has one reply for a call that fails",
        put={"client.setup.retries": 0},
    ),
    "084-http-sse-not-buffered": Settled(
        "with something left to try, what comes before the first content goes out with it",
        put={"client.matrix.retries": [0, 2], "client.setup.retries": "{{retries}}"},
    ),
    "085-http-sse-head-not-withheld": Settled(
        "there is time for heartbeats in less than seventy seconds; and what they look like",
        put={
            "upstream.0.delays_ms.0": 40_000,
            "expect.client.own_heartbeat": (
                "comment line with no blank line after it (': ping\\n'), or blank line only when "
                "the stream carries no id: field"
            ),
        },
    ),
    "092-retry-after-ms": Settled(
        "the two headers lie so far apart that a busy machine does not mistake one for the other",
        put={"upstream.0.headers.retry-after": "20"},
    ),
    "126-resp-stream-no-terminal": Settled(
        _AS_IT_IS_AND_GUARDED + "; then the whole answer to the client's retry is held: nobody saw "
        "the first one, so with something left to try it would be asked for again at once",
        put={
            "client.setup.retries": 0,
            "client.matrix.sensitive": [[], ["delete_rows"]],
            "client.setup.sensitive_tools": "{{sensitive}}",
            "client.then.0.action": "approve",
        },
    ),
    "127-resp-incomplete-failed": Settled(
        "it has one reply for a call that fails, and that is to be passed on",
        put={"client.setup.retries": 0},
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
    "006-sse-ids-and-own-keepalive": 0.1,
    "034-tool-arguments-before-name": _HELD,
    "038-tool-bigint-arguments": _HELD,
    "078-http-keepalive-race": 0.1,
    "085-http-sse-head-not-withheld": 0.1,
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
