"""The dashboard and its API over a record in memory, and what a test puts on that record.

All but the agents is real: the server, the front door, the endpoints, the gate that decides. Calls
are put on record as the pipeline would have, so that a test has a held call with any arguments at
once. It runs on a thread with its own event loop: the browser's driver keeps the test's thread.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Coroutine
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeVar

from agentstate.doors.api import endpoint_table
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.doors.proxy import ProxyDoor
from agentstate.ground.approvals import Approval, Decision, Question
from agentstate.ground.clock import now_ms
from agentstate.ground.events import Delivery, DeliveryState, EventKind
from agentstate.ground.records import (
    Checkpoint,
    Claim,
    Identity,
    Query,
    RecordedAnswer,
    RequestRecord,
)
from agentstate.ground.settings import (
    ForwardSettings,
    Loaded,
    ServerSettings,
    Settings,
    WebhookSettings,
)
from agentstate.ground.tasks import TaskSet
from agentstate.house.feed import Feed
from agentstate.house.hooks import build_hooks
from agentstate.house.mock import MockProvider
from agentstate.house.outbox import Outbox
from agentstate.house.samples import sample_of
from agentstate.steps.forward import Transports
from agentstate.steps.pipeline import Pipeline
from agentstate.steps.recording import build_services
from agentstate.steps.routing import Targets
from agentstate.store.memory import MemoryStore
from agentstate.wire.client import HTTPClient
from agentstate.wire.endpoint import Router
from agentstate.wire.server import Server

T = TypeVar("T")

LIMIT_S = 10.0
HOUR_MS = 3_600_000
MAIL = '{"to": "chen@acme.example", "subject": "Invoice 1183"}'


class Desk:
    """A server on a free port. Use with `with`."""

    def __enter__(self) -> Self:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="desk", daemon=True)
        self._thread.start()
        self._tasks = TaskSet()
        self.store = MemoryStore()
        self.run(self._start())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "the desk did not stop"
        self._loop.close()

    async def _start(self) -> None:
        await self.store.open()
        self.feed = Feed()
        self.store.watch(self.feed.note)
        settings = replace(Settings(), server=ServerSettings(port=0))
        transports = Transports(MockProvider(), MockProvider())
        services = build_services(self.store, transports, settings, self._tasks, lambda name: None)
        targets = Targets(settings.providers, forward=settings.forward)
        pipeline = Pipeline(services, targets)
        self._gate = services.gate
        self._client = HTTPClient(ForwardSettings())
        self._outbox = Outbox(self.store, (), self._client)  # does not run: what is due stays due
        door = FrontDoor(
            ProxyDoor(pipeline, transports, targets, settings),
            Router(
                endpoint_table(
                    self.store,
                    pipeline,
                    "test",
                    services.gate,
                    self._outbox,
                    pipeline.control(),
                    services.durables,
                    pipeline.revisions(),
                    services.budgets,
                    self.feed,
                    lambda: Loaded(settings, {}),
                )
            ),
            Assets(),
            (),
        )
        self._server = Server(door.answer, settings.server)
        await self._server.start()

    async def _stop(self) -> None:
        self.feed.stop()
        await self._server.stop(0.1)
        await self._tasks.close(1.0)
        await self._client.close()
        await self.store.close()

    @property
    def url(self) -> str:
        """The origin, without a path."""
        host, port = self._server.address
        return f"http://{host}:{port}"

    def hold(
        self,
        *calls: tuple[str, str],
        session: str = "billing",
        schema: dict[str, Any] | None = None,
        prompt: str = "Remind Acme of invoice 1183.",
        **changes: Any,
    ) -> list[str]:
        """Put an answer with these calls (tool, arguments) on record, held; return the approvals.

        `changes` replace fields of each `Question`.
        """
        calls = calls or (("send_email", MAIL),)
        return self.run(self._hold(calls, session, schema, prompt, changes))

    def hold_request(self, body: dict[str, Any], *, session: str = "billing") -> str:
        """Put a request on record that waits before it goes upstream; return the approval."""
        return self.run(self._hold_request(body, session))

    def decide(self, approval_id: str, decision: Decision) -> None:
        """Decide as somebody else would."""
        self.run(self._gate.decide(approval_id, decision))

    def record(self, approval_id: str, decision: Decision) -> None:
        """Put a decision on record that the gate takes only of calls in another wire form."""
        self.run(self.store.decide(approval_id, decision, at_ms=now_ms()))

    def read(self, approval_id: str) -> Approval:
        """Return an approval as it stands on record."""
        found = self.run(self.store.read_approval(approval_id))
        assert found is not None, f"no approval {approval_id}"
        return found

    def decision(self, approval_id: str) -> Decision:
        """Return what was decided."""
        found = self.read(approval_id).decision
        assert found is not None, f"{approval_id} is not decided"
        return found

    def subscribe(self, *rows: WebhookSettings) -> None:
        """Configure these webhooks. Of what happens from now on, deliveries to them are due."""
        self.run(self._subscribe(rows))

    def happen(self, kind: EventKind = "session.failed", *, session: str = "billing") -> None:
        """Put an event on record."""
        self.run(self.store.record_event(replace(sample_of(kind, now_ms()), session=session)))

    def settle(
        self, state: DeliveryState, *, status: int | None = None, error: str | None = None
    ) -> None:
        """Let the try of what has been due the longest end like this; due = again in an hour."""
        self.run(self._settle(state, status, error))

    def deliveries(self) -> list[Delivery]:
        """Return what was sent or is to be, the oldest first."""
        page = self.run(self.store.list_deliveries(Query(limit=1000)))
        return list(reversed(page.rows))

    async def _subscribe(self, rows: tuple[WebhookSettings, ...]) -> None:
        self._outbox.hooks = {hook.name: hook for hook in build_hooks(rows)}
        self.store.subscribe(tuple(hook.subscription for hook in self._outbox.hooks.values()))

    async def _settle(self, state: DeliveryState, status: int | None, error: str | None) -> None:
        at_ms = now_ms()
        (claimed,) = await self.store.claim_deliveries(at_ms=at_ms, lease_ms=1, limit=1)
        await self.store.settle_delivery(
            claimed.delivery_id,
            state=state,
            at_ms=at_ms,
            next_ms=at_ms + HOUR_MS,
            status=status,
            error=error,
        )

    async def _hold(
        self,
        calls: tuple[tuple[str, str], ...],
        session: str,
        schema: dict[str, Any] | None,
        prompt: str,
        changes: dict[str, Any],
    ) -> list[str]:
        tools = [
            {"type": "function", "function": {"name": name, "parameters": schema}}
            for name, _ in calls
            if schema is not None
        ]
        request = {"model": "gpt-5", "messages": [{"role": "user", "content": prompt}]}
        body = {**request, "tools": tools} if tools else request
        claimed = await self.store.claim_step(_claim(session, body, prompt))
        answer_id = await self.store.record_answer(_checkpoint(claimed.step_id, calls))
        questions = tuple(
            replace(_question(position, tool, arguments), **changes)
            for position, (tool, arguments) in enumerate(calls)
        )
        found = await self.store.open_approvals(
            claimed.step_id, answer_id, questions, at_ms=now_ms()
        )
        return [approval.approval_id for approval in found]

    async def _hold_request(self, body: dict[str, Any], session: str) -> str:
        claimed = await self.store.claim_step(_claim(session, body, "Hello"))
        question = replace(
            _question(0, str(body["model"]), ""),
            kind="request",
            call_id=None,
            rule="x-agent-require-approval",
        )
        (found,) = await self.store.open_approvals(
            claimed.step_id, None, (question,), at_ms=now_ms()
        )
        return found.approval_id

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(LIMIT_S)


def _question(position: int, tool: str, arguments: str) -> Question:
    return Question(
        kind="tool_call",
        choice=0,
        position=position,
        digest=hashlib.sha256(f"{tool}\0{arguments}".encode("utf-8", "replace")).digest(),
        tool=tool,
        call_id=f"call_{position}",
        arguments=arguments,
        rule=f"gate.tools: {tool}",
        why="",
        deadline_ms=now_ms() + HOUR_MS,
    )


def _claim(session: str, body: dict[str, Any], prompt: str) -> Claim:
    key = hashlib.sha256(json.dumps(body).encode()).digest()
    return Claim(
        session=session,
        step_number=None,
        run_id=None,
        call_id=None,
        occurrence=0,
        dialect="openai_chat",
        path="/v1/chat/completions",
        model="gpt-5",
        streams=False,
        identity=Identity(raw=key, exact=key, pinned=key, masked=key),
        request=RequestRecord(body, (), "", ()),
        created_ms=now_ms(),
        prompt=prompt,
    )


def _checkpoint(step_id: int, calls: tuple[tuple[str, str], ...]) -> Checkpoint:
    message = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": f"call_{position}",
                "type": "function",
                "function": {"name": tool, "arguments": arguments},
            }
            for position, (tool, arguments) in enumerate(calls)
        ],
    }
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-5",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls"}],
    }
    headers = ((b"content-type", b"application/json"),)
    return Checkpoint(
        step_id=step_id,
        answered_ms=now_ms(),
        attempts=(),
        answer=RecordedAnswer(200, headers, "body", json.dumps(body).encode()),
        provider="openai",
        model="gpt-5",
        response_id=None,
        finish_reason="tool_calls",
        text="",
        tool_calls=(),
        usage=None,
        usage_estimated=False,
        cost_microusd=None,
        latency_ms=800,
        first_content_ms=None,
    )
