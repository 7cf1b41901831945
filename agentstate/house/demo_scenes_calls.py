"""Scenes of the full demo about calls: what survives which death, and what is found again."""

from __future__ import annotations

from contextlib import ExitStack

from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage, expect, path_of

TASKS = ["What do orders say?", "What do suppliers say?", "What do prices say?", "Sum it up."]
LANES = 4
RESCUE = "claude-haiku-4-5"


def crash(stage: Stage) -> str:
    """Kill an agent while its third call is in flight, and start it again."""
    before = stage.model.count
    with stage.model.held(after=2), stage.living("crash", TASKS) as first:
        stage.model.wait_for(before + 3)
        first.kill()
    second = stage.live("crash", TASKS)
    expect("Answers before the kill", len(first.answers), 2)
    expect("Steps of the second life", len(second.answers), len(TASKS))
    expect("Steps that were not paid again", second.replayed, 3)
    expect("The answers of the first life", second.ids[:2], first.ids)
    expect("Calls that reached the model", stage.model.count - before, len(TASKS))
    paid = [line["cost_usd"] for line in second.answers if line["replay"] is not None]
    expect("What the replayed steps cost", sum(paid), 0.0)
    return f"two lives, {len(TASKS)} steps, {len(TASKS)} model calls; 3 steps again for $0"


def proxy_killed(stage: Stage) -> str:
    """Kill the proxy while a call is in flight; the agent lives, and asks again."""
    before = stage.model.count
    with ExitStack() as thinking:
        thinking.enter_context(stage.model.held(after=2))
        with stage.living("proxy-killed", TASKS) as life:
            stage.model.wait_for(before + 3)
            stage.kill_proxy()
            thinking.close()
            stage.start_proxy()
            life.end()
    # Nobody knows whether the call in flight was answered, so that one is asked twice.
    expect("Calls that reached the model", stage.model.count - before, len(TASKS) + 1)
    again = stage.live("proxy-killed", TASKS)
    expect("Steps that replay", again.replayed, len(TASKS))
    expect("The answers", again.ids, life.ids)
    expect("Calls that reached the model", stage.model.count - before, len(TASKS) + 1)
    return f"no answer lost, the one in flight asked twice; {len(TASKS)} of {len(TASKS)} replay"


def parallel(stage: Stage) -> str:
    """Ask four things at the same time, as streams, twice."""
    before = stage.model.count
    lanes = [[f"What does region {number} say?"] for number in range(LANES)]
    with ExitStack() as thinking:
        thinking.enter_context(stage.model.held(after=0))
        with stage.living("parallel", *lanes, streams=True) as first:
            stage.model.wait_for(before + LANES)  # all of them are in flight now
            thinking.close()
            first.end()
    second = stage.live("parallel", *lanes, streams=True)
    expect("Streams that replay", second.replayed, LANES)
    expect("Calls that reached the model", stage.model.count - before, LANES)
    found = sorted(line["digest"] for line in second.answers)
    expect("The bytes", found, sorted(line["digest"] for line in first.answers))
    return f"{LANES} streams at once, {LANES} replayed byte for byte"


def pinned(stage: Stage) -> str:
    """Run an agent again whose tool answers differently now."""
    tasks = ["Use read_clock, then say how late it is.", "And tomorrow?"]
    first = stage.live("pinned", tasks, clock="noon")
    before = stage.model.count
    second = stage.live("pinned", tasks, clock="midnight")
    told = [life.told("used")[0]["result"] for life in (first, second)]
    expect("What the tool said", told, ["It is noon.", "It is midnight."])
    ways = [line["replay"] for line in second.answers]
    expect("How the answers were found", ways, ["exact", "pinned", "pinned"])
    expect("The answers", second.ids, first.ids)
    expect("Calls that reached the model", stage.model.count - before, 0)
    return "the tool said something else; 3 of 3 steps replay, the model was not asked"


def fallback(stage: Stage) -> str:
    """Have one vendor fail: the next one answers, in its own form."""
    before = stage.model.count
    headers = {"x-agent-fallback-model": RESCUE}
    stage.model.fail("gpt-4o")
    try:
        first = stage.live("fallback", TASKS[:1], headers=headers)
    finally:
        stage.model.fail()
    asked = [(row.path, row.model) for row in stage.model.asked[before:]]
    failed = ("/v1/chat/completions", "gpt-4o")
    expect("What reached the models", asked, [failed, failed, ("/v1/messages", RESCUE)])
    expect("Who answered", [line["by"] for line in first.answers], ["anthropic"])
    [step] = stage.get(f"{path_of('fallback')}?detail=1")["steps"]
    tries = [row["ok"] for row in step["attempts"]]
    expect("The tries on record", tries, [False, False, True])
    second = stage.live("fallback", TASKS[:1], headers=headers)
    expect("Steps that replay", second.replayed, 1)
    return f"503, 503, then {RESCUE}: chat completions asked, Messages answered"


SCENES = (
    Scene(
        "crash and resume",
        "kill -9 of an agent while its third call is in flight; then it starts again.\n"
        "The proxy finishes the call, and the second life finds it.",
        crash,
    ),
    Scene(
        "kill -9 of the proxy",
        "The proxy dies while the model thinks, and comes back. The agent only asks again.",
        proxy_killed,
    ),
    Scene(
        "parallel and streamed",
        "Four streams at the same time, and the same four in another life.",
        parallel,
    ),
    Scene(
        "pinned replay",
        "The agent starts over, and its tool says another time than before.",
        pinned,
    ),
    Scene(
        "fallback, translated",
        "One vendor answers 503. Another vendor's model takes over, in its own wire form;\n"
        "the agent sees an answer in the form it asked in.",
        fallback,
    ),
)
