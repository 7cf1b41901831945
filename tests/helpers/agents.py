"""Random agents that live and die, and the ledger that knows what was paid and what was seen.

A *life* is one pass through an agent's plan, from the first question on, with no memory of the
lives before: a process that was started again. In a life the agent walks its branches at once,
loses patience and asks again, and may die at any moment with every socket cut. The `Ledger` is its
model. It gives no answer twice, so an answer names the one request that paid for it; whoever reads
the same name again was given a replay, whatever the headers say.

A *place* is where in the plan a question stands: session, branch, length of the conversation. It
can be read off a request however its clocks and tool results have drifted.
"""

from __future__ import annotations

import asyncio
import http.client
import io
import json
import random
import socket
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple, cast

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Address, Connection, Pair, render_request
from tests.helpers.reading import read_chat
from tests.helpers.upstream import (
    Gate,
    Received,
    Reply,
    Upstream,
    digest_of,
    json_reply,
    model_reply,
)

PATH = "/v1/chat/completions"
JSON_TYPE = b"application/json"
TOOL: dict[str, Any] = {
    "type": "function",
    "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}},
}
WORDS = 3
TRIES_MAX = 400  # of one call; a proxy that was killed is back within a second
PAUSE_S = 0.02  # between two tries, and the least a new process needs to start
POLL_S = 0.003
CALLS_BETWEEN_DEATHS = (5, 50)
PATIENCE_S = 20.0  # far more than any call needs: reaching it is a failure

# The points at which the proxy can be told to kill itself, for both forms of an answer.
CRASH_POINTS = (
    "claimed", "sent", "head", "first_frame", "before_commit", "after_commit", "before_release",
    "released", "before_tail", "after_tail",
)  # fmt: skip


class Place(NamedTuple):
    """Where in its plan an agent asks something."""

    session: str
    branch: str
    depth: int  # messages in the request


# --- the model ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Paid:
    """One request that reached the model."""

    name: str  # of the answer it got
    place: Place
    digest: str  # of what was asked, whatever its form
    at_s: float
    is_answer: bool  # False = it was refused or cut on purpose


class Ledger(Upstream):
    """A model that never answers twice alike, and keeps book of what it was asked."""

    def __init__(
        self, seed: int, *, thinking_s: float = 0.012, chunk_s: float = 0.001, faults: float = 0.0
    ) -> None:
        """`faults`: the share of requests that are refused or cut on purpose."""
        super().__init__()
        self._chance = random.Random(seed)
        self._thinking_s = thinking_s
        self._chunk_s = chunk_s
        self._faults = faults
        self._paid: defaultdict[str, list[Paid]] = defaultdict(list)  # by session
        self._serial = 0
        self.gate: Gate | None = None  # while set, each body and each event waits for it
        self.refusals = 0  # so many requests are refused before the next is answered

    @property
    def paid_count(self) -> int:
        """How many requests have come."""
        return self._serial

    def paid_by(self, session: str) -> list[Paid]:
        """Return all requests of a session so far, in order of arrival."""
        with self._lock:
            return list(self._paid[session])

    def reply_to(self, request: Received) -> Reply:
        asked = request.json()
        with self._lock:
            unique = {**asked, "serial": self._serial}
            self._serial += 1
            is_answer = not self.refusals and self._chance.random() >= self._faults
            self.refusals = max(self.refusals - 1, 0)
            delay_s = self._chance.uniform(0, self._thinking_s)
            place = place_of(asked)
            paid = Paid(digest_of(unique), place, digest_of(asked), request.at_s, is_answer)
            self._paid[place.session].append(paid)
        reply = model_reply(unique, delay_s=delay_s, chunk_delay_s=self._chunk_s, words=WORDS)
        reply = replace(reply, gate=self.gate)
        return reply if is_answer else spoiled(reply)


def place_of(body: dict[str, Any]) -> Place:
    """Read the place off a request; every agent here names it in its first question."""
    messages = body["messages"]
    asked = next((each["content"] for each in messages if each["role"] == "user"), "")
    session, _, branch = asked.partition(":")[0].rpartition("/")
    return Place(session, branch, len(messages))


def spoiled(reply: Reply) -> Reply:
    """Return a stream without its end, or a refusal in place of a body."""
    if reply.framing == "chunked":
        return replace(reply, chunks=reply.chunks[:2], end="eof_no_terminator")
    return json_reply({"error": {"message": "overloaded", "type": "server_error"}}, status=503)


# --- plans ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Ways:
    """How an agent says which call is which."""

    name: str
    run_id: bool = False
    call_id: bool = False
    number: str = ""  # each | constant | '' = none is sent

    @property
    def tells_repeats(self) -> bool:
        """Whether asking the same thing twice on purpose can be told from a retry."""
        return self.call_id or self.number == "each"


