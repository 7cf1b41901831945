"""The request fields that OpenAI's dialects share."""

from __future__ import annotations

import pytest

from agentstate.dialects.openai_fields import (
    UNCOUNTED,
    counted,
    read_choices,
    read_model,
    read_object,
    read_stream,
)
from agentstate.ground.canonical import JSON, Number
from agentstate.ground.errors import BadRequest


def test_only_what_changes_an_answer_counts() -> None:
    body: dict[str, JSON] = {"model": "m", "messages": [], "x_unknown": 1}
    for key in UNCOUNTED:
        assert counted({**body, key: "x"}, "messages") == {"model": "m", "x_unknown": 1}


@pytest.mark.parametrize("body", [None, [], "x", 1, True])
def test_a_body_that_is_no_object_is_told_what_to_send(body: JSON) -> None:
    with pytest.raises(BadRequest, match="Send this"):
        read_object(body, "this")


@pytest.mark.parametrize("model", [None, "", 7, ["m"]])
def test_a_model_has_a_name(model: JSON) -> None:
    with pytest.raises(BadRequest) as refused:
        read_model({"model": model})
    assert refused.value.param == "model"
    assert read_model({"model": "m"}) == "m"


def test_a_stream_is_asked_for_by_a_boolean() -> None:
    assert [read_stream({"stream": each}) for each in (True, False, None)] == [True, False, False]
    with pytest.raises(BadRequest):
        read_stream({"stream": "true"})


@pytest.mark.parametrize(
    ("n", "choices"),
    [(3, 3), (Number("2.0"), 2), (Number("2.5"), 1), (0, 1), (-1, 1), ("3", 1), (None, 1)],
)
def test_choices_are_a_positive_number_or_one(n: JSON | Number, choices: int) -> None:
    assert read_choices(n) == choices
