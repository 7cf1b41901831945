"""The same call several times at once, and calls whose client goes away: one upstream request.

Without a run id an equal body is the same call. The upstream answers when the test lets it, so who
comes early and who comes late is no matter of luck. In the second half: what `x-agent-replay` asks
for, how fast a recorded stream plays, and by which names a session can go.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import Connection, Pair, Reception, render_request
from tests.helpers.reading import read_chat, read_events
from tests.helpers.upstream import Gate, Received, Reply, Upstream, json_reply, model_reply

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
DEADLINE_S = 10.0
MANY = 1000  # permits: more than any answer has pieces


class GatedUpstream(Upstream):
    """Answers each request otherwise, as far as its gate is open; `reply` overrules that."""

    def __init__(self) -> None:
        super().__init__()
        self.gate: Gate | None = None  # None = answers come at once
        self.reply: Reply | None = None

    def reply_to(self, request: Received) -> Reply:
        if self.reply is not None:
            return self.reply
        asked = request.json()
        reply = model_reply({**asked, "serial": request.number})
        return replace(reply, gate=self.gate, head_first=bool(asked.get("stream")))


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy before a gated upstream, and calls through it."""

    proxy: Proxy
    upstream: GatedUpstream
    session: str

    def request(
        self, content: str = "hi", *, stream: bool = False, path: str = PATH, **headers: str
    ) -> bytes:
        """Make a request; header names are written with underscores, without `x-agent-`."""
        body: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": content}]}
        if stream:
            body["stream"] = True
        named = {"session_id": self.session, **headers}
        pairs: list[Pair] = [(b"content-type", b"application/json")]
        pairs += [
            (f"x-agent-{name.replace('_', '-')}".encode(), value.encode())
            for name, value in named.items()
        ]
        return render_request("POST", path, self.proxy.address, pairs, json.dumps(body).encode())

    def ask(self, content: str = "hi", **how: Any) -> Reception:
        """Make a call and read its whole answer."""
        with Connection(self.proxy.address) as connection:
            connection.send(self.request(content, **how))
            return connection.receive()

    @contextmanager
    def held(self) -> Iterator[Gate]:
        """Have the upstream wait; afterwards it answers all that came."""
        self.upstream.gate = gate = Gate()
        try:
            yield gate
        finally:
            self.upstream.gate = None
            gate.open(MANY)

    @property
    def paid(self) -> int:
        """How many requests of this test have reached the upstream."""
        return len(self.upstream.received)


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, GatedUpstream]]:
    """One proxy for all: each test has a session of its own."""
    folder = tmp_path_factory.mktemp("house")
    with (
        GatedUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db", env=ONCE) as proxy,
    ):
        yield proxy, upstream


@pytest.fixture
def rig(house: tuple[Proxy, GatedUpstream], request: pytest.FixtureRequest) -> Rig:
    """Begin with an upstream that remembers nothing."""
    proxy, upstream = house
    upstream.load(())
    upstream.reply = None
    return Rig(proxy, upstream, request.node.name)


def text_of(reception: Reception) -> str:
    """Return what an answer says, in whichever form it came."""
    assert (reception.status, reception.ending) == (200, "complete"), reception
    read = read_chat(reception.header("content-type"), reception.body)
    assert read.first.finish_reason == "stop"
    return read.first.text


def hit_of(reception: Reception) -> str | None:
    """Return which rung an answer came from; None = it was fresh."""
    return reception.header("x-agentstate-replay")


class Listener:
    """A client on a thread that reads a response, and tells how far it has got."""

    def __init__(self, rig: Rig, pool: ThreadPoolExecutor, **how: Any) -> None:
        self._news = threading.Condition()
        self._events = 0
        self._connection = Connection(rig.proxy.address)
        self._connection.send(rig.request(**how))
        self.reading: Future[Reception] = pool.submit(self._read)

    def _read(self) -> Reception:
        with self._connection:
            return self._connection.receive(until=self._note)

    def _note(self, reception: Reception) -> bool:
        with self._news:
            self._events = len(read_events(reception.body))
            self._news.notify_all()
        return False

    def wait_for_events(self, count: int) -> None:
        """Block until so many events have come."""
        with self._news:
            assert self._news.wait_for(lambda: self._events >= count, DEADLINE_S), self._events

    def leave(self) -> Reception:
        """Close the connection in the middle; return what had come."""
        self._connection.hang_up()
        return self.reading.result()