RUN_AND_CALL_IDS = Ways("run-and-call-ids", run_id=True, call_id=True)
RUN_IDS = Ways("run-ids", run_id=True)
STEP_NUMBERS = Ways("step-numbers", number="each")
CONSTANT_NUMBER = Ways("constant-number", number="constant")
NOTHING = Ways("nothing")
ALL_WAYS = (RUN_AND_CALL_IDS, RUN_IDS, STEP_NUMBERS, CONSTANT_NUMBER, NOTHING)


@dataclass(frozen=True, slots=True)
class Drift:
    """What is different each time an agent does the same again."""

    clock: bool = False  # its system prompt tells the time
    tools: bool = False  # its tools answer otherwise
    ids: bool = False  # its system prompt holds a new UUID each life

    @property
    def name(self) -> str:
        """For test ids."""
        return "-".join(each for each in ("clock", "tools", "ids") if getattr(self, each)) or "none"


@dataclass(frozen=True, slots=True)
class Turn:
    """One question of a branch."""

    uses_tool: bool = False
    samples: int = 1  # the same is asked so many times on purpose


@dataclass(frozen=True, slots=True)
class Branch:
    """One line of conversation. Twins have one name, so that their bodies are equal."""

    name: str
    turns: tuple[Turn, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What an agent is going to do, the same in each life."""

    session: str
    branches: tuple[Branch, ...]

    def askers(self) -> Counter[Place]:
        """Return how many calls of one life stand at each place."""
        found: Counter[Place] = Counter()
        for branch in self.branches:
            depth = 1
            for turn in branch.turns:
                depth += 1
                found[Place(self.session, branch.name, depth)] += turn.samples
                depth += 1
                if turn.uses_tool:
                    depth += 1
                    found[Place(self.session, branch.name, depth)] += 1
                    depth += 1
        return found


def random_plan(chance: random.Random, session: str, ways: Ways, drift: Drift) -> Plan:
    """Draw a plan that this way of naming calls can carry out.

    Twins and repeats need more than an equal body to be told apart, or tools that do not drift.
    """
    branches: list[Branch] = []
    for number in range(chance.randint(1, 3)):
        turns = tuple(
            Turn(
                uses_tool=(uses_tool := chance.random() < 0.6),
                samples=chance.choice((1, 2, 3)) if ways.tells_repeats and not uses_tool else 1,
            )
            for _ in range(chance.randint(2, 4))
        )
        branches.append(Branch(f"branch-{number}", turns))
    may_have_twins = ways.call_id or (not ways.run_id and not drift.tools and not drift.clock)
    if may_have_twins and chance.random() < 0.4:
        plain = tuple(replace(turn, samples=1) for turn in branches[0].turns)
        branches[0] = Branch(branches[0].name, plain)
        branches.append(branches[0])
    return Plan(session, tuple(branches))


# --- lives ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sighting:
    """That an agent saw the end of an answer, whether or not its response was whole."""

    place: Place
    sample: int  # n-th time of asking on purpose, from 0
    branch: int  # its position in the plan: twins differ in it
    life: int
    name: str  # of the answer
    digest: str  # of what was asked
    at_s: float
    hit: str | None  # which rung it came from; None = it was fresh


@dataclass(slots=True)
class Got:
    """What came back of one HTTP request."""

    status: int | None = None  # None = no head came
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    is_whole: bool = False


class Agent:
    """One agent. `live` as often as you like, one life after another."""

    def __init__(
        self,
        address: Address,
        plan: Plan,
        ways: Ways,
        drift: Drift,
        seed: int,
        *,
        haste: float = 0.08,
    ) -> None:
        """`haste`: the share of calls that lose patience and are made again."""
        self.plan = plan
        self.ways = ways
        self.drift = drift
        self.sightings: list[Sighting] = []
        self.lives = 0
        self._address = address
        self._haste = haste
        self._chance = random.Random(seed)

    async def live(self, *, dies_after_s: float | None = None) -> bool:
        """Walk through the plan from its beginning; False = it died before the end.

        Death cuts every socket where it is, as the end of a process does.
        """
        run_id = f"{self.plan.session}-life-{self.lives}"
        walks = [
            asyncio.create_task(self._walk(branch, number, run_id))
            for number, branch in enumerate(self.plan.branches)
        ]
        _, alive = await asyncio.wait(walks, timeout=dies_after_s)
        for walk in alive:
            walk.cancel()
        outcomes = await asyncio.gather(*walks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome
        self.lives += 1
        if alive:
            await asyncio.sleep(PAUSE_S)
        return not alive

    async def _walk(self, branch: Branch, number: int, run_id: str) -> None:
        life_id = uuid.UUID(int=self._chance.getrandbits(128))
        messages: list[dict[str, Any]] = [{}]
        step = 1000 * number

        async def call(sample: int) -> dict[str, Any]:
            nonlocal step
            messages[0] = {"role": "system", "content": self._system(life_id)}
            tools = {"tools": [TOOL]} if turn.uses_tool else {}
            body = {"model": "m", "messages": messages, **tools}
            headers = [(b"x-agent-session-id", self.plan.session.encode())]
            if self.ways.run_id:
                headers.append((b"x-agent-run-id", run_id.encode()))
            if self.ways.call_id:
                call_id = uuid.UUID(int=self._chance.getrandbits(128))
                headers.append((b"x-agent-call-id", str(call_id).encode()))
            if self.ways.number:
                counted = step if self.ways.number == "each" else 1
                headers.append((b"x-agent-step-number", b"%d" % counted))
            step += 1
            return await self._call(headers, body, sample, number)

        for position, turn in enumerate(branch.turns):
            question = f"{self.plan.session}/{branch.name}: question {position}"
            messages.append({"role": "user", "content": question})
            answers = [await call(sample) for sample in range(turn.samples)]
            messages.append(answers[0])
            if turn.uses_tool:
                (made,) = answers[0]["tool_calls"]
                messages.append(
                    {"role": "tool", "tool_call_id": made["id"], "content": self._use_tool()}
                )
                messages.append(await call(0))

    def _system(self, life_id: uuid.UUID) -> str:
        text = "You are terse."
        if self.drift.clock:
            # Each life later, and no two calls at one moment.
            ahead = timedelta(minutes=7 * self.lives, milliseconds=len(self.sightings))
            text += f" The time is {(datetime.now(UTC) + ahead).isoformat()}."
        if self.drift.ids:
            text += f" Your process is {life_id}."
        return text

    def _use_tool(self) -> str:
        return f"found {self._chance.random()}" if self.drift.tools else "found it"

    async def _call(
        self, headers: list[Pair], body: dict[str, Any], sample: int, branch: int
    ) -> dict[str, Any]:
        """Make one call, with the client's own retries; return the model's message."""
        streams = self._chance.random() < 0.5
        raw = json.dumps({**body, "stream": True} if streams else body).encode()
        for tries in range(TRIES_MAX):
            is_hasty = self._chance.random() < self._haste
            patience_s = self._chance.uniform(0.001, 0.03) if is_hasty else PATIENCE_S
            retry = [(b"x-stainless-retry-count", b"%d" % tries)] if tries else []
            got = Got()
            try:
                await self._post([*headers, *retry], raw, patience_s, got)
            finally:
                message = self._note(got, body, sample, branch)
            if message is not None and got.is_whole:
                return message
            assert got.status is None or got.status == 200 or got.status >= 500, got
            await asyncio.sleep(PAUSE_S)
        raise AssertionError(f"no answer within {TRIES_MAX} tries; the last gave {got}")

    async def _post(self, headers: list[Pair], raw: bytes, patience_s: float, got: Got) -> None:
        """Send one request and read all that comes; fill `got`, also when cut off from outside."""
        pairs = [(b"content-type", JSON_TYPE), (b"connection", b"close"), *headers]
        data = bytearray()
        writer: asyncio.StreamWriter | None = None
        try:
            async with asyncio.timeout(patience_s):
                reader, writer = await asyncio.open_connection(*self._address)
                writer.write(render_request("POST", PATH, self._address, pairs, raw))
                while piece := await reader.read(64 * 1024):
                    data += piece
        except TimeoutError:
            assert patience_s < PATIENCE_S, "the proxy neither answered nor closed"
        except OSError:
            pass  # the proxy was killed: what came until then is what it gave
        finally:
            if writer is not None:
                writer.transport.abort()
            read_response(bytes(data), got)

    def _note(
        self, got: Got, body: dict[str, Any], sample: int, branch: int
    ) -> dict[str, Any] | None:
        """Keep what the agent has seen; return the model's message if its end was there."""
        message = message_of(got) if got.status == 200 else None
        if message is None:
            return None
        self.sightings.append(
            Sighting(
                place=place_of(body),
                sample=sample,
                branch=branch,
                life=self.lives,
                name=name_of(message),
                digest=digest_of(body),
                at_s=time.perf_counter(),
                hit=got.headers.get("x-agentstate-replay"),
            )
        )
        return message


def message_of(got: Got) -> dict[str, Any] | None:
    """Return the message of an answer as an agent keeps it; None if its end is not there."""
    read = read_chat(got.headers.get("content-type"), got.body).first
    if read.finish_reason is None:
        return None
    message: dict[str, Any] = {"role": "assistant", "content": read.text or None}
    if read.tool_calls:
        (call,) = read.tool_calls
        function = {"name": call["name"], "arguments": call["arguments"]}
        message["tool_calls"] = [{"id": call["id"], "type": "function", "function": function}]
    return message


def name_of(message: dict[str, Any]) -> str:
    """Return the name of the answer that a message came from."""
    for call in message.get("tool_calls", ()):
        return str(call["id"]).removeprefix("call_")
    return str(message["content"]).partition("-")[0]


# --- one call -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Heard:
    """What one call heard."""

    name: str  # of the answer
    message: dict[str, Any]
    hit: str | None  # which rung it came from; None = it was fresh
    miss: str | None
    body: bytes


def request_bytes(
    address: Address,
    session: str,
    messages: Sequence[dict[str, Any]],
    headers: Mapping[str, str],
    **body: Any,
) -> bytes:
    """Return the bytes of one call. Header names are written without `x-agent-`."""
    named = {"session-id": session, **headers}
    pairs = [(f"x-agent-{name}".encode(), value.encode()) for name, value in named.items()]
    raw = json.dumps({"model": "m", "messages": messages, **body}).encode()
    return render_request("POST", PATH, address, ((b"content-type", JSON_TYPE), *pairs), raw)


def call_model(address: Address, request: bytes) -> Heard:
    """Make one call that must be answered."""
    with Connection(address) as connection:
        connection.send(request)
        reception = connection.receive()
    assert (reception.status, reception.ending) == (200, "complete"), reception
    lowered = {name.decode().lower(): value.decode() for name, value in reception.headers}
    message = message_of(Got(200, lowered, reception.body))
    assert message is not None, reception.body
    return Heard(
        name=name_of(message),
        message=message,
        hit=lowered.get("x-agentstate-replay"),
        miss=lowered.get("x-agentstate-miss"),
        body=reception.body,
    )


class _Wire:
    """Bytes that came, as http.client takes them: from something like a socket."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def read_response(data: bytes, got: Got) -> None:
    """Read a response as far as it came."""
    response = http.client.HTTPResponse(cast(socket.socket, _Wire(data)), method="POST")
    try:
        response.begin()
        got.status = response.status
        got.headers = {name.lower(): value for name, value in response.getheaders()}
        got.body = response.read()
        got.is_whole = True
    except http.client.IncompleteRead as cut:
        got.body = cut.partial
    except (http.client.HTTPException, OSError):
        pass  # nothing came, or a head that was cut


# --- what kills the proxy -------------------------------------------------------------------------


@asynccontextmanager
async def haunted(
    proxy: Proxy,
    chance: random.Random,
    *,
    ledger: Ledger | None = None,
    every_s: tuple[float, float] = (0.0, 0.0),
    deaths_max: int | None = None,
) -> AsyncIterator[list[str]]:
    """Kill the proxy again and again while the block runs; afterwards it is there and stays.

    Half of the deaths come from outside, at any moment, half at a named point of some call. The
    next death is due after `every_s`; with a `ledger` after some more calls have reached it, so
    that a slow machine gets on as well. Yields the list of deaths so far.
    """
    is_over = threading.Event()
    deaths: list[str] = []

    def wait_for_next() -> None:
        due_s = time.perf_counter() + chance.uniform(*every_s)
        calls = chance.randint(*CALLS_BETWEEN_DEATHS) if ledger is not None else 0
        due_calls = calls + (ledger.paid_count if ledger is not None else 0)
        while proxy.is_running and not is_over.is_set():
            is_due = ledger is None or ledger.paid_count >= due_calls
            if is_due and time.perf_counter() >= due_s:
                break
            time.sleep(POLL_S)

    def haunt() -> None:
        crash_at: str | None = None
        while deaths_max is None or len(deaths) < deaths_max:
            wait_for_next()
            if is_over.is_set():
                break
            deaths.append("killed" if proxy.is_running else crash_at or "?")
            crash_at = None
            if chance.random() < 0.5:
                crash_at = f"{chance.choice(CRASH_POINTS)}:{chance.randint(1, 30)}"
            proxy.restart(crash_at=crash_at)
        if crash_at is not None or not proxy.is_running:
            proxy.restart()

    haunting = asyncio.create_task(asyncio.to_thread(haunt))
    try:
        yield deaths
    finally:
        is_over.set()
        await haunting
