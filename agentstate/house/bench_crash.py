"""The seed table: an agent that is killed again and again, with the proxy and without it.

The agent is the demo's (`demo_agent.py`), a process that keeps everything in memory and is ended by
SIGKILL. The model is the mock behind a socket in this process: it takes a stated time for each
answer and counts what it is asked, so that what is paid twice is known without asking the proxy.
No two of its answers have the same id. The tool it calls is guarded; somebody, a thread here,
approves each question as it comes.
"""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from agentstate.ground.chat import Usage
from agentstate.ground.clock import monotonic_s
from agentstate.ground.prices import load_prices
from agentstate.house.bench_stand import BenchFailed, Stand, environment
from agentstate.house.bench_table import Line, Table
from agentstate.house.demo_peers import Model, Said, serving
from agentstate.house.launch import Proxy, child, module_command, proxy

STEPS = 50
KILL_AT = 45
KILLS = 10
LATENCY_MS, LATENCY_QUICK_MS = 40, 5  # of the model, for every answer
PRICED_AS = ("openai", "gpt-4o")
GUARDED = "search_orders"  # the one tool of the demo's agent
SESSION = "bench-crash"
POLL_S = 0.005  # for questions
WAIT_S = 60.0  # for a life to end

CONFIG = f"""\
[gate]
tools = ["{GUARDED}"]

[log]
level = "warning"
"""