# --- joins ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 10, 100])
@pytest.mark.parametrize("forms", [(False,), (True,), (False, True)], ids=["body", "sse", "mixed"])
def test_the_same_call_many_times_at_once_is_one_upstream_request(
    rig: Rig, count: int, forms: Sequence[bool]
) -> None:
    asked = threading.Barrier(count + 1)

    def ask(number: int) -> Reception:
        with Connection(rig.proxy.address) as connection:
            asked.wait(DEADLINE_S)
            connection.send(rig.request(stream=forms[number % len(forms)]))
            return connection.receive()

    with ThreadPoolExecutor(count) as pool:
        with rig.held():
            asking = [pool.submit(ask, number) for number in range(count)]
            asked.wait(DEADLINE_S)
            rig.upstream.wait_for_requests(1)
        answers = [each.result() for each in asking]

    assert rig.paid == 1
    assert len({text_of(answer) for answer in answers}) == 1
    assert [hit_of(answer) for answer in answers].count(None) == 1
    assert {hit_of(answer) for answer in answers} <= {None, "joined", "exact"}
    streamed = ["text/event-stream" in (answer.header("content-type") or "") for answer in answers]
    assert streamed == [forms[number % len(forms)] for number in range(count)]
    (step,) = rig.proxy.settled_steps(rig.session)
    assert step["replays"] == count - 1


def test_who_joins_a_stream_late_gets_what_has_arrived_and_then_lives_along(rig: Rig) -> None:
    with ThreadPoolExecutor(4) as pool, rig.held() as gate:
        first = Listener(rig, pool, stream=True)
        gate.open(3)
        first.wait_for_events(3)

        late = Listener(rig, pool, stream=True)
        plain = Listener(rig, pool)
        late.wait_for_events(3)
        for events in range(4, 7):
            gate.open()
            first.wait_for_events(events)
            late.wait_for_events(events)
        gate.open(MANY)

        assert late.reading.result().body == first.reading.result().body
        assert text_of(plain.reading.result()) == text_of(first.reading.result())
        assert hit_of(late.reading.result()) == "joined"
    assert rig.paid == 1


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "body"])
def test_a_leader_that_leaves_harms_neither_the_others_nor_the_record(
    rig: Rig, stream: bool
) -> None:
    with ThreadPoolExecutor(4) as pool:
        with rig.held() as gate:
            leader = Listener(rig, pool, stream=stream)
            rig.upstream.wait_for_requests(1)
            others = [Listener(rig, pool, stream=stream) for _ in range(2)]
            if stream:
                gate.open(2)
                for each in (leader, *others):
                    each.wait_for_events(2)
            leader.leave()
        texts = {text_of(each.reading.result()) for each in others}

    assert len(texts) == 1
    assert text_of(rig.ask(stream=stream)) in texts
    assert rig.paid == 1
    assert [step["state"] for step in rig.proxy.settled_steps(rig.session)] == ["complete"]


REFUSAL = json_reply({"error": {"message": "overloaded", "type": "server_error"}}, status=503)
STREAM = model_reply({"messages": [{"role": "user", "content": "x"}], "stream": True})
CUT = replace(STREAM, chunks=STREAM.chunks[:3], end="eof_no_terminator")


