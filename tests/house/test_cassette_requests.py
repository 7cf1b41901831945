"""Requests come back as they were, and what repeats is not written again."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentstate.ground.canonical import JSON, encode, encode_readable, parse
from agentstate.ground.errors import BadRequest
from agentstate.house.cassette_requests import BACK_MAX, Folder, Unfolder

LONG = "so that it is worth sharing: " + "x" * 60
SMALL = st.recursive(
    st.none() | st.booleans() | st.sampled_from([0, 1, 10**30]) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=5,
).filter(lambda value: b"\\u0000" not in encode(value))
MESSAGES = st.lists(SMALL | st.just({"role": "user", "content": LONG}), max_size=5)
BODIES = st.builds(
    lambda fields, messages, is_first: (
        fields
        if messages is None
        else {"messages": messages, **fields}
        if is_first
        else {**fields, "messages": messages}
    ),
    st.dictionaries(st.sampled_from(["model", "tools", "n"]), SMALL | st.just([LONG])),
    st.none() | MESSAGES | st.just("one text"),
    st.booleans(),
)


def fields_of(body: JSON) -> dict[str, bytes]:
    assert isinstance(body, dict)
    return {key: encode(value) for key, value in body.items()}


@given(st.lists(st.tuples(st.sampled_from(["chat", "other"]), BODIES), max_size=8))
def test_what_is_folded_comes_back(calls: list[tuple[str, dict[str, JSON]]]) -> None:
    folder, unfolder = Folder(), Unfolder()
    for dialect, body in calls:
        line = parse(encode_readable(folder.fold(dialect, "messages", body)))
        assert isinstance(line, dict)
        assert fields_of(unfolder.unfold(dialect, "messages", line)) == fields_of(body)


def user(text: str) -> JSON:
    return {"role": "user", "content": text}


def test_a_request_that_goes_on_has_only_what_is_new() -> None:
    folder = Folder()
    folder.fold("chat", "messages", {"model": "m", "messages": [user(LONG)], "tools": [LONG]})

    found = folder.fold(
        "chat", "messages", {"model": "m", "messages": [user(LONG), user("b")], "n": 1}
    )

    assert found == {
        "like": 1, "keep": 1, "without": ["tools"], "request": {"messages": [user("b")], "n": 1}
    }  # fmt: skip


def test_of_parallel_agents_each_goes_on_from_its_own() -> None:
    folder = Folder()
    for name in ("a", "b", "c"):
        folder.fold("chat", "messages", {"messages": [user(name + LONG)]})

    found = folder.fold("chat", "messages", {"messages": [user("a" + LONG), user("more")]})

    assert (found["like"], found["keep"]) == (3, 1)


def test_what_is_too_long_ago_is_written_again() -> None:
    folder = Folder()
    folder.fold("chat", "messages", {"messages": [user(LONG)]})
    for number in range(BACK_MAX):
        folder.fold("other", "messages", {"n": number})

    body: JSON = {"messages": [user(LONG)]}
    assert folder.fold("chat", "messages", body) == {"request": body}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ({"request": {}, "keep": 1}, "go with like"),
        ({"request": {}, "like": 2}, "from 1 to 1"),
        ({"request": {}, "like": True}, "from 1 to 1"),
        ({"request": [], "like": 1}, "another form"),
        ({"request": {}, "like": 1, "without": "n"}, "list of names"),
        ({"request": {"messages": []}, "like": 1, "keep": 2}, "from 1 to 1"),
        ({"request": {"messages": []}, "like": 1, "keep": "1"}, "from 1 to 1"),
        ({"request": {}, "like": 1, "keep": 1}, "goes with a list of messages"),
    ],
)
def test_what_goes_on_from_nothing_is_refused(line: dict[str, Any], said: str) -> None:
    unfolder = Unfolder()
    unfolder.unfold("chat", "messages", {"request": {"messages": [user("a")]}})
    with pytest.raises(BadRequest, match=said):
        unfolder.unfold("chat", "messages", line)
