"""Which call a begin is about, and what a call becomes: each rule, each state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.approvals import Approval, Decision
from agentstate.ground.durable import Begin, DurableCall, Report, Settlement
from agentstate.ground.errors import Conflict
from agentstate.store.durables import (
    Known,
    Taken,
    choose,
    forgotten,
    meet,
    new_call,
    reported,
    settled,
    takes,
    unknown_event,
)
from tests.store.contract_durable import begin_of
from tests.store.contract_gate import question_of

AT_MS = 5000


def known(durable_id: int, **changes: Any) -> Known:
    return replace(Known(durable_id, "done", None, None), **changes)


def call_of(**changes: Any) -> DurableCall:
    return replace(new_call(begin_of(), 0), **changes)


def running(**changes: Any) -> DurableCall:
    told = meet(call_of(), begin_of(owner="a", begin_id="a1"), None).call
    assert told is not None
    return replace(told, **changes)


# --- which call -----------------------------------------------------------------------------------

MINE, LOST = Taken("b1", "c1"), Taken(None, "c1")


@pytest.mark.parametrize(
    ("rows", "begin", "found"),
    [
        pytest.param([], begin_of(), None, id="there is none"),
        pytest.param([known(1, taken=MINE)], begin_of(key="k"), 1, id="a key names it"),
        pytest.param(
            [known(1), known(2, taken=MINE)], begin_of(begin_id="b1"), 2, id="the same begin"
        ),
        pytest.param(
            [known(1, taken=MINE)], begin_of(begin_id="b2"), None, id="another begin, all taken"
        ),
        pytest.param(
            [known(1, taken=MINE), known(2), known(3)], begin_of(begin_id="b2"), 2, id="the next"
        ),
        pytest.param(
            [known(1), known(2, call_id="c2")], begin_of(begin_id="b2", call_id="c2"), 2,
            id="that of the model's call first",
        ),
        pytest.param(
            [known(1, call_id="c1")], begin_of(begin_id="b2", call_id="c2"), 1,
            id="a model that was asked anew has other ids",
        ),
        pytest.param(
            [known(1, taken=MINE, state="running")], begin_of(), 1, id="a retry without ids"
        ),
        pytest.param(
            [known(1, taken=MINE, state="unknown")], begin_of(), 1, id="a retry, unknown since"
        ),
        pytest.param([known(1, taken=MINE)], begin_of(), None, id="it has ended: the next one"),
        pytest.param(
            [known(1, taken=LOST)], begin_of(call_id="c1"), 1, id="a retry by the model's id"
        ),
        pytest.param(
            [known(1, taken=LOST)], begin_of(call_id="c2"), None, id="another call of the model"
        ),
        pytest.param([known(1)], begin_of(owner=None), 1, id="no owner: equal is the same"),
        pytest.param(
            [known(1, call_id="c1")], begin_of(owner=None, call_id="c2"), None,
            id="no owner: the model's id tells them apart",
        ),
    ],
)  # fmt: skip
def test_a_begin_is_about(rows: list[Known], begin: Begin, found: int | None) -> None:
    assert choose(rows, begin) == found


# --- what it is told ------------------------------------------------------------------------------


def approval(**changes: Any) -> Approval:
    row = Approval(
        "apr_1", "s", None, None, None, None, "", "", None, question_of(kind="durable"), 1, 1
    )
    return replace(row, **changes)


@pytest.mark.parametrize(
    ("call", "begin", "state", "after"),
    [
        (call_of(), begin_of(owner="a"), "run", "running"),
        (call_of(state="done", outcome="result", value="1"), begin_of(), "replay", "done"),
        (call_of(state="refused"), begin_of(), "refused", "refused"),
        (running(), begin_of(owner="a", begin_id="a1"), "run", "running"),
        (running(), begin_of(owner="a"), "run", "running"),
        (running(), begin_of(owner="a", begin_id="a2"), "held", "running"),
        (running(), begin_of(owner="b"), "unknown", "unknown"),
        (running(owner=None), begin_of(owner=None, begin_id="a1"), "run", "running"),
        (running(owner=None, begin_id=None), begin_of(owner=None), "unknown", "unknown"),
        (running(lease_ms=AT_MS + 1), begin_of(owner="b"), "held", "running"),
        (running(lease_ms=AT_MS), begin_of(owner="b"), "unknown", "unknown"),
        (running(), begin_of(owner="b", on_unknown="run"), "run", "running"),
        (running(), begin_of(owner="b", on_unknown="skip"), "replay", "done"),
        (running(state="unknown"), begin_of(owner="a", begin_id="a1"), "unknown", "unknown"),
        (running(state="unknown"), begin_of(owner="b", on_unknown="run"), "run", "running"),
    ],
)
def test_a_call_meets_a_begin(call: DurableCall, begin: Begin, state: str, after: str) -> None:
    begun = meet(call, replace(begin, at_ms=AT_MS), None)

    assert begun.call is not None
    assert (begun.state, begun.call.state) == (state, after)
    assert takes(begun) is (state in ("run", "replay", "refused"))


@pytest.mark.parametrize(
    ("decision", "state"),
    [
        (None, "held"),
        (Decision(True, "ann", arguments='{"to": "b"}'), "run"),
        (Decision(False, "ann", "no", then="stop"), "refused"),
        (Decision(False, "ann", "no", then="continue"), "refused"),
    ],
)
def test_a_call_that_is_asked_about_goes_by_the_decision(
    decision: Decision | None, state: str
) -> None:
    begun = meet(call_of(state="asked"), begin_of(), approval(decision=decision))

    assert begun.state == state
    assert begun.call is not None
    assert begun.call.edited == ('{"to": "b"}' if state == "run" else None)
    assert begun.call.reason == ("no" if state == "refused" else None)


def test_to_run_again_by_a_setting_is_counted() -> None:
    again = meet(running(), begin_of(owner="b", on_unknown="run"), None).call
    assert again is not None
    assert (again.owner, again.runs) == ("b", 2)


# --- what came of it ------------------------------------------------------------------------------

DONE = Report("result", '{"a":1,"b":2}', "a")


def test_the_same_report_again_changes_nothing_in_whatever_order_its_keys_are() -> None:
    done = reported(running(), DONE, AT_MS)

    assert (done.state, done.outcome, done.finished_ms) == ("done", "result", AT_MS)
    assert reported(done, replace(DONE, value='{"b":2,"a":1}'), 9999) == done


@pytest.mark.parametrize("state", ["running", "unknown", "ready"])
def test_the_owner_of_a_call_knows_whatever_others_have_thought(state: Any) -> None:
    assert reported(running(state=state), DONE, AT_MS).state == "done"


@pytest.mark.parametrize(
    ("call", "report", "words"),
    [
        (reported(running(), DONE, AT_MS), replace(DONE, value="2"), "has an outcome already"),
        (reported(running(), DONE, AT_MS), Report("error", DONE.value), "has an outcome already"),
        (running(owner="b"), DONE, "run by another owner since, 'b'"),
        (call_of(), DONE, "Nobody was told to run"),
        (call_of(state="asked"), DONE, "Nobody was told to run"),
        (call_of(state="refused"), DONE, "Nobody was told to run"),
        (running(forgotten_ms=1, forgotten_by="bo"), DONE, "was forgotten by 'bo'"),
    ],
)
def test_a_report_that_does_not_fit_is_refused(
    call: DurableCall, report: Report, words: str
) -> None:
    with pytest.raises(Conflict, match=words):
        reported(call, report, AT_MS)


@pytest.mark.parametrize(
    ("state", "after"), [("running", "unknown"), ("unknown", "unknown"), ("ready", "ready")]
)
def test_an_owner_that_was_interrupted_does_not_know_either(state: Any, after: str) -> None:
    assert reported(running(state=state), Report("unknown", owner="a"), AT_MS).state == after
    done = reported(running(), DONE, AT_MS)
    assert reported(done, Report("unknown", owner="a"), AT_MS) == done


def test_an_error_that_is_not_kept_lets_the_next_begin_run_it() -> None:
    freed = reported(running(), replace(DONE, outcome="error", is_final=False), AT_MS)
    assert (freed.state, freed.outcome, freed.value) == ("ready", None, None)


# --- what a person says ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settlement", "state", "outcome", "value"),
    [
        (Settlement("happened", '"sent"', "ann"), "done", "result", '"sent"'),
        (Settlement("happened"), "done", "result", "null"),
        (Settlement("not_happened"), "ready", None, None),
        (Settlement("skip", '"gone"'), "done", "skipped", '"gone"'),
        (Settlement("skip", reason="no"), "done", "skipped", '{"skipped":true,"reason":"no"}'),
    ],
)
def test_a_person_settles_what_nobody_knows(
    settlement: Settlement, state: str, outcome: str | None, value: str | None
) -> None:
    row = settled(running(state="unknown"), settlement, AT_MS)

    assert (row.state, row.outcome, row.value) == (state, outcome, value)
    assert (row.settled_as, row.settled_by, row.settled_ms) == (
        settlement.outcome, settlement.by, AT_MS,
    )  # fmt: skip
    with pytest.raises(Conflict, match=f"settled as {settlement.outcome}.*1970-01-01T00:00:05"):
        settled(row, Settlement("skip"), 9)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (call_of(), "run by the next begin"),
        (call_of(state="asked"), "waits for a person's approval"),
        (running(lease_ms=AT_MS + 1), "is being run, until 1970-01-01T00:00:05"),
        (call_of(state="refused"), "was refused"),
        (reported(running(), DONE, AT_MS), "its result was recorded at 1970-01-01T00:00:05"),
    ],
)
def test_what_is_known_is_not_settled(call: DurableCall, words: str) -> None:
    with pytest.raises(Conflict, match=words):
        settled(call, Settlement("happened"), AT_MS)


@pytest.mark.parametrize("lease_ms", [None, AT_MS - 1, AT_MS])
def test_what_was_begun_is_settled_before_another_begins(lease_ms: int | None) -> None:
    row = settled(running(lease_ms=lease_ms), Settlement("not_happened", by="ann"), AT_MS)

    assert (row.state, row.settled_by) == ("ready", "ann")
    with pytest.raises(Conflict, match="settled as happened"):
        reported(settled(running(), Settlement("happened"), AT_MS), DONE, AT_MS)


def test_a_call_that_is_run_again_and_lost_again_is_settled_again() -> None:
    ready = settled(running(state="unknown"), Settlement("not_happened", by="ann"), AT_MS)
    again = meet(ready, begin_of(owner="b"), None).call
    assert again is not None
    lost = meet(again, begin_of(owner="c"), None).call
    assert lost is not None
    assert settled(lost, Settlement("skip", by="bo"), AT_MS).settled_by == "bo"


@pytest.mark.parametrize("call", [call_of(), running(), running(state="unknown")])
def test_only_what_has_ended_is_forgotten(call: DurableCall) -> None:
    with pytest.raises(Conflict, match="only what has ended"):
        forgotten(call, by=None, reason=None, at_ms=AT_MS)


def test_people_are_asked_whether_it_happened_with_the_arguments_it_ran_with() -> None:
    event = unknown_event(running(edited='{"to": "b"}'), AT_MS)

    assert event.kind == "approval.required"
    assert event.facts is not None
    assert (event.facts["kind"], event.facts["arguments"]) == ("unknown", '{"to": "b"}')
