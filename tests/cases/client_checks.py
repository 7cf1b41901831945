"""The checks of what the client saw; `checks.py` has the index of all."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from tests.cases import held
from tests.cases.gate_checks import HELD_CLIENT
from tests.cases.playing import Play
from tests.cases.sentences import Check, same_sentence
from tests.cases.staging import FALLBACK, STAND_IN
from tests.cases.tables import IF_AN_ANSWER, NO_HEARTBEAT
from tests.cases.told import check_client_did_not_wait
from tests.cases.translated_checks import TRANSLATED_CLIENT
from tests.helpers.raw_client import Reception
from tests.helpers.reading import ChatRead, is_stream, read_chat, read_events


def _did_not_wait(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.told is not None, "nobody was told"
    check_client_did_not_wait(playing.told)


def _status(playing: Play, wanted: int) -> None:
    first = playing.first
    assert first.status == wanted, f"{first.status}, {first.ending}: {first.body[:300]!r}"


def _status_any_of(playing: Play, wanted: list[int]) -> None:
    assert playing.first.status in wanted, playing.first.body[:300]


def _never_status(playing: Play, wanted: int | list[int]) -> None:
    assert playing.first.status not in (wanted if isinstance(wanted, list) else [wanted])


def _client_text(playing: Play, wanted: str) -> None:
    assert playing.first_read.first.text == wanted


def _client_finish(playing: Play, wanted: str) -> None:
    assert playing.first_read.first.finish_reason == wanted


def _client_refusal(playing: Play, wanted: str) -> None:
    assert playing.first_read.first.refusal == wanted


def _client_reasoning(playing: Play, wanted: str) -> None:
    assert playing.first_read.first.reasoning == wanted


def _ends_with_done(playing: Play, wanted: bool) -> None:
    assert playing.first_read.done is wanted
    assert not wanted or playing.first.ending == "complete"


def _forwarded_within(playing: Play, within_ms: float) -> None:
    """Each event was let out only after the client had the one before: none can have waited."""
    writes = playing.upstream.received[0].writes
    arrivals = _event_arrivals(playing.first)
    assert len(arrivals) == len(writes)
    late = [a - w for a, w in zip(arrivals, writes, strict=True) if a - w > within_ms / 1000 * 10]
    assert not late, f"events were held back for {late} s"


def _event_arrivals(got: Reception) -> list[float]:
    arrivals: list[float] = []
    body = b""
    for piece in got.pieces:
        body += piece.data
        arrivals += [piece.at_s] * (len(read_events(body)) - len(arrivals))
    return arrivals


def _comments(playing: Play) -> None:
    assert b"data: :" not in playing.first.body


def _no_empty_events(playing: Play, wanted: bool) -> None:
    """As an old client reads it: once an id has come, any blank line dispatches."""
    assert wanted
    for block in re.split(rb"\r\n\r\n|\n\n|\r\r", playing.first.body.strip()):
        assert re.search(rb"^data: ?\S", block, re.MULTILINE), f"an event without data: {block!r}"


def _no_empty_choices(playing: Play, wanted: bool) -> None:
    assert wanted
    assert all(chunk["choices"] for chunk in playing.first_read.chunks)


def _bytes_same(playing: Play, wanted: bool | str) -> None:
    if wanted == IF_AN_ANSWER and playing.step["state"] != "complete":
        *frames, _ = re.split(rb"(?<=\n\n)(?=.)", playing.sent_bytes)
        assert playing.first.body.startswith(b"".join(frames))
        assert not playing.first_read.done
        assert playing.first_read.error is not None or playing.first.ending != "complete"
        return
    assert wanted in (True, IF_AN_ANSWER)
    assert playing.first.body == playing.sent_bytes


def _completes_within(playing: Play, within_ms: float) -> None:
    assert playing.first.ending == "complete"
    assert playing.first.ended_s - playing.first.sent_s < within_ms / 1000


def _client_error(playing: Play, wanted: dict[str, Any]) -> None:
    error = playing.first_read.error
    assert error is not None, f"no error in {playing.first.body[:300]!r}"
    for key, value in wanted.items():
        match key:
            case "message_contains":
                assert value in error["message"], error["message"]
            case "shape":
                assert value == "OpenAI error JSON"
                assert {"message", "type", "param", "code"} <= set(error)
            case "code" | "type":
                assert error[key] == value
            case "lists_all_attempts":
                assert value
                _check_tried(playing, error["message"])
            case _:
                raise AssertionError(f"no check for error.{key}")


def _check_tried(playing: Play, message: str) -> None:
    """Each target is named, with how it ended, to a person and to a program."""
    asked = playing.case.client["body"]["model"]
    firsts = [playing.case.entries_to(name)[0] for name in ("primary", FALLBACK)]
    labels = [f"openai/{asked}", f"{FALLBACK}/{STAND_IN}"]
    for label, entry in zip(labels, firsts, strict=True):
        for said in (message, playing.first.header("x-agentstate-tried") or ""):
            assert f"{label}: {entry['status']}" in said, said


def _message_from(playing: Play) -> None:
    error = playing.first_read.error
    assert error is not None
    words = [entry["body"]["error"]["message"] for entry in playing.case.upstream]
    assert any(error["message"].startswith(said) for said in words), error["message"]


def _no_event_before_error(playing: Play) -> None:
    assert playing.first.header("content-type") == "application/json"
    assert b"message_start" not in playing.first.wire


def _headers_if_429(playing: Play, wanted: dict[str, str]) -> None:
    if playing.first.status == 429:
        _client_headers(playing, dict(wanted))


def _own_heartbeats(playing: Play) -> None:
    body = playing.first.body
    assert held.HEARTBEAT.search(body), "there was none"
    assert held.without_heartbeats(body) == playing.sent_bytes  # so no blank line came with one


def _no_own_heartbeat(playing: Play) -> None:
    """Its silence was long enough for some."""
    case, got = playing.case, playing.first
    heard = [piece.at_s for piece in got.pieces]
    silence_s = max(later - earlier for earlier, later in pairwise(heard))
    assert silence_s > 2 * case.setup["heartbeat_s"] * case.scale
    assert got.body == playing.sent_bytes


_HEARTBEATS: dict[str, Callable[[Play], None]] = {
    "comment line with no blank line after it (': ping\\n'), or blank line only when the stream "
    "carries no id: field": _own_heartbeats,
    NO_HEARTBEAT: _no_own_heartbeat,
}


def _heartbeat(playing: Play, wanted: str) -> None:
    _HEARTBEATS[wanted](playing)


def _terminates(playing: Play, wanted: list[str]) -> None:
    first = playing.first
    if first.status is not None and first.status >= 400:
        how = "error_event"  # better: a real HTTP error, before anything went out
    elif first.ending in ("cut", "reset"):
        how = "aborted"
    else:
        how = "error_event" if playing.first_read.error is not None else "clean"
    assert how in wanted, f"it ended {how}: {first.body[-300:]!r}"


def _numbered_error(playing: Play) -> None:
    *events, last = read_events(playing.first.body)
    if last.name in ("error", "response.failed"):
        numbers = [json.loads(event.data)["sequence_number"] for event in (*events, last)]
        assert numbers == list(range(len(numbers)))


def _aborted_means(playing: Play) -> None:
    if playing.first.ending in ("cut", "reset"):
        assert not playing.first.wire.endswith(b"\r\n0\r\n\r\n")


def _nothing_after_error(playing: Play) -> None:
    events = read_events(playing.first.body)
    at = [n for n, event in enumerate(events) if '"error"' in event.data]
    assert not at or at[0] == len(events) - 1


def _client_any_of(playing: Play, wanted: list[str]) -> None:
    ways: dict[str, Callable[[Play], bool]] = {
        "SSE: role+content chunk, finish chunk, [DONE]": lambda p: p.first_read.done,
        "the JSON body unchanged with content-type application/json": _is_same_json,
        "assembled chat.completion JSON": lambda p: (
            p.first.header("content-type") == "application/json"
            and p.first.json()["object"] == "chat.completion"
        ),
        "SSE unchanged with its content type": lambda p: (
            is_stream(p.first.header("content-type")) and p.first.body == p.sent_bytes
        ),
    }
    assert any(ways[way](playing) for way in wanted)


def _is_same_json(playing: Play) -> bool:
    got = playing.first
    return got.header("content-type") == "application/json" and got.body == playing.sent_bytes


def _decoded_text(playing: Play, wanted: str) -> None:
    assert decoded(playing.first).first.text == wanted


def decoded(got: Reception) -> ChatRead:
    """Read a chat answer, whatever coding it came in."""
    body = got.body
    if got.header("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return read_chat(got.header("content-type"), body)


def _content_encoding(playing: Play) -> None:
    offered = dict(playing.sending.headers).get(b"accept-encoding", b"").decode()
    sent = playing.first.header("content-encoding")
    assert sent is None or sent in offered
    assert decoded(playing.first).choices, "the body is not what its content-encoding says"


def _interim(playing: Play, wanted: int) -> None:
    assert [status for status, _ in playing.first.interims] == [wanted]


def _interim_within(playing: Play, within_ms: float) -> None:
    (_, at_s), *_ = playing.first.interims
    assert at_s - playing.first.sent_s < within_ms / 1000


def _header_counts(playing: Play, wanted: dict[str, int]) -> None:
    assert {name: playing.first.header_count(name) for name in wanted} == wanted


def _client_headers(playing: Play, wanted: dict[str, str | None]) -> None:
    for name, value in wanted.items():
        got = playing.first.header(name)
        if value is not None and value.startswith("contains "):
            assert value.removeprefix("contains ") in (got or ""), f"{name}: {got}"
        else:
            assert got == value, f"{name}: {got}"


def _content_type(playing: Play, wanted: str) -> None:
    assert (playing.first.header("content-type") or "").startswith(wanted)


def _body_same(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.first.body == playing.sent_bytes


def _text_of_second(playing: Play, wanted: str) -> None:
    assert [decoded(got).first.text for got in playing.later] == [wanted]


def _error_if_400(playing: Play, wanted: str) -> None:
    names = {
        "names the header": b"x-agent-session-id",
        "names header and value rule": b"step-number",
    }
    if playing.first.status == 400:
        assert names[wanted] in playing.first.body.lower()


def _all_three(playing: Play, wanted: dict[str, Any]) -> None:
    got = [playing.first, *playing.later]
    assert [reception.status for reception in got] == [wanted["status"]] * 3
    assert [decoded(reception).first.text for reception in got] == [wanted["text"]] * 3


def _second(playing: Play, wanted: dict[str, Any]) -> None:
    (second,) = playing.later
    assert (second.status, decoded(second).first.text) == (wanted["status"], wanted["text"])


# --- the table of checks --------------------------------------------------------------------------

CLIENT: dict[str, Check] = {
    "latency_not_increased_by_webhook": _did_not_wait,
    "status": _status,
    "status_any_of": _status_any_of,
    "never_status": _never_status,
    "text": _client_text,
    "finish_reason": _client_finish,
    "refusal": _client_refusal,
    "reasoning": _client_reasoning,
    "ends_with_done": _ends_with_done,
    "events_forwarded_within_ms": _forwarded_within,
    "comments": same_sentence(
        "forwarded as comment lines or dropped; never re-emitted as 'data: : ...'", _comments
    ),
    "no_event_with_empty_data": _no_empty_events,
    "no_event_with_empty_choices": _no_empty_choices,
    "bytes_same_as_upstream": _bytes_same,
    "body_same_as_upstream": _body_same,
    "completes_within_ms": _completes_within,
    "error": _client_error,
    "terminates": _terminates,
    "error_event_if_any": same_sentence(
        "event: error or response.failed with the next sequence_number", _numbered_error
    ),
    "aborted_means": same_sentence("no zero-length chunk is written", _aborted_means),
    "must_not_contain_after_error": same_sentence(
        "content from another attempt", _nothing_after_error
    ),
    "any_of": _client_any_of,
    "decoded_text": _decoded_text,
    "content_encoding": same_sentence(
        "matches the bytes actually sent, and only an encoding the client offered",
        _content_encoding,
    ),
    "interim": _interim,
    "interim_within_ms": _interim_within,
    "header_counts": _header_counts,
    "headers": _client_headers,
    "content_type": _content_type,
    "text_of_second": _text_of_second,
    "error_if_400": _error_if_400,
    "all_three": _all_three,
    "second": _second,
    "message_from": same_sentence("a target's own words", _message_from),
    "no_event_before_error": same_sentence(
        "message_start of the failed attempt must not leak", _no_event_before_error
    ),
    "headers_if_429": _headers_if_429,
    "own_heartbeat": _heartbeat,
    **TRANSLATED_CLIENT,
    **HELD_CLIENT,
}
