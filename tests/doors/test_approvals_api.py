"""The approvals' part of the management API: what is shown, what may decide, and in which words."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import pytest

from agentstate.doors.api.approvals import (
    ACTION_BYTES_MAX,
    DEPTH_MAX,
    ApprovalEndpoints,
    Decider,
    approval_json,
    read_decision,
)
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.approvals import Approval, Decision, Question
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from agentstate.wire.message import Headers, Pair, Response
from tests.helpers.approvals import HOUR_MS, QUESTION, SCHEMA, StoreDecider, open_approvals
from tests.store.contract import claim_of

T = TypeVar("T")
CASES = Path(__file__).resolve().parents[1] / "cases"
HOST: Pair = (b"host", b"127.0.0.1:8080")
IS_JSON: Pair = (b"content-type", b"application/json")


class Asked:
    """A request with its whole body."""

    def __init__(self, method: str, target: str, body: bytes, headers: tuple[Pair, ...]) -> None:
        self.method = method
        self.target = target.encode()
        self.path, _, self.query = target.partition("?")
        self.headers = Headers(headers)
        self.peer = ""
        self.started_s = 0.0
        self.bytes_max = 0  # that the door allowed
        self._body = body

    async def body(self, bytes_max: int) -> bytes:
        self.bytes_max = bytes_max
        return self._body

    def stream(self) -> AsyncIterator[bytes]:
        raise AssertionError("the body is wanted whole")

    async def gone(self) -> None:
        raise AssertionError("nobody waits for it")

    def is_gone(self) -> bool:
        return False

    def on_gone(self, callback: Callable[[], None]) -> None:
        """It never leaves."""

    def send_interim(self, status: int) -> None:
        raise AssertionError("nothing to say")


class Room:
    """A store, a decider and the front door before them."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.decider = StoreDecider(self.store)
        decider: Decider = self.decider
        router = Router(ApprovalEndpoints(self.store, decider).rows())
        self.door = FrontDoor(cast(Any, None), router, Assets(), ())
        self.asked: Asked | None = None  # the last request

    async def open(self, *questions: Question, session: str = "s", at_ms: int = 0) -> list[str]:
        """See `open_approvals`."""
        return await open_approvals(self.store, *questions, session=session, at_ms=at_ms)

    async def ask(
        self, method: str, target: str, body: bytes = b"", *headers: Pair
    ) -> tuple[int, Any]:
        """Ask through the front door; return status and JSON."""
        self.asked = Asked(method, target, body, (HOST, *headers))
        response: Response = await self.door.answer(self.asked)
        assert isinstance(response.body, bytes)
        return response.status, json.loads(response.body)

    async def get(self, target: str) -> Any:
        """Read what must be there."""
        status, found = await self.ask("GET", target)
        assert status == 200, found
        return found

    async def act(self, approval_id: str, action: JSON) -> tuple[int, Any]:
        """Decide."""
        target = f"/api/approvals/{approval_id}/action"
        return await self.ask("POST", target, json.dumps(action).encode(), IS_JSON)


def run(scenario: Callable[[Room], Awaitable[T]]) -> T:
    """Play a scenario in a fresh room."""

    async def whole() -> T:
        room = Room()
        await room.store.open()
        return await scenario(room)

    return asyncio.run(whole())


# -- what is shown


def test_an_approval_is_shown_with_all_that_is_known_of_it() -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open(replace(QUESTION, why="because", deadline_ms=now_ms() + HOUR_MS))
        [listed] = await room.get("/api/approvals/pending")
        shown = await room.get(f"/api/approvals/{name}")

        assert listed == {key: shown[key] for key in listed}
        assert {key: shown[key] for key in shown if not key.endswith("_ms")} == {
            "approval_id": name,
            "id": name,
            "session": "s",
            "session_id": "s",
            "step_number": 0,
            "index": 0,
            "kind": "tool_call",
            "status": "PENDING",
            "tool": "send_email",
            "arguments": '{"to":"ada@example.org"}',
            "arguments_json": {"to": "ada@example.org"},
            "arguments_display": '{"to":"ada@example.org"}',
            "duplicate_keys": [],
            "call_id": "call_0",
            "choice": 0,
            "position": 0,
            "rule": "gate.tools: send_email",
            "why": "because",
            "on_reject": "stop",
            "can_edit": True,
            "dialect": "openai_chat",
            "model": "gpt-4o-mini-2024",
            "run_id": None,
            "decided_by": None,
            "reason": None,
            "then": None,
            "edited_arguments": None,
            "earlier": None,
            "prompt": "mail her",
            "request": None,
            "schema": SCHEMA,
            "schema_unchecked": ["format"],
            "durable_call": None,
        }
        assert shown["created_ms"] == shown["asked_ms"] < shown["deadline_ms"]
        assert shown["decided_ms"] is None

    run(scenario)


