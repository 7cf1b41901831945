"""Plays rows of the fault tables: two scripted upstreams, a proxy for each kind of settings.

Rows share everything and meet nowhere: each has a session and a model of its own, and the upstreams
find its script by the model. First it is asked once, then the same again, as a client would.
"""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.e2e.faults import HEADLESS, Row
from tests.e2e.forms import CHAT, GEMINI, MESSAGES, OLLAMA, RESPONSES, Form
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Pair, Reception, Stop, ask
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

SHORT_S = 1.5  # where an upstream that says nothing is to be given up; the others answer at once
FORMS: tuple[Form, ...] = (CHAT, MESSAGES, RESPONSES, GEMINI, OLLAMA)
# Of a base URL, as each vendor's documents write it.
BASES = {"messages": "", "gemini": "/v1beta", "ollama": ""}
CALLER_KEY = "sk-of-the-caller"

Make = Callable[[], Reply]


class FaultyUpstream(Upstream):
    """Answers each model by a script of its own. Every connection carries one request, so that
    none is taken for a stale one of the pool, whose call is quietly sent again."""

    def __init__(self) -> None:
        super().__init__()
        self._scripts: dict[str, list[Make]] = {}
        self.sent: dict[str, list[Reply]] = {}  # by model
        self.asked: dict[str, list[Received]] = {}

    def put(self, model: str, *replies: Make | Reply) -> None:
        """Append to the script of a model."""
        made = [(lambda kept=each: kept) if isinstance(each, Reply) else each for each in replies]
        with self._lock:
            self._scripts.setdefault(model, []).extend(made)

    def count(self, model: str) -> int:
        """Return how often a model was asked."""
        with self._lock:
            return len(self.asked.get(model, ()))

    def reply_to(self, request: Received) -> Reply:
        model = model_of(request)
        with self._lock:
            self.asked.setdefault(model, []).append(request)
            script = self._scripts.get(model)
            make = script.pop(0) if script else None
            if make is None:
                self.unscripted.append(request)
                return json_reply({"error": {"message": "no further reply"}}, status=418)
            reply = make()
            self.sent.setdefault(model, []).append(reply)
        return replace(reply, headers=(*reply.headers, (b"connection", b"close")))

    async def _write(self, peer: Any, request: Received, reply: Reply) -> None:
        if reply.status != HEADLESS:
            await super()._write(peer, request, reply)
            return
        for chunk in reply.chunks:
            await peer.send(chunk)
        peer.reset()


def model_of(request: Received) -> str:
    """Return the model that is asked, wherever the form says it."""
    in_path = request.target.partition("/models/")[2].partition(":")[0]
    return in_path or str(request.json()["model"])


@contextmanager
def closed_port() -> Iterator[socket.socket]:
    """Give a socket with a port where every connection is refused, as long as it does not listen
    and is not closed."""
    with socket.socket() as kept:
        kept.bind(("127.0.0.1", 0))
        yield kept


def providers_toml(number: int, port: int) -> str:
    """Return rows for one provider of each form at this port, called by its form and `number`."""
    rows = []
    for form in FORMS:
        base = f"http://127.0.0.1:{port}" + BASES.get(form.name, "/v1")
        rows.append(
            f'[[provider]]\nname = "{form.name}{number}"\ndialect = ["{form.dialect}"]\n'
            f'base_url = "{base}"\napi_key = "sk-of-{form.name}{number}"\n'
        )
    return "\n".join(rows)


def gemini_toml(url: str) -> str:
    """Return the row that leads the endpoint of Gemini's own form to an upstream."""
    return f'[[provider]]\nname = "gemini"\nbase_url = "{url}/v1beta/openai"\n'


def forward_toml(**settings: object) -> str:
    """Return a [forward] table."""
    return "\n".join(("[forward]", *(f"{k} = {json.dumps(v)}" for k, v in settings.items()), ""))


@dataclass(slots=True)
class Played:
    """What became of a row."""

    row: Row
    got: Reception
    steps: list[dict[str, Any]]
    calls: tuple[int, int]  # of the first and the second upstream
    sent: list[Reply]  # by the first upstream, then by the second
    again: Reception  # the same call; of one without a session there is none
    steps_again: list[dict[str, Any]]
    calls_again: tuple[int, int]

    @property
    def step(self) -> dict[str, Any]:
        """The one step of the row, after it was asked once."""
        assert len(self.steps) == 1, self.steps
        return self.steps[0]

    @property
    def sent_headers(self) -> dict[str, str]:
        """The headers of the first target's reply."""
        if self.row.fault.is_refused:
            return {}
        return {name.decode(): value.decode() for name, value in self.sent[0].headers}

    @property
    def attempts(self) -> list[dict[str, Any]]:
        """How it was tried."""
        found: list[dict[str, Any]] = self.step["attempts"]
        return found


