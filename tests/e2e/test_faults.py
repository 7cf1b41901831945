"""Every fault of the table, streamed and not, in each form and between forms, over real sockets.

Five plans. `retry`: the same target answers at the second try. `fallback`: another target answers.
`all-fail`: nobody does, and the client hears of the first. `alone`: there is one target and one
try. `shown`: a stream that fails after its client has seen content is never switched. In each the
same call is asked again afterwards: a replay, or the answer that did not come before.

All rows that were selected are played at once, since most of their time is waiting.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fault_rig import (
    Played,
    Rig,
    ask_model,
    closed_port,
    forward_toml,
    providers_toml,
    rig_in,
)
from tests.e2e.faults import CUT, NOBODY, REFUSES, SEEN, UNANSWERED, UNSEEN, Row, rows_of
from tests.e2e.forms import (
    CHAT,
    DELAYED_S,
    GEMINI,
    MESSAGES,
    PIECES,
    REFUSED,
    RESPONSES,
    TEXT,
    Form,
    Heard,
)
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import TIMEOUT_S, Reception

pytestmark = pytest.mark.slow

AT_ONCE = 24
ROUNDING_MS = 5  # times on record are whole milliseconds, and of two clocks

RETRIED = rows_of("retry", UNSEEN)
FALLEN_BACK = rows_of("fallback", (*UNSEEN, REFUSES))
ALL_FAILED = rows_of("all-fail", (*UNSEEN, REFUSES))
ALONE = rows_of("alone", (*UNSEEN, REFUSES))
SHOWN = rows_of("shown", SEEN)
FALLEN_BACK_BARE = rows_of("fallback", (*UNSEEN, REFUSES), has_session=False)
ALL_FAILED_BARE = rows_of("all-fail", (*UNSEEN, REFUSES), has_session=False)
SHOWN_BARE = rows_of("shown", SEEN, has_session=False)


class Board:
    """The rows that are being played."""

    def __init__(self, rig: Rig, futures: dict[str, Future[Played]]) -> None:
        self.rig = rig
        self._futures = futures

    def of(self, row: Row) -> Played:
        """Wait for a row."""
        return self._futures[row.name].result()


@pytest.fixture(scope="module")
def board(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Board]:
    """All rows that were selected, played at once."""
    calls = [getattr(item, "callspec", None) for item in request.session.items]
    found = (call.params.get("row") for call in calls if call)  # of all that is run, so others' too
    rows = {row.name: row for row in found if isinstance(row, Row)}
    with rig_in(tmp_path_factory.mktemp("faults")) as rig, ThreadPoolExecutor(AT_ONCE) as pool:
        yield Board(rig, {name: pool.submit(rig.play, row) for name, row in rows.items()})


def by_name(rows: list[Row]) -> pytest.MarkDecorator:
    """Give a test each of these rows."""
    return pytest.mark.parametrize("row", rows, ids=lambda row: row.name)


def heard(row: Row, got: Reception) -> Heard:
    """Read what the client of a row got."""
    return row.caller.read(got)


def check_whole(row: Row, got: Reception, *, is_replay: bool) -> None:
    """The client got the whole answer, and nothing else."""
    assert (got.status, got.ending) == (200, "complete"), got.body
    read = heard(row, got)
    assert (read.text, read.is_whole, read.error) == (TEXT, True, None)
    assert got.header("x-agentstate-cache-hit") == ("true" if is_replay else "false")


def check_unmixed(played: Played, answered: Form) -> None:
    """Nothing of the attempt that failed is in the answer: it is what one upstream said."""
    caller, body = played.row.caller, played.got.body
    if answered is caller:
        assert body == b"".join(played.sent[-1].chunks)
    elif played.row.streams:
        assert body.count(caller.opens) == 1


def check_failed_attempt(row: Row, attempt: dict[str, Any]) -> None:
    """The attempt that failed says where, how and when."""
    assert (attempt["provider"], attempt["model"]) == (row.first_provider, row.name)
    assert (attempt["status"], attempt["error_code"]) == (row.fault.status, row.fault.code)
    assert not attempt["ok"]
    assert attempt["error"]
    assert attempt["started_ms"] <= attempt["ended_ms"]
    if row.fault.status is None:
        assert attempt["first_byte_ms"] is None
    else:
        assert 0 <= attempt["first_byte_ms"] <= attempt["ended_ms"] - attempt["started_ms"]


def asked_once(row: Row) -> int:
    """Return how many requests one attempt at the first target brings its upstream."""
    return 0 if row.fault.is_refused else 1


def check_replayed(played: Played) -> None:
    """The same call again costs nothing and gives the same bytes."""
    check_whole(played.row, played.again, is_replay=True)
    assert played.again.body == played.got.body
    assert played.calls_again == played.calls
    assert [step["state"] for step in played.steps_again] == ["complete"]


# --- retry ----------------------------------------------------------------------------------------


@by_name(RETRIED)
def test_the_same_target_answers_at_the_second_try(board: Board, row: Row) -> None:
    played = board.of(row)

    check_whole(row, played.got, is_replay=False)
    check_unmixed(played, row.target)
    asked = {each.target for each in board.rig.first.asked[row.name]}
    assert asked == {row.target.endpoint(row.name, streams=row.streams)}
    provider = row.first_provider
    assert played.got.header("x-agentstate-provider") == provider
    assert played.got.header("x-agentstate-attempts") == "2"
    assert played.got.header("x-agentstate-fallback-index") == "0"
    assert played.calls == (2, 0)
    assert (played.step["state"], played.step["provider"]) == ("complete", provider)
    failed, answered = played.attempts
    check_failed_attempt(row, failed)
    assert (answered["provider"], answered["status"], answered["ok"]) == (provider, 200, True)
    assert answered["started_ms"] >= failed["ended_ms"]
    check_replayed(played)


@by_name([row for row in RETRIED if row.fault.name.startswith("429")])
def test_a_retry_comes_no_sooner_than_it_was_asked_to(board: Board, row: Row) -> None:
    played = board.of(row)

    said = played.sent_headers
    failed, answered = played.attempts
    if (in_ms := said.get("retry-after-ms")) is not None:
        due_ms = failed["ended_ms"] + int(in_ms)
    elif row.fault.name == "429-body":
        due_ms = failed["ended_ms"] + 1000 * DELAYED_S
    elif (text := said["retry-after"]).isdecimal():
        due_ms = failed["ended_ms"] + 1000 * int(text)
    else:
        due_ms = int(parsedate_to_datetime(text).timestamp() * 1000)
    assert answered["started_ms"] >= due_ms - ROUNDING_MS


# --- fallback -------------------------------------------------------------------------------------


@by_name(FALLEN_BACK)
def test_another_target_answers_in_its_place(board: Board, row: Row) -> None:
    played = board.of(row)

    check_whole(row, played.got, is_replay=False)
    check_unmixed(played, row.target)
    provider = f"{row.target.name}2"
    assert played.got.header("x-agentstate-provider") == provider
    assert played.got.header("x-agentstate-model") == row.name
    assert played.got.header("x-agentstate-attempts") == "2"
    assert played.got.header("x-agentstate-fallback-index") == "1"
    assert played.calls == (asked_once(row), 1)
    assert (played.step["state"], played.step["provider"]) == ("complete", provider)
    failed, answered = played.attempts
    check_failed_attempt(row, failed)
    assert (answered["provider"], answered["status"], answered["ok"]) == (provider, 200, True)
    check_replayed(played)


# --- all fail -------------------------------------------------------------------------------------


def check_first_error(played: Played) -> None:
    """The client was told of the first target's error in its own form."""
    row, got = played.row, played.got
    assert (got.status, got.ending) == (row.answered, "complete"), got.body
    assert got.header("content-type") == "application/json"
    check_error_body(row.caller, got.json())
    read = heard(row, got)
    assert not read.is_whole
    if row.fault.has_words:
        assert read.error is not None
        assert REFUSED in read.error["message"]
    said = dict(played.sent_headers)
    if row.fault.name == "429-body" and row.caller is not row.target:
        said["retry-after"] = str(DELAYED_S)  # no other form has a place for it in its body
    for name in ("retry-after", "retry-after-ms"):
        assert got.header(name) == said.get(name)
    assert got.header("x-should-retry") != "false"


