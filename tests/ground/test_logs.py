"""Log lines: one line each, both forms, no keys, and nothing a caller could forge."""

from __future__ import annotations

import io
import json
import logging
import re
from collections.abc import Iterator
from typing import Literal

import pytest

from agentstate.ground.logs import (
    LINE_CHARS_MAX,
    TRACEBACK_CHARS_MAX,
    Call,
    log_call,
    set_up_logs,
)
from agentstate.ground.settings import LogSettings

log = logging.getLogger("agentstate.test")

CALL = Call(
    method="POST",
    path="/v1/chat/completions",
    status=200,
    duration_ms=12.3456,
    overhead_ms=0.2,
    session="run 1",
    step=0,
    replay="exact",
    provider="openai",
    model="gpt-4o",
    attempts=1,
)


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger("agentstate")
    before = (root.handlers[:], root.level, root.propagate)
    yield
    root.handlers, root.propagate = before[0], before[2]
    root.setLevel(before[1])


def text_log(level: Literal["info", "warning"] = "info") -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(LogSettings(format="text", level=level), stream)
    return stream


def json_log() -> io.StringIO:
    stream = io.StringIO()
    set_up_logs(LogSettings(format="json"), stream)
    return stream


def test_a_text_line_is_time_level_and_message() -> None:
    stream = text_log()

    log.info("listening on %s", "127.0.0.1:8080")

    assert re.fullmatch(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO listening on 127\.0\.0\.1:8080\n",
        stream.getvalue(),
    )


def test_a_call_is_one_line_with_its_facts() -> None:
    stream = text_log()

    log_call(CALL)

    assert stream.getvalue().partition("INFO ")[2] == (
        "POST /v1/chat/completions 200 12.35ms overhead_ms=0.20 "
        'session="run 1" step=0 replay=exact provider=openai model=gpt-4o attempts=1\n'
    )


def test_a_call_as_json_has_a_key_for_each_fact() -> None:
    stream = json_log()

    log_call(CALL)

    line = json.loads(stream.getvalue())
    assert line.pop("time").endswith("Z")
    assert line == {
        "level": "info", "logger": "agentstate.calls", "message": "call", "method": "POST",
        "path": "/v1/chat/completions", "status": 200, "duration_ms": 12.35, "overhead_ms": 0.2,
        "session": "run 1", "step": 0, "replay": "exact", "provider": "openai",
        "model": "gpt-4o", "attempts": 1,
    }  # fmt: skip


def test_what_does_not_apply_is_left_out() -> None:
    stream = text_log()

    log_call(Call(method="GET", path="/v1/models", status=200, duration_ms=1.0))

    assert stream.getvalue().endswith("INFO GET /v1/models 200 1.00ms\n")


@pytest.mark.parametrize(("status", "level"), [(200, "INFO"), (404, "INFO"), (502, "WARNING")])
def test_a_call_that_failed_behind_the_client_is_a_warning(status: int, level: str) -> None:
    stream = text_log()

    log_call(Call(method="GET", path="/", status=status, duration_ms=1.0))

    assert f" {level} GET" in stream.getvalue()


@pytest.mark.parametrize("name", ["a\nb", "a\r\nb", "a\x1b[31m", "a\u2028b", "a\x85b", "a\x00b"])
def test_no_caller_can_forge_a_line(name: str) -> None:
    for make in (text_log, json_log):
        stream = make()
        log_call(Call(method="GET", path="/" + name, status=200, duration_ms=1.0, session=name))

        line = stream.getvalue().removesuffix("\n")
        assert len(line.splitlines()) == 1
        assert line.isprintable()


def test_no_session_can_pretend_to_further_facts() -> None:
    stream = text_log()

    log_call(Call(method="GET", path="/", status=200, duration_ms=1.0, session="x step=9"))

    assert 'session="x step=9"' in stream.getvalue()


def test_long_lines_are_cut() -> None:
    stream = text_log()

    log.info("%s", "x" * 100_000)

    assert len(stream.getvalue()) < LINE_CHARS_MAX + 100
    assert stream.getvalue().endswith("…\n")


@pytest.mark.parametrize(
    "key", ["sk-ant-api03-abcdefghij", "sk-proj-abcdefgh", "Bearer abcdefgh.ijk", "AIzaSyAbcdefgh"]
)
def test_what_looks_like_a_key_is_struck(key: str) -> None:
    for make in (text_log, json_log):
        stream = make()
        log.warning("upstream said: bad key %s", key)
        try:
            raise ValueError(key)
        except ValueError:
            log.exception("failed")

        assert "bad key" in stream.getvalue()
        assert key not in stream.getvalue()


def test_ordinary_words_are_not_struck() -> None:
    stream = text_log()

    log.info("the task-scheduler asks desk-organizer about Bearer of news")

    assert "task-scheduler asks desk-organizer about Bearer of news" in stream.getvalue()


def test_a_failure_of_ours_is_logged_whole() -> None:
    for make in (text_log, json_log):
        stream = make()
        try:
            raise ZeroDivisionError("on purpose\nINFO forged\x1b[31m")
        except ZeroDivisionError:
            log.exception("task %s failed", "x")

        assert "task x failed" in stream.getvalue()
        assert "Traceback" in stream.getvalue()
        assert "ZeroDivisionError: on purpose" in stream.getvalue()
        assert "\nINFO forged" not in stream.getvalue()
        assert "\x1b" not in stream.getvalue()


def test_a_traceback_in_json_stays_one_line_and_is_bounded() -> None:
    stream = json_log()

    try:
        raise ValueError("y" * 1_000_000)
    except ValueError:
        log.exception("failed")

    line = json.loads(stream.getvalue())
    assert line["message"] == "failed"
    assert len(line["traceback"]) == TRACEBACK_CHARS_MAX


def test_the_level_is_a_threshold() -> None:
    stream = text_log("warning")

    log.info("quiet")
    log.warning("loud")
    log_call(CALL)

    assert "quiet" not in stream.getvalue()
    assert "loud" in stream.getvalue()
    assert "POST" not in stream.getvalue()


def test_setting_up_again_replaces() -> None:
    first, second = text_log(), text_log()

    log.info("once")

    assert first.getvalue() == ""
    assert second.getvalue().count("once") == 1