def test_what_waits_is_listed_first_asked_first_with_the_expired_marked() -> None:
    async def scenario(room: Room) -> None:
        at_ms = now_ms()
        [expired] = await room.open(
            replace(QUESTION, deadline_ms=at_ms - 1), session="a", at_ms=at_ms - HOUR_MS
        )
        [decided] = await room.open(session="b", at_ms=at_ms - 3)
        [first] = await room.open(session="c", at_ms=at_ms - 2)
        [second] = await room.open(session="d", at_ms=at_ms - 1)
        await room.act(decided, {"action": "APPROVED"})

        pending = await room.get("/api/approvals/pending")
        every = await room.get("/api/approvals")

        assert [(row["id"], row["status"]) for row in pending] == [
            (expired, "EXPIRED"),
            (first, "PENDING"),
            (second, "PENDING"),
        ]
        assert [row["id"] for row in every] == [second, first, decided, expired]

    run(scenario)


def test_a_listing_is_filtered_and_read_page_by_page() -> None:
    async def scenario(room: Room) -> None:
        at_ms = now_ms()
        names = [(await room.open(session=f"s{n}", at_ms=at_ms + n))[0] for n in range(3)]
        await room.act(names[0], {"action": "APPROVED"})
        await room.act(names[1], {"action": "REJECTED"})

        approved = await room.get("/api/approvals?status=APPROVED")
        of_session = await room.get("/api/approvals?session=s1")
        response = await room.door.answer(Asked("GET", "/api/approvals?limit=2", b"", (HOST,)))
        cursor = Headers(response.headers).text(b"x-next-cursor")
        rest = await room.get(f"/api/approvals?limit=2&after={cursor}")

        assert [row["id"] for row in approved] == [names[0]]
        assert [row["id"] for row in of_session] == [names[1]]
        assert isinstance(response.body, bytes)
        pages = json.loads(response.body) + rest
        assert [row["id"] for row in pages] == names[::-1]

    run(scenario)


@pytest.mark.parametrize(
    ("target", "status", "said"),
    [
        ("/api/approvals?status=OPEN", 400, "PENDING, APPROVED, REJECTED, EXPIRED; found 'OPEN'"),
        ("/api/approvals?limit=0", 400, "from 1 to 1000"),
        ("/api/approvals?after=x", 400, "next_cursor"),
        ("/api/approvals?state=x", 400, "'state'"),
        ("/api/approvals/pending?limit=1", 400, "'limit'"),
        ("/api/approvals/none", 404, "There is no approval 'none'."),
    ],
)
def test_what_cannot_be_listed_is_refused(target: str, status: int, said: str) -> None:
    async def scenario(room: Room) -> None:
        answered, found = await room.ask("GET", target)

        assert (answered, said in found["error"]["message"]) == (status, True), found

    run(scenario)


def test_exact_numbers_are_shown_exactly() -> None:
    async def scenario(room: Room) -> None:
        text = '{"id":12345678901234567890123,"amount":1.10,"rate":1e400}'
        [name] = await room.open(replace(QUESTION, arguments=text))

        response = await room.door.answer(Asked("GET", f"/api/approvals/{name}", b"", (HOST,)))

        assert isinstance(response.body, bytes)
        assert b'"arguments_json":' + text.encode() in response.body
        assert json.loads(response.body)["arguments"] == text

    run(scenario)


@pytest.mark.parametrize(
    ("text", "parsed", "twice"),
    [
        ("", None, []),
        ("not JSON", None, []),
        ("null", None, []),
        ('"text"', "text", []),
        ('{"to":"a","to":"b"}', None, ["to"]),
        ("[" * (DEPTH_MAX - 1) + "1" + "]" * (DEPTH_MAX - 1), "deep", []),
        ("[" * DEPTH_MAX + "1" + "]" * DEPTH_MAX, None, []),
        ('{"a":' * 5000 + "1" + "}" * 5000, None, []),
    ],
)
def test_arguments_that_are_no_json_for_everyone_are_shown_as_text(
    text: str, parsed: JSON, twice: list[str]
) -> None:
    async def scenario(room: Room) -> None:
        await room.open(replace(QUESTION, arguments=text))

        [row] = await room.get("/api/approvals/pending")

        assert row["arguments"] == text
        assert (row["arguments_json"] is None) == (parsed is None)
        assert row["duplicate_keys"] == twice
        if parsed != "deep":
            assert row["arguments_json"] == parsed

    run(scenario)


