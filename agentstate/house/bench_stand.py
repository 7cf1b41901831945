"""What all parts of the bench stand on: processes, the load, rounds in which servers take turns.

Processes: this one (starts, asks), the proxy with its real record on the disk, an instant upstream,
the bare h11 server of `wire/bare.py`, and one load. In each round the servers that are compared
take turns, so that whatever else the machine does meets all of them; figures are medians over the
rounds. No process sees the environment of whoever started the bench, which may name real models.
"""

from __future__ import annotations

import http.client
import json
import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError
from agentstate.ground.settings import read_environment
from agentstate.house.bench_load import NONCE
from agentstate.house.bench_table import Figure, middle_of, percentile
from agentstate.house.demo_stage import KEPT
from agentstate.house.launch import ChildFailed, Proxy, child, module_command, proxy, wait_for_line

ROUNDS, ROUNDS_QUICK = 5, 3  # odd: the median is a round that was run
ROUND_S, ROUND_QUICK_S = 0.6, 0.15  # of load for one measurement
WARM_S = 0.2  # of load before the first round: caches, pools, the adaptive interpreter
COUNT_MAX = 20_000  # requests of one measurement
FSYNCS = 9  # each time they are measured
DURABILITY = "full"
TIMEOUT_S = 30.0
PATH = "/p/bench/v1/chat/completions"

_LISTENING = re.compile(r".* listening on http://(.+):(\d+)\s*$")

CONFIG = """\
[store]
durability = "{durability}"

[log]
level = "warning"

[[provider]]
name = "bench"
dialect = ["openai_chat"]
base_url = "http://127.0.0.1:{port}/v1"
api_key = "bench"
"""

ANSWER = json.dumps(
    {
        "id": "chatcmpl-bench",
        "object": "chat.completion",
        "created": 1767225600,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "word " * 60, "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {"prompt_tokens": 256, "completion_tokens": 60, "total_tokens": 316},
    }
)


class BenchFailed(AgentStateError):
    """The measurement means nothing: something answered wrongly or not at all."""

    code = "bench_failed"


@dataclass(frozen=True, slots=True)
class Load:
    """One kind of load. `name` keys the results; `kind` replay or new."""

    name: str
    kind: str
    clients: int
    body_bytes: int = 1024
    stream: str = ""  # the model whose stream is asked for; '' = no stream


@dataclass(frozen=True, slots=True)
class Turn:
    """A load and the server it is put on."""

    load: Load
    port: int
    is_ours: bool = False  # then what is answered is checked
    path: str = PATH
    headers: tuple[str, ...] = ()  # more of them, as lines


def environment(**more: str) -> dict[str, str]:
    """Return the environment of the bench's processes."""
    return {name: value for name, value in read_environment().items() if name in KEPT} | more


class Stand:
    """The processes of one run, while the stack it was opened on is."""

    def __init__(self, folder: Path, *, is_quick: bool) -> None:
        self.folder = folder
        self.is_quick = is_quick
        self.rounds = ROUNDS_QUICK if is_quick else ROUNDS
        self.round_s = ROUND_QUICK_S if is_quick else ROUND_S
        self.fsyncs_ms: list[float] = []
        self.streams_run = 0  # measurements of streams, for their names
        self._nonce = 0

    def open(self, stack: ExitStack) -> None:
        """Start everything.

        Raises:
            BenchFailed, ChildFailed.
        """
        self.upstream_port = self.start(stack, "agentstate.house.bench_load", "upstream", ANSWER)
        self.server = self.start_proxy(stack, "bench")
        command = module_command("agentstate.house.bench_load", "load")
        self._load: subprocess.Popen[str] = stack.enter_context(
            child(command, self.folder, takes_input=True, environ=environment())
        )
        response = self.folder / "response.http"
        response.write_bytes(self._record())
        self.fsyncs_ms += measure_fsyncs(self.folder)
        self.bare_port = self.start(stack, "agentstate.wire.bare", str(response))

    @property
    def db(self) -> Path:
        """The proxy's record."""
        return self.folder / "bench.db"

    def start(self, stack: ExitStack, module: str, *arguments: str) -> int:
        """Start a server of ours and return its port."""
        command = module_command(module, *arguments)
        process = stack.enter_context(child(command, self.folder, environ=environment()))
        return int(wait_for_line(process, _LISTENING)[2])

    def start_proxy(self, stack: ExitStack, name: str) -> Proxy:
        """Start a proxy before the upstream, with a record of its own."""
        config = self.folder / f"{name}.toml"
        text = CONFIG.format(port=self.upstream_port, durability=DURABILITY)
        config.write_text(text, "utf-8")
        flags = ("--config", str(config), "--db", str(self.folder / f"{name}.db"))
        return stack.enter_context(proxy(self.folder, *flags, environ=environment()))

    def take_turns(self, turns: Mapping[str, Turn]) -> dict[str, Figure]:
        """Put loads on servers in turn, round after round; return the medians by name."""
        found: dict[str, list[Figure]] = {name: [] for name in turns}
        for turn in turns.values():
            self.run(turn, WARM_S)
        self.fsyncs_ms += measure_fsyncs(self.folder)
        for _ in range(self.rounds):
            for name, turn in turns.items():
                found[name].append(self.run(turn, self.round_s))
        return {name: middle_of(figures) for name, figures in found.items()}

    def run(self, turn: Turn, seconds: float, count_max: int = COUNT_MAX) -> Figure:
        """Put a load on a server once."""
        load = turn.load
        hit = "true" if load.kind == "replay" else "false"
        plan = {
            "kind": "calls",
            "port": turn.port,
            "requests": [
                make_request(load, at, turn.path, turn.headers).decode("latin-1")
                for at in range(load.clients)
            ],
            "expect": f"x-agentstate-cache-hit: {hit}\r\n" if turn.is_ours else "",
            "count_max": count_max,
            "seconds_max": seconds,
            "first_nonce": self._nonce,
        }
        result = self.tell_load(load.name, plan)
        self._nonce = result["nonce"]
        latencies, inside = result["latencies_ms"], result["inside_ms"]
        return Figure(
            p50_ms=percentile(latencies, 50),
            p99_ms=percentile(latencies, 99),
            rate=len(latencies) / result["seconds"],
            count=len(latencies),
            inside_p50_ms=percentile(inside, 50),
            inside_p99_ms=percentile(inside, 99),
        )

    def tell_load(self, name: str, plan: Mapping[str, Any]) -> dict[str, Any]:
        """Have the load carry out a plan; return what it found.

        Raises:
            BenchFailed: an answer was not as it should be.
            ChildFailed: the load itself failed.
        """
        assert self._load.stdin is not None, "it takes input"
        assert self._load.stdout is not None, "its output is a pipe"
        told = ""
        try:
            self._load.stdin.write(json.dumps(plan) + "\n")
            self._load.stdin.flush()
            told = self._load.stdout.readline()
            result: dict[str, Any] = json.loads(told)
        except (OSError, ValueError) as error:
            raise ChildFailed(f"The load process failed: {told}") from error
        if "error" in result:
            raise BenchFailed(f"{name}: {result['error']}")
        return result

    def record(self, load: Load) -> tuple[dict[str, str], bytes]:
        """Ask for what replays will be asked for; return head and body of a replay."""
        for _ in range(2):  # the first is recorded, the second replayed
            status, headers, body = ask(self.server, make_request(load, 0))
            if status != 200:
                raise BenchFailed(f"The proxy answered {status}: {body[:500]!r}")
        if headers.get("x-agentstate-cache-hit") != "true":
            raise BenchFailed("The proxy did not replay a call that it had just answered.")
        return headers, body

    def _record(self) -> bytes:
        """Return a replay as raw HTTP, for the bare server."""
        headers, body = self.record(Load("yardstick", "replay", 1))
        own = [f"{name}: {value}" for name, value in headers.items() if name != "date"]
        return "\r\n".join(["HTTP/1.1 200 OK", *own, "", ""]).encode("latin-1") + body


