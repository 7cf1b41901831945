"""Who gets in where a token is set: agents, people with a browser, the command line, strangers."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import re
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import agentstate
from tests.helpers.browser import button, expect, open_browser, open_page
from tests.helpers.proxy import ROOT, Proxy
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

ADMIN, APPROVER, READER, AGENT = (f"{role}-" + "x" * 26 for role in ("adm", "app", "rea", "age"))
KEY = "sk-configured-upstream-key"
ENV = {
    "AGENTSTATE_TOKEN": ADMIN,
    "AGENTSTATE_SERVER_APPROVE_TOKENS": APPROVER,
    "AGENTSTATE_SERVER_READ_TOKENS": READER,
    "AGENTSTATE_SERVER_CLIENT_TOKENS": AGENT,
    "OPENAI_API_KEY": KEY,
}
BODY = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}


@pytest.fixture(scope="module")
def upstream() -> Iterator[CountingUpstream]:
    with CountingUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def proxy(upstream: CountingUpstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    db = tmp_path_factory.mktemp("access") / "record.db"
    with Proxy(upstream_url=upstream.url, db=db, env=ENV) as proxy:
        yield proxy


def ask(
    proxy: Proxy, method: str, path: str, value: Any = None, **headers: str
) -> tuple[int, Any, http.client.HTTPMessage]:
    connection = http.client.HTTPConnection(*proxy.address, timeout=10)
    sent = {name.replace("_", "-"): text for name, text in headers.items()}
    try:
        connection.request(
            method, path, None if value is None else json.dumps(value),
            {"content-type": "application/json", **sent},
        )  # fmt: skip
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"null"), response.headers
    finally:
        connection.close()


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def test_nobody_gets_in_without_one(proxy: Proxy) -> None:
    for method, path in (
        ("GET", "/api/sessions"),
        ("GET", "/api/openapi.json"),
        ("POST", "/api/sessions/s/pause"),
        ("GET", "/api/export/dataset"),
        ("GET", "/api/approvals/pending"),
    ):
        status, found, _ = ask(proxy, method, path, {} if method == "POST" else None)
        assert (status, found["error"]["code"]) == (401, "unauthorized"), path
    status, found, _ = ask(proxy, "POST", "/v1/chat/completions", BODY, **bearer("sk-their-own"))
    assert (status, found["error"]["code"]) == (401, "unauthorized")
    assert set(found["error"]) == {"message", "type", "param", "code"}
    status, found, _ = ask(proxy, "POST", "/v1/messages", BODY)
    assert (status, found["type"]) == (401, "error")
    assert ask(proxy, "GET", "/healthz")[0] == 200


def test_an_agent_s_token_is_taken_for_the_key_and_never_leaves(
    proxy: Proxy, upstream: CountingUpstream
) -> None:
    session = {"x_agent_session_id": "a"}
    before = len(upstream.received)

    status, _, _ = ask(proxy, "POST", "/v1/chat/completions", BODY, **bearer(AGENT), **session)
    assert status == 200
    other = {**BODY, "model": "m2"}
    own = {"x_agentstate_token": AGENT, **bearer("sk-their-own")}
    assert ask(proxy, "POST", "/v1/chat/completions", other, **own, **session)[0] == 200

    received = upstream.received[before:]
    keys = [request.header("authorization") for request in received]
    assert keys == [f"Bearer {KEY}", "Bearer sk-their-own"]
    sent = [value for request in received for _, value in request.headers]
    assert not any(AGENT.encode() in value for value in sent)
    assert AGENT.encode() not in proxy.stored_bytes()
    assert ask(proxy, "GET", "/api/sessions", **bearer(AGENT))[0] == 403


def test_an_agent_tells_of_its_own_run_and_does_nothing_else(proxy: Proxy) -> None:
    calls = "/api/sessions/told/tool-calls"
    ask(proxy, "POST", "/v1/chat/completions", BODY, **bearer(AGENT), x_agent_session_id="told")
    begin = {"name": "charge", "owner": "one"}

    status, begun, _ = ask(proxy, "POST", calls, begin, **bearer(AGENT))
    assert (status, begun["state"]) == (200, "run")
    call, report = begun["call"], {"result": 1, "owner": "one"}
    assert ask(proxy, "POST", f"{calls}/{call}/result", report, **bearer(AGENT))[0] == 200
    end = {"status": "COMPLETED"}
    assert ask(proxy, "PATCH", "/api/sessions/told", end, **bearer(AGENT))[0] == 200

    for method, path in (
        ("GET", "/api/sessions/told"),
        ("GET", "/api/sessions/told/recovery"),
        ("GET", "/api/sessions/told/durable-calls"),
        ("GET", f"/api/tool-calls/{call}"),
        ("POST", f"{calls}/{call}/settle"),
        ("POST", f"{calls}/{call}/forget"),
        ("POST", "/api/sessions/told/reset"),
        ("POST", "/api/sessions/told/resume"),
        ("POST", "/api/sessions/told/budget"),
        ("DELETE", "/api/sessions/told"),
    ):
        body = None if method == "GET" else {}
        assert ask(proxy, method, path, body, **bearer(AGENT))[0] == 403, path
    for token in (READER, APPROVER):
        assert ask(proxy, "POST", calls, begin, **bearer(token))[0] == 403
        assert ask(proxy, "PATCH", "/api/sessions/told", end, **bearer(token))[0] == 403
    assert ask(proxy, "POST", calls, begin)[0] == 401
    assert ask(proxy, "PATCH", "/api/sessions/told", end)[0] == 401


@pytest.mark.parametrize("between", ["nothing", "stop", "kill"])
def test_our_own_client_brings_it_for_calls_tools_and_the_end(
    between: str, upstream: CountingUpstream, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    openai = pytest.importorskip("openai")
    acted: list[str] = []

    def live(**options: str) -> Any:
        with agentstate.session("own", base_url=proxy.url, api_key="k", **options) as run:

            @run.tool
            def charge(customer: str) -> int:
                acted.append(customer)
                return len(acted)

            question = {"role": "user", "content": "Whom?"}
            client = run.openai(max_retries=0)
            client.chat.completions.create(model="m", messages=[question])
            if between != "nothing":
                proxy.stop() if between == "stop" else proxy.kill()
                proxy.start()
            return charge("ann"), asyncio.run(_later(run))

    async def _later(run: agentstate.Session) -> list[int]:
        @run.tool(name="later")
        async def charge(customer: str) -> int:
            acted.append(customer)
            return len(acted)

        return [await charge("bo"), await charge("bo")]

    with Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=ENV) as proxy:
        with pytest.raises(openai.AuthenticationError, match="in the header x-agentstate-token"):
            agentstate.session("own", base_url=proxy.url, api_key="k").openai(
                max_retries=0
            ).responses.create(model="m", input="x")
        before = len(upstream.received)
        assert live(token=AGENT) == (1, [2, 3])
        monkeypatch.setenv("AGENTSTATE_TOKEN", AGENT)
        assert live() == (1, [2, 3])
        assert acted == ["ann", "bo", "bo"]
        assert len(upstream.received) == before + 1
        found = ask(proxy, "GET", "/api/sessions/own", **bearer(READER))[1]["session"]
        assert found["status"] == "COMPLETED"


def test_where_agents_need_none_they_need_none_to_tell_of_a_run(
    upstream: CountingUpstream, tmp_path: Path
) -> None:
    env = {"AGENTSTATE_TOKEN": ADMIN}
    with Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", env=env) as proxy:
        session = {"x_agent_session_id": "s"}
        end = {"status": "COMPLETED"}
        assert ask(proxy, "POST", "/v1/chat/completions", BODY, **session)[0] == 200
        assert ask(proxy, "POST", "/api/sessions/s/tool-calls", {"name": "act"})[0] == 200
        assert ask(proxy, "PATCH", "/api/sessions/s", end)[0] == 200
        assert ask(proxy, "POST", "/api/sessions/s/pause", {})[0] == 401

        # A page that bound its name to this address is none of them.
        evil = {"host": "evil.example"}
        assert ask(proxy, "POST", "/v1/chat/completions", BODY, **session, **evil)[0] == 403
        assert ask(proxy, "PATCH", "/api/sessions/s", end, **evil)[0] == 401
        assert ask(proxy, "PATCH", "/api/sessions/s", end, **evil, **bearer(ADMIN))[0] == 200


def test_each_role_does_its_part(proxy: Proxy) -> None:
    ask(proxy, "POST", "/v1/chat/completions", BODY,
        **bearer(AGENT), x_agent_session_id="roles")  # fmt: skip
    pause, decide = "/api/sessions/roles/pause", "/api/approvals/none/action"

    def statuses(token: str) -> list[int]:
        return [
            ask(proxy, "GET", "/api/sessions/roles", **bearer(token))[0],
            ask(proxy, "POST", decide, {"action": "APPROVED"}, **bearer(token))[0],
            ask(proxy, "POST", pause, {}, **bearer(token))[0],
        ]

    assert statuses(READER) == [200, 403, 403]
    assert statuses(APPROVER) == [200, 404, 403]
    assert statuses(ADMIN) == [200, 404, 200]


def status_of(proxy: Proxy, method: str, path: str, **headers: str) -> int:
    """Ask with an empty object; the answer may be of any kind."""
    connection = http.client.HTTPConnection(*proxy.address, timeout=10)
    try:
        connection.request(method, path, b"{}", {"content-type": "application/json", **headers})
        return connection.getresponse().status
    finally:
        connection.close()


def test_no_endpoint_answers_without_a_token_and_no_change_is_a_readers(proxy: Proxy) -> None:
    _, table, _ = ask(proxy, "GET", "/api/openapi.json", **bearer(READER))
    found: dict[tuple[str, str], tuple[int, int, int]] = {}
    for pattern, methods in table["paths"].items():
        path = re.sub(r"\{[a-z_]+\}", "1", pattern)
        for method in methods:
            asked = [
                status_of(proxy, method.upper(), path, **headers)
                for headers in ({}, bearer(AGENT), bearer(READER))
                if not path.startswith(("/v1/", "/api/log")) and path not in ("/healthz", "/readyz")
                if (method, pattern) != ("get", "/api/events")  # it does not end
            ]
            if asked and asked != [401, 403, 403] and (method != "get" or asked[:2] != [401, 403]):
                found[(method, pattern)] = (asked[0], asked[1], asked[2])

    begin = "/api/sessions/{id}/tool-calls"
    assert found == {
        ("patch", "/api/sessions/{id}"): (401, 400, 403),
        ("post", begin): (401, 400, 403),
        ("post", begin + "/{call}/result"): (401, 400, 403),
    }


def test_an_agent_s_token_is_enough_for_its_tools(proxy: Proxy) -> None:
    acted: list[int] = []

    def act(amount: int) -> int:
        acted.append(amount)
        return amount + 1

    with pytest.raises(agentstate.ProxyRefused):
        agentstate.tool("tools", url=proxy.url)(act)(1)
    assert acted == []
    for _ in range(2):  # two lives of an agent
        assert agentstate.tool("tools", url=proxy.url, token=AGENT)(act)(1) == 2


def test_a_name_that_is_bound_to_this_address_brings_no_token(proxy: Proxy) -> None:
    assert ask(proxy, "GET", "/api/sessions", host="evil.example")[0] == 401
    assert ask(proxy, "GET", "/api/sessions", host="here.example", **bearer(READER))[0] == 200


def test_the_command_line_brings_what_the_environment_says(proxy: Proxy, tmp_path: Path) -> None:
    def run(token: str) -> subprocess.CompletedProcess[str]:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "AGENTSTATE_TOKEN": token}
        command = [sys.executable, "-m", "agentstate", "sessions", "list", "--url", proxy.url]
        return subprocess.run(
            command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=30, check=False
        )

    assert run(READER).returncode == 0
    refused = run("y" * 40)
    assert refused.returncode != 0
    assert "none of this server's" in refused.stderr


def test_with_auto_it_prints_a_link_that_logs_in(
    upstream: CountingUpstream, tmp_path: Path
) -> None:
    flags = ("--token", "auto")
    with Proxy(upstream_url=upstream.url, db=tmp_path / "agentstate.db", flags=flags) as proxy:
        token = (tmp_path / "agentstate.db.token").read_text().strip()
        link = f"{proxy.url}/dashboard/#token={token}"
        assert f"  dashboard  {link}\n" in proxy.log_tail()
        env = {k: v for k, v in os.environ.items() if not k.startswith("AGENTSTATE")}
        listed = subprocess.run(
            [sys.executable, "-m", "agentstate", "sessions", "list", "--url", proxy.url],
            cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)},
            capture_output=True, text=True, timeout=30, check=False,
        )  # fmt: skip
        assert listed.returncode == 0, listed.stderr
        with open_browser() as browser, open_page(browser, proxy.url) as page:
            page.goto(link)
            expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
            assert token not in page.url
            assert "token" not in page.evaluate("document.cookie")
            page.goto(f"{proxy.url}/dashboard/")
            expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
        proxy.restart()
        assert token in proxy.log_tail()


def test_a_person_types_it_in_once(proxy: Proxy) -> None:
    with open_browser() as browser, open_page(browser, proxy.url) as page:
        page.goto(f"{proxy.url}/dashboard/")
        field = page.get_by_label("Token")
        field.fill("z" * 40)
        button(page, "Log in").click()
        expect(page.get_by_role("alert")).to_contain_text("none of this server's")
        field.fill(READER)
        page.keyboard.press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Sessions")
        (cookie,) = page.context.cookies()
        assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Strict")
        assert READER not in cookie["value"]
        page.context.clear_cookies()
        expect(page.get_by_label("Token")).to_be_visible()  # whatever was shown asks again


def test_a_page_of_another_origin_changes_nothing(proxy: Proxy) -> None:
    headers = {**bearer(ADMIN), "origin": "http://evil.example"}

    assert ask(proxy, "POST", "/api/sessions/roles/resume", {}, **headers)[0] == 403


@pytest.mark.parametrize("flags", [(), ("--token", "short")])
def test_strangers_are_not_listened_to_without_a_token(
    flags: tuple[str, ...], tmp_path: Path
) -> None:
    env = {k: v for k, v in os.environ.items() if not k.startswith("AGENTSTATE")}
    found = subprocess.run(
        [sys.executable, "-m", "agentstate", "serve", "--host", "0.0.0.0", "--port", "0", *flags],
        cwd=tmp_path, env={**env, "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip

    assert found.returncode != 0
    assert "--token auto" in found.stderr
    assert "short" not in found.stderr


def test_https_is_served_with_a_certificate(upstream: CountingUpstream, tmp_path: Path) -> None:
    trustme = pytest.importorskip("trustme")
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    trusted = ssl.create_default_context()
    ca.configure_trust(trusted)
    flags = (
        "--tls-cert", str(tmp_path / "cert.pem"), "--tls-key", str(tmp_path / "key.pem"),
        "--token", ADMIN,
    )  # fmt: skip
    with Proxy(upstream_url=upstream.url, db=tmp_path / "record.db", flags=flags) as proxy:
        connection = http.client.HTTPSConnection(*proxy.address, timeout=10, context=trusted)
        login = json.dumps({"token": ADMIN})
        connection.request("POST", "/api/login", login, {"content-type": "application/json"})
        response = connection.getresponse()
        assert response.status == 200
        assert "; Secure" in response.headers["set-cookie"]
        assert b"https://" in proxy.log_tail().encode()
        connection.close()
