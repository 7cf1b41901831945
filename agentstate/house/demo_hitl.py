"""`agentstate demo hitl`: an agent tries to send an e-mail, and a person decides.

A real proxy with the built-in mock model, and an agent in a process of its own that has a tool
`send_email`. The call is held; the person decides in this terminal or in the dashboard; the demo
then shows what the agent got, and checks it against the record: nothing of the call came before the
decision, what was sent is what was approved, and the model was asked once.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError
from agentstate.ground.logs import printable
from agentstate.house.demo import CODE_FAILED, CODE_OK, CODE_STOPPED, DemoFailed, read_api
from agentstate.house.launch import Proxy, child, module_command, proxy, stoppable

SESSION = "demo-hitl"
MODEL = "mock/demo"
API_TIMEOUT_S = 30.0
HOLD_TIMEOUT_S = 30.0  # until the call is held: a mock answers at once
END_TIMEOUT_S = 30.0  # of the agent, once all is decided
POLL_S = 0.1

# Has a person decide at a server: (its URL, whether there is nothing left to decide).
Decide = Callable[[str, Callable[[], bool]], object]


@dataclass(slots=True)
class Told:
    """What the agent told."""

    lines: list[dict[str, Any]] = field(default_factory=list)

    def first(self, key: str) -> dict[str, Any] | None:
        """Return the first line with this key, None if there is none."""
        return next((line for line in self.lines if key in line), None)


def hitl(decide: Decide) -> int:
    """Show a call that is held until a person decides; return the exit code.

    0 if all was as promised, also if nobody decided; 1 if something was not.
    """
    try:
        with stoppable(), tempfile.TemporaryDirectory(prefix="agentstate-") as name:
            return _hitl(Path(name), decide)
    except AgentStateError as error:
        print(f"\nThe demo failed. {error.message}")
        return CODE_FAILED
    except KeyboardInterrupt:
        print("\nStopped; everything the demo started has ended, and nothing was sent.")
        return CODE_STOPPED


def _hitl(folder: Path, decide: Decide) -> int:
    with proxy(folder, "--db", str(folder / "demo.db"), "--mock") as server:
        print(
            f"A proxy listens on {server.url}; the model is the built-in mock, offline and free.\n"
            "An agent has the tool send_email, and the model is about to call it. gate.tools has\n"
            "that name by default, so the call is held. Nothing is really sent in this demo.\n"
            f"Decide here, or in the dashboard: {server.url}/dashboard/#/approvals\n"
        )
        agent = module_command(
            "agentstate.house.demo_hitl_agent", server.host, str(server.port), SESSION, MODEL
        )
        with child(agent, folder) as process:
            told = Told()
            reader = threading.Thread(target=_listen, args=(process, told), daemon=True)
            reader.start()
            _wait_for_hold(server, process, told)
            decide(server.url, lambda: process.poll() is not None)
            [approval] = read_api(server, "/api/approvals")
            if approval["decided_ms"] is None:
                print("\nNobody decided, so the agent never got its call. Nothing was sent.")
                return CODE_FAILED if told.lines else CODE_OK
            _wait_for_end(process)
            reader.join(END_TIMEOUT_S)
        step = read_api(server, f"/api/sessions/{SESSION}?detail=1")["steps"][0]
    faults = judge(told, approval, step)
    _print_story(told, approval)
    for fault in faults:
        print(f"FAILED: {fault}")
    return CODE_FAILED if faults else CODE_OK


def judge(told: Told, approval: dict[str, Any], step: dict[str, Any]) -> list[str]:
    """Compare what the agent did with what was decided. Pure; one sentence for each fault."""
    faults: list[str] = []
    sent = told.first("sent")
    if approval["status"] == "APPROVED":
        edited = approval["edited_arguments"]
        wanted = json.loads(approval["arguments"] if edited is None else edited)
        if sent is None:
            faults.append("The call was approved, and the agent never got it.")
        elif sent["sent"] != wanted:
            faults.append("The agent sent something else than was approved.")
        elif sent["at_ms"] < approval["decided_ms"]:
            faults.append("The agent had the call before it was approved.")
    elif sent is not None:
        faults.append("The call was refused, and the agent got it.")
    elif approval["then"] == "stop" and told.first("refused") is None:
        faults.append("The agent was not told that its call was refused.")
    elif approval["then"] == "continue" and told.first("said") is None:
        faults.append("The model was not asked what to do instead.")
    if odd := told.first("odd"):
        faults.append(f"The agent failed: {printable(odd['odd'])}")
    if len(step["attempts"]) > (2 if approval["then"] == "continue" else 1):
        faults.append("The model was asked again for what was on record.")
    return faults


def _print_story(told: Told, approval: dict[str, Any]) -> None:
    held_s = (approval["decided_ms"] - approval["created_ms"]) / 1000
    print(f"\nThe call was held for {held_s:.1f} s. What the agent did then:")
    for line in told.lines:
        match line:
            case {"sent": sent}:
                print(f"  it sent an e-mail: {printable(json.dumps(sent))}")
            case {"refused": code, "message": message}:
                print(f"  it was refused: {code}. {printable(message)}")
            case {"said": said}:
                print(f"  the model's last word: {printable(said)}")
    print("Both the call and the decision are on record; a replay does not ask again.")


def _listen(process: subprocess.Popen[str], told: Told) -> None:
    assert process.stdout is not None
    try:
        for line in process.stdout:
            told.lines.append(_parsed(line))
    except ValueError:
        pass  # the pipe was closed under us: the demo has ended


def _parsed(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        found = None
    return found if isinstance(found, dict) else {"odd": line}


def _wait_for_hold(server: Proxy, process: subprocess.Popen[str], told: Told) -> None:
    until_s = monotonic_s() + HOLD_TIMEOUT_S
    while not read_api(server, "/api/approvals"):
        if process.poll() is not None or monotonic_s() > until_s:
            raise DemoFailed(f"The agent's call was not held. The agent told: {told.lines}")
        threading.Event().wait(POLL_S)


def _wait_for_end(process: subprocess.Popen[str]) -> None:
    try:
        process.wait(END_TIMEOUT_S)
    except subprocess.TimeoutExpired as error:
        raise DemoFailed("The agent did not go on after the decision.") from error
