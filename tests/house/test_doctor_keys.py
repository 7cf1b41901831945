"""What is said of a key before anybody is asked."""

from __future__ import annotations

import pytest

from agentstate.house.doctor_keys import is_placeholder, key_fault, owner_of

REAL = "sk-proj-Ab3dEf6hIj9kLm2nOp5qRs8tUv1wXy4z"


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (f'"{REAL}"', "quotation marks"),
        (f"'{REAL}", "quotation marks"),
        (f"\u201c{REAL}\u201d", "quotation marks"),
        (f"Bearer {REAL}", "Bearer"),
        (f"{REAL}\n", "line break"),
        (f"{REAL[:9]} {REAL[9:]}", "blank"),
        (REAL + "\u0434", "no key has"),
        (REAL + "\x07", "no key has"),
    ],
)
def test_what_cannot_be_a_key_is_named_without_showing_it(key: str, why: str) -> None:
    fault = key_fault(key)

    assert fault is not None
    assert why in fault
    assert REAL[3:12] not in fault


@pytest.mark.parametrize("key", [REAL, "AIzaSyD-1_2", "EMPTY", "x"])
def test_what_can_be_a_key_has_no_fault(key: str) -> None:
    assert key_fault(key) is None


@pytest.mark.parametrize(
    "key",
    ["mock-key", "your-api-key", "YOUR_API_KEY", "sk-...", "<key>", "${KEY}", "sk-xxxxxxxx",
     "changeme", "change-me", "EMPTY", "none", "api_key", "sk-****", "replace-with-yours"],
)  # fmt: skip
def test_what_examples_have_in_a_key_s_place_is_a_placeholder(key: str) -> None:
    assert is_placeholder(key)


@pytest.mark.parametrize("key", [REAL, "AIzaSyD-1_2", "gsk_nonEmptyTestKey", "none-of-these"])
def test_a_key_is_no_placeholder(key: str) -> None:
    assert not is_placeholder(key)


@pytest.mark.parametrize(
    ("key", "owner"),
    [("sk-ant-api03-x", "Anthropic"), (REAL, "OpenAI"), ("AIzaSy", "Google"), ("sk-x", None)],
)
def test_a_key_tells_whose_it_is(key: str, owner: str | None) -> None:
    assert owner_of(key) == owner
