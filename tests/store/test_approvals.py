"""What the backends share about approvals."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from agentstate.ground.approvals import Approval, Decision
from agentstate.store.approvals import (
    already_decided,
    fails_session,
    new_approval_id,
    no_approval,
    readable_decision,
    readable_question,
    tells_model,
)
from tests.store.contract_gate import MENDED, ODD, approval_of, question_of, rejection_of


def test_names_are_long_and_all_different() -> None:
    names = [new_approval_id() for _ in range(100)]
    assert all(re.fullmatch("apr_[0-9a-f]{20}", name) for name in names)
    assert len(set(names)) == 100


@pytest.mark.parametrize(
    ("decision", "fails", "tells"),
    [
        (approval_of(), False, False),
        (approval_of(then="continue"), False, False),
        (rejection_of(then="stop"), True, False),
        (rejection_of(then=None), True, False),
        (rejection_of(then="continue"), False, True),
    ],
)
def test_a_rejection_fails_the_session_or_tells_the_model(
    decision: Decision, fails: bool, tells: bool
) -> None:
    assert (fails_session(decision), tells_model(decision)) == (fails, tells)


def test_what_is_shown_is_mended_and_what_is_sent_is_not() -> None:
    question = question_of(tool=ODD, call_id=ODD, rule=ODD, why=ODD, arguments=ODD)
    mended = {"tool": MENDED, "call_id": MENDED, "rule": MENDED, "why": MENDED}
    assert readable_question(question) == replace(question, **mended)
    assert readable_question(question_of(call_id=None)) == question_of(call_id=None)
    decision = Decision(True, ODD, ODD, ODD)
    assert readable_decision(decision) == Decision(True, MENDED, MENDED, ODD)
    assert readable_decision(Decision(True, None)) == Decision(True, None)


@pytest.mark.parametrize(
    ("decision", "said"),
    [
        (approval_of(by="ann"), "was approved by ann before"),
        (approval_of(by=None), "was approved before"),
        (rejection_of(by="b" * 200), "was rejected by " + "b" * 79 + "… before"),
    ],
)
def test_a_second_decision_is_told_the_first(decision: Decision, said: str) -> None:
    approval = Approval("apr_1", "s", 1, 0, 0, 1, "d", "m", None, question_of(), 1, 1, decision, 2)
    error = already_decided(approval)
    assert said in error.message
    assert error.approval is approval


def test_a_name_nobody_has_is_shortened() -> None:
    assert len(no_approval("x" * 500).message) < 120