def check_error_body(form: Form, body: dict[str, Any]) -> None:
    """An error body is one of this form, with the keys that its clients read."""
    if form is MESSAGES:
        assert (body["type"], set(body["error"]) >= {"type", "message"}) == ("error", True)
    elif form is GEMINI:
        assert set(body["error"]) >= {"code", "message", "status"}
    else:
        assert set(body["error"]) >= {"message", "type", "param", "code"}


@by_name(ALL_FAILED)
def test_where_nobody_answers_the_client_hears_of_the_first_target(board: Board, row: Row) -> None:
    played = board.of(row)

    check_first_error(played)
    first, second = row.first_provider, f"{row.caller.name}2"
    tried = played.got.header("x-agentstate-tried") or ""
    assert tried.startswith(f"{first}/{row.name}: ")
    assert f", {second}/{row.name}: 500 server" in tried
    assert "AgentState tried" in played.got.json()["error"]["message"]
    assert played.calls == (asked_once(row), 1)
    assert played.step["state"] == "failed"
    failed, last = played.attempts
    check_failed_attempt(row, failed)
    assert (last["provider"], last["status"], last["ok"]) == (second, 500, False)


@by_name([row for row in (*ALL_FAILED, *ALONE) if not row.fault.is_refused])
def test_a_session_goes_on_when_the_call_is_asked_again(board: Board, row: Row) -> None:
    played = board.of(row)

    check_whole(row, played.again, is_replay=False)
    assert played.calls_again == (played.calls[0] + 1, played.calls[1])
    assert [step["state"] for step in played.steps_again] == ["complete"]


