"""What the backends share about forks: their names, and what of the gate they take along. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from agentstate.ground.approvals import Decision, Earlier, Question
from agentstate.ground.clock import iso_moment
from agentstate.ground.control import Place
from agentstate.ground.errors import Conflict, shorten
from agentstate.store.base import readable

NAME_CHARS_MAX = 512  # of a session, as where calls come in
ARGUMENTS_CHARS_MAX = 300  # of edited arguments, in a question: a person reads them whole elsewhere


class NameTaken(Conflict):
    """There is a session of the name that a fork was to have."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"There is a session {shorten(name)!r} already. Choose another id, or send none."
        )


def free_name(session: str, is_taken: Callable[[str], bool]) -> str:
    """Return a name for a fork of `session` that no session has."""
    number = 1
    while True:
        ending = f"-fork-{number}"
        name = session[: NAME_CHARS_MAX - len(ending)] + ending
        if not is_taken(name):
            return name
        number += 1


def goes_along(decision: Decision) -> bool:
    """Say whether a decision is part of what was delivered, so that a fork has it in any case: a
    refusal of which the model was told. It lets nothing out."""
    return not decision.is_approved and decision.then == "continue"


def with_earlier(question: Question, earlier: Earlier) -> Question:
    """Return a question that says what was decided before the session was forked."""
    said = sentence_of(earlier)
    return replace(question, why=f"{question.why}; {said}" if question.why else said)


def sentence_of(earlier: Earlier) -> str:
    """Say who decided what where a session was forked from, when, and why."""
    decision = earlier.decision
    when = iso_moment(earlier.decided_ms)
    by = f" by {shorten(decision.by)}" if decision.by else ""
    what = "approved" if decision.is_approved else "rejected"
    said = f"this is a fork; in {shorten(earlier.session)!r} it was {what}{by} at {when}"
    if decision.reason:
        said += f" ({shorten(decision.reason, ARGUMENTS_CHARS_MAX)})"
    if decision.arguments is not None:
        shown = shorten(decision.arguments, ARGUMENTS_CHARS_MAX)
        said += f", with the arguments {shown}, which it gets here as well unless they are edited"
    return readable(said)


def check_place(session: str, place: Place, last: tuple[int, int] | None) -> None:
    """Check that a place is in a session, or just after its last step.

    `last`: the highest index and step number of its active steps, those in flight included; None =
    it has none.

    Raises:
        Conflict: it is further on, so what was meant is not there, and all would be shared.
    """
    if last is None:
        return
    index, number = last
    if (place.index or 0) > index + 1:
        found, end = f"index {place.index}", f"index {index}"
    elif (place.step_number or 0) > number + 1:
        found, end = f"step {place.step_number}", f"step {number}"
    else:
        return
    raise Conflict(
        f"Session {shorten(session)!r} ends with {end}; found a fork before {found}. Name one that "
        "is there, or none to share all."
    )


def nothing_before(session: str, place: Place | None) -> Conflict:
    """Make the error for a fork that would be empty."""
    if place is None:
        where = ""
    elif place.index is not None:
        where = f" before index {place.index}"
    else:
        where = f" before step {place.step_number}"
    return Conflict(
        f"Session {shorten(session)!r} has no finished step{where} that a fork could share. An "
        "empty session needs no fork: an agent begins one by naming it."
    )
