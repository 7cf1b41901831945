"""No guarded call reaches a client before a decision, however it is spelled and cut.

The answers are made by `gate_spellings.py`, which knows of each how much of its stream may go out.
Clients of both kinds are attached from the start, join on the way, come late, or after a restart.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Literal

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
from agentstate.ground.settings import GateSettings, ProviderSettings, RuleSettings, StreamSettings
from agentstate.steps.call import Entry
from agentstate.wire.message import Abort
from agentstate.wire.sse import SSEDecoder
from tests.dialects import samples_anthropic as messages
from tests.dialects import samples_gemini as gemini
from tests.helpers.reading import read_events
from tests.steps.gate_chat import DONE, TOGETHER
from tests.steps.gate_parts import (
    EDITED,
    NEXT,
    SAFE,
    SECRETS,
    TOOL,
    Case,
    Say,
    Script,
    data,
    in_pieces,
)
from tests.steps.gate_responses import BUILT_IN, KINDS
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
# When another client comes: while the stream does, once it is held, after a restart of the proxy
# without the first one, or when it was decided with nobody there.
Arrival = Literal["middle", "held", "restart", "decided"]


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens to an answer, and who is there to see it."""

    outcome: Outcome = "approve"
    upstream_streams: bool = True
    first_streams: bool = True
    second: Arrival | None = None  # None = there is one client
    second_streams: bool = True
    policy: GateSettings = POLICIES[0]
    holds_calls: bool = False  # no call goes out early, guarded or not
    cuts: tuple[int, ...] | None = ()  # where the upstream's bytes are cut; None = everywhere


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
        stream = StreamSettings(tool_calls="hold" if plan.holds_calls else "live")
        self.scene = Scene(gate=plan.policy, stream=stream)
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
        approvals = await self.approvals()
        await settle()
        self._check_kept()
        if plan.second in ("restart", "decided"):
            await self._leave(first)
        if plan.second == "restart":
            self.scene.start()
        if plan.second in ("held", "restart"):
            self.attach(streams=plan.second_streams)
            await settle()
        assert await self.approvals() == approvals, "nothing is asked twice"
        self._check_kept()
        decided = await self._decide(approvals)
        if plan.second == "decided":
            self.attach(streams=plan.second_streams)
        async with asyncio.timeout(LIMIT_S):
            await asyncio.gather(*(client.task for client in self.clients if client.task))
        for client in self.clients:
            self._check_end(client, decided)
        assert len(self.scene.transport.calls) == (2 if self._asks_again(decided) else 1)
        await self.scene.tasks.close(1.0)

    async def _leave(self, client: Client) -> None:
        """Let a client close its connection, and be sure that nothing more comes to it."""
        assert client.task is not None
        client.request.leave()
        client.task.cancel()
        await asyncio.wait({client.task})
        self.clients.remove(client)

    def _cut(self, raw: bytes) -> list[bytes]:
        if self.plan.cuts is None:
            return [raw[at : at + 1] for at in range(len(raw))]
        places = sorted({0, len(raw), *(at % len(raw) for at in self.plan.cuts)})
        return [raw[begin:end] for begin, end in pairwise(places)]

    async def approvals(self) -> list[Approval]:
        """Wait until all guarded calls are asked about; return the questions in their order."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                page = await self.scene.store.list_approvals(Query(), at_ms=0)
                if len(page.rows) >= len(self.case.secrets):
                    break
                for client in self.clients:
                    assert client.task is not None
                    assert not client.task.done(), "it was answered before all was asked about"
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
                assert set(names) <= set(() if self.plan.holds_calls else SAFE)

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


def run(playing: Coroutine[Any, Any, None]) -> None:
    """Run to the end, or fail in good time."""

    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await playing

    asyncio.run(main())


def play(case: Case, plan: Plan) -> None:
    """Play one answer."""
    run(Stage(case, plan).play())


plans = st.builds(
    Plan,
    outcome=st.sampled_from(("approve", "edit", "stop", "continue", "mixed")),
    upstream_streams=st.sampled_from((True, True, True, False)),
    first_streams=st.sampled_from((True, True, False)),
    second=st.sampled_from((None, "middle", "held", "restart", "decided")),
    second_streams=st.booleans(),
    policy=st.sampled_from(POLICIES),
    holds_calls=st.sampled_from((False, False, True)),
    cuts=st.lists(st.integers(0, 20_000), max_size=8).map(tuple),
)


@pytest.mark.parametrize("spelling", SPELLINGS, ids=str)
def test_no_spelling_gets_past_byte_by_byte(spelling: Spelling) -> None:
    play(simple(spelling, Script(cut=in_pieces(4))), Plan(cuts=None))


# A guarded call whole in the frame that ends the answer, after a text that went out.
LAST = [
    spelling
    for spelling in SPELLINGS
    if spelling.form in ("in one piece", "object for arguments", "the end alone", TOGETHER)
    or (spelling.dialect, spelling.form) == ("gemini", "by the book")
    or spelling.form.endswith(", the end alone")
]


@pytest.mark.parametrize("first_streams", [True, False])
@pytest.mark.parametrize("outcome", ["approve", "edit", "stop", "continue"])
@pytest.mark.parametrize("spelling", LAST, ids=str)
def test_a_call_in_the_frame_that_ends_the_answer_is_held_as_well(
    spelling: Spelling, outcome: Outcome, first_streams: bool
) -> None:
    said = [Say("I look it up. "), spelling.guarded(TOOL, SECRETS[0])]
    case = spelling.write([said], Script(joins_end=True))
    play(case, Plan(outcome, first_streams=first_streams))


@given(case=cases(), plan=plans)
@settings(steady, max_examples=200)
def test_no_guarded_call_reaches_a_client_before_a_decision(case: Case, plan: Plan) -> None:
    play(case, plan)


@pytest.mark.long
@given(case=cases(), plan=plans)
@settings(steady, max_examples=5_000)
def test_no_guarded_call_reaches_a_client_in_many_more_ways(case: Case, plan: Plan) -> None:
    play(case, plan)


# --- rules ----------------------------------------------------------------------------------------

RULED = [
    spelling
    for spelling in SPELLINGS
    if spelling.form.endswith("by the book")
    or spelling.form in ("function_call", "custom tool", "text, action", "text, name last")
]


@pytest.mark.parametrize("streams", [True, False])
@pytest.mark.parametrize("then", ["stop", "continue"])
@pytest.mark.parametrize("spelling", RULED, ids=str)
def test_what_a_rule_denies_never_arrives(
    spelling: Spelling, then: Literal["stop", "continue"], streams: bool
) -> None:
    rules = tuple(RuleSettings(tool, None, "deny", then) for tool in (TOOL, *BUILT_IN))
    case = simple(spelling, Script(cut=in_pieces(6)))

    async def main() -> None:
        stage = Stage(case, Plan(policy=GateSettings(tools=(), rules=rules)))
        await stage.scene.store.open()
        client = stage.attach(streams=streams)
        stage.exchange.give(*case.events, None)
        assert client.task is not None
        await client.task
        assert SECRETS[0].encode() not in client.content
        if then == "stop":
            assert b"policy_rejection" in client.content
        elif case.is_text:
            assert NEXT in client.read().text
        else:
            assert [call.name for _, call in client.read().tool_calls] == [SAFE[0]]
        await stage.scene.tasks.close(1.0)

    run(main())


@pytest.mark.parametrize("spelling", RULED, ids=str)
def test_what_no_rule_asks_about_after_all_arrives_unasked(spelling: Spelling) -> None:
    """The name alone said that it might have to be held."""
    condition = 'args.table == "another" and args.input contains "another"'
    rules = tuple(RuleSettings(tool, condition) for tool in (TOOL, *BUILT_IN))
    case = simple(spelling, Script(cut=in_pieces(6)))

    async def main() -> None:
        stage = Stage(case, Plan(policy=GateSettings(tools=(), rules=rules)))
        await stage.scene.store.open()
        client = stage.attach(streams=True)
        *most, last = case.events
        stage.exchange.give(*most[: case.open_count + 2])
        await settle()
        assert case.open_bytes.startswith(client.content)
        stage.exchange.give(*most[case.open_count + 2 :], last, None)
        assert client.task is not None
        await client.task
        assert client.content == b"".join(case.events)
        page = await stage.scene.store.list_approvals(Query(), at_ms=0)
        assert not page.rows
        await stage.scene.tasks.close(1.0)

    run(main())


# --- as the vendors' own packages add a stream up -------------------------------------------------


def _chat_calls(content: bytes) -> list[tuple[str, str]]:
    streaming = pytest.importorskip("openai.lib.streaming.chat")
    types = pytest.importorskip("openai.types.chat")
    state = streaming.ChatCompletionStreamState()
    for event in read_events(content):
        if event.data != "[DONE]":
            state.handle_chunk(types.ChatCompletionChunk.model_validate_json(event.data))
    found: list[tuple[str, str]] = []
    for choice in state.current_completion_snapshot.choices:
        message = choice.message
        found += [(c.function.name, c.function.arguments) for c in message.tool_calls or ()]
        if message.function_call is not None:
            found.append((message.function_call.name, message.function_call.arguments))
    return found


def _messages_calls(content: bytes) -> list[tuple[str, str]]:
    streaming = pytest.importorskip("anthropic.lib.streaming._messages")
    snapshot = None
    buffers: dict[int, bytes] = {}
    for event in read_events(content):
        if event.name != "ping":
            snapshot = streaming.accumulate_event(
                event=json.loads(event.data), current_snapshot=snapshot, json_bufs=buffers
            )
    blocks = snapshot.content if snapshot is not None else ()
    return [(b.name, json.dumps(b.input)) for b in blocks if b.type == "tool_use"]


def _responses_calls(content: bytes) -> list[tuple[str, str]]:
    models = pytest.importorskip("openai._models")
    types = pytest.importorskip("openai.types.responses")
    streaming = pytest.importorskip("openai.lib.streaming.responses._responses")
    state = streaming.ResponseStreamState(input_tools=[], text_format=streaming.omit)
    for each in read_events(content):
        value = json.loads(each.data)
        state.handle_event(models.construct_type(type_=types.ResponseStreamEvent, value=value))
    # What `stream()` hands out while it goes on, and at its end.
    snapshot = state._completed_response or state._ResponseStreamState__current_snapshot
    return [
        (getattr(item, "name", item.type), item.model_dump_json())
        for item in snapshot.output
        if item.type.endswith("_call") or item.type == "mcp_approval_request"
    ]


SDK_CALLS = {"chat": _chat_calls, "messages": _messages_calls, "responses": _responses_calls}
SDK_FORMS = (
    "by the book", "in one piece", "name in two", "one id for all", "function_call", "no type",
    "whole input", *(f"{kind}, by the book" for kind in KINDS), "function_call, no deltas",
)  # fmt: skip


class SDKStage(Stage):
    """A stage whose clients are read by the vendors' own packages as well."""

    read_calls: Callable[[bytes], list[tuple[str, str]]]

    def _check_kept(self) -> None:
        super()._check_kept()
        for client in self.clients:
            names = [name for name, _ in type(self).read_calls(client.content)]
            assert names == [SAFE[0]], "the call that nobody guards, and no other"

    def _check_end(self, client: Client, decided: Outcome) -> None:
        super()._check_end(client, decided)
        (_, safe), (_, guarded) = type(self).read_calls(client.content)
        assert "Oslo" in safe
        assert SECRETS[0] in guarded


