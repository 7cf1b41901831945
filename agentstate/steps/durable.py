"""Durable tools: says to a tool that is about to act whether it may, must not, or has already.

Theory of operation. A tool begins a call, acts when it is told `run`, and reports what came of it.
Both are on record before they are answered. What a begin is told follows from the record alone
(`store/durables.py`), so it is the same after a restart of either side. This is what each death
leaves:

1. The agent dies after its begin, before, in or after the act: the call is running, of an owner who
   never reports. The next owner's begin makes it unknown, and a person settles it, or
   `tools.unknown` does. A person may settle it before, unless its owner said that it lives.
2. The report is lost on the wire: it is sent again, and the same report changes nothing.
3. The proxy dies before a begin is written: nothing was run. After it: the same begin asks again
   and is told `run`, since its owner has not been told yet.
4. The proxy dies before a report is written, or before it is answered: as 2.

A call is guarded by the same policy as the model's own, and asked about once: an approval of the
model's call that was let out to an agent stands for one durable call with its name and arguments.

Invariant: whoever waits here holds nothing; what it is told comes from the store alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentstate.ground.approvals import Approval, Question, Then
from agentstate.ground.canonical import digest
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.durable import Begin, Begun, DurableCall, OnUnknown, Report, Settlement
from agentstate.ground.settings import Settings
from agentstate.steps.bells import Bells
from agentstate.steps.findings import Finding
from agentstate.steps.gate import Gate
from agentstate.steps.outcome import decided_by_rule, tell
from agentstate.steps.policy import Verdict
from agentstate.store.base import Store

RECHECK_S = 15.0  # a ring may be lost with who was to ring; the record is read again all the same


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a tool is about to do, as it says so."""

    session: str
    tool: str
    arguments: str  # JSON of an object, or free text
    key: str | None = None
    call_id: str | None = None
    owner: str | None = None
    begin_id: str | None = None
    lease_s: float | None = None
    on_unknown: OnUnknown | None = None  # None = as the setting says
    on_reject: Then | None = None  # None = as the setting says


