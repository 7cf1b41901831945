"""The checks of what is on record of a step; `checks.py` has the index of all."""

from __future__ import annotations

import json
from typing import Any

from tests.cases.gate_checks import HELD_STEP
from tests.cases.playing import Play, Sending
from tests.cases.replay_checks import check_replayed
from tests.cases.sentences import Check, same_sentence
from tests.cases.staging import FALLBACK, reply_of

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


def _step_attempts(playing: Play, wanted: int | list[dict[str, Any]]) -> None:
    attempts = playing.step["attempts"]
    assert len(attempts) == (wanted if isinstance(wanted, int) else len(wanted)), attempts
    if isinstance(wanted, int):
        return
    for attempt, expected in zip(attempts, wanted, strict=True):
        for key, value in expected.items():
            match key:
                case "to":
                    assert attempt["provider"] == _provider(playing, value)
                case "error_contains":
                    assert value in attempt["error"], attempt["error"]
                case _:
                    assert attempt[key] == value, attempt


def _served_by(playing: Play, wanted: str) -> None:
    """It is on record, and the client was told."""
    provider = _provider(playing, wanted)
    assert playing.step["provider"] == provider
    assert playing.first.header("x-agentstate-provider") == provider
    index = "1" if wanted == FALLBACK else "0"
    assert playing.first.header("x-agentstate-fallback-index") == index


def _provider(playing: Play, name: str) -> str:
    """Return what the proxy calls a server of the case."""
    if name == FALLBACK:
        return name
    assert name == "primary", f"nothing plays {name}"
    return "anthropic" if playing.sending.target.endswith("/messages") else "openai"


def _excerpt_kept(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.step["attempts"][0]["excerpt"][:20].encode() in playing.sent_bytes


def _stored_whole(playing: Play) -> None:
    calls = len(playing.upstream.received)
    again = playing.ask(playing.sending)
    check_replayed(again, playing.first)
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


# --- the table of checks --------------------------------------------------------------------------

STEP: dict[str, Check] = {
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
    "served_by": _served_by,
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