def make_request(load: Load, client: int, path: str = PATH, headers: Sequence[str] = ()) -> bytes:
    """Return the raw request of a load's client; new calls get a nonce, replays are all equal."""
    is_new = load.kind == "new"
    task = NONCE.decode() if is_new else "again"
    session = f"bench-{load.name}-{client}" if is_new else f"bench-{load.name}"
    head: dict[str, Any] = {"model": load.stream or "bench", "temperature": 0.5}
    if load.stream:
        head["stream"] = True
    frame = json.dumps({**head, "messages": [{"role": "user", "content": f"{task} "}]})
    body = frame.replace(f"{task} ", f"{task} " + words(load.body_bytes - len(frame)))
    more = "".join(f"{header}\r\n" for header in headers)
    return (
        f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1\r\n"
        "content-type: application/json\r\nauthorization: Bearer bench\r\n"
        f"accept: application/json\r\nx-agent-session-id: {session}\r\n{more}"
        f"content-length: {len(body)}\r\n\r\n{body}"
    ).encode("ascii")


def words(count: int, seed: int = 1) -> str:
    """Return so many characters of text that no compressor finds too easy; alike for a seed."""
    state, made, size = seed, [], 0
    while size < count:
        state = (state * 1103515245 + 12345) % (1 << 31)  # the generator of ANSI C
        word = f"{_SYLLABLES[state >> 8 & 15]}{_SYLLABLES[state >> 16 & 15]} "
        made.append(word)
        size += len(word)
    return "".join(made)[: max(count, 0)]


_SYLLABLES = (
    "ab", "er", "in", "lo", "mu", "na", "pi", "ro", "sa", "ti", "un", "ve", "wo", "xa", "yo", "za",
)  # fmt: skip


def measure_fsyncs(folder: Path) -> list[float]:
    """Append pages to a file, each synced; return the time each took, in milliseconds."""
    taken: list[float] = []
    with (folder / "fsync").open("wb", buffering=0) as file:
        for _ in range(FSYNCS):
            began_s = monotonic_s()
            file.write(bytes(4096))
            os.fsync(file.fileno())
            taken.append((monotonic_s() - began_s) * 1000)
    return taken


def ask_with_body(
    server: Proxy, path: str, session: str, messages: Sequence[Mapping[str, str]]
) -> tuple[int, int, bytes]:
    """Ask with a conversation; return the status, the bytes of the request's body, and the answer's
    body."""
    body = json.dumps({"model": "bench", "messages": messages})
    head = (
        f"POST {path} HTTP/1.1\r\nauthorization: Bearer mock-key\r\n"
        f"content-type: application/json\r\nx-agent-session-id: {session}\r\n\r\n"
    )
    status, _, answer = ask(server, f"{head}{body}".encode("ascii"))
    return status, len(body), answer


def ask(server: Proxy, raw: bytes) -> tuple[int, dict[str, str], bytes]:
    """Send a raw request on a connection of its own; return status, headers and body."""
    head, _, body = raw.partition(b"\r\n\r\n")
    first, *lines = head.decode("ascii").split("\r\n")
    method, path, _ = first.split(" ")
    connection = http.client.HTTPConnection(server.host, server.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body, dict(line.split(": ", 1) for line in lines))
        response = connection.getresponse()
        headers = {name.lower(): value for name, value in response.getheaders()}
        return response.status, headers, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise BenchFailed(f"The proxy did not answer: {error}.") from error
    finally:
        connection.close()