@pytest.mark.parametrize("reply", [REFUSAL, CUT], ids=["503", "cut"])
@pytest.mark.parametrize("stream", [True, False], ids=["sse", "body"])
def test_each_joiner_of_a_call_that_fails_gets_the_error_and_none_asks_again(
    rig: Rig, reply: Reply, stream: bool
) -> None:
    gate = Gate()
    rig.upstream.reply = replace(reply, gate=gate)
    with ThreadPoolExecutor(20) as pool:
        clients = [Listener(rig, pool, stream=stream) for _ in range(20)]
        rig.upstream.wait_for_requests(1)
        # What is asked after them is answered after them: by then all have joined.
        assert rig.proxy.get("/healthz")[0] == 200
        gate.open(MANY)
        answers = [each.reading.result() for each in clients]

    assert rig.paid == 1
    assert [is_error(answer) for answer in answers] == [True] * 20
    # A stream that had begun when it was cut had said so in its head.
    has_begun = stream and reply is CUT
    assert {hit_of(answer) for answer in answers} == ({None, "joined"} if has_begun else {None})
    (step,) = rig.proxy.settled_steps(rig.session)
    assert (step["state"], step["replays"]) == ("failed", 0)
    rig.upstream.reply = None
    assert text_of(rig.ask(stream=stream))
    assert rig.paid == 2


def is_error(reception: Reception) -> bool:
    """Say whether a response tells of an error, by its status or as its last event."""
    read = read_chat(reception.header("content-type"), reception.body)
    assert not read.done, "a cut stream must not seem to have ended"
    return read.error is not None


# --- clients that go away -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stream", "events"),
    [(True, 0), (True, 3), (False, 0)],
    ids=["sse-before-first-event", "sse-mid-stream", "body"],
)
def test_a_call_whose_client_left_is_finished_and_its_retry_is_a_replay(
    rig: Rig, stream: bool, events: int
) -> None:
    with ThreadPoolExecutor(1) as pool:
        with rig.held() as gate:
            client = Listener(rig, pool, stream=stream)
            rig.upstream.wait_for_requests(1)
            gate.open(events)
            client.wait_for_events(events)
            left = client.leave()
        (step,) = rig.proxy.wait_for_steps(
            rig.session, lambda steps: bool(steps) and steps[0]["state"] == "complete"
        )

        retry = rig.ask(stream=stream)

    assert left.ending != "complete"
    assert step["attempts"][0]["ok"]
    assert hit_of(retry) == "exact"
    assert retry.body.startswith(left.body)
    assert text_of(retry)
    assert rig.paid == 1


class BusyServer:
    """A server that accepts nobody until it is told to: who connects has to wait."""

    def __init__(self) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=0)
        self._waiting: list[socket.socket] = []
        self._thread: threading.Thread | None = None
        self.served = 0

    @property
    def url(self) -> str:
        """The origin, without a path."""
        return f"http://127.0.0.1:{self._socket.getsockname()[1]}"

    def __enter__(self) -> BusyServer:
        for _ in range(4):  # fill the queue; those over it wait for their connection
            waiting = socket.socket()
            waiting.setblocking(False)
            waiting.connect_ex(self._socket.getsockname())
            self._waiting.append(waiting)
        return self

    def __exit__(self, *_: object) -> None:
        for waiting in self._waiting:
            waiting.close()
        self._socket.close()
        if self._thread is not None:
            self._thread.join(DEADLINE_S)

    def serve(self, reply: Reply) -> None:
        """Take in everybody, and answer the one who asks."""
        for waiting in self._waiting:
            waiting.close()
        self._thread = threading.Thread(target=self._serve, args=(b"".join(reply.chunks),))
        self._thread.start()

    def _serve(self, body: bytes) -> None:
        self._socket.settimeout(DEADLINE_S)
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
        while not self.served:
            peer, _ = self._socket.accept()
            with peer:
                peer.settimeout(DEADLINE_S)
                if peer.recv(64 * 1024):  # nothing comes from those who only filled the queue
                    self.served += 1
                    peer.sendall(head % len(body) + body)


def test_a_call_whose_client_left_while_we_connected_is_finished(tmp_path: Path) -> None:
    with BusyServer() as busy, Proxy(upstream_url=busy.url, db=tmp_path / "record.db") as proxy:
        rig = Rig(proxy, GatedUpstream(), "connecting")
        with Connection(proxy.address) as client:
            client.send(rig.request())
            proxy.wait_for_steps("connecting", lambda steps: bool(steps))
        busy.serve(model_reply({"messages": [{"role": "user", "content": "hi"}]}))
        proxy.wait_for_steps("connecting", lambda steps: steps[0]["state"] == "complete")

        retry = rig.ask()

    assert hit_of(retry) == "exact"
    assert busy.served == 1


