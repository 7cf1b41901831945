"""Scenes of the full demo in which a person decides. The demo does, through the API, at once."""

from __future__ import annotations

import json

from agentstate.house.demo_full_agent import MAIL
from agentstate.house.demo_scene import Scene
from agentstate.house.demo_stage import Stage, expect, path_of

MAIL_TASK = f"Use send_email {json.dumps(MAIL)}"
EDITED = {**MAIL, "to": "bob@example.org"}
BUDGET_TASKS = ["One?", "Two?", "Three?"]


def approve(stage: Stage) -> str:
    """Hold a call, and approve it with other arguments."""
    before = stage.model.count
    with stage.living("gate-approve", [MAIL_TASK]) as life:
        question = stage.wait_for_question("gate-approve")
        expect("What is asked about", json.loads(question["arguments"]), MAIL)
        expect("What the agent has before the decision", life.told("used"), [])
        decision = {"action": "APPROVED", "arguments": EDITED, "by": "the demo"}
        stage.post(f"/api/approvals/{question['id']}/action", decision)
        life.end()
    [sent] = life.told("used")
    expect("What was sent", sent["arguments"], EDITED)
    expect("Calls that reached the model", stage.model.count - before, 2)
    return f"held, then sent to {EDITED['to']} instead of {MAIL['to']}"


def reject(stage: Stage) -> str:
    """Hold a call, and reject it; the model is told, and goes on."""
    before = stage.model.count
    reason = "not today"
    with stage.living("gate-reject", [MAIL_TASK]) as life:
        question = stage.wait_for_question("gate-reject")
        decision = {"action": "REJECTED", "then": "continue", "reason": reason, "by": "the demo"}
        stage.post(f"/api/approvals/{question['id']}/action", decision)
        life.end()
    expect("What was sent", life.told("used"), [])
    expect("Answers the agent got", len(life.answers), 1)
    expect("Calls that reached the model", stage.model.count - before, 2)
    expect("The model was told why", reason in stage.model.asked[-1].body, True)
    return "nothing sent; the model was told why, and its next answer reached the agent"


def told(stage: Stage) -> str:
    """Read what a webhook got of the two scenes before; it stands in the demo itself."""
    for session in ("gate-approve", "gate-reject"):
        event = stage.receiver.wait_for("approval.required", session)
        expect("The tool it names", event["data"]["facts"]["tool"], "send_email")
    expect("Events with a wrong signature", stage.receiver.forged, 0)
    return "approval.required of both questions came, signed and named"


def durable(stage: Stage) -> str:
    """Kill an agent after its tool has acted and before it has said so."""
    effects = stage.folder / "card"
    order = {"effects": str(effects)}
    tasks = ["Use charge_card with cents=500."]
    with stage.living("durable", tasks, **order, dies="charge_card") as first:
        first.end_killed()
    expect("Times the card was charged", effects.read_text("utf-8").splitlines(), ["charged 500"])
    with stage.living("durable", tasks, **order) as second:
        [call] = stage.wait_for(
            "call that is unknown", lambda: stage.get("/api/tool-calls?state=unknown")
        )
        word = {"outcome": "happened", "result": "receipt 1", "by": "the demo"}
        stage.post(f"{path_of('durable')}/tool-calls/{call['call']}/settle", word)
        second.end()
    [used] = second.told("used")
    expect("What the tool gave", used["result"], "receipt 1")
    stage.live("durable", tasks, **order)
    expect("Times the card was charged", effects.read_text("utf-8").splitlines(), ["charged 500"])
    return "three lives, one charge; the unknown call was settled as happened"


def budget(stage: Stage) -> str:
    """Let an agent come to its cap, and let it go on."""
    before = stage.model.count
    headers = {"x-agent-budget": "steps=2"}
    with stage.living("budget", BUDGET_TASKS, headers=headers) as life:
        question = stage.wait_for_question("budget")
        expect("What is asked about", question["tool"], "budget.steps")
        expect("Calls paid at the cap", stage.model.count - before, 2)
        decision = {"action": "APPROVED", "arguments": {"more": 1}, "by": "the demo"}
        stage.post(f"/api/approvals/{question['id']}/action", decision)
        life.end()
    expect("Answers the agent got", len(life.answers), 3)
    expect("Calls paid in the end", stage.model.count - before, 3)
    stage.receiver.wait_for("budget.reached", "budget")
    again = stage.live("budget", BUDGET_TASKS, headers=headers)
    expect("Steps that replay beyond the cap", again.replayed, 3)
    return "2 paid, the third held; one more allowed: 3 paid; budget.reached was told"


SCENES = (
    Scene(
        "gate: approve with edits",
        "The model wants to send an e-mail. The call is held; the demo decides, in place of a\n"
        "person, through the API: yes, but to somebody else.",
        approve,
    ),
    Scene(
        "gate: reject and go on",
        "The same e-mail. The demo rejects it, and has the model be told.",
        reject,
    ),
    Scene("webhook", "A receiver in the demo should have been told of both.", told),
    Scene(
        "durable tool",
        "A tool charges a card, and the agent is killed before it can say so. Its next life\n"
        "does not charge again: it waits until somebody (here the demo) has looked.",
        durable,
    ),
    Scene(
        "budget",
        "The agent may pay for two steps. The third waits, until the demo allows one more.",
        budget,
    ),
)
