"""What our clients say of each call, seen by an upstream, with each version of OpenAI's client."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter, defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.environments import need_python
from tests.helpers.proxy import ROOT
from tests.helpers.upstream import Received, Reply, Upstream, json_reply, model_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

RESPONSE = {
    "id": "resp_1", "object": "response", "created_at": 1, "model": "m", "status": "completed",
    "output": [], "tools": [], "tool_choice": "auto", "parallel_tool_calls": True,
}  # fmt: skip
# The version of OpenAI's client and the environment that has it; "" = the tests' own.
VERSIONS = [("1.", "openai1"), ("2.", "frameworks"), ("3.", "")]


class Model(Upstream):
    """Answers anything; what begins with "flaky" fails the first time, with a reason to retry."""

    def __init__(self) -> None:
        super().__init__()
        self.failed: set[str] = set()

    def reply_to(self, request: Received) -> Reply:
        if request.method == "GET":
            return json_reply({"object": "list", "data": []})
        ask, prompt = request.json(), prompt_of(request)
        if prompt.startswith("flaky") and prompt not in self.failed:
            self.failed.add(prompt)
            return Reply(status=503, headers=((b"retry-after-ms", b"1"),), chunks=(b"{}",))
        if request.target.endswith("/embeddings"):
            vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
            return json_reply({"object": "list", "data": [vector], "model": "m", "usage": {}})
        if not request.target.endswith("/responses"):
            return model_reply(ask)
        if not ask.get("stream"):
            return json_reply(RESPONSE)
        return sse_reply([
            event("response.created", {"response": {**RESPONSE, "status": "in_progress"}}),
            event("response.completed", {"response": RESPONSE}),
        ])  # fmt: skip


def event(kind: str, fields: dict[str, Any]) -> bytes:
    data = json.dumps({"type": kind, "sequence_number": 0, **fields})
    return f"event: {kind}\ndata: {data}\n\n".encode()


def prompt_of(request: Received) -> str:
    ask = request.json()
    asked = ask["messages"][-1]["content"] if "messages" in ask else ask["input"]
    return str(asked[0] if isinstance(asked, list) else asked)


def python_of(environment: str) -> Path:
    return need_python(environment) if environment else Path(sys.executable)


@cache
def sent_by(environment: str) -> list[Received]:
    """Run the calls in an environment; return all that the upstream got."""
    with Model() as upstream:
        done = subprocess.run(
            [str(python_of(environment)), "-m", "tests.e2e.agents.sdk_calls", f"{upstream.url}/v1"],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return upstream.received


@pytest.fixture(params=VERSIONS, ids=[version + "x" for version, _ in VERSIONS])
def sent(request: pytest.FixtureRequest) -> list[Received]:
    if not request.param[1]:
        pytest.importorskip("openai")
    return sent_by(request.param[1])


def by_prompt(sent: list[Received]) -> dict[str, list[Received]]:
    found = defaultdict(list)
    for request in sent:
        if request.method == "POST":
            found[prompt_of(request)].append(request)
    return found


def test_it_is_the_version_that_is_meant(sent: list[Received]) -> None:
    agents = {request.header("user-agent") for request in sent}
    versions = {str(agent).rpartition(" ")[2].partition(".")[0] for agent in agents}
    assert len(versions) == 1
    assert {str(agent).rpartition(" ")[0] for agent in agents} == {
        "OpenAI/Python", "AsyncOpenAI/Python"
    }  # fmt: skip


def test_the_calls_are_numbered_from_the_given_number_on(sent: list[Received]) -> None:
    asked = by_prompt(sent)
    for number in range(11, 20):
        [request] = asked[str(number)]
        assert request.header("x-agent-step-number") == str(number), request.target


def test_every_form_of_call_says_session_run_and_wishes(sent: list[Received]) -> None:
    mine = [request for request in sent if request.header("x-agent-session-id") == "calls"]
    assert len({request.header("x-agent-run-id") for request in mine}) == 1
    assert {request.header("x-agent-require-approval") for request in mine} == {"true"}
    assert {request.header("x-agent-tags") for request in mine} == {"team=ops"}
    assert {request.target for request in mine} == {
        "/v1/chat/completions", "/v1/responses", "/v1/embeddings", "/v1/models"
    }  # fmt: skip
    [copied] = by_prompt(sent)["18"]
    assert copied.header("x-own") == "1"


def test_a_call_has_one_id_in_all_its_tries_and_no_other_call_has_it(sent: list[Received]) -> None:
    asked = by_prompt(sent)
    for prompt, requests in asked.items():
        if prompt.startswith("flaky"):
            assert [each.header("x-stainless-retry-count") for each in requests] == ["0", "1"]
            assert len({each.header("x-agent-call-id") for each in requests}) == 1
            assert len({each.header("x-agent-step-number") for each in requests}) == 1
    tries = Counter(request.header("x-agent-call-id") for request in sent)
    assert tries.pop(None) == 1, "the list of models is no step"
    assert sum(tries.values()) - len(tries) == 1 + 10, "the retries"


def test_what_a_call_says_itself_stands(sent: list[Received]) -> None:
    asked = by_prompt(sent)
    [own], [other] = asked["own"], asked["other"]
    assert own.header("x-agent-step-number") == "99"
    assert own.header("x-agent-session-id") == "calls"
    assert other.header("x-agent-session-id") == "other"
    assert other.header("x-agent-step-number") is None, "a number of this session"
    assert other.header("x-agent-tags") is None, "said of this session"
    assert other.header("x-agent-require-approval") == "true"
    assert other.header("x-agent-call-id")


def test_threads_share_one_numbering(sent: list[Received]) -> None:
    numbers = [request.header("x-agent-step-number") for request in by_prompt(sent)["thread"]]
    assert sorted(int(str(number)) for number in numbers) == list(range(20, 60))


def test_tasks_share_one_numbering(sent: list[Received]) -> None:
    mine = [request for request in sent if request.header("x-agent-session-id") == "tasks"]
    numbers = {int(str(request.header("x-agent-step-number"))) for request in mine}
    assert numbers == set(range(20))
    assert {request.header("x-agent-run-id") for request in mine} == {"life-2"}
    assert {request.header("x-agent-fallback-model") for request in mine} == {"a,b"}