@pytest.mark.parametrize("stream", [True, False], ids=["sse", "body"])
def test_a_client_that_says_so_takes_its_call_with_it(rig: Rig, stream: bool) -> None:
    with ThreadPoolExecutor(1) as pool, rig.held() as gate:
        client = Listener(rig, pool, stream=stream, on_disconnect="cancel")
        rig.upstream.wait_for_requests(1)
        if stream:
            gate.open(2)
            client.wait_for_events(2)

        client.leave()

        rig.upstream.wait_for(lambda received: received[0].outcome == "left")
        (step,) = rig.proxy.settled_steps(rig.session)
        assert step["state"] == "failed"


def test_a_client_that_would_cancel_does_not_stop_the_call_of_another(rig: Rig) -> None:
    with ThreadPoolExecutor(2) as pool:
        with rig.held() as gate:
            impatient = Listener(rig, pool, stream=True, on_disconnect="cancel")
            gate.open(2)
            impatient.wait_for_events(2)
            other = Listener(rig, pool, stream=True)
            other.wait_for_events(2)
            impatient.leave()
            other.leave()
        rig.proxy.wait_for_steps(rig.session, lambda steps: steps[0]["state"] == "complete")

    assert hit_of(rig.ask(stream=True)) == "exact"
    assert rig.paid == 1


# --- what x-agent-replay asks for -----------------------------------------------------------------


def test_refresh_asks_again_and_replaces_and_the_old_answer_stays_in_history(rig: Rig) -> None:
    old = text_of(rig.ask())

    new = rig.ask(replay="refresh")

    assert hit_of(new) is None
    assert text_of(new) != old
    assert text_of(rig.ask()) == text_of(new)
    (step,) = rig.proxy.settled_steps(rig.session)
    assert [attempt["ok"] for attempt in step["attempts"]] == [True, True]
    assert rig.paid == 2


def test_a_refresh_that_fails_leaves_the_old_answer(rig: Rig) -> None:
    old = text_of(rig.ask())
    rig.upstream.reply = REFUSAL

    failed = rig.ask(replay="refresh")

    assert failed.status == 503
    assert text_of(rig.ask()) == old


def test_off_does_not_look_and_records_a_further_occurrence(rig: Rig) -> None:
    old = text_of(rig.ask())

    new = rig.ask(replay="off")

    assert hit_of(new) is None
    assert text_of(new) != old
    assert text_of(rig.ask()) == old
    assert [step["state"] for step in rig.proxy.settled_steps(rig.session)] == ["complete"] * 2


