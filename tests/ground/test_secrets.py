"""Keys are struck, words are not."""

import pytest

from agentstate.ground.secrets import strike, strike_bytes


@pytest.mark.parametrize(
    "key",
    ["sk-SECRET", "sk-proj-abc_DEF-123", "gsk_abcdef123", "AIzaSyA1234567", "Bearer abc.def-ghi"],
)
def test_what_looks_like_a_key_is_struck(key: str) -> None:
    assert key[-6:] not in strike(f"Incorrect API key provided: {key}.")


def test_a_known_key_is_struck_whatever_its_form() -> None:
    assert strike("no access for tenant-key-42", "tenant-key-42") == "no access for …"


@pytest.mark.parametrize("text", ["a desk-top", "the bearer of news", "sk-1", "ask-again later"])
def test_words_stay(text: str) -> None:
    assert strike(text, "a", "") == text


def test_bytes_that_are_no_text_stay() -> None:
    assert strike_bytes(b"\xff sk-abcdefgh \x00") == "\udcff sk-… \x00".encode(
        "utf-8", "surrogateescape"
    )
