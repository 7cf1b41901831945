"""The linter of training data: what it mends, what it gives up, and that the rest is taken."""

from __future__ import annotations

import copy
import json
from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.ground.canonical import encode
from agentstate.house.export_base import Finding, Format
from agentstate.house.export_lint import FINDINGS_MAX, lint
from tests.helpers.training_lines import FORMS, faults

USER = {"role": "user", "content": "weather?"}
BYE = {"role": "assistant", "content": "5 C"}


def called(*ids: str, name: str = "look", arguments: Any = "{}", **more: Any) -> dict[str, Any]:
    """Make an answer that calls a tool once for each id."""
    calls = [
        {"id": each, "type": "function", "function": {"name": name, "arguments": arguments}}
        for each in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls, **more}


def result(call_id: str, content: Any = "5") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def tool(name: str = "look") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}


def chat(*messages: Any, **more: Any) -> dict[str, Any]:
    return {"messages": list(messages), **more}


def mend(line: dict[str, Any], form: Format = "openai") -> tuple[dict[str, Any], list[str]]:
    """Lint a line that can be saved; return it and the codes of what was found."""
    mended, findings = lint(line, form)
    assert mended is not None, findings
    assert faults(encode(mended) + b"\n", form) == ()
    return mended, [finding.code for finding in findings]


def lose(line: dict[str, Any], form: Format = "openai") -> str:
    """Lint a line that cannot be saved; return the code of the reason."""
    mended, findings = lint(line, form)
    assert mended is None
    assert not findings[-1].is_mended
    return findings[-1].code


def test_the_validator_knows_the_same_forms() -> None:
    assert get_args(Format) == FORMS


def test_a_good_line_goes_through_untouched() -> None:
    line = chat(
        {"role": "system", "content": "s"},
        USER,
        called("a", "b", weight=0),
        result("a"),
        result("b"),
        BYE,
        tools=[tool()],
        parallel_tool_calls=False,
    )

    assert mend(line) == (line, [])


def test_a_line_may_end_with_calls() -> None:
    line = chat(USER, called("a", "b"), tools=[tool()])

    assert mend(line) == (line, [])


def test_what_is_handed_over_is_left_as_it_is() -> None:
    line = chat({"role": "developer", "content": [], "x": 1}, called("a", "a"), result("a"), BYE)
    before = copy.deepcopy(line)

    mend(line)

    assert line == before


# -- tools


def test_a_tool_that_is_called_and_not_offered_is_added() -> None:
    line, codes = mend(chat(USER, called("a", name="find"), tools=[tool()]))

    assert [each["function"]["name"] for each in line["tools"]] == ["look", "find"]
    assert codes == ["tool_added"]


def test_tools_are_functions_with_names() -> None:
    odd = {"type": "function", "function": {"name": "f", "strict": None}, "cache_control": {}}
    tools = [{"type": "web_search"}, odd, tool(), tool(), "x", {"type": "function", "function": {}}]

    line, codes = mend(chat(USER, BYE, tools=tools, parallel_tool_calls=True))

    assert line["tools"] == [{"type": "function", "function": {"name": "f"}}, tool()]
    assert codes == ["tool_removed", "tool_keys", "tool_twice", "tool_removed", "tool_removed"]


def test_without_tools_nothing_is_said_of_them() -> None:
    line, codes = mend(chat(USER, BYE, tools=[], parallel_tool_calls=True))

    assert line == chat(USER, BYE)
    assert codes == ["parallel_removed"]


def test_a_name_that_openai_refuses_is_told() -> None:
    line = chat(USER, called("a", name="fs.read"), tools=[tool("fs.read")])

    assert mend(line) == (line, ["tool_name"])


# -- what cannot be saved


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ({}, "no_messages"),
        (chat(), "no_answer"),
        (chat(USER), "no_answer"),
        (chat(USER, {"role": "assistant", "content": None}), "no_answer"),
        (chat("x"), "message_type"),
        (chat({"role": "critic", "content": "x"}), "role_unknown"),
        (chat({"role": "user", "content": 5}), "content_type"),
        (chat(USER, {**BYE, "tool_calls": "x"}), "calls_type"),
        (chat(USER, {**BYE, "tool_calls": [{}]}), "call_type"),
        (chat(USER, called("")), "call_id"),
        (chat(USER, called("a", name="")), "call_name"),
        (chat(USER, called("a", arguments='{"a":')), "arguments_json"),
        # Null in its place would say something else.
        (chat(USER, called("a", arguments='{"a":NaN}')), "arguments_json"),
        (chat(USER, called("a", arguments='{"a":[-Infinity]}')), "arguments_json"),
        (chat(USER, called("a", arguments="[" * 100_000)), "arguments_json"),
        (chat(USER, called("a", arguments='{"n":' + "9" * 5000 + "}")), "arguments_json"),
        (chat(USER, {**BYE, "weight": 0}), "nothing_trained"),
    ],
)
def test_a_line_that_cannot_be_saved_says_why(line: dict[str, Any], code: str) -> None:
    assert lose(line) == code


