"""One check for each thing a case may expect; an unknown key or sentence is an error.

What a case expects is a value or an English sentence. The tables at the end are the index: part of
`expect` → key → check.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from typing import Any

from tests.cases.files import to_bytes
from tests.cases.gate_checks import ALSO, APPROVAL, HELD_CLIENT, HELD_STEP
from tests.cases.playing import Play, Sending, reply_of, sending_of
from tests.cases.sentences import Check, same_sentence
from tests.cases.tables import IF_AN_ANSWER
from tests.cases.told import check_client_did_not_wait, check_told
from tests.helpers.raw_client import Connection, Reception, render_request
from tests.helpers.reading import ChatRead, is_stream, read_chat, read_events

STREAM_OF_A_REPLY = (
    "same status, same decoded text/tool calls/finish_reason/usage as first time; "
    "stream stays stream"
)
FETCHED_AGAIN = "the stored step is not complete, so it must be fetched again, never replayed"


def check_all(playing: Play) -> None:
    """Check every expectation of the case; the replay last, since it plays on."""
    expect = playing.case.expect
    for part in sorted(expect, key=lambda name: name == "replay"):
        table = PARTS[part]
        if isinstance(table, dict):
            for key, value in expect[part].items():
                table[key](playing, value)
        else:
            table(playing, expect[part])


def _webhook(playing: Play, wanted: dict[str, Any]) -> None:
    assert playing.told is not None, "nobody was told"
    assert playing.service is not None
    check_told(playing.told, playing.service, wanted)


def _did_not_wait(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.told is not None, "nobody was told"
    check_client_did_not_wait(playing.told)


# --- what the client saw ----------------------------------------------------------------


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
            case _:
                raise AssertionError(f"no check for error.{key}")


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
    assert _decoded(playing.first).first.text == wanted


def _decoded(got: Reception) -> ChatRead:
    body = got.body
    if got.header("content-encoding") == "gzip":
        body = gzip.decompress(body)
    return read_chat(got.header("content-type"), body)


def _content_encoding(playing: Play) -> None:
    offered = dict(playing.sending.headers).get(b"accept-encoding", b"").decode()
    sent = playing.first.header("content-encoding")
    assert sent is None or sent in offered
    assert _decoded(playing.first).choices, "the body is not what its content-encoding says"


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
    assert [_decoded(got).first.text for got in playing.later] == [wanted]


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
    assert [_decoded(reception).first.text for reception in got] == [wanted["text"]] * 3


def _second(playing: Play, wanted: dict[str, Any]) -> None:
    (second,) = playing.later
    assert (second.status, _decoded(second).first.text) == (wanted["status"], wanted["text"])


# --- the step ---------------------------------------------------------------------------

_STATES = {
    "complete": ("complete",),
    "incomplete": ("failed", "interrupted"),
    "failed": ("failed",),
}
_BY_REASON = "complete for all but '' and 'error' (those: incomplete/failed)"
_BY_ENDING = (
    "complete only for response.incomplete by max_output_tokens (like length); failed otherwise"
)


def _step_status(playing: Play, wanted: str) -> None:
    if wanted == _BY_REASON:
        wanted = "incomplete" if playing.case.variant in ("", "error") else "complete"
    elif wanted == _BY_ENDING:
        wanted = "complete" if playing.case.variant == "response.incomplete" else "failed"
    step = playing.step
    assert step["state"] in _STATES[wanted], step


def _step_status_any_of(playing: Play, wanted: list[str]) -> None:
    assert playing.step["state"] in {state for word in wanted for state in _STATES[word]}


def _step_text(playing: Play, wanted: str) -> None:
    assert playing.step["response"] == wanted


def _step_finish(playing: Play, wanted: str) -> None:
    if wanted == "as sent":
        if playing.step["state"] != "complete":
            return  # no answer is on record that could have a reason
        wanted = playing.case.variant
    assert playing.step["finish_reason"] == wanted


def _step_usage(playing: Play, wanted: dict[str, int]) -> None:
    usage = playing.step["usage"]
    assert {key: usage[key] for key in wanted} == wanted


def _step_tool_calls(playing: Play, wanted: list[dict[str, Any]]) -> None:
    choices = playing.step["choices"]
    got = choices[0]["tool_calls"] if choices else []  # no answer, no calls
    # `id_note` is a remark and `parsed` what a person is shown of ''; both are not of the record.
    kept = [{key: call[key] for key in ("id", "name", "arguments")} for call in wanted]
    assert [{key: call[key] for key in ("id", "name", "arguments")} for call in got] == kept


def _step_choices(playing: Play, wanted: list[dict[str, Any]]) -> None:
    got = playing.step["choices"]
    assert [{key: g[key] for key in w} for g, w in zip(got, wanted, strict=True)] == wanted


def _step_of_choice(key: str) -> Check:
    def check(playing: Play, wanted: str) -> None:
        assert playing.step["choices"][0][key] == wanted

    return check


def _step_field(key: str) -> Check:
    def check(playing: Play, wanted: Any) -> None:
        assert playing.step[key] == wanted

    return check


def _step_attempts(playing: Play, wanted: list[dict[str, Any]]) -> None:
    attempts = playing.step["attempts"]
    assert [{key: a[key] for key in w} for a, w in zip(attempts, wanted, strict=True)] == wanted


def _excerpt_kept(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.step["attempts"][-1]["excerpt"][:20].encode() in playing.sent_bytes


def _stored_whole(playing: Play) -> None:
    calls = len(playing.upstream.received)
    again = playing.ask(playing.sending)
    _check_replayed(again, playing.first)
    assert len(playing.upstream.received) == calls
    playing.upstream.extend([reply_of(playing.case.upstream[0], 1.0)])
    body = playing.sending.body
    at = body.rindex(b"QUJD")
    other = Sending(
        playing.sending.method, playing.sending.target, playing.sending.headers,
        body[:at] + b"QUJE" + body[at + 4 :],
    )  # fmt: skip
    assert playing.ask(other).status == 200
    assert len(playing.upstream.received) == calls + 1, "another last byte is another request"


def _step_rows(playing: Play, wanted: int) -> None:
    assert len(playing.steps) == wanted


def _opens_by_name(playing: Play, wanted: bool) -> None:
    assert wanted
    assert len(playing.steps) == (1 if playing.first.status == 200 else 0)


def _text_display(playing: Play) -> None:
    assert playing.step["response"] == "\U0001f600 \ufffd"


def _never_contains(playing: Play, wanted: list[str]) -> None:
    shown = json.dumps(playing.proxy.maybe_session(playing.session)).encode()
    stored = playing.proxy.stored_bytes()  # the log is among these files
    for secret in wanted:
        assert secret.encode() not in shown, f"{secret} is shown"
        assert secret.encode() not in stored, f"{secret} is stored or logged"


# --- what the upstream saw --------------------------------------------------------------


def _calls(playing: Play, wanted: int | dict[str, int]) -> None:
    count = wanted if isinstance(wanted, int) else wanted["primary"]
    assert len(playing.upstream.received) == count


def _calls_at_most(playing: Play, wanted: int) -> None:
    assert len(playing.upstream.received) <= wanted


def _calls_of_first(playing: Play, wanted: int) -> None:
    assert playing.calls_of_first == wanted


def _request_same(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.upstream.received[0].body == playing.sending.body


def _headers_absent(playing: Play, wanted: list[str]) -> None:
    call = playing.upstream.received[0]
    for name in wanted:
        if name == "host of the proxy":
            assert call.header("host") == playing.upstream.url.removeprefix("http://")
        else:
            assert call.header(name) is None, f"{name} went upstream"


def _request_paths(playing: Play, wanted: dict[str, Any]) -> None:
    for path, value in wanted.items():
        got = playing.upstream.received[0].json()
        for key in path.removeprefix("$.").split("."):
            got = got[key]
        assert got == value


def _request_asserts(playing: Play, wanted: list[str]) -> None:
    (call,) = playing.upstream.received
    beta = dict(playing.sending.headers)[b"anthropic-beta"].decode()
    ways: dict[str, bool] = {
        "request body equals client body byte for byte (same protocol)": (
            call.body == playing.sending.body
        ),
        # Equal bytes say it; this says what is in them.
        "signatures, redacted data, order and empty thinking text unchanged": (
            call.json()["messages"] == playing.case.client["body"]["messages"]
        ),
        "anthropic-beta forwarded": call.header("anthropic-beta") == beta,
    }
    assert all(ways[way] for way in wanted), ways


def _targets(playing: Play, wanted: list[str]) -> None:
    assert [call.target for call in playing.upstream.received[1:]] == wanted


def _fully_answered(playing: Play, wanted: int) -> None:
    received = playing.upstream.received
    assert sum(call.outcome == "answered" for call in received) == wanted


def _upstream_any_of(playing: Play, wanted: list[str]) -> None:
    ways: dict[str, Callable[[Play], bool]] = {
        "first call cancelled within 1000 ms": lambda p: p.upstream.received[0].outcome == "left",
        "first call completes, is stored, and the retry is answered from it (1 call)": lambda p: (
            len(p.upstream.received) == 1 and _decoded(p.later[0]).first.text == "late"
        ),
    }
    assert any(ways[way](playing) for way in wanted)


def _reading_paused(playing: Play, wanted: bool) -> None:
    assert playing.upstream.received[0].was_blocked is wanted


def _encodings_offered(playing: Play, wanted: list[str]) -> None:
    offered = (playing.upstream.received[0].header("accept-encoding") or "identity").split(",")
    assert {coding.strip().partition(";")[0] for coding in offered} <= set(wanted)


# --- the proxy itself -------------------------------------------------------------------


def _memory_below(playing: Play, wanted_mb: int) -> None:
    before, *after = playing.memory_kib
    assert max(after) - before < wanted_mb * 1024, f"{before} KiB, then {after}"


def _latency_below(playing: Play, wanted_ms: float) -> None:
    assert playing.latencies_s
    assert max(playing.latencies_s) < wanted_ms / 1000


def _others_ok(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.latencies_s, "no other request was answered meanwhile"


def _no_leaked_task(playing: Play, wanted: bool) -> None:
    assert wanted
    assert all(step["state"] != "in_flight" for step in playing.proxy.steps(playing.session))


def _security(playing: Play) -> None:
    sending, address = playing.sending, playing.proxy.address
    both = (*sending.headers, (b"transfer-encoding", b"chunked"), (b"content-length", b"4"))
    with Connection(address) as connection:
        connection.send(render_request("POST", sending.target, address, both, b"0\r\n\r\n"))
        got = connection.receive()
        assert got.status == 400
        assert connection.is_closed_by_peer(within_s=5.0)


_ACCEPTED_STEP = re.compile(r"[0-9]{1,18}", re.ASCII)


def _step_rule(playing: Play) -> None:
    value = to_bytes(playing.case.variant).decode("latin-1").strip(" ")
    if _ACCEPTED_STEP.fullmatch(value):
        assert playing.first.status == 200
        assert playing.step["step_number"] == int(value)
    else:
        assert playing.first.status == 400
        assert not playing.upstream.received, "a refused request was paid"


# Not part of the fingerprint, by design: they never change an answer.
_UNCOUNTED = ("prompt_cache_key", "service_tier", "metadata")


def _cache_key(playing: Play) -> None:
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


# --- the replay -------------------------------------------------------------------------


def _replay(playing: Play, wanted: dict[str, Any]) -> None:
    for key, value in wanted.items():
        match key:
            case "resend_same":
                _check_resend(playing, value)
            case "second":
                assert value == (
                    "SSE with the same events in the same order, content-type "
                    "text/event-stream, [DONE] last"
                )
                _check_replayed(playing.later[0], playing.first)
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
        before = len(playing.upstream.received)
        playing.upstream.extend([reply_of(playing.case.upstream[-1], 0.0)])
        again = playing.ask(playing.sending)
        added = len(playing.upstream.received) - before
    for key, value in wanted.items():
        match key:
            case "upstream_calls_added":
                assert added == value, f"{added} upstream calls were added"
            case "client":
                _check_replayed(again, playing.first)
                assert value in (
                    STREAM_OF_A_REPLY,
                    "same text; ends cleanly (a [DONE] may be added)",
                )
            case "reason":
                assert value == FETCHED_AGAIN
                assert again.header("x-agentstate-cache-hit") != "true"
            case "client_decoded_text":
                assert _decoded(again).first.text == value
            case "note":
                assert value == "also when the second client sends no accept-encoding"
                plain = playing.ask(playing.sending.without("accept-encoding"))
                assert plain.header("content-encoding") is None
                assert _decoded(plain).first.text == _decoded(playing.first).first.text
            case "client_reasoning":
                assert _decoded(again).first.reasoning == value
            case "client_contains":
                assert value.encode() in again.body
            case "client_text":
                assert _decoded(again).first.text == value
            case "never":
                assert _decoded(again).first.text != value
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


def _check_replayed(again: Reception, first: Reception) -> None:
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
    assert _decoded(got).first.text == playing.first_read.first.text
    assert len(playing.upstream.received) == 1


# --- the tables of checks -------------------------------------------------------------------------

_CLIENT: dict[str, Check] = {
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
    **HELD_CLIENT,
}

_STEP: dict[str, Check] = {
    "status": _step_status,
    "status_any_of": _step_status_any_of,
    "text": _step_text,
    "finish_reason": _step_finish,
    "usage": _step_usage,
    "response_id": _step_field("response_id"),
    "model": _step_field("model"),
    "tool_calls": _step_tool_calls,
    "choices": _step_choices,
    "refusal": _step_of_choice("refusal"),
    "reasoning": _step_of_choice("reasoning"),
    "attempts": _step_attempts,
    "raw_excerpt_kept": _excerpt_kept,
    "stored": same_sentence(
        "whole or by hash with a marker; replay key uses the whole body", _stored_whole
    ),
    "rows": _step_rows,
    "opens_by_escaped_name": _opens_by_name,
    "text_display": same_sentence("pair joined to 😀, lone one as U+FFFD", _text_display),
    "never_contains": _never_contains,
    **HELD_STEP,
}

_UPSTREAM: dict[str, Check] = {
    "calls": _calls,
    "calls_at_most": _calls_at_most,
    "calls_during_first_request": _calls_of_first,
    "request_body_same_as_client": _request_same,
    "request_headers_absent": _headers_absent,
    "request_json_paths": _request_paths,
    "request_asserts": _request_asserts,
    "paths": _targets,
    "requests_fully_answered": _fully_answered,
    "any_of": _upstream_any_of,
    "reading_paused": _reading_paused,
    "encodings_offered": _encodings_offered,
}

_PROXY: dict[str, Check] = {
    "peak_memory_growth_mb_below": _memory_below,
    "rss_growth_mb_below": _memory_below,
    "other_requests_latency_ms_below": _latency_below,
    "other_requests_ok": _others_ok,
    "no_leaked_task": _no_leaked_task,
}

PARTS: dict[str, dict[str, Check] | Check] = {
    "client": _CLIENT,
    "step": _STEP,
    "upstream": _UPSTREAM,
    "proxy": _PROXY,
    "approval": APPROVAL,
    "webhook": _webhook,
    "also": ALSO,
    "replay": _replay,
    "security": same_sentence(
        "a request with both is answered 400 and its connection closed", _security
    ),
    "rule": same_sentence(
        "accepted only if ^[0-9]{1,18}$ after trimming spaces; accepted values never alias "
        "('07' vs '7': decide)",
        _step_rule,
    ),
    "cache_key": same_sentence("differs when any of these fields differs", _cache_key),
}
