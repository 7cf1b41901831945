"""The runner leaves nothing out: unknown parts, sentences and stale rows are errors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases.checks import PARTS, check_all
from tests.cases.files import Case, apply_row, expand, load_cases, to_bytes
from tests.cases.playing import Play, sending_of
from tests.cases.tables import DIFFERS, LATER, Settled
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Reception
from tests.helpers.upstream import Upstream

PLAYED = [case for case in load_cases() if case.later is None]


def played(expect: dict[str, Any], tmp_path: Any) -> Play:
    """Return a play of nothing, to be judged by `expect`."""
    case = Case("none", "none", {}, [], expect, None, None, 1.0)
    proxy = Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "none.db")
    sending = sending_of({"method": "GET", "path": "/"}, "none")
    return Play(case, proxy, Upstream(), "none", sending, None, Reception(0.0, status=200))


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
    assert all(len(row.reason) > 20 for row in DIFFERS.values())


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
