"""What people said of answers, as examples: of two the better one, or one that was good or not.

What was decided about an answer and the rounds after it says of each:

    approved            it was good
    edited              good with the edits, and better so than as the model gave it
    some calls refused  not good; what was left of it is better
    all refused         not good; the model was told, and the answer that stood in the end is better
    refused for good    not good; nothing came of it

Each is one `Judged`, whichever form is wanted. Answers that a person puts in place of others will
be one more source of them, beside `judge`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from agentstate.dialects.base import calls_tools
from agentstate.dialects.neutral import TranslatingDialect
from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import RecordedAnswer
from agentstate.house.export_conversations import Message, NoConversation, write_choice
from agentstate.house.export_reading import Prompt, Reader
from agentstate.steps import aside
from agentstate.steps.outcome import Changed, GoOn, Outcome, Unchanged, outcome_of, refusal_of
from agentstate.steps.reading import as_body, read_recorded
from agentstate.store.base import Store


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer of the model's about which something was decided."""

    prompt: Prompt
    own: Message  # as the model gave it
    # None = nothing is better: it was good as it was, or nothing came of it.
    better: Message | None
    is_edited: bool = False  # `better` is what was approved
    is_good: bool = False


async def judge(
    store: Store, reader: Reader, at: int, dialect: TranslatingDialect, answer_id: int
) -> list[Judged]:
    """Return what was decided about an answer and the rounds after it, in order.

    Raises:
        NoConversation: what stands before it is not all on record, or has no chat form.
    """
    body = await reader.read_body(at)
    found: list[Judged] = []
    refused: list[Judged] = []  # that wait for an answer that stands
    for each_id in (answer_id, *await store.rounds_of(answer_id)):
        recorded = await store.read_answer_by_id(each_id)
        approvals = _about_answer(await store.approvals_of(each_id))
        if recorded is None or any(approval.decision is None for approval in approvals):
            break
        prompt = await reader.read_prompt(at, dialect, body)
        heard = await aside.run(partial(_Heard.of, dialect, recorded), len(recorded.content))
        own = heard.message(prompt, approvals)
        if refusal_of(approvals) is not None:
            found.append(Judged(prompt, own, None))
            break
        outcome = outcome_of(heard.answer, heard.body, approvals) if approvals else Unchanged()
        if isinstance(outcome, GoOn):
            refused.append(Judged(prompt, own, None))
            body = _go_on(dialect, body, outcome)
            continue
        judged = _judge_standing(dialect, heard, prompt, approvals, outcome)
        stands = judged.better or judged.own
        found = [replace(each, better=None if each.own == stands else stands) for each in refused]
        return [*found, judged] if approvals else found
    return [*refused, *found]


def _judge_standing(
    dialect: TranslatingDialect,
    heard: _Heard,
    prompt: Prompt,
    approvals: Sequence[Approval],
    outcome: Outcome,
) -> Judged:
    """Say what was decided about an answer of which something went out."""
    own = heard.message(prompt, approvals)
    if not isinstance(outcome, Changed):
        return Judged(prompt, own, None, is_good=True)
    assert calls_tools(dialect), "its calls were changed"
    try:
        changed = dialect.read_answer(dialect.changed_body(heard.body, outcome.changes))
    except BadRequest as error:
        raise NoConversation("no_chat_form") from error
    better = _Heard(changed, b"").message(prompt, approvals)
    is_edited = None not in outcome.changes.values()
    if better == own:  # edited to what it was
        return Judged(prompt, own, None, is_good=is_edited)
    return Judged(prompt, own, better, is_edited=is_edited, is_good=is_edited)


@dataclass(frozen=True, slots=True)
class _Heard:
    """An answer that was read."""

    answer: Answer
    body: bytes  # in the form that is not streamed

    @staticmethod
    def of(dialect: TranslatingDialect, recorded: RecordedAnswer) -> _Heard:
        return _Heard(read_recorded(dialect, recorded), as_body(dialect, recorded))

    def message(self, prompt: Prompt, approvals: Sequence[Approval]) -> Message:
        """Return the alternative that the decisions are about as a message."""
        about = {approval.question.choice for approval in approvals} or {0}
        choices = [choice for choice in self.answer.choices if choice.index in about]
        if len(choices) != 1:
            raise NoConversation("several_choices")
        return write_choice(choices[0], prompt.turn_count)


def _about_answer(approvals: Sequence[Approval]) -> list[Approval]:
    """Leave out what is about a further release, and about the request before its answer."""
    return [
        approval
        for approval in approvals
        if not approval.question.generation and approval.question.kind != "request"
    ]


def _go_on(dialect: TranslatingDialect, body: dict[str, JSON], outcome: GoOn) -> dict[str, JSON]:
    """Return the request that told the model."""
    assert calls_tools(dialect), "its calls were refused"
    try:
        return dialect.go_on(body, outcome.told)
    except BadRequest as error:
        raise NoConversation("no_chat_form") from error
