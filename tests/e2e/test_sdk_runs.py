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
from tests.helpers.upstream import CountingUpstream

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


def throw(proxy: Proxy) -> None:
    async def main() -> None:
        client = agentstate.AsyncAgentStateOpenAI("dice", base_url=proxy.base_url, api_key="key")
        calls = (
            client.chat.completions.create(model="gpt-4o-mini", messages=SAY) for _ in range(EQUAL)
        )
        await asyncio.gather(*calls)

    asyncio.run(main())


def throw_with_langchain(proxy: Proxy) -> None:
    done = subprocess.run(
        [str(need_python("langchain")), "-c", LANGCHAIN, proxy.base_url],
        env={**os.environ, "PYTHONPATH": str(ROOT), "LANGSMITH_TRACING": "false"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
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
