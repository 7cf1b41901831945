"""What is written about one call while it is on its way: claim, answer, tail, failure.

Shared by `upstream.py`, which takes the call, and `stream.py`, which reads a stream. Where the disk
fails, this is where it is decided what that means for the call (DESIGN section 8).
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    BudgetReached,
    Deleted,
    HumanRejection,
    NotFound,
    PolicyRejection,
    StoreError,
    UpstreamError,
    shorten,
)
from agentstate.ground.events import Event
from agentstate.ground.meters import Meters
from agentstate.ground.prices import Prices, load_prices
from agentstate.ground.records import Claim, Claimed, RecordedAnswer, Tail
from agentstate.ground.redaction import Redactor
from agentstate.ground.secrets import strike
from agentstate.ground.settings import Settings
from agentstate.ground.tasks import TaskSet
from agentstate.steps.abouts import Abouts
from agentstate.steps.budget import Budgets
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import cleared_attempts, cost_of, count_usage, make_checkpoint
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.durable import Durables
from agentstate.steps.flight import Landing
from agentstate.steps.forward import Transports, keys_of
from agentstate.steps.gate import Gate, Hold
from agentstate.steps.identify import last_prompt
from agentstate.steps.ladder import Ladder
from agentstate.steps.misses import Miss
from agentstate.steps.offline import Offline
from agentstate.steps.pauses import Pauses
from agentstate.steps.policy import Policy
from agentstate.steps.rounds import Rounds
from agentstate.steps.screen import Screen
from agentstate.steps.splices import Splices
from agentstate.steps.target import keys_sent
from agentstate.steps.told import WHY_CHARS_MAX, FallbackNews, call_failed, fallback_used
from agentstate.steps.tries import RESTS, AllFailed, Road, Tries
from agentstate.store.base import Store
from agentstate.wire.message import Headers

log = logging.getLogger("agentstate.recording")

# How an attempt ends of which nobody is told: it was given up, or passed by.
UNTOLD = (None, UpstreamError.code, AgentStateError.code, RESTS)


# People were told of it when it was decided; the same call, made again, ends the same way.
REFUSED = (HumanRejection, PolicyRejection, BudgetReached)


@dataclass(frozen=True, slots=True)
class Services:
    """What a call needs from the house."""

    store: Store
    ladder: Ladder
    abouts: Abouts
    transports: Transports
    settings: Settings
    prices: Prices
    tasks: TaskSet
    crash: Callable[[str], None]  # called at each named point where a test may kill the process
    gate: Gate
    budgets: Budgets
    pauses: Pauses
    durables: Durables
    splices: Splices
    rounds: Rounds
    road: Road
    fallback_news: FallbackNews
    offline: Offline | None  # None = what is not on record goes upstream
    redactor: Redactor  # knows what is configured
    meters: Meters

    def redactor_of(self, headers: Headers) -> Redactor:
        """Return what knows the keys of a caller as well."""
        return self.redactor.with_keys(keys_sent(headers))


def build_services(
    store: Store,
    transports: Transports,
    settings: Settings,
    tasks: TaskSet,
    crash: Callable[[str], None],
    meters: Meters | None = None,
) -> Services:
    """Build what calls need from what the house has. `meters`: count what happens; None = for
    nobody."""
    meters = meters or Meters()
    prices = load_prices()
    gate = Gate(store, settings.gate, Policy(settings.gate))
    splices = Splices(store)
    forward = settings.forward
    cooldowns = Cooldowns(after=forward.cooldown_after, rest_s=forward.cooldown_s)
    road = Road(transports, forward, prices, cooldowns, meters)
    budgets = Budgets(store, gate, settings.budget)
    rounds = Rounds(
        store=store,
        gate=gate,
        budgets=budgets,
        splices=splices,
        road=road,
        settings=settings,
        tasks=tasks,
    )
    ladder = Ladder(store, meters)
    return Services(
        store=store,
        ladder=ladder,
        abouts=Abouts(store),
        transports=transports,
        settings=settings,
        prices=prices,
        tasks=tasks,
        crash=crash,
        gate=gate,
        budgets=budgets,
        pauses=Pauses(store, gate, tasks),
        durables=Durables(store, gate, settings, crash),
        splices=splices,
        rounds=rounds,
        road=road,
        fallback_news=FallbackNews(),
        offline=Offline(store, ladder) if settings.replay.offline else None,
        redactor=Redactor(settings.secrets, settings.redact.patterns),
        meters=meters,
    )


class Recording:
    """The record of one call, from its claim on."""

    def __init__(self, services: Services, call: Call, tries: Tries) -> None:
        self._services = services
        self._call = call
        self._tries = tries
        self.claimed: Claimed | None = None  # None = not yet, or the disk is down
        self._is_again = False  # it was tried before, in vain
        self.is_saved = False  # an answer is on the disk
        self.is_noted = False  # how the call ended is written, or nothing has to be
        self.upstream_s = 0.0  # spent waiting for the upstream until the head was released
        self.approval_id: str | None = None  # that let the request go upstream; None = none had to
        self._answer_id: int | None = None  # None = none is on the disk

    def forget(self, slim: Call) -> None:
        """Let go of what is large: the call is over, and `slim` is what is kept of it."""
        self._call = slim

    def since_first_s(self) -> float:
        """Return how long ago the first attempt began."""
        return monotonic_s() - self._tries.began_s

    def since_start_ms(self) -> int:
        """Return how long ago the request's head came."""
        return int((monotonic_s() - self._call.started_s) * 1000)

    async def claim(self, row: int | None, miss: Miss | None) -> None:
        """Write that the call is in flight; `row`: of an earlier try of it, None = a new one.

        Raises:
            StoreError: it could not be written, and the setting is to refuse.
        """
        self._is_again = row is not None
        call = self._call
        redactor = call.redactor
        claim = Claim(
            session=call.caller.session,
            step_number=call.caller.step_number,
            run_id=call.caller.run_id,
            call_id=call.caller.call_id,
            occurrence=0,
            dialect=call.dialect.name,
            path=call.path,
            model=call.ask.model,
            streams=call.ask.streams,
            identity=call.identity,
            request=replace(call.record, redactor=redactor),
            created_ms=call.arrived_ms,
            prompt=last_prompt(call.ask.messages, redactor),
            is_mock=call.target.is_mock,
            miss=None if miss is None else miss.as_json(),
            step_id=row,
            about=call.caller.about,
        )
        try:
            self.claimed = await self._services.store.claim_step(claim)
        except StoreError as error:
            if self._services.settings.store.on_failure == "refuse":
                raise
            log.error("the call goes on unrecorded: %s", error.message)
        else:
            self._services.ladder.note_claimed(self.claimed.step_id)
            self._services.abouts.note(call.caller.session, call.caller.about)
        self._services.crash("claimed")

    async def commit(
        self, recorded: RecordedAnswer, answer: Answer, first_content_ms: int | None
    ) -> None:
        """Write the answer and wait for the disk.

        An answer that came is delivered even if the disk fails: it is paid for. That is the one
        exception to "written before released", and it is loud.
        """
        services, call = self._services, self._call
        services.crash("before_commit")
        if self.claimed is None:
            return
        checkpoint = make_checkpoint(
            step_id=self.claimed.step_id,
            now_ms=now_ms(),
            ask=call.ask,
            input_chars=len(call.raw),
            attempts=self._tries.ended(),
            answer=answer,
            recorded=recorded,
            provider=self._tries.target.provider,
            prices=services.prices,
            latency_ms=self.since_start_ms(),
            first_content_ms=first_content_ms,
            approval_id=self.approval_id,
            event=self._fallback_event(),
            model=self._tries.target.model,
            redactor=call.redactor,
        )
        try:
            self._answer_id = await services.store.record_answer(checkpoint)
        except NotFound:
            # Its session was deleted: the answer is paid for, so its own client gets it, once.
            self.is_noted = True
            return
        except StoreError as error:
            services.meters.note_unsaved()
            log.error(
                "session %r: an answer could not be saved and is delivered once: %s",
                call.caller.session,
                error.message,
            )
            return
        self.is_saved = self.is_noted = True
        if checkpoint.event is not None:
            services.gate.on_event()
        services.crash("after_commit")

    def screen(self) -> Screen:
        """Return what stands between a stream of this call and its clients."""
        return Screen(
            self._call.policy,
            scans_text=self._services.gate.scans_text(self._call),
            holds_calls=self._services.settings.stream.tool_calls == "hold",
        )

    async def examine(self, answer: Answer) -> Hold | None:
        """Return what must be decided about the answer that was committed; None = nothing.

        Raises:
            StoreError: something must, and it is not on record: the answer must not go out.
        """
        gate = self._services.gate
        scans_text = gate.scans_text(self._call)
        findings = await gate.find(
            self._call.dialect, answer, self._call.policy, scans_text=scans_text
        )
        if self.claimed is None or self._answer_id is None:
            if findings and self.claimed is not None and self.is_noted:
                raise Deleted.of(self._call.caller.session)
            if findings:
                raise StoreError(
                    f"The answer calls {shorten(findings[0].tool)}, which a person must approve, "
                    "and it could not be put on record. It was not released."
                )
            return None
        if not findings:
            gate.note_clear(self._answer_id, self._call.policy)
            return None
        findings = tuple(each.without_keys(self._call.redactor) for each in findings)
        return await gate.ask(self.claimed.step_id, self._answer_id, findings, self._call.caller)

    async def append(self, answer: Answer, content: bytes, pace: bytes, *, seals: bool) -> None:
        """Append what came after the completing frame, with the usage it brought."""
        if self.claimed is None or not self.is_saved:
            return
        usage, is_estimate = answer.usage, False
        if usage is None and seals:
            usage, is_estimate = count_usage(answer, len(self._call.raw))
        cost = self.cost(answer)
        content = self._call.redactor.without_keys(content)
        tail = Tail(
            self.claimed.step_id, content, pace, seals, usage, is_estimate, cost, self._answer_id
        )
        self._services.crash("before_tail")
        try:
            await self._services.store.append_tail(tail)
        except NotFound:
            pass  # its session was deleted
        except StoreError as error:
            # The answer itself is on record; a replay ends the stream by itself.
            log.error("the tail of an answer could not be saved: %s", error.message)
        self._services.crash("after_tail")

    async def fail(self, error: AgentStateError, outcome: AllFailed | None = None) -> None:
        """Write that no complete answer came. An attempt that still lasts is ended by this.

        `outcome`: how it went with all targets; None = it was not theirs to answer. A session of
        which a call was refused for good has failed, as by the decision itself.
        """
        self.is_noted = True
        if self.claimed is None:
            return
        attempts = cleared_attempts(self._tries.ended(error), self._call.redactor)
        try:
            event = None if outcome is None else await self._failed_event(self.claimed, outcome)
            await self._services.store.record_failure(
                self.claimed.step_id,
                attempts,
                failed_ms=now_ms(),
                fails_session=outcome is not None or isinstance(error, REFUSED),
                why=self._why(error),
                event=event,
            )
        except NotFound:
            pass  # its session was deleted: nobody asks how its calls ended
        except StoreError as failure:
            # Nothing is lost by it: an open claim is marked interrupted at the next start.
            log.error("a failed call could not be noted: %s", failure.message)
        if outcome is not None:
            self._services.gate.on_event()

    def _why(self, error: AgentStateError) -> str:
        """Return what stands as the reason of a session that failed: an upstream's words may repeat
        a key."""
        call = self._call
        keys = [key for target in call.targets for key in keys_of(target, call.headers)]
        return shorten(call.redactor.text(strike(error.message, *keys)), WHY_CHARS_MAX)

    def _fallback_event(self) -> Event | None:
        tries, call = self._tries, self._call
        if self.claimed is None or not tries.index:
            return None
        news = self._services.fallback_news
        if not news.is_news(call.caller.session, call.target, tries.target, monotonic_s()):
            return None
        return fallback_used(
            call.caller.session,
            self.claimed,
            call.targets,
            tries.target,
            tries.failures,
            call.redactor,
        )

    async def _failed_event(self, claimed: Claimed, outcome: AllFailed) -> Event | None:
        """Return what people are told; once for a call, however often its client tries it."""
        # A request that does not fit is the agent's own to shorten.
        if outcome.first.failure.kind == "context":
            return None
        if self._is_again:
            # An earlier try may have been given up before it had failed: nobody was told of that.
            before = await self._services.store.list_attempts(claimed.step_id)
            if any(each.error_code not in UNTOLD for each in before):
                return None
        call = self._call
        return call_failed(
            call.caller.session, claimed, call.target, outcome.first, outcome.tried, call.redactor
        )

    async def close(self) -> None:
        """See to it that the claim does not stay open, however the call ended."""
        if self.is_noted:
            return
        await self.fail(AgentStateError("The call ended without an answer on record."))

    def cost(self, answer: Answer) -> int | None:
        """Return what the answer costs in micro-dollars; None = not known (yet)."""
        return cost_of(
            self._services.prices,
            self._tries.target.provider,
            answer.model or self._tries.target.model,
            answer,
        )

    def landing(
        self,
        *,
        answer: RecordedAnswer | None = None,
        refusal: RecordedAnswer | None = None,
        error: AgentStateError | None = None,
        read: Answer | None = None,
        hold: Hold | None = None,
        shown_bytes: int = 0,
        tried: tuple[str, ...] = (),
    ) -> Landing:
        """Return how the call ended. `read`: the answer in neutral form, where there is one."""
        if answer is not None and read is not None:
            self._services.meters.note_answer(
                self._call.dialect.name,
                self._tries.target.provider,
                read.model or self._tries.target.model,
                read.usage,
                self.cost(read),
                fallback_index=self._tries.index,
            )
        return Landing(
            answer=answer,
            refusal=refusal,
            error=error,
            is_unsaved=answer is not None and not self.is_saved,
            step_number=self.claimed.step_number if self.claimed else None,
            step_id=self.claimed.step_id if self.claimed else None,
            provider=self._tries.target.provider,
            model=(read.model if read else None) or self._tries.target.model,
            attempts=self._tries.count,
            fallback_index=self._tries.index,
            dropped=self._tries.dropped,
            tried=tried,
            cost_microusd=self.cost(read) if read else None,
            upstream_s=self.upstream_s,
            hold=hold,
            shown_bytes=shown_bytes,
        )
