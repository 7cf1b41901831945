"""From decisions to what the agent gets: the answer, changed, or the model's next one.

    decided → outcome → let out | change | tell the model and ask again → gate → …

Asking the model again is a call of its own: it runs on the connection, with the key, of an agent
that waits, its answer is recorded as a round of the same step, and however many wait, it is asked
once. What the agent gets is worked out from the record alone, so that every client and every later
replay gets the same; where it differs from the recorded answer it is written down first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar, cast

from agentstate.dialects.base import CallsTools, Dialect, Round, calls_tools
from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.chat import Answer
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import (
    AgentStateError,
    BadRequest,
    Conflict,
    Deleted,
    GateError,
    NotFound,
    UpstreamRefused,
)
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.settings import GateSettings, Settings
from agentstate.ground.tasks import TaskSet
from agentstate.steps import aside
from agentstate.steps.budget import Budgets
from agentstate.steps.call import Call
from agentstate.steps.chains import write_out
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.gate import Gate, Hold
from agentstate.steps.identify import Caller
from agentstate.steps.leg import Failed, Outgoing
from agentstate.steps.once import Once
from agentstate.steps.outcome import (
    Changed,
    GoOn,
    Outcome,
    Unchanged,
    outcome_of,
    refusal_of,
    stopped,
)
from agentstate.steps.policy import Policy
from agentstate.steps.reading import as_body, frames_of, read_recorded
from agentstate.steps.refused import refused
from agentstate.steps.screen import Screen
from agentstate.steps.splices import Splices
from agentstate.steps.target import Target
from agentstate.steps.textcalls import find_calls
from agentstate.steps.tries import AllFailed, Reception, Road, Tries
from agentstate.steps.whole import read_whole
from agentstate.store.base import Store
from agentstate.wire.sse import Frame, SSEDecoder

T = TypeVar("T")

ROUNDS_MAX = 3  # DESIGN section 6: a model that is refused so often does not understand


@dataclass(frozen=True, slots=True)
class LetOut:
    """What goes to the agent, and the release to mark once it has got it whole."""

    answer: RecordedAnswer
    release_id: int | None  # None = it holds no call that a person approved


Passed = LetOut | AgentStateError  # how the gate was passed, or why not


class Rounds:
    """Takes answers that are held through their decisions."""

    def __init__(
        self,
        *,
        store: Store,
        gate: Gate,
        budgets: Budgets,
        splices: Splices,
        road: Road,
        settings: Settings,
        tasks: TaskSet,
    ) -> None:
        self._store = store
        self._gate = gate
        self._budgets = budgets
        self._splices = splices
        self._road = road
        self._settings = settings
        self._tasks = tasks
        # By (first answer, number): asking the model for this round
        self._asking = Once[tuple[int, int], tuple[int, RecordedAnswer]](tasks, "round")

    async def passed(self, call: Call, hold: Hold, recorded: RecordedAnswer) -> Passed:
        """Return what `let_out` returns or raises: for a task, whose failures are of our own."""
        session = call.caller.session
        try:
            return await self.let_out(call, hold, recorded)
        except NotFound:
            return Deleted.of(session)
        except GateError as error:
            return await refused(self._store, session, error)
        except AgentStateError as error:
            return error

    async def let_out(self, call: Call, hold: Hold, recorded: RecordedAnswer) -> LetOut:
        """Wait for the decisions about an answer and return what the agent gets.

        Raises:
            GateError: it was refused, or nobody decided in time.
            RolledBack: its step was, while it waited.
            UpstreamError: the model had to be asked again, and failed.
            StoreError: the record cannot be read or written; nothing may go out.
        """
        root_id = hold.answer_id
        assert root_id is not None, "an answer, not a request"
        approvals = await self._gate.decided(hold, call.caller)
        if (error := refusal_of(approvals)) is not None:
            raise error
        await self._check_late(root_id, approvals)
        delivered = await self._store.read_delivered(root_id)
        if delivered is None:
            delivered = await self._compose(call, hold, approvals, recorded)
            self._splices.forget(root_id)
        hold = replace(hold, approvals=approvals)
        if not await self._has_approved(root_id, approvals):
            return LetOut(delivered, None)
        await self._ask_about_release(hold, call.caller)
        release_id = await self._store.record_release(root_id, call.caller.run_id, at_ms=now_ms())
        return LetOut(delivered, release_id)

    async def _has_approved(self, root_id: int, approvals: tuple[Approval, ...]) -> bool:
        """Say whether what goes out has a call that a person approved."""
        found = [*approvals]
        for answer_id in await self._store.rounds_of(root_id):
            found += await self._store.approvals_of(answer_id)
        return any(each.decision is not None and each.decision.is_approved for each in found)

    async def _check_late(self, root_id: int, approvals: tuple[Approval, ...]) -> None:
        """Refuse what was decided otherwise after an earlier run had got the answer already.

        A rule may have come since. What an agent has got stays what it was: it can only be given
        out again as it is, or not at all.
        """
        releases = await self._store.list_releases(root_id)
        if not releases:
            return
        for each in approvals:
            decision = each.decision
            if decision is None or (each.decided_ms or 0) <= releases[0].released_ms:
                continue
            if not decision.is_approved or decision.arguments is not None:
                why = " The answer was let out before this was decided, so it cannot be changed."
                raise stopped(each, decision, why)

    # --- what the agent gets ------------------------------------------------------------------

    async def _compose(
        self,
        call: Call,
        hold: Hold,
        approvals: tuple[Approval, ...],
        recorded: RecordedAnswer,
    ) -> RecordedAnswer:
        """Return what the agent gets, written down where it is not the answer itself."""
        dialect = call.dialect
        assert calls_tools(dialect), "it was held, so its dialect calls tools"
        assert hold.answer_id is not None
        root_id, rounds = hold.answer_id, list[Round]()
        scans_text = self._gate.scans_text(call)
        current, openings = recorded, list[Opening]()
        refused: set[bytes] = set()
        while True:
            outcome = await _aside(partial(_outcome, dialect, current, approvals), current)
            if isinstance(outcome, Unchanged):
                break
            if isinstance(outcome, Changed):
                current = await _aside(partial(changed, dialect, current, outcome), current)
                break
            if not call.ask.body:
                request = await self._store.read_request(hold.step_id)
                assert isinstance(request, dict), "a step has a request"
                call = replace(call, ask=replace(call.ask, body=request))
            self._check_round(call, approvals, outcome, len(rounds))
            screened = policy_of(call.policy, approvals)
            spells = scans_text or any(each.question.kind == "text" for each in approvals)
            begun = partial(opening_of, dialect, screened, current, scans_text=spells)
            openings.append(await _aside(begun, current))
            rounds.append(outcome.told)
            refused |= {
                each.question.digest
                for each in approvals
                if each.decision is not None and not each.decision.is_approved
            }
            answer_id, current = await self._ask(call, hold.step_id, root_id, tuple(rounds))
            read = await _aside(partial(read_recorded, dialect, current), current)
            findings = await self._gate.find(dialect, read, call.policy, scans_text=scans_text)
            if not findings:
                break
            findings = tuple(each.without_keys(call.redactor) for each in findings)
            next_hold = await self._gate.ask(
                hold.step_id, answer_id, findings, call.caller, refused=refused
            )
            approvals = await self._gate.decided(next_hold, call.caller)
            if (error := refusal_of(approvals)) is not None:
                raise error
        if current is recorded:
            return recorded
        for opening in reversed(openings):
            current = await _aside(partial(joined, dialect, opening, current), current)
        clear = call.redactor.without_keys(current.content)
        if clear is not current.content:
            # It is given as it is, once, and written down without the key.
            await self._store.record_delivered(root_id, replace(current, content=clear, pace=b""))
            return current
        return await self._store.record_delivered(root_id, current)

    def _check_round(
        self, call: Call, approvals: Sequence[Approval], outcome: GoOn, number: int
    ) -> None:
        """Raise the refusal where the model cannot be asked again."""
        first = next(each for each in approvals if each.decision and not each.decision.is_approved)
        assert first.decision is not None
        if call.is_fetch:
            if not call.ask.body:
                why = " It was fetched by its id, so no model goes on."
                raise stopped(first, first.decision, why)
            raise Conflict(
                "A person refused what this response calls, and the model is to be told. Ask again "
                "with the original POST, which goes on from there; then this is what it answered."
            )
        if any(each.decision and each.decision.is_approved for each in approvals):
            why = (
                " Another call of the same text was approved, and it goes out whole or not at all."
            )
            raise stopped(first, first.decision, why)
        if number == ROUNDS_MAX:
            why = f" The model was told {ROUNDS_MAX} times and asked for it again."
            raise stopped(first, first.decision, why)
        dialect = cast(CallsTools, call.dialect)
        try:
            dialect.go_on(call.ask.body, outcome.told)
        except BadRequest as error:
            raise stopped(first, first.decision, f" It could not go on: {error.message}") from error

    async def _ask_about_release(self, hold: Hold, caller: Caller) -> None:
        """Ask once more before a call that an earlier run has got goes out again, if so set."""
        if self._gate.settings.rerelease != "ask" or hold.answer_id is None:
            return
        releases = await self._store.list_releases(hold.answer_id)
        earlier = [
            each
            for each in releases
            if each.is_written and (each.run_id is None or each.run_id != caller.run_id)
        ]
        if not earlier:
            return
        last = earlier[-1]
        run = "" if last.run_id is None else f" to the run {last.run_id}"
        why = f"it was approved and released{run} before, at {last.released_ms} ms since 1970"
        again = await self._gate.ask_again(hold, caller, len(earlier), why)
        if (error := refusal_of(await self._gate.decided(again, caller))) is not None:
            raise error

    # --- asking the model again ---------------------------------------------------------------

    async def _ask(
        self, call: Call, step_id: int, root_id: int, rounds: tuple[Round, ...]
    ) -> tuple[int, RecordedAnswer]:
        """Return the answer after these rounds: from the record, or by asking, once for all."""
        number = len(rounds)
        known = await self._store.rounds_of(root_id)
        if len(known) >= number:
            answer_id = known[number - 1]
            recorded = await self._store.read_answer_by_id(answer_id)
            assert recorded is not None, "an answer that is listed is on record"
            return answer_id, recorded
        await self._budgets.admit(call.caller, step_id)
        key = (root_id, number)
        work = partial(self._send, call, step_id, root_id, rounds)
        return await self._asking.run(key, work)

    async def _send(
        self, call: Call, step_id: int, root_id: int, rounds: tuple[Round, ...]
    ) -> tuple[int, RecordedAnswer]:
        dialect = call.dialect
        spliced = await self._splices.applied(call, step_id)
        body: Mapping[str, JSON] = spliced.body or call.ask.body
        for each in rounds:
            body = cast(CallsTools, dialect).go_on(body, each)
        # An upstream that knows the key would answer with what it said before.
        headers = call.headers.without(frozenset((b"content-encoding", b"idempotency-key")))
        raw = encode(cast(JSON, body))
        ask = replace(call.ask, streams=False, body=cast(dict[str, JSON], body))
        whole = await write_out(self._store, call)

        async def with_rounds() -> Mapping[str, JSON] | None:
            gone_on: Mapping[str, JSON] | None = None if whole.body is None else await whole.body()
            for each in rounds if gone_on is not None else ():
                gone_on = cast(CallsTools, dialect).go_on(cast(Mapping[str, JSON], gone_on), each)
            return gone_on

        out = Outgoing(
            dialect, ask, headers, call.path, call.query, raw, body,
            kept_by=whole.kept_by, write_out=with_rounds,
        )  # fmt: skip
        began_s = monotonic_s()
        tries = Tries(self._road, await self._targets_of(call, step_id), headers)
        outcome = await tries.run(out, self._read_whole)
        if isinstance(outcome, AllFailed):
            raise _failed(outcome.first.error)
        recorded, answer = outcome.value
        checkpoint = make_checkpoint(
            step_id=step_id,
            now_ms=now_ms(),
            ask=call.ask,
            input_chars=len(raw),
            attempts=tries.ended(),
            answer=answer,
            recorded=recorded,
            provider=tries.target.provider,
            prices=self._road.prices,
            latency_ms=int((monotonic_s() - began_s) * 1000),
            first_content_ms=None,
            redactor=call.redactor,
        )
        self._road.meters.note_answer(
            dialect.name,
            checkpoint.provider,
            checkpoint.model,
            answer.usage,
            checkpoint.cost_microusd,
            fallback_index=tries.index,
        )
        answer_id = await self._store.record_round(checkpoint, root_id, len(rounds))
        return answer_id, recorded

    async def _targets_of(self, call: Call, step_id: int) -> tuple[Target, ...]:
        """Return the call's targets, those of the provider first that answered it."""
        step = await self._store.read_step(step_id)
        provider = None if step is None else step.provider
        return tuple(sorted(call.targets, key=lambda target: target.provider != provider))

    async def _read_whole(self, reception: Reception) -> tuple[RecordedAnswer, Answer] | Failed:
        return await read_whole(reception, self._settings.stream.answer_bytes_max)


