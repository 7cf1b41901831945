"""What the linter mends in the messages of a line, one by one and together."""

from __future__ import annotations

from typing import Any

import pytest

from agentstate.ground.canonical import encode
from tests.house.test_export_lint import BYE, USER, called, chat, mend, result, tool


@pytest.mark.parametrize(
    ("message", "mended", "code"),
    [
        ({"role": "developer", "content": "s"}, {"role": "system", "content": "s"}, "role_renamed"),
        ({**USER, "name": "ann"}, USER, "key_removed"),
        ({**USER, "weight": 1}, USER, "key_removed"),
        (
            {"role": "user", "content": [{"type": "text", "text": "weather?"}]},
            USER,
            "content_joined",
        ),
        ({"role": "system"}, {"role": "system", "content": ""}, "content_missing"),
    ],
)
def test_a_message_is_mended(message: Any, mended: Any, code: str) -> None:
    line, codes = mend(chat(message, USER, BYE))

    assert line["messages"] == [mended, USER, BYE]
    assert codes == [code]


@pytest.mark.parametrize(
    ("answer", "mended", "code"),
    [
        ({**BYE, "refusal": None}, BYE, "key_removed"),
        ({**BYE, "tool_calls": []}, BYE, "key_removed"),
        ({**BYE, "weight": 0.5}, BYE, "weight_removed"),
        ({**BYE, "weight": True}, BYE, "weight_removed"),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "content": "no"},
            "content_joined",
        ),
    ],
)
def test_an_answer_is_mended(answer: Any, mended: Any, code: str) -> None:
    line, codes = mend(chat(USER, answer))

    assert line["messages"] == [USER, mended]
    assert codes == [code]


def test_content_beside_calls_that_is_not_there_is_null() -> None:
    answer = called("a")
    del answer["content"]

    line, codes = mend(chat(USER, answer, tools=[tool()]))

    assert line["messages"][1]["content"] is None
    assert codes == ["content_missing"]


def test_pictures_stay_with_users_and_go_from_answers() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}
    words = {"type": "text", "text": "see"}
    asks = {"role": "user", "content": [words, picture]}

    line, codes = mend(chat(asks, {"role": "assistant", "content": [words, picture]}))

    assert line["messages"] == [asks, {"role": "assistant", "content": "see"}]
    assert codes == ["part_removed", "content_joined"]


def test_an_answer_that_says_nothing_is_left_out() -> None:
    line, codes = mend(chat(USER, {"role": "assistant", "content": ""}, USER, BYE))

    assert line["messages"] == [USER, USER, BYE]
    assert codes == ["answer_empty"]


def test_what_follows_the_last_answer_is_left_out() -> None:
    line, codes = mend(chat(USER, BYE, USER))

    assert line["messages"] == [USER, BYE]
    assert codes == ["end_cut"]


# -- calls and results


def test_a_result_is_text() -> None:
    parts = [{"type": "text", "text": "5"}, {"type": "text", "text": "C"}]

    line, codes = mend(chat(USER, called("a"), result("a", parts), BYE, tools=[tool()]))

    assert line["messages"][2] == result("a", "5\nC")
    assert codes == ["content_joined"]


def test_a_result_without_its_call_is_left_out() -> None:
    line, codes = mend(chat(result("x"), USER, called("a"), result("a"), result("y"), BYE))

    assert line["messages"] == [USER, called("a"), result("a"), BYE]
    assert codes == ["result_without_call", "result_without_call", "tool_added"]


def test_a_second_result_is_left_out() -> None:
    line, codes = mend(chat(USER, called("a"), result("a"), result("a", "6"), BYE, tools=[tool()]))

    assert line["messages"] == [USER, called("a"), result("a"), BYE]
    assert codes == ["result_twice"]


def test_a_late_result_is_moved_to_its_call() -> None:
    line, codes = mend(chat(USER, called("a"), USER, result("a"), BYE, tools=[tool()]))

    assert line["messages"] == [USER, called("a"), result("a"), USER, BYE]
    assert codes == ["result_late"]


def test_a_call_without_a_result_is_left_out_and_its_answer_is_not_trained() -> None:
    line, codes = mend(chat(USER, called("a", "b"), result("b"), BYE, tools=[tool()]))

    assert line["messages"] == [USER, called("b", weight=0), result("b"), BYE]
    assert codes == ["call_without_result"]


def test_an_answer_left_without_calls_is_context_if_it_says_something() -> None:
    says = called("a", content="let me look")

    line, _ = mend(chat(USER, called("a"), USER, says, USER, BYE))

    kept = {"role": "assistant", "content": "let me look", "weight": 0}
    assert line["messages"] == [USER, USER, kept, USER, BYE]


def test_calls_of_one_id_get_their_own_and_results_go_by_order() -> None:
    line, codes = mend(
        chat(USER, called("a", "a", "a_2"), *map(result, ("a", "a_2", "a")), BYE, tools=[tool()])
    )

    assert [call["id"] for call in line["messages"][1]["tool_calls"]] == ["a", "a_3", "a_2"]
    assert [each["tool_call_id"] for each in line["messages"][2:5]] == ["a", "a_2", "a_3"]
    assert codes == ["call_id_twice"]


def test_an_id_may_come_again_in_a_later_turn() -> None:
    line = chat(USER, called("a"), result("a"), called("a"), result("a"), BYE, tools=[tool()])

    assert mend(line) == (line, [])


# -- arguments


@pytest.mark.parametrize(
    ("sent", "mended", "code"),
    [
        ("", "{}", "arguments_empty"),
        (None, "{}", "arguments_empty"),
        ('{"a":"two\nlines"}', '{"a":"two\\nlines"}', "arguments_rewritten"),
        ({"a": 1}, '{"a":1}', "arguments_form"),
    ],
)
def test_arguments_are_a_text_of_json(sent: Any, mended: str, code: str) -> None:
    line, codes = mend(chat(USER, called("a", arguments=sent), tools=[tool()]))

    assert line["messages"][1]["tool_calls"][0]["function"]["arguments"] == mended
    assert codes == [code]


def test_arguments_keep_their_very_text() -> None:
    sent = ' {"big": 2512292042121000001, "f":1.10,"a":1,"a":2, "u":"\\u2028\\ud83d"} '
    line = chat(USER, called("a", arguments=sent), tools=[tool()])

    assert mend(line) == (line, [])


def test_arguments_are_an_object_where_the_form_wants_one() -> None:
    sent = '{"big": 2512292042121000001, "f": 1.10}'

    line, codes = mend(chat(USER, called("a", arguments=sent), tools=[tool()]), "trl")

    assert codes == ["arguments_form"]
    assert b'"arguments":{"big":2512292042121000001,"f":1.10}' in encode(line)
