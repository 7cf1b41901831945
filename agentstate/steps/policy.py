"""Says which tool calls a person must decide, which a rule refuses, and which pass. Pure.

Theory of operation. A rule of `[[gate.rule]]` matches a call by its name, and by its arguments if
it has a `when`. Among the rules that match deny > ask > allow; if none does, `gate.tools` asks;
else the call passes. `judge` says so of an assembled call. Before a call is assembled only its name
is known, or a part of it, or only the request it will answer: `could_hold`, `could_become` and
`is_named_in` then say whether a call that is held may come of it.

The gate fails closed:

1. A rule that asks or denies sees a name in every reading of `names.py`, one that allows in the
   plain one alone.
2. Where a `when` cannot be told (see `ground/conditions.py`), a rule that allows does not match,
   and one that asks or denies asks: a person can look, a rule cannot.
3. Arguments that two readers could take differently (no JSON, a key twice, no object) are asked
   about if any rule or `gate.tools` names the tool, whatever the rules say; only a rule that denies
   without a `when` still denies.
4. A call that names no tool, or one by a name longer than any, is asked about: nobody can say
   what a client makes of it. (Where there is neither a rule nor `gate.tools`, all calls pass; and
   in a text such a thing is prose, up to a length.)

Free text (custom tools, calls that a text spells) is malformed by nothing. A `when` finds it as
`args.input`. Where it is a JSON object, as ReAct agents write it, rules that ask or deny look into
that as well; where it is not, what else they ask for cannot be told.

The invariant that streams lean on: of a name for which `judge` would not allow every call, each
beginning that reaches into its last segment has `could_hold` or `could_become`. (Before the last
separator nothing tells a name from any other; and a name is too long only once it is.)
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

from agentstate.ground.approvals import Then
from agentstate.ground.canonical import JSON, canonical, digest, parse
from agentstate.ground.conditions import Condition, Truth
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.globs import Glob
from agentstate.ground.settings import GateSettings, RuleSettings
from agentstate.steps.arguments import read_arguments
from agentstate.steps.names import (
    NAME_CHARS_MAX,
    call_readings,
    call_stems,
    exact,
    exact_beginnings,
    exact_readings,
    is_blank,
    loose,
    loose_beginnings,
    loose_readings,
    shorter_units,
)

Action = Literal["ask", "deny", "allow"]

TEXT_KIND = "text"  # of a call that a text spells
FREE_TEXT_KINDS = frozenset(("custom", TEXT_KIND))
PLAIN_KINDS = FREE_TEXT_KINDS | {"function"}  # every other kind is the type of a built-in one
# Types whose calls carry a name besides. A rule knows them by the type's own name alone, so that
# `mcp_*` means names; of the other built-in calls the type is the name.
NAMED_TYPES = ("mcp_call", "mcp_approval_request", "mcp_tool_use", "server_tool_use")

NAMES_REMEMBERED_MAX = 1024  # an agent has some tens of tools; each name is at most 256 characters
# Up to here a name that is too long for one is looked into all the same: it may be padded.
NAME_READ_CHARS_MAX = 16 * NAME_CHARS_MAX
NEEDLE_LETTERS_MIN = 3  # a shorter part of a glob is in every text


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is to be done with a call, and by which rule."""

    action: Action
    rule: str  # for people, e.g. 'gate.rule 2: stripe_*'; '' = no rule names the call
    why: str  # where the rule alone does not say it; '' = it does
    then: Then | None = None  # what follows a refusal; None = the rule does not say
    reason: str | None = None  # what the model or the client is told; None = the rule does not say


_PASSES = Verdict("allow", "", "")


