"""What was decided before a session was forked, as JSON in the steps of the fork. Pure.

A step has a list of such decisions, each with the answer and the place it is about; an approval
that is opened for the same call takes its own along. Neither allows anything, as
`Approval.earlier` says.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

from agentstate.ground.approvals import Decision, Earlier, Question

Row = dict[str, Any]


def precedent_row(place: tuple[int, int, int, str, bytes], earlier: Earlier) -> Row:
    """Return what a step keeps of one decision; `place`: answer, choice, position, kind, digest."""
    answer_id, choice, position, kind, digest = place
    named = {"answer": answer_id, "choice": choice, "position": position, "kind": kind}
    return {**named, "digest": digest.hex(), **_row_of(earlier)}


def encode_precedents(rows: Iterable[Row]) -> str:
    """Return the text for a step; of several about one call the first counts."""
    return json.dumps(list(rows))


def read_precedents(text: str) -> list[Row]:
    """Return what `encode_precedents` was given."""
    rows: list[Row] = json.loads(text)
    return rows


def find_earlier(text: str, answer_id: int, question: Question) -> Earlier | None:
    """Return what was decided about a call; None = nothing was."""
    place = (answer_id, question.choice, question.position, question.kind, question.digest.hex())
    for row in read_precedents(text):
        if (row["answer"], row["choice"], row["position"], row["kind"], row["digest"]) == place:
            return _earlier(row)
    return None


def about_answer(text: str, answer_id: int) -> tuple[Earlier, ...]:
    """Return what was decided about the calls of an answer, of each call what counts."""
    found: dict[tuple[object, ...], Earlier] = {}
    for row in read_precedents(text):
        if row["answer"] == answer_id:
            place = (row["choice"], row["position"], row["kind"], row["digest"])
            found.setdefault(place, _earlier(row))
    return tuple(found.values())


def encode_earlier(earlier: Earlier) -> str:
    """Return the text for an approval."""
    return json.dumps(_row_of(earlier))


def read_earlier(text: str) -> Earlier:
    """Return what `encode_earlier` was given."""
    return _earlier(json.loads(text))


def _row_of(earlier: Earlier) -> Row:
    decision = earlier.decision
    return {
        "session": earlier.session,
        "decided_ms": earlier.decided_ms,
        "is_approved": decision.is_approved,
        "by": decision.by,
        "reason": decision.reason,
        "arguments": decision.arguments,
        "then": decision.then,
    }


def _earlier(row: Row) -> Earlier:
    decision = Decision(row["is_approved"], row["by"], row["reason"], row["arguments"], row["then"])
    return Earlier(row["session"], decision, row["decided_ms"])
