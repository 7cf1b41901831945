"""A real agent loop that comes to the caps of its budget: held, refused, let go on, raised.

The upstream never answers twice alike, so what comes again comes from the record. Each run is the
same with the proxy stopped, and with it killed, between any two verbs.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

import pytest

from tests.helpers.people import approve, decide, list_pending, wait_for_pending
from tests.helpers.proxy import Proxy
from tests.helpers.services import Service
from tests.helpers.upstream import CountingUpstream, Received, Reply, json_reply, model_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

Between = Literal["nothing", "stop", "kill"]
SESSION = "run/1"
WAIT_S = 30.0
MODEL = "gpt-4o-mini"  # it has a price
ENV = {"AGENTSTATE_GATE_HEARTBEAT_S": "0.2"}
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Moody(CountingUpstream):
    """Answers the n-th call as no other; with tools it asks for the same one for ever, with the
    arguments written now so, now so."""

    @property
    def paid(self) -> int:
        """How many calls were answered."""
        return sum(self.counts.values())

    def reply_to(self, request: Received) -> Reply:
        super().reply_to(request)
        body = request.json()
        if "tools" not in body:
            return model_reply(body | {"seed": self.paid}, words=3)
        written = '{"a": 1, "b": 2}' if self.paid % 2 else '{"b":2,"a":1}'
        function = {"name": "look", "arguments": written}
        call = {"id": f"call_{self.paid}", "type": "function", "function": function}
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        usage = {"prompt_tokens": 9, "completion_tokens": 3, "total_tokens": 12}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls"}
        head = {"id": f"c{self.paid}", "object": "chat.completion", "created": 1, "model": MODEL}
        return json_reply({**head, "choices": [choice], "usage": usage})


class Rig:
    """The proxy, the model behind it, and what a person does to a run."""

    def __init__(self, proxy: Proxy, upstream: Moody, between: Between) -> None:
        self.proxy = proxy
        self.upstream = upstream
        self._between = between
        self.answered = 0  # calls of the agent that runs now

    def come_back(self) -> None:
        """Do to the proxy what this run is about."""
        if self._between == "stop":
            self.proxy.stop()
            self.proxy.start()
        elif self._between == "kill":
            self.proxy.restart()

    def set_budget(self, **caps: Any) -> dict[str, Any]:
        """Set caps of the run, and have the proxy come back after it."""
        connection = http.client.HTTPConnection(*self.proxy.address, timeout=WAIT_S)
        path = f"/api/sessions/{quote(SESSION, safe='')}/budget"
        try:
            connection.request("POST", path, json.dumps(caps), {"content-type": "application/json"})
            response = connection.getresponse()
            found: dict[str, Any] = json.loads(response.read())
            assert response.status == 200, found
        finally:
            connection.close()
        self.come_back()
        return found

    def shown(self) -> dict[str, Any]:
        found = self.proxy.maybe_session(SESSION)
        assert found is not None
        return found

    def status(self) -> str:
        return str(self.shown()["session"]["status"])

    def live(
        self, steps: int, headers: Mapping[str, str] | None = None, *, model: str = MODEL
    ) -> list[str]:
        """Run the agent from its beginning; return all it was told."""
        told: list[str] = []
        self.answered = 0
        messages: list[dict[str, Any]] = [{"role": "system", "content": "You are terse."}]
        with client_of(self.proxy, headers) as client:
            for step in range(steps):
                messages.append({"role": "user", "content": f"What comes at {step}?"})
                create: Any = client.chat.completions.create
                if step % 2:
                    stream = create(
                        model=model,
                        messages=messages,
                        stream=True,
                        stream_options={"include_usage": True},
                    )
                    text = "".join(
                        choice.delta.content or "" for chunk in stream for choice in chunk.choices
                    )
                else:
                    text = create(model=model, messages=messages).choices[0].message.content
                messages.append({"role": "assistant", "content": text})
                told.append(text)
                self.answered = step + 1
        return told

    def loop(self, steps: int, headers: Mapping[str, str] | None = None) -> int:
        """Run an agent whose model asks for the same tool for ever; return how often it did."""
        self.answered = 0
        messages: list[dict[str, Any]] = [{"role": "user", "content": "Look."}]
        with client_of(self.proxy, headers) as client:
            create: Any = client.chat.completions.create
            for _ in range(steps):
                message = create(model=MODEL, messages=messages, tools=[TOOL]).choices[0].message
                messages.append(message.model_dump(exclude_none=True))
                call = message.tool_calls[0].id
                messages.append({"role": "tool", "tool_call_id": call, "content": "nothing new"})
                self.answered += 1
        return self.answered


def client_of(proxy: Proxy, headers: Mapping[str, str] | None) -> Any:
    """Return OpenAI's client, with patience."""
    import openai

    return openai.OpenAI(
        base_url=proxy.base_url,
        api_key="sk-test",
        max_retries=8,
        timeout=WAIT_S,
        default_headers={"x-agent-session-id": SESSION, **(headers or {})},
    )


