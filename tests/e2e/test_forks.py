"""A real agent loop on both sides of each verb: forked, gone on with in the fork, deleted.

The upstream never answers twice alike, so what comes again comes from the record. Each run is the
same with the proxy stopped, and with it killed, between any two verbs.
"""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.e2e.test_control import WAIT_S, Between, Moody, ask, beside
from tests.helpers.people import decide, list_pending, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Gate, Received, Reply, json_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

SESSION = "run/1"
STEPS = 50
BEFORE = 20
ENV = {"AGENTSTATE_GATE_TOOLS": "send_email", "AGENTSTATE_GATE_HEARTBEAT_S": "0.2"}
SEND = {
    "type": "function",
    "function": {
        "name": "send_email",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}


class Model(Moody):
    """As `Moody`; asked to "mail" it calls the guarded tool, asked to "wait" it waits."""

    def __init__(self) -> None:
        super().__init__()
        self.patience = Gate()

    def reply_to(self, request: Received) -> Reply:
        reply = super().reply_to(request)
        body = request.json()
        match body["messages"][-1]["content"]:
            case "wait":
                return replace(reply, gate=self.patience)
            case "mail them":
                return mail(is_stream=bool(body.get("stream")))
            case _:
                return reply


def mail(*, is_stream: bool) -> Reply:
    """Return an answer that calls the guarded tool."""
    call = {
        "id": "call_mail",
        "type": "function",
        "function": {"name": "send_email", "arguments": '{"to": "a@example.org"}'},
    }
    head = {"id": "chatcmpl-mail", "created": 1, "model": "m"}
    if is_stream:
        deltas: list[tuple[dict[str, Any], str | None]] = [
            ({"role": "assistant", "content": ""}, None),
            ({"tool_calls": [{"index": 0, **call}]}, None),
            ({}, "tool_calls"),
        ]
        frames = [
            {
                **head,
                "object": "chat.completion.chunk",
                "choices": [{"index": 0, "delta": delta, "finish_reason": reason}],
            }
            for delta, reason in deltas
        ]
        raw = [f"data: {json.dumps(frame)}\n\n".encode() for frame in frames]
        return sse_reply([*raw, b"data: [DONE]\n\n"])
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
    usage = {"prompt_tokens": 5, "completion_tokens": 2, "total_tokens": 7}
    return json_reply({**head, "object": "chat.completion", "choices": [choice], "usage": usage})


class Rig:
    """The proxy, the model behind it, and what a person does to a run."""

    def __init__(self, proxy: Proxy, upstream: Model, between: Between) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self._between = between

    def come_back(self) -> None:
        """Do to the proxy what this run is about."""
        if self._between == "stop":
            self.proxy.stop()
            self.proxy.start()
        elif self._between == "kill":
            self.proxy.restart()

    def verb(self, method: str, path: str, value: Any, session: str = SESSION) -> dict[str, Any]:
        """Do something to a run, and have the proxy come back after it."""
        found = ask(self.proxy, method, f"/api/sessions/{quote(session, safe='')}{path}", value)
        self.come_back()
        return dict(found)

    def live(
        self,
        session: str = SESSION,
        steps: int = STEPS,
        *,
        run_id: str | None = None,
        number: int | None = None,
        clock: str = "",
    ) -> list[Any]:
        """Run the agent from its beginning; return all it was told. `number`: the step number that
        it sends with every call; None = it counts."""
        import openai

        told: list[Any] = []
        system = f"You are terse.{clock}"
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}]
        with openai.OpenAI(
            base_url=self.proxy.base_url,
            api_key="sk-test",
            max_retries=8,
            timeout=WAIT_S,
            default_headers={"x-agent-session-id": session},
        ) as client:
            for step in range(steps):
                headers = {"x-agent-step-number": str(step if number is None else number)}
                if run_id is not None:
                    headers["x-agent-run-id"] = run_id
                messages.append({"role": "user", "content": f"What comes at {step}?"})
                create: Any = client.chat.completions.create
                if step % 3 == 1:
                    stream = create(
                        model="m",
                        messages=messages,
                        stream=True,
                        stream_options={"include_usage": True},
                        extra_headers=headers,
                    )
                    text = "".join(
                        choice.delta.content or "" for chunk in stream for choice in chunk.choices
                    )
                else:
                    answer = create(model="m", messages=messages, extra_headers=headers)
                    text = answer.choices[0].message.content
                messages.append({"role": "assistant", "content": text})
                told.append(text)
        return told

    def mailing(self, session: str, *, streams: bool = False) -> tuple[int, str]:
        """Ask the model to send a mail; return the status and all that came."""
        body = {
            "model": "m",
            "stream": streams,
            "tools": [SEND],
            "messages": [{"role": "user", "content": "mail them"}],
        }
        return self.call(session, body)

    def call(self, session: str, body: dict[str, Any]) -> tuple[int, str]:
        """Make one call; return its status and body."""
        connection = http.client.HTTPConnection(self.proxy.host, self.proxy.port, timeout=WAIT_S)
        headers = {"content-type": "application/json", "x-agent-session-id": session}
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
            response = connection.getresponse()
            try:
                return response.status, response.read().decode()
            except http.client.IncompleteRead as cut:
                return response.status, cut.partial.decode()
        finally:
            connection.close()


