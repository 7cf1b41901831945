"""Our clients are the real ones. What they send is for tests/e2e/test_sdk_calls.py."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.clients
openai = pytest.importorskip("openai")
anthropic = pytest.importorskip("anthropic")

import agentstate  # noqa: E402 - after the skip

CLIENTS: list[tuple[Any, Any]] = [
    (agentstate.AgentStateOpenAI, openai.OpenAI),
    (agentstate.AsyncAgentStateOpenAI, openai.AsyncOpenAI),
    (agentstate.AgentStateAnthropic, anthropic.Anthropic),
    (agentstate.AsyncAgentStateAnthropic, anthropic.AsyncAnthropic),
]


@pytest.mark.parametrize(("ours", "real"), CLIENTS)
def test_it_is_the_real_one_and_says_so(ours: Any, real: Any) -> None:
    client = ours(session_id="s", api_key="k")

    assert isinstance(client, real)
    assert client.user_agent.startswith(f"{real.__name__}/Python ")


@pytest.mark.parametrize(("ours", "real"), CLIENTS)
def test_a_copy_is_in_the_same_run(ours: Any, real: Any) -> None:
    client = ours(session_id="s", api_key="k", base_url="http://h:1/v1")

    for copy in (client.copy(timeout=3), client.with_options(max_retries=7)):
        assert type(copy) is ours
        assert (copy.session_id, copy.run_id) == ("s", client.run_id)
        assert copy.base_url == client.base_url
    assert client.with_options(max_retries=7).max_retries == 7


@pytest.mark.parametrize(("ours", "real"), CLIENTS)
def test_without_a_session_it_says_what_to_give(ours: Any, real: Any) -> None:
    with pytest.raises(ValueError, match='session_id="invoice-run-42"'):
        ours(api_key="k")


def test_each_is_at_the_base_url_of_its_kind() -> None:
    urls = [str(ours(session_id="s", api_key="k", base_url="http://h:1").base_url).rstrip("/")
            for ours, _ in CLIENTS]  # fmt: skip
    assert urls == ["http://h:1/v1", "http://h:1/v1", "http://h:1", "http://h:1"]


def test_what_the_real_one_takes_is_passed_on() -> None:
    client = agentstate.AgentStateOpenAI(session_id="s", api_key="k", timeout=3, max_retries=9)
    assert (client.timeout, client.max_retries) == (3, 9)