@contextmanager
def rig_of(tmp_path: Path, between: Between = "nothing", **env: str) -> Iterator[Rig]:
    """Start a proxy with these settings of [budget], or others by their whole name."""
    settings = {
        name if name.isupper() else f"AGENTSTATE_BUDGET_{name.upper()}": value
        for name, value in env.items()
    }
    with (
        Moody() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "r.db", env=ENV | settings) as proxy,
    ):
        yield Rig(proxy, upstream, between)


@contextmanager
def beside(work: Callable[[], Any]) -> Iterator[list[Any]]:
    """Run something in a thread; the list gets what it returns, at the end."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    yield found
    thread.join(WAIT_S)
    assert not thread.is_alive(), "it did not end"


@pytest.fixture(params=["nothing", "stop", "kill"])
def between(request: pytest.FixtureRequest) -> Between:
    pytest.importorskip("openai")
    way: Between = request.param
    return way


def test_held_at_a_cap_it_goes_on_as_far_as_people_let_it(tmp_path: Path, between: Between) -> None:
    with rig_of(tmp_path, between, steps="4") as rig:
        with beside(lambda: rig.live(12)) as told:
            [question] = wait_for_pending(rig.proxy)
            assert (rig.answered, rig.upstream.paid) == (4, 4)
            assert (question["kind"], question["tool"]) == ("budget", "budget.steps")
            assert question["why"] == "4 of 4 paid steps are used"
            assert rig.status() == "WAITING"
            rig.come_back()  # its client asks again, and meets the same question
            [again] = wait_for_pending(rig.proxy)
            assert again["approval_id"] == question["approval_id"]
            approve(rig.proxy)  # as much again

            [question] = wait_for_pending(rig.proxy)
            assert (rig.answered, rig.upstream.paid) == (8, 8)
            rig.come_back()
            approve(rig.proxy, arguments={"more": 1})

            wait_for_pending(rig.proxy)
            assert (rig.answered, rig.upstream.paid) == (9, 9)
            stands = rig.set_budget(steps=20, by="ann")["budget"]  # who waits goes on by it
            assert stands["caps"]["steps"]["from"] == "person"
        assert len(told[0]) == 12
        paid = rig.upstream.paid
        # What was in flight when the proxy was killed may be paid twice.
        assert paid == 12 or (between == "kill" and paid == 13)
        assert list_pending(rig.proxy) == []
        rig.come_back()
        caps = rig.shown()["budget"]["caps"]["steps"]
        assert (caps["cap"], caps["used"], caps["left"]) == (20, 12, 8)
        assert rig.live(12) == told[0]  # a resumed agent pays nothing
        assert rig.upstream.paid == paid


def test_refused_at_a_cap_a_run_replays_for_nothing_up_to_its_first_new_call(
    tmp_path: Path, between: Between
) -> None:
    import openai

    with rig_of(tmp_path, between, steps="4", action="refuse") as rig:
        for _ in range(3):
            with pytest.raises(openai.RateLimitError) as refused:
                rig.live(9)
            assert (rig.answered, rig.upstream.paid) == (4, 4)
            response = refused.value.response
            assert refused.value.code == "budget_reached"
            assert response.headers["x-should-retry"] == "false"
            assert "retry-after" not in response.headers
            assert "4 of 4 paid steps are used" in refused.value.message
            rig.come_back()
        session = rig.shown()["session"]
        assert (session["steps"], session["status"]) == (4, "FAILED")
        assert session["status_reason"] == "4 of 4 paid steps are used"
        if between != "kill":  # which takes back what was written behind
            assert session["replays"] == 8

        rig.set_budget(steps=6)
        with pytest.raises(openai.RateLimitError):
            rig.live(9)
        assert rig.upstream.paid == 6
        rig.set_budget(clear=True, action="hold")
        with beside(lambda: rig.live(9)) as told:
            wait_for_pending(rig.proxy)
            rig.come_back()
            approve(rig.proxy)
        assert len(told[0]) == 9
        assert rig.upstream.paid == 9


@pytest.mark.parametrize(
    ("said", "paid"),
    [
        ("steps=3", 3),
        ("tokens=100", 3),  # 26, 36, 46 tokens: the third goes over, the fourth is refused
        ("cost_usd=0.000010", 2),
        ("steps=9,tokens=1", 1),
        ("steps=0", 0),
    ],
)
def test_an_agent_sets_its_own_caps(tmp_path: Path, between: Between, said: str, paid: int) -> None:
    import openai

    with rig_of(tmp_path, between) as rig:
        headers = {"x-agent-budget": f"{said},action=refuse"}
        with pytest.raises(openai.RateLimitError):
            rig.live(9, headers)
        assert rig.upstream.paid == paid
        rig.come_back()
        if paid:
            assert {row["from"] for row in rig.shown()["budget"]["caps"].values()} == {"header"}
            with pytest.raises(openai.RateLimitError):
                rig.live(9)  # it need not say it again
        with pytest.raises(openai.RateLimitError):
            rig.live(9, headers)
        assert rig.upstream.paid == paid


def test_an_agent_in_a_loop_is_stopped_and_let_go_on(tmp_path: Path, between: Between) -> None:
    with rig_of(tmp_path, between, repeats="3") as rig:
        with beside(lambda: rig.loop(7)) as told:
            [question] = wait_for_pending(rig.proxy)
            assert question["why"] == (
                "the model asked for the same 3 times in a row; 3 are allowed"
            )
            assert (rig.answered, rig.upstream.paid) == (3, 3)
            rig.come_back()
            approve(rig.proxy)
            wait_for_pending(rig.proxy)
            assert (rig.answered, rig.upstream.paid) == (6, 6)
            approve(rig.proxy)
        assert told == [7]
        rig.come_back()
        assert rig.loop(7) == 7
        assert rig.upstream.paid == 7


def test_a_rejection_stands_until_the_budget_is_changed(tmp_path: Path, between: Between) -> None:
    import openai

    with rig_of(tmp_path, between, steps="2") as rig:

        def run() -> str:
            with pytest.raises(openai.PermissionDeniedError) as refused:
                rig.live(5)
            return str(refused.value.code)

        with beside(run) as told:
            [question] = wait_for_pending(rig.proxy)
            decide(rig.proxy, question["approval_id"], "REJECTED", reason="enough", by="ann")
        assert told == ["human_rejection"]
        rig.come_back()
        session = rig.shown()["session"]
        assert (session["status"], session["status_by"]) == ("FAILED", "ann")
        assert session["status_reason"] == "budget.steps was rejected: enough"
        assert run() == "human_rejection"  # nobody is asked again
        assert list_pending(rig.proxy) == []
        assert (rig.upstream.paid, rig.shown()["session"]["status"]) == (2, "FAILED")
        rig.set_budget(steps=5)
        assert len(rig.live(5)) == 5
        assert rig.status() == "RUNNING"


def test_an_agent_that_died_while_it_was_held_goes_on_when_it_is_back(
    tmp_path: Path, between: Between
) -> None:
    with rig_of(tmp_path, between, steps="2") as rig:
        rig.live(2)
        connection = http.client.HTTPConnection(*rig.proxy.address, timeout=WAIT_S)
        body = {"model": MODEL, "messages": [{"role": "user", "content": "and then?"}]}
        headers = {"x-agent-session-id": SESSION, "content-type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        [question] = wait_for_pending(rig.proxy)
        connection.close()  # as a kill of the agent does
        rig.come_back()
        assert rig.status() == "WAITING"
        approve(rig.proxy)  # while nobody is there
        assert rig.upstream.paid == 2 or between == "nothing"  # where it lives, its call goes on
        rig.come_back()
        assert len(rig.live(3)) == 3
        assert rig.shown()["session"]["status"] == "RUNNING"
        assert question["session"] == SESSION


def test_a_question_that_nobody_decides_expires_and_is_asked_again(
    tmp_path: Path, between: Between
) -> None:
    import openai

    with rig_of(tmp_path, between, steps="1", AGENTSTATE_GATE_TIMEOUT_S="0.5") as rig:
        with pytest.raises(openai.APIError, match="Nobody decided in time") as late:
            rig.live(2)  # in the stream that has begun
        assert late.value.code == "approval_timeout"
        [row] = list_pending(rig.proxy)
        assert row["status"] == "EXPIRED"
        rig.come_back()
        assert rig.status() == "RUNNING"
        with beside(lambda: rig.live(2)) as told:
            until_s = time.perf_counter() + WAIT_S
            while (rows := list_pending(rig.proxy))[0]["status"] != "PENDING":
                assert time.perf_counter() < until_s
                time.sleep(0.01)
            assert [one["approval_id"] for one in rows] == [row["approval_id"]]
            decide(rig.proxy, row["approval_id"])
        assert len(told[0]) == 2


def test_calls_that_are_held_at_once_are_one_question(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with rig_of(tmp_path, steps="1") as rig:
        rig.live(1)

        def call(number: int) -> str:
            with client_of(rig.proxy, {}) as client:
                create: Any = client.chat.completions.create
                ask = [{"role": "user", "content": f"lane {number}"}]
                return str(create(model=MODEL, messages=ask).choices[0].message.content)

        with beside(lambda: call(1)) as one, beside(lambda: call(2)) as two:
            rig.proxy.wait_for_steps(SESSION, lambda steps: len(steps) == 3)
            wait_for_pending(rig.proxy, 1)
            assert rig.upstream.paid == 1
            approve(rig.proxy, arguments={"more": 2})
        assert one[0] != two[0]
        assert rig.upstream.paid == 3


def test_it_is_told_once_that_a_cap_is_reached(tmp_path: Path, between: Between) -> None:
    import openai

    with Service("json") as service:
        env = {"WEBHOOK_URL": service.hook_url}
        with rig_of(tmp_path, between, steps="1", action="refuse", **env) as rig:
            for _ in range(3):
                with pytest.raises(openai.RateLimitError):
                    rig.live(3)
                # What is on its way when the proxy is killed waits for its lease, a minute.
                service.wait_for_requests(2)
                rig.come_back()
            rig.set_budget(steps=2)
            with pytest.raises(openai.RateLimitError):
                rig.live(3)
            service.wait_for_requests(4)
        told = [one.json() for one in service.received]
    kinds = sorted(one["type"] for one in told)
    assert kinds == ["budget.reached", "budget.reached", "session.failed", "session.failed"]
    reached = [one["data"] for one in told if one["type"] == "budget.reached"]
    facts = [one["facts"] for one in reached]
    assert [(one["cap"], one["limit"], one["used"], one["action"]) for one in facts] == [
        ("steps", 1, 1, "refuse"),
        ("steps", 2, 2, "refuse"),
    ]
    assert {one["session"] for one in reached} == {SESSION}


def test_a_cap_on_cost_says_what_it_cannot_see(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with rig_of(tmp_path, cost_usd="0.000001", action="refuse") as rig:
        rig.live(3, model="a-model-without-a-price")
        budget = rig.shown()["budget"]
        assert budget["used"]["unknown_costs"] == 3
        assert budget["note"] == "the cost of 3 answers is not known and counts for no cap"
        assert "budget.cost_usd does not count them" in rig.proxy.log_tail()


def test_a_higher_setting_closes_what_was_asked_at_the_lower_one(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with rig_of(tmp_path, steps="1") as rig:
        with beside(lambda: rig.live(2)) as told:
            wait_for_pending(rig.proxy)
            rig.proxy.kill()
            rig.proxy._env["AGENTSTATE_BUDGET_STEPS"] = "5"
            rig.proxy.start()
        assert len(told[0]) == 2
        assert list_pending(rig.proxy) == []
        assert rig.status() == "RUNNING"
