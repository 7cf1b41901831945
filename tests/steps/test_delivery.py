"""What a client hears while its call is held, and how a stream ends for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from agentstate.dialects import DIALECTS, dialect_by_name
from agentstate.dialects.base import CallsTools, Dialect, Mark
from agentstate.ground.errors import HumanRejection, UpstreamCut
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.settings import GateSettings
from agentstate.steps.delivery import (
    COMMENT,
    Delivery,
    heartbeat_of,
    heartbeat_s,
    stop,
    taken,
    takes_interim,
    wait_with_interim,
)
from agentstate.steps.flight import Flight, Head, Landing
from agentstate.steps.gate import Hold
from agentstate.steps.rounds import LetOut, Passed
from agentstate.wire.message import Abort, Headers, Pair
from agentstate.wire.sse import Frame, SSEDecoder
from tests.dialects import samples_anthropic as messages
from tests.dialects import samples_gemini as gemini
from tests.dialects import samples_responses as responses
from tests.steps.scene import DONE, END, HEAD, TEXT, FakeRequest

LIMIT_S = 10.0
SETTINGS = GateSettings()
HOLD = Hold(1, 1, (), ())


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(LIMIT_S):
            await test()

    asyncio.run(main())


def dialect(name: str) -> Dialect:
    found = dialect_by_name(name)
    assert found is not None
    return found


CHAT, RESPONSES = dialect("openai_chat"), dialect("openai_responses")


class Client(FakeRequest):
    """A request that notes the interim responses it is sent."""

    def __init__(self, *headers: Pair, peer: str = "127.0.0.1") -> None:
        super().__init__(list(headers), b"")
        self.peer = peer
        self.interims: list[int] = []
        self.told = asyncio.Event()  # one has come

    def send_interim(self, status: int) -> None:
        """Note one."""
        self.interims.append(status)
        self.told.set()


# --- how often ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("announced", "expected"),
    [
        (None, 10.0),
        ("600", 10.0),
        ("600.0", 10.0),
        ("15", 5.0),
        ("5", 5 / 3),
        ("1.5", 0.5),
        ("0.1", 0.2),  # however short
        ("0", 10.0),  # no limit at all
        ("0.0", 10.0),
        ("", 10.0),
        ("None", 10.0),
        ("NOT_GIVEN", 10.0),
        ("-5", 10.0),
        ("1e3", 10.0),
        ("nan", 10.0),
        ("5 seconds", 10.0),
        ("\u0665", 10.0),
        ("9" * 400, 10.0),
    ],
)
def test_a_client_hears_something_within_a_third_of_its_own_limit(
    announced: str | None, expected: float
) -> None:
    sent = [] if announced is None else [(b"X-Stainless-Read-Timeout", announced.encode())]
    assert heartbeat_s(Headers(sent), SETTINGS) == pytest.approx(expected)


def test_a_shorter_setting_stands() -> None:
    headers = Headers([(b"x-stainless-read-timeout", b"600")])
    assert heartbeat_s(headers, GateSettings(heartbeat_s=2.0)) == 2.0
    assert heartbeat_s(Headers([]), GateSettings(heartbeat_s=0.05)) == 0.05


@pytest.mark.clients
@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_the_vendors_clients_say_their_limit_and_who_they_are(package: str) -> None:
    module = pytest.importorskip(package)
    options = pytest.importorskip(f"{package}._models").FinalRequestOptions
    names = {"openai": ("OpenAI", "AsyncOpenAI"), "anthropic": ("Anthropic", "AsyncAnthropic")}
    for name in names[package]:
        client = getattr(module, name)(api_key="x", timeout=6)
        built = client._build_request(options(method="post", url="/x"))
        headers = [(key.encode(), value.encode()) for key, value in built.headers.items()]
        assert heartbeat_s(Headers(headers), SETTINGS) == 2.0
        assert takes_interim(Client(*headers), SETTINGS)


@pytest.mark.clients
def test_the_http_client_of_the_vendors_packages_says_who_it_is() -> None:
    httpx2 = pytest.importorskip("httpx2")
    with httpx2.Client() as client:
        agent = client.headers["user-agent"].encode()
    assert takes_interim(Client((b"user-agent", agent)), SETTINGS)


# --- 102 ------------------------------------------------------------------------------------------

KNOWN = (
    "OpenAI/Python 3.57.0",
    "AsyncOpenAI/Python 3.57.0",
    "Anthropic/Python 2.14.0",
    "AsyncAnthropic/Python 2.14.0",
    "python-httpx/0.28.1",
    "python-httpx2/2.16.2",
    "Python/3.11 aiohttp/3.12.0",
    "curl/7.88.1",
)


@pytest.mark.parametrize("agent", KNOWN)
@pytest.mark.parametrize("peer", ["127.0.0.1", "127.1.2.3", "::1"])
def test_clients_known_to_take_it_are_told_that_it_goes_on(agent: str, peer: str) -> None:
    assert takes_interim(Client((b"User-Agent", agent.encode()), peer=peer), SETTINGS)


@pytest.mark.parametrize(
    "agent",
    [
        None,
        "",
        "python-requests/2.34.2",
        "Python-urllib/3.11",
        "Go-http-client/1.1",
        "OpenAI/JS 6.0.0",
        "OpenAI/Go 3.0.0",
        "node",
        "my python-httpx/0.28.1",  # it only says that it is like one
        "Mozilla/5.0 curl/7.88.1",
    ],
)
def test_others_are_not(agent: str | None) -> None:
    headers = [] if agent is None else [(b"user-agent", agent.encode())]
    assert not takes_interim(Client(*headers), SETTINGS)


@pytest.mark.parametrize("peer", ["", "10.0.0.7", "192.168.1.1", "::2", "example.com"])
def test_nor_are_clients_on_other_machines(peer: str) -> None:
    assert not takes_interim(Client((b"user-agent", KNOWN[0].encode()), peer=peer), SETTINGS)


@pytest.mark.parametrize(
    "name",
    ["via", "Via", "Forwarded", "X-Forwarded-For", "x-forwarded-host", "X-Forwarded-Proto",
     "X-Forwarded-Port", "X-Real-IP"],
)  # fmt: skip
def test_nor_those_behind_something_that_relays(name: str) -> None:
    """nginx takes a 102 for the answer."""
    client = Client((b"user-agent", KNOWN[0].encode()), (name.encode(), b"x"))
    assert not takes_interim(client, SETTINGS)


def test_the_setting_has_the_last_word() -> None:
    known, other = Client((b"user-agent", KNOWN[0].encode())), Client(peer="10.0.0.7")
    assert not takes_interim(known, GateSettings(interim="never"))
    assert takes_interim(other, GateSettings(interim="always"))


def test_one_who_waits_for_a_body_is_told_until_it_comes() -> None:
    async def scenario() -> None:
        client, gate = Client(), asyncio.Event()
        work = asyncio.create_task(passed(b"{}", gate))
        waiting = asyncio.create_task(wait_with_interim(client, work, 0.001, sends_interim=True))
        for _ in range(3):
            client.told.clear()
            await client.told.wait()
        gate.set()
        assert (await waiting).answer.content == b"{}"
        count = len(client.interims)
        assert client.interims == [102] * count
        await asyncio.sleep(0.01)
        assert len(client.interims) == count

    run(scenario)


def test_one_who_does_not_take_it_hears_nothing() -> None:
    async def scenario() -> None:
        client, gate = Client(), asyncio.Event()
        work = asyncio.create_task(passed(b"{}", gate))
        waiting = asyncio.create_task(wait_with_interim(client, work, 0.001, sends_interim=False))
        await asyncio.sleep(0.01)
        gate.set()
        assert (await waiting).answer.content == b"{}"
        assert client.interims == []

    run(scenario)


def test_one_who_leaves_is_not_waited_for() -> None:
    async def scenario() -> None:
        client = Client()
        work = asyncio.create_task(passed(b"{}", asyncio.Event()))
        waiting = asyncio.create_task(wait_with_interim(client, work, 10, sends_interim=True))
        await asyncio.sleep(0)
        client.leave()
        with pytest.raises(ConnectionResetError):
            await waiting
        assert work.cancelled()
        stop(work)  # once more does nothing
        assert client.interims == []

    run(scenario)


def test_what_was_refused_is_raised() -> None:
    async def scenario() -> None:
        error = HumanRejection("no", approval_id="apr_1")
        work: asyncio.Task[Passed] = asyncio.create_task(refused(error))
        await asyncio.wait({work})
        with pytest.raises(HumanRejection):
            taken(work)

    run(scenario)


# --- streams --------------------------------------------------------------------------------------


def recorded(*frames: bytes) -> RecordedAnswer:
    return RecordedAnswer(200, (), "events", b"".join(frames))


async def passed(content: bytes, gate: asyncio.Event) -> Passed:
    """Let content out once the gate opens."""
    await gate.wait()
    return LetOut(RecordedAnswer(200, (), "events", content), 7)


async def refused(error: Exception) -> Any:
    return error


class Stream:
    """A delivery from a flight, read piece by piece."""

    def __init__(self, dialect: Dialect = CHAT, every_s: float = 5.0) -> None:
        self.dialect = dialect
        self.flight = Flight(1 << 20)
        self.gate = asyncio.Event()
        self.let_out = b""
        self.error: Exception | None = None
        self.begun: list[Landing] = []
        self.works: list[asyncio.Task[Passed]] = []
        self.delivered: list[LetOut | None] = []
        self.delivery = Delivery(
            dialect,
            flight=self.flight,
            follower=self.flight.attach(),
            every_s=every_s,
            begin=self._begin,
            render=lambda answer: answer.content,
            on_delivered=self.delivered.append,
        )

    def open(self, *pieces: bytes) -> None:
        """Let a stream begin."""
        self.flight.open(Head(200, ()))
        for piece in pieces:
            self.flight.publish(piece)

    def land(self, *frames: bytes, shown: bytes | None = None, **landing: Any) -> None:
        """Let it land with an answer of which the gate keeps what is not shown."""
        answer = recorded(*frames)
        size = len(answer.content) if shown is None else len(shown)
        hold = None if shown is None else HOLD
        self.flight.land(Landing(answer=answer, hold=hold, shown_bytes=size, **landing))

    def _begin(self, landing: Landing) -> asyncio.Task[Passed]:
        self.begun.append(landing)
        coming = passed(self.let_out, self.gate) if self.error is None else refused(self.error)
        self.works.append(asyncio.create_task(coming))
        return self.works[-1]

    async def next(self) -> bytes:
        """Read one piece."""
        return await anext(self.delivery)

    async def rest(self) -> list[bytes]:
        """Read to the end."""
        return [piece async for piece in self.delivery]


def test_a_stream_that_nothing_holds_goes_through_and_is_delivered() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.open(HEAD, TEXT)
        assert [await stream.next(), await stream.next()] == [HEAD, TEXT]
        stream.flight.publish(END + DONE)
        stream.land(HEAD, TEXT, END, DONE)
        assert await stream.next() == END + DONE
        assert stream.delivered == [], "not before the last piece was written"
        assert await stream.rest() == []
        assert stream.delivered == [None]
        assert not stream.begun

    run(scenario)


def test_heartbeats_come_between_frames_until_the_gate_opens() -> None:
    async def scenario() -> None:
        stream = Stream(every_s=0.01)
        stream.open(HEAD, TEXT)
        stream.flight.keep(True)
        assert [await stream.next() for _ in range(4)] == [HEAD, TEXT, COMMENT, COMMENT]
        stream.let_out = HEAD + TEXT + END + DONE
        stream.land(HEAD, TEXT, END, DONE, shown=HEAD + TEXT)
        assert [await stream.next() for _ in range(2)] == [COMMENT, COMMENT]
        assert len(stream.begun) == 1
        stream.gate.set()
        pieces = await stream.rest()
        assert b"".join(pieces).replace(COMMENT, b"") == END + DONE
        (let_out,) = stream.delivered
        assert let_out is not None
        assert let_out.release_id == 7

    run(scenario)


def test_no_heartbeat_comes_where_frames_do() -> None:
    async def scenario() -> None:
        stream = Stream(every_s=0.001)
        stream.open(HEAD)
        assert await stream.next() == HEAD
        waiting = asyncio.create_task(stream.next())
        await asyncio.sleep(0.02)
        assert not waiting.done(), "the upstream is silent, and it is not for us to say otherwise"
        stream.flight.publish(TEXT)
        assert await waiting == TEXT

    run(scenario)


def test_a_refusal_ends_a_stream_in_the_dialects_error_event_without_its_end() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.open(HEAD, TEXT)
        stream.error = HumanRejection("no", approval_id="apr_1")
        stream.land(HEAD, TEXT, END, DONE, shown=HEAD + TEXT)
        pieces = [await stream.next() for _ in range(3)]
        event = json.loads(pieces[2].removeprefix(b"data: "))
        assert event["error"]["code"] == "human_rejection"
        with pytest.raises(Abort):
            await stream.next()
        assert stream.delivered == []

    run(scenario)


def test_an_error_event_has_the_number_that_follows_what_was_shown() -> None:
    frames = list(responses.STREAMS["tool calls"])

    async def scenario() -> None:
        for count in (2, 5):
            stream = Stream(RESPONSES)
            stream.open(*frames[:count])
            stream.error = HumanRejection("no", approval_id="apr_1")
            stream.land(*frames, shown=b"".join(frames[:count]))
            (*_, last) = [await stream.next() for _ in range(count + 1)]
            (frame,) = SSEDecoder().feed(last)
            event = json.loads(frame.data or b"")
            assert (event["type"], event["sequence_number"]) == ("error", count)

        # Before the first event of the upstream, ours is the first.
        stream = Stream(RESPONSES)
        stream.flight.land(Landing(error=HumanRejection("no", approval_id="apr_1")))
        (frame,) = SSEDecoder().feed(await stream.next())
        assert json.loads(frame.data or b"")["sequence_number"] == 0
        with pytest.raises(Abort):
            await stream.next()

    run(scenario)


def test_whoever_was_told_of_an_error_is_not_told_again() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.open(HEAD, b"data: the error\n\n")
        stream.flight.land(Landing(error=UpstreamCut("It stopped.")))
        assert [await stream.next(), await stream.next()] == [HEAD, b"data: the error\n\n"]
        with pytest.raises(Abort):
            await stream.next()
        assert stream.delivered == []

    run(scenario)


def test_an_upstream_that_refused_behind_a_head_of_ours_is_an_error_event() -> None:
    """The head went out so that there could be heartbeats: a person was asked first."""

    async def scenario() -> None:
        stream = Stream()
        refusal = RecordedAnswer(429, (), "body", b"{}")
        stream.flight.land(Landing(refusal=refusal, provider="openai"))
        event = json.loads((await stream.next()).removeprefix(b"data: "))
        assert "openai answered 429" in event["error"]["message"]
        with pytest.raises(Abort):
            await stream.next()

    run(scenario)


def test_a_body_that_came_behind_a_head_of_ours_is_rendered_whole() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.land(HEAD, END, DONE)
        assert await stream.rest() == [HEAD + END + DONE]
        assert stream.delivered == [None]

    run(scenario)


def test_what_went_out_is_never_contradicted() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.open(HEAD, TEXT)
        stream.let_out = HEAD + END + DONE
        stream.gate.set()
        stream.land(HEAD, TEXT, END, DONE, shown=HEAD + TEXT)
        pieces = [await stream.next() for _ in range(3)]
        assert pieces[:2] == [HEAD, TEXT]
        assert b"Ask again" in pieces[2]
        with pytest.raises(Abort):
            await stream.next()
        assert stream.delivered == []

    run(scenario)


def test_a_replay_that_is_held_has_no_flight() -> None:
    async def scenario() -> None:
        gate = asyncio.Event()
        delivered: list[LetOut | None] = []
        work = asyncio.create_task(passed(HEAD + END + DONE, gate))
        delivery = Delivery(
            CHAT,
            flight=None,
            follower=None,
            every_s=0.01,
            render=lambda answer: answer.content,
            on_delivered=delivered.append,
            work=work,
        )
        assert await anext(delivery) == COMMENT
        gate.set()
        assert b"".join([piece async for piece in delivery]).endswith(HEAD + END + DONE)
        assert len(delivered) == 1

    run(scenario)


def test_a_client_that_leaves_is_no_longer_followed_or_waited_for() -> None:
    async def scenario() -> None:
        stream = Stream()
        stream.open(HEAD)
        await stream.delivery.aclose()
        assert not stream.flight.followers

        stream = Stream(every_s=0.01)
        stream.open(HEAD)
        stream.land(HEAD, END, DONE, shown=HEAD)
        assert [await stream.next(), await stream.next()] == [HEAD, COMMENT]
        await stream.delivery.aclose()
        (work,) = stream.works
        await asyncio.wait({work})
        assert work.cancelled()
        assert stream.delivered == []

    run(scenario)


# --- heartbeats -----------------------------------------------------------------------------------

# A stream of each dialect, for a heartbeat between any two of its frames.
BEGUN: dict[str, tuple[bytes, ...]] = {
    "openai_chat": (HEAD, TEXT, END, DONE),
    "openai_completions": (b'data: {"choices":[{"text":"a","finish_reason":"stop"}]}\n\n', DONE),
    "openai_responses": responses.STREAMS["tool calls"],
    "anthropic_messages": messages.STREAMS["tool calls"],
    "gemini": gemini.STREAMS["tool calls"],
}


@pytest.mark.parametrize("name", BEGUN)
def test_a_heartbeat_changes_nothing_wherever_it_comes(name: str) -> None:
    found = dialect(name)
    heartbeat = heartbeat_of(found)
    plain, beaten = found.assembler(), found.assembler()
    decoder = SSEDecoder()
    for raw in BEGUN[name]:
        (frame, *_) = SSEDecoder().feed(raw)
        plain.feed(frame)
        frames: list[Frame] = decoder.feed(heartbeat + raw)
        marks = [beaten.feed(each) for each in frames]
        assert set(marks[:-1]) <= {Mark.PREFACE, Mark.TAIL}
    assert beaten.finish(True) == plain.finish(True)
    assert b"id:" not in heartbeat, "a blank line after an id is an event to some clients"


def test_a_dialect_that_calls_no_tools_gets_a_comment() -> None:
    assert heartbeat_of(dialect("openai_embeddings")) == COMMENT
    assert set(BEGUN) == {each.name for each in DIALECTS if isinstance(each, CallsTools)}