def test_arguments_that_are_no_object_are_no_line_of_trl() -> None:
    line = chat(USER, called("a", arguments="[1]"), tools=[tool()])

    assert mend(line) == (line, ["arguments_type"])
    assert lose(line, "trl") == "arguments_type"


def test_the_findings_of_a_line_are_bounded() -> None:
    line = chat(USER, *[result("x")] * 1000, BYE, {**USER, "role": "critic"})

    mended, findings = lint(line, "openai")
    assert mended is None
    assert [finding.code for finding in findings] == ["role_unknown"]

    mended, findings = lint(chat(*[{**USER, "x": 1}] * 1000, {**BYE, "weight": 0}), "openai")
    assert mended is None
    assert len(findings) == FINDINGS_MAX + 1
    assert [finding.code for finding in findings[-2:]] == ["more", "nothing_trained"]


# -- characters and numbers


def test_halves_of_one_character_are_joined_and_a_lone_one_survives() -> None:
    line, codes = mend(chat({"role": "user", "content": "\ud83d\ude00 \u2028 \ud83d"}, BYE))

    assert line["messages"][0]["content"] == "\U0001f600 \u2028 \ud83d"
    assert codes == ["half_character"]


@pytest.mark.parametrize("form", ["trl", "axolotl"])
def test_a_lone_half_is_replaced_where_it_would_cost_the_file(form: Format) -> None:
    line, codes = mend(chat({"role": "user", "content": "\ud83d\ude00 \ud83d"}, BYE), form)

    assert line["messages"][0]["content"] == "\U0001f600 \ufffd"
    assert codes == ["half_character"]


@pytest.mark.parametrize(
    ("sent", "held"),
    [
        ("9223372036854775807", 9223372036854775807),
        ("9223372036854775808", "9223372036854775808"),
        ("-9223372036854775809", "-9223372036854775809"),
        ("123456789012345678901234567890.5", 1.2345678901234568e29),
        ("1e400", "1e400"),
        ("1e300", 1e300),
        ("9" * 300, "9" * 300),
    ],
)
def test_a_number_that_would_cost_the_file_is_held_otherwise(sent: str, held: object) -> None:
    line, codes = mend(chat(USER, called("a", arguments=f'{{"n":{sent}}}'), tools=[tool()]), "trl")

    read = json.loads(encode(line))["messages"][1]["tool_calls"][0]["function"]["arguments"]
    assert read == {"n": held}
    assert ("number_large" in codes) == (sent not in ("9223372036854775807", "1e300"))
    text = chat(USER, called("a", arguments=f'{{"n":{sent}}}'), tools=[tool()])
    assert mend(text, "axolotl") == (text, [])


def test_what_is_no_number_costs_the_line() -> None:
    odd = {"type": "function", "function": {"name": "f", "parameters": {"maximum": float("nan")}}}

    mended, findings = lint(chat(USER, BYE, tools=[odd]), "openai")

    assert mended is None
    assert [(each.code, each.is_mended) for each in findings] == [("number", False)]


def test_what_was_known_before_comes_first_and_is_listed_once_with_the_rest() -> None:
    known = [Finding("image_marked", "messages[0].content", "", False)]
    mended, findings = lint(chat(USER, BYE, x=1), "openai", known)
    assert mended == chat(USER, BYE)
    assert [each.code for each in findings] == ["image_marked", "key_removed"]
    _, findings = lint(chat({"role": "critic"}), "openai", known * 200)
    assert len(findings) <= FINDINGS_MAX + 1
    assert findings[-1].code == "role_unknown"


# -- preferences and labels


def preference(**changes: Any) -> dict[str, Any]:
    line = {
        "input": {"messages": [USER], "tools": [tool()], "parallel_tool_calls": True},
        "preferred_output": [called("a", arguments='{"x":1}')],
        "non_preferred_output": [called("a", arguments='{"x":2}')],
    }
    return {**line, **changes}


def test_a_preference_goes_through_untouched() -> None:
    assert mend(preference(), "dpo") == (preference(), [])


def test_a_preference_has_no_weights() -> None:
    line, codes = mend(preference(preferred_output=[{**BYE, "weight": 0}]), "dpo")

    assert line["preferred_output"] == [BYE]
    assert codes == ["weight_removed"]


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"input": None}, "no_prompt"),
        ({"input": {"messages": []}}, "no_prompt"),
        ({"preferred_output": []}, "no_answer"),
        ({"preferred_output": [BYE, BYE]}, "not_one_answer"),
        ({"preferred_output": [USER, BYE]}, "not_one_answer"),
        ({"preferred_output": [BYE], "non_preferred_output": [BYE]}, "pair_equal"),
    ],
)
def test_a_preference_that_is_none_is_lost(changes: dict[str, Any], code: str) -> None:
    assert lose(preference(**changes), "dpo") == code