class Policy:
    """The rules of `[gate]`, compiled."""

    def __init__(self, settings: GateSettings) -> None:
        """Compile the rules.

        Raises:
            SettingError: a glob or a condition is none; `load.py` has refused such a file before.
        """
        self._rules = tuple(
            _Rule(number, row) for number, row in enumerate(settings.rules, start=1)
        )
        self._tools = tuple(_Guard(text) for text in settings.tools)
        guards = [*self._tools, *(rule.guard for rule in self._rules if rule.action != "allow")]
        self._needles = _Needles(guard.text for guard in guards)
        # While the type of a call is not known, it could be any.
        self._guards_types = any(
            guard.is_type(kind)
            for guard in (*self._tools, *(rule.guard for rule in self._rules))
            for kind in NAMED_TYPES
        )
        # Made here and not above the methods, so that what is remembered ends with the policy.
        self._find = lru_cache(NAMES_REMEMBERED_MAX)(self._search)
        self._becomes = lru_cache(NAMES_REMEMBERED_MAX)(self._search_beginning)

    @property
    def is_empty(self) -> bool:
        """Whether every call passes: there is no rule and no guarded tool."""
        return not (self._rules or self._tools)

    def judge(self, name: str, arguments: str, kind: str) -> Verdict:
        """Say what is to be done with a call. `kind` as in `ToolCall`, or `TEXT_KIND`."""
        if self.is_empty:
            return _PASSES
        matched = self._match(name, kind)
        if not matched.is_any:
            return _PASSES
        seen = _Seen(arguments, kind)
        asks: Verdict | None = None
        allows: Verdict | None = None
        for rule in matched.rules:
            truth = rule.holds(seen)
            if rule.action == "deny" and truth is True:
                return rule.verdict("deny")
            if rule.action == "allow":
                allows = allows or (rule.verdict("allow") if truth else None)
            elif truth is not False and (asks is None or (asks.why and truth)):
                asks = rule.verdict("ask", "" if truth else rule.doubt())
        if odd := seen.fault or matched.fault:
            return replace(asks or Verdict("ask", matched.label, ""), why=odd)
        tools = None if matched.tools is None else Verdict("ask", matched.tools, "")
        return asks or allows or tools or _PASSES

    def could_hold(self, name: str, kind: str | None = None) -> bool:
        """Say whether there are arguments with which `judge` would not allow the call.

        So it is whether any rule names it, since malformed arguments are always asked about.
        `kind` None = it is not known (yet).
        """
        if self.is_empty:
            return False
        return (kind is None and self._guards_types) or self._match(name, kind).is_any

    def could_spell(self, name: str) -> bool:
        """The same of a call that a text spells."""
        return self.could_hold(name, TEXT_KIND)

    def could_become(self, name_so_far: str) -> bool:
        """Say whether a name that is still arriving, or its last segment, is the proper beginning
        of one for which `could_hold`."""
        if self.is_empty:
            return False
        if len(name_so_far) > NAME_CHARS_MAX:
            return True
        return self._becomes(name_so_far)

    def is_named_in(self, raw: bytes) -> bool:
        """Say whether a request body names a guarded tool anywhere: a tool, a prompt, a result.

        Looks at bytes: some two milliseconds for a megabyte. It may say yes where only a part of a
        name is there; a glob without a part that tells is named in everything.
        """
        return self._needles.are_in(raw)

    def digest_of(self, name: str, arguments: str) -> bytes:
        """Return the SHA-256 over a call: its exact name, and its arguments in canonical form, or
        as they are where they have none."""
        try:
            form, text = b"json", canonical(_parse(arguments))
        except BadRequest:
            form, text = b"text", arguments.encode("utf-8", "surrogatepass")
        return digest(name.encode("utf-8", "surrogatepass"), form, text)

    def _match(self, name: str, kind: str | None) -> _Matched:
        is_long = len(name) > NAME_CHARS_MAX or (kind is not None and len(kind) > NAME_CHARS_MAX)
        return self._search(name, kind) if is_long else self._find(name, kind)

    def _search(self, name: str, kind: str | None) -> _Matched:
        """Find what names a call; `kind` None = it may be of any."""
        fault = _fault_of(name, kind)
        if len(name) > NAME_READ_CHARS_MAX:
            return _Matched((), None, fault)
        spelled = _Spelled.of(name, kind)
        rules = tuple(rule for rule in self._rules if rule.names(spelled))
        tools = next((guard.text for guard in self._tools if guard.guards(spelled)), None)
        return _Matched(rules, None if tools is None else f"gate.tools: {tools}", fault)

    def _search_beginning(self, name: str) -> bool:
        exact_ones, loose_ones = exact_beginnings(name), loose_beginnings(name)
        if any(guard.could_go_on(exact_ones, loose_ones) for guard in self._tools):
            return True
        if any(rule.could_go_on(exact_ones, loose_ones) for rule in self._rules):
            return True
        # What it was before it began to grow into a form that counts as the same.
        stems = {stem for one in (*exact_ones, *loose_ones) for stem in call_stems(one)}
        return any(self._match(stem, None).is_any for stem in {*stems, *shorter_units(name)})


