"""Asks the model again for a step: the same, something else, or another model.

It goes upstream as any call does (targets, retries, fallbacks, translation, splices), with one
difference: the agent's key is not on record, so a provider is asked with its configured one. What
is done with the answer is in `revisions.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from agentstate.dialects.base import Ask, Dialect, ReadsPath
from agentstate.dialects.neutral import translates
from agentstate.ground.addresses import is_loopback
from agentstate.ground.canonical import JSON, digest, encode
from agentstate.ground.clock import monotonic_s, now_ms
from agentstate.ground.errors import AgentStateError, Conflict, UpstreamRefused, shorten
from agentstate.ground.providers import BUILT_IN
from agentstate.ground.records import Attempt, Checkpoint, Identity, RequestRecord, StepRow
from agentstate.ground.redaction import is_redacted
from agentstate.ground.tasks import TaskSet
from agentstate.steps.call import Call
from agentstate.steps.checkpoint import make_checkpoint
from agentstate.steps.identify import Caller
from agentstate.steps.outgoing import outgoing
from agentstate.steps.recording import Services
from agentstate.steps.reply import JSON_TYPE
from agentstate.steps.routing import Chain, Inquiry, Targets
from agentstate.steps.target import MOCK, Target, is_native
from agentstate.steps.tries import AllFailed, Tries
from agentstate.steps.whole import read_whole
from agentstate.wire.message import Headers

# Of a request, what says how its answer is to be sent.
_STREAMING = frozenset(("stream", "stream_options"))


@dataclass(frozen=True, slots=True)
class Rerun:
    """What the model is to be asked."""

    model: str | None = None  # None = the one that was asked, or that `request` names
    request: dict[str, JSON] | None = None  # None = what the agent asked


class RequestRedacted(Conflict):
    """Secrets were taken out of what is to be asked again."""

    code = "request_redacted"


class NotAnswered(AgentStateError):
    """The model was asked in vain; `attempts` are for the record, `error` says why."""

    def __init__(self, error: AgentStateError, attempts: tuple[Attempt, ...]) -> None:
        super().__init__(error.message)
        self.error = error
        self.attempts = attempts


class Reruns:
    """Asks again. One per server."""

    def __init__(self, services: Services, targets: Targets) -> None:
        self._services = services
        self._targets = targets

    def kept(self, asked: JSON) -> JSON:
        """Return what was asked as it is written down."""
        return self._services.redactor.value(asked)

    @property
    def tasks(self) -> TaskSet:
        """Where work runs that must be done once it is paid for."""
        return self._services.tasks

    async def ask(
        self, step: StepRow, dialect: Dialect, request: dict[str, JSON], rerun: Rerun
    ) -> Checkpoint:
        """Return the answer, with all that is known of it.

        `request` is what the agent asked.

        Raises:
            BadRequest: what is to be asked is no request of this form.
            Conflict: no provider that could be asked has a key here.
            NotAnswered: all attempts failed.
            StoreError: the record cannot be read.
        """
        call = await self._call(step, dialect, request, rerun)
        services = self._services
        out = await outgoing(services, call, step.step_id)
        tries = Tries(services.road, call.targets, call.headers, call.skipped)
        bytes_max = services.settings.stream.answer_bytes_max
        outcome = await tries.run(out, partial(read_whole, bytes_max=bytes_max))
        if isinstance(outcome, AllFailed):
            raise NotAnswered(_told(outcome), tries.ended())
        recorded, answer = outcome.value
        checkpoint = make_checkpoint(
            step_id=step.step_id,
            now_ms=now_ms(),
            ask=call.ask,
            input_chars=len(call.raw),
            attempts=tries.ended(),
            answer=answer,
            recorded=recorded,
            provider=tries.target.provider,
            prices=services.prices,
            latency_ms=int((monotonic_s() - call.started_s) * 1000),
            first_content_ms=None,
            model=tries.target.model,
            redactor=services.redactor,
        )
        services.meters.note_answer(
            dialect.name,
            checkpoint.provider,
            checkpoint.model,
            answer.usage,
            checkpoint.cost_microusd,
            fallback_index=tries.index,
        )
        return checkpoint

    async def _call(
        self, step: StepRow, dialect: Dialect, request: dict[str, JSON], rerun: Rerun
    ) -> Call:
        """Return what is asked as a call, though nobody makes it."""
        attempts = await self._services.store.list_attempts(step.step_id)
        first = attempts[0] if attempts else None
        sent = request if rerun.request is None else rerun.request
        body = {key: value for key, value in sent.items() if key not in _STREAMING}
        _refuse_redacted(body)
        if rerun.model is not None and not isinstance(dialect, ReadsPath):
            body["model"] = rerun.model
        bound, path = dialect, step.path
        if isinstance(dialect, ReadsPath):
            asked = step.model if first is None else first.model
            path = _path_of(dialect, rerun.model or asked)
            found = dialect.at(path, "")
            assert found is not None, "it made the path"
            bound = found
        ask = replace(bound.read_ask(body), streams=False)
        # The agent's own headers are not on record: their names are those of people, and keys.
        own = dialect.request_headers if translates(dialect) else ()
        headers = Headers((JSON_TYPE, *own))
        asked_at = step.provider if first is None else first.provider
        is_other = rerun.model is not None or ask.model != request.get("model", ask.model)
        chain = self._chain(asked_at, bound, ask, path, is_other=is_other)
        raw = encode(body)
        key = digest(b"rerun", raw)  # nobody looks for it
        return Call(
            dialect=bound,
            path=path,
            query="",
            headers=headers,
            started_s=monotonic_s(),
            arrived_ms=now_ms(),
            caller=Caller(
                session=step.session,
                step_number=step.step_number,
                run_id=None,
                call_id=None,
                is_retry=False,
                replay="off",
                cancels_on_disconnect=False,
            ),
            ask=ask,
            raw=raw,
            identity=Identity(key, key, key, key),
            record=RequestRecord(envelope={}, shared=(), list_key="", chain=()),
            targets=chain.targets,
            skipped=chain.skipped,
            names_guarded=False,
            redactor=self._services.redactor,
            policy=self._services.gate.policy,
        )

    def _chain(
        self, asked_at: str | None, dialect: Dialect, ask: Ask, path: str, *, is_other: bool
    ) -> Chain:
        """Return the targets: where the step's own call went (`asked_at`, a provider), unless
        another model leads elsewhere.

        Raises:
            Conflict: the first one needs a key that is not configured.
        """
        url_provider = asked_at if asked_at in self._targets.names else None
        prefix, slash, _ = ask.model.partition("/")
        leads_elsewhere = slash and prefix in self._targets.names
        if leads_elsewhere or (is_other and url_provider in (dialect.provider, MOCK)):
            url_provider = None
        inquiry = Inquiry(
            owner=dialect.provider,
            headers=Headers((JSON_TYPE,)),
            model=ask.model,
            url_provider=url_provider,
            dialect=dialect.name,
            is_native=is_native(path),
        )
        chain = self._targets.chain(inquiry)
        if _lacks_key(chain.targets[0]):
            raise Conflict(_no_key(chain.targets[0]))
        usable = tuple(target for target in chain.targets if not _lacks_key(target))
        return Chain(usable, chain.skipped)


def _refuse_redacted(body: dict[str, JSON]) -> None:
    if is_redacted(body):
        raise RequestRedacted(
            "The request is on record without its secrets, so it cannot be asked as it was. "
            "Nothing was asked.",
            hint="Send the whole request with the rerun, and in it what stands now as "
            "[secret:...]; or have the agent ask again with x-agent-replay: refresh.",
        )


def _path_of(dialect: Dialect, model: str) -> str:
    """Return the path of a form that names the model there."""
    assert translates(dialect), "all such forms can be written"
    return dialect.request_path(model, streams=False)[0]


def _lacks_key(target: Target) -> bool:
    """Say whether a target needs a key that is not configured. What runs on this machine, or in its
    place, needs none."""
    return target.key is None and not target.is_mock and not is_loopback(target.origin.host)


def _no_key(target: Target) -> str:
    names = [name for row in BUILT_IN if row.name == target.provider for name in row.key_env]
    variable = f"{' or '.join(names)} in the environment, or " if names else ""
    return (
        f"No key is configured for {target.provider}, and the agent's own is not on record. Set "
        f"{variable}api_key in the [[provider]] row named {shorten(target.provider)!r}, and start "
        "the proxy again. Nothing was asked."
    )


def _told(outcome: AllFailed) -> AgentStateError:
    """Return why nobody answered, under the status that the upstream gave."""
    error = outcome.first.error
    if isinstance(error, UpstreamRefused) and error.upstream_status is not None:
        error.status = error.upstream_status
    error.message = f"The model was asked again and did not answer: {error.message}"
    error.hint = f"Tried: {'; '.join(outcome.tried)}. The answer that stood stands."
    return error