def test_what_is_asked_does_not_end_with_an_open_call() -> None:
    asked = {"messages": [USER, called("q"), result("q"), called("r")]}

    line, codes = mend(preference(input=asked), "dpo")

    assert line["input"]["messages"] == [USER, called("q"), result("q")]
    assert codes == ["call_without_result", "tool_added"]


def test_a_label_goes_with_one_answer() -> None:
    answer = called("a", arguments={"x": 1})
    line = {"prompt": [USER], "completion": [answer], "label": False, "tools": [tool()]}

    assert mend(line, "kto") == (line, [])
    assert lose({**line, "label": 1}, "kto") == "label_type"
    assert lose({**line, "prompt": []}, "kto") == "no_prompt"


# -- whatever comes

TEXT = st.text(
    alphabet=st.one_of(
        st.sampled_from('ab{}":,\\\n\r\u2028\u2029\u0085\ud83d\ude00\x00\x7f'), st.characters()
    ),
    max_size=12,
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(TEXT, inner, max_size=3)),
    max_leaves=5,
)
IDS = st.sampled_from(("a", "b", "a_2", ""))
ARGUMENTS = st.one_of(
    st.sampled_from(("{}", "", '{"x":1}', '{"x":NaN}', '{"x":', "[1]", '{"a":"\n"}')),
    VALUES,
    st.dictionaries(TEXT, VALUES, max_size=2).map(json.dumps),
)
CALL = st.fixed_dictionaries(
    {
        "id": IDS,
        "function": st.fixed_dictionaries(
            {"name": st.sampled_from(("f", "g.h")), "arguments": ARGUMENTS}
        ),
    },
    optional={"type": st.sampled_from(("function", "custom")), "index": st.just(0)},
)
PART = st.one_of(
    st.fixed_dictionaries({"type": st.just("text"), "text": TEXT}),
    st.fixed_dictionaries({"type": st.just("refusal"), "refusal": TEXT}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}),
    VALUES,
)
CONTENT = st.one_of(TEXT, st.just("words"), st.none(), st.lists(PART, max_size=2))
ASKS = st.fixed_dictionaries(
    {"role": st.sampled_from(("system", "developer", "user")), "content": CONTENT},
    optional={"name": TEXT, "weight": st.integers(0, 1)},
)
ANSWERS = st.fixed_dictionaries(
    {"role": st.just("assistant")},
    optional={
        "content": CONTENT,
        "tool_calls": st.lists(CALL, max_size=3),
        "weight": st.sampled_from((0, 1, 2, None)),
    },
)
RESULTS = st.fixed_dictionaries({"role": st.just("tool"), "content": CONTENT, "tool_call_id": IDS})
MESSAGES = st.lists(st.one_of(ASKS, ANSWERS, RESULTS), max_size=8)
GOOD = st.one_of(st.just(BYE), st.just(called("a")), st.just(called("a", "b", arguments={"x": 1})))
SOME = st.builds(lambda before, last: [*before, last], MESSAGES, GOOD)
TOOLS = st.lists(
    st.one_of(
        st.just(tool("f")),
        st.fixed_dictionaries({"type": st.just("function"), "function": VALUES}),
        VALUES,
    ),
    max_size=3,
)
MORE = {"tools": TOOLS, "parallel_tool_calls": st.sampled_from((True, None)), "x": VALUES}
CONVERSATIONS = st.fixed_dictionaries({"messages": MESSAGES | SOME}, optional=MORE)
ONE = st.lists(ANSWERS, max_size=1) | GOOD.map(lambda answer: [answer])
PREFERENCES = st.fixed_dictionaries(
    {
        "input": st.fixed_dictionaries({"messages": MESSAGES}, optional=MORE),
        "preferred_output": ONE,
        "non_preferred_output": ONE,
    }
)
LABELLED = st.fixed_dictionaries(
    {"prompt": MESSAGES, "completion": ONE, "label": st.sampled_from((True, False))},
    optional=MORE,
)
FORM_AND_LINE = st.one_of(
    st.tuples(st.sampled_from(("openai", "trl", "axolotl")), CONVERSATIONS),
    st.tuples(st.just("dpo"), PREFERENCES),
    st.tuples(st.just("kto"), LABELLED),
    st.tuples(st.sampled_from(FORMS), st.dictionaries(TEXT, VALUES, max_size=2)),
)


@settings(max_examples=300)
@given(FORM_AND_LINE)
def test_whatever_comes_is_a_line_or_is_lost_for_a_reason(given: tuple[Format, Any]) -> None:
    form, line = given
    mended, findings = lint(line, form)

    if mended is None:
        assert not findings[-1].is_mended
        return
    assert faults(encode(mended) + b"\n", form) == ()
    again, more = lint(mended, form)
    assert again == mended
    assert [finding for finding in more if finding.is_mended] == []
