"""What a session may be called."""

from __future__ import annotations

import pytest

from agentstate.ground.control import TAGS_MAX
from agentstate.ground.errors import BadRequest
from agentstate.steps.about import check_name, check_tag, parse_tags


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        ("  ", ()),
        ("k=v", (("k", "v"),)),
        ("b=2, a = 1 ", (("a", "1"), ("b", "2"))),
        ("k=", (("k", ""),)),
        ("url=http://x/?a=b", (("url", "http://x/?a=b"),)),
        ("größe=groß", (("größe", "groß"),)),
    ],
)
def test_tags_are_pairs_with_commas_between(
    text: str, expected: tuple[tuple[str, str], ...]
) -> None:
    assert parse_tags(text, "x-agent-tags") == expected


@pytest.mark.parametrize(
    "text",
    [
        "k",
        "k=v,",
        "=v",
        "k=v,k=w",
        "k=\x07",
        "a\nb=v",
        "k" * 65 + "=v",
        "k=" + "v" * 257,
        ",".join(f"k{n}=v" for n in range(TAGS_MAX + 1)),
    ],
)
def test_other_tags_are_refused(text: str) -> None:
    with pytest.raises(BadRequest) as refused:
        parse_tags(text, "x-agent-tags")
    assert refused.value.param == "x-agent-tags"
    assert len(refused.value.message) < 300


@pytest.mark.parametrize(("name", "value"), [("", "v"), ("a=b", "v"), ("a,b", "v"), ("a", "v,w")])
def test_a_tag_that_no_listing_can_ask_for_is_refused(name: str, value: str) -> None:
    with pytest.raises(BadRequest):
        check_tag(name, value, "tags")


def test_a_name_is_a_line() -> None:
    assert check_name("  Invoices ", "name") == "Invoices"
    assert check_name("", "name") == ""
    for name in ("x" * 201, "a\x00b", "a\ud800"):
        with pytest.raises(BadRequest):
            check_name(name, "name")