def _fault_of(name: str, kind: str | None) -> str:
    """Say what is odd about a name; '' = nothing."""
    longest = NAME_CHARS_MAX
    if kind == TEXT_KIND:
        longest = NAME_READ_CHARS_MAX  # "Action:" may stand before a paragraph, or nothing
    elif is_blank(name):
        return "The call names no tool."
    if len(name) > longest:
        return f"The name of the tool has {len(name)} characters, more than any name."
    return ""


@dataclass(frozen=True, slots=True)
class _Matched:
    """What names a call."""

    rules: tuple[_Rule, ...]
    tools: str | None  # the glob of gate.tools, for people; None = none names it
    fault: str  # what is odd about the name; '' = nothing

    @property
    def is_any(self) -> bool:
        return bool(self.rules or self.fault) or self.tools is not None

    @property
    def label(self) -> str:
        """The first of them, for people."""
        if self.tools is not None and not self.rules:
            return self.tools
        return self.rules[0].label if self.rules else "gate"


@dataclass(frozen=True, slots=True)
class _Spelled:
    """A call's name in all its readings, and its type."""

    exact: frozenset[str]
    loose: frozenset[str]
    named_type: str | None  # one of NAMED_TYPES; None = of no such type

    @classmethod
    def of(cls, name: str, kind: str | None) -> _Spelled:
        """Read a name; `kind` None = the call may be a built-in one, whose type is its name."""
        plain, wide = exact_readings(name), loose_readings(name)
        if kind in PLAIN_KINDS:
            return cls(plain, wide, None)
        plain = frozenset(each for one in plain for each in call_readings(one))
        wide = frozenset(each for one in wide for each in call_readings(one))
        return cls(plain, wide, kind if kind in NAMED_TYPES else None)


class _Guard:
    """A glob of tool names in both folds."""

    __slots__ = ("exact", "loose", "text")

    def __init__(self, text: str) -> None:
        self.text = text
        self.exact = Glob(text, exact)
        self.loose = Glob(text, loose)

    def guards(self, spelled: _Spelled) -> bool:
        """Say whether any reading of the name matches, or the type is named."""
        return self.allows(spelled) or any(map(self.loose.matches, spelled.loose))

    def allows(self, spelled: _Spelled) -> bool:
        """Say the same of the plain reading alone."""
        is_named = spelled.named_type is not None and self.is_type(spelled.named_type)
        return is_named or any(map(self.exact.matches, spelled.exact))

    def is_type(self, kind: str) -> bool:
        """Say whether this is the name of a type, with or without its `_call`."""
        return self.exact.is_literal and any(map(self.exact.matches, call_readings(kind)))

    def could_go_on(self, exact_ones: Iterable[str], loose_ones: Iterable[str]) -> bool:
        """Say whether a longer name matches."""
        return any(map(self.exact.could_go_on, exact_ones)) or any(
            map(self.loose.could_go_on, loose_ones)
        )


class _Rule:
    """One rule."""

    __slots__ = ("action", "condition", "guard", "label", "reason", "then")

    def __init__(self, number: int, row: RuleSettings) -> None:
        self.guard = _Guard(row.tool)
        self.action: Action = row.action
        self.condition = None if row.when is None else Condition(row.when)
        self.then: Then | None = row.then
        self.reason = row.reason
        when = "" if row.when is None else f" when {shorten(row.when)}"
        self.label = f"gate.rule {number}: {row.tool}{when}"

    def names(self, spelled: _Spelled) -> bool:
        """Say whether the rule is about a tool of this name."""
        is_open = self.action == "allow"
        return self.guard.allows(spelled) if is_open else self.guard.guards(spelled)

    def could_go_on(self, exact_ones: Iterable[str], loose_ones: Iterable[str]) -> bool:
        """Say whether it is about a tool of a longer name."""
        return self.guard.could_go_on(exact_ones, () if self.action == "allow" else loose_ones)

    def holds(self, seen: _Seen) -> Truth:
        """Say whether the rule's condition holds; None = it cannot be told."""
        if self.condition is None:
            return True
        return seen.proves(self.condition) if self.action == "allow" else seen.shows(self.condition)

    def doubt(self) -> str:
        """Say why it is asked where the condition cannot be told."""
        assert self.condition is not None, "without a condition there is no doubt"
        return f"From these arguments it cannot be told whether {shorten(self.condition.text)}."

    def verdict(self, action: Action, why: str = "") -> Verdict:
        """Return what comes of a match."""
        return Verdict(action, self.label, why, self.then, self.reason)


