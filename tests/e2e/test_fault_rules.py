"""Which failures are tried again, where, and how often; and which targets rest. Over real sockets.

The counterpart is `test_faults.py`, where every fault is played; here it is what upstream and
client say beside it that decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from tests.e2e.fault_rig import RETRIES, Rig, ask_model, rig_in
from tests.e2e.forms import CHAT, MESSAGES, PAIRS, PIECES, REFUSED, RESPONSES, TEXT, Form
from tests.helpers.raw_client import Pair, Reception
from tests.helpers.upstream import Gate, Reply, json_reply, sse_reply

pytestmark = pytest.mark.slow

RESTS_S = 2.0  # long enough that what is asked at once afterwards is asked while it rests
RESTED_WITHIN_S = 20.0
COMMITS_S = 0.3
HOURS_S = 3_600.0
POLL_S = 0.02
KINDS = {
    "retries": RETRIES,
    "rests": {"retries": 0, "cooldown_after": 2, "cooldown_s": RESTS_S},
    "commits": {"retries": 0, "commit_after_s": COMMITS_S, "first_byte_timeout_s": 4 * COMMITS_S},
}
SAME = ((CHAT, CHAT), (MESSAGES, MESSAGES), (RESPONSES, RESPONSES))
ACROSS = ((CHAT, MESSAGES), (MESSAGES, CHAT), (RESPONSES, MESSAGES))

by_form = pytest.mark.parametrize("form", [CHAT, MESSAGES, RESPONSES], ids=lambda form: form.name)
by_pair = pytest.mark.parametrize(
    ("caller", "target"), [*SAME, *ACROSS], ids=lambda form: str(form.name)
)


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    with rig_in(tmp_path_factory.mktemp("rules"), KINDS) as started:
        yield started


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A session, and a model, of the test's own."""
    return str(request.node.name).replace("[", "-").replace("]", "")


def ask_both(
    rig: Rig, caller: Form, target: Form, name: str, *headers: Pair, streams: bool = False
) -> Reception:
    """Ask a model of the first upstream, with one of the second to stand in for it."""
    model = name if caller is target else f"{target.name}1/{name}"
    fallback = (b"x-agent-fallback-model", f"{caller.name}2/{name}".encode())
    return ask_model(
        rig.proxies["retries"], caller, model,
        session=name, streams=streams, headers=(fallback, *headers),
    )  # fmt: skip


def calls_of(rig: Rig, name: str) -> tuple[int, int]:
    """Return how often the first upstream was asked, and the second."""
    return rig.first.count(name), rig.second.count(name)


def check_answered(form: Form, got: Reception) -> None:
    """The client got the whole answer."""
    assert (got.status, form.read(got).text) == (200, TEXT)


# --- what the client says -------------------------------------------------------------------------


@by_pair
def test_a_clients_own_retry_gets_one_try_per_target(
    rig: Rig, caller: Form, target: Form, name: str
) -> None:
    rig.first.put(name, target.refusal(503))
    rig.second.put(name, caller.answer(name, streams=False))

    got = ask_both(rig, caller, target, name, (b"x-stainless-retry-count", b"1"))

    check_answered(caller, got)
    assert calls_of(rig, name) == (1, 1)


def test_a_clients_first_try_is_no_retry(rig: Rig, name: str) -> None:
    rig.first.put(name, CHAT.refusal(503), CHAT.answer(name, streams=False))

    got = ask_both(rig, CHAT, CHAT, name, (b"x-stainless-retry-count", b"0"))

    check_answered(CHAT, got)
    assert calls_of(rig, name) == (2, 0)


def test_an_empty_list_of_fallbacks_means_none(rig: Rig, name: str) -> None:
    rig.first.put(name, *[CHAT.refusal(503, retry_after_ms="0")] * 3)

    got = ask_model(
        rig.proxies["retries"], CHAT, name, session=name,
        headers=((b"x-agent-fallback-model", b""),),
    )  # fmt: skip

    assert got.status == 503
    assert calls_of(rig, name) == (3, 0)


# --- what the upstream says -----------------------------------------------------------------------


@by_pair
@pytest.mark.parametrize("status", [400, 401, 403, 404, 413, 422])
@pytest.mark.parametrize("streams", [False, True])
def test_a_request_that_is_wrong_is_asked_nowhere_else(
    rig: Rig, caller: Form, target: Form, status: int, streams: bool, name: str
) -> None:
    rig.first.put(name, target.refusal(status))

    got = ask_both(rig, caller, target, name, streams=streams)

    assert got.status == status
    error = caller.read(got).error
    assert error is not None
    assert error["message"] == REFUSED
    assert calls_of(rig, name) == (1, 0)
    assert got.header("x-agentstate-tried") is None
    (step,) = rig.proxies["retries"].settled_steps(name)
    assert (step["state"], len(step["attempts"])) == ("failed", 1)