async def _aside(work: Callable[[], T], recorded: RecordedAnswer) -> T:
    return await aside.run(work, len(recorded.content))


# --- pure -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Opening:
    """What stands of an answer whose calls were refused: what had gone out before them."""

    text: str
    frames: tuple[Frame, ...]  # () where it was not streamed


def _outcome(dialect: Dialect, recorded: RecordedAnswer, approvals: Sequence[Approval]) -> Outcome:
    return outcome_of(read_recorded(dialect, recorded), as_body(dialect, recorded), approvals)


def policy_of(policy: Policy, approvals: Sequence[Approval]) -> Policy:
    """Return a policy that keeps what was asked about: `policy`, unless it is a later one, which
    would let it go. By then nothing of the answer has gone out, so any such policy will do."""
    if all(policy.could_hold(each.question.tool, "function") for each in approvals):
        return policy
    return Policy(GateSettings(tools=("*",)))


def opening_of(
    dialect: Dialect, policy: Policy, recorded: RecordedAnswer, *, scans_text: bool
) -> Opening:
    """Return what of a recorded answer goes out before the gate has seen it: the same that did, if
    it was streamed."""
    if recorded.form == "body":
        answer = dialect.read_answer(recorded.content)
        text = answer.text
        if scans_text:
            found = find_calls(text, policy.could_spell)
            starts = [each.start for each in found if policy.could_spell(each.name)]
            text = text[: min(starts, default=len(text))]
        return Opening(text.rstrip(), ())
    assembler = dialect.assembler(1)
    screen = Screen(policy, scans_text=scans_text)
    shown: list[bytes] = []
    for frame in frames_of(dialect, recorded):
        mark = assembler.feed(frame)
        shown.append(screen.take(frame.raw, mark, assembler))
        if screen.is_keeping and not scans_text:
            break
    frames = tuple(SSEDecoder().feed(b"".join(shown)))
    reread = dialect.assembler(1)
    for frame in frames:
        reread.feed(frame)
    return Opening(reread.snapshot().text, frames)