class _Seen:
    """A call's arguments as rules see them."""

    __slots__ = ("_object", "_text", "fault")

    def __init__(self, arguments: str, kind: str) -> None:
        self.fault = ""  # why no rule may look into them; '' = they may
        self._text: dict[str, JSON] | None = None  # free text, as `args.input`; None = it is none
        self._object: dict[str, JSON] | None = None  # None = they are no object
        try:
            self._object = read_arguments(arguments)
        except BadRequest as error:
            self.fault = error.message
        if kind in FREE_TEXT_KINDS:
            self.fault = ""
            self._text = {"input": arguments}

    def proves(self, condition: Condition) -> Truth:
        """Say whether a condition surely holds."""
        if self.fault:
            return None
        if self._text is not None:
            return condition.holds(self._text, proves=True)
        return condition.holds(self._object, proves=True)

    def shows(self, condition: Condition) -> Truth:
        """Say whether a condition holds in any way the arguments can be read."""
        if self.fault:
            return None
        truths: list[Truth] = []
        if self._object is not None:
            truths.append(condition.holds(self._object))
        if self._text is not None:
            truths.append(condition.holds(self._text, is_whole=self._object is not None))
        return True if True in truths else None if None in truths else False


class _Needles:
    """Looks for the tell-tale parts of globs in raw JSON."""

    def __init__(self, globs: Iterable[str]) -> None:
        # Where a name that matches is, all parts of one of these are. A glob with no part that
        # tells is among them as (), which is everywhere.
        self._needles = tuple({_needles_of(glob) for glob in globs})
        # JSON may write any character as \u00xx. Undone for the needles' own only: some encoders
        # escape every < and &, and each one costs a call.
        sought = {char for parts in self._needles for part in parts for char in part}
        codes = "|".join(f"{char:02x}" for char in range(256) if _FOLD[char] in sought)
        self._escape = re.compile(rb"\\u00(%b)" % codes.encode())

    def are_in(self, raw: bytes) -> bool:
        """Say whether a body may name a tool that one of the globs matches."""
        folded = raw.translate(_FOLD)
        if self._find(folded):
            return True
        if not self._needles or (b"\\u00" not in folded and b"\\/" not in folded):
            return False
        plain = self._escape.sub(lambda found: bytes.fromhex(found[1].decode()), folded)
        return self._find(plain.replace(b"\\/", b"/").translate(_FOLD))

    def _find(self, folded: bytes) -> bool:
        return any(all(part in folded for part in parts) for parts in self._needles)


# As bytes that hold a name are looked at: without case, a hyphen or a blank as `_`.
_FOLD = bytes.maketrans(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ -", b"abcdefghijklmnopqrstuvwxyz__")
_WILD = re.compile(r"\*|\?|\[!?\]?[^\]]*\]|[^\x00-\x7f]+")


def _needles_of(glob: str) -> tuple[bytes, ...]:
    """Return the parts that each name a glob matches has in it.

    Of what is beyond ASCII there are too many spellings to look for; the rest of the name will do.
    """
    parts = [part.lower() for part in _WILD.split(glob)]
    parts[-1] = parts[-1].removesuffix("_call")  # `shell_call` may be offered as `shell`
    if len(parts) > 1:
        parts = [part for part in parts if sum(map(str.isalpha, part)) >= NEEDLE_LETTERS_MIN]
    return tuple(part.encode("ascii").translate(_FOLD) for part in parts)


def _parse(arguments: str) -> JSON:
    return parse(arguments.encode("utf-8", "surrogatepass")) if arguments.strip() else {}
