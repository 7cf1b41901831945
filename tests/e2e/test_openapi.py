"""What a running server answers is what its OpenAPI document says, to the last key."""

from __future__ import annotations

import http.client
import json
import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.e2e.test_status import call, running
from tests.helpers.people import decide, list_pending
from tests.helpers.proxy import WAIT_TIMEOUT_S, Proxy

pytestmark = pytest.mark.slow

S = "/api/sessions/s"


class Asker:
    """Asks, and compares each answer with the document."""

    def __init__(self, proxy: Proxy) -> None:
        self.proxy = proxy
        self.document: Any = {}
        self.seen: set[tuple[str, str, int]] = set()  # method, path of the document, status
        self.document = self.ask("GET", "/api/openapi.json", compares=False)
        for schema in self.document["components"]["schemas"].values():
            # A reader may get keys that it does not know. Here one is a key nobody wrote down.
            schema["additionalProperties"] = False
        # What stands comes with the error of a second decision.
        error = self.document["components"]["schemas"]["Error"]
        error["properties"]["approval"] = {"$ref": "#/components/schemas/Approval"}

    def ask(
        self,
        method: str,
        target: str,
        value: Any = None,
        *,
        status: int = 200,
        kind: str = "application/json",
        compares: bool = True,
    ) -> Any:
        """Ask; the answer must have this status, and be as the document says."""
        connection = http.client.HTTPConnection(*self.proxy.address, timeout=WAIT_TIMEOUT_S)
        try:
            body = value if isinstance(value, str) or value is None else json.dumps(value)
            headers = {} if body is None else {"content-type": kind}
            connection.request(method, target, body, headers)
            response = connection.getresponse()
            raw = response.read()
            assert response.status == status, raw
            if compares:
                media_type = (response.getheader("content-type") or "").partition(";")[0]
                self._compare(method, target.partition("?")[0], status, media_type, raw)
            return raw.decode() if kind == "text" else json.loads(raw)
        finally:
            connection.close()

    def lines(self, target: str) -> str:
        """GET a file of lines."""
        found: str = self.ask("GET", target, kind="text")
        return found

    def _compare(self, method: str, path: str, status: int, media_type: str, raw: bytes) -> None:
        name = self._name_of(method, path)
        operation = self.document["paths"][name][method.lower()]
        responses = operation["responses"]
        response = responses.get(str(status)) or responses[f"{status // 100}XX"]
        schema = response["content"][media_type]["schema"]
        self.seen.add((method, name, status))
        if media_type != "application/json":
            return
        whole = {"components": self.document["components"], "allOf": [schema]}
        faults = list(Draft202012Validator(whole).iter_errors(json.loads(raw)))
        assert not faults, (method, path, [(f.message, list(f.absolute_path)) for f in faults])

    def _name_of(self, method: str, path: str) -> str:
        fit = [
            name
            for name, methods in self.document["paths"].items()
            if method.lower() in methods
            and re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(name)), path)
        ]
        assert fit, path
        return min(fit, key=lambda name: name.count("{"))

    def unseen(self) -> set[tuple[str, str]]:
        """The operations whose answer has a schema of ours, and that were not answered with 200."""
        answered = {(method, name) for method, name, status in self.seen if status == 200}
        return {
            (method.upper(), name)
            for name, methods in self.document["paths"].items()
            for method, operation in methods.items()
            if "$ref" in json.dumps(operation["responses"]["200"])
        } - answered


def steer(asker: Asker) -> None:
    """Have a session of each kind of row, and look at it after each change."""
    ask, proxy = asker.ask, asker.proxy
    said = {
        "x-agent-tags": "team=ops",
        "x-agent-parent-session": "boss",
        "x-agent-budget": "steps=9",
    }
    for text in ("Say a.", "Call look now.", "Say c."):
        call(proxy, "chat", text, headers=said)
    call(proxy, "chat", "Say c.")  # a replay
    call(proxy, "responses", "Say d.", streams=True)
    look(asker)
    ask("POST", f"{S}/pause", {"reason": "a look", "by": "ann"})
    ask("GET", S)
    ask("POST", f"{S}/resume", {})
    ask("PATCH", S, {"status": "COMPLETED", "reason": "done", "name": "Letters"})
    made = ask("POST", f"{S}/steps/2/edit", {"text": "another", "by": "ann"})
    ask("GET", f"{S}/steps/2/answers/{made['answer_id']}")
    ask("POST", f"{S}/steps/0/rerun", {})
    ask("POST", f"{S}/reset", {"index": 2, "dry_run": True})
    ask("POST", f"{S}/reset", {"index": 2})
    ask("POST", f"{S}/restore", {})
    ask("POST", f"{S}/restore", {"rollback_id": 999}, status=404)
    ask("POST", f"{S}/budget", {"steps": 50, "cost_usd": 1.5})
    ask("GET", f"{S}/budget")
    ask("POST", f"{S}/fork", {"index": 2, "session": "way"})
    look(asker)
    asker.lines("/api/export/dataset")
    ask("GET", "/api/export/dataset?report=1")
    ask("GET", "/api/export/dataset?manifest=1")
    tape = asker.lines("/api/sessions/way/cassette")
    ask("POST", "/api/cassettes?as=taped", tape, kind="application/x-ndjson")
    ask("DELETE", "/api/sessions/way", {"dry_run": True})
    ask("DELETE", "/api/sessions/way", {})