@by_name(ALONE)
def test_with_nothing_left_to_try_the_error_is_told_as_soon_as_it_can_be(
    board: Board, row: Row
) -> None:
    played = board.of(row)

    if played.got.status == 200:  # the head was out
        check_error_inside(row, played.got)
        assert heard(row, played.got).text == ""
    else:
        check_first_error(played)
        assert played.got.header("x-agentstate-tried") is None
    assert played.calls == (asked_once(row), 0)
    assert played.step["state"] == "failed"
    (failed,) = played.attempts
    check_failed_attempt(row, failed)


# --- after content --------------------------------------------------------------------------------


def check_error_inside(row: Row, got: Reception) -> None:
    """A stream ended in an error event of its form, and nothing after it passes for its end."""
    assert row.streams
    assert got.ending in ("cut", "complete")
    read = heard(row, got)
    assert not read.is_whole
    assert read.error is not None
    assert row.caller.ends not in got.body
    if row.caller in (MESSAGES, RESPONSES):
        assert got.body.count(b"event: error\n") == 1


@by_name(SHOWN)
def test_a_stream_that_was_seen_is_never_switched(board: Board, row: Row) -> None:
    played = board.of(row)

    assert played.got.status == 200
    assert heard(row, played.got).text == PIECES[0]
    check_error_inside(row, played.got)
    assert played.calls == (1, 0)
    assert played.step["state"] == "failed"
    (failed,) = played.attempts
    check_failed_attempt(row, failed)


@by_name(SHOWN)
def test_a_stream_that_failed_is_asked_afresh(board: Board, row: Row) -> None:
    played = board.of(row)

    check_whole(row, played.again, is_replay=False)
    assert played.calls_again == (2, 0)
    assert [step["state"] for step in played.steps_again] == ["complete"]


# --- without a session ----------------------------------------------------------------------------


