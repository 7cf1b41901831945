"""Arguments are an object that reads in one way, or they are refused."""

from __future__ import annotations

import pytest

from agentstate.ground.errors import BadRequest
from agentstate.steps.arguments import read_arguments


@pytest.mark.parametrize(
    ("arguments", "value"),
    [
        ("", {}),
        (" \n", {}),
        ("{}", {}),
        (' {"a": 12345678901234567890} ', {"a": 12345678901234567890}),
        ('{"a": "\\ud83d"}', {"a": "\ud83d"}),
    ],
)
def test_an_object_or_nothing_is_taken(arguments: str, value: dict[str, object]) -> None:
    assert read_arguments(arguments) == value


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ("{", "are not JSON"),
        ("null", "are null or nothing"),
        ('"{}"', "are a string"),
        ("5", "are the number 5"),
        ('{"a": 1} {"b": 2}', "are not JSON"),
        ('{"a": 1}x', "are not JSON"),
        ("{'a': 1}", "are not JSON"),
        ('{"a": Infinity}', "are not JSON"),
        ('{"a": "\n"}', "are not JSON"),
        ('\ufeff{"a": 1}', "are not JSON"),
        ('{"a": "\ud83d"}', "are not JSON"),
        ('{"a": ' + "9" * 5000 + "}", "are not JSON"),
        ('{"a": {"b": 1, "b": 2}}', "name the key 'b' twice in one object"),
        ("[" * 100_000, "are nested too deeply to be read"),
    ],
)
def test_everything_else_is_refused(arguments: str, fault: str) -> None:
    with pytest.raises(BadRequest) as caught:
        read_arguments(arguments)

    assert caught.value.message == f"The arguments {fault}; a JSON object is expected."