@dataclass(slots=True)
class Life:
    """What one life of the agent told, and what the model was asked meanwhile."""

    back_s: float = 0.0  # from its start until it asked for `KILL_AT`
    all_s: float = 0.0  # from its start to its end
    answers: list[dict[str, Any]] = field(default_factory=list)
    calls: list[tuple[int, str]] = field(default_factory=list)  # (step, tool) that reached it
    asked: int = 0  # requests that reached the model


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one agent with all its lives."""

    lives: tuple[Life, ...]  # the last one lived to its own end
    paid: Usage  # for all of them, as the model counted
    held: frozenset[int]  # steps whose guarded call was held while the agent did not have it
    questions: int  # that were asked of a person

    @property
    def needed(self) -> Usage:
        """What one life without a kill costs."""
        answers = self.lives[-1].answers
        return Usage(
            sum(answer["input_tokens"] for answer in answers),
            sum(answer["output_tokens"] for answer in answers),
        )

    @property
    def paid_again(self) -> Usage:
        """What was paid more than once."""
        return Usage(
            self.paid.input_tokens - self.needed.input_tokens,
            self.paid.output_tokens - self.needed.output_tokens,
        )

    @property
    def survived(self) -> int:
        """How many kills were followed by a life in which the model was asked for no step that had
        been answered before."""
        done: set[int] = set()
        kept = 0
        for life, next_life in zip(self.lives, self.lives[1:], strict=False):
            done |= {answer["step"] for answer in life.answers}
            again = {answer["step"] for answer in next_life.answers if answer["replay"] is None}
            kept += not done & again
        return kept

    @property
    def guarded(self) -> frozenset[int]:
        """The steps at which the model made a guarded call."""
        return frozenset(
            step for life in self.lives for step, name in life.calls if name == GUARDED
        )


class Thinker:
    """The mock, which takes its time and counts tokens. May be used from any thread."""

    def __init__(self, latency_s: float) -> None:
        self._model = Model()
        self._latency_s = latency_s
        self._lock = threading.Lock()
        self._input_tokens = 0
        self._output_tokens = 0

    @property
    def count(self) -> int:
        """How many requests reached it so far."""
        return self._model.count

    @property
    def paid(self) -> Usage:
        """What its answers so far cost."""
        with self._lock:
            return Usage(self._input_tokens, self._output_tokens)

    def reply(self, path: str, raw: bytes, header: Callable[[str], str]) -> Said:
        """Answer a request, after the time it takes."""
        said = self._model.reply(path, raw, header)
        usage = read_usage(said)
        with self._lock:
            self._input_tokens += usage.input_tokens
            self._output_tokens += usage.output_tokens
        threading.Event().wait(self._latency_s)  # a model that thinks
        return said


def read_usage(said: Said) -> Usage:
    """Return what an answer of the mock says that it cost."""
    raw = b"".join(said.pieces)
    lines = [ln[6:] for ln in raw.split(b"\n") if ln.startswith(b"data: {")] or [raw]
    found = [value["usage"] for value in map(json.loads, lines) if value.get("usage")]
    if not found:
        raise BenchFailed(f"The mock said nothing of what it cost: {raw[-200:]!r}")
    return Usage(found[-1]["prompt_tokens"], found[-1]["completion_tokens"])


def measure(stand: Stand) -> Table:
    """Kill both agents `KILLS` times and let them come to their end."""
    latency_ms = LATENCY_QUICK_MS if stand.is_quick else LATENCY_MS
    direct = _suffer(stand.folder / "direct", latency_ms / 1000, with_proxy=False)
    ours = _suffer(stand.folder / "crash", latency_ms / 1000, with_proxy=True)
    return compare(direct, ours, latency_ms)


def compare(direct: Outcome, ours: Outcome, latency_ms: int) -> Table:
    """Put both beside each other. Pure, but for the price table."""
    both = (direct, ours)
    again = [outcome.paid_again for outcome in both]
    tokens = [(usage.input_tokens + usage.output_tokens) / KILLS for usage in again]
    micros = [_price(usage) / KILLS for usage in again]
    back = [median(life.back_s for life in outcome.lives[1:]) for outcome in both]
    held = [len(outcome.held & outcome.guarded) for outcome in both]
    first = [outcome.lives[0].back_s for outcome in both]
    lines = (
        _line("back at that step after a kill (median)", back, "s", "{:.2f} s"),
        _line("  the first time it took", first, "s", "{:.2f} s"),
        _line("tokens paid again, each kill", tokens, "tokens", "{:,.0f}", "0", tokens[1] == 0),
        _line(f"money for them ({PRICED_AS[1]})", [m / 1e6 for m in micros], "usd", "${:.4f}"),
        _line(
            "kills in a row survived",
            [outcome.survived for outcome in both],
            "kills",
            f"{{}} of {KILLS}",
            f"{KILLS} of {KILLS}",
            ours.survived == KILLS,
        ),
        _line(
            "guarded calls held for a person",
            held,
            "calls",
            f"{{}} of {len(ours.guarded)}",
            "all",
            held[1] == len(ours.guarded) > 0,
        ),
        _line("  questions asked of that person", [o.questions for o in both], "count", "{}"),
    )
    return Table(
        "crash",
        f"{STEPS} steps, SIGKILL at step {KILL_AT}, {KILLS} times",
        ("no proxy", "AgentState"),
        lines,
        (
            f"The same agent and the same model, which takes {latency_ms} ms for each answer; a "
            "real one takes seconds, and the time without a proxy grows with it. Back includes the "
            "start of the agent's Python; the first time, the waits for decisions. Survived: no "
            "step that had been answered was asked again. Money: the run's own usage at the list "
            "price.",
        ),
    )


def _line(
    what: str,
    values: list[float] | list[int],
    unit: str,
    shown: str,
    goal: str = "",
    is_met: bool | None = None,
) -> Line:
    figures = {f"direct_{unit}": values[0], f"ours_{unit}": values[1]}
    return Line(what, tuple(map(shown.format, values)), figures, goal, is_met)


def _price(usage: Usage) -> int:
    cost = load_prices().cost_microusd(*PRICED_AS, usage)
    assert cost is not None, "the packaged price table has the model that the bench names"
    return cost


def _suffer(folder: Path, latency_s: float, *, with_proxy: bool) -> Outcome:
    """Let an agent die `KILLS` times and come to its end once."""
    folder.mkdir()
    thinker = Thinker(latency_s)
    with ExitStack() as stack:
        url = stack.enter_context(serving(thinker.reply))
        place = url.removeprefix("http://").split(":")
        desk = Desk()
        if with_proxy:
            (folder / "agentstate.toml").write_text(CONFIG, "utf-8")
            environ = environment(OPENAI_BASE_URL=f"{url}/v1", OPENAI_API_KEY="bench")
            flags = ("--db", str(folder / "crash.db"))
            server = stack.enter_context(proxy(folder, *flags, environ=environ))
            place = [server.host, str(server.port)]
            stack.enter_context(desk.staffed(server))
        order = (*place, SESSION, PRICED_AS[1], str(STEPS))
        command = module_command("agentstate.house.demo_agent", *order)
        lives = []
        for number in range(KILLS + 1):
            before = thinker.count
            life = _live(command, folder, desk, latency_s, is_last=number == KILLS)
            life.asked = thinker.count - before
            lives.append(life)
    return Outcome(tuple(lives), thinker.paid, frozenset(desk.held), desk.questions)


def _live(command: list[str], folder: Path, desk: Desk, latency_s: float, *, is_last: bool) -> Life:
    """Run an agent; kill it while it waits for step `KILL_AT`, unless this is its last life."""
    life = Life()
    began_s = monotonic_s()
    with child(command, folder, environ=environment()) as process:
        assert process.stdout is not None
        watchdog = threading.Timer(WAIT_S, process.kill)  # this ends a read that waits for it
        watchdog.start()
        try:
            for text in process.stdout:
                told = json.loads(text)
                if "step" in told:
                    life.answers.append(told)
                    life.calls += [(told["step"], name) for name in told["tools"]]
                    desk.arrived.add(told["step"])
                elif "asked" not in told:
                    raise BenchFailed(f"A call of the agent failed: {text}")
                elif told["asked"] == KILL_AT:
                    life.back_s = monotonic_s() - began_s
                    if not is_last:
                        threading.Event().wait(latency_s / 2)  # it is being answered
                        process.kill()
                        return life
            code = process.wait(WAIT_S)
        finally:
            watchdog.cancel()
    life.all_s = monotonic_s() - began_s
    if code != 0 or len(life.answers) != STEPS:
        raise BenchFailed(f"The agent ended with {code} after {len(life.answers)} steps.")
    return life


class Desk:
    """Who decides: approves every question as soon as it is there."""

    def __init__(self) -> None:
        self.arrived: set[int] = set()  # steps whose answer the agent has told of
        self.held: set[int] = set()
        self.questions = 0
        self._is_closed = threading.Event()
        self._fault = ""

    @contextmanager
    def staffed(self, server: Proxy) -> Iterator[None]:
        """Decide, in a thread, until the `with` ends. Raises `BenchFailed` if it could not."""
        thread = threading.Thread(target=self._work, args=(server,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._is_closed.set()
            thread.join()
        if self._fault:
            raise BenchFailed(f"The questions could not be decided: {self._fault}")

    def _work(self, server: Proxy) -> None:
        try:
            while not self._is_closed.wait(POLL_S):
                for row in _ask(server, "GET", "/api/approvals/pending"):
                    self.questions += 1
                    if row["step_number"] not in self.arrived:
                        self.held.add(row["step_number"])
                    action = {"action": "APPROVED", "by": "the bench"}
                    _ask(server, "POST", f"/api/approvals/{row['id']}/action", action)
        except (OSError, http.client.HTTPException, BenchFailed) as error:
            self._fault = str(error) or type(error).__name__


def _ask(server: Proxy, method: str, path: str, value: object = None) -> Any:
    connection = http.client.HTTPConnection(server.host, server.port, timeout=WAIT_S)
    body = None if value is None else json.dumps(value)
    try:
        connection.request(method, path, body, {"content-type": "application/json"})
        response = connection.getresponse()
        raw = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise BenchFailed(f"{method} {path} got {response.status}: {raw[:300]!r}")
    return json.loads(raw)
