"""What an agent says of its budget in a header, and what a person sends of it."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.ground.budget import BudgetChange, Caps
from agentstate.ground.canonical import parse
from agentstate.ground.errors import BadRequest
from agentstate.steps.caps import parse_budget, read_change

SOURCE = "x-agent-budget"


@pytest.mark.parametrize(
    ("text", "caps"),
    [
        ("steps=50", Caps(steps=50)),
        (
            "steps=50,tokens=200000,cost_usd=1.50,repeats=5,action=refuse",
            Caps(50, 200_000, 1_500_000, 5, "refuse"),
        ),
        (" steps = 0 , action = hold ", Caps(steps=0, action="hold")),
        ("cost_usd=0.000001", Caps(cost_microusd=1)),
    ],
)
def test_a_header_is_read(text: str, caps: Caps) -> None:
    assert parse_budget(text, SOURCE) == caps


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("50", "name=value pairs"),
        ("steps=50,", "name=value pairs"),
        ("steps=50,steps=60", "names steps twice"),
        ("stps=50", 'Did you mean "steps"'),
        ("cost_microusd=5", "no cap"),
        ("steps=-1", "an integer from 0; found '-1'"),
        ("steps=", "an integer from 0"),
        ("repeats=0", "an integer from 1"),
        ("cost_usd=1,50", "name=value pairs"),
        ("cost_usd=$1", "dollars from 0"),
        ("action=ask", "hold or refuse"),
        ("action=", "hold or refuse"),
    ],
)
def test_nonsense_is_refused_with_what_was_expected(text: str, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_budget(text, SOURCE)
    assert said in refused.value.message
    assert SOURCE in refused.value.message
    assert refused.value.param == SOURCE


@pytest.mark.parametrize(
    ("sent", "change"),
    [
        ('{"steps": 5}', BudgetChange({"steps": 5})),
        ('{"steps": null, "cost_usd": 1.5}', BudgetChange({"steps": None, "cost_usd": 1_500_000})),
        ('{"clear": true}', BudgetChange(clears=True)),
        ('{"action": "refuse", "clear": false}', BudgetChange(action="refuse")),
        ('{"tokens": 0, "repeats": 2}', BudgetChange({"tokens": 0, "repeats": 2})),
    ],
)
def test_what_a_person_sends_is_read(sent: str, change: BudgetChange) -> None:
    found: Any = parse(sent.encode())
    assert read_change(found) == change


@pytest.mark.parametrize(
    ("sent", "said"),
    [
        ("{}", "names nothing to set"),
        ('{"by": "ann"}', "names nothing to set"),
        ('{"steps": "5"}', '"steps" must be an integer from 0; found "5"'),
        ('{"steps": 1.0}', "found 1.0"),
        ('{"steps": true}', "found true"),
        ('{"steps": [5]}', "found [5]"),
        ('{"repeats": 0}', "an integer from 1; found 0"),
        ('{"cost_usd": -1}', "dollars from 0"),
        ('{"action": "ask"}', "hold or refuse"),
        ('{"clear": 1}', "true or false"),
    ],
)
def test_what_cannot_be_is_refused(sent: str, said: str) -> None:
    found: Any = parse(sent.encode())
    with pytest.raises(BadRequest) as refused:
        read_change(found)
    assert said in refused.value.message