@pytest.fixture(params=["nothing", "stop", "kill"])
def rig(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rig]:
    pytest.importorskip("openai")
    with (
        Model() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ENV) as proxy,
    ):
        yield Rig(proxy, upstream, request.param)


def test_forked_at_20_of_50_it_pays_for_30_and_neither_run_touches_the_other(rig: Rig) -> None:
    first = rig.live()
    assert rig.upstream.paid == STEPS
    rig.come_back()
    fork = rig.verb("POST", "/fork", {"step_number": BEFORE, "by": "ann"})["session"]
    assert fork["session"] == "run/1-fork-1"
    assert fork["forked_from"]["shared_steps"] == BEFORE
    assert (fork["steps"], fork["output_tokens"]) == (BEFORE, 0)

    second = rig.live(fork["session"])
    assert rig.upstream.paid == 2 * STEPS - BEFORE
    assert second[:BEFORE] == first[:BEFORE]
    assert not set(second[BEFORE:]) & set(first[BEFORE:])
    rig.come_back()
    assert rig.live() == first
    assert rig.upstream.paid == 2 * STEPS - BEFORE

    rig.verb("POST", "/reset", {"index": 0})
    gone = rig.verb("DELETE", "", {"by": "ann"})
    assert (gone["is_deleted"], gone["forks"]) == (True, ["run/1-fork-1"])
    assert rig.proxy.maybe_session(SESSION) is None
    assert rig.live(fork["session"]) == second
    assert rig.upstream.paid == 2 * STEPS - BEFORE

    third = rig.live(steps=3)  # an agent of that name begins anew
    assert not set(third) & set(first)
    shown = rig.proxy.maybe_session(SESSION)
    assert shown is not None
    assert shown["session"]["steps"] == 3
    shown = rig.proxy.maybe_session(fork["session"])
    assert shown is not None
    assert shown["session"]["output_tokens"] == 3 * (STEPS - BEFORE)


@pytest.mark.parametrize(
    "how",
    [{"number": 1}, {"run_id": "r2", "clock": " It is 2026-11-30T10:00:00Z."}, {"run_id": "r1"}],
    ids=["one number", "another run", "the same run"],
)
def test_an_agent_replays_what_its_fork_shares(rig: Rig, how: dict[str, Any]) -> None:
    recorded = {**how, **({"run_id": "r1"} if "run_id" in how else {})}
    first = rig.live(steps=8, **recorded)
    fork = rig.verb("POST", "/fork", {"index": 5, "session": "mine"})["session"]
    assert fork["forked_from"]["shared_steps"] == 5
    paid = rig.upstream.paid
    second = rig.live("mine", 8, **how)
    assert second[:5] == first[:5]
    assert rig.upstream.paid == paid + 3