@dataclass(slots=True)
class Rig:
    """The house in which rows are played."""

    first: FaultyUpstream
    second: FaultyUpstream
    proxies: dict[str, Proxy] = field(default_factory=dict)  # by the kind of their settings

    def proxy_for(self, row: Row) -> Proxy:
        """Return the proxy whose settings a row needs."""
        kind = "retries" if row.plan in ("retry", "shown") else "once"
        return self.proxies[f"{kind}-hasty" if row.fault.is_slow else kind]

    def play(self, row: Row) -> Played:
        """Play one row."""
        self._write_script(row)
        proxy, name = self.proxy_for(row), row.name
        got = self._ask(proxy, row)
        if not row.has_session:
            return Played(row, got, [], self._calls(name), self._sent(name), got, [], (0, 0))
        steps = proxy.settled_steps(name)
        calls, sent = self._calls(name), self._sent(name)
        again = self._ask(proxy, row)
        return Played(
            row=row,
            got=got,
            steps=steps,
            calls=calls,
            sent=sent,
            again=again,
            steps_again=proxy.settled_steps(name),
            calls_again=self._calls(name),
        )

    def _write_script(self, row: Row) -> None:
        form, name, streams = row.first, row.name, row.streams
        if not row.fault.is_refused:
            self.first.put(name, lambda: row.fault.make(form, name, streams))
        match row.plan:
            case "retry" | "alone" | "shown":
                self.first.put(name, form.answer(name, streams=streams))
            case "fallback":
                self.second.put(name, row.target.answer(name, streams=streams))
            case "all-fail":
                self.second.put(name, row.caller.refusal(500))
                self.first.put(name, form.answer(name, streams=streams))

    def _calls(self, name: str) -> tuple[int, int]:
        return self.first.count(name), self.second.count(name)

    def _sent(self, name: str) -> list[Reply]:
        return [*self.first.sent.get(name, ()), *self.second.sent.get(name, ())]

    def _ask(self, proxy: Proxy, row: Row) -> Reception:
        fallback = {
            "fallback": f"{row.target.name}2/{row.name}",
            "all-fail": f"{row.caller.name}2/{row.name}",
            "shown": f"{row.caller.name}2/{row.name}",
        }.get(row.plan)
        more = () if fallback is None else ((b"x-agent-fallback-model", fallback.encode()),)
        return ask_model(
            proxy, row.caller, row.model,
            session=row.name if row.has_session else "", streams=row.streams, headers=more,
            path=row.path_prefix + row.caller.endpoint(row.model, streams=row.streams),
        )  # fmt: skip


def ask_model(
    proxy: Proxy,
    form: Form,
    model: str,
    *,
    session: str,
    streams: bool = False,
    headers: Sequence[Pair] = (),
    text: str = "Is all well?",
    path: str | None = None,
    until: Stop | None = None,
    has_key: bool = True,
) -> Reception:
    """Ask once, as a client of this form. `session` '' = none; `until`: leave when that has come;
    `has_key` False: what keys there are is in `headers`."""
    body = form.ask(model, text)
    if streams and form.stream_path is None:
        body["stream"] = True
    key: Pair = (b"authorization", f"Bearer {CALLER_KEY}".encode())
    if (header := _KEY_HEADERS.get(form.name)) is not None:
        key = (header, CALLER_KEY.encode())
    keys = (key,) if has_key else ()
    return post_body(
        proxy, form, body, session=session, headers=(*keys, *headers), until=until,
        path=path or form.endpoint(model, streams=streams),
    )  # fmt: skip


_KEY_HEADERS = {"messages": b"x-api-key", "gemini": b"x-goog-api-key"}


def post_body(
    proxy: Proxy,
    form: Form,
    body: dict[str, Any],
    *,
    session: str,
    headers: Sequence[Pair] = (),
    path: str | None = None,
    until: Stop | None = None,
) -> Reception:
    """Send a body to the endpoint of a form."""
    pairs: list[Pair] = [(b"content-type", b"application/json"), *headers]
    if session:
        pairs.append((b"x-agent-session-id", session.encode()))
    raw = json.dumps(body).encode()
    return ask(proxy.address, "POST", path or form.path, pairs, raw, until=until)


Settings = Mapping[str, object]
_HASTY: Settings = dict.fromkeys(("first_byte_timeout_s", "gap_timeout_s"), SHORT_S)
RETRIES: Settings = {"retries": 2}
ONCE: Settings = {"retries": 0}
KINDS: Mapping[str, Settings] = {
    "retries": RETRIES,
    "retries-hasty": {**RETRIES, **_HASTY},
    "once": ONCE,
    "once-hasty": {**ONCE, **_HASTY},
}


@contextmanager
def rig_in(folder: Path, kinds: Mapping[str, Settings] = KINDS) -> Iterator[Rig]:
    """Start two upstreams and a proxy for each kind of `[forward]` settings."""
    with ExitStack() as stack:
        rig = Rig(stack.enter_context(FaultyUpstream()), stack.enter_context(FaultyUpstream()))
        closed = stack.enter_context(closed_port())
        ports = enumerate((closed.getsockname()[1], rig.first.port, rig.second.port))
        providers = "\n".join(providers_toml(number, port) for number, port in ports)
        for name, settings in kinds.items():
            at = folder / name
            at.mkdir()
            config = forward_toml(**settings) + gemini_toml(rig.first.url) + providers
            (at / "agentstate.toml").write_text(config, encoding="utf-8")
            rig.proxies[name] = Proxy(upstream_url=rig.first.url, db=at / "record.db")
        with ThreadPoolExecutor(len(kinds)) as pool:
            list(pool.map(stack.enter_context, rig.proxies.values()))
        yield rig
