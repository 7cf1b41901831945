"""Scenes of the full demo that steer a run: back, aside, otherwise, and not now."""

from __future__ import annotations

from contextlib import ExitStack

from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage, expect, path_of

TASKS = ["First?", "Second?", "Third?", "Fourth?"]
TURN = 2  # the step from which on things are otherwise
OTHER_MODEL = "gpt-4o-mini"


def rollback(stage: Stage) -> str:
    """Take the last steps back, have them asked anew, and then have them as they were."""
    first = stage.live("rollback", TASKS)
    before = stage.model.count
    found = stage.post(f"{path_of('rollback')}/reset", {"index": TURN, "by": "the demo"})
    expect("Steps taken back", found["steps_taken_back"], len(TASKS) - TURN)
    second = stage.live("rollback", TASKS)
    expect("Steps that replay", second.replayed, TURN)
    expect("The answers that stayed", second.ids[:TURN], first.ids[:TURN])
    expect("Calls that reached the model", stage.model.count - before, len(TASKS) - TURN)
    stage.post(f"{path_of('rollback')}/restore", {"by": "the demo"})
    third = stage.live("rollback", TASKS)
    expect("The answers after the restore", third.ids, first.ids)
    expect("Calls that reached the model", stage.model.count - before, len(TASKS) - TURN)
    return f"{TURN} steps replay, 2 asked anew; restored: the first {len(TASKS)} answers, for $0"


def fork(stage: Stage) -> str:
    """Try another way from the middle of a run; the run itself stays."""
    first = stage.live("fork", TASKS)
    before = stage.model.count
    stage.post(f"{path_of('fork')}/fork", {"index": TURN, "session": "fork-b", "by": "the demo"})
    other = stage.live("fork-b", [*TASKS[:TURN], "Something else?", "And then?"])
    expect("Steps the fork shares", other.ids[:TURN], first.ids[:TURN])
    expect("Steps the fork paid", stage.model.count - before, 2)
    paid = stage.get(path_of("fork-b"))["session"]["cost_microusd"]
    expect("What the fork paid, in millionths", paid, round(other.cost_usd * 1_000_000))
    again = stage.live("fork", TASKS)
    expect("The answers of the first way", again.ids, first.ids)
    return f"{TURN} steps shared, 2 paid (${other.cost_usd:.6f}); the first way is untouched"


def edit(stage: Stage) -> str:
    """Have a step answer something else from now on."""
    text = "Ask Ada first."
    stage.live("edit", TASKS)
    before = stage.model.count
    stage.post(f"{path_of('edit')}/steps/1/edit", {"text": text, "by": "the demo"})
    second = stage.live("edit", TASKS)
    expect("What step 1 answers", second.answers[1]["answer"], text)
    expect("Steps that replay", second.replayed, TURN)
    asked = stage.model.asked[before:]
    expect("Calls that reached the model", len(asked), len(TASKS) - TURN)
    expect("The model saw the new answer", [text in row.body for row in asked], [True, True])
    return "step 1 replays the new text, for $0; the 2 steps after it were asked with it"


def rerun(stage: Stage) -> str:
    """Ask another model for one step."""
    first = stage.live("rerun", TASKS)
    before = stage.model.count
    wanted = {"model": OTHER_MODEL, "by": "the demo"}
    found = stage.post(f"{path_of('rerun')}/steps/1/rerun", wanted)
    asked = [row.model for row in stage.model.asked[before:]]
    expect("Which model was asked", asked, [OTHER_MODEL])
    expect("What it cost is on record", found["cost_microusd"] > 0, True)
    second = stage.live("rerun", TASKS)
    expect("Steps that replay", second.replayed, TURN)
    expect("Step 0 stayed", second.ids[0] == first.ids[0], True)
    expect("Step 1 is another answer", second.ids[1] != first.ids[1], True)
    return f"{OTHER_MODEL} answered step 1; the agent got that answer when it ran again"


def pause(stage: Stage) -> str:
    """Pause a run while a call is in flight."""
    before = stage.model.count
    with ExitStack() as thinking:
        thinking.enter_context(stage.model.held(after=1))
        with stage.living("pause", TASKS[:3], streams=True) as life:
            stage.model.wait_for(before + 2)
            stage.post(f"{path_of('pause')}/pause", {"reason": "a look", "by": "the demo"})
            thinking.close()
            life.wait_for("held")
            expect("Answers while it is paused", len(life.answers), 2)
            expect("Calls that reached the model", stage.model.count - before, 2)
            stage.post(f"{path_of('pause')}/resume", {})
            life.end()
    expect("Answers in the end", len(life.answers), 3)
    expect("Calls that reached the model", stage.model.count - before, 3)
    return "the call in flight finished, the next was held with heartbeats, then went on"


SCENES = (
    Scene(
        "rollback and restore",
        "A run of four steps goes back to before step 2 and is run again; then all is restored.",
        rollback,
    ),
    Scene("fork", "Another way from step 2 on, in a session of its own.", fork),
    Scene("edit an answer", "Step 1 gets another text; the agent is run again.", edit),
    Scene("rerun a step", "Another model is asked for step 1; the agent is run again.", rerun),
    Scene("pause and resume", "A pause while a call is in flight.", pause),
)
