"""Which token may do what."""

from __future__ import annotations

from typing import get_args

import pytest

from agentstate.ground.access import TOKEN_CHARS_MIN, Role, Tokens, cookie_of, may
from agentstate.ground.errors import SettingError

ADMIN, AGENT = "admin-" + "a" * 26, "agent-" + "b" * 26


def test_an_agent_neither_reads_nor_decides_and_only_an_admin_does_all() -> None:
    table = {
        role: "".join("x" if may(role, needed) else "." for needed in get_args(Role))
        for role in get_args(Role)
    }

    assert table == {"agent": "x...", "read": ".x..", "approve": ".xx.", "admin": "xxxx"}


def test_a_token_is_found_and_what_is_near_to_it_is_not() -> None:
    tokens = Tokens([("admin", ADMIN), ("agent", AGENT)])

    assert (tokens.role_of(ADMIN), tokens.role_of(AGENT)) == ("admin", "agent")
    for odd in ("", ADMIN[:-1], ADMIN + "a", ADMIN.upper(), "\ud800", cookie_of(ADMIN)):
        assert tokens.role_of(odd) is None
    assert bool(tokens)
    assert (tokens.has("agent"), tokens.has("read")) == (True, False)


def test_a_cookie_stands_for_its_token_and_is_no_token() -> None:
    tokens = Tokens([("admin", ADMIN), ("agent", AGENT)])

    assert tokens.role_of_cookie(cookie_of(AGENT)) == "agent"
    assert tokens.role_of_cookie(ADMIN) is None
    assert tokens.role_of(cookie_of(ADMIN)) is None
    assert ADMIN not in cookie_of(ADMIN)


@pytest.mark.parametrize("token", ["", "a" * (TOKEN_CHARS_MIN - 1), "é" * 40, "a" * 30 + "\n"])
def test_what_could_be_guessed_or_cannot_be_sent_is_no_token(token: str) -> None:
    with pytest.raises(SettingError) as caught:
        Tokens([("read", token)])

    assert "role read" in caught.value.message
    assert not token or token not in caught.value.message


def test_a_token_has_one_role() -> None:
    with pytest.raises(SettingError, match="both admin and agent"):
        Tokens([("admin", ADMIN), ("agent", ADMIN)])

    assert Tokens([("agent", AGENT), ("agent", AGENT)]).role_of(AGENT) == "agent"


def test_without_tokens_there_is_nothing_to_ask_for() -> None:
    assert not Tokens(())
