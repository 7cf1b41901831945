"""One session for all clients of an agent, and how it ends; against the real proxy."""

from __future__ import annotations

import asyncio
import json
import urllib.request
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest

import agentstate
from agentstate import ProxyRefused, Running, ServerUnreachable, Session
from agentstate.sdk import management
from agentstate.sdk.management import Management

NOBODY = "http://127.0.0.1:9"


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "FIRST_PAUSE_S", 0.0)


@pytest.fixture(scope="module")
def proxy() -> Iterator[Running]:
    with agentstate.running() as running:
        yield running


def ask(session: Session) -> None:
    """Make one call, as an agent without any SDK does."""
    body = {"model": "mock/hello", "messages": [{"role": "user", "content": "Hello"}]}
    request = urllib.request.Request(
        f"{session.base_url}/chat/completions",
        json.dumps(body).encode(),
        {"content-type": "application/json", **session.headers()},
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        assert answer.status == 200


def read(proxy: Running, session_id: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{proxy.url}/api/sessions/{quote(session_id, safe='')}") as answer:
        found: dict[str, Any] = json.loads(answer.read())["session"]
        return found


def test_a_clean_end_completes_the_session(proxy: Running) -> None:
    with proxy.session("clean", name="A run", tags={"team": "ops"}) as session:
        ask(session)
        assert read(proxy, "clean")["status"] == "RUNNING"

    found = read(proxy, "clean")
    assert (found["status"], found["name"], found["tags"]) == (
        "COMPLETED",
        "A run",
        {"team": "ops"},
    )


def test_an_error_fails_the_session_and_goes_on(proxy: Running) -> None:
    session = proxy.session("failed")
    ask(session)
    with pytest.raises(KeyError, match="lost"), session:
        raise KeyError("lost")

    assert read(proxy, "failed")["status"] == "FAILED"


@pytest.mark.parametrize("stop", [KeyboardInterrupt, SystemExit, asyncio.CancelledError])
def test_who_is_stopped_has_not_failed(proxy: Running, stop: type[BaseException]) -> None:
    name = f"stopped-{stop.__name__}"
    session = proxy.session(name)
    ask(session)
    with pytest.raises(stop), session:
        raise stop

    assert read(proxy, name)["status"] == "RUNNING"


def test_an_asynchronous_agent_ends_it_the_same_way(proxy: Running) -> None:
    async def live() -> None:
        async with proxy.session("later") as session:
            await asyncio.to_thread(ask, session)

    asyncio.run(live())

    assert read(proxy, "later")["status"] == "COMPLETED"


def test_an_agent_that_asked_nothing_ends_quietly(proxy: Running) -> None:
    with proxy.session("nothing"):
        pass


def test_a_session_that_no_header_can_name_ends_as_well(proxy: Running) -> None:
    with proxy.session("Lauf/ä") as session:
        ask(session)

    assert read(proxy, "Lauf/ä")["status"] == "COMPLETED"


def test_said_by_hand_a_fault_is_an_error(proxy: Running) -> None:
    with pytest.raises(ProxyRefused, match="no session 'unheard'") as refused:
        proxy.session("unheard").complete()
    assert refused.value.status == 404
    with pytest.raises(
        ServerUnreachable, match=r"No AgentState server answers at .*agentstate serve"
    ):
        agentstate.session("x", base_url=NOBODY).fail("lost")


def test_a_proxy_that_is_gone_neither_hides_nor_undoes_the_end() -> None:
    gone = agentstate.session("x", base_url=NOBODY)
    with pytest.warns(UserWarning, match="not marked COMPLETED. No AgentState server"), gone:
        pass
    with pytest.raises(KeyError) as caught, gone:
        raise KeyError("lost")
    assert ["not marked FAILED" in note for note in caught.value.__notes__] == [True]


def test_a_failure_says_what_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(
        Management, "patch", lambda self, path, body: said.append((self.url + path, body))
    )
    for error in (ValueError("x" * 2000), RuntimeError()):
        with pytest.raises(type(error)), Session("s", base_url="http://h/v1"):
            raise error

    [long, bare] = [body["reason"] for _, body in said]
    assert long.startswith("ValueError: xxx")
    assert len(long) == 1000
    assert bare == "RuntimeError"
    assert {url for url, _ in said} == {"http://h/api/sessions/s"}


@pytest.mark.clients
def test_all_clients_of_a_session_share_run_and_numbering(proxy: Running) -> None:
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    session = proxy.session("shared", step_number=3)

    session.openai().chat.completions.create(
        model="mock/a", messages=[{"role": "user", "content": "a"}]
    )
    session.anthropic().messages.create(
        model="mock/b", max_tokens=9, messages=[{"role": "user", "content": "b"}]
    )
    assert session.headers()["x-agent-step-number"] == "5"

    async def later() -> None:
        await session.async_openai().responses.create(model="mock/c", input="c")
        await session.async_anthropic().messages.create(
            model="mock/d", max_tokens=9, messages=[{"role": "user", "content": "d"}]
        )

    asyncio.run(later())

    with urllib.request.urlopen(f"{proxy.url}/api/sessions/shared") as answer:
        steps = json.loads(answer.read())["steps"]
    assert [step["step_number"] for step in steps] == [3, 4, 6, 7]
    assert {step["run_id"] for step in steps} == {session.run_id}
