"""Each check of a translated request takes a good one and refuses one that is broken."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentstate.dialects import dialect_by_name
from agentstate.dialects.neutral import Receiver, translates
from agentstate.ground import canonical
from tests.cases.files import Case, load_cases
from tests.cases.playing import Play, sending_of
from tests.cases.staging import FORMS
from tests.cases.translated_checks import check_request
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Reception
from tests.helpers.upstream import Received, Upstream

Body = dict[str, Any]

ROUTED = {case.file_id[:3]: case for case in load_cases() if "route" in case.setup}
# These ask once more, so they need a proxy; they are tried on a broken request only.
ASK_AGAIN = ("mapping is deterministic across requests", "messages[1].content[0].input == {}")
DROPPED = (b"x-agentstate-dropped", b"tools[0]: uniqueItems")


class Seen(Upstream):
    """An upstream that is not there, and has seen one request."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        raw = json.dumps(body).encode()
        self._received = [Received(0, 0, "POST", "/", (), raw, 0.0)]


def written(case: Case) -> Body:
    """Return what goes upstream of a case."""
    caller = dialect_by_name(
        "anthropic_messages" if case.client["path"].endswith("/messages") else "openai_chat"
    )
    spoken = dialect_by_name(FORMS[case.upstream[0]["api"]].dialect)
    assert caller is not None
    assert spoken is not None
    assert translates(caller)
    assert translates(spoken)
    body = case.client["body"]
    asked = replace(caller.read_request(body), model=body["model"])
    request = spoken.write_request(asked, Receiver("routed", body["model"]))
    found: Body = json.loads(canonical.encode(request.value))
    return found


def played(case: Case, body: Body, tmp_path: Path) -> Play:
    """Return a case of which this went upstream."""
    proxy = Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "none.db")
    first = Reception(0.0, status=200, headers=(DROPPED,))
    sending = sending_of(case.client, "none")
    return Play(case, proxy, Seen(body), "none", sending, None, first=first)


def sentences(case: Case) -> list[str]:
    return list(case.expect.get("upstream", {}).get("request_asserts", []))


@pytest.mark.parametrize("number", sorted(ROUTED))
def test_what_is_written_passes(number: str, tmp_path: Path) -> None:
    case = ROUTED[number]
    wanted = [sentence for sentence in sentences(case) if sentence not in ASK_AGAIN]

    check_request(played(case, written(case), tmp_path), wanted)


def _first_result(body: Body) -> Body:
    found: Body = next(
        block
        for message in body["messages"]
        for block in message["content"]
        if block["type"] == "tool_result"
    )
    return found


def _parameters(body: Body) -> Body:
    found: Body = body["tools"][0]["functionDeclarations"][0]["parameters"]
    return found


BROKEN: list[tuple[str, int, Callable[[Body], Any]]] = [
    ("105", 0, lambda b: b["messages"].append({"role": "user", "content": "x"})),
    ("105", 1, lambda b: b["messages"][2]["content"].reverse()),
    ("105", 1, lambda b: _first_result(b).update(content="7C")),
    ("105", 1, lambda b: b["messages"][2]["content"].pop(0)),
    ("106", 0, lambda b: b["messages"][1]["content"][0].update(id="functions.f:0")),
    ("106", 0, lambda b: _first_result(b).update(tool_use_id="")),
    ("106", 1, lambda b: b["messages"][1]["content"][2].update(id="functions_get_weather_0")),
    ("106", 1, lambda b: _first_result(b).update(tool_use_id="other")),
    ("108", 0, lambda b: b["messages"][1]["content"][0].update(input="")),
    ("112", 0, lambda b: b["system"][0].pop("cache_control")),
    ("112", 0, lambda b: b.update(system="static dynamic")),
    ("112", 1, lambda b: b["messages"][0]["content"][0]["cache_control"].pop("ttl")),
    ("112", 2, lambda b: _first_result(b).pop("cache_control")),
    ("113", 0, lambda b: b["system"].reverse()),
    ("113", 1, lambda b: b["system"].pop()),
    ("113", 2, lambda b: b["messages"].append({"role": "system", "content": "C"})),
    ("113", 3, lambda b: b["messages"].append({"role": "user", "content": "q2"})),
    ("113", 3, lambda b: b["messages"][0]["content"].pop()),
    ("114", 0, lambda b: b["messages"][0]["content"].pop()),
    ("114", 1, lambda b: b["messages"].insert(2, {"role": "user", "content": "x"})),
    ("114", 2, lambda b: b["messages"].pop()),
    ("114", 2, lambda b: b["messages"].insert(0, b["messages"].pop())),
    ("114", 3, lambda b: b["messages"][2].update(content='{"data": "iVBORw0KGgo="}')),
    ("116", 0, lambda b: b.update(stop="END")),
    ("118", 0, lambda b: b.pop("output_config")),
    ("118", 0, lambda b: b["output_config"]["format"]["schema"].pop("required")),
    ("118", 1, lambda b: b["tools"].pop()),
    ("118", 1, lambda b: b.update(tool_choice={"type": "tool", "name": "r"})),
    ("119", 0, lambda b: b.update(temperature=1)),
    ("119", 0, lambda b: b.pop("max_tokens")),
    ("122", 0, lambda b: b.update(n=1)),
    ("122", 0, lambda b: b.update(max_tokens=65)),
    ("123", 0, lambda b: _parameters(b).update({"$schema": "x"})),
    ("123", 0, lambda b: _parameters(b)["properties"]["u"]["items"].update({"$comment": "c"})),
    ("123", 0, lambda b: _parameters(b)["properties"]["n"].pop("minimum")),
    ("123", 1, lambda b: _parameters(b)["properties"]["n"].update(type=["integer", "null"])),
    ("123", 1, lambda b: _parameters(b)["properties"]["n"].pop("nullable")),
    ("123", 2, lambda b: _parameters(b)["properties"]["u"].update(items={"$ref": "#/$defs/I"})),
    ("123", 3, lambda b: _parameters(b)["required"].append("gone")),
    ("123", 4, lambda b: b.update(generationConfig={"stream_options": None})),
]


@pytest.mark.parametrize(("number", "place", "break_it"), BROKEN)
def test_what_is_broken_does_not(
    number: str, place: int, break_it: Callable[[Body], Any], tmp_path: Path
) -> None:
    case = ROUTED[number]
    body = written(case)
    break_it(body)

    with pytest.raises((AssertionError, AttributeError, KeyError)):
        check_request(played(case, body, tmp_path), [sentences(case)[place]])


def test_every_sentence_is_tried_on_a_broken_request() -> None:
    tried = {(number, place) for number, place, _ in BROKEN}

    untried = {
        sentence
        for number, case in ROUTED.items()
        for place, sentence in enumerate(sentences(case))
        if (number, place) not in tried
    }

    assert untried <= set(ASK_AGAIN)