def no_money(form: Form) -> Reply:
    """Return how a vendor says that nothing is left to spend."""
    if form is not MESSAGES:
        return form.refusal(429, "insufficient_quota")
    error = {"type": "invalid_request_error", "message": "Your credit balance is too low."}
    return json_reply({"type": "error", "error": error}, status=400)


@by_pair
def test_where_nothing_is_left_to_spend_the_next_target_is_asked_at_once(
    rig: Rig, caller: Form, target: Form, name: str
) -> None:
    rig.first.put(name, no_money(target))
    rig.second.put(name, caller.answer(name, streams=False))

    got = ask_both(rig, caller, target, name)

    check_answered(caller, got)
    assert calls_of(rig, name) == (1, 1)
    assert got.header("x-agentstate-attempts") == "2"


def test_an_upstream_may_forbid_a_retry(rig: Rig, name: str) -> None:
    rig.first.put(name, CHAT.refusal(503, x_should_retry="false"))
    rig.second.put(name, CHAT.answer(name, streams=False))

    got = ask_both(rig, CHAT, CHAT, name)

    check_answered(CHAT, got)
    assert calls_of(rig, name) == (1, 1)


def test_an_upstream_may_ask_for_a_retry(rig: Rig, name: str) -> None:
    rig.first.put(name, CHAT.refusal(400, x_should_retry="true"), CHAT.answer(name, streams=False))

    got = ask_both(rig, CHAT, CHAT, name)

    check_answered(CHAT, got)
    assert calls_of(rig, name) == (2, 0)


def test_who_asks_for_too_long_a_pause_is_not_waited_for(rig: Rig, name: str) -> None:
    rig.first.put(name, CHAT.refusal(429, retry_after="3600"))
    rig.second.put(name, CHAT.answer(name, streams=False))

    got = ask_both(rig, CHAT, CHAT, name)

    check_answered(CHAT, got)
    assert calls_of(rig, name) == (1, 1)


@by_form
def test_all_tries_of_all_targets_are_on_record(rig: Rig, form: Form, name: str) -> None:
    rig.first.put(name, *[form.refusal(529, retry_after_ms="0")] * 3)
    rig.second.put(name, *[form.refusal(500, retry_after_ms="0")] * 3)

    got = ask_both(rig, form, form, name)

    assert got.status == 529
    assert calls_of(rig, name) == (3, 3)
    (step,) = rig.proxies["retries"].settled_steps(name)
    own = form.own
    assert [(each["provider"], each["status"]) for each in step["attempts"]] == [
        *[(own, 529)] * 3, *[(f"{form.name}2", 500)] * 3
    ]  # fmt: skip
    tried = got.header("x-agentstate-tried")
    assert tried == f"{own}/{name}: 529 server, {form.name}2/{name}: 500 server"


@by_form
def test_the_last_target_of_a_stream_ends_it_with_an_error_event(
    rig: Rig, form: Form, name: str
) -> None:
    """With nothing left to try the head is out at the first event, so its error comes inside."""
    once = (b"x-stainless-retry-count", b"1")
    rig.first.put(name, form.refusal(503))
    rig.second.put(name, sse_reply(form.streamed(name, PIECES).opening, end="reset"))

    got = ask_both(rig, form, form, name, once, streams=True)

    assert got.status == 200
    read = form.read(got)
    assert (read.text, read.is_whole) == ("", False)
    assert read.error is not None
    assert form.ends not in got.body
    (step,) = rig.proxies["retries"].settled_steps(name)
    assert step["state"] == "failed"
    assert [each["error_code"] for each in step["attempts"]] == ["upstream_refused", "upstream_cut"]


@pytest.mark.parametrize(("caller", "target"), PAIRS, ids=lambda form: str(form.name))
def test_what_was_withheld_goes_out_with_the_first_content(
    rig: Rig, caller: Form, target: Form, name: str
) -> None:
    """The head waits for content, and not longer: the end of the stream is not waited for."""
    gate = Gate()
    streamed = target.streamed(name, PIECES)
    rig.first.put(name, sse_reply(streamed.frames, gate=gate))

    def has_content(got: Reception) -> bool:
        return PIECES[0].encode() in got.body

    with ThreadPoolExecutor(1) as pool:
        gate.open(len(streamed.opening) + 1)
        model = name if caller is target else f"{target.name}1/{name}"
        asked = pool.submit(
            ask_model, rig.proxies["retries"], caller, model,
            session=name, streams=True, until=has_content,
        )  # fmt: skip
        got = asked.result()
        gate.open(len(streamed.frames))

    assert (got.status, got.ending) == (200, "left")
    assert got.body.count(caller.opens) == 1
    (step,) = rig.proxies["retries"].settled_steps(name)
    assert step["state"] == "complete"


