"""Where an agent's token comes from, and that it goes with all calls and into no message."""

from __future__ import annotations

from typing import Any

import pytest

import agentstate
from agentstate.sdk import management
from agentstate.sdk.management import Management
from agentstate.sdk.token import HEADER, VARIABLE, find_token
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

TOKEN = "agent-" + "t" * 20


@pytest.mark.parametrize(
    ("environment", "given", "found"),
    [
        (None, None, None),
        ("", None, None),
        ("here", None, "here"),
        (" here\n", None, "here"),
        ("here", "there", "there"),
        ("here", "", None),
        ("auto", None, None),
        (None, "there", "there"),
    ],
)
def test_what_is_given_counts_before_the_environment(
    environment: str | None, given: str | None, found: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if environment is not None:
        monkeypatch.setenv(VARIABLE, environment)

    assert find_token(given) == found


@pytest.mark.parametrize("token", ["geheim-\u00e4", "two\nlines", 7])
def test_one_that_no_header_can_carry_is_refused_and_not_repeated(token: Any) -> None:
    with pytest.raises(ValueError, match="token must be a text of plain ASCII") as raised:
        agentstate.session("s", token=token)
    assert str(token) not in str(raised.value)


def test_one_of_the_environment_is_named_by_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "\u00e4")
    with pytest.raises(ValueError, match="AGENTSTATE_TOKEN must be"):
        agentstate.session("s")


def test_it_goes_with_every_call_of_a_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, TOKEN)
    run = agentstate.session("s")

    assert run.headers()[HEADER] == run.constant_headers()[HEADER] == TOKEN
    for wrapped in (agentstate.wrap_crewai("s"), agentstate.wrap_langchain_anthropic("s")):
        assert wrapped["default_headers"][HEADER] == TOKEN
    assert HEADER not in agentstate.session("s", token="").headers()


class Door(Upstream):
    """Lets nobody in."""

    def __init__(self) -> None:
        super().__init__()
        self.brought: list[str | None] = []

    def reply_to(self, request: Received) -> Reply:
        self.brought.append(request.header(HEADER))
        return json_reply({"error": {"code": "unauthorized", "message": "No."}}, status=401)


def test_who_brings_none_is_told_how_to() -> None:
    with Door() as door:
        for token, said in ((None, r"^No\. Give it as token=\.\.\., or in AGENTSTATE_TOKEN\.$"),
                            (TOKEN, r"^No\.$")):  # fmt: skip
            with pytest.raises(agentstate.ProxyRefused, match=said) as raised:
                Management(door.url, token).post("/api/x", {})
            assert raised.value.status == management.NEEDS_TOKEN
        assert door.brought == [None, TOKEN]


def test_a_tool_and_the_end_of_a_run_bring_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with Door() as door:
        run = agentstate.session("s", base_url=door.url, token="of-the-run")
        for act in (
            run.tool(lambda: None),
            run.tool(token="of-the-tool")(lambda: None),
            agentstate.tool("s", url=door.url, token="given")(lambda: None),
            run.complete,
        ):
            with pytest.raises(agentstate.ProxyRefused):
                act()
        monkeypatch.setenv(VARIABLE, "of-the-environment")
        with pytest.raises(agentstate.ProxyRefused):
            agentstate.tool("s", url=door.url)(lambda: None)()
        assert door.brought == [
            "of-the-run", "of-the-tool", "given", "of-the-run", "of-the-environment"
        ]  # fmt: skip
