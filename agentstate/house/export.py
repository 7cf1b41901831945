"""Runs become training data: the lines of a file, and what is to be said of it.

    examples → the half of the split that is wanted → form → secrets out → lint → one line of JSON

Invariant: a line that comes out keeps the rules of its form, holds no secret whose form is known,
and is ASCII that ends with the only line feed in it: no reader can take U+2028 for its end. One
example is held at a time, so a file has any size. What is to be said of a file (`Tally`) is added
up while its lines go by; it never has their content.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field

from agentstate import __version__
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from agentstate.ground.redaction import count_marks
from agentstate.house.export_base import Example, Finding, Format, Part, Untaken, Wanted
from agentstate.house.export_examples import examples
from agentstate.house.export_forms import path_of, render
from agentstate.house.export_lint import lint
from agentstate.steps.checkpoint import CHARS_PER_TOKEN
from agentstate.store.base import Store

MODELS_MAX = 1000  # that are counted by name; whoever has more gets the rest as one
OTHER_MODELS = "(others)"
HOW_TOKENS = (
    f"characters of messages and tools / {CHARS_PER_TOKEN}; no tokenizer was asked, pictures are "
    "not counted"
)
_SPLIT_BITS = 64


@dataclass(frozen=True, slots=True)
class Line:
    """One example as it stands in a file."""

    text: bytes | None  # with its line feed; None = it could not be saved, the findings say why
    findings: tuple[Finding, ...]
    secrets: Mapping[str, int]  # how many were taken out, by kind
    tokens: int  # estimated
    part: Part | None  # None = it is not split
    session: str
    index: int  # of the leaf step
    model: str
    touched: bool
    is_taken: bool = True  # False = it is no example, so it stands in no count of lines


async def lines(
    store: Store, wanted: Wanted, not_taken: Counter[str] | None = None
) -> AsyncGenerator[Line]:
    """Yield what is wanted of the record, line by line; close it if you leave early.

    `not_taken` counts, by reason, what is on record and becomes no line. What of it is wanted comes
    as a line without text, which is not taken.

    Raises:
        StoreError: the record cannot be read on.
    """
    async with aclosing(_wanted_examples(store, wanted, not_taken)) as found:
        async for example in found:
            if isinstance(example, Untaken):
                yield _untaken_line(example)
                continue
            # Megabytes, where a conversation was long.
            yield await asyncio.to_thread(make_line, example, wanted)


def make_line(example: Example, wanted: Wanted) -> Line:
    """Write one example in the form that is wanted."""
    counts: Counter[str] = Counter()
    text, tokens = None, 0
    try:
        cleared = wanted.redactor.value(render(example, wanted.format))
        counts = count_marks(cleared)
        assert isinstance(cleared, dict), "a line is an object"
        mended, findings = lint(cleared, wanted.format, _changes(example, wanted.format))
        if mended is not None:
            text = encode(mended) + b"\n"
            tokens = _estimate_tokens(mended)
    except (RecursionError, BadRequest):
        # `encode` has its own bound on depth.
        findings = (Finding("too_deep", "", "It is nested too deeply.", False),)
        text = None
    return Line(
        text=text,
        findings=findings,
        secrets=counts,
        tokens=tokens,
        part=None if wanted.split is None else part_of(example.root, *wanted.split),
        session=example.session,
        index=example.index,
        model=example.model,
        touched=example.touched,
    )


def _changes(example: Example, form: Format) -> list[Finding]:
    return [
        Finding(each.code, path_of(each, example, form), each.message, each.is_mended)
        for each in example.changes
    ]


# By the reason of an `Untaken`.
_WHY_NOT: Mapping[str, str] = {
    "no_chat_form": "A message's role, or a call, has no form in a chat.",
    "history_elsewhere": "A part of the conversation is not on record.",
    "empty_answer": "The answer says nothing.",
    "refused": "A call was refused, which this form cannot say.",
    "several_choices": "It is about several alternatives.",
    "too_large": "The conversation is too large.",
}


def _untaken_line(untaken: Untaken) -> Line:
    why = _WHY_NOT.get(untaken.reason, "There is no conversation on record.")
    return Line(
        text=None,
        findings=(Finding(untaken.reason, untaken.path, why, False),),
        secrets={},
        tokens=0,
        part=None,
        session=untaken.session,
        index=untaken.index,
        model="",
        touched=False,
        is_taken=False,
    )


def part_of(root: str, share: float, seed: int) -> Part:
    """Return the half of a split that a conversation with this root belongs to.

    It depends on these three alone: what is recorded later moves nothing, and conversations that
    begin alike are never on both sides.
    """
    mixed = hashlib.sha256(f"{seed}:{root}".encode()).digest()
    place = int.from_bytes(mixed[: _SPLIT_BITS // 8], "big")
    return "validation" if place < share * 2**_SPLIT_BITS else "train"


async def _wanted_examples(
    store: Store, wanted: Wanted, not_taken: Counter[str] | None
) -> AsyncGenerator[Example | Untaken]:
    async with aclosing(examples(store, wanted, not_taken)) as found:
        async for example in found:
            if isinstance(example, Untaken) or _is_in_part(example, wanted):
                yield example


def _is_in_part(example: Example, wanted: Wanted) -> bool:
    if wanted.split is None or wanted.part is None:
        return True
    return wanted.part == part_of(example.root, *wanted.split)


def _estimate_tokens(value: JSON) -> int:
    return -(-_count_chars(value) // CHARS_PER_TOKEN)


def _count_chars(value: JSON) -> int:
    match value:
        case str():
            return 0 if value.startswith("data:") else len(value)
        case list():
            return sum(map(_count_chars, value))
        case dict():
            return sum(len(key) + _count_chars(item) for key, item in value.items())
        case _:
            return len(str(value))


# --- what is to be said of a file -----------------------------------------------------------------


@dataclass(slots=True)
class FileFacts:
    """One file, as its lines go by."""

    lines: int = 0
    size_bytes: int = 0
    tokens: int = 0
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)

    def add(self, text: bytes, tokens: int) -> None:
        """Take in a line."""
        self.lines += 1
        self.size_bytes += len(text)
        self.tokens += tokens
        self.digest.update(text)

    def json(self) -> dict[str, JSON]:
        """Render it."""
        return {
            "lines": self.lines,
            "bytes": self.size_bytes,
            "sha256": self.digest.hexdigest(),
            "tokens": self.tokens,
        }


class Tally:
    """Adds up what is to be said of lines; of what they say it keeps nothing."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        parts = ("train", "validation") if wanted.split is not None else ("all",)
        self._files = {
            part: FileFacts() for part in parts if wanted.part is None or part == wanted.part
        }
        self._models: Counter[str] = Counter()
        self._secrets: Counter[str] = Counter()
        self.not_taken: Counter[str] = Counter()  # for `lines` to count in
        self._codes = {name: Counter[str]() for name in ("mended", "kept", "left_out")}
        self._mended_count = 0
        self._left_out_count = 0
        self._touched_count = 0
        self.sessions = 0  # lines come session by session
        self._session: str | None = None

    @property
    def lines(self) -> int:
        """How many lines there are by now."""
        return sum(facts.lines for facts in self._files.values())

    def add(self, line: Line) -> None:
        """Take in a line."""
        if not line.is_taken:
            return  # it is in `not_taken`
        if line.session != self._session:
            self._session = line.session
            self.sessions += 1
        self._secrets.update(line.secrets)
        if line.text is None:
            self._left_out_count += 1
            self._codes["left_out"][line.findings[-1].code] += 1
            return
        self._files[line.part or "all"].add(line.text, line.tokens)
        known = line.model in self._models or len(self._models) < MODELS_MAX
        self._models[line.model if known else OTHER_MODELS] += 1
        self._touched_count += line.touched
        self._mended_count += any(finding.is_mended for finding in line.findings)
        for finding in line.findings:
            self._codes["mended" if finding.is_mended else "kept"][finding.code] += 1

    def counts(self) -> dict[str, JSON]:
        """Return what a report ends with."""
        return {
            "lines": self.lines,
            "mended": self._mended_count,
            "left_out": self._left_out_count,
            "not_taken": _by_count(self.not_taken),
            "sessions": self.sessions,
            "touched": self._touched_count,
            "secrets": _by_count(self._secrets),
            "findings": {name: _by_count(codes) for name, codes in self._codes.items()},
        }

    def manifest(self) -> dict[str, JSON]:
        """Describe the file, or the two of a split."""
        split = self._wanted.split
        return {
            "format": self._wanted.format,
            "agentstate": __version__,
            "filters": filters_json(self._wanted),
            "split": None if split is None else {"validation": split[0], "seed": split[1]},
            "files": {part: facts.json() for part, facts in self._files.items()},
            "tokens": {
                "estimated": sum(facts.tokens for facts in self._files.values()),
                "how": HOW_TOKENS,
            },
            "models": _by_count(self._models),
            **self.counts(),
        }