@pytest.mark.parametrize("streams", [False, True])
def test_an_approval_is_no_authority_in_a_fork_and_a_person_is_asked_once(
    rig: Rig, streams: bool
) -> None:
    with beside(lambda: rig.mailing(SESSION, streams=streams)) as told:
        [asked] = wait_for_pending(rig.proxy)
        decide(
            rig.proxy, asked["approval_id"], action="APPROVED", by="ann", reason="it is fine",
            arguments={"to": "b@example.org"},
        )  # fmt: skip
    assert "b@example.org" in told[0][1]
    for name, inherits in (("mine", False), ("trusting", True)):
        value = {"session": name, "inherit_decisions": inherits}
        rig.verb("POST", "/fork", value)
    rig.verb("DELETE", "", {})
    assert rig.mailing("trusting", streams=streams)[1] == told[0][1]
    assert list_pending(rig.proxy) == []
    with beside(lambda: rig.mailing("mine", streams=streams)) as mine:
        [asked] = wait_for_pending(rig.proxy)
        for word in ("'run/1'", "approved by ann", "it is fine", "b@example.org"):
            assert word in asked["why"]
        assert asked["earlier"]["decided_by"] == "ann"
        decide(rig.proxy, asked["approval_id"], action="APPROVED", by="bob")
    assert mine[0] == told[0]  # as it went out there, edits and all
    rig.come_back()
    assert rig.mailing("mine", streams=streams) == told[0]
    assert list_pending(rig.proxy) == []
    assert rig.upstream.paid == 1


def test_a_rejection_in_a_fork_keeps_what_was_approved_there(rig: Rig) -> None:
    with beside(lambda: rig.mailing(SESSION)) as told:
        [asked] = wait_for_pending(rig.proxy)
        decide(
            rig.proxy, asked["approval_id"], action="APPROVED", arguments={"to": "b@example.org"}
        )
    rig.verb("POST", "/fork", {"session": "mine"})
    with beside(lambda: rig.mailing("mine")) as mine:
        [asked] = wait_for_pending(rig.proxy)
        decide(rig.proxy, asked["approval_id"], action="REJECTED", then="continue", reason="no")
    assert mine[0][0] == 200
    assert "example.org" not in mine[0][1]
    assert rig.mailing(SESSION) == told[0]


def test_deleted_while_a_person_is_asked_its_call_ends(rig: Rig) -> None:
    with beside(lambda: rig.mailing(SESSION)) as told:
        [asked] = wait_for_pending(rig.proxy)
        rig.verb("DELETE", "", {})
    assert list_pending(rig.proxy) == []
    status, found = told[0]
    if rig._between == "nothing":
        assert (status, json.loads(found)["error"]["code"]) == (410, "session_deleted")
    path = f"/api/approvals/{asked['approval_id']}/action"
    connection = http.client.HTTPConnection(rig.proxy.host, rig.proxy.port, timeout=WAIT_S)
    body = json.dumps({"action": "APPROVED"})
    connection.request("POST", path, body, {"content-type": "application/json"})
    assert connection.getresponse().status == 404
    connection.close()
    assert rig.proxy.maybe_session(SESSION) is None


def test_deleted_while_it_is_paused_its_held_call_ends(tmp_path: Path) -> None:
    with (
        Model() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ENV) as proxy,
    ):
        rig = Rig(proxy, upstream, "nothing")
        rig.call(SESSION, {"model": "m", "messages": [{"role": "user", "content": "first"}]})
        rig.verb("POST", "/pause", {})
        for streams in (False, True):
            body = {
                "model": "m",
                "stream": streams,
                "messages": [{"role": "user", "content": f"then {streams}"}],
            }
            with beside(lambda body=body: rig.call(SESSION, body)) as told:  # type: ignore[misc]
                time.sleep(0.6)  # some heartbeats: a stream has begun
                rig.verb("DELETE", "", {})
            assert "session_deleted" in told[0][1]
            rig.call(SESSION, {"model": "m", "messages": [{"role": "user", "content": "again"}]})
            rig.verb("POST", "/pause", {})
        assert upstream.paid == 3


def test_deleted_while_a_call_is_in_the_air_nothing_of_it_is_put_on_record(
    tmp_path: Path,
) -> None:
    with (
        Model() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ENV) as proxy,
    ):
        rig = Rig(proxy, upstream, "nothing")
        body = {"model": "m", "messages": [{"role": "user", "content": "wait"}]}
        with beside(lambda: rig.call(SESSION, body)) as told:
            upstream.wait_for_requests(1)
            rig.verb("DELETE", "", {})
            assert proxy.maybe_session(SESSION) is None
            upstream.patience.open(10)
        status, found = told[0]
        assert status == 200  # it was paid for
        text = json.loads(found)["choices"][0]["message"]["content"]
        assert proxy.maybe_session(SESSION) is None
        proxy.stop()
        assert text.encode() not in proxy.stored_bytes()
