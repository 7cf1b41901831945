"""The checks of what is asked again; `checks.py` has the index of all."""

from __future__ import annotations

from typing import Any

from tests.cases.client_checks import decoded
from tests.cases.playing import Play, sending_of
from tests.cases.staging import reply_of
from tests.helpers.raw_client import Reception
from tests.helpers.reading import is_stream, read_events

STREAM_OF_A_REPLY = (
    "same status, same decoded text/tool calls/finish_reason/usage as first time; "
    "stream stays stream"
)
FETCHED_AGAIN = "the stored step is not complete, so it must be fetched again, never replayed"


def check_replay(playing: Play, wanted: dict[str, Any]) -> None:
    """Check what comes of the same request once more, and of the others a case makes."""
    for key, value in wanted.items():
        match key:
            case "resend_same":
                _check_resend(playing, value)
            case "second":
                assert value == (
                    "SSE with the same events in the same order, content-type "
                    "text/event-stream, [DONE] last"
                )
                check_replayed(playing.later[0], playing.first)
                assert is_stream(playing.later[0].header("content-type"))
            case "third":
                assert value == (
                    "stream flag differs: either 409/mismatch by step rule, or JSON answer; "
                    "never SSE for stream: false"
                )
                _check_other_form(playing, playing.later[1])
            case "hit":
                assert value == "no upstream call"  # checked where it was played
            case "differs":
                assert value == "not answered from the first step"  # likewise
            case _:
                raise AssertionError(f"no check for replay.{key}")


def _check_resend(playing: Play, wanted: dict[str, Any]) -> None:
    then = playing.case.client.get("then", [])
    if any(item.get("same_request") for item in then):
        again, added = playing.later[0], playing.added[0]
    else:
        before = playing.call_count
        playing.upstream.extend([reply_of(playing.case.entries_to("primary")[-1], 0.0)])
        again = playing.ask(playing.sending)
        added = playing.call_count - before
    for key, value in wanted.items():
        match key:
            case "upstream_calls_added":
                assert added == value, f"{added} upstream calls were added"
            case "client":
                check_replayed(again, playing.first)
                assert value in (
                    STREAM_OF_A_REPLY,
                    "same text; ends cleanly (a [DONE] may be added)",
                )
            case "reason":
                assert value == FETCHED_AGAIN
                assert again.header("x-agentstate-cache-hit") != "true"
            case "client_decoded_text":
                assert decoded(again).first.text == value
            case "note":
                assert value == "also when the second client sends no accept-encoding"
                plain = playing.ask(playing.sending.without("accept-encoding"))
                assert plain.header("content-encoding") is None
                assert decoded(plain).first.text == decoded(playing.first).first.text
            case "client_reasoning":
                assert decoded(again).first.reasoning == value
            case "client_contains":
                assert value.encode() in again.body
            case "client_text":
                assert decoded(again).first.text == value
            case "never":
                assert decoded(again).first.text != value
            case "bytes_same_as_upstream":
                assert value
                assert again.body == playing.sent_bytes
            case "client_events_equal_first_time" | "event_names_kept":
                assert value
                events = read_events(playing.first.body)
                assert read_events(again.body) == events
                assert all(event.name != "message" for event in events)
            case _:
                raise AssertionError(f"no check for replay.resend_same.{key}")


def check_replayed(again: Reception, first: Reception) -> None:
    """A replay is the first answer, byte for byte, and says what it is."""
    assert again.ending == "complete"
    assert again.status == first.status
    assert again.header("content-type") == first.header("content-type")
    assert again.body == first.body
    if first.status == 200:
        assert again.header("x-agentstate-cache-hit") == "true"


def _check_other_form(playing: Play, got: Reception) -> None:
    assert got.status == 200
    assert got.header("content-type") == "application/json"
    assert decoded(got).first.text == playing.first_read.first.text
    assert len(playing.upstream.received) == 1


# Not part of the fingerprint, by design: they never change an answer.
_UNCOUNTED = ("prompt_cache_key", "service_tier", "metadata")


def check_cache_key(playing: Play) -> None:
    """Leave out one field after the other: each makes another request, but for the uncounted."""
    body = playing.case.client["body"]
    for name in body.keys() - {"model", "messages"}:
        before = len(playing.upstream.received)
        playing.upstream.extend([reply_of(playing.case.upstream[0], 1.0)])
        other = {key: value for key, value in body.items() if key != name}
        got = playing.ask(sending_of({"body": other}, playing.session, playing.sending))
        assert got.status == 200
        added = len(playing.upstream.received) - before
        assert added == (0 if name in _UNCOUNTED else 1), name
        if added == 0:
            playing.upstream.load([])