def test_what_is_hidden_in_arguments_is_made_visible() -> None:
    async def scenario(room: Room) -> None:
        text = '{"table":"tmp\u202eslbat lla\u202c","note":"\u200b`<https://evil.example|Yes>`"}'
        await room.open(replace(QUESTION, arguments=text))

        [row] = await room.get("/api/approvals/pending")

        assert row["arguments"] == text
        assert not set("\u202e\u202c\u200b") & set(row["arguments_display"])

    run(scenario)


def test_only_native_calls_that_are_open_can_be_edited() -> None:
    approval = Approval("ap", "s", 1, 0, 0, 1, "openai_chat", "m", None, QUESTION, 1, 1)

    def can_edit(**changes: Any) -> JSON:
        question = replace(QUESTION, **changes)
        return approval_json(replace(approval, question=question), 2)["can_edit"]

    assert can_edit() is True
    assert can_edit(kind="text") is False
    assert can_edit(kind="request") is False
    assert can_edit(generation=1) is False  # it was let out before, as it is
    decided = replace(approval, decision=Decision(True, None), decided_ms=2)
    assert approval_json(decided, 2)["can_edit"] is False


def test_a_held_request_is_shown_with_its_body() -> None:
    async def scenario(room: Room) -> None:
        claimed = await room.store.claim_step(claim_of("hi"))
        question = replace(QUESTION, kind="request", tool="gpt-4o-mini", call_id=None, arguments="")
        [row] = await room.store.open_approvals(claimed.step_id, None, (question,), at_ms=now_ms())

        shown = await room.get(f"/api/approvals/{row.approval_id}")

        assert shown["request"]["messages"] == [{"role": "user", "content": "hi"}]
        assert (shown["schema"], shown["schema_unchecked"]) == (None, [])

    run(scenario)


# -- deciding


def test_an_approval_is_decided_and_shown_so() -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()

        status, found = await room.act(
            name,
            {"action": "REJECTED", "then": "continue", "reason": " not now ", "by": "Ada"},
        )

        assert status == 200
        assert (found["status"], found["then"], found["reason"], found["decided_by"]) == (
            "REJECTED", "continue", "not now", "Ada",
        )  # fmt: skip
        assert found["decided_ms"] >= found["asked_ms"]
        assert room.asked is not None
        assert room.asked.bytes_max == ACTION_BYTES_MAX
        shown = await room.get(f"/api/approvals/{name}")
        assert {key: shown[key] for key in found} == found
        assert await room.get("/api/approvals/pending") == []

    run(scenario)


@pytest.mark.parametrize("form", ["object", "text"])
def test_edited_arguments_keep_their_digits(form: str) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        text = '{"id":12345678901234567890123,"amount":1.10}'
        sent = text if form == "object" else json.dumps(text)
        body = b'{"action":"APPROVED","arguments":' + sent.encode() + b"}"

        status, found = await room.ask("POST", f"/api/approvals/{name}/action", body, IS_JSON)

        assert (status, found["edited_arguments"]) == (200, text)
        assert found["arguments"] == QUESTION.arguments
        assert room.decider.decisions == [Decision(True, None, arguments=text)]

    run(scenario)


def test_the_first_decision_stands_and_the_second_is_told_who_and_when() -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        await room.act(name, {"action": "APPROVED", "by": "Ada"})

        status, found = await room.act(name, {"action": "REJECTED", "by": "Bob"})

        assert status == 409
        assert found["error"]["code"] == "already_decided"
        assert f"{name} was APPROVED by 'Ada' at 20" in found["error"]["message"]
        assert (found["approval"]["status"], found["approval"]["decided_by"]) == ("APPROVED", "Ada")

    run(scenario)


def test_what_the_decider_refuses_is_not_decided() -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        room.decider.refuses = BadRequest("to must be text; found a number.", param="arguments")

        status, found = await room.act(name, {"action": "APPROVED", "arguments": {"to": 1}})

        assert (status, found["error"]["message"]) == (400, "to must be text; found a number.")
        assert len(await room.get("/api/approvals/pending")) == 1

    run(scenario)


def test_an_unknown_approval_cannot_be_decided() -> None:
    status, found = run(lambda room: room.act("ap_none", {"action": "APPROVED"}))

    assert (status, found["error"]["code"]) == (404, "not_found")


