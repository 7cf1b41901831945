"""What a person writes in place of an answer: its text, the arguments of one call, or all of it.

Pure. What comes out is the form that is not streamed, and a whole answer of its dialect: a client
that wants a stream gets one made of it, as of any recorded body.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.dialects.base import CallingDialect, Dialect, calls_tools
from agentstate.dialects.edits import new_body
from agentstate.ground.approvals import Place
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.chat import Answer, ToolCall
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.records import RecordedAnswer
from agentstate.steps.answer_check import check_answer
from agentstate.steps.arguments import schema_in
from agentstate.steps.reading import as_body
from agentstate.steps.reply import JSON_TYPE
from agentstate.steps.schema import check_arguments


@dataclass(frozen=True, slots=True)
class Edit:
    """What is written; exactly one of the first three is not None."""

    text: str | None = None
    arguments: str | None = None  # of one call, as its JSON text
    body: JSON = None  # the answer as the API gives it without a stream; what it lacks stays
    choice: int | None = None  # of text and arguments; None = the first, or that of the call
    position: int | None = None  # of the call within its choice; None = by its id, or the only one
    call_id: str | None = None  # of the call


def edited(
    dialect: Dialect, recorded: RecordedAnswer, request: dict[str, JSON], edit: Edit
) -> tuple[RecordedAnswer, Answer]:
    """Return an answer as a person has it, and what it says.

    `request` is the body that it answers; its tools say what their arguments may be.

    Raises:
        BadRequest: this answer cannot be edited so; the message says what is wrong.
    """
    if not calls_tools(dialect):
        raise BadRequest(
            f"An answer in the form {dialect.name} has no text that could be edited. Ask for it "
            "again instead."
        )
    before = as_body(dialect, recorded)
    after = _written(dialect, before, request, edit)
    answer = dialect.read_answer(after)
    if not answer.is_complete:
        raise BadRequest(
            f"The new answer would be none of the form {dialect.name}: {answer.fault}.",
            param="body",
        )
    if after == before or answer == dialect.read_answer(before):
        raise BadRequest("The answer says that already.")
    others = (pair for pair in recorded.headers if pair[0].lower() != b"content-type")
    return RecordedAnswer(recorded.status, (JSON_TYPE, *others), "body", after), answer


def _written(dialect: CallingDialect, before: bytes, request: dict[str, JSON], edit: Edit) -> bytes:
    given = [each is not None for each in (edit.text, edit.arguments, edit.body)]
    if sum(given) != 1:
        raise BadRequest(
            "An edit must have exactly one of: text, the arguments of a call, the whole body."
        )
    if edit.body is not None:
        after = new_body(edit.body, before)
        assert isinstance(edit.body, dict), "new_body takes nothing else"
        check_answer(dialect.name, edit.body, parse(after), _reasons_of(dialect, before))
        return after
    if edit.text is not None:
        return dialect.with_text(before, edit.choice or 0, edit.text)
    assert edit.arguments is not None
    place, call = _find_call(dialect.read_answer(before), edit)
    if call.runs_upstream:
        raise BadRequest(
            f"{shorten(call.name)} was run by the provider already, so its arguments are settled.",
            param="arguments",
        )
    after = dialect.changed_body(before, {place: edit.arguments})
    schema = schema_in(dialect, request, call.name)
    if schema is not None:
        check_arguments(edit.arguments, schema)
    return after


def _reasons_of(dialect: CallingDialect, body: bytes) -> set[str]:
    """Return why the choices of an answer ended, in the words of who gave it."""
    choices = dialect.read_answer(body).choices
    return {choice.finish_reason for choice in choices if choice.finish_reason}


def _find_call(answer: Answer, edit: Edit) -> tuple[Place, ToolCall]:
    """Return the call that is meant, and where it stands."""
    calls = {(choice, call.position): call for choice, call in answer.tool_calls}
    if not calls:
        raise BadRequest(
            "The answer calls no tool, so there are no arguments to edit. What its text spells is "
            "a part of the text.",
            param="arguments",
        )
    fit = [
        place
        for place, call in calls.items()
        if edit.call_id in (None, call.call_id)
        and edit.position in (None, call.position)
        and edit.choice in (None, place[0])
    ]
    if len(fit) == 1:
        return fit[0], calls[fit[0]]
    there = ", ".join(
        f"{shorten(call.name)} (choice {choice}, position {position}, id "
        f"{shorten(call.call_id or 'none')})"
        for (choice, position), call in list(calls.items())[:8]
    )
    found = "none of these" if not fit else f"{len(fit)} of these"
    raise BadRequest(
        f"Say which call is meant, by call_id or by choice and position; {found} fits. The answer "
        f"calls {there}.",
        param="call_id",
    )
