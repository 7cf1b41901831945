"""The runner leaves nothing out: unknown parts, sentences and stale rows are errors."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from tests.cases.checks import PARTS, check_all
from tests.cases.files import Case, apply_row, expand, load_cases, to_bytes
from tests.cases.held import as_let_out, decisions_of, make_decision, question_count
from tests.cases.playing import Play, sending_of
from tests.cases.staging import configuration_of, env_of
from tests.cases.tables import DIFFERS, LATER, SET_UP, Settled
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Piece, Reception
from tests.helpers.upstream import Upstream

PLAYED = [case for case in load_cases() if case.later is None]


def played(expect: dict[str, Any], tmp_path: Any) -> Play:
    """Return a play of nothing, to be judged by `expect`."""
    case = Case("none", "none", {}, [], expect, None, None, 1.0)
    proxy = Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "none.db")
    sending = sending_of({"method": "GET", "path": "/"}, "none")
    got = Reception(0.0, status=200)
    return Play(case, proxy, Upstream(), "none", sending, None, first=got)


@pytest.mark.parametrize("case", PLAYED, ids=lambda case: case.name)
def test_every_expectation_of_a_played_case_has_a_check(case: Case) -> None:
    for part, wanted in case.expect.items():
        table = PARTS[part]
        if isinstance(table, dict):
            assert set(wanted) <= set(table)


@pytest.mark.parametrize("expect", [{"nonsense": 1}, {"client": {"nonsense": 1}}])
def test_an_unknown_expectation_is_an_error(expect: dict[str, Any], tmp_path: Any) -> None:
    with pytest.raises(KeyError, match="nonsense"):
        check_all(played(expect, tmp_path))


def test_an_unknown_sentence_is_an_error(tmp_path: Any) -> None:
    playing = played({"client": {"comments": "sung aloud"}}, tmp_path)

    with pytest.raises(AssertionError, match="sung aloud"):
        check_all(playing)


def test_a_wrong_answer_is_an_error(tmp_path: Any) -> None:
    with pytest.raises(AssertionError):
        check_all(played({"client": {"status": 201}}, tmp_path))


def test_a_row_that_names_nothing_is_an_error() -> None:
    with pytest.raises(KeyError):
        apply_row({"expect": {}}, Settled("gone", drop=("expect.client",)))


def test_a_row_takes_out_and_puts_in() -> None:
    raw: dict[str, Any] = {"upstream": ["a", "b"], "expect": {"client": {"text": "x"}}}

    apply_row(raw, Settled("why", drop=("upstream.1",), put={"expect.client.error.code": "y"}))

    assert raw == {"upstream": ["a"], "expect": {"client": {"text": "x", "error": {"code": "y"}}}}


def test_every_row_has_a_reason() -> None:
    assert all(row.reason.startswith("later: ") for row in LATER.values())
    assert all(len(row.reason) > 20 for row in (*DIFFERS.values(), *SET_UP.values()))


def test_the_notation_is_spelled_out() -> None:
    value = {
        "text": {"$concat": ["a", {"$repeat": ["bc", 2]}]},
        "items": ["x", {"$repeat": ["y", 2]}],
        "whole": "{{n}}",
        "part": "n is {{n}}",
    }

    assert expand(value, {"n": 7}) == {
        "text": "abcbc",
        "items": ["x", "y", "y"],
        "whole": 7,
        "part": "n is 7",
    }
    assert to_bytes("b64:AP8=") == b"\x00\xff"
    with pytest.raises(AssertionError, match="nothing fills"):
        expand("{{other}}", {})


def test_a_value_of_the_matrix_that_is_a_list_also_gives_its_items() -> None:
    hosts = [case for case in PLAYED if case.file_id == "165-sec-dns-rebinding-csrf"]

    sent = [case.client["headers"] for case in hosts]

    assert [(each["host"], each["origin"]) for each in sent] == [
        tuple(case.variant) for case in hosts
    ]
    assert None in [each["origin"] for each in sent], "one of them has no Origin at all"


def set_up_case(
    setup: dict[str, Any], path: str = "/v1/chat/completions", api: str = "anthropic"
) -> Case:
    """Return a case with this set-up and one reply in this form."""
    client = {"path": path, "setup": setup}
    return Case("none", "none", client, [{"to": "primary", "api": api}], {}, None, None, 0.5)


def test_a_case_with_a_fallback_tries_each_target_once_unless_it_says_more() -> None:
    name = "AGENTSTATE_FORWARD_RETRIES"

    assert name not in env_of(set_up_case({}))
    assert env_of(set_up_case({"fallback": ["fallback"]}))[name] == "0"
    assert env_of(set_up_case({"fallback": ["fallback"], "retries": 3}))[name] == "3"


def test_heartbeats_and_when_a_stream_is_begun_for_them_are_scaled_alike() -> None:
    assert env_of(set_up_case({"heartbeat_s": 6})) == {
        "AGENTSTATE_GATE_HEARTBEAT_S": "3.0",
        "AGENTSTATE_FORWARD_COMMIT_AFTER_S": "5.0",
    }


def test_an_unknown_part_of_a_set_up_is_an_error() -> None:
    with pytest.raises(KeyError, match="nonsense"):
        env_of(set_up_case({"nonsense": 1}))


def test_a_route_is_a_provider_and_a_fallback_a_further_one() -> None:
    route = "openai-chat client -> anthropic upstream"
    case = set_up_case({"route": route, "fallback": ["fallback"]})

    found = tomllib.loads(configuration_of(case, Upstream(), Upstream(), None))

    assert [(row["name"], row["dialect"]) for row in found["provider"]] == [
        ("routed", ["anthropic_messages"]),
        ("fallback", ["openai_chat"]),
    ]
    assert len({row["api_key"] for row in found["provider"]}) == 2
    assert found["forward"] == {"fallback": ["fallback/stand-in"]}
    assert configuration_of(set_up_case({}), Upstream(), None, None) == ""


@pytest.mark.parametrize(
    "case",
    [
        set_up_case({"route": "openai-chat client -> anthropic upstream"}, path="/v1/messages"),
        set_up_case({"route": "openai-chat client -> anthropic upstream"}, api="gemini"),
    ],
)
def test_a_route_that_is_not_the_cases_is_an_error(case: Case) -> None:
    with pytest.raises(AssertionError):
        configuration_of(case, Upstream(), None, None)


def test_a_route_nobody_plays_is_an_error() -> None:
    with pytest.raises(KeyError, match="pigeon"):
        configuration_of(set_up_case({"route": "by pigeon"}), Upstream(), None, None)


def held_case(setup: dict[str, Any], expect: dict[str, Any] | None = None) -> Case:
    """Return a case that is approved, and then asked again."""
    then = [{"action": "approve"}, {"at": "retry_after_failure", "same_request": True}]
    return Case("none", "none", {"setup": setup, "then": then}, [], expect or {}, None, None, 1.0)


def test_what_is_done_while_a_request_is_held_is_all_but_the_further_requests() -> None:
    case = held_case({"sensitive_tools": ["delete_rows"], "approve_after_ms": 5})

    assert question_count(case) == 1
    assert decisions_of(case) == [{"action": "approve"}, {"action": "approve", "after_ms": 5}]


def test_a_variant_that_guards_no_tool_is_not_held() -> None:
    case = held_case({"sensitive_tools": []})

    assert question_count(case) == 0
    assert decisions_of(case) == []


@pytest.mark.parametrize(
    "case",
    [
        held_case({}),
        held_case({"sensitive_tools": ["delete_rows"]}, {"approval": {"created": 0}}),
    ],
)
def test_a_decision_about_nothing_is_an_error(case: Case) -> None:
    assert question_count(case) == 0
    with pytest.raises(AssertionError, match="nothing is asked"):
        decisions_of(case)


@pytest.mark.parametrize("item", [{"action": "shrug"}, {"action": "approve", "nonsense": 1}])
def test_an_unknown_decision_is_an_error(item: dict[str, Any]) -> None:
    with pytest.raises(AssertionError, match="no such"):
        make_decision(item)


def test_heartbeats_are_no_part_of_what_was_let_out() -> None:
    pieces = [b"data: held\n\n", b": held\n", b": held\n: held\ndata: x\n\n"]
    got = Reception(0.0, pieces=[Piece(0.0, piece) for piece in pieces])

    assert as_let_out(got).body == b"data: held\n\ndata: x\n\n"
    assert [piece.data for piece in as_let_out(got).pieces] == [pieces[0], b"data: x\n\n"]