@by_name(FALLEN_BACK_BARE)
def test_another_target_answers_a_call_that_names_no_session(board: Board, row: Row) -> None:
    played = board.of(row)

    check_whole(row, played.got, is_replay=False)
    check_unmixed(played, row.target)
    assert played.got.header("x-agentstate-provider") == f"{row.target.name}2"
    assert played.got.header("x-agentstate-model") == row.name
    assert played.got.header("x-agentstate-attempts") == "2"
    assert played.got.header("x-agentstate-fallback-index") == "1"
    assert played.calls == (asked_once(row), 1)


@by_name(ALL_FAILED_BARE)
def test_where_nobody_answers_a_call_without_a_session_hears_of_the_first_target(
    board: Board, row: Row
) -> None:
    played = board.of(row)

    check_first_error(played)
    assert played.calls == (asked_once(row), 1)


@by_name(SHOWN_BARE)
def test_a_stream_without_a_session_that_was_seen_is_never_switched(board: Board, row: Row) -> None:
    played = board.of(row)

    assert played.got.status == 200
    assert heard(row, played.got).text == PIECES[0]
    check_error_inside(row, played.got)
    assert played.calls == (1, 0)


# --- connections ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [CHAT, MESSAGES], ids=lambda form: form.name)
def test_a_target_that_refuses_is_asked_again_until_it_listens(tmp_path: Path, form: Form) -> None:
    """Nothing tells when the first try was refused; but calls that began after it, and have ended,
    went the same way."""
    config = forward_toml(retries=10)
    once = (b"x-stainless-retry-count", b"1")
    model = f"{form.name}0/m"
    with closed_port() as kept, ThreadPoolExecutor(1) as pool:
        config += providers_toml(0, kept.getsockname()[1])
        (tmp_path / "agentstate.toml").write_text(config, encoding="utf-8")
        with Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db") as proxy:
            waiting = pool.submit(ask_model, proxy, form, model, session="patient")
            proxy.wait_for_steps("patient", lambda steps: len(steps) == 1)
            for number in range(2):
                got = ask_model(proxy, form, model, session=f"hasty-{number}", headers=(once,))
                assert got.status == 502
            answer_once(kept, json.dumps(form.whole("m", PIECES)).encode())
            answered = waiting.result()
            (step,) = proxy.settled_steps("patient")

    assert (answered.status, form.read(answered).text) == (200, TEXT)
    *refused, last = step["attempts"]
    assert refused
    assert {each["error_code"] for each in refused} == {NOBODY}
    assert (last["status"], last["ok"]) == (200, True)


def answer_once(kept: socket.socket, body: bytes) -> None:
    """Listen from now on, and answer one request."""
    kept.listen()
    kept.settimeout(TIMEOUT_S)
    peer, _ = kept.accept()
    with peer:
        peer.settimeout(TIMEOUT_S)
        seen = b""
        while b"\r\n\r\n" not in seen or not seen.endswith(b"}"):
            seen += peer.recv(65_536)
        peer.sendall(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
            b"content-length: %d\r\n\r\n%s" % (len(body), body)
        )


@pytest.mark.parametrize("form", [CHAT, MESSAGES, RESPONSES, GEMINI], ids=lambda form: form.name)
@pytest.mark.parametrize("streams", [False, True])
def test_a_reset_before_any_byte_is_retried(board: Board, form: Form, streams: bool) -> None:
    """A connection that was made ahead of its call may have gone stale, and then the call is sent
    once more within the same attempt: so it is one attempt or two."""
    rig, name = board.rig, f"reset-unanswered-{form.name}-{streams}"
    rig.first.put(name, UNANSWERED, form.answer(name, streams=streams))

    proxy = rig.proxies["retries"]
    got = ask_model(proxy, form, name, session=name, streams=streams)

    assert (got.status, form.read(got).text) == (200, TEXT)
    assert rig.first.count(name) == 2
    (step,) = proxy.settled_steps(name)
    *cut, last = step["attempts"]
    assert [each["error_code"] for each in cut] in ([], [CUT])
    assert (last["status"], last["ok"]) == (200, True)
