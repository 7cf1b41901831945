"""The values that export passes along: what is wanted, one example, one finding.

Not how any of it is made: `export_examples.py` makes examples of the record, `export_forms.py`
writes them in a trainer's form, `export_lint.py` looks at what was written. Invariant: an example
stands in one form, whatever dialect it was recorded in and whatever form it is wanted in: that of
OpenAI's chat completions, with the keys which fine-tuning takes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from agentstate.ground.canonical import JSON
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor

Format = Literal["openai", "trl", "axolotl", "dpo", "kto"]
FORMATS: tuple[Format, ...] = ("openai", "trl", "axolotl", "dpo", "kto")
Part = Literal["train", "validation"]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which conversations are wanted, and in which form."""

    format: Format = "openai"
    session: str | None = None  # None = all
    status: str | None = None  # of sessions; None = all but FAILED, and with `include_failed` all
    since_ms: int | None = None  # of the leaf's call, included
    until_ms: int | None = None  # of the leaf's call, excluded
    tags: tuple[tuple[str, str | None], ...] = ()  # a session has all; a value of None = any
    search: str | None = None  # part of the session's id or name
    parent: str | None = None  # the session that began it
    forked_from: str | None = None
    model: str | None = None  # a glob over the leaf's model
    tool: str | None = None  # a glob; some call of such a tool is in the conversation
    cost_max_microusd: int | None = None  # of the whole conversation; one without a price passes
    touched: bool | None = None  # a person decided or edited something in it
    include_failed: bool = False
    include_cut: bool = False
    include_rolled_back: bool = False
    include_replaced: bool = False  # answers that a person or a refresh put another in place of
    dedupe: bool = True  # equal conversations once
    images: bool = False  # keep the images of users
    split: tuple[float, int] | None = None  # share of validation (0 to 1), seed
    part: Part | None = None  # with `split`; None = both
    redactor: Redactor = NOTHING_KNOWN  # takes out secrets


@dataclass(frozen=True, slots=True)
class Change:
    """Something that was said and stands otherwise in an example, or not at all."""

    code: str  # stable, of the same kind as `Finding.code`
    at: int | None  # the place of its message in the example; None = `path` is one of a request
    path: str  # in that message: ".content"
    message: str
    is_mended: bool = False  # it says the same as before


@dataclass(frozen=True, slots=True)
class Example:
    """A conversation that nothing continues, or one decided answer, before it has a form."""

    session: str
    index: int  # of the leaf step
    root: str  # hex digest of how the conversation begins; equal ones never part in a split
    messages: tuple[dict[str, JSON], ...]
    # `role`, `content`, `tool_calls`, `tool_call_id`, `weight` only; arguments are JSON texts. The
    # last one is the assistant's
    tools: tuple[dict[str, JSON], ...]
    parallel_tool_calls: bool | None
    model: str
    touched: bool
    cost_microusd: int | None  # of the calls on the way; None = one has no price
    rejected: tuple[dict[str, JSON], ...] | None = None  # dpo: the answer that was not preferred
    label: bool | None = None  # kto: whether the last message was approved
    # A place behind the last message is that of `rejected`.
    changes: tuple[Change, ...] = ()


@dataclass(frozen=True, slots=True)
class Untaken:
    """A conversation that is wanted and has no form here."""

    session: str
    index: int  # of the leaf step
    reason: str  # stable
    path: str  # of what has none, in the request; '' = it is no single place


@dataclass(frozen=True, slots=True)
class Finding:
    """Something the linter saw in one line."""

    code: str  # stable
    # In the line: "messages[3].tool_calls[0]"; or in the step's request, which it begins with then.
    path: str
    message: str
    # False = as it was, or not what it was and nothing could be done; or why the line is lost
    is_mended: bool
