"""How a conversation in Gemini's own form goes on; where it goes on is in `test_turns.py`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agentstate.dialects.base import Round, Splice
from agentstate.dialects.gemini import Gemini
from agentstate.dialects.gemini_turns import CONVERSATION
from agentstate.dialects.turns import Form
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest
from tests.dialects.samples_gemini import CALL, body, candidate, text

GEMINI = Gemini("m")
CONTENTS: list[JSON] = [{"role": "user", "parts": [{"text": "Mail them."}]}]
REQUEST: dict[str, JSON] = {"contents": CONTENTS, "generationConfig": {"temperature": 0}}
HI = text("Hi")
THOUGHT = text("Hm.", thought=True)
BARE: dict[str, Any] = {"functionCall": {"name": "send_email", "args": {"to": "a"}}}


def on(raw: bytes, *told: str, **fields: JSON) -> Any:
    """Return the request that tells the model what became of its calls, by their positions."""
    return GEMINI.go_on({**REQUEST, **fields}, Round(raw, dict(enumerate(told))))


def said(*parts: JSON) -> JSON:
    return {"role": "model", "parts": list(parts)}


def told(*parts: JSON) -> JSON:
    return {"role": "user", "parts": list(parts)}


def response(name: str, **value: JSON) -> JSON:
    return {"functionResponse": {"name": name, "response": value}}


def answered(*parts: dict[str, Any]) -> bytes:
    return body(candidate(*parts, reason="STOP"))


def test_it_is_a_form() -> None:
    form: Form = CONVERSATION
    assert form.answers_in_order is True


def test_the_model_gets_its_content_as_it_was_and_responses_that_are_errors() -> None:
    request = on(answered(THOUGHT, HI, CALL, BARE), "no 1", "no 2")

    weather = {"id": "call_1", "name": "get_weather", "response": {"error": "no 1"}}
    assert request == {
        "contents": [
            *CONTENTS,
            said(THOUGHT, HI, CALL, BARE),
            told({"functionResponse": weather}, response("send_email", error="no 2")),
        ],
        "generationConfig": {"temperature": 0},
    }
    types: Any = pytest.importorskip("google.genai.types")
    for content in request["contents"]:
        types.Content.model_validate_json(json.dumps(content))


def test_numbers_go_back_as_they_came() -> None:
    raw = answered(CALL).replace(b'"Oslo"', b"1.50")
    assert b'"args":{"city":1.50,"id":2512292042121000001}' in encode(on(raw, "no"))


@pytest.mark.parametrize(
    ("config", "freed"),
    [
        ({"mode": "ANY", "allowedFunctionNames": ["a"]}, {"mode": "AUTO"}),
        ({"mode": "any", "allowed_function_names": ["a"]}, {"mode": "AUTO"}),
        ({"mode": "NONE"}, {"mode": "NONE"}),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["a"]},
         {"mode": "VALIDATED", "allowedFunctionNames": ["a"]}),
        ({"mode": 2}, {"mode": 2}),
    ],
)  # fmt: skip
@pytest.mark.parametrize("outer", ["toolConfig", "tool_config"])
@pytest.mark.parametrize("inner", ["functionCallingConfig", "function_calling_config"])
def test_a_model_that_was_made_to_call_a_function_is_free(
    config: JSON, freed: JSON, outer: str, inner: str
) -> None:
    sent: dict[str, JSON] = {outer: {inner: config, "retrievalConfig": {}}}
    assert on(answered(CALL), "no", **sent)[outer] == {inner: freed, "retrievalConfig": {}}
    assert on(answered(CALL), "no", **{outer: "x"})[outer] == "x"


@pytest.mark.parametrize("name", ["candidateCount", "candidate_count"])
@pytest.mark.parametrize("outer", ["generationConfig", "generation_config"])
def test_several_candidates_have_no_one_conversation(name: str, outer: str) -> None:
    fields: dict[str, JSON] = {outer: {name: 2}}
    request = {"contents": CONTENTS, **fields}
    with pytest.raises(BadRequest, match="several candidates"):
        GEMINI.go_on(request, Round(answered(CALL), {0: "no"}))
    with pytest.raises(BadRequest, match="2 candidates"):
        on(body(candidate(CALL), candidate(CALL)), "no")


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"{}",
        body(promptFeedback={"blockReason": "SAFETY"}),
        answered(HI),
        answered({"functionCall": {"args": {}}}),
    ],
    ids=["nothing", "a list", "no candidates", "blocked", "no call", "a call without a name"],
)
def test_what_has_no_form_is_refused(raw: bytes) -> None:
    with pytest.raises(BadRequest):
        on(raw, "no")


def test_responses_without_ids_come_in_the_order_of_their_calls() -> None:
    calls = [{"functionCall": {"name": name, "args": {}}} for name in "abcd"]
    raw = answered(HI, *calls)
    delivered = GEMINI.changed_body(raw, {(0, 0): None, (0, 2): None})
    splice = Splice(REQUEST, (Round(raw, {0: "no a", 2: "no c"}),), delivered, None)
    kept = [calls[1], calls[3]]

    made: Any = GEMINI.spliced(
        {"contents": [*CONTENTS, said(HI, *kept), told(response("b", x=1), response("d", x=2))]},
        splice,
    )

    assert made == {
        "contents": [
            *CONTENTS,
            said(HI, *calls),
            told(
                response("a", error="no a"), response("b", x=1),
                response("c", error="no c"), response("d", x=2),
            ),
        ]
    }  # fmt: skip


def test_as_many_responses_as_there_are_not_calls_come_after_ours() -> None:
    raw = answered(BARE, CALL)
    splice = Splice(
        REQUEST, (Round(raw, {0: "no"}),), GEMINI.changed_body(raw, {(0, 0): None}), None
    )
    twice: Any = told(response("get_weather", x=1), response("get_weather", x=2))
    made: Any = GEMINI.spliced({"contents": [*CONTENTS, said(CALL), twice]}, splice)
    assert made is not None
    assert made["contents"][-1]["parts"] == [
        response("send_email", error="no"), *twice["parts"],
    ]  # fmt: skip


def test_calls_without_ids_are_known_by_what_they_call() -> None:
    raw = answered(BARE, {"functionCall": {"name": "now", "args": {}}})
    delivered = GEMINI.changed_body(raw, {(0, 0): None})
    splice = Splice(REQUEST, (Round(raw, {0: "no"}),), delivered, None)
    now = said({"functionCall": {"name": "now"}})
    short: list[JSON] = [told({"text": "So far."}), now, told(response("now", x=1))]

    made: Any = GEMINI.spliced({"contents": short}, splice)

    assert made is not None
    assert made["contents"][1:] == [
        said(BARE, {"functionCall": {"name": "now"}}),
        told(response("send_email", error="no"), response("now", x=1)),
    ]
    assert GEMINI.spliced({"contents": [*short, *short]}, splice) is None
    assert GEMINI.spliced({"contents": "x"}, splice) is None


def test_however_a_client_writes_it_a_content_says_the_same() -> None:
    def read(**content: Any) -> tuple[str, list[tuple[str, JSON]]]:
        role, pieces = CONVERSATION.read(content)
        return role, [(piece.kind, piece.value) for piece in pieces]

    call = {"functionCall": {"id": "call_1", "name": "a", "args": {"n": 1}}}
    assert read(role="model", parts=[{**call, "thoughtSignature": "c2ln"}]) == read(
        role="model", parts=[THOUGHT, {"function_call": call["functionCall"]}, {"text": ""}]
    )
    assert read(parts={"text": "a"}) == read(role="user", parts=[{"text": "a"}, {"thought": True}])
    result = {"id": "call_1", "name": "a", "response": {"n": 1}}
    assert read(role="function", parts=[{"functionResponse": result}]) == read(
        role="user", parts=[{"function_response": {**result, "id": "x"}}]
    )
    image = {"inlineData": {"mimeType": "image/png", "data": "AAAA"}}
    assert read(parts=[image])[1] == [("other", image)]
    piece = {"functionCall": {"partialArgs": []}}
    assert [kind for kind, _ in read(parts=[call, piece])[1]] == ["call", "other"]
    assert read(parts=[None, 1])[1] == []
