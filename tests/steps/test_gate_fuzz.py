"""No guarded call reaches a client before a decision, however it is spelled and cut.

The answers are made by `gate_spellings.py`, which knows of each how much of its stream may go out.
Clients of both kinds are attached from the start, join on the way, come late, or after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.dialects import dialect_for_path
from agentstate.dialects.base import CallsTools, Dialect
from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.canonical import canonical, parse
from agentstate.ground.chat import Answer
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import Query
from agentstate.ground.settings import GateSettings, ProviderSettings, RuleSettings
from agentstate.steps.call import Entry
from agentstate.wire.message import Abort
from agentstate.wire.sse import SSEDecoder
from tests.steps.gate_parts import EDITED, NEXT, SAFE, SECRETS, TOOL, Case, by_letter
from tests.steps.gate_responses import BUILT_IN
from tests.steps.gate_spellings import SPELLINGS, Spelling, cases, simple
from tests.steps.scene import FakeExchange, FakeRequest, Scene

steady = settings(derandomize=True, deadline=None, database=None)
LIMIT_S = 20.0

PROVIDERS = (
    ProviderSettings("openai", ("openai_chat", "openai_responses"), "http://up.example/v1", None),
    ProviderSettings("anthropic", ("anthropic_messages",), "http://up.example", None),
    ProviderSettings("gemini", ("openai_chat",), "http://up.example/v1beta/openai", None),
)
POLICIES = (
    GateSettings(tools=(TOOL, *BUILT_IN)),
    GateSettings(tools=("delete_*", "*shell*", "apply_?atch", "[c]omputer*")),
    GateSettings(tools=("*_rows", *BUILT_IN)),
    GateSettings(
        tools=(), rules=tuple(RuleSettings(tool, action="ask") for tool in (TOOL, *BUILT_IN))
    ),
)

Outcome = Literal["approve", "edit", "stop", "continue", "mixed"]
Arrival = Literal["start", "middle", "held", "restart"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to an answer, and who is there to see it."""

    outcome: Outcome = "approve"
    upstream_streams: bool = True
    first_streams: bool = True
    second: Arrival | None = None  # when another client comes; None = none does
    second_streams: bool = True
    policy: GateSettings = POLICIES[0]
    cuts: tuple[int, ...] | None = None  # where the upstream's bytes are cut; None = everywhere


@dataclass(slots=True, eq=False)
class Client:
    """One client, and all it has received."""

    request: FakeRequest
    dialect: Dialect
    streams: bool
    status: int | None = None  # None = nothing came
    is_aborted: bool = False
    pieces: list[bytes] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    @property
    def content(self) -> bytes:
        """What it received, without heartbeats."""
        assert isinstance(self.dialect, CallsTools)
        return b"".join(piece for piece in self.pieces if piece != self.dialect.heartbeat)

    def read(self) -> Answer:
        """Read what it received as an answer, whole or as far as it got."""
        if not self.streams:
            return self.dialect.read_answer(self.content)
        assembler = self.dialect.assembler()
        for frame in SSEDecoder().feed(self.content):
            assembler.feed(frame)
        return assembler.snapshot()