@pytest.mark.clients
@pytest.mark.parametrize(
    "spelling",
    [each for each in SPELLINGS if each.dialect in SDK_CALLS and each.form in SDK_FORMS],
    ids=str,
)
def test_the_vendors_own_packages_find_no_guarded_call_before_a_decision(
    spelling: Spelling,
) -> None:
    class Own(SDKStage):
        read_calls = staticmethod(SDK_CALLS[spelling.dialect])

    case = simple(spelling, Script(cut=in_pieces(6)))
    run(Own(case, Plan()).play())


# --- calls where a stream should have none --------------------------------------------------------

ARGUMENTS = {"table": SECRETS[0]}
GIVEN = json.dumps(ARGUMENTS)
CHAT_CALL = {"id": "c", "type": "function", "function": {"name": TOOL, "arguments": GIVEN}}


def chunk(index: int = 0, reason: str | None = None, delta: Any = (), **fields: Any) -> bytes:
    """Make one chunk of a chat stream."""
    choice = {"index": index, "delta": dict(delta), "finish_reason": reason, **fields}
    return data({"id": "c1", "object": "chat.completion.chunk", "model": "m", "choices": [choice]})


HI = {"role": "assistant", "content": "Well. "}
CALLING = {"tool_calls": [{"index": 0, **CHAT_CALL}]}
# By name: dialect, events up to the end of the answer, and what comes after it all the same.
LATE: dict[str, tuple[str, list[bytes], list[bytes]]] = {
    "the same choice": (
        "chat", [chunk(delta=HI), chunk(reason="stop")], [chunk(0, "tool_calls", CALLING), DONE],
    ),
    "a choice nobody asked for": (
        "chat", [chunk(delta=HI), chunk(reason="stop")], [chunk(1, "tool_calls", CALLING), DONE],
    ),
    "another block": (
        "messages",
        [messages.start(), *messages.text_block(0, "hi"), messages.end()],
        [*messages.call_block(1, GIVEN, name=TOOL), messages.STOP],
    ),
    "another part": (
        "gemini",
        [gemini.event(gemini.candidate({"text": "hi"}, reason="STOP"))],
        [gemini.event(gemini.candidate({"functionCall": {"name": TOOL, "args": ARGUMENTS}}))],
    ),
}  # fmt: skip


