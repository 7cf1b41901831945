"""The gate: asks a person about guarded calls, waits for what is decided, takes decisions.

Theory of operation. An answer is on record before it is examined. Each finding becomes an approval,
a row that is bound to the answer, the place in it and a digest of what is called; the same answer
meets the same rows on a client's retry, for a second client, after a restart of either side. A wait
is no state of its own: who waits reads the rows, sleeps until somebody rings or the deadline comes,
and reads again. So nothing is lost if nobody is connected when the decision is made.

Invariants: the store is the truth, a ring is a hint (invariant 5); where a row cannot be written
the call is refused, never let through.

What follows from the decisions is worked out in `outcome.py`; asking the model again after a
refusal is in `rounds.py`; how a client is kept from timing out meanwhile, in `delivery.py`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from agentstate.dialects import dialect_by_name
from agentstate.dialects.base import Dialect, calls_tools
from agentstate.ground.approvals import Approval, Changes, Decision, Question
from agentstate.ground.budget import cap_of, read_more
from agentstate.ground.canonical import JSON, digest
from agentstate.ground.chat import Answer
from agentstate.ground.clock import now_ms
from agentstate.ground.errors import (
    AlreadyDecided,
    ApprovalTimeout,
    BadRequest,
    Conflict,
    Deleted,
    NotFound,
    RolledBack,
    Stopping,
    StoreError,
    shorten,
)
from agentstate.ground.settings import GateSettings
from agentstate.steps import aside
from agentstate.steps.arguments import read_arguments, schema_in
from agentstate.steps.bells import Bells
from agentstate.steps.call import Call
from agentstate.steps.findings import Finding, find_guarded, find_in_request
from agentstate.steps.identify import Caller
from agentstate.steps.outcome import RULE, can_go_on, decided_by_rule, is_settled
from agentstate.steps.policy import Policy
from agentstate.steps.reading import as_body
from agentstate.steps.schema import check_arguments
from agentstate.store.base import Store

RECHECK_S = 15.0  # a ring may be lost with who was to ring; the rows are read again all the same
TEXT_WEIGHT = 32  # looking for calls in a text takes so much longer than reading it
CLEAR_MAX = 16_384  # answers known to have nothing guarded in them; an integer each


@dataclass(frozen=True, slots=True)
class Hold:
    """An answer, or a request, with what must be decided before it may go on."""

    step_id: int
    answer_id: int | None  # None = a request that has no answer yet
    findings: tuple[Finding, ...]
    approvals: tuple[Approval, ...]  # one each, as they were when the hold began

    @property
    def approval_id(self) -> str:
        """The approval a client is told of: the first one."""
        return self.approvals[0].approval_id


class Gate:
    """Holds what the policy does not simply allow."""

    def __init__(self, store: Store, settings: GateSettings, policy: Policy) -> None:
        self.policy = policy
        self.settings = settings
        self._store = store
        self._bells = Bells()  # by approval, and by session
        self._clear: OrderedDict[int, None] = OrderedDict()  # answers, by last use
        self._is_parked = False
        # Called once an event may have been written, and once something is decided.
        self.on_event: Callable[[], None] = _tell_nobody
        self.on_decided: Callable[[Approval], None] = _tell_nobody

    def adopt(self, settings: GateSettings, policy: Policy) -> None:
        """Go by other rules from the next call on; `policy` is made of `settings`.

        A call in flight ends by those it began with: what of a stream has gone out already follows
        from them. What was asked stays asked.
        """
        self.policy = policy
        self.settings = settings
        self._clear.clear()

    # --- what is guarded ----------------------------------------------------------------------

    def scans_text(self, call: Call) -> bool:
        """Say whether an answer to this call may spell a guarded tool in its text.

        Where earlier parts of the conversation are kept upstream, nobody here knows what they name.
        """
        return call.ask.has_hidden_part or call.names_guarded

    def is_clear(self, answer_id: int) -> bool:
        """Say whether an answer is known to have nothing guarded in it."""
        if answer_id not in self._clear:
            return False
        self._clear.move_to_end(answer_id)
        return True

    async def find(
        self, dialect: Dialect, answer: Answer, policy: Policy, *, scans_text: bool
    ) -> tuple[Finding, ...]:
        """Return what of an answer must be decided; `scans_text`: its texts may spell calls.

        Off the event loop where that is much work.
        """
        if not calls_tools(dialect):
            return ()
        chars = sum(len(choice.text) for choice in answer.choices) if scans_text else 0
        look = partial(find_guarded, policy, answer, scans_text=scans_text)
        return await aside.run(look, chars * TEXT_WEIGHT)

    def note_clear(self, answer_id: int, policy: Policy) -> None:
        """Remember that an answer has nothing in it which this policy guards."""
        if policy is not self.policy:
            return  # the one in force now may guard more
        self._clear[answer_id] = None
        if len(self._clear) > CLEAR_MAX:
            self._clear.popitem(last=False)

    # --- asking -------------------------------------------------------------------------------

    async def ask(
        self,
        step_id: int,
        answer_id: int,
        findings: tuple[Finding, ...],
        caller: Caller,
        *,
        refused: Iterable[bytes] = (),
    ) -> Hold:
        """Ask about the findings of an answer, or find what was asked before.

        What was decided about it stands, also where today's policy would not ask.

        `refused`: digests of calls that were refused in the rounds before: they are again, with
        nobody asked.

        Raises:
            StoreError: it could not be written; the answer must not go out.
        """
        refused = frozenset(refused)
        questions = tuple(
            self._question(each, caller, is_quiet=each.digest in refused) for each in findings
        )
        approvals = await self._open(caller.session, step_id, answer_id, questions)
        for finding, approval in zip(findings, approvals, strict=True):
            if approval.decision is None:
                verdict, on_reject = finding.verdict, approval.question.on_reject
                is_repeat = finding.digest in refused
                decision = decided_by_rule(verdict, on_reject, is_repeat=is_repeat)
                if decision is not None:
                    await self._write(approval, decision)
                    await self._close_others(approval, decision)
        approvals = await self._read(approvals)
        earlier = [each for each in await self.decisions(answer_id) if each not in approvals]
        findings = (*findings, *(Finding.of(each.question) for each in earlier))
        return Hold(step_id, answer_id, findings, (*approvals, *earlier))

    async def decisions(self, answer_id: int) -> tuple[Approval, ...]:
        """Return what was decided about an answer when it was first asked about."""
        return tuple(
            each
            for each in await self._store.approvals_of(answer_id)
            if each.decision is not None
            and each.question.kind != "request"
            and not each.question.generation
        )

    async def ask_again(self, hold: Hold, caller: Caller, generation: int, why: str) -> Hold:
        """Ask once more about calls that were approved and let out before.

        Raises:
            StoreError: as `ask`.
        """
        findings = tuple(
            finding
            for finding, approval in zip(hold.findings, hold.approvals, strict=True)
            if approval.decision is not None and approval.decision.is_approved
        )
        # Each run is asked about for itself.
        run = (caller.run_id or "").encode()
        questions = tuple(
            replace(
                self._question(each, caller, generation=generation, why=why),
                digest=digest(each.digest, run),
            )
            for each in findings
        )
        approvals = await self._open(caller.session, hold.step_id, hold.answer_id, questions)
        return Hold(hold.step_id, hold.answer_id, findings, approvals)

    async def ask_first(self, call: Call, step_id: int) -> Hold | None:
        """Ask about a request before it goes upstream; None = it may go.

        Raises:
            StoreError: as `ask`.
        """
        finding = self.find_first(call)
        if finding is None:
            return None
        question = self._question(finding, call.caller)
        approvals = await self._open(call.caller.session, step_id, None, (question,))
        decision = decided_by_rule(finding.verdict, approvals[0].question.on_reject)
        if decision is not None and approvals[0].decision is None:
            await self._write(approvals[0], replace(decision, then="stop"))
        return Hold(step_id, None, (finding,), await self._read(approvals))

    def refuse_unrecorded(self, call: Call) -> None:
        """Refuse a call that must be decided on first and has no row: nothing could be asked.

        Raises:
            StoreError: it is such a call.
        """
        if self.find_first(call) is not None:
            raise StoreError(
                "This call needs a person's approval before it goes upstream, and it could not be "
                "put on record. It was not sent."
            )

    def find_first(self, call: Call) -> Finding | None:
        """Return why a request must be decided on before it goes upstream; None = it need not."""
        dialect = call.dialect
        return find_in_request(
            call.policy,
            dialect.tools(call.ask) if calls_tools(dialect) else (),
            digest=hashlib.sha256(b"request" + call.identity.exact).digest(),
            model=call.ask.model,
            is_wanted=call.caller.requires_approval,
        )

    def _question(
        self,
        finding: Finding,
        caller: Caller,
        *,
        generation: int = 0,
        why: str = "",
        is_quiet: bool = False,
    ) -> Question:
        on_reject = caller.on_reject or self.settings.on_reject
        deadline_ms = caller.deadline_ms(self.settings.timeout_s, now_ms())
        question = finding.question(deadline_ms, on_reject, generation=generation, why=why)
        return replace(question, is_quiet=is_quiet or finding.verdict.action == "deny")

    async def _open(
        self, session: str, step_id: int, answer_id: int | None, questions: tuple[Question, ...]
    ) -> tuple[Approval, ...]:
        try:
            opened = await self._store.open_approvals(step_id, answer_id, questions, at_ms=now_ms())
        except NotFound as error:
            raise Deleted.of(session) from error
        except StoreError as error:
            raise StoreError(
                "A tool call of this answer needs a person's approval, and the question could not "
                f"be written: {error.message} The call was not released."
            ) from error
        self.on_event()
        return opened

    # --- waiting ------------------------------------------------------------------------------

    async def decided(self, hold: Hold, caller: Caller) -> tuple[Approval, ...]:
        """Wait until all is decided, or one thing is so that nothing else matters; return the rows.

        Raises:
            ApprovalTimeout: a deadline has come first, of an approval or of this caller.
            RolledBack, Deleted: the step was rolled back, the session is gone, or a person has
                another answer stand, so nobody decides any more.
            Stopping: the proxy is being stopped.
            StoreError: the rows cannot be read.
        """
        patience_s = caller.hold_timeout_s
        until_ms = now_ms() + int(patience_s * 1000) if patience_s else None
        first = hold.approvals[0].approval_id
        names = (*(each.approval_id for each in hold.approvals), _session_bell(caller.session))
        with self._bells.listening(*names) as bell:
            while True:
                if self._is_parked:
                    raise Stopping(
                        f"The proxy is being stopped. {first} still waits for a decision; ask "
                        "again once it is back."
                    )
                bell.clear()  # before reading: what is decided after it rings
                approvals = await self._read(hold.approvals)
                if is_settled(approvals):
                    return approvals
                if any(each.rolled_back_ms is not None for each in approvals):
                    raise RolledBack(
                        f"The step was rolled back, or its answer changed, while {first} waited "
                        "for a decision. Ask again: the call gets what stands now."
                    )
                await self._sleep(bell, approvals, until_ms, has_own_limit=patience_s is not None)

    def ring_session(self, session: str) -> None:
        """Have all who wait in a session look again: its steps were rolled back or restored."""
        self._bells.ring(_session_bell(session))

    def park(self) -> None:
        """End all waits, now and from now on: the rows stay, and whoever asks again finds them."""
        self._is_parked = True
        self._bells.ring_all()

    async def _sleep(
        self,
        bell: asyncio.Event,
        approvals: tuple[Approval, ...],
        until_ms: int | None,
        *,
        has_own_limit: bool,
    ) -> None:
        """Wait for a ring. Raises `ApprovalTimeout` when a deadline has come.

        A caller that says how long it waits is held to that alone: the deadline of the row may be
        another caller's, and a decision counts after it as well.
        """
        open_ones = [each for each in approvals if each.decision is None]
        deadlines = [until_ms]
        if not has_own_limit:
            deadlines = [each.question.deadline_ms for each in open_ones]
        soonest_ms = min((each for each in deadlines if each is not None), default=None)
        wait_s = RECHECK_S
        if soonest_ms is not None:
            wait_s = min(max(soonest_ms - now_ms(), 0) / 1000, RECHECK_S)
        try:
            async with asyncio.timeout(wait_s):
                await bell.wait()
        except TimeoutError as error:
            if soonest_ms is None or now_ms() < soonest_ms:
                return
            tools = ", ".join(sorted({shorten(each.question.tool) for each in open_ones}))
            raise ApprovalTimeout(
                f"Nobody decided in time about {tools} ({open_ones[0].approval_id}). It was not "
                "released. The same call asks again.",
                approval_id=open_ones[0].approval_id,
            ) from error

    async def _read(self, approvals: Iterable[Approval]) -> tuple[Approval, ...]:
        found: list[Approval] = []
        for each in approvals:
            row = await self._store.read_approval(each.approval_id)
            if row is None:
                raise Deleted.of(each.session)
            found.append(row)
        return tuple(found)

    # --- deciding -----------------------------------------------------------------------------

    async def decide(self, approval_id: str, decision: Decision) -> Approval:
        """Take a person's decision; whoever waits for it goes on.

        A rejection that stops is the end of its answer: what else of it was asked goes with it.

        Raises:
            NotFound: there is no such approval.
            AlreadyDecided: the first decision stands.
            Conflict: its step was rolled back.
            BadRequest: the edited arguments do not fit the tool, or the answer cannot go on in this
                way; nothing was decided.
            StoreError: it could not be written; nothing was decided.
        """
        approval = await self._store.read_approval(approval_id)
        if approval is None:
            raise NotFound(f"There is no approval {shorten(approval_id)!r}.")
        if approval.decision is None:
            if approval.rolled_back_ms is not None:
                raise Conflict(
                    f"The step of {approval_id} was rolled back, or a person has another answer "
                    "stand, so nobody waits for a decision. Restore the session first."
                )
            decision = await self._checked(approval, decision)
        written = await self._write(approval, decision)
        await self._close_others(approval, decision)
        return written

    async def _close_others(self, approval: Approval, decision: Decision) -> None:
        """Refuse what else of an answer is asked once a rejection has stopped it."""
        if decision.is_approved or decision.then != "stop" or approval.answer_id is None:
            return
        reason = f"the answer was refused together with {shorten(approval.question.tool)}"
        for other in await self._store.approvals_of(approval.answer_id):
            if other.decision is None:
                with suppress(AlreadyDecided):  # somebody was faster: that stands
                    await self._write(other, replace(decision, reason=reason))

    async def _write(self, approval: Approval, decision: Decision) -> Approval:
        try:
            written = await self._store.decide(approval.approval_id, decision, at_ms=now_ms())
        except AlreadyDecided as error:
            if decision.by != RULE or not isinstance(error.approval, Approval):
                raise
            return error.approval  # another call met the same rule first
        self._bells.ring(approval.approval_id)
        self.on_decided(written)
        self.on_event()
        return written

    async def _checked(self, approval: Approval, decision: Decision) -> Decision:
        """Return the decision made whole, or raise `BadRequest`."""
        question = approval.question
        if decision.is_approved:
            if decision.arguments is not None:
                await self._check_edit(approval, decision.arguments)
            return replace(decision, arguments=decision.arguments or approval.proposed, then=None)
        if decision.then != "continue" and (decision.then or question.on_reject) == "stop":
            return replace(decision, then="stop")
        hindrance = await self._hindrance(approval)
        if hindrance is None:
            return replace(decision, then="continue")
        if decision.then == "continue":
            raise BadRequest(f'"then": "continue" is not possible here: {hindrance}', param="then")
        return replace(decision, then="stop")

    async def _check_edit(self, approval: Approval, arguments: str) -> None:
        question = approval.question
        if question.kind == "durable":
            read_arguments(arguments)  # the tool takes an object
            return
        if question.kind == "budget":
            read_more(cap_of(question.tool), arguments)  # raises what it has against it
            return
        if question.kind != "tool_call" or question.generation:
            what = {
                "text": "the call is spelled in the answer's text",
                "request": "it is a whole request, not a tool call",
                "tool_call": "the call was let out before, so its arguments are settled",
            }[question.kind]
            raise BadRequest(
                f"The arguments cannot be edited: {what}. Approve or reject it as it is.",
                param="arguments",
            )
        dialect, body = await self._answer_of(approval)
        changes: Changes = {(question.choice, question.position): arguments}
        assert calls_tools(dialect), "it was held, so its dialect calls tools"
        dialect.changed_body(body, changes)  # raises what the wire form has against it
        schema = await self.schema_of(approval)
        if schema is not None:
            check_arguments(arguments, schema)

    async def schema_of(self, approval: Approval) -> JSON:
        """Return the JSON schema of the tool's arguments from the recorded request, or None."""
        if approval.step_id is None:
            return None  # a durable call is asked about by its tool, which no model was offered
        dialect = dialect_by_name(approval.dialect)
        request = await self._store.read_request(approval.step_id)
        if dialect is None or not calls_tools(dialect) or not isinstance(request, dict):
            return None
        return schema_in(dialect, request, approval.question.tool)

    async def _hindrance(self, approval: Approval) -> str | None:
        """Say why the model cannot be told of a refusal; None = it can."""
        if approval.step_id is None:
            return None  # the tool is told, and whoever called it
        if approval.answer_id is None:
            return "a request that was not sent has no model to tell."
        if approval.question.generation:
            return "the call was let out before, so the model knows of it."
        dialect, body = await self._answer_of(approval)
        request = await self._store.read_request(approval.step_id)
        assert isinstance(request, dict), "a step has a request"
        return can_go_on(dialect, request, body, approval.question.kind)

    async def _answer_of(self, approval: Approval) -> tuple[Dialect, bytes]:
        """Return the dialect of an approval's answer and the answer, not streamed."""
        dialect = dialect_by_name(approval.dialect)
        recorded = (
            None
            if approval.answer_id is None
            else await self._store.read_answer_by_id(approval.answer_id)
        )
        if dialect is None or recorded is None:
            raise NotFound(f"The answer of {approval.approval_id} is gone from the record.")
        return dialect, as_body(dialect, recorded)


def _session_bell(session: str) -> tuple[str, str]:
    return ("session", session)


def _tell_nobody(*_: object) -> None:
    """Nobody is to be told."""