class Stage:
    """One answer, from its upstream to its clients."""

    def __init__(self, case: Case, plan: Plan) -> None:
        self.case = case
        self.plan = plan
        self.scene = Scene(gate=plan.policy)
        self.scene.settings = replace(self.scene.settings, providers=PROVIDERS)
        self.scene.start()
        kind = b"text/event-stream" if plan.upstream_streams else b"application/json"
        self.exchange = FakeExchange(200, kind)
        self.scene.transport.on_call = self._answer
        self.clients: list[Client] = []

    async def _answer(self, number: int) -> FakeExchange:
        if number == 0:
            return self.exchange
        assert number == 1, "the model is asked twice at most"
        follow = FakeExchange(200, b"application/json")
        follow.give(self.case.follow, None)
        return follow

    def attach(self, *, streams: bool) -> Client:
        """Let a client make the call."""
        path, body = self.case.sent(streams=streams)
        path, _, query = path.partition("?")
        name = path if path.startswith("/v1beta") else path.removeprefix("/v1")
        dialect = dialect_for_path(name, query)
        assert dialect is not None
        pairs = [(b"x-agent-session-id", b"s"), (b"authorization", b"Bearer sk-x")]
        client = Client(FakeRequest(pairs, body), dialect, streams)
        client.task = asyncio.create_task(self._serve(client, Entry(dialect, path, query)))
        self.clients.append(client)
        return client

    async def _serve(self, client: Client, entry: Entry) -> None:
        pipeline = self.scene.pipeline
        caller = pipeline.read_caller(client.request, entry)
        assert caller is not None
        try:
            response = await pipeline.answer(client.request, entry, caller)
        except ConnectionResetError:
            assert client.request.is_gone()
            return
        assert response is not None
        client.status = response.status
        if isinstance(response.body, bytes):
            client.pieces.append(response.body)
            return
        try:
            async for piece in response.body:
                client.pieces.append(piece)
        except Abort:
            client.is_aborted = True
        finally:
            await response.body.aclose()  # type: ignore[attr-defined]

    async def play(self) -> None:
        """Let the answer come, be held, decided on and delivered; check each."""
        case, plan = self.case, self.plan
        await self.scene.store.open()
        first = self.attach(streams=plan.first_streams)
        pieces = self._cut(b"".join(case.events) if plan.upstream_streams else case.body)
        middle = len(pieces) // 2
        self.exchange.give(*pieces[:middle])
        if plan.second == "middle":
            await settle()
            self.attach(streams=plan.second_streams)
        self.exchange.give(*pieces[middle:], None)
        approvals = await self._approvals()
        await settle()
        if plan.second == "restart":
            assert first.task is not None
            first.request.leave()
            first.task.cancel()
            await asyncio.wait({first.task})
            self._check_kept()
            self.scene.start()
            self.clients.remove(first)
        if plan.second in ("held", "restart"):
            self.attach(streams=plan.second_streams)
            await settle()
        assert await self._approvals() == approvals
        self._check_kept()
        decided = await self._decide(approvals)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(client.task for client in self.clients if client.task))
        for client in self.clients:
            self._check_end(client, decided)
        assert len(self.scene.transport.calls) == (2 if self._asks_again(decided) else 1)
        await self.scene.tasks.close(1.0)

    def _cut(self, raw: bytes) -> list[bytes]:
        if self.plan.cuts is None:
            return [raw[at : at + 1] for at in range(len(raw))]
        places = sorted({0, len(raw), *(at % len(raw) for at in self.plan.cuts)})
        return [raw[begin:end] for begin, end in pairwise(places)]

    async def _approvals(self) -> list[Approval]:
        """Wait until all guarded calls are asked about; return the questions in their order."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                page = await self.scene.store.list_approvals(Query(), at_ms=0)
                if len(page.rows) >= len(self.case.secrets):
                    break
                for client in self.clients:
                    assert client.task is not None
                    assert not client.task.done(), "it was answered before all was asked"
                await asyncio.sleep(0)
        return sorted(page.rows, key=lambda row: (row.question.choice, row.question.position))

    # --- before the decision --------------------------------------------------------------------

    def _check_kept(self) -> None:
        for client in self.clients:
            content = client.content
            for secret in self.case.secrets:
                assert secret.encode() not in content
            open_bytes = self.case.open_bytes if self.plan.upstream_streams else b""
            if not client.streams:
                open_bytes = b""
            assert open_bytes.startswith(content), "only what comes before the call went out"
            if content:
                names = [call.name for _, call in client.read().tool_calls]
                assert set(names) <= set(SAFE)

    # --- the decision ---------------------------------------------------------------------------

    async def _decide(self, approvals: Sequence[Approval]) -> Outcome:
        """Decide as planned, or as the answer permits; return how it was."""
        case, outcome = self.case, self.plan.outcome
        assert len(approvals) == len(case.secrets), "each guarded call is asked about once"
        for approval, secret in zip(approvals, case.secrets, strict=True):
            assert secret in approval.question.arguments
            assert (approval.question.kind == "text") is case.is_text
        if outcome == "mixed" and (len(approvals) < 2 or case.is_text):
            outcome = "continue"  # of a text nothing can be left out
        if outcome in ("continue", "mixed") and not case.goes_on:
            with pytest.raises(BadRequest):
                await self._say(approvals[0], is_approved=False, then="continue")
            outcome = "stop"
        if outcome == "edit" and case.edited is None:
            with pytest.raises(BadRequest):
                await self._say(approvals[0], arguments='{"table": "x"}')
            outcome = "approve"
        match outcome:
            case "approve":
                for approval in approvals:
                    await self._say(approval)
            case "edit":
                for approval in approvals:
                    await self._say(approval, arguments=case.edited)
            case "stop":
                await self._say(approvals[0], is_approved=False, then="stop")
            case "continue":
                for approval in approvals:
                    await self._say(approval, is_approved=False, then="continue")
            case "mixed":
                await self._say(approvals[0])
                for approval in approvals[1:]:
                    await self._say(approval, is_approved=False, then="continue")
        return outcome

    async def _say(
        self,
        approval: Approval,
        *,
        is_approved: bool = True,
        arguments: str | None = None,
        then: Literal["stop", "continue"] | None = None,
    ) -> None:
        decision = Decision(is_approved, "ada", None, arguments, then)
        await self.scene.gate.decide(approval.approval_id, decision)

    # --- after it -------------------------------------------------------------------------------

    def _asks_again(self, decided: Outcome) -> bool:
        return decided == "continue" and not self._safe_calls()

    def _safe_calls(self) -> list[str]:
        """Return the names of the calls nobody guards, in order."""
        answer = self.clients[0].dialect.read_answer(self.case.body)
        secrets = self.case.secrets
        return [
            call.name
            for _, call in answer.tool_calls
            if not any(secret in call.arguments for secret in secrets)
        ]

    def _check_end(self, client: Client, decided: Outcome) -> None:
        case = self.case
        if decided == "stop":
            assert b"human_rejection" in client.content
            assert client.is_aborted or client.status == 403
            for secret in SECRETS:
                assert secret.encode() not in client.content
            return
        assert client.status == 200
        assert not client.is_aborted
        answer = client.read()
        assert answer.fault is None
        calls = [call for _, call in answer.tool_calls]
        safe = [call.name for call in calls if call.name in SAFE]
        if decided == "approve":
            if client.streams and self.plan.upstream_streams:
                assert client.content == b"".join(case.events)
            elif not client.streams and not self.plan.upstream_streams:
                assert client.content == case.body
            for secret in case.secrets:
                said = answer.text if case.is_text else " ".join(each.arguments for each in calls)
                said += "".join(choice.text for choice in answer.choices)
                assert secret in said
            assert safe == self._safe_calls()
            return
        gone = case.secrets if decided != "mixed" else case.secrets[1:]
        for secret in gone:
            assert secret.encode() not in client.content
        if decided == "edit":
            assert case.edited is not None
            edited = [call for call in calls if EDITED in call.arguments]
            assert len(edited) == len(case.secrets)
            for call in edited:
                if call.kind != "custom":
                    same = canonical(parse(call.arguments.encode()))
                    assert same == canonical(parse(case.edited.encode()))
        elif decided == "mixed":
            assert case.secrets[0] in " ".join(call.arguments for call in calls)
        elif self._asks_again(decided):
            assert NEXT in answer.text
            assert not calls
        if decided != "continue" or not self._asks_again(decided):
            assert safe == self._safe_calls()


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(60):
        await asyncio.sleep(0)


def play(case: Case, plan: Plan) -> None:
    """Play one answer."""

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await Stage(case, plan).play()

    asyncio.run(main())


plans = st.builds(
    Plan,
    outcome=st.sampled_from(("approve", "edit", "stop", "continue", "mixed")),
    upstream_streams=st.sampled_from((True, True, True, False)),
    first_streams=st.sampled_from((True, True, False)),
    second=st.sampled_from((None, "middle", "held", "restart")),
    second_streams=st.booleans(),
    policy=st.sampled_from(POLICIES),
    cuts=st.lists(st.integers(0, 20_000), max_size=8).map(tuple),
)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_no_spelling_gets_past_byte_by_byte(spelling: Spelling) -> None:
    play(simple(spelling, cut=by_letter), Plan("approve"))


@given(case=cases(), plan=plans)
@settings(steady, max_examples=300)
def test_no_guarded_call_reaches_a_client_before_a_decision(case: Case, plan: Plan) -> None:
    play(case, plan)


@pytest.mark.long
@given(case=cases(), plan=plans)
@settings(steady, max_examples=20_000)
def test_no_guarded_call_reaches_a_client_in_many_more_ways(case: Case, plan: Plan) -> None:
    play(case, plan)