# --- a head of our own ----------------------------------------------------------------------------


def ask_slow(rig: Rig, form: Form, name: str, *headers: Pair) -> Reception:
    """Ask for a stream whose first target says nothing at all."""
    rig.first.put(name, Reply(delays_s=(HOURS_S,), chunks=(b"too late",)))
    fallback = (b"x-agent-fallback-model", f"{form.name}2/{name}".encode())
    return ask_model(
        rig.proxies["commits"], form, name,
        session=name, streams=True, headers=(fallback, *headers),
    )  # fmt: skip


@by_form
def test_a_client_that_was_answered_while_nothing_had_come_gets_the_answer_of_the_next_target(
    rig: Rig, form: Form, name: str
) -> None:
    answer = form.answer(name, streams=True)
    rig.second.put(name, answer)

    got = ask_slow(rig, form, name)

    check_answered(form, got)
    assert got.head_s is not None
    assert got.head_s < got.pieces[-1].at_s
    assert got.body.endswith(b"".join(answer.chunks))
    assert form.read(got).is_whole
    (step,) = rig.proxies["commits"].settled_steps(name)
    assert (step["state"], step["provider"]) == ("complete", f"{form.name}2")


@by_form
def test_a_client_that_was_answered_while_nothing_had_come_is_told_of_the_failure_as_an_event(
    rig: Rig, form: Form, name: str
) -> None:
    rig.second.put(name, form.refusal(503))

    got = ask_slow(rig, form, name)

    assert got.status == 200
    read = form.read(got)
    assert (read.text, read.is_whole) == ("", False)
    assert read.error is not None
    assert form.ends not in got.body
    (step,) = rig.proxies["commits"].settled_steps(name)
    assert step["state"] == "failed"


# --- joined ---------------------------------------------------------------------------------------


@by_form
@pytest.mark.parametrize("streams", [False, True])
def test_calls_that_joined_one_that_fails_get_the_answer_of_the_next_target(
    rig: Rig, form: Form, streams: bool, name: str
) -> None:
    gate = Gate()
    refusal, answer = form.refusal(503), form.answer(name, streams=streams)
    rig.first.put(name, *[replace(refusal, gate=gate)] * 3)
    rig.second.put(name, answer)

    with ThreadPoolExecutor(3) as pool:
        asked = [pool.submit(ask_both, rig, form, form, name, streams=streams) for _ in range(3)]
        gate.open(3)
        got = [each.result() for each in asked]

    assert [each.body for each in got] == [b"".join(answer.chunks)] * 3
    assert calls_of(rig, name) == (3, 1)
    (step,) = rig.proxies["retries"].settled_steps(name)
    assert len(step["attempts"]) == 4


# --- windows --------------------------------------------------------------------------------------

# Windows by the table of prices: 8,192 < 128,000 < 1,047,576.
SMALL, MIDDLE, LARGE = "gpt-4", "gpt-4o", "gpt-4.1"


@pytest.mark.parametrize("form", [CHAT, RESPONSES], ids=lambda form: form.name)
def test_a_request_that_does_not_fit_goes_to_a_larger_window_only(
    rig: Rig, form: Form, name: str
) -> None:
    before = {model: rig.first.count(model) for model in (SMALL, MIDDLE, LARGE)}
    rig.first.put(MIDDLE, form.refusal(400, "context_length_exceeded"))
    rig.first.put(LARGE, form.answer(LARGE, streams=False))

    got = ask_model(
        rig.proxies["retries"], form, MIDDLE, session=name,
        headers=((b"x-agent-fallback-model", f"{SMALL},{LARGE}".encode()),),
    )  # fmt: skip

    check_answered(form, got)
    assert got.header("x-agentstate-model") == LARGE
    added = {model: rig.first.count(model) - count for model, count in before.items()}
    assert added == {SMALL: 0, MIDDLE: 1, LARGE: 1}


def test_what_the_mock_gave_as_a_stand_in_is_not_replayed_for_a_real_answer(
    rig: Rig, name: str
) -> None:
    rig.first.put(name, CHAT.refusal(400, "context_length_exceeded"))

    def ask() -> Reception:
        return ask_model(
            rig.proxies["retries"], CHAT, name, session=name,
            headers=((b"x-agent-fallback-model", b"mock/m"),),
        )  # fmt: skip

    stood_in = ask()
    assert (stood_in.status, stood_in.header("x-agentstate-provider")) == (200, "mock")
    rig.first.put(name, CHAT.answer(name, streams=False))
    answered, again = ask(), ask()

    check_answered(CHAT, answered)
    assert answered.header("x-agentstate-cache-hit") == "false"
    assert again.header("x-agentstate-cache-hit") == "true"
    check_answered(CHAT, again)
    assert rig.first.count(name) == 2