def filters_json(wanted: Wanted) -> dict[str, JSON]:
    """Return which conversations are wanted; null = not asked about."""
    return {
        "session": wanted.session,
        "status": wanted.status,
        "tags": dict(wanted.tags),
        "search": wanted.search,
        "parent": wanted.parent,
        "forked_from": wanted.forked_from,
        "since_ms": wanted.since_ms,
        "until_ms": wanted.until_ms,
        "model": wanted.model,
        "tool": wanted.tool,
        "cost_max_microusd": wanted.cost_max_microusd,
        "touched": wanted.touched,
        "include_failed": wanted.include_failed,
        "include_cut": wanted.include_cut,
        "include_rolled_back": wanted.include_rolled_back,
        "include_replaced": wanted.include_replaced,
        "dedupe": wanted.dedupe,
        "images": wanted.images,
        "part": wanted.part,
    }


def line_json(line: Line, number: int | None) -> dict[str, JSON]:
    """Render what was found in a line; `number` is its place in the file from 1, None = it has
    none."""
    return {
        "line": number,
        "session": line.session,
        "index": line.index,
        "is_left_out": line.text is None,
        "secrets": dict(line.secrets),
        "findings": [
            {
                "code": finding.code,
                "path": finding.path,
                "message": finding.message,
                "is_mended": finding.is_mended,
            }
            for finding in line.findings
        ],
    }


def _by_count(counts: Counter[str]) -> dict[str, JSON]:
    return dict(counts.most_common())
