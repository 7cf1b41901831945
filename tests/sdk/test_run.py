"""What a run says of itself and of its calls."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from agentstate.ground.settings import ReplaySettings
from agentstate.sdk.run import Run, is_step
from agentstate.steps.identify import read_caller
from agentstate.wire.message import Headers


def test_the_proxy_understands_what_a_run_says() -> None:
    run = Run(
        "s", run_id="r", step_number=4, require_approval=True, fallback_model=["a", "b"],
        replay="exact", on_reject="continue", name="A run", parent="p", tags={"team": "ops"},
    )  # fmt: skip
    stamp = run.stamp((), is_step=True)

    caller = read_caller(
        Headers([(key.encode(), text.encode()) for key, text in stamp.items()]),
        None,
        ReplaySettings(),
    )

    assert caller is not None
    assert (caller.session, caller.run_id, caller.step_number) == ("s", "r", 4)
    assert (caller.requires_approval, caller.replay, caller.on_reject) == (
        True,
        "exact",
        "continue",
    )
    assert caller.call_id == stamp["x-agent-call-id"]
    assert caller.about is not None
    assert (caller.about.name, caller.about.parent) == ("A run", "p")
    assert caller.about.tags == (("team", "ops"),)
    assert stamp["x-agent-fallback-model"] == "a,b"


def test_two_runs_of_one_session_are_two() -> None:
    assert Run("s").run_id != Run("s").run_id


def test_many_threads_get_every_number_once() -> None:
    run = Run("s", step_number=5)
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: run.call_headers(), range(400)))

    assert sorted(int(each["x-agent-step-number"]) for each in found) == list(range(5, 405))
    assert len({each["x-agent-call-id"] for each in found}) == 400


def test_what_is_given_stands_and_takes_no_number() -> None:
    run = Run("s")

    own = run.stamp(["X-Agent-Step-Number"], is_step=True)

    assert "x-agent-step-number" not in own
    assert own["x-agent-call-id"]
    assert run.stamp((), is_step=True)["x-agent-step-number"] == "0"


def test_another_session_is_told_nothing_of_this_one() -> None:
    run = Run("s", name="n", tags={"a": "b"}, parent="p", fallback_model="m")

    stamp = run.stamp(["x-agent-session-id"], is_step=True)

    assert set(stamp) == {"x-agent-run-id", "x-agent-call-id", "x-agent-fallback-model"}
    assert run.stamp((), is_step=True)["x-agent-step-number"] == "0"


def test_what_is_no_step_has_neither_id_nor_number() -> None:
    assert set(Run("s").stamp((), is_step=False)) == {"x-agent-session-id", "x-agent-run-id"}


def test_a_session_no_header_can_name_is_named_in_the_url() -> None:
    run = Run("Lauf/ä", base_url="http://h:1/v1")

    assert run.address.base_url == "http://h:1/s/Lauf%2F%C3%A4/v1"
    assert "x-agent-session-id" not in run.constant_headers()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"session_id": ""}, "session_id must be a text that is not empty"),
        ({"session_id": "a\nb"}, "session_id holds control characters"),
        ({"run_id": " "}, "run_id must be a text"),
        ({"step_number": -1}, "step_number must be an integer from 0; found -1"),
        ({"step_number": True}, "step_number must be an integer from 0; found True"),
        ({"name": "Müller"}, "x-agent-session-name can hold ASCII only.*PATCH"),
        ({"tags": {"team": "ö"}}, "x-agent-tags can hold ASCII only"),
    ],
)
def test_what_no_header_can_carry_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Run(**{"session_id": "s", **options})


@pytest.mark.parametrize(
    ("method", "path", "makes_one"),
    [
        ("post", "/chat/completions", True),
        ("POST", "http://h/s/x/v1/responses", True),
        ("post", "/v1/messages?beta=true", True),
        ("post", "/embeddings/", True),
        ("get", "/responses", False),
        ("post", "/responses/resp_1/cancel", False),
        ("post", "/v1/messages/count_tokens", False),
        ("post", "/files", False),
    ],
)
def test_a_step_is_known_by_its_path(method: str, path: str, makes_one: bool) -> None:
    assert is_step(method, path) is makes_one
