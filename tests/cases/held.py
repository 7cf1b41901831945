"""Plays what waits at the gate: asks on a thread, looks at what the client has, then decides.

A held answer is looked at twice: while the question is pending, and at its end. The first look must
not come too early, for what leaks may still be on its way. So it waits for heartbeats that were
sent after the question was asked: on one connection they come after everything that went out
before a decision.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

from tests.cases.files import Case
from tests.helpers.people import decide, wait_for_pending
from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy
from tests.helpers.raw_client import (
    TIMEOUT_S,
    Address,
    Connection,
    Piece,
    Reception,
    render_request,
)
from tests.helpers.upstream import Upstream, json_reply

HEARTBEAT = re.compile(rb"^: held\n", re.MULTILINE)
HEARTBEAT_S = 10.0  # what the proxy does unless told otherwise; a case's `SCALE` shortens it
SETTLED_BEATS = 2  # the first may have been on its way when the question was asked

Row = dict[str, Any]  # an approval, as the API shows it


class Asking:
    """A request in the air, read on a thread of its own. Use with `with`: the end hangs up."""

    def __init__(self, address: Address, rendered: bytes, timeout_s: float = TIMEOUT_S) -> None:
        """Send it; `timeout_s` is how long its client bears to hear nothing."""
        self.got = Reception(time.perf_counter())
        self._connection = Connection(address, timeout_s=timeout_s)
        self._connection.send(rendered)
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with suppress(OSError):  # it has ended by itself
            self._connection.hang_up()
        self._thread.join()

    def wait_until_settled(self) -> bytes:
        """Wait until the client has all that comes before a decision; return it, as it came."""
        seen = len(HEARTBEAT.findall(self.got.body))
        until = time.monotonic() + WAIT_TIMEOUT_S
        while len(HEARTBEAT.findall(body := self.got.body)) < seen + SETTLED_BEATS:
            assert self._thread.is_alive(), f"it was not held: {body!r}"
            assert time.monotonic() < until, f"no heartbeat came: {body!r}"
            time.sleep(POLL_S)
        return body

    def ended(self) -> Reception:
        """Wait for its end and return what came."""
        self._thread.join()
        return self.got

    def _read(self) -> None:
        with self._connection as connection:
            connection.receive(self.got)


EXPORTS = ("export", "export_session")  # nothing to decide: the checks of `expect.export` do it


@dataclass(slots=True)
class Held:
    """A held request as it was seen."""

    questions: list[Row]  # pending, while the client had only `shown`
    shown: bytes  # heartbeats taken out
    got: Reception  # all of it, heartbeats too
    after_restart: list[Row] | None = None  # what is pending then; None = there was no restart


def question_count(case: Case) -> int:
    """Return how many questions the first request of a case leads to."""
    if not case.setup.get("sensitive_tools"):
        return 0
    return int(case.expect.get("approval", {}).get("created", 1))


def decisions_of(case: Case) -> list[dict[str, Any]]:
    """Return what is done while the first request of a case is held; [] = it is not."""
    then = [
        item
        for item in case.client.get("then", [])
        if "at" not in item and item.get("action") not in EXPORTS
    ]
    if "approve_after_ms" in case.setup:
        then.append({"action": "approve", "after_ms": case.setup["approve_after_ms"]})
    if question_count(case) > 0:
        return then
    is_plain_variant = case.setup.get("sensitive_tools") == []
    assert is_plain_variant or not then, f"nothing is asked that could be decided: {then}"
    return []


def play_held(
    case: Case,
    proxy: Proxy,
    session: str,
    rendered: bytes,
    decisions: Sequence[Mapping[str, Any]],
    *,
    count: int,
    timeout_s: float = TIMEOUT_S,
) -> Held:
    """Send a request that leads to `count` questions, decide, and return what was seen."""
    with Asking(proxy.address, rendered, timeout_s) as asking:
        questions = wait_for_pending(proxy, count, session=session)
        held = Held(questions, without_heartbeats(asking.wait_until_settled()), asking.got)
        for item in decisions:
            time.sleep(item.get("after_ms", 0) / 1000 * case.scale)  # the pace the case asks for
            if item["action"] == "restart_proxy":
                proxy.restart()
                held.after_restart = wait_for_pending(proxy, count, session=session)
            else:
                _decide(proxy, questions, item)
        asking.ended()
    return held


_DECISION_KEYS = {"action", "at", "same_request", "after_ms", "tool", "then", "args"}


def _decide(proxy: Proxy, questions: Sequence[Row], item: Mapping[str, Any]) -> None:
    decision = make_decision(item)
    meant = [row for row in questions if item.get("tool") in (None, row["tool"])]
    assert meant, f"nothing was asked about {item.get('tool')}"
    for row in meant:
        status, found = decide(proxy, row["approval_id"], **decision)
        assert status == 200, found


def make_decision(item: Mapping[str, Any]) -> dict[str, str]:
    """Return what a case's action is in the API."""
    assert not (unknown := set(item) - _DECISION_KEYS), f"no such decision: {unknown}"
    match item["action"]:
        case "approve":
            return {"action": "APPROVED"}
        case "approve_with_edited_args":
            return {"action": "APPROVED", "arguments": item["args"]}
        case "deny":
            return {"action": "REJECTED", "then": item["then"], "reason": "not today"}
        case other:
            raise AssertionError(f"no such action: {other}")


def put_on_hold(proxy: Proxy, upstream: Upstream, session: str, tool: str) -> str:
    """Have a call of a tool held, whose client then leaves; return the approval's id."""
    call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "m"}
    upstream.extend([json_reply({**head, "choices": [choice]})])
    headers = ((b"content-type", b"application/json"), (b"x-agent-session-id", session.encode()))
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    path = "/v1/chat/completions"
    rendered = render_request("POST", path, proxy.address, headers, body)
    with Asking(proxy.address, rendered):
        (row,) = wait_for_pending(proxy, session=session)
    return str(row["approval_id"])


def list_asked(proxy: Proxy, session: str) -> list[Row]:
    """Return every question of a session, decided or not."""
    status, body = proxy.get(f"/api/approvals?session={quote(session, safe='')}")
    assert status == 200, body
    found: list[Row] = json.loads(body)
    return found


def read_approval(proxy: Proxy, approval_id: str) -> tuple[Row, str]:
    """Return one approval, and the text it was shown in."""
    status, body = proxy.get(f"/api/approvals/{quote(approval_id, safe='')}")
    assert status == 200, body
    found: Row = json.loads(body)
    return found, body.decode()


def read_step(proxy: Proxy, session: str, index: int) -> dict[str, Any]:
    """Return one step whole."""
    status, body = proxy.get(f"/api/sessions/{quote(session, safe='')}/steps/{index}")
    assert status == 200, body
    found: dict[str, Any] = json.loads(body)
    return found


def without_heartbeats(body: bytes) -> bytes:
    """Take out what was sent only so that the client does not time out."""
    return HEARTBEAT.sub(b"", body)


def as_let_out(got: Reception) -> Reception:
    """Return a reception without its heartbeats."""
    pieces = [Piece(piece.at_s, without_heartbeats(piece.data)) for piece in got.pieces]
    return replace(got, pieces=[piece for piece in pieces if piece.data])
