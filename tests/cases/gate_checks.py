"""The checks of what a case expects of the gate; `checks.py` has the index of all."""

from __future__ import annotations

import json
import re
import unicodedata
from dataclasses import replace
from itertools import pairwise
from typing import Any

from tests.cases import held
from tests.cases.held import Held, Row
from tests.cases.playing import Play, Sending
from tests.cases.sentences import Check, same_sentence
from tests.cases.staging import reply_of
from tests.cases.told import check_error_is_shown
from tests.helpers.raw_client import Pair, Reception
from tests.helpers.reading import ChatRead, read_chat, read_events

# --- what was asked -----------------------------------------------------------------------


def _created(playing: Play, wanted: int) -> None:
    assert len(playing.asked) == wanted, playing.asked


def _tool(playing: Play, wanted: str) -> None:
    assert _question(playing)["tool"] == wanted


def _arguments(playing: Play, wanted: str) -> None:
    assert _question(playing)["arguments"] == wanted


def _shown_text(playing: Play, wanted: str) -> None:
    """In each form, and in the bytes of the reply: a reader of JSON may round what is a number."""
    if not _is_guarded(playing):
        return
    question = _question(playing)
    shown, text = held.read_approval(playing.proxy, question["approval_id"])
    for row in (question, shown):
        assert wanted in row["arguments"]
        assert wanted in row["arguments_display"]
    parsed = text.partition('"arguments_json":')[2].partition("}")[0]
    assert wanted in parsed, text


