"""SIGHUP to a real proxy: policy and webhooks are read again, and nothing else is touched."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.cases.held import Asking, put_on_hold
from tests.helpers.people import approve, list_pending, reject, wait_for_pending
from tests.helpers.proxy import POLL_S, WAIT_TIMEOUT_S, Proxy
from tests.helpers.raw_client import Reception, ask, render_request
from tests.helpers.services import TOKEN, Service
from tests.helpers.upstream import Gate, Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
HEADERS = (b"content-type", b"application/json")
GUARDS_MAIL = '[gate]\ntools = ["send_email"]\nheartbeat_s = 0.2\n'
GUARDS_MONEY = '[gate]\ntools = ["wire_money"]\nheartbeat_s = 0.2\n'
ALLOWS_MAIL = '[[gate.rule]]\ntool = "send_email"\naction = "allow"\n'
ENV = {"AGENTSTATE_FORWARD_RETRIES": "0"}


class Rig:
    """A proxy with a configuration file, and the upstream behind it."""

    def __init__(self, proxy: Proxy, upstream: Upstream, config: Path) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self.config = config

    def hang_up(self, text: str | None, said: str = "reloaded: ") -> str:
        """Write another configuration (None = remove it), send SIGHUP, and wait until the log says
        so; return what it said since."""
        before = self.proxy.log_path.stat().st_size
        if text is None:
            self.config.unlink()
        else:
            self.config.write_text(text, encoding="utf-8")
        os.kill(self.proxy.pid, signal.SIGHUP)
        until = time.monotonic() + WAIT_TIMEOUT_S
        while said not in (log := self.proxy.log_path.read_bytes()[before:].decode()):
            assert self.proxy.is_running, f"SIGHUP ended it: {log}"
            assert time.monotonic() < until, f"the log does not say {said!r}: {log}"
            time.sleep(POLL_S)
        return log

    def call(self, session: str, **body: Any) -> Reception:
        """Ask for a completion and read all of it."""
        return ask(self.proxy.address, "POST", PATH, *_request(session, **body))

    def asking(self, session: str, **body: Any) -> Asking:
        """The same on a thread."""
        headers, raw = _request(session, **body)
        return Asking(
            self.proxy.address, render_request("POST", PATH, self.proxy.address, headers, raw)
        )

    def settings(self) -> Any:
        """Return what the API shows as configured."""
        return json.loads(self.proxy.get("/api/settings")[1])


def _request(session: str, **body: Any) -> tuple[tuple[tuple[bytes, bytes], ...], bytes]:
    asked = {"model": "m", "messages": [{"role": "user", "content": "go"}], **body}
    return (HEADERS, (b"x-agent-session-id", session.encode())), json.dumps(asked).encode()


def completion(tool: str) -> dict[str, Any]:
    """Return an answer that calls a tool."""
    call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    return {"id": "c", "object": "chat.completion", "created": 1, "model": "m", "choices": [choice]}


SAID: dict[str, Any] = {
    **completion("none"),
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "all right then"},
            "finish_reason": "stop",
        }
    ],
}


def stream_of(tool: str) -> list[bytes]:
    """Return the same as events: the call, its end, and the end of all."""
    call = {"id": "c", "type": "function", "function": {"name": tool, "arguments": "{}"}}
    deltas: list[tuple[dict[str, Any], str | None]] = [
        ({"role": "assistant", "tool_calls": [{"index": 0, **call}]}, None),
        ({}, "tool_calls"),
    ]
    head = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]}
        for delta, reason in deltas
    ]
    return [*(f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks), b"data: [DONE]\n\n"]


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    config = tmp_path / "agentstate.toml"
    config.write_text(GUARDS_MAIL, encoding="utf-8")
    with (
        Upstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "r.db", env=ENV) as proxy,
    ):
        yield Rig(proxy, upstream, config)


def test_a_tool_that_was_put_under_guard_is_held_at_the_next_call(rig: Rig) -> None:
    rig.upstream.load([json_reply(completion("wire_money"))] * 2)

    assert rig.call("before").status == 200
    log = rig.hang_up(GUARDS_MONEY)
    with rig.asking("after") as asking:
        approve(rig.proxy, session="after")
        assert asking.ended().status == 200

    assert "gate.tools = wire_money" in log
    assert list_pending(rig.proxy) == []


def test_an_answer_on_record_meets_the_new_policy_at_its_replay(rig: Rig) -> None:
    rig.upstream.load([json_reply(completion("wire_money"))])
    assert rig.call("s").status == 200
    assert rig.call("s").header("x-agentstate-cache-hit") == "true"

    rig.hang_up(GUARDS_MONEY)
    with rig.asking("s") as asking:
        approve(rig.proxy, session="s")
        got = asking.ended()

    assert (got.status, got.header("x-agentstate-cache-hit")) == (200, "true")
    assert len(rig.upstream.received) == 1


def test_a_rule_that_is_added_refuses_and_one_that_is_gone_lets_go(rig: Rig) -> None:
    rig.upstream.load([json_reply(completion("wire_money"))] * 2)
    denies = '[[gate.rule]]\ntool = "wire_*"\naction = "deny"\nreason = "not on fridays"\n'

    rig.hang_up(denies)
    refused = rig.call("a")
    rig.hang_up(GUARDS_MAIL)

    assert (refused.status, b"not on fridays" in refused.body) == (403, True)
    assert rig.call("b").status == 200


def test_a_webhook_that_is_added_is_told_and_one_that_is_gone_is_not(rig: Rig) -> None:
    with Service("json") as first, Service("json") as second:
        rig.hang_up(f"{GUARDS_MAIL}[[webhook]]\nname = 'ops'\nurl = '{first.hook_url}'\n")
        put_on_hold(rig.proxy, rig.upstream, "a", "send_email")
        first.wait_for_requests(1)
        log = rig.hang_up(f"{GUARDS_MAIL}[[webhook]]\nname = 'new'\nurl = '{second.hook_url}'\n")
        put_on_hold(rig.proxy, rig.upstream, "b", "send_email")
        [told] = second.wait_for_requests(1)
        listed = json.loads(rig.proxy.get("/api/webhooks")[1])

        assert told.json()["data"]["session"] == "b"
        assert len(first.received) == 1
        assert [row["name"] for row in listed] == ["new"]
        assert "webhooks = new" in log
        assert TOKEN not in rig.proxy.log_path.read_text() + json.dumps(rig.settings())


def test_a_webhook_that_moved_gets_what_waits_for_it(rig: Rig) -> None:
    with Service("json", [Reply(status=503)]) as broken, Service("json") as mended:
        rig.hang_up(f"{GUARDS_MAIL}[[webhook]]\nname = 'ops'\nurl = '{broken.hook_url}'\n")
        put_on_hold(rig.proxy, rig.upstream, "a", "send_email")
        broken.wait_for_requests(1)
        rig.hang_up(f"{GUARDS_MAIL}[[webhook]]\nname = 'ops'\nurl = '{mended.hook_url}'\n")

        [told] = mended.wait_for_requests(1)
        assert told.json()["data"]["session"] == "a"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[gate]\ntools = [\n", "agentstate.toml: is not TOML"),
        ('[gate]\ntool = ["x"]\n', "unknown key 'tool' in [gate]. Did you mean \"tools\"?"),
        ('[[gate.rule]]\nwhen = "args.n >"\n', "agentstate.toml:2: gate.rule.when"),
        ("[[webhook]]\nurl = 'env:NO_SUCH_NAME'\n", "NO_SUCH_NAME is not set"),
        (None, "agentstate.toml: there is no such file"),
    ],
    ids=["torn", "misspelled", "condition", "variable", "gone"],
)
def test_a_file_that_is_wrong_leaves_the_old_policy_in_force(
    rig: Rig, text: str | None, told: str
) -> None:
    log = rig.hang_up(text, "was not reloaded")
    put_on_hold(rig.proxy, rig.upstream, "s", "send_email")

    assert told in log
    assert "Mend it and send SIGHUP again." in log
    rig.hang_up(GUARDS_MONEY)  # and once it is right, it is taken


def test_what_takes_a_restart_is_named_and_stays(rig: Rig) -> None:
    text = GUARDS_MONEY + '[replay]\nmode = "off"\n[log]\nformat = "json"\n'
    log = rig.hang_up(text, "not reloaded: replay.mode")
    shown = rig.settings()
    values = {
        each["name"]: each["value"] for part in shown["sections"] for each in part["settings"]
    }

    assert "not reloaded: log.format (agentstate.toml:7) has changed; it takes a restart" in log
    assert "not reloaded: replay.mode (agentstate.toml:5) has changed; it takes a restart" in log
    assert (values["replay.mode"], values["gate.tools"]) == ("pinned", ["wire_money"])
    assert "replay.mode (agentstate.toml:5) has changed; it takes a restart" in shown["warnings"]


def test_a_held_call_lives_on_and_is_decided_after_it(rig: Rig) -> None:
    rig.upstream.load([json_reply(completion("send_email"))])
    with rig.asking("s") as asking:
        wait_for_pending(rig.proxy, session="s")
        rig.hang_up(GUARDS_MONEY)
        (row,) = list_pending(rig.proxy)
        approve(rig.proxy, session="s")
        got = asking.ended()

    assert (row["tool"], got.status) == ("send_email", 200)
    assert b"send_email" in got.body


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "body"])
@pytest.mark.parametrize("restarts", [True, False], ids=["restart", "reload"])
@pytest.mark.parametrize(
    "policy", [GUARDS_MONEY, "[gate]\ntools = []\n", ALLOWS_MAIL], ids=["other", "none", "allow"]
)
def test_a_refused_call_does_not_go_out_though_nothing_guards_it_any_more(
    rig: Rig, policy: str, restarts: bool, streams: bool
) -> None:
    """The model was told, and what it said then is all that the agent gets."""
    tool = {"name": "send_email", "parameters": {"type": "object"}}
    body = {"stream": streams, "tools": [{"type": "function", "function": tool}]}
    called = completion("send_email")
    rig.upstream.load(
        [sse_reply(stream_of("send_email")) if streams else json_reply(called), json_reply(SAID)]
    )
    with rig.asking("s", **body):
        wait_for_pending(rig.proxy, session="s")
    if restarts:
        rig.config.write_text(policy, encoding="utf-8")
        rig.proxy.restart()
    else:
        rig.hang_up(policy)
    reject(rig.proxy, session="s", then="continue")
    got = rig.call("s", **body)

    assert (got.status, got.ending) == (200, "complete")
    assert b"all right then" in got.body
    assert b"send_email" not in got.body


def test_a_stream_in_flight_ends_by_the_policy_it_began_with(rig: Rig) -> None:
    gate = Gate()
    rig.upstream.load([sse_reply(stream_of("wire_money"), gate=gate)])
    gate.open()
    with rig.asking("s", stream=True) as asking:
        until = time.monotonic() + WAIT_TIMEOUT_S
        while b"wire_money" not in asking.got.body:
            assert time.monotonic() < until, asking.got.body
            time.sleep(POLL_S)
        rig.hang_up(GUARDS_MONEY)
        gate.open(2)
        got = asking.ended()

    assert (got.status, got.ending) == (200, "complete")
    assert got.body.endswith(b"data: [DONE]\n\n")
    assert list_pending(rig.proxy) == []
    with rig.asking("s", stream=True) as again:  # but it is asked about before it goes out again
        wait_for_pending(rig.proxy, session="s")
        assert b"wire_money" not in again.wait_until_settled()


def test_a_guarded_stream_in_flight_is_held_though_nothing_guards_it_any_more(rig: Rig) -> None:
    gate = Gate()
    rig.upstream.load([sse_reply(stream_of("send_email"), gate=gate)])
    gate.open()
    with rig.asking("s", stream=True) as asking:
        rig.upstream.wait_for_requests(1)
        rig.hang_up(GUARDS_MONEY)
        gate.open(2)
        (row,) = wait_for_pending(rig.proxy, session="s")
        assert b"send_email" not in asking.wait_until_settled()
        approve(rig.proxy, session="s")
        assert b"send_email" in asking.ended().body
    assert row["tool"] == "send_email"


def test_many_hang_ups_in_a_row_leave_the_last_file_in_force(rig: Rig) -> None:
    for number in range(50):
        rig.config.write_text(f'[gate]\ntools = ["tool_{number}"]\n', encoding="utf-8")
        os.kill(rig.proxy.pid, signal.SIGHUP)

    log = rig.hang_up(GUARDS_MONEY, "gate.tools = wire_money")
    with closing(sqlite3.connect(rig.config.with_name("r.db"))) as connection:
        assert connection.execute("pragma quick_check").fetchone() == ("ok",)
    assert "Traceback" not in log