def approve(asker: Asker) -> None:
    """Have approvals of each status, in a fork as well, and what becomes of them."""
    proxy = asker.proxy
    call(proxy, "chat", "Call guarded now.", tool="guarded", session="g", waits=False)
    [question] = list_pending(proxy)
    asker.ask("GET", "/api/approvals/pending")
    name = question["approval_id"]
    asker.ask("GET", f"/api/approvals/{name}")
    decision = {"action": "APPROVED", "arguments": {"q": "b"}, "by": "ann"}
    asker.ask("POST", f"/api/approvals/{name}/action", decision)
    asker.ask("POST", f"/api/approvals/{name}/action", decision, status=409)
    assert call(proxy, "chat", "Call guarded now.", tool="guarded", session="g")[0] == 200
    asker.ask("GET", "/api/sessions/g/steps/0")
    asker.ask("POST", "/api/sessions/g/fork", {"session": "h"})
    call(proxy, "chat", "Call guarded now.", tool="guarded", session="h", waits=False)
    [question] = list_pending(proxy)
    assert asker.ask("GET", "/api/approvals")[0]["earlier"] is not None
    decide(proxy, question["approval_id"], "REJECTED", then="stop")
    asker.ask("GET", "/api/approvals?status=REJECTED")
    asker.ask("GET", "/api/sessions/h/tool-calls")
    asker.ask("GET", "/api/approvals/none", status=404)


def act(asker: Asker) -> None:
    """Have durable calls of each state."""
    calls = "/api/sessions/t/tool-calls"
    for number, sent in enumerate(({"result": [1]}, {"error": {"text": "no"}}, {"unknown": True})):
        begin = {"name": "pay", "arguments": {"n": number}, "owner": "a", "begin_id": "1"}
        begun = asker.ask("POST", calls, begin)
        asker.ask("POST", f"{calls}/{begun['call']}/result", {**sent, "owner": "a"})
        asker.ask("POST", calls, {**begin, "owner": "b"})
        asker.ask("GET", f"/api/tool-calls/{begun['call']}")
    settled = {"outcome": "happened", "result": 1, "by": "ann"}
    asker.ask("POST", f"{calls}/{begun['call']}/settle", settled)
    asker.ask("POST", f"{calls}/{begun['call']}/forget", {"by": "ann"})
    asker.ask("POST", calls, {"name": "guarded", "arguments": {}, "owner": "a"})
    asker.ask("GET", "/api/tool-calls")
    asker.ask("GET", "/api/sessions/t/durable-calls")


def be_told(asker: Asker) -> None:
    """Look at webhooks and what they were sent."""
    (hook,) = asker.ask("GET", "/api/webhooks")
    asker.ask("POST", f"/api/webhooks/{hook['name']}/test", {})
    sent = asker.ask("GET", "/api/webhooks/deliveries")
    asker.ask("POST", f"/api/webhooks/deliveries/{sent[0]['delivery_id']}/redeliver", {})


def look(asker: Asker) -> None:
    """Look at the session by all that shows it."""
    for target in ("", "?detail=1", "/steps/0", "/steps/1", "/steps/2", "/tool-calls", "/budget"):
        asker.ask("GET", S + target)
    for target in ("/recovery", "/timeline", "/steps/1/conversation"):
        asker.ask("GET", S + target)
    for target in (
        "/api/sessions",
        "/api/overview",
        "/api/settings",
        "/api/login",
        "/api/retention",
        "/healthz",
        "/readyz",
    ):
        asker.ask("GET", target)
    asker.ask("POST", "/api/retention", {})  # without limits nothing goes
    asker.ask("GET", "/api/sessions?zz=1", status=400)


def test_each_answer_is_as_the_document_says(tmp_path: Path) -> None:
    with running(tmp_path, AGENTSTATE_SWEEP_STALLED_AFTER_S="0") as proxy:
        asker = Asker(proxy)
        steer(asker)
        approve(asker)
        act(asker)
        be_told(asker)

    assert asker.unseen() == set()


def test_a_key_that_nobody_wrote_down_is_found(tmp_path: Path) -> None:
    with running(tmp_path) as proxy:
        asker = Asker(proxy)
        del asker.document["components"]["schemas"]["Health"]["properties"]["steps"]
        with pytest.raises(AssertionError, match="steps"):
            asker.ask("GET", "/healthz")
