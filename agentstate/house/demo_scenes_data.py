"""Scenes of the full demo about what is on record: recovery, cassettes, training data, sums."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

from agentstate.house.demo import DemoFailed
from agentstate.house.demo_peers import WAIT_S
from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage, expect, path_of
from agentstate.house.launch import child, module_command

TASKS = ["What is new?", "Use read_clock and say the time.", "What is left?"]


def recovery(stage: Stage) -> str:
    """Ask before the next run what it will cost, and see whether that was so."""
    with stage.living("recovery", TASKS, clock="noon", dies="read_clock") as first:
        first.end_killed()
    found = stage.get(f"{path_of('recovery')}/recovery")
    promised = found["replay"]["prefix"]
    unanswered = [row["name"] for row in found["unanswered_calls"]]
    expect("Tool calls without a result", unanswered, ["read_clock"])
    expect("Steps that would replay", promised, len(first.answers))
    before = stage.model.count
    second = stage.live("recovery", TASKS, clock="noon")
    expect("Steps that did replay", second.replayed, promised)
    expect("Calls that reached the model", stage.model.count - before, 2)
    return f"promised {promised} steps for $0 and one open tool call; so it was"


def cassette(stage: Stage) -> str:
    """Record a run to a file, and run it again with nothing but the file."""
    folder = stage.folder / "tape"
    folder.mkdir()
    agent = stage.agent("demo_taped_agent", "tape", TASKS, clock="noon")
    before = stage.model.count
    recorded = _run(stage, folder, "record", "run.jsonl", "--", *agent)
    calls = stage.model.count - before
    expect("Calls that were recorded", calls, len(TASKS) + 1)
    replayed = _run(stage, folder, "replay", "--strict", "run.jsonl", "--", *agent)
    expect("Calls that reached the model in the replay", stage.model.count - before, calls)
    expect("The answers", replayed, recorded)
    size = (folder / "run.jsonl").stat().st_size
    return f"{calls} calls in a file of {size:,} bytes; replayed offline, 0 model calls"


def training(stage: Stage) -> str:
    """Make training data of what these scenes have left, and lint it."""
    lines = stage.fetch("GET", "/api/export/dataset?format=openai").splitlines()
    report = stage.get("/api/export/dataset?format=openai&report=1")
    for line in lines:
        roles = [message["role"] for message in json.loads(line)["messages"]]
        expect("The last word", roles[-1], "assistant")
    counts = report["counts"]
    expect("Lines by the report", counts["lines"], len(lines))
    expect("Sessions that a person touched", counts["touched"] > 0, True)
    lint = f"{counts['mended']} mended, {counts['left_out']} left out"
    return f"{len(lines)} conversations of {counts['sessions']} sessions; lint: {lint}"


def saved(stage: Stage) -> str:
    """Compare the sums of the overview with what the agents saw."""

    totals = stage.get("/api/overview?range=1h")["totals"]
    expect("Replays by the overview", totals["replays"], stage.replayed)
    dollars = totals["saved_microusd"] / 1_000_000
    return f"{totals['replays']} replays, as the agents counted; ${dollars:.6f} saved"


SCENES = (
    Scene(
        "recovery",
        "An agent dies in a tool. Before it is run again: what will replay, what is open?",
        recovery,
    ),
    Scene(
        "cassette",
        "`agentstate record` runs an agent and writes a file; `agentstate replay --strict`\n"
        "runs it again with the file alone.",
        cassette,
    ),
    Scene(
        "training data", "All of the above as lines for fine-tuning, with a lint report.", training
    ),
    Scene("overview", "What was saved in all of this, by the proxy's own sums.", saved),
)


def _run(stage: Stage, folder: Path, verb: str, *arguments: str) -> list[str]:
    """Run a verb beside the demo; return the ids of the answers its agent told."""
    command = module_command("agentstate", verb, *arguments)
    with child(command, folder, environ=stage.environ) as process:
        try:
            printed, _ = process.communicate(timeout=WAIT_S)
        except subprocess.TimeoutExpired as error:
            raise DemoFailed(f"`agentstate {verb}` did not end within {WAIT_S:g} s.") from error
    if process.returncode != 0:
        raise DemoFailed(f"`agentstate {verb}` ended with {process.returncode}: {printed[-500:]}")
    told = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [line["id"] for line in told if "id" in line]
