"""Answers that call a guarded tool, in every spelling of every dialect the proxy speaks.

A `Spelling` is one way to write a guarded call down in one dialect; its writer writes a whole
answer with it, as a stream and as a body, and says how much of the stream may go out before a
decision: what comes before the first event that shows any part of a guarded call. That is known
from how the events are made, never by reading them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from hypothesis import strategies as st

from tests.steps import gate_chat, gate_others, gate_responses
from tests.steps.gate_parts import (
    SAFE,
    SECRETS,
    TOOL,
    Case,
    Part,
    Say,
    Script,
    Spell,
    Use,
    Writer,
    in_pieces,
)
from tests.steps.gate_texts import BEFORE, TEXT_FORMS, TEXT_NAMES

# The tool's name as models spell it and clients take it.
NAMES = (
    TOOL,
    "DELETE_ROWS",
    " delete_rows ",
    "delete_rows\n",
    "Delete Rows",
    "delete-rows",
    "`delete_rows`",
    "mcp__db__delete_rows",
    "functions.delete_rows",
    "functions.delete_rows:0",
    "db/delete_rows",
    "srv:Delete-Rows",
    "\uff44\uff45\uff4c\uff45\uff54\uff45_\uff52\uff4f\uff57\uff53",
    "delete\u200b_rows",
    "de\u0301lete_rows",
    "delete_rowsdelete_rows",
)


@dataclass(frozen=True, slots=True)
class Spelling:
    """One way to write a guarded call."""

    dialect: str
    form: str
    write: Writer
    is_text: bool = False
    choices_max: int = 1
    calls_max: int = 2  # guarded ones in one choice
    has_others: bool = True  # calls nobody guards may stand beside it

    def __str__(self) -> str:
        return f"{self.dialect}: {self.form}"

    def guarded(self, name: str, secret: str) -> Part:
        """Return a guarded call for it."""
        if self.is_text:
            return Spell(TEXT_FORMS[self.form.removeprefix("text, ")](name, secret), secret)
        return Use(name, secret)


def _list_native() -> Iterator[Spelling]:
    for form in (*gate_chat.FORMS, *gate_chat.FORMS_OF_ALL):
        yield Spelling("chat", form, gate_chat.chat_writer(form), choices_max=3)
    together, legacy = gate_chat.TOGETHER, gate_chat.LEGACY
    yield Spelling("chat", together, gate_chat.chat_writer(together))
    yield Spelling("chat", legacy, gate_chat.chat_writer(legacy), choices_max=3, calls_max=1)
    for form in gate_others.MESSAGES_FORMS:
        yield Spelling("messages", form, gate_others.messages_writer(form))
    # A call without a start is nobody's, so it is the only one.
    alone = gate_others.NO_START
    writer = gate_others.messages_writer(alone)
    yield Spelling("messages", alone, writer, calls_max=1, has_others=False)
    for form in gate_others.GEMINI_FORMS:
        yield Spelling("gemini", form, gate_others.gemini_writer(form), choices_max=3)
    for kind in gate_responses.KINDS:
        for form in gate_responses.FORMS:
            if gate_responses.has_form(kind, form):
                writer = gate_responses.responses_writer(kind, form)
                yield Spelling("responses", f"{kind}, {form}", writer)


def _list_texts() -> Iterator[Spelling]:
    plain = "by the book"
    writers: dict[str, tuple[Writer, int]] = {
        "chat": (gate_chat.chat_writer(plain), 3),
        "completions": (gate_chat.write_completions, 3),
        "messages": (gate_others.messages_writer(plain), 1),
        "gemini": (gate_others.gemini_writer(plain), 3),
        "responses": (gate_responses.responses_writer("function_call", plain), 1),
    }
    for dialect, (writer, choices_max) in writers.items():
        for form in TEXT_FORMS:
            label = f"text, {form}"
            is_plain = dialect == "completions"
            yield Spelling(
                dialect,
                label,
                writer,
                is_text=True,
                choices_max=choices_max,
                has_others=not is_plain,
            )


SPELLINGS = (*_list_native(), *_list_texts())


def simple(spelling: Spelling, script: Script) -> Case:
    """Write an answer that says little: a text, a call nobody guards, the guarded one."""
    parts: list[Part] = [Say("I look it up. ")]
    if spelling.has_others and not spelling.is_text:
        parts.append(Use(SAFE[0]))
    case = spelling.write([[*parts, spelling.guarded(TOOL, SECRETS[0])]], script)
    return replace(case, label=str(spelling))


@st.composite
def cases(draw: st.DrawFn, spellings: Sequence[Spelling] = SPELLINGS) -> Case:
    """Draw an answer that has a guarded call somewhere."""
    spelling = draw(st.sampled_from(spellings))
    names = st.sampled_from(TEXT_NAMES if spelling.is_text else NAMES)
    others = st.lists(st.sampled_from(SAFE), max_size=2 if spelling.has_others else 0)
    count = draw(st.integers(1, spelling.choices_max))
    guilty = draw(st.sets(st.integers(0, count - 1), min_size=1))
    secrets = iter(SECRETS)
    choices: list[list[Part]] = []
    for index in range(count):
        parts: list[Part] = [Say(draw(st.sampled_from(BEFORE)))]
        parts += map(Use, draw(others))
        calls_max = spelling.calls_max if count == 1 else 1
        for _ in range(draw(st.integers(1, calls_max)) if index in guilty else 0):
            parts.append(spelling.guarded(draw(names), next(secrets)))
            parts += map(Use, draw(others))
            if spelling.is_text:
                parts.append(Say("\n"))
        choices.append(parts)
    script = Script(
        cut=in_pieces(draw(st.integers(1, 40))),
        split=draw(st.floats(0, 1)),
        joins_end=draw(st.booleans()),
        has_usage=draw(st.booleans()),
        ends=draw(st.booleans()),
        offers=spelling.is_text or draw(st.booleans()),
        turns=tuple(draw(st.lists(st.integers(0, 5), max_size=12))),
        framing=draw(st.sampled_from(("plain", "plain", "crlf", "comments", "lines"))),
    )
    return replace(spelling.write(choices, script), label=str(spelling))