@pytest.mark.parametrize("mode", ["refresh", "off"])
def test_calls_that_do_not_look_join_only_with_an_equal_call_id(rig: Rig, mode: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        with rig.held():
            named = [Listener(rig, pool, replay=mode, call_id="one") for _ in range(2)]
            nameless = [Listener(rig, pool, replay=mode) for _ in range(2)]
            rig.upstream.wait_for_requests(3)
        texts = [text_of(each.reading.result()) for each in (*named, *nameless)]

    assert rig.paid == 3
    assert texts[0] == texts[1]
    assert len(set(texts)) == 3


def test_a_miss_names_the_step_and_the_place_and_keeps_the_values_to_the_record(rig: Rig) -> None:
    rig.ask("my old secret", step_number="4")

    missed = rig.ask("my new secret", step_number="4")

    assert missed.header("x-agentstate-miss") == "step 4 differs at messages[0].content"
    assert rig.proxy.settled_steps(rig.session)[1]["miss"] == {
        "step_number": 4,
        "index": 0,
        "path": "messages[0].content",
        "sent": "my new secret",
        "recorded": "my old secret",
    }


def test_a_stream_can_be_replayed_with_its_own_timing(tmp_path: Path) -> None:
    gaps_s = (0.0, 0.05, 0.1, 0.15, 0.2)
    with (
        GatedUpstream() as upstream,
        Proxy(
            upstream_url=upstream.url,
            db=tmp_path / "record.db",
            env={"AGENTSTATE_REPLAY_SPEED": "recorded", **ONCE},
        ) as proxy,
    ):
        rig = Rig(proxy, upstream, "paced")
        upstream.reply = replace(STREAM, delays_s=gaps_s)
        first = rig.ask(stream=True)
        again = rig.ask(stream=True)

    assert hit_of(again) == "exact"
    assert again.body == first.body
    came = [piece.at_s - again.pieces[0].at_s for piece in again.pieces]
    wanted = [sum(gaps_s[1 : number + 1]) for number in range(len(gaps_s))]
    # On a busy machine the first piece may have been read late when it was recorded.
    assert all(at >= due / 2 for at, due in zip(came, wanted, strict=False))
    assert len(again.pieces) == len(first.pieces)


# --- by which names a session can go --------------------------------------------------------------

ALIASES = (
    "x-agent-session-id", "x-claude-code-session-id", "session-id", "helicone-session-id",
    "x-litellm-trace-id", "x-session-id",
)  # fmt: skip


def ask_named(rig: Rig, headers: Sequence[tuple[str, str]], path: str = PATH) -> Reception:
    """Make a call that names its session as these headers and this path do."""
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi"}]}).encode()
    pairs = [(name.encode(), value.encode()) for name, value in headers]
    pairs.append((b"content-type", b"application/json"))
    with Connection(rig.proxy.address) as connection:
        connection.send(render_request("POST", path, rig.proxy.address, pairs, body))
        return connection.receive()


@pytest.mark.parametrize("name", ALIASES)
def test_a_session_can_be_named_as_other_tools_do(rig: Rig, name: str) -> None:
    session = f"named by {name}"

    first = ask_named(rig, [(name, session)])
    again = ask_named(rig, [("x-agent-session-id", session)])

    assert first.header("x-agentstate-session") == session
    assert (hit_of(first), hit_of(again)) == (None, "exact")
    is_forwarded = rig.upstream.received[0].header(name) is not None
    assert is_forwarded is not name.startswith("x-agent-")


def test_the_first_name_that_is_present_wins(rig: Rig) -> None:
    order = ["x-agent-session-id", None, *ALIASES[1:]]  # None = in the URL
    for number, wanted in enumerate(order):
        left = order[number:]
        headers = [(name, f"of {name}") for name in reversed(left) if name is not None]
        path = f"/s/{quote('of None')}{PATH}" if None in left else PATH

        answer = ask_named(rig, headers, path)

        assert answer.header("x-agentstate-session") == f"of {wanted}"


ODD = (
    "a/b", "../../etc/passwd", "x?y#z%2F", "会话", "🚀", "<script>", "'; drop table step;--",
    "CON", "...", "a" * 512, "with space", "+", "%", "a\\b", "…",
)  # fmt: skip


@pytest.mark.parametrize("name", ODD, ids=lambda name: ascii(name)[:30])
def test_an_odd_session_id_is_served_right_everywhere(rig: Rig, name: str) -> None:
    by_url = ask_named(rig, [], f"/s/{quote(name, safe='')}{PATH}")
    by_header = ask_named(rig, [("x-agent-session-id", name)])

    assert (by_url.status, by_header.status) == (200, 200)
    assert hit_of(by_header) == "exact"
    (step,) = rig.proxy.steps(name)
    assert step["replays"] == 1
    status, listed = rig.proxy.get(f"/api/sessions?search={quote(name, safe='')}")
    assert status == 200
    assert name in [row["session_id"] for row in json.loads(listed)]


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", "a" * 513, "a" * 10_240, "\x7f", "a\tb"],
    ids=lambda name: ascii(name)[:9] + str(len(name)),
)
def test_a_session_id_that_cannot_be_one_is_refused_with_a_reason(rig: Rig, name: str) -> None:
    by_header = ask_named(rig, [("x-agent-session-id", name)])
    by_url = ask_named(rig, [], f"/s/{quote(name, safe='')}{PATH}")

    for answer in (by_header, by_url):
        assert answer.status == 400
        message = json.loads(answer.body)["error"]["message"]
        assert "session" in message or "control character" in message
    assert rig.paid == 0
