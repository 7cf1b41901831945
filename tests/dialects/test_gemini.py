"""Gemini's requests: what the path says, what counts, and what of them is a tool result."""

from __future__ import annotations

import pytest

from agentstate.dialects import dialect_for_path
from agentstate.dialects.base import Ask, Dialect, ReadsPath
from agentstate.dialects.gemini import Gemini
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest

ROW = Gemini()
USER: JSON = {"role": "user", "parts": [{"text": "hi"}]}


def asked(path: str, query: str = "", **fields: JSON) -> Ask | None:
    """Read a request at a path; None if the path is another's."""
    dialect = ROW.at(path, query)
    return None if dialect is None else dialect.read_ask({"contents": [USER], **fields})


def test_the_row_is_a_dialect_that_reads_paths() -> None:
    row: Dialect = ROW
    assert isinstance(row, ReadsPath)


@pytest.mark.parametrize(
    ("path", "query", "found"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "", ("gemini-2.5-pro", False)),
        ("/v1alpha/models/gemini-2.5-pro:generateContent", "", ("gemini-2.5-pro", False)),
        ("/v1beta/models/m:streamGenerateContent", "alt=sse", ("m", True)),
        ("/v1beta/models/m:streamGenerateContent", "a=b&alt=sse", ("m", True)),
        ("/v1beta/models/mock/429:generateContent", "", ("mock/429", False)),
        ("/v1beta/models/a%20b:generateContent", "", ("a b", False)),
        ("/v1beta/models/m:streamGenerateContent", "", None),  # one JSON list, streamed
        ("/v1beta/models/m:streamGenerateContent", "alt=json", None),
        ("/v1beta/models/m:countTokens", "", None),
        ("/v1beta/models/m", "", None),
        ("/v1beta/models/:generateContent", "", None),
        ("/v1beta/tunedModels/m:generateContent", "", None),
        ("/models/m:generateContent", "", ("m", False)),  # below /v1
        ("/models/m:streamGenerateContent", "alt=sse", ("m", True)),
        ("/v1/models/m:generateContent", "", None),
    ],
)
def test_the_path_says_model_and_form(
    path: str, query: str, found: tuple[str, bool] | None
) -> None:
    ask = asked(path, query)
    assert (None if ask is None else (ask.model, ask.streams)) == found
    assert (dialect_for_path(path, query) is None) is (found is None)


def test_both_forms_count_as_one_path_and_models_as_several() -> None:
    plain = asked("/v1beta/models/a:generateContent")
    streamed = asked("/v1beta/models/a:streamGenerateContent", "alt=sse")
    other = asked("/v1beta/models/b:generateContent")

    assert plain is not None
    assert streamed is not None
    assert other is not None
    assert plain.counted_path == streamed.counted_path == "/v1beta/models/a"
    assert other.counted_path != plain.counted_path


@pytest.mark.parametrize("key", ["cachedContent", "cached_content"])
def test_a_cache_is_a_hidden_part(key: str) -> None:
    ask = asked("/v1beta/models/m:generateContent", **{key: "cachedContents/abc"})
    plain = asked("/v1beta/models/m:generateContent")
    assert ask is not None
    assert plain is not None
    assert ask.has_hidden_part
    assert not plain.has_hidden_part


@pytest.mark.parametrize("key", ["generationConfig", "generation_config"])
@pytest.mark.parametrize("count", ["candidateCount", "candidate_count"])
def test_more_candidates_may_be_asked_for(key: str, count: str) -> None:
    ask = asked("/v1beta/models/m:generateContent", **{key: {count: 3}})
    assert ask is not None
    assert ask.choices == 3


@pytest.mark.parametrize(
    ("contents", "said"),
    [(None, "null"), ([], "an empty list"), ("hi", "a string"), (["hi"], "contents[0]")],
)
def test_contents_are_a_list_of_objects(contents: JSON, said: str) -> None:
    with pytest.raises(BadRequest) as refused:
        ROW.read_ask({"contents": contents})
    assert said in refused.value.message


@pytest.mark.parametrize("name", ["functionResponse", "function_response"])
def test_a_functions_response_is_a_tool_result(name: str) -> None:
    first: JSON = {name: {"id": "call_1", "name": "f", "response": {"r": 1}}}
    second: JSON = {name: {"name": "g", "response": {"r": 2}}}
    message: JSON = {"role": "user", "parts": [{"text": "so:"}, first, second]}

    assert ROW.tool_results(message) == [
        ("call_1", {"response": {"r": 1}}),
        ("", {"response": {"r": 2}}),
    ]
    assert ROW.tool_result_blank(message) == {
        "role": "user",
        "parts": [{"text": "so:"}, {name: {"id": "call_1", "name": "f"}}, {name: {"name": "g"}}],
    }


@pytest.mark.parametrize("message", [USER, None, [], {"parts": None}, {"parts": [None, "x"]}])
def test_what_returns_nothing_is_no_tool_result(message: JSON) -> None:
    assert ROW.tool_result_blank(message) is None
    assert ROW.tool_results(message) == []


@pytest.mark.parametrize("key", ["systemInstruction", "system_instruction"])
@pytest.mark.parametrize(
    ("system", "masked"),
    [
        ({"parts": [{"text": "now"}, {"x": 1}]}, {"parts": [{"text": "NOW"}, {"x": 1}]}),
        ({"parts": {"text": "now"}}, {"parts": {"text": "NOW"}}),
        ({"text": "now"}, {"text": "NOW"}),
        ("now", "NOW"),
        (7, 7),
    ],
)
def test_the_system_instruction_is_masked_however_it_is_written(
    key: str, system: JSON, masked: JSON
) -> None:
    envelope: dict[str, JSON] = {key: system, "tools": ["now"]}
    assert ROW.mask_envelope(envelope, str.upper) == {key: masked, "tools": ["now"]}


def test_without_a_system_instruction_nothing_is_masked() -> None:
    assert ROW.mask_envelope({"tools": ["now"]}, str.upper) is None