def _delivery_error_is_shown(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.told is not None, "nobody was told"
    check_error_is_shown(playing.told)


def _name_is_late(playing: Play) -> None:
    if _is_guarded(playing):
        _nothing_of_the_call(playing)


def _is_guarded(playing: Play) -> bool:
    """Say whether this variant guards the tool; if it does not, nothing may have been asked."""
    is_guarded = bool(playing.case.setup["sensitive_tools"])
    assert is_guarded or not playing.asked
    return is_guarded


def _display(playing: Play) -> None:
    sent = _sent_arguments(playing)
    shown, text = held.read_approval(playing.proxy, _question(playing)["approval_id"])
    display = shown["arguments_display"]
    assert "⟨U+202E⟩" in display
    assert "⟨U+202C⟩" in display
    hidden = [char for char in display if unicodedata.category(char) in ("Cc", "Cf")]
    assert not hidden, f"not made visible: {hidden}"
    assert shown["duplicate_keys"] == ["table"]
    assert shown["arguments_json"] is None, "of two values of one key no reader's choice is shown"
    # Inert: it is text in JSON, never a page; how a page shows it is in tests/web.
    assert "`<https://evil.example|Approve>`" in display
    assert json.loads(text)["arguments"] == sent, "the full text is reachable"


def _survives_restart(playing: Play, wanted: bool) -> None:
    assert wanted
    before, after = _held(playing).questions, _held(playing).after_restart
    assert after == before


def _decisions_accepted(playing: Play, wanted: int) -> None:
    """Neither as the case sends it nor as a decision that the API would take from its own page."""
    assert wanted == 0
    _still_waits(playing)
    own = playing.sending
    for kind in (b"text/plain", b"application/json"):
        got = playing.ask(_decision(own, *_named(own, b"host", b"origin"), kind=kind))
        assert got.status == 403, got.body
        _still_waits(playing)
    got = playing.ask(_decision(own, kind=b"text/plain"))  # a form of an old browser: no Origin
    assert got.status == 400, got.body
    _still_waits(playing)


def _also(playing: Play) -> None:
    own, address = playing.sending, f"/api/approvals/{playing.on_hold}"
    bare = Sending("GET", own.target, (), b"")
    asked = {
        "the answer itself": playing.first,
        "a preview of the action": playing.ask(bare),
        "a preview with a body": playing.ask(replace(_decision(own), method="GET")),
        "a preview of the approval": playing.ask(replace(bare, target=address)),
        "a preflight": playing.ask(
            Sending(
                "OPTIONS",
                own.target,
                (
                    *_named(own, b"host", b"origin"),
                    (b"access-control-request-method", b"POST"),
                    (b"access-control-request-headers", b"content-type"),
                ),
                b"",
            )
        ),
    }
    for name, got in asked.items():
        assert got.header("access-control-allow-origin") is None, name
    _still_waits(playing)
    assert playing.ask(_decision(own)).status == 200, "what was refused would have decided"


def _still_waits(playing: Play) -> None:
    row, _ = held.read_approval(playing.proxy, playing.on_hold)
    assert (row["status"], row["decided_ms"]) == ("PENDING", None), row


def _decision(own: Sending, *headers: Pair, kind: bytes = b"application/json") -> Sending:
    body = b'{"action":"APPROVED"}'
    return Sending("POST", own.target, (*headers, (b"content-type", kind)), body)


def _named(sending: Sending, *names: bytes) -> tuple[Pair, ...]:
    return tuple(pair for pair in sending.headers if pair[0] in names)


# --- what the client had before a decision ------------------------------------------------


# What is content to a client: text, or a call.
_CONTENT = re.compile(rb'"content":"[^"]|"tool_calls":|"delta":"')


def _nothing_of_the_call(playing: Play) -> None:
    """It has all that came before the call, and nothing of the call. While something is left to
    try, what came before has to be content to be let out."""
    question = _question(playing)
    mark = json.dumps(question["call_id"] or question["tool"]).encode()
    chunks = reply_of(playing.case.upstream[0], 1.0).chunks
    first = next(place for place, chunk in enumerate(chunks) if mark in chunk)
    before = b"".join(chunks[:first])
    is_let_out = playing.case.setup.get("retries") == 0 or _CONTENT.search(before)
    assert _held(playing).shown == (before if is_let_out else b"")


def _cannot_run_call_2(playing: Play) -> None:
    _nothing_of_the_call(playing)
    shown = read_chat("text/event-stream", _held(playing).shown)
    assert not shown.done
    # Nor call_1: a client runs a turn's calls together, once their answer has ended.
    assert shown.first.finish_reason is None


def _no_event_of_call_1(playing: Play) -> None:
    _nothing_of_the_call(playing)
    for event in read_events(_held(playing).shown):
        assert "call_1" not in event.data
        assert '\\"t\\"' not in event.data


_BEFORE = {
    "nothing that lets a client run call_2": _cannot_run_call_2,
    "nothing released": _nothing_of_the_call,
}


def _before_decision(playing: Play, wanted: str) -> None:
    _BEFORE[wanted](playing)


# --- what it got in the end ---------------------------------------------------------------


def _all_seven_events(playing: Play) -> None:
    assert playing.first.ending == "complete"
    assert playing.first.body == playing.sent_bytes
    events = read_events(playing.first.body)
    assert len(events) == 7
    numbers = [json.loads(event.data)["sequence_number"] for event in events]
    assert all(one < next_one for one, next_one in pairwise(numbers)), numbers
    names = [event.name for event in events]
    begins = names.index("response.output_item.added")
    assert begins < names.index("response.function_call_arguments.delta")


def _after_deny(playing: Play) -> None:
    """The call that was not refused goes out alone."""
    read = playing.first_read
    assert (playing.first.status, playing.first.ending, read.done) == (200, "complete", True)
    (call,) = read.first.tool_calls
    assert (call["id"], call["name"]) == ("call_1", "get_weather")
    assert json.loads(call["arguments"]) == {"city": "Oslo"}
    assert _indexes(read) == {0}
    assert read.first.finish_reason == "tool_calls"
    for word in (b"call_2", b"delete_rows", b"users"):
        assert word not in playing.first.body


def _indexes(read: ChatRead) -> set[int]:
    return {
        part["index"]
        for chunk in read.chunks
        for choice in chunk["choices"]
        for part in choice["delta"].get("tool_calls", ())
    }


def _delivered_arguments(playing: Play) -> None:
    sent = _sent_arguments(playing)
    edited = playing.case.variant.get("args")
    (call,) = playing.first_read.first.tool_calls
    assert call["arguments"] == (sent if edited is None else edited)
    assert (call["id"], call["name"]) == ("c", "delete_rows")
    _original_kept(playing, True)
    if edited is None:
        assert playing.first.body == playing.sent_bytes
        assert _step(playing)["delivered"] is None, "it is the answer itself"
    else:
        _delivered_kept(playing, True)
    (approval,) = _step(playing)["approvals"]
    assert (approval["arguments"], approval["edited_arguments"]) == (sent, edited)


def _sent_arguments(playing: Play) -> str:
    (call,) = read_chat("text/event-stream", playing.sent_bytes).first.tool_calls
    return str(call["arguments"])


def _never_unapproved(playing: Play) -> None:
    """No approval can be written, so the call goes out in no form, and its stream has no end."""
    if playing.first.status == 200:
        read = playing.first_read
        assert not read.done
        assert read.error is not None
        assert read.error["code"] == "store_unavailable"
        assert read.first.finish_reason is None
        assert not {call["name"] for call in read.first.tool_calls} - {"get_weather"}
    for word in (b'"name":"delete_rows"', b"call_2", b"users"):
        assert word not in playing.first.body


def _retry(playing: Play, wanted: dict[str, int]) -> None:
    (again,) = playing.later
    assert (again.status, again.ending) == (200, "complete")
    read = read_chat(again.header("content-type"), again.body)
    assert {"tool_calls": len(read.first.tool_calls)} == wanted
    assert again.body == playing.sent_bytes


def _tool_call_count(playing: Play, wanted: int) -> None:
    assert playing.first.ending == "complete"
    assert playing.first.body == playing.sent_bytes
    assert len(playing.first_read.first.tool_calls) == wanted


# --- how it was kept waiting --------------------------------------------------------------


def _never_silent(playing: Play, within_ms: float) -> None:
    case, got = playing.case, playing.first if playing.waited is None else playing.waited.got
    assert got.head_s is not None
    heard = [got.sent_s, got.head_s, *(piece.at_s for piece in got.pieces)]
    silences = [later - earlier for earlier, later in pairwise(heard)]
    assert max(silences) <= within_ms / 1000 * case.scale, f"silent for {silences} s"
    waited_ms = case.setup.get("approve_after_ms") or case.upstream[0]["delays_ms"][0]
    assert heard[-1] - heard[0] >= waited_ms / 1000 * case.scale, "it did not wait so long"


def _only_comments(playing: Play) -> None:
    got: Reception = _held(playing).got
    assert len(got.body) > len(playing.sent_bytes), "there was no heartbeat"
    assert read_events(got.body) == read_events(playing.sent_bytes)
    lines = got.body.splitlines(keepends=True)
    assert b"".join(line for line in lines if not line.startswith(b":")) == playing.sent_bytes


# --- what is on record --------------------------------------------------------------------


def _original_kept(playing: Play, wanted: bool) -> None:
    assert wanted
    assert _step(playing)["answer"]["content"].encode() == playing.sent_bytes


def _delivered_kept(playing: Play, wanted: bool) -> None:
    assert wanted
    assert _step(playing)["delivered"]["content"].encode() == playing.first.body
    assert playing.first.body != playing.sent_bytes


# --- shared -------------------------------------------------------------------------------


def _held(playing: Play) -> Held:
    assert playing.waited is not None, "the first request was not held"
    return playing.waited


def _question(playing: Play) -> Row:
    (question,) = _held(playing).questions
    return question


def _step(playing: Play) -> dict[str, Any]:
    return held.read_step(playing.proxy, playing.session, _question(playing)["index"])


# --- the tables of checks -------------------------------------------------------------------------

APPROVAL: dict[str, Check] = {
    "created": _created,
    "tool": _tool,
    "args": _arguments,
    "shown_text_contains": _shown_text,
    "note": same_sentence(
        "with get_weather sensitive, nothing of the call may leak before the name is known",
        _name_is_late,
    ),
    "display": same_sentence(
        "bidi and control characters made visible, duplicate keys flagged, markup inert, full "
        "text reachable",
        _display,
    ),
    "survives_restart": _survives_restart,
    "delivery_error_visible_on_dashboard": _delivery_error_is_shown,
    "decisions_accepted": _decisions_accepted,
}

HELD_CLIENT: dict[str, Check] = {
    "before_decision": _before_decision,
    "before_approval": same_sentence("no event with call_1 or its arguments", _no_event_of_call_1),
    "after_approval": same_sentence(
        "all 7 events, sequence_number strictly rising, output_item.added before arguments.delta",
        _all_seven_events,
    ),
    "after_deny": same_sentence(
        "valid completion: no call_2, call_1 kept or whole turn refused by a stated rule; indexes "
        "contiguous; finish_reason consistent",
        _after_deny,
    ),
    "delivered_args": same_sentence(
        "exactly the approved bytes; if edited, the edited ones with the original kept in the step",
        _delivered_arguments,
    ),
    "never": same_sentence("delete_rows delivered without a recorded approval", _never_unapproved),
    "retry": _retry,
    "finally_tool_calls": _tool_call_count,
    "bytes_at_least_every_ms": _never_silent,
    "heartbeat": same_sentence("SSE comment only", _only_comments),
}

HELD_STEP: dict[str, Check] = {
    "original_kept": _original_kept,
    "delivered_kept": _delivered_kept,
}

ALSO: Check = same_sentence(
    "GET never changes state (link previews fetch URLs); no access-control-allow-origin: *", _also
)
