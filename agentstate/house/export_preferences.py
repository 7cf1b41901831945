"""What people said of answers, as examples: of two the better one, or one that was good or not.

What was decided about an answer and the rounds after it says of each:

    approved            it was good
    edited              good with the edits, and better so than as the model gave it
    some calls refused  not good; what was left of it is better
    all refused         not good; the model was told, and the answer that stood in the end is better
    refused for good    not good; nothing came of it

An answer that a person wrote in place of the model's is better than that one. Where it was edited
more than once the last answer is compared with the model's: those between are a person's drafts. It
says nothing of good or not; that is what decisions are for. An answer that the model was asked for
again is nobody's judgement.

Each is one `Judged`, whichever form is wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from agentstate.dialects.base import calls_tools
from agentstate.dialects.neutral import TranslatingDialect
from agentstate.ground.approvals import Approval
from agentstate.ground.canonical import JSON
from agentstate.ground.chat import Answer, Choice
from agentstate.ground.errors import BadRequest
from agentstate.ground.records import RecordedAnswer
from agentstate.house.export_conversations import NoConversation, Said, write_choice
from agentstate.house.export_reading import Prompt, Reader
from agentstate.steps import aside
from agentstate.steps.outcome import Changed, GoOn, Outcome, Unchanged, outcome_of, refusal_of
from agentstate.steps.reading import as_body, read_recorded
from agentstate.store.base import Store


@dataclass(frozen=True, slots=True)
class Judged:
    """One answer about which something was decided, or which a person wrote."""

    prompt: Prompt
    own: Said  # as it was when it was decided about
    # None = nothing is better: it was good as it was, or nothing came of it.
    better: Said | None
    is_edited: bool = False  # `better` is what was approved
    is_good: bool = False
    models: Said | None = None  # that a person wrote `own` in place of; None = it is the model's

    @property
    def pair(self) -> tuple[Said, Said] | None:
        """The better answer and the worse one; None = none is better."""
        if self.models is not None:
            return self.better or self.own, self.models
        return None if self.better is None else (self.better, self.own)


async def judge(
    store: Store,
    reader: Reader,
    at: int,
    dialect: TranslatingDialect,
    answer_id: int,
    *,
    compares: bool,
) -> list[Judged]:
    """Return what was decided about an answer and the rounds after it, in order. `compares`: an
    answer that a person wrote is held against the model's.

    Raises:
        NoConversation: what stands before it is not all on record, or has no chat form.
    """
    body = await reader.read_body(at)
    models = await _read_models(store, dialect, answer_id) if compares else None
    found: list[Judged] = []
    refused: list[Judged] = []  # that wait for an answer that stands
    for each_id in (answer_id, *await store.rounds_of(answer_id)):
        recorded = await store.read_answer_by_id(each_id)
        approvals = _about_answer(await store.approvals_of(each_id))
        if recorded is None or any(approval.decision is None for approval in approvals):
            break
        prompt = await reader.read_prompt(at, dialect, body)
        heard = await _Heard.read(dialect, recorded)
        about = {approval.question.choice for approval in approvals}
        if each_id != answer_id:
            models = None  # the model was told and said this itself
        if not about:
            about = {0} if models is None else heard.changed_from(models)
        own = heard.message(prompt, about)
        if refusal_of(approvals) is not None:
            found.append(Judged(prompt, own, None))
            break
        outcome = outcome_of(heard.answer, heard.body, approvals) if approvals else Unchanged()
        if isinstance(outcome, GoOn):
            refused.append(Judged(prompt, own, None))
            body = _go_on(dialect, body, outcome)
            continue
        judged = _judge_standing(dialect, heard, prompt, about, outcome)
        stands = judged.better or judged.own
        found = [replace(each, better=None if each.own == stands else stands) for each in refused]
        if models is not None and (first := models.message(prompt, about)) != stands:
            judged = replace(judged, models=first)
        return [*found, judged] if approvals or judged.models is not None else found
    return [*refused, *found]


async def _read_models(store: Store, dialect: TranslatingDialect, answer_id: int) -> _Heard | None:
    """Return the last answer of the model's before an edited one; None = it is no edited one."""
    first_id = answer_id
    while (revision := await store.read_revision(first_id)) and revision.kind == "edit":
        first_id = revision.replaces_id
    recorded = None if first_id == answer_id else await store.read_answer_by_id(first_id)
    return None if recorded is None else await _Heard.read(dialect, recorded)


def _judge_standing(
    dialect: TranslatingDialect,
    heard: _Heard,
    prompt: Prompt,
    about: set[int],
    outcome: Outcome,
) -> Judged:
    """Say what was decided about an answer of which something went out."""
    own = heard.message(prompt, about)
    if not isinstance(outcome, Changed):
        return Judged(prompt, own, None, is_good=True)
    assert calls_tools(dialect), "its calls were changed"
    try:
        changed = dialect.read_answer(dialect.changed_body(heard.body, outcome.changes))
    except BadRequest as error:
        raise NoConversation("no_chat_form") from error
    better = _Heard(changed, b"").message(prompt, about)
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
    async def read(dialect: TranslatingDialect, recorded: RecordedAnswer) -> _Heard:
        def work() -> _Heard:
            return _Heard(read_recorded(dialect, recorded), as_body(dialect, recorded))

        return await aside.run(work, len(recorded.content))

    def changed_from(self, models: _Heard) -> set[int]:
        """Return which alternatives say something else than the model's; the first if none do."""
        before = [_said(choice) for choice in models.answer.choices]
        changed = {each.index for each in self.answer.choices if _said(each) not in before}
        return changed or {0}

    def message(self, prompt: Prompt, about: set[int]) -> Said:
        """Return the one alternative that is meant as a message."""
        choices = [choice for choice in self.answer.choices if choice.index in about]
        if len(choices) != 1:
            raise NoConversation("several_choices")
        return write_choice(choices[0], prompt.turn_count)


def _said(choice: Choice) -> tuple[object, ...]:
    return choice.index, choice.text, choice.refusal, choice.tool_calls


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