def test_a_request_that_fits_nowhere_is_refused_as_it_was_first(rig: Rig, name: str) -> None:
    before = rig.first.count(SMALL)
    rig.first.put(MIDDLE, CHAT.refusal(400, "context_length_exceeded"))

    got = ask_model(
        rig.proxies["retries"], CHAT, MIDDLE, session=name,
        headers=((b"x-agent-fallback-model", SMALL.encode()),),
    )  # fmt: skip

    assert got.status == 400
    assert got.json()["error"]["code"] == "context_length_exceeded"
    assert rig.first.count(SMALL) == before


# --- rest -----------------------------------------------------------------------------------------


class Sick:
    """A model of the first upstream that fails until it is well, with one that stands in for it."""

    def __init__(self, rig: Rig, name: str) -> None:
        self._rig = rig
        self._name = name
        self._asked = 0

    def ask(self) -> Reception:
        """Ask a new question."""
        self._asked += 1
        rig, name = self._rig, self._name
        fallback = (b"x-agent-fallback-model", f"chat2/{name}".encode())
        return ask_model(
            rig.proxies["rests"], CHAT, name, session=f"{name}-{self._asked}", headers=(fallback,)
        )

    def fail_twice(self) -> None:
        """Ask until it rests."""
        self._rig.first.put(self._name, *[CHAT.refusal(503)] * 2)
        self._rig.second.put(self._name, *[CHAT.answer(self._name, streams=False)] * 500)
        for _ in range(2):
            assert self.ask().header("x-agentstate-attempts") == "2"
        assert self.calls == (2, 2)

    @property
    def calls(self) -> tuple[int, int]:
        """How often the first upstream was asked, and the second."""
        return calls_of(self._rig, self._name)

    def ask_until(self, happened: Callable[[], bool]) -> None:
        """Ask new questions until something has happened, within a time."""
        until_s = time.perf_counter() + RESTED_WITHIN_S
        while not happened():
            assert time.perf_counter() < until_s, "it did not happen in time"
            check_answered(CHAT, self.ask())
            time.sleep(POLL_S)


def test_a_target_that_failed_again_and_again_is_passed_by_and_asked_again_later(
    rig: Rig, name: str
) -> None:
    sick = Sick(rig, name)
    sick.fail_twice()

    passed_by = sick.ask()

    check_answered(CHAT, passed_by)
    assert sick.calls == (2, 3)
    assert passed_by.header("x-agentstate-provider") == "chat2"
    assert passed_by.header("x-agentstate-attempts") == "1"
    assert passed_by.header("x-agentstate-fallback-index") == "1"

    rig.first.put(name, *[CHAT.answer(name, streams=False)] * 2)
    sick.ask_until(lambda: sick.calls[0] == 3)
    after = sick.ask()  # the one that found out was answered, so it is well

    assert after.header("x-agentstate-provider") == "openai"
    assert sick.calls[0] == 4


def test_one_call_finds_out_while_the_others_pass_by(rig: Rig, name: str) -> None:
    sick, gate = Sick(rig, name), Gate()
    sick.fail_twice()
    answer = CHAT.answer(name, streams=False)
    slow = Reply(answer.status, answer.headers, answer.chunks, gate=gate)
    rig.first.put(name, slow)

    with ThreadPoolExecutor(1) as pool:
        until_s = time.perf_counter() + RESTED_WITHIN_S
        asked = pool.submit(sick.ask)
        while sick.calls[0] == 2:
            assert time.perf_counter() < until_s, "nobody found out"
            if asked.done():
                asked = pool.submit(sick.ask)
            time.sleep(POLL_S)
        beside = sick.ask()
        gate.open()
        found_out = asked.result()

    assert beside.header("x-agentstate-provider") == "chat2"
    assert found_out.header("x-agentstate-provider") == "openai"
    assert sick.calls[0] == 3


def test_where_all_rest_they_are_asked_all_the_same(rig: Rig, name: str) -> None:
    sick = Sick(rig, name)
    rig.first.put(name, *[CHAT.refusal(503)] * 2, CHAT.answer(name, streams=False))
    rig.second.put(name, *[CHAT.refusal(503)] * 2)
    for _ in range(2):
        assert sick.ask().status == 503

    got = sick.ask()

    check_answered(CHAT, got)
    assert got.header("x-agentstate-provider") == "openai"
    assert sick.calls == (3, 2)


def test_another_model_of_a_provider_does_not_rest_with_it(rig: Rig, name: str) -> None:
    Sick(rig, name).fail_twice()
    other = f"{name}-other"
    rig.first.put(other, CHAT.answer(other, streams=False))

    got = Sick(rig, other).ask()

    check_answered(CHAT, got)
    assert got.header("x-agentstate-provider") == "openai"