def changed(dialect: Dialect, recorded: RecordedAnswer, outcome: Changed) -> RecordedAnswer:
    """Return a recorded answer with its changes, in the form it was recorded in."""
    assert calls_tools(dialect)
    if recorded.form == "body":
        content = dialect.changed_body(recorded.content, outcome.changes)
    else:
        content = dialect.changed_events(frames_of(dialect, recorded), outcome.changes)
    return replace(recorded, content=content, pace=b"", is_sealed=True)


def joined(dialect: Dialect, opening: Opening, second: RecordedAnswer) -> RecordedAnswer:
    """Return an answer that begins with what stands of the one before it."""
    assert calls_tools(dialect)
    if not opening.frames:
        if not opening.text:
            return second
        content = dialect.joined_body(opening.text, as_body(dialect, second))
        return _as_form(second, "body", content)
    if second.form == "events":
        frames = frames_of(dialect, second)
    else:
        frames = SSEDecoder().feed(b"".join(dialect.events_from_body(second.content, True)))
    return _as_form(second, "events", dialect.joined_events(opening.frames, frames))


def _as_form(second: RecordedAnswer, form: str, content: bytes) -> RecordedAnswer:
    kind = b"application/json" if form == "body" else b"text/event-stream; charset=utf-8"
    others = tuple(pair for pair in second.headers if pair[0].lower() != b"content-type")
    headers = ((b"content-type", kind), *others)
    return RecordedAnswer(second.status, headers, "body" if form == "body" else "events", content)


def _failed(error: AgentStateError) -> AgentStateError:
    """Say that it was the further request that failed: the decision stands, and a retry goes on."""
    if isinstance(error, UpstreamRefused):
        error.message = f"After the refusal the model was asked again: {error.message}"
    return error
