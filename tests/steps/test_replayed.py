"""A recorded step as a response: how it was found, and what a person's time is."""

from __future__ import annotations

from dataclasses import replace

from agentstate.dialects import dialect_by_name
from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.clock import monotonic_s
from agentstate.ground.records import Candidate, RecordedAnswer
from agentstate.steps.gate import Hold
from agentstate.steps.ladder import Hit
from agentstate.steps.replayed import Replayed
from tests.steps.scene import body_of, header
from tests.store.contract import identity_of
from tests.store.contract_gate import question_of

FOUND = Candidate(
    step_id=1, answer_id=1, index=0, step_number=4, state="complete", run_id=None, call_id=None,
    occurrence=0, model="m", streams=False, identity=identity_of("x"), is_mock=False, created_ms=1,
    answered_ms=2, replayed_ms=None, cost_microusd=5, provider="openai",
)  # fmt: skip
RECORDED = RecordedAnswer(
    200, ((b"content-type", b"application/json"), (b"x-ratelimit-limit", b"9")), "body",
    body_of("hi"),
)  # fmt: skip


def replayed(hold: Hold | None) -> Replayed:
    chat = dialect_by_name("openai_chat")
    assert chat is not None
    return Replayed(chat, "s", Hit(FOUND, "pinned"), hold, wants_stream=False, wants_usage=False)


def test_it_says_how_it_was_found_and_costs_nothing() -> None:
    response = replayed(None).response(monotonic_s(), 0.0, RECORDED)
    assert response.body == RECORDED.content
    names = ("replay", "step", "provider", "cost-usd", "attempts", "session")
    found = [header(response, f"x-agentstate-{name}") for name in names]
    assert found == ["pinned", "4", "openai", "0.000000", "0", "s"]
    assert header(response, "x-ratelimit-limit") is None


def test_the_time_that_a_person_takes_does_not_count() -> None:
    now = monotonic_s()
    response = replayed(Hold(1, 1, (), _decided())).response(now - 100, now - 99.5, RECORDED)
    assert header(response, "x-agentstate-overhead-ms") == "500.000"
    response = replayed(None).response(now - 100, now - 99.5, RECORDED)
    assert float(header(response, "x-agentstate-overhead-ms") or 0) >= 100_000


def _decided() -> tuple[Approval, ...]:
    approval = Approval("apr_1", "s", 1, 4, 0, 1, "openai_chat", "m", None, question_of(), 1, 1)
    return (replace(approval, decision=Decision(True, "ann"), decided_ms=2),)
