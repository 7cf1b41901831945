"""`agentstate sessions budget`: how a session stands with its caps, and to set them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentstate.ground.budget import CAPS, BudgetAction, CapName, dollars, expected, read_amount
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import BadRequest

if TYPE_CHECKING:
    from agentstate.cli_server import Record

ACTIONS: tuple[BudgetAction, ...] = ("hold", "refuse")
_FROM = {
    "configuration": "in the configuration",
    "header": "by x-agent-budget",
    "person": "for this session",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add what can be set; `none` takes away what was set for the session."""
    for cap in CAPS:
        unit = "X" if cap == "cost_usd" else "N"
        said = f"{expected(cap)}; none = as configuration or header say"
        parser.add_argument(f"--{cap.replace('_', '-')}", metavar=unit, help=said)
    parser.add_argument(
        "--action",
        dest="at_cap",  # `action` is what the command line runs
        choices=ACTIONS,
        help="at a cap: ask a person, or answer 429",
    )
    parser.add_argument(
        "--clear", action="store_true", help="first take away what was set and let go on before"
    )


def run(asked: argparse.Namespace) -> int:
    """Set what was said, or show how it stands."""
    sent = _sent(asked)
    path = f"/api/sessions/{quote(asked.session, safe='')}/budget"
    with asked.open_record(asked) as record:
        answer = _answer(record, path, sent, asked.by or asked.login())
    if asked.json:
        print(encode(parse(answer)).decode("ascii"))
    else:
        found = json.loads(answer)
        from agentstate.cli_table import cell

        print(f"{cell(found['session'])}: {found['status']}")
        print("\n".join(budget_lines(found["budget"])))
    return 0


def budget_lines(budget: Mapping[str, Any]) -> list[str]:
    """Return the lines that show a budget; one where there are no caps."""
    used = budget["used"]
    repeats = f", the same asked {used['repeats']} times in a row" if used["repeats"] > 1 else ""
    paid = f"{used['steps']} steps, {used['tokens']:,} tokens, {_usd(used['cost_usd'])}{repeats}"
    if not budget["caps"]:
        return [f"  no caps; paid so far: {paid}"]
    lines = [f"  paid so far: {paid}"]
    for cap, row in budget["caps"].items():
        show = _usd if cap == "cost_usd" else _count
        more = "" if row["limit"] == row["cap"] else f", let go on to {show(row['limit'])}"
        left = "reached" if row["reached"] else f"{show(row['left'])} left"
        lines.append(f"  {cap:<9} {show(row['cap'])} set {_FROM[row['from']]}{more}; {left}")
    then = "a person is asked" if budget["action"] == "hold" else "calls get 429 budget_reached"
    lines.append(f"  at a cap  {then}")
    if budget["note"]:
        lines.append(f"  note      {budget['note']}")
    return lines


def _sent(asked: argparse.Namespace) -> dict[str, JSON]:
    sent: dict[str, JSON] = {}
    for cap in CAPS:
        text = getattr(asked, cap)
        if text is not None:
            sent[cap] = None if text == "none" else _number(cap, text)
    if asked.at_cap is not None:
        sent["action"] = asked.at_cap
    if asked.clear:
        sent["clear"] = True
    return sent


def _number(cap: CapName, text: str) -> JSON:
    if read_amount(cap, text) is None:
        option = cap.replace("_", "-")
        raise BadRequest(f"--{option} must be {expected(cap)}, or none; found {text!r}.")
    whole, point, rest = text.partition(".")
    return parse(f"{whole.lstrip('0') or '0'}{point}{rest}".encode())


def _answer(record: Record, path: str, sent: dict[str, JSON], by: str | None) -> bytes:
    if not sent:
        return record.get(path).raw
    if by is not None:
        sent["by"] = by
    return record.post(path, sent).raw


def _usd(amount: float) -> str:
    return f"${dollars(round(amount * 1_000_000))}"


def _count(amount: int) -> str:
    return f"{amount:,}"
