"""The demos: real processes on this machine, no key, no network, nothing left behind.

`crash`: an agent is killed with SIGKILL in the middle of its run and started again. It shows what
the promise means (finished steps replay, the step that was in flight is not paid twice), and checks
it: what the agent saw, step by step, and what the proxy's API has on record. The model is the
built-in mock, so nothing was paid; what it would have cost is computed and named as such.
"""

from __future__ import annotations

import http.client
import json
import sys
import tempfile
import threading
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from agentstate.ground.chat import Usage
from agentstate.ground.errors import AgentStateError
from agentstate.ground.prices import Prices, load_prices
from agentstate.house.launch import Proxy, child, module_command, proxy, stoppable

STEPS_MAX = 500  # a run of a minute; the request bodies grow with every step
LATENCY_MS = 40  # of the mock model: long enough to see, short enough to wait for
MODEL = f"mock/slow-{LATENCY_MS}ms"
PRICED_AS = ("openai", "gpt-4o")  # whose list price is shown
API_TIMEOUT_S = 30.0
API_PAGE = 500  # steps asked for in one page
CODE_OK, CODE_FAILED, CODE_USAGE, CODE_STOPPED = 0, 1, 2, 130


class DemoFailed(AgentStateError):
    """The demo could not be shown to its end."""

    code = "demo_failed"


@dataclass(frozen=True, slots=True)
class Step:
    """One step as the agent saw it."""

    number: int
    replay: str | None  # how it was answered from the record; None = the model was asked
    ms: float
    usage: Usage
    cost_microusd: int  # of these tokens at the list price of `PRICED_AS`
    what: str  # text, stream, or the name of the tool that was called


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the record says after both runs."""

    asked_twice: tuple[int, ...]  # step numbers that finished in the first run and were asked again
    faults: tuple[str, ...]  # whatever else is not as promised, one sentence each


def crash(steps: int = 50, kill_at: int | None = None, keep: Path | None = None) -> int:
    """Kill an agent at step `kill_at` (default: the middle), start it again, show and check.

    `keep` is a file to leave the record in; None = it is deleted. Returns the exit code: 0 if no
    finished step was asked twice, 1 if one was or the demo failed, 2 if it was called wrongly.
    """
    kill_at = steps // 2 if kill_at is None else kill_at
    if not 2 <= steps <= STEPS_MAX or not 1 <= kill_at < steps:
        print(
            f"Expected 2 to {STEPS_MAX} steps and a kill at step 1 to one below them; found "
            f"{steps} steps and a kill at {kill_at}."
        )
        return CODE_USAGE
    if keep is not None and keep.exists():
        print(f"{keep} exists already. Name a new file for the record of the demo.")
        return CODE_USAGE
    try:
        with stoppable(), tempfile.TemporaryDirectory(prefix="agentstate-") as name:
            folder = Path(name)
            db = folder / "demo.db" if keep is None else keep.resolve()
            return _crash(folder, db, steps, kill_at, is_kept=keep is not None)
    except AgentStateError as error:
        print(f"\nThe demo failed. {error.message}")
        return CODE_FAILED
    except KeyboardInterrupt:
        print("\nStopped; everything the demo started has ended.")
        return CODE_STOPPED


def _crash(folder: Path, db: Path, steps: int, kill_at: int, *, is_kept: bool) -> int:
    session = "demo-crash"
    prices = load_prices()
    with proxy(folder, "--db", str(db), "--mock") as server:
        print(
            f"A proxy listens on {server.url}; its record is {db}.\n"
            f"The model is the built-in mock ({MODEL}): offline and free. Costs are what its "
            f"tokens\nwould cost at the list price of {PRICED_AS[1]}: {_render_price(prices)}.\n"
        )
        print(_HEAD)
        command = module_command(
            "agentstate.house.demo_agent", server.host, str(server.port), session, MODEL, str(steps)
        )

        def agent(run: int, kill_at: int | None) -> list[Step]:
            done: list[Step] = []
            with closing(_run_agent(command, folder, prices, kill_at)) as taken:
                for step in taken:
                    print(_render_step(step, run))
                    done.append(step)
            return done

        first = agent(1, kill_at)
        print(f"      --- SIGKILL while step {kill_at} was in flight; the agent starts again ---")
        second = agent(2, None)
        verdict = judge(first, second, _read_session(server, session), steps)
    _print_summary(first, second, verdict, kill_at)
    if is_kept:
        print(
            f"\nThe record is kept. To look at it: {_program()} serve --mock --db {db}\n"
            f"then open http://127.0.0.1:8080/dashboard/#/sessions/{quote(session, safe='')}"
        )
    return CODE_FAILED if verdict.asked_twice or verdict.faults else CODE_OK


def judge(first: list[Step], second: list[Step], record: dict[str, Any], steps: int) -> Verdict:
    """Compare what the agent saw in both runs with what is on record. Pure.

    `record` is the API's answer for the session. A step is asked twice if it had been answered in
    the first run and its answer in the second did not come from the record.
    """
    finished = [step.number for step in first]
    replayed = {step.number for step in second if step.replay is not None}
    asked_twice = tuple(number for number in finished if number not in replayed)
    faults: list[str] = []
    if [step.number for step in second] != list(range(steps)):
        faults.append(f"The second run took {len(second)} steps of {steps}.")
    rows: list[dict[str, Any]] = record["steps"]
    if sorted(row["step_number"] for row in rows) != list(range(steps)):
        faults.append(f"{len(rows)} steps are on record; each of {steps} should be there once.")
    incomplete = [row["step_number"] for row in rows if row["state"] != "complete"]
    if incomplete:
        faults.append(f"Steps {incomplete} are on record without a complete answer.")
    replays = {row["step_number"] for row in rows if row["replays"]}
    unread = [number for number in finished if number not in replays]
    if unread:
        faults.append(f"The record has no replay of steps {unread}.")
    seen = {step.number: step.usage for step in first}
    changed = [s.number for s in second if s.number in seen and s.usage != seen[s.number]]
    if changed:
        faults.append(f"The answers to steps {changed} were not the same in both runs.")
    return Verdict(asked_twice, tuple(faults))


def _run_agent(
    command: list[str], folder: Path, prices: Prices, kill_at: int | None
) -> Generator[Step, None, None]:
    """Run the agent and yield its steps as they end; kill it when it has asked for `kill_at`."""
    with child(command, folder) as process:
        assert process.stdout is not None
        line = "nothing"
        for line in process.stdout:
            told = _read_line(line)
            if "step" in told:
                yield _read_step(told, prices)
            elif told["asked"] == kill_at:
                # The request is on its way; half the model's time later it is being answered.
                threading.Event().wait(LATENCY_MS / 2000)
                process.kill()
                return
        if process.wait() != 0:
            raise DemoFailed(f"The agent ended with code {process.returncode}. It said: {line}")


def _read_line(line: str) -> dict[str, Any]:
    try:
        told = json.loads(line)
    except ValueError as error:
        raise DemoFailed(f"The agent printed what is no line of its log: {line}") from error
    if not isinstance(told, dict) or not told.keys() & {"asked", "step"}:
        raise DemoFailed(f"A call of the agent failed: {line}")
    return told


def _read_step(told: dict[str, Any], prices: Prices) -> Step:
    usage = Usage(told["input_tokens"], told["output_tokens"])
    return Step(
        number=told["step"],
        replay=told["replay"],
        ms=told["ms"],
        usage=usage,
        cost_microusd=_price(prices, usage),
        what=" ".join((*(["stream"] if told["streamed"] else ()), *told["tools"])) or "text",
    )


def _read_session(server: Proxy, session: str) -> dict[str, Any]:
    found: dict[str, Any] = read_api(
        server, f"/api/sessions/{quote(session, safe='')}?limit={API_PAGE}"
    )
    return found


def read_api(server: Proxy, path: str) -> Any:
    """Return what the proxy's API answers, or raise `DemoFailed`."""
    connection = http.client.HTTPConnection(server.host, server.port, timeout=API_TIMEOUT_S)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        raw = response.read()
    except (OSError, http.client.HTTPException) as error:
        raise DemoFailed(f"The proxy's API did not answer: {error}.") from error
    finally:
        connection.close()
    if response.status != 200:
        raise DemoFailed(f"The proxy's API answered {response.status} for {path}.")
    return json.loads(raw)


