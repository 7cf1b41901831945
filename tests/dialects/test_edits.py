"""What a person may write in place of a model's arguments."""

import pytest

from agentstate.dialects.edits import read_new_arguments
from agentstate.ground.canonical import Number
from agentstate.ground.errors import BadRequest


def test_an_object_is_taken_and_its_numbers_keep_their_text() -> None:
    assert read_new_arguments('{"id": 2512292042121000001, "x": 1.0}') == {
        "id": 2512292042121000001,
        "x": Number("1.0"),
    }


@pytest.mark.parametrize("text", ["", "{", "[]", '"x"', "null", '{"a":1,"a":2}', '{"a":NaN}'])
def test_anything_else_is_refused_and_the_field_named(text: str) -> None:
    with pytest.raises(BadRequest, match="new arguments must be a JSON object") as raised:
        read_new_arguments(text)
    assert raised.value.param == "arguments"
