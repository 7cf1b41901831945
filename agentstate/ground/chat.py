"""The neutral form of an answer: what every dialect can be read into.

Steps, gate, export and translation read these values and never a dialect's JSON. Reading is lossy
on purpose; the bytes on record are the truth and are what a replay sends. The counterpart is
`dialects/`, one file per wire form.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One tool call the model emitted, assembled."""

    position: int  # order within its choice, from 0; with the choice it names the call for good
    call_id: str | None  # the provider's id: shown, never trusted; None = it sent none
    name: str
    arguments: str  # exact text as sent; may be '' or no valid JSON
    kind: str = "function"  # function | custom | a built-in's type name
    runs_upstream: bool = False  # the provider ran it: shown, but nobody can be kept from it


@dataclass(frozen=True, slots=True)
class Choice:
    """One of the n alternatives of an answer."""

    index: int
    text: str = ""
    refusal: str | None = None  # None = the model did not refuse
    reasoning: str | None = None  # None = none was shown
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str | None = None  # as sent; None = not finished


@dataclass(frozen=True, slots=True)
class Piece:
    """What one frame of a stream adds to an answer.

    Joined by (choice, kind, position) the texts of all pieces are the values of the whole answer.
    """

    choice: int  # its index
    kind: Literal["text", "refusal", "reasoning", "call"]
    text: str  # of a call: of its arguments; '' = the call is told of
    position: int = 0  # of the call, as `ToolCall.position`
    call_id: str | None = None  # of the call, as far as it is known by now
    name: str = ""  # the same; it may still grow until arguments come
    call_kind: str = "function"  # as `ToolCall.kind`


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts as the upstream reported them. `input_tokens` includes the cached ones."""

    input_tokens: int
    output_tokens: int
    cached_tokens: int = 0  # of the input, read from a cache
    cache_write_tokens: int = 0  # of the input, written to a cache
    reasoning_tokens: int = 0  # of the output


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in neutral form, whole or as far as it got."""

    choices: tuple[Choice, ...] = ()
    response_id: str | None = None
    model: str | None = None  # as the upstream named it; None = it did not
    usage: Usage | None = None  # None = not reported
    # What makes it no answer: an error inside a 200, or what is missing. None = nothing.
    fault: str | None = None
    is_complete: bool = False  # every choice has a terminal reason; see DESIGN section 4
    extra: dict[str, str] = field(default_factory=dict)  # dialect's own facts, for display

    @property
    def text(self) -> str:
        """The text of the first choice, '' if there is none."""
        return self.choices[0].text if self.choices else ""

    @property
    def finish_reason(self) -> str | None:
        """The finish reason of the first choice."""
        return self.choices[0].finish_reason if self.choices else None

    @property
    def tool_calls(self) -> tuple[tuple[int, ToolCall], ...]:
        """All tool calls as (choice index, call), in order."""
        return tuple((choice.index, call) for choice in self.choices for call in choice.tool_calls)
