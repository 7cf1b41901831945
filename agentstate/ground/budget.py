"""Budgets: caps on what a session pays, how much of them is used, and what is asked at a cap. Pure.

Who may say what, for each cap by itself: what a person set for the session stands; else the lower
one of configuration and header, so a header can only tighten. Where a person was asked and let the
session go on, its limit is further up than the cap. The counterparts are `store/base_budget.py`,
which keeps all but the configuration, and `steps/budget.py`, which asks and waits.

Money is integer micro-dollars within, dollars (`cost_usd`) where people read and write it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from agentstate.ground.canonical import JSON, digest, encode, parse
from agentstate.ground.errors import BadRequest, shorten

CapName = Literal["steps", "tokens", "cost_usd", "repeats"]
# steps    answers that were paid       cost_usd  what they cost, as far as prices are known
# tokens   in and out, all of them      repeats   how often in a row the model asked for the same
CAPS: tuple[CapName, ...] = get_args(CapName)

BudgetAction = Literal["hold", "refuse"]  # at a cap: ask a person, or answer 429
Source = Literal["configuration", "header", "person"]

CAP_MAX = 10**12  # as counts of the store: a trillion tokens, a million dollars
TOOL = "budget."  # what a question is about is named as the setting: budget.steps

_COUNT = re.compile(r"[0-9]{1,13}\Z")
_DOLLARS = re.compile(r"([0-9]{1,7})(?:\.([0-9]{1,6}))?\Z")


@dataclass(frozen=True, slots=True)
class Caps:
    """What somebody says; None = nothing is said."""

    steps: int | None = None
    tokens: int | None = None
    cost_microusd: int | None = None
    repeats: int | None = None
    action: BudgetAction | None = None

    def of(self, cap: CapName) -> int | None:
        """Return one cap; of cost_usd in micro-dollars."""
        match cap:
            case "steps":
                return self.steps
            case "tokens":
                return self.tokens
            case "cost_usd":
                return self.cost_microusd
            case "repeats":
                return self.repeats

    def having(self, cap: CapName, amount: int | None) -> Caps:
        """Return these with another one in its place."""
        match cap:
            case "steps":
                return replace(self, steps=amount)
            case "tokens":
                return replace(self, tokens=amount)
            case "cost_usd":
                return replace(self, cost_microusd=amount)
            case "repeats":
                return replace(self, repeats=amount)

    @property
    def has_any(self) -> bool:
        """Whether there is a cap at all."""
        return any(self.of(cap) is not None for cap in CAPS)


@dataclass(frozen=True, slots=True)
class Spent:
    """What a session has paid: answers recorded in it and not taken back, never replays, joins or
    what it shares with the session it was forked from."""

    steps: int = 0
    tokens: int = 0
    cost_microusd: int = 0
    unknown_costs: int = 0  # answers whose cost is not known, so no cap on cost can see them
    repeats: int = 0  # answers in a row, up to the last, that asked for the same tool calls
    row: int = 0  # names that row: how many had been paid before it

    def of(self, cap: CapName) -> int:
        """Return what counts towards a cap."""
        match cap:
            case "steps":
                return self.steps
            case "tokens":
                return self.tokens
            case "cost_usd":
                return self.cost_microusd
            case "repeats":
                return self.repeats


NO_CAPS = Caps()
NOTHING_SPENT = Spent()


@dataclass(frozen=True, slots=True)
class Budget:
    """What is on record of a session's budget."""

    spent: Spent = NOTHING_SPENT
    set: Caps = NO_CAPS  # by a person, for this session
    said: Caps = NO_CAPS  # by its agent, when it last said something
    until: Caps = NO_CAPS  # up to where people let it go on; of repeats for the present row alone
    changes: int = 0  # how often a person changed something of it
    created_ms: int = 0  # of the session; 0 = it is not on record yet
    set_ms: int | None = None  # None = nobody set anything
    set_by: str | None = None
    is_asked: bool = False  # a question about it is not decided


@dataclass(frozen=True, slots=True)
class BudgetChange:
    """What a person sets for a session."""

    caps: Mapping[CapName, int | None] = field(default_factory=dict)  # None = as others say
    action: BudgetAction | None = None  # None = it stays
    clears: bool = False  # first take away all that was set, and all that was let go on


@dataclass(frozen=True, slots=True)
class Limit:
    """One cap that is in force, and how much of it is used."""

    cap: CapName
    amount: int  # the cap itself
    source: Source
    limit: int  # the same, or how far a person let it go on
    used: int

    @property
    def left(self) -> int:
        """How much is left, at least 0."""
        return max(self.limit - self.used, 0)

    @property
    def is_reached(self) -> bool:
        """Whether nothing more may be paid."""
        return self.used >= self.limit

    @property
    def setting(self) -> str:
        """The name of the setting, as in budget.steps."""
        return TOOL + self.cap