NESTED = b'{"action":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "must be JSON"),
        (b"\xff", "UTF-8"),
        (b"[]", "found an array"),
        (b"null", "found nothing"),
        (b"{}", '"action" must be "APPROVED" or "REJECTED"; found nothing'),
        (b'{"action":"approved"}', "found 'approved'"),
        (b'{"action":true}', "found true"),
        (b'{"action":"APPROVED","action":"REJECTED"}', "twice"),
        (b'{"acton":"APPROVED"}', "unknown key 'acton'. Did you mean \"action\"?"),
        (b'{"action":"APPROVED","then":"stop"}', '"then" goes with "action": "REJECTED"'),
        (b'{"action":"REJECTED","arguments":{}}', '"arguments" goes with "action": "APPROVED"'),
        (b'{"action":"REJECTED","then":"go"}', '"then" must be "stop" or "continue"; found \'go\''),
        (b'{"action":"APPROVED","arguments":[]}', "found an array"),
        (b'{"action":"APPROVED","arguments":1.50}', "found 1.50"),
        (b'{"action":"APPROVED","reason":{}}', "at most 4000 characters; found an object"),
        (b'{"action":"APPROVED","by":"' + b"x" * 201 + b'"}', "found 201 characters"),
        (b'{"action":"REJECTED","reason":"' + b"x" * 4001 + b'"}', "found 4001 characters"),
        (NESTED, "nested"),
    ],
)
def test_an_action_that_is_none_is_refused_in_words(body: bytes, said: str) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()

        status, found = await room.ask("POST", f"/api/approvals/{name}/action", body, IS_JSON)

        assert (status, said in found["error"]["message"]) == (400, True), found
        assert room.decider.decisions == []

    run(scenario)


@pytest.mark.parametrize(
    ("body", "decision"),
    [
        ({"action": "APPROVED"}, Decision(True, None)),
        (
            {"action": "APPROVED", "arguments": None, "then": None, "reason": None, "by": None},
            Decision(True, None),
        ),
        ({"action": "APPROVED", "arguments": ""}, Decision(True, None, arguments="")),
        ({"action": "APPROVED", "arguments": {}}, Decision(True, None, arguments="{}")),
        ({"action": "REJECTED", "by": "  ", "reason": ""}, Decision(False, None)),
        ({"action": "REJECTED", "then": "stop"}, Decision(False, None, then="stop")),
    ],
)
def test_an_action_is_read(body: JSON, decision: Decision) -> None:
    assert read_decision(json.dumps(body).encode()) == decision


def test_a_large_edit_is_read_off_the_loop_to_the_same_end() -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        text = json.dumps({"content": "x" * 1_000_000})

        status, found = await room.act(name, {"action": "APPROVED", "arguments": text})

        assert (status, found["edited_arguments"] == text) == (200, True)

    run(scenario)


# -- who may decide


def strangers() -> list[tuple[str, str | None]]:
    """Return the hosts and origins of the case that names this attack."""
    case = json.loads((CASES / "165-sec-dns-rebinding-csrf.json").read_text("utf-8"))
    return [tuple(pair) for pair in case["client"]["matrix"]["host_origin"]]


@pytest.mark.parametrize(("host", "origin"), strangers())
@pytest.mark.parametrize("kind", ["text/plain", "application/json"])
def test_a_page_of_another_origin_decides_nothing(host: str, origin: str | None, kind: str) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        headers = [(b"host", host.encode()), (b"content-type", kind.encode())]
        if origin is not None:
            headers.append((b"origin", origin.encode()))
        asked = Asked(
            "POST", f"/api/approvals/{name}/action", b'{"action":"APPROVED"}', tuple(headers)
        )

        response = await room.door.answer(asked)

        assert response.status == 403
        assert b"access-control-allow-origin" not in {key for key, _ in response.headers}
        assert len(await room.get("/api/approvals/pending")) == 1

    run(scenario)


@pytest.mark.parametrize(
    "kind",
    [b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data; boundary=x",
     b"", b"application/jsonp", b"text/plain; application/json"],
)  # fmt: skip
def test_what_a_form_can_send_decides_nothing(kind: bytes) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        target, body = f"/api/approvals/{name}/action", b'{"action":"APPROVED"}'

        with_kind = await room.ask("POST", target, body, (b"content-type", kind))
        without = await room.ask("POST", target, body)

        assert (with_kind[0], without[0]) == (400, 400)
        assert "application/json" in with_kind[1]["error"]["message"]
        assert room.decider.decisions == []

    run(scenario)


@pytest.mark.parametrize("kind", [b"application/json; charset=utf-8", b"Application/JSON"])
def test_json_by_any_of_its_names_decides(kind: bytes) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()
        origin = (b"origin", b"http://127.0.0.1:8080")

        status, _ = await room.ask(
            "POST",
            f"/api/approvals/{name}/action",
            b'{"action":"APPROVED"}',
            (b"content-type", kind),
            origin,
        )

        assert status == 200

    run(scenario)


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE"])
def test_only_a_post_decides(method: str) -> None:
    async def scenario(room: Room) -> None:
        [name] = await room.open()

        status, _ = await room.ask(
            method, f"/api/approvals/{name}/action", b'{"action":"APPROVED"}', IS_JSON
        )
        query, _ = await room.ask("GET", f"/api/approvals/{name}?action=APPROVED")

        assert (status, query) == (405, 400)
        assert room.decider.decisions == []

    run(scenario)
