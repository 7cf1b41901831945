"""What an agent says of its budget in a header, and what a person sends of it. Pure.

x-agent-budget: steps=50,tokens=200000,cost_usd=1.50,repeats=5,action=refuse
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast, get_args

from agentstate.ground.budget import (
    CAPS,
    BudgetAction,
    BudgetChange,
    CapName,
    Caps,
    expected,
    read_amount,
)
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.load import nearest

HEADER = b"x-agent-budget"


def parse_budget(text: str, source: str) -> Caps:
    """Read `steps=50,action=refuse` into caps.

    Raises:
        BadRequest: it is something else, or names something twice.
    """
    found = Caps()
    seen: set[str] = set()
    for item in text.split(","):
        name, separator, value = (part.strip() for part in item.partition("="))
        if not separator:
            raise BadRequest(
                f"{source} must be name=value pairs, separated by commas, such as "
                f"steps=50,cost_usd=1.50; found {shorten(item)!r}.",
                param=source,
            )
        if name in seen:
            raise BadRequest(f"{source} names {name} twice.", param=source)
        seen.add(name)
        if name == "action":
            found = replace(found, action=_action(value, f"{source}: action", source))
        elif name in CAPS:
            cap: CapName = name
            found = found.having(cap, _amount(cap, value, f"{source}: {cap}", source))
        else:
            known = nearest(name, (*CAPS, "action"))
            raise BadRequest(f"{source}: there is no cap {shorten(name)!r}. {known}", param=source)
    return found


def read_change(sent: Mapping[str, JSON]) -> BudgetChange:
    """Read what a person sets: caps by name, null = as others say; action; clear.

    Raises:
        BadRequest: one of them cannot be, or nothing is said.
    """
    caps: dict[CapName, int | None] = {}
    for cap in CAPS:
        if cap in sent:
            value = sent[cap]
            text = "" if isinstance(value, str | bool) else encode(value).decode("ascii")
            shown = shorten(encode(value).decode("ascii"))
            caps[cap] = None if value is None else _amount(cap, text, f'"{cap}"', cap, shown)
    action = sent.get("action")
    clears = sent.get("clear")
    if not (clears is None or isinstance(clears, bool)):
        found = shorten(encode(clears).decode("ascii"))
        raise BadRequest(f'"clear" must be true or false; found {found}.', param="clear")
    change = BudgetChange(
        caps,
        None if action is None else _action(action, '"action"', "action"),
        clears=bool(clears),
    )
    if change == BudgetChange():
        names = ", ".join((*CAPS, "action"))
        raise BadRequest(f"The body names nothing to set: send {names} or clear.")
    return change


def _amount(cap: CapName, text: str, where: str, param: str, shown: str | None = None) -> int:
    amount = read_amount(cap, text)
    if amount is None:
        found = repr(shorten(text)) if shown is None else shown
        raise BadRequest(f"{where} must be {expected(cap)}; found {found}.", param=param)
    return amount


def _action(value: JSON, where: str, param: str) -> BudgetAction:
    if isinstance(value, str) and value in get_args(BudgetAction):
        return cast(BudgetAction, value)
    found = shorten(encode(value).decode("ascii"))
    raise BadRequest(f"{where} must be hold or refuse; found {found}.", param=param)
