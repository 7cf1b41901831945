"""What run and call ids are for: equal calls at once, and a client that does not wait."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import agentstate
from tests.helpers.environments import need_python
from tests.helpers.proxy import ROOT, Proxy
from tests.helpers.upstream import CountingUpstream, Received, Reply, json_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

EQUAL = 5
SAY: Any = [{"role": "user", "content": "Throw the dice."}]

LANGCHAIN = f"""
import sys
from langchain_openai import ChatOpenAI
from agentstate import wrap_langchain

wrapped = wrap_langchain(session_id="dice", base_url=sys.argv[1], api_key="key")
model = ChatOpenAI(model="gpt-4o-mini", **wrapped)
model.batch(["Throw the dice."] * {EQUAL})
"""


# Streams until something ends it; prints a line for each answer, with the tokens it counts.
SPENDER = """
import sys
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from agentstate import wrap_langchain, wrap_langchain_embeddings

at = {"base_url": sys.argv[1], "api_key": "key"}
vectors = OpenAIEmbeddings(check_embedding_ctx_length=False,
                           **wrap_langchain_embeddings("vectors", **at))
assert vectors.model_kwargs == {}
assert vectors.embed_query("primes") == [0.5]
model = ChatOpenAI(model="gpt-4o-mini", max_retries=0, **wrap_langchain("spender", **at))
for number in range(9):
    whole = None
    for chunk in model.stream(f"Throw {number}."):
        whole = chunk if whole is None else whole + chunk
    print(whole.usage_metadata["total_tokens"], flush=True)
"""


class Priced(CountingUpstream):
    """Answers like a model, and embeds anything as one number."""

    def reply_to(self, request: Received) -> Reply:
        if not request.target.endswith("/embeddings"):
            return super().reply_to(request)
        vector = {"object": "embedding", "index": 0, "embedding": [0.5]}
        return json_reply({"object": "list", "data": [vector], "model": "m", "usage": {}})


def throw(proxy: Proxy) -> None:
    async def main() -> None:
        client = agentstate.AsyncAgentStateOpenAI("dice", base_url=proxy.base_url, api_key="key")
        calls = (
            client.chat.completions.create(model="gpt-4o-mini", messages=SAY) for _ in range(EQUAL)
        )
        await asyncio.gather(*calls)

    asyncio.run(main())


def run_langchain(code: str, proxy: Proxy) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(need_python("langchain")), "-c", code, proxy.base_url],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def throw_with_langchain(proxy: Proxy) -> None:
    done = run_langchain(LANGCHAIN, proxy)
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("act", [throw, throw_with_langchain])
def test_equal_calls_at_once_are_calls_of_their_own_and_so_are_their_replays(
    act: Any, tmp_path: Path
) -> None:
    pytest.importorskip("openai")
    with (
        CountingUpstream(delay_s=0.05) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        act(proxy)
        assert len(proxy.settled_steps("dice")) == EQUAL
        proxy.restart()
        act(proxy)
        steps = proxy.settled_steps("dice")
        paid = list(upstream.counts.values())
    assert paid == [EQUAL]
    assert [step["replays"] for step in steps] == [1] * EQUAL
    assert sorted(step["step_number"] for step in steps) == list(range(EQUAL))


def test_a_client_that_does_not_wait_pays_once(tmp_path: Path) -> None:
    pytest.importorskip("openai")
    with (
        CountingUpstream(delay_s=1.0) as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        client = agentstate.AgentStateOpenAI(
            "hasty", base_url=proxy.base_url, api_key="key", timeout=0.3, max_retries=20
        )
        for _ in range(2):  # the second is another call, and waits as long
            client.chat.completions.create(model="gpt-4o-mini", messages=SAY)
        steps = proxy.settled_steps("hasty")
        paid = list(upstream.counts.values())
    assert paid == [2]
    assert [step["step_number"] for step in steps] == [0, 1]


def test_streams_of_langchain_say_what_they_used_and_come_to_a_cap_of_dollars(
    tmp_path: Path,
) -> None:
    env = {"AGENTSTATE_BUDGET_COST_USD": "0.00001", "AGENTSTATE_BUDGET_ACTION": "refuse"}
    with (
        Priced() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=env) as proxy,
    ):
        done = run_langchain(SPENDER, proxy)
        steps = proxy.settled_steps("spender")

    assert "budget.cost_usd of session 'spender' is reached" in done.stderr, done.stderr[-3000:]
    assert 0 < len(done.stdout.split()) == len(steps) < 9
    assert all(int(tokens) > 0 for tokens in done.stdout.split())
    assert all(step["cost_microusd"] for step in steps)
