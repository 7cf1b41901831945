"""Who is let in."""

from __future__ import annotations

from typing import Any, cast

import pytest

from agentstate.doors.guard import ADDRESSES_MAX, COOKIE, TRIES_MAX, WINDOW_S, Guard
from agentstate.ground.access import Role, Tokens, cookie_of
from agentstate.ground.errors import AgentStateError, Forbidden, TooManyTries, Unauthorized
from agentstate.wire.message import Headers, Request

TOKENS: dict[Role, str] = {
    role: f"{role}-" + "x" * 26 for role in ("admin", "approve", "read", "agent")
}


class Asking:
    """A request as far as a guard looks at it."""

    def __init__(self, *pairs: tuple[bytes, str], peer: str = "10.0.0.1") -> None:
        self.headers = Headers((name, value.encode("latin-1")) for name, value in pairs)
        self.peer = peer


def asking(*pairs: tuple[bytes, str], peer: str = "10.0.0.1") -> Request:
    return cast(Request, Asking(*pairs, peer=peer))


def bearer(token: str, peer: str = "10.0.0.1") -> Request:
    return asking((b"authorization", f"Bearer {token}"), peer=peer)


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def guard(**settings: Any) -> Guard:
    return Guard(Tokens(TOKENS.items()), **settings)


def error_of(check: Any, *args: Any) -> type[AgentStateError] | None:
    try:
        check(*args)
    except AgentStateError as error:
        return type(error)
    return None


def test_without_tokens_everybody_is_let_in() -> None:
    open_to_all = Guard(Tokens(()))

    assert open_to_all.is_open
    assert open_to_all.role_of(asking()) == "admin"
    open_to_all.check(asking(), "admin")
    open_to_all.check_agent(bearer("sk-theirs"))


def test_each_role_does_what_it_may() -> None:
    def doing(role: Role) -> str:
        found = {None: "x", Forbidden: "."}
        return "".join(
            found[error_of(guard().check, bearer(TOKENS[role]), needed)]  # type: ignore[index]
            for needed in ("agent", "read", "approve", "admin")
        )

    assert {role: doing(role) for role in TOKENS} == {
        "admin": "xxxx", "approve": ".xx.", "read": ".x..", "agent": "x...",
    }  # fmt: skip


@pytest.mark.parametrize(
    "pair",
    [
        (b"authorization", "Bearer {}"),
        (b"authorization", "bearer   {}  "),
        (b"x-agentstate-token", "{}"),
    ],
)
def test_a_token_comes_in_two_headers(pair: tuple[bytes, str]) -> None:
    name, form = pair

    assert guard().role_of(asking((name, form.format(TOKENS["read"])))) == "read"


def test_a_browser_brings_its_cookie() -> None:
    cookie = f"theme=dark; {COOKIE}={cookie_of(TOKENS['approve'])}"

    assert guard().role_of(asking((b"cookie", cookie))) == "approve"


# What other programs on the same name set, in forms no standard has.
ODD_COOKIES = ('prefs={"a":1}', "a b=c", "=x", "[x]", "\xff", "a=b=c", f"x{COOKIE}=y", "", "a,b")


@pytest.mark.parametrize("odd", ODD_COOKIES)
def test_an_odd_cookie_of_another_program_does_not_hide_it(odd: str) -> None:
    ours = f"{COOKIE}={cookie_of(TOKENS['approve'])}"

    for text in (f"{odd}; {ours}", f"{ours};{odd}", f'{odd};{COOKIE}="{ours.partition("=")[2]}"'):
        assert guard().role_of(asking((b"cookie", text))) == "approve"


@pytest.mark.parametrize("cookie", ["", f"{COOKIE}=", f"{COOKIE}=x", "other=1", "a=b=c;;=", "\xff"])
def test_a_cookie_that_is_none_of_ours_is_as_good_as_none(cookie: str) -> None:
    assert guard().role_of(asking((b"cookie", cookie))) is None
    assert error_of(guard().check, asking((b"cookie", cookie)), "read") is Unauthorized


@pytest.mark.parametrize("value", ["Bearer", "Bearer ", "Basic eDp5", ""])
def test_what_is_no_token_at_all_is_asked_for_one(value: str) -> None:
    assert guard().role_of(asking((b"authorization", value))) is None


def test_a_wrong_token_is_refused_and_not_repeated() -> None:
    with pytest.raises(Unauthorized) as caught:
        guard().check(bearer("x" * 40), "read")

    assert "xxx" not in caught.value.message


# -- agents


def test_agents_need_none_unless_it_is_said() -> None:
    guard().check_agent(bearer("sk-theirs"))


def test_an_agent_s_token_beside_its_key_leaves_the_key() -> None:
    request = asking((b"x-agentstate-token", TOKENS["agent"]), (b"authorization", "Bearer sk-own"))

    guard(agents_need_one=True).check_agent(request)

    assert request.headers.text(b"authorization") == "Bearer sk-own"


@pytest.mark.parametrize(
    ("name", "form"),
    [
        (b"authorization", "Bearer {}"), (b"x-api-key", "{}"), (b"x-goog-api-key", "{}"),
        (b"api-key", "{}"),
    ],
)  # fmt: skip
def test_a_token_in_place_of_the_key_is_taken_out(name: bytes, form: str) -> None:
    request = asking((name, form.format(TOKENS["agent"])), (b"accept", "*/*"))

    guard(agents_need_one=True).check_agent(request)

    assert request.headers.text(name) is None
    assert request.headers.text(b"accept") == "*/*"


def test_who_may_call_models() -> None:
    strict = guard(agents_need_one=True)

    assert error_of(strict.check_agent, bearer(TOKENS["admin"])) is None
    assert error_of(strict.check_agent, bearer(TOKENS["read"])) is Forbidden
    assert error_of(strict.check_agent, bearer("sk-theirs")) is Unauthorized
    assert error_of(strict.check_agent, asking()) is Unauthorized


# -- guessing


def test_who_guesses_gets_no_more_answers_and_disturbs_nobody() -> None:
    clock = Clock()
    one = guard(now_s=clock)
    one.check(bearer(TOKENS["read"]), "read")
    found = [error_of(one.check, bearer(f"{n}" * 40), "read") for n in range(TRIES_MAX)]
    assert found == [Unauthorized] * TRIES_MAX

    assert error_of(one.check, bearer("y" * 40), "read") is TooManyTries
    assert error_of(one.check, bearer(TOKENS["admin"]), "read") is TooManyTries  # it may be a guess
    assert error_of(one.check, bearer(TOKENS["read"]), "read") is None  # it was right before
    assert error_of(one.check, bearer(TOKENS["admin"], peer="10.0.0.2"), "read") is None
    clock.now_s = WINDOW_S
    assert error_of(one.check, bearer("y" * 40), "read") is Unauthorized


def test_what_is_remembered_of_addresses_is_bounded() -> None:
    one = guard()
    for number in range(ADDRESSES_MAX + 10):
        assert error_of(one.check, bearer("z" * 40, peer=str(number)), "read") is Unauthorized

    assert len(one._wrong) == ADDRESSES_MAX
