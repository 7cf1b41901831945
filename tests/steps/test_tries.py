"""The attempts of one call carried out: who is asked, what is noted, what the end is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from agentstate.ground.errors import BadRequest, ConnectFailed, StoreError, UpstreamCut
from agentstate.ground.prices import ModelPrice, Prices
from agentstate.steps.cooldown import Cooldowns
from agentstate.steps.failures import Failure
from agentstate.steps.leg import Failed, Outgoing
from agentstate.steps.target import Target
from agentstate.steps.tries import AllFailed, Answered, Reception, Tries
from agentstate.wire.message import Headers, Origin, TimeLimits
from tests.steps.legs import (
    BUSY,
    MESSAGES,
    PLAIN,
    RAW,
    UNSAYABLE,
    Clock,
    Upstreams,
    busy,
    exchange,
    outgoing,
    road,
)
from tests.steps.scene import LIMIT_S, FakeTransport

A, B, C = (
    replace(PLAIN, provider=name, origin=Origin("https", f"{name}.example", 443)) for name in "abc"
)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


async def take(reception: Reception) -> bytes | Failed:
    return await reception.exchange.read(1_000)


def run(
    tries: Tries,
    out: Outgoing | None = None,
    receive: Callable[[Reception], Awaitable[bytes | Failed]] = take,
) -> Answered[bytes] | AllFailed:
    async def main() -> Answered[bytes] | AllFailed:
        async with asyncio.timeout(LIMIT_S):
            return await tries.run(out or outgoing(), receive)

    return asyncio.run(main())


def make(upstreams: FakeTransport, *targets: Target, **settings: Any) -> Tries:
    return Tries(road(upstreams, **settings), targets, Headers())


def told(tries: Tries) -> list[tuple[str, int | None, str | None]]:
    return [(each.provider, each.status, each.error_code) for each in tries.ended()]


# -- an answer


def test_the_first_target_answers() -> None:
    upstreams = Upstreams()
    tries = make(upstreams, A, B)

    assert (tries.target, tries.index, tries.count) == (A, 0, 0)
    assert run(tries) == Answered(b"fine")
    assert (upstreams.asked, tries.target, tries.index, tries.count) == ("a", A, 0, 1)
    assert told(tries) == [("a", 200, None)]
    assert tries.failures == ()
    assert all(given.is_closed for given in upstreams.given)


def test_what_fails_is_tried_again_and_all_of_it_is_noted(clock: Clock) -> None:
    upstreams = Upstreams(a=[busy(503), ConnectFailed("no way"), busy(429)])
    tries = make(upstreams, A, retries=3, retry_total_s=60)

    assert run(tries) == Answered(b"fine")
    assert upstreams.asked == "aaaa"
    assert told(tries) == [
        ("a", 503, "upstream_refused"),
        ("a", None, "upstream_unreachable"),
        ("a", 429, "upstream_refused"),
        ("a", 200, None),
    ]
    attempts = tries.ended()
    assert [each.error for each in attempts] == [
        "a answered 503: Busy.", "no way", "a answered 429: Busy.", None,
    ]  # fmt: skip
    assert [each.excerpt for each in attempts] == [BUSY, b"", BUSY, b""]
    assert all(each.started_ms <= each.ended_ms for each in attempts)
    assert [failed.failure.kind for _, failed in tries.failures] == [
        "server", "connect", "rate_limit",
    ]  # fmt: skip
    assert tries.count == 4


def test_then_the_next_target_is_asked() -> None:
    upstreams = Upstreams(a=[busy(), busy()], b=[busy(), busy()])
    tries = make(upstreams, A, B, C, retries=1)

    assert run(tries) == Answered(b"fine")
    assert upstreams.asked == "aabbc"
    assert (tries.target, tries.index, tries.count) == (C, 2, 5)


def test_a_fallback_gets_no_idempotency_key() -> None:
    upstreams = Upstreams(a=[busy()])
    out = outgoing(headers=[(b"Idempotency-Key", b"i")])
    run(make(upstreams, A, B, retries=0), out)

    first, second = ([name.lower() for name, _ in call.headers] for call in upstreams.calls)

    assert b"idempotency-key" in first
    assert b"idempotency-key" not in second


def test_the_mock_is_asked_by_its_own_transport() -> None:
    upstreams, mock = Upstreams(a=[busy()]), Upstreams()

    assert run(make(upstreams, A, replace(B, is_mock=True), retries=0, mock=mock)) == Answered(
        b"fine"
    )
    assert (upstreams.asked, mock.asked) == ("a", "b")


def test_each_attempt_has_the_limits_that_are_set() -> None:
    upstreams = Upstreams(a=[busy()])
    run(make(upstreams, A, connect_timeout_s=1.0, first_byte_timeout_s=2.0, gap_timeout_s=3.0,
             total_timeout_s=4.0))  # fmt: skip

    assert upstreams.limits == [TimeLimits(1.0, 2.0, 3.0, 4.0)] * 2


def test_a_connection_can_be_begun_beforehand() -> None:
    upstreams = Upstreams()
    make(upstreams, A, B).warm()

    assert upstreams.warmed == [A.origin]


# -- pauses


def test_a_pause_that_was_asked_for_is_kept(clock: Clock) -> None:
    upstreams = Upstreams(a=[busy(429, (b"Retry-After", b"2"))])
    run(make(upstreams, A))

    assert len(clock.pauses) == 1
    assert 2.0 <= clock.pauses[0] <= 2.2


def test_nobody_waits_where_no_pause_was_asked_for_and_none_is_due(clock: Clock) -> None:
    run(make(Upstreams(a=[busy(), busy()], b=[busy(402)]), A, B, C, retries=1))

    assert clock.pauses == []


def test_of_a_longer_pause_than_is_set_the_next_target_is_asked(clock: Clock) -> None:
    upstreams = Upstreams(a=[busy(429, (b"Retry-After", b"31"))])
    run(make(upstreams, A, B))

    assert (upstreams.asked, clock.pauses) == ("ab", [])


def test_time_that_a_call_waited_before_it_was_sent_is_not_held_against_it(clock: Clock) -> None:
    """A person may have taken minutes to let it go."""
    upstreams = Upstreams(a=[busy()])
    tries = make(upstreams, A, retry_total_s=60.0)
    clock.now_s += 600

    before = tries.began_s
    assert run(tries) == Answered(b"fine")
    clock.now_s += 5
    assert (before, tries.began_s) == (1_600.0, 1_600.0)


def test_the_whole_time_is_kept(clock: Clock) -> None:
    upstreams = Upstreams(a=[busy(429, (b"Retry-After", b"25")) for _ in range(9)])
    run(make(upstreams, A, B, retries=9, retry_total_s=60.0))

    assert upstreams.asked == "aaab"


# -- no answer


def test_if_all_fail_the_first_targets_last_error_is_the_one(clock: Clock) -> None:
    upstreams = Upstreams(
        a=[busy(503, body=b'{"error": {"message": "first"}}'),
           busy(500, body=b'{"error": {"message": "second"}}')],
        b=[busy(429), busy(429)],
        c=[ConnectFailed("no way")] * 2,
    )  # fmt: skip
    tries = make(upstreams, A, B, C, retries=1)

    outcome = run(tries)

    assert isinstance(outcome, AllFailed)
    assert outcome.first.error.message == "a answered 500: second"
    assert outcome.tried == (
        "a/gpt-4o-mini: 500 server",
        "b/gpt-4o-mini: 429 rate_limit",
        "c/gpt-4o-mini: upstream_unreachable",
    )
    assert not outcome.is_out
    assert [failed.error.upstream_status for _, failed in tries.failures] == [
        503, 500, 429, 429, None, None,
    ]  # fmt: skip


def test_the_target_that_was_asked_for_is_the_one_also_if_it_was_asked_last() -> None:
    cooldowns = Cooldowns(after=1, rest_s=1_000)
    run(make(Upstreams(a=[busy()]), A, retries=0, cooldowns=cooldowns))
    upstreams = Upstreams(a=[busy(500)], b=[busy(429)])
    tries = make(upstreams, A, B, retries=0, cooldowns=cooldowns)

    outcome = run(tries)

    assert upstreams.asked == "ba"
    assert isinstance(outcome, AllFailed)
    assert outcome.first.error.upstream_status == 500
    assert (outcome.target, outcome.index) == (A, 0)


def test_what_is_wrong_with_the_request_is_asked_once() -> None:
    upstreams = Upstreams(a=[busy(400)])

    outcome = run(make(upstreams, A, B))

    assert upstreams.asked == "a"
    assert isinstance(outcome, AllFailed)
    assert outcome.tried == ("a/gpt-4o-mini: 400 request",)


@pytest.mark.parametrize("status", [300, 302])
def test_a_redirect_is_no_answer(status: int) -> None:
    upstreams = Upstreams(a=[busy(status)])

    assert isinstance(run(make(upstreams, A)), AllFailed)


def test_a_clients_own_retry_is_tried_once_at_each_target() -> None:
    upstreams = Upstreams(a=[busy()], b=[busy()])
    headers = Headers([(b"x-stainless-retry-count", b"1")])

    run(Tries(road(upstreams), (A, B), headers))

    assert upstreams.asked == "ab"


def test_only_a_larger_window_is_tried_where_the_request_does_not_fit() -> None:
    def window(tokens: int) -> ModelPrice:
        return ModelPrice(1, 1, context_tokens=tokens)

    prices = Prices({(at.provider, at.model): window(8_000) for at in (A, B)}
                    | {("c", C.model): window(16_000)})  # fmt: skip
    upstreams = Upstreams(
        a=[busy(400, body=b'{"error": {"message": "x", "code": "context_length_exceeded"}}')]
    )

    assert run(make(upstreams, A, B, C, prices=prices)) == Answered(b"fine")
    assert upstreams.asked == "ac"


# -- what the reader of a response says


def test_a_reader_may_say_that_what_came_is_no_answer() -> None:
    seen: list[tuple[bool, bool]] = []

    async def receive(reception: Reception) -> bytes | Failed:
        seen.append((reception.has_more, reception.has_others))
        if len(seen) < 3:
            return Failed(UpstreamCut("half"), Failure("cut", 0.0), excerpt=b"hal")
        return b"whole"

    upstreams = Upstreams()
    tries = make(upstreams, A, B, retries=1)

    assert run(tries, receive=receive) == Answered(b"whole")
    assert upstreams.asked == "aab"
    assert seen == [(True, True), (True, True), (True, False)]
    assert [each.excerpt for each in tries.ended()] == [b"hal", b"hal", b""]
    assert all(given.is_closed for given in upstreams.given)


def test_an_error_of_the_upstream_while_it_is_read_is_a_failed_attempt(clock: Clock) -> None:
    broken = exchange(200)
    broken.pieces = asyncio.Queue()
    broken.give(b"hal", UpstreamCut("cut"))
    upstreams = Upstreams(a=[broken])

    assert run(make(upstreams, A)) == Answered(b"fine")
    assert upstreams.asked == "aa"
    assert broken.is_closed


def test_after_a_client_has_seen_a_part_nothing_else_is_tried() -> None:
    async def receive(reception: Reception) -> bytes | Failed:
        return Failed(UpstreamCut("cut"), Failure("cut"), is_out=True)

    upstreams = Upstreams(a=[busy(402)])
    tries = make(upstreams, A, B, C)

    outcome = run(tries, receive=receive)

    assert upstreams.asked == "ab"
    assert isinstance(outcome, AllFailed)
    assert outcome.is_out
    assert outcome.first.error.code == "upstream_cut"
    assert (tries.target, tries.index) == (B, 1)


def test_a_reader_may_keep_a_response_open() -> None:
    async def receive(reception: Reception) -> bytes | Failed:
        reception.is_kept = True
        return b""

    upstreams = Upstreams()
    run(make(upstreams, A), receive=receive)

    assert not upstreams.given[0].is_closed


def test_what_is_not_the_upstreams_doing_ends_it_all() -> None:
    async def receive(reception: Reception) -> bytes | Failed:
        raise StoreError("the disk")

    upstreams = Upstreams()
    tries = make(upstreams, A, B)

    with pytest.raises(StoreError):
        run(tries, receive=receive)
    assert upstreams.asked == "a"
    assert upstreams.given[0].is_closed
    assert [each.error for each in tries.ended(StoreError("the disk"))] == ["the disk"]


def test_an_attempt_that_lasts_can_be_ended_for_the_record() -> None:
    seen: list[Any] = []

    async def receive(reception: Reception) -> bytes | Failed:
        seen.append(tries.ended(UpstreamCut("left"), b"half"))
        return b""

    tries = make(Upstreams(a=[busy(402)]), A, B)
    run(tries, receive=receive)

    assert [(each.provider, each.error, each.excerpt) for each in seen[0]] == [
        ("a", "a answered 402: Busy.", BUSY), ("b", "left", b"half"),
    ]  # fmt: skip


# -- what cannot be said


def test_what_the_first_target_cannot_be_asked_is_refused() -> None:
    upstreams = Upstreams()
    tries = make(upstreams, MESSAGES, A)

    with pytest.raises(BadRequest):
        run(tries, outgoing(UNSAYABLE))
    assert upstreams.asked == ""


def test_a_fallback_that_cannot_be_asked_is_passed_by_and_noted() -> None:
    upstreams = Upstreams(a=[busy(402)])
    tries = make(upstreams, A, MESSAGES, B)

    assert run(tries, outgoing(UNSAYABLE)) == Answered(b"fine")
    assert upstreams.asked == "ab"
    assert told(tries)[1] == ("claude", None, "upstream_error")
    assert "cannot be translated for claude" in (tries.ended()[1].error or "")


def test_what_could_not_be_said_is_noted_with_the_attempt() -> None:
    upstreams = Upstreams(a=[busy(402)])
    tries = make(upstreams, A, MESSAGES)
    run(tries, outgoing(RAW))

    assert [each.dropped for each in tries.ended()] == [(), ("seed",)]
    assert tries.dropped == ("seed",)


# -- secrets


def test_no_key_is_put_on_record() -> None:
    said = b'{"error": {"message": "bad key sk-callers-own-1"}}'
    upstreams = Upstreams(a=[busy(401, body=said)])
    headers = Headers([(b"authorization", b"Bearer sk-callers-own-1")])
    tries = Tries(road(upstreams), (A,), headers)
    run(tries)

    (attempt,) = tries.ended()
    assert "sk-callers-own-1" not in f"{attempt}"
    assert "bad key" in (attempt.error or "")
    assert b"bad key" in attempt.excerpt


# -- targets that rest


def with_key(key: str) -> Headers:
    return Headers([(b"authorization", b"Bearer " + key.encode())])


async def look(cooldowns: Cooldowns, key: str, target: Target = A) -> str:
    """Return who a call with this key asks first, and let it come to nothing."""

    async def give_up(reception: Reception) -> bytes | Failed:
        raise StoreError("the disk")

    upstreams = Upstreams()
    tries = Tries(road(upstreams, cooldowns=cooldowns), (target, B), with_key(key))
    with pytest.raises(StoreError):
        await tries.run(outgoing(), give_up)
    return upstreams.asked


def first_asked(cooldowns: Cooldowns, key: str, target: Target = A) -> str:
    return asyncio.run(look(cooldowns, key, target))


def failing(cooldowns: Cooldowns, key: str, target: Target = A) -> None:
    upstreams = Upstreams(a=[busy(429)])
    run(Tries(road(upstreams, cooldowns=cooldowns, retries=0), (target,), with_key(key)))


def test_a_target_rests_for_the_key_that_failed() -> None:
    """One caller's limits are none of another's."""
    cooldowns = Cooldowns(after=1, rest_s=1_000)
    failing(cooldowns, "one")

    assert first_asked(cooldowns, "one") == "b"
    assert first_asked(cooldowns, "two") == "a"


def test_where_a_configured_key_is_used_it_rests_for_all() -> None:
    cooldowns = Cooldowns(after=1, rest_s=1_000)
    configured = replace(A, key="k", takes_callers_key=False)
    failing(cooldowns, "one", configured)

    assert first_asked(cooldowns, "two", configured) == "b"
    assert first_asked(cooldowns, "two", replace(configured, key="another")) == "a"
    assert first_asked(cooldowns, "two", replace(configured, model="another")) == "a"


def test_an_answer_makes_a_target_well() -> None:
    cooldowns = Cooldowns(after=2, rest_s=1_000)
    failing(cooldowns, "k")
    run(Tries(road(Upstreams(), cooldowns=cooldowns), (A,), with_key("k")))
    failing(cooldowns, "k")

    assert first_asked(cooldowns, "k") == "a"


@pytest.mark.parametrize("how", ["given up", "cancelled"])
def test_a_call_that_finds_nothing_out_leaves_it_to_the_next(how: str, clock: Clock) -> None:
    cooldowns = Cooldowns(after=1, rest_s=30)
    failing(cooldowns, "k")
    clock.now_s += 30
    seen: list[str] = []

    async def receive(reception: Reception) -> bytes | Failed:
        seen.append(await look(cooldowns, "k"))
        raise StoreError("the disk") if how == "given up" else asyncio.CancelledError

    upstreams = Upstreams()
    tries = Tries(road(upstreams, cooldowns=cooldowns), (A, B), with_key("k"))
    with pytest.raises(StoreError if how == "given up" else asyncio.CancelledError):
        run(tries, receive=receive)

    assert (upstreams.asked, seen) == ("a", ["b"]), "one call at a time finds out"
    assert first_asked(cooldowns, "k") == "a"


def test_a_call_that_is_planned_and_never_sent_keeps_no_target_out(clock: Clock) -> None:
    """It was found on record after all, or refused by a person."""
    cooldowns = Cooldowns(after=1, rest_s=30)
    failing(cooldowns, "k")
    clock.now_s += 30
    tries = Tries(road(Upstreams(), cooldowns=cooldowns), (A, B), with_key("k"))

    assert (tries.target, tries.index, tries.count) == (A, 0, 0)
    assert first_asked(cooldowns, "k") == "a"