_HEAD = (
    f" {'step':>4}  {'run':>3}  {'answer from':13}  {'ms':>6}  {'tokens in / out':>15}  "
    f"{PRICED_AS[1] + ' list price':>17}  what"
)


def _render_step(step: Step, run: int) -> str:
    source = f"replay {step.replay}" if step.replay else "model"
    tokens = f"{step.usage.input_tokens} / {step.usage.output_tokens:3}"
    cost = f"{'saved' if step.replay else 'cost'} {_usd(step.cost_microusd)}"
    return (
        f" {step.number:4}  {run:3}  {source:13}  {step.ms:6.1f}  {tokens:>15}  "
        f"{cost:>17}  {step.what}"
    )


def _print_summary(first: list[Step], second: list[Step], verdict: Verdict, kill_at: int) -> None:
    saved = [step for step in second if step.replay is not None]
    asked = [step for step in second if step.replay is None]
    tokens = sum(step.usage.input_tokens + step.usage.output_tokens for step in saved)
    money = sum(step.cost_microusd for step in saved)
    paid_ms = {step.number: step.ms for step in first}
    # The step in flight was never seen to end; its time is not counted as saved.
    time_ms = sum(
        max(paid_ms[step.number] - step.ms, 0.0) for step in saved if step.number in paid_ms
    )
    in_flight = next((step for step in second if step.number == kill_at), None)
    print(
        f"\nThe agent finished {len(first)} steps, was killed, and began again at step 0.\n"
        f"From the record: {len(saved)} steps in {sum(step.ms for step in saved):.0f} ms "
        f"(median {_median([step.ms for step in saved]):.1f} ms).   "
        f"From the model: {len(asked)} steps."
    )
    if in_flight is not None and in_flight.replay is not None:
        print(
            f"Step {kill_at} was in flight when the agent died: the proxy finished it, "
            "and it was not asked again."
        )
    print(
        f"Saved: {len(saved)} calls, {tokens:,} tokens, {time_ms / 1000:.2f} s, "
        f"{_usd(money)} at {PRICED_AS[1]}'s list price\n"
        "       (the mock is free: no money was spent or saved in this demo)."
    )
    if verdict.asked_twice:
        print(f"FAILED: finished steps that were asked again: {list(verdict.asked_twice)}.")
    else:
        print("Finished steps that were asked twice: 0.")
    for fault in verdict.faults:
        print(f"FAILED: {fault}")


def _price(prices: Prices, usage: Usage) -> int:
    cost = prices.cost_microusd(*PRICED_AS, usage)
    assert cost is not None, "the packaged price table has the model that the demo names"
    return cost


def _render_price(prices: Prices) -> str:
    million = 1_000_000
    each = [_price(prices, usage) / million for usage in (Usage(million, 0), Usage(0, million))]
    return f"${each[0]:.2f} in, ${each[1]:.2f} out per million tokens"


def _program() -> str:
    """Return what a person types to run this program as it is running now."""
    name = sys.argv[0]
    return f"python3 {name}" if name.endswith(".pyz") else "agentstate"


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def _usd(microusd: int) -> str:
    return f"${microusd / 1_000_000:.6f}"
