"""Approvals for tests: rows in a store in memory, something that decides, and a server of both.

No upstream and no gate: what is asked is written into the store as the gate writes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Self, TypeVar, cast

from agentstate.doors.api.approvals import ApprovalEndpoints
from agentstate.doors.api.export import ExportEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.assets import Assets
from agentstate.doors.front import FrontDoor
from agentstate.ground.approvals import Approval, Decision, Question
from agentstate.ground.canonical import JSON
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import BadRequest
from agentstate.ground.logs import calls
from agentstate.ground.settings import BudgetSettings, ServerSettings
from agentstate.steps.budget import Budgets
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from agentstate.wire.endpoint import Router
from agentstate.wire.server import Server
from tests.store.contract import checkpoint_of, claim_of, message, request_of

T = TypeVar("T")

LIMIT_S = 10.0
HOUR_MS = 3_600_000
SCHEMA: JSON = {"type": "object", "properties": {"to": {"type": "string", "format": "email"}}}
QUESTION = Question(
    kind="tool_call",
    choice=0,
    position=0,
    digest=b"d" * 32,
    tool="send_email",
    call_id="call_0",
    arguments='{"to":"ada@example.org"}',
    rule="gate.tools: send_email",
    why="",
    deadline_ms=None,
)


class StoreDecider:
    """A `doors.api.approvals.Decider` that checks nothing; `refuses` is what it raises instead."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.decisions: list[Decision] = []
        self.refuses: BadRequest | None = None

    async def decide(self, approval_id: str, decision: Decision) -> Approval:
        """Write the decision."""
        self.decisions.append(decision)
        if self.refuses is not None:
            raise self.refuses
        return await self._store.decide(approval_id, decision, at_ms=now_ms())

    async def schema_of(self, approval: Approval) -> JSON:
        """Return one schema for all."""
        return SCHEMA


async def open_approvals(
    store: Store, *questions: Question, session: str = "s", at_ms: int = 0
) -> list[str]:
    """Record an answer in a session and ask about it; return the approvals' ids."""
    tools: JSON = [{"type": "function", "function": {"name": "send_email"}}]
    request = request_of(message("mail her"), shared={"tools": tools})
    claimed = await store.claim_step(
        claim_of(session, session=session, request=request, prompt="mail her")
    )
    answer_id = await store.record_answer(checkpoint_of(claimed.step_id))
    approvals = await store.open_approvals(
        claimed.step_id, answer_id, questions or (QUESTION,), at_ms=at_ms or now_ms()
    )
    return [approval.approval_id for approval in approvals]


class Desk:
    """A server with its management API and nothing else, in a thread. Use with `with`."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.decider = StoreDecider(self.store)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._server: Server | None = None
        self._port = 0

    def __enter__(self) -> Self:
        calls.disabled = True  # where their lines go is for the test before to say
        self._thread.start()
        self.run(self.store.open())
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        calls.disabled = False
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT_S)
        self._loop.close()

    @property
    def url(self) -> str:
        """Where it listens, or did."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; again on the same port."""
        budgets = Budgets(self.store, cast(Any, None), BudgetSettings())
        endpoints = (
            *ApprovalEndpoints(self.store, self.decider).rows(),
            *SessionEndpoints(self.store, budgets).rows(),
            *ExportEndpoints(self.store).rows(),
        )
        door = FrontDoor(cast(Any, None), Router(endpoints), Assets(), ())
        self._server = Server(door.answer, ServerSettings(port=self._port))
        self.run(self._server.start())
        self._port = self._server.address[1]

    def stop(self) -> None:
        """Listen no more; what is on record stays."""
        if self._server is not None:
            self.run(self._server.stop(0.0))
            self._server = None

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run something in the server's loop."""
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(LIMIT_S)

    def ask(self, *questions: Question, session: str = "s", at_ms: int = 0) -> list[str]:
        """See `open_approvals`."""
        return self.run(open_approvals(self.store, *questions, session=session, at_ms=at_ms))

    def decide(self, approval_id: str, decision: Decision) -> Approval:
        """Decide as somebody else would."""
        return self.run(self.store.decide(approval_id, decision, at_ms=now_ms()))

    def decision_of(self, approval_id: str) -> Decision | None:
        """Return what was decided; None = nothing yet."""
        approval = self.run(self.store.read_approval(approval_id))
        assert approval is not None, "it was asked"
        return approval.decision