def odd_stage(dialect: str) -> Stage:
    """Set up a stage on which a test sends what it likes."""
    spelling = next(each for each in SPELLINGS if each.dialect == dialect)
    return Stage(simple(spelling, Script()), Plan())


@pytest.mark.parametrize("name", LATE)
@pytest.mark.parametrize("is_one_read", [False, True])
def test_a_call_after_the_end_of_the_answer_is_held_too(name: str, is_one_read: bool) -> None:
    dialect, events, late = LATE[name]

    async def main() -> None:
        stage = odd_stage(dialect)
        await stage.scene.store.open()
        client = stage.attach(streams=True)
        if is_one_read:
            stage.exchange.give(b"".join((*events, *late)), None)
        else:
            stage.exchange.give(*events)
            await settle()
            stage.exchange.give(*late, None)
        (approval,) = await stage.approvals()
        await settle()
        assert SECRETS[0].encode() not in client.content
        await stage.scene.gate.decide(approval.approval_id, Decision(True, "ada"))
        assert client.task is not None
        await client.task
        assert client.content == b"".join((*events, *late))
        # Nor is it forgotten that it was asked about.
        again = stage.attach(streams=True)
        assert again.task is not None
        await again.task
        assert again.content == client.content
        await stage.scene.tasks.close(1.0)

    run(main())


def test_an_error_event_brings_no_call_with_it() -> None:
    event = chunk(delta=CALLING, error={"message": "overloaded"})

    async def main() -> None:
        stage = odd_stage("chat")
        await stage.scene.store.open()
        client = stage.attach(streams=True)
        stage.exchange.give(chunk(delta=HI))
        await settle()
        stage.exchange.give(event, None)
        assert client.task is not None
        await client.task
        assert client.is_aborted
        assert client.content.startswith(chunk(delta=HI) + b"data: ")
        assert SECRETS[0].encode() not in client.content
        await stage.scene.tasks.close(1.0)

    run(main())