def limits_of(budget: Budget, configured: Caps, said: Caps | None) -> tuple[Limit, ...]:
    """Return the caps in force, in the order of `CAPS`.

    `said`: what the call's own header says; None = what its agent said before.
    """
    said = budget.said if said is None else said
    found: list[Limit] = []
    for cap in CAPS:
        amount, source = _chosen(budget.set.of(cap), configured.of(cap), said.of(cap))
        if amount is not None:
            limit = max(amount, budget.until.of(cap) or 0)
            found.append(Limit(cap, amount, source, limit, budget.spent.of(cap)))
    return tuple(found)


def action_of(budget: Budget, configured: Caps, said: Caps | None) -> BudgetAction:
    """Return what happens at a cap. A header cannot make a question of a refusal that is set."""
    said = budget.said if said is None else said
    if budget.set.action is not None:
        return budget.set.action
    if said.action is not None and (said.action == "refuse" or not configured.has_any):
        return said.action
    return configured.action or "hold"


def name_of(session: str, budget: Budget, limit: Limit) -> bytes:
    """Return a digest that names one reaching of a cap: the same until a person changes something,
    or the model asks for something else."""
    facts = [limit.cap, str(limit.limit), str(budget.changes), str(budget.created_ms)]
    if limit.cap == "repeats":
        facts.append(str(budget.spent.row))
    return digest(b"budget", session.encode("utf-8", "replace"), *(one.encode() for one in facts))


def why_of(limit: Limit, unknown_costs: int) -> str:
    """Say how a cap stands, for people."""
    match limit.cap:
        case "steps":
            return f"{limit.used} of {limit.limit} paid steps are used"
        case "tokens":
            return f"{limit.used} of {limit.limit} tokens are used"
        case "cost_usd":
            unseen = f"; the cost of {unknown_costs} more is not known" if unknown_costs else ""
            return f"${dollars(limit.used)} of ${dollars(limit.limit)} are spent{unseen}"
        case "repeats":
            return (
                f"the model asked for the same {limit.used} times in a row; {limit.limit} are "
                "allowed"
            )


def shown(cap: CapName, amount: int) -> int | float:
    """Return an amount as people write it: dollars for money."""
    return amount / 1_000_000 if cap == "cost_usd" else amount


def dollars(microusd: int) -> str:
    """Return money with two digits after the point, or as many as it takes."""
    whole, rest = divmod(microusd, 1_000_000)
    return f"{whole}.{f'{rest:06d}'.rstrip('0'):0<2}"


def microusd_of(usd: float) -> int:
    """Return dollars as micro-dollars."""
    return round(usd * 1_000_000)


def read_amount(cap: CapName, text: str) -> int | None:
    """Read the amount of a cap as somebody wrote it; None = it is none."""
    if cap == "cost_usd":
        found = _DOLLARS.match(text)
        if found is None:
            return None
        return int(found[1]) * 1_000_000 + int((found[2] or "").ljust(6, "0"))
    if not _COUNT.match(text) or int(text) > CAP_MAX:
        return None
    return None if cap == "repeats" and int(text) == 0 else int(text)


def expected(cap: CapName) -> str:
    """Say what the amount of a cap must be."""
    match cap:
        case "steps" | "tokens":
            return "an integer from 0"
        case "cost_usd":
            return "dollars from 0, with at most six digits after the point"
        case "repeats":
            return "an integer from 1"


def offer_of(limit: Limit) -> str:
    """Return what a question offers, as its arguments: as much again as the cap."""
    offered = max(limit.amount, 1)  # of a cap of 0 the next one
    if limit.cap != "cost_usd":
        return encode({"more": offered}).decode()
    return f'{{"more":{dollars(max(limit.amount, 10_000))}}}'


def read_more(cap: CapName, arguments: str) -> int:
    """Read how much more a decision lets a session pay.

    Raises:
        BadRequest: it is no object with "more" alone, or nothing that is more.
    """
    try:
        value: JSON = parse(arguments.encode("utf-8", "surrogatepass"))
    except BadRequest:
        value = None
    more = value.get("more") if isinstance(value, dict) and set(value) == {"more"} else None
    is_number = more is not None and not isinstance(more, bool | str | list | dict)
    amount = read_amount(cap, encode(more).decode("ascii")) if is_number else None
    if not amount:
        raise BadRequest(
            f'The arguments must be {{"more": N}}, how much of {cap} the session may use from now '
            f"on: {expected(cap)}, and not 0; found {shorten(arguments)}.",
            param="arguments",
        )
    return amount


def schema_of_more(cap: CapName) -> JSON:
    """Return the JSON schema of what `read_more` takes."""
    kind = "number" if cap == "cost_usd" else "integer"
    more: JSON = {"type": kind, "description": f"how much more of {cap}, from now on"}
    return {
        "type": "object",
        "properties": {"more": more},
        "required": ["more"],
        "additionalProperties": False,
    }


def cap_of(tool: str) -> CapName:
    """Return which cap a question is about, by its tool."""
    for cap in CAPS:
        if tool == TOOL + cap:
            return cap
    raise AssertionError(f"{tool!r} is no cap")


def _chosen(
    set_amount: int | None, configured: int | None, said: int | None
) -> tuple[int | None, Source]:
    if set_amount is not None:
        return set_amount, "person"
    if said is not None and (configured is None or said < configured):
        return said, "header"
    return configured, "configuration"