class Durables:
    """Takes begins and reports. One per server."""

    def __init__(
        self,
        store: Store,
        gate: Gate,
        settings: Settings,
        crash: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._gate = gate
        self._settings = settings
        self._crash = crash
        self._bells = Bells()  # by session
        self._is_parked = False
        gate.on_decided = lambda approval: self.ring(approval.session)

    # --- beginning --------------------------------------------------------------------------

    async def begin(
        self, wanted: Wanted, *, wait_s: float = 0.0, is_gone: Callable[[], bool] = lambda: False
    ) -> Begun:
        """Say what a tool is to do. While that is open, wait up to `wait_s` before saying so.

        Raises:
            StoreError: it could not be read or written; the tool must not act.
            ConnectionError: the client left: nothing is begun for it any more.
        """
        until_s = monotonic_s() + wait_s
        with self._bells.listening(wanted.session) as bell:
            while True:
                bell.clear()  # before reading: what is decided after it rings
                begun = await self._begin(wanted)
                left_s = until_s - monotonic_s()
                if begun.state not in ("held", "unknown") or left_s <= 0 or self._is_parked:
                    return begun
                try:
                    async with asyncio.timeout(min(left_s, RECHECK_S, _soonest_s(begun))):
                        await bell.wait()
                except TimeoutError:
                    pass  # the record is read once more
                if is_gone():
                    raise ConnectionResetError("the client left while its call was held")

    async def _begin(self, wanted: Wanted) -> Begun:
        if await self._store.read_pause(wanted.session) is not None:
            return Begun("held", None, "pause")
        policy = self._gate.policy
        verdict = policy.judge(wanted.tool, wanted.arguments, "function")
        own = policy.digest_of(wanted.tool, wanted.arguments)
        key = b"" if wanted.key is None else b"=" + wanted.key.encode("utf-8", "surrogatepass")
        at_ms = now_ms()
        begin = Begin(
            session=wanted.session,
            tool=wanted.tool,
            arguments=wanted.arguments,
            digest=digest(own, key),
            at_ms=at_ms,
            key=wanted.key,
            call_id=wanted.call_id,
            owner=wanted.owner,
            begin_id=wanted.begin_id,
            lease_ms=None if wanted.lease_s is None else at_ms + int(wanted.lease_s * 1000),
            on_unknown=wanted.on_unknown or self._settings.tools.unknown,
            question=self._question(wanted, verdict, own, at_ms),
            covered_by=await self._covering(wanted, verdict, own),
        )
        self._crash("tool_begin")
        begun = await self._store.begin_durable(begin)
        if begun.approval is not None and (
            decision := decided_by_rule(verdict, begun.approval.question.on_reject)
        ):
            await self._gate.decide(begun.approval.approval_id, decision)
            begun = await self._store.begin_durable(begin)
        self._crash("tool_begun")
        if begun.state in ("held", "unknown"):
            self._gate.on_event()
        return begun

    def _question(
        self, wanted: Wanted, verdict: Verdict, own: bytes, at_ms: int
    ) -> Question | None:
        """Return what must be decided before a call; None = nothing must."""
        if verdict.action == "allow":
            return None
        finding = Finding(
            kind="durable",
            choice=0,
            position=0,
            tool=wanted.tool,
            call_id=wanted.call_id,
            arguments=wanted.arguments,
            digest=own,
            verdict=verdict,
        )
        gate = self._gate.settings
        deadline_ms = at_ms + int(gate.timeout_s * 1000) if gate.timeout_s else None
        question = finding.question(deadline_ms, wanted.on_reject or gate.on_reject)
        return replace(question, is_quiet=verdict.action == "deny")

    async def _covering(self, wanted: Wanted, verdict: Verdict, own: bytes) -> tuple[str, ...]:
        """Return the approvals of the model's own call that were let out and may stand for it."""
        if verdict.action != "ask":
            return ()
        found = await self._store.list_let_out(wanted.session, wanted.tool)
        return tuple(
            each.approval_id
            for each in found
            if wanted.call_id in (None, each.question.call_id) and self._let_out(each) == own
        )

    def _let_out(self, approval: Approval) -> bytes:
        """Return the digest of the call as the agent got it."""
        decision = approval.decision
        if decision is None or decision.arguments is None:
            return approval.question.digest
        return self._gate.policy.digest_of(approval.question.tool, decision.arguments)

    async def refusal_of(self, call: DurableCall) -> str:
        """Return what a model is told of a call that was refused."""
        approval = None
        if call.approval_id is not None:
            approval = await self._store.read_approval(call.approval_id)
        if approval is None or approval.decision is None:
            return f"The call of {call.tool} was refused; it was not carried out."
        return tell(call.tool, approval.decision)

    # --- what came of it ----------------------------------------------------------------------

    async def report(self, session: str, call: str, report: Report) -> DurableCall:
        """Take what came of a call; whoever waits for it goes on.

        Raises:
            NotFound, Conflict: as `Store.report_durable`.
            StoreError: it could not be written: report it again.
        """
        self._crash("tool_report")
        row = await self._store.report_durable(session, call, report, at_ms=now_ms())
        self._crash("tool_reported")
        self.ring(session)
        if row.state == "unknown":
            self._gate.on_event()
        return row

    async def settle(self, session: str, call: str, settlement: Settlement) -> DurableCall:
        """Take a person's word on a call without an outcome; whoever waits for it goes on.

        Raises:
            NotFound, Conflict: as `Store.settle_durable`.
            StoreError: it could not be written; nothing was settled.
        """
        row = await self._store.settle_durable(session, call, settlement, at_ms=now_ms())
        self.ring(session)
        return row

    async def forget(
        self, session: str, call: str, *, by: str | None, reason: str | None
    ) -> DurableCall:
        """Have the next equal call be a new one.

        Raises:
            NotFound, Conflict: as `Store.forget_durable`.
            StoreError: it could not be written; nothing was forgotten.
        """
        return await self._store.forget_durable(session, call, at_ms=now_ms(), by=by, reason=reason)

    # --- who waits ----------------------------------------------------------------------------

    def ring(self, session: str) -> None:
        """Have the calls of a session that are held look again."""
        self._bells.ring(session)

    def park(self) -> None:
        """End all waits, now and from now on: the proxy is being stopped."""
        self._is_parked = True
        self._bells.ring_all()


def _soonest_s(begun: Begun) -> float:
    """Return the seconds until something changes by itself."""
    call, times = begun.call, []
    if begun.held_by == "running" and call is not None and call.lease_ms is not None:
        times.append(call.lease_ms)
    if begun.approval is not None and begun.approval.question.deadline_ms is not None:
        times.append(begun.approval.question.deadline_ms)
    return max(min(times, default=now_ms() + int(RECHECK_S * 1000)) - now_ms(), 0) / 1000
