"""A person decides in the dashboard of a real proxy, and the agent gets what was decided."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.helpers.browser import open_browser, open_page
from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.slow, pytest.mark.browser]

AGENT_TIMEOUT_S = 30.0
TOOL = {
    "type": "function",
    "function": {
        "name": "send_email",
        "parameters": {"type": "object", "properties": {"to": {"type": "string"}}},
    },
}
ASK = {"model": "m", "messages": [{"role": "user", "content": "Mail them."}], "tools": [TOOL]}
SENT = '{"to": "everybody@example.org", "n": 12345678901234567890}'

Answer = tuple[int, dict[str, Any]]


class Mailer(Upstream):
    """A model that mails, unless it is told that it may not."""

    def reply_to(self, request: Received) -> Reply:
        said = request.json()["messages"][-1]
        if said["role"] == "tool":
            return json_reply(_answer({"role": "assistant", "content": "Then not."}, "stop"))
        call = {
            "id": "call_0",
            "type": "function",
            "function": {"name": "send_email", "arguments": SENT},
        }
        message = {"role": "assistant", "content": None, "tool_calls": [call]}
        return json_reply(_answer(message, "tool_calls"))


def _answer(message: dict[str, Any], reason: str) -> dict[str, Any]:
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return {"id": "c1", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [choice]}  # fmt: skip


@pytest.fixture
def proxy(tmp_path: Path) -> Iterator[Proxy]:
    with Mailer() as model, Proxy(upstream_url=model.url, db=tmp_path / "agent.db") as proxy:
        yield proxy


@pytest.fixture
def page(proxy: Proxy) -> Iterator[Page]:
    with open_browser() as browser, open_page(browser, proxy.url) as page:
        yield page


@pytest.fixture
def agents() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def ask(proxy: Proxy, agents: ThreadPoolExecutor, session: str) -> Future[Answer]:
    """Let an agent ask; what it gets comes once somebody has decided."""

    def call() -> Answer:
        connection = http.client.HTTPConnection(*proxy.address, timeout=AGENT_TIMEOUT_S)
        try:
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps(ASK),
                {
                    "content-type": "application/json",
                    "authorization": "Bearer sk-test",
                    "x-agent-session-id": session,
                },
            )
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    return agents.submit(call)


def open_held(page: Page) -> None:
    """Wait until a held call is shown and takes decisions."""
    page.goto("#/approvals")
    page.locator(".detail[aria-busy=false] h2").wait_for()


def test_the_agent_gets_the_arguments_that_a_person_edited(
    proxy: Proxy, page: Page, agents: ThreadPoolExecutor
) -> None:
    got = ask(proxy, agents, "run")
    open_held(page)

    page.get_by_label("to", exact=True).fill("ada@example.org")
    page.get_by_role("button", name="Approve with edits").click()

    status, answer = got.result(AGENT_TIMEOUT_S)
    (call,) = answer["choices"][0]["message"]["tool_calls"]
    assert status == 200
    assert call["id"] == "call_0"
    assert call["function"]["arguments"] == SENT.replace("everybody@", "ada@")


def test_the_agent_is_stopped_or_its_model_told(
    proxy: Proxy, page: Page, agents: ThreadPoolExecutor
) -> None:
    stopped = ask(proxy, agents, "one")
    open_held(page)
    page.get_by_label("Reason").fill("Not everybody.")
    page.get_by_role("button", name="Reject and stop").click()
    status, error = stopped.result(AGENT_TIMEOUT_S)
    assert (status, error["error"]["code"]) == (403, "human_rejection")
    assert "Not everybody." in error["error"]["message"]

    told = ask(proxy, agents, "two")
    open_held(page)
    page.get_by_label("Reason").fill("Not everybody.")
    page.get_by_role("button", name="Reject and continue").click()

    status, answer = told.result(AGENT_TIMEOUT_S)
    assert (status, answer["choices"][0]["message"]["content"]) == (200, "Then not.")


def test_the_session_waits_while_its_call_is_held(
    proxy: Proxy, page: Page, agents: ThreadPoolExecutor
) -> None:
    got = ask(proxy, agents, "run")
    page.goto("#/sessions/run")

    page.locator(".head .badge", has_text="Waiting").wait_for()
    page.locator(".note[data-is=waiting]").get_by_role("link", name="send_email").click()
    page.locator(".detail[aria-busy=false] h2").wait_for()
    page.keyboard.press("a")

    assert got.result(AGENT_TIMEOUT_S)[0] == 200
    page.goto("#/sessions/run")
    page.locator(".head .badge", has_text="Running").wait_for()
