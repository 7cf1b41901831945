"""The decorator against a real server: what is called, what is not, and what it says then."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import agentstate
from agentstate.ground.approvals import Decision
from agentstate.ground.durable import DurableCall, Settlement
from agentstate.ground.records import Query
from agentstate.sdk import management, tools
from agentstate.sdk.management import Management
from tests.helpers.desk import Desk

WAIT_S = 20.0


@pytest.fixture
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


@pytest.fixture
def be_born(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Make this process another life."""
    lives: list[int] = []

    def begin() -> None:
        lives.append(1)
        monkeypatch.setattr(tools, "_owner_of", lambda _: f"life-{len(lives)}")

    begin()
    return begin


def calls(desk: Desk) -> list[DurableCall]:
    found: list[DurableCall] = list(
        desk.run(desk.store.list_durables(Query(newest_first=False))).rows
    )
    return found


def decide_next(desk: Desk, decision: Decision) -> threading.Thread:
    """Decide on the next approval as soon as it is there."""

    def work() -> None:
        waiter = threading.Event()
        for _ in range(1000):
            page = desk.run(desk.store.list_approvals(Query(status="PENDING"), at_ms=0))
            if page.rows:
                desk.run(desk._gate.decide(page.rows[0].approval_id, decision))
                return
            waiter.wait(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    return thread


# --- once -----------------------------------------------------------------------------------------


def test_a_tool_acts_once_for_each_call_however_often_its_agent_is_run(
    desk: Desk, be_born: Callable[[], None]
) -> None:
    acted: list[str] = []

    @agentstate.tool("s", url=desk.url)
    def charge(customer: str, cents: int = 100) -> tuple[str, int]:
        acted.append(customer)
        return customer, cents + len(acted)

    first = [charge("ann"), charge("ann", cents=100), charge("bo")]
    be_born()
    again = [charge("ann"), charge(customer="ann"), charge("bo")]

    assert acted == ["ann", "ann", "bo"]
    assert first == [("ann", 101), ("ann", 102), ("bo", 103)]
    assert again == [["ann", 101], ["ann", 102], ["bo", 103]], "as JSON gives it back"
    assert json.loads(calls(desk)[0].arguments) == {
        "customer": "ann",
        "cents": 100,
    }


def test_it_stays_the_function_that_it_was(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, name="pay")
    def charge(customer: str, *items: int, note: str = "", **more: str) -> int:
        """Charge a customer."""
        return len(items)

    assert (charge.__name__, charge.__doc__) == ("charge", "Charge a customer.")
    assert list(inspect.signature(charge).parameters) == ["customer", "items", "note", "more"]
    assert charge("ann", 1, 2, note="x", tip="y") == 2
    (row,) = calls(desk)
    assert row.tool == "pay"
    assert json.loads(row.arguments) == {
        "customer": "ann", "items": [1, 2], "note": "x", "more": {"tip": "y"}
    }  # fmt: skip


def test_a_key_names_one_call_whatever_the_run(desk: Desk) -> None:
    acted: list[int] = []

    @agentstate.tool("s", url=desk.url, key=lambda invoice: f"invoice {invoice}")
    def remind(invoice: int) -> int:
        acted.append(invoice)
        return len(acted)

    assert [remind(1), remind(1), remind(2)] == [1, 1, 2]


def test_a_run_in_a_session_is_the_owner_of_its_calls(desk: Desk) -> None:
    acted: list[str] = []

    def live() -> tuple[str, list[int]]:
        run = agentstate.session("a/b", base_url=f"{desk.url}/s/a%2Fb/v1")

        @run.tool
        def charge(customer: str) -> int:
            acted.append(customer)
            return len(acted)

        @run.tool(name="pay", key=lambda invoice: f"invoice {invoice}")
        def remind(invoice: int) -> int:
            acted.append(f"invoice {invoice}")
            return len(acted)

        return run.run_id, [charge("ann"), charge("ann"), remind(1), remind(1)]

    first, found = live()
    assert found == [1, 2, 3, 3]
    assert {row.owner for row in calls(desk)} == {first}

    second, found = live()  # in the same process
    assert (second != first, found) == (True, [1, 2, 3, 3])
    assert acted == ["ann", "ann", "invoice 1"]
    assert [(row.session, row.tool) for row in calls(desk)] == [
        ("a/b", "charge"), ("a/b", "charge"), ("a/b", "pay")
    ]  # fmt: skip


def test_a_coroutine_of_a_run_is_replayed_too(desk: Desk) -> None:
    acted: list[str] = []

    async def live() -> list[str]:
        async with agentstate.session("s", base_url=desk.url) as run:

            @run.tool
            async def charge(customer: str) -> str:
                await asyncio.sleep(0)
                acted.append(customer)
                return f"{customer} paid"

            return [await charge("ann"), *await asyncio.gather(charge("bo"), charge("cy"))]

    assert asyncio.run(live()) == asyncio.run(live()) == ["ann paid", "bo paid", "cy paid"]
    assert sorted(acted) == ["ann", "bo", "cy"]


@pytest.mark.parametrize(
    ("url", "found"),
    [
        ("http://h:1", "http://h:1"),
        ("http://h:1/", "http://h:1"),
        ("http://h:1/v1", "http://h:1"),
        ("http://h:1/s/x/p/groq/v1/", "http://h:1"),
        ("https://h/below/v1", "https://h/below"),
    ],
)
def test_a_base_url_leads_to_the_server(url: str, found: str) -> None:
    assert Management(url).url == found


def test_a_url_that_is_none_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="base_url must be the proxy's URL"):
        agentstate.tool("s", url="localhost:8080")(lambda: None)


# --- nothing is called ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (object(), "customer is a object, which JSON cannot say"),
        (float("nan"), "customer is nan"),
        ({1: "a"}, "customer has the key 1"),
        ([{"a": b"x"}], r"customer\[0\].a is a bytes"),
    ],
)
def test_what_json_cannot_say_is_named_and_nothing_is_called(
    desk: Desk, value: Any, words: str
) -> None:
    @agentstate.tool("s", url=desk.url)
    def charge(customer: Any) -> None:
        raise AssertionError("it was called")

    with pytest.raises(TypeError, match=words):
        charge(value)
    with pytest.raises(TypeError, match="missing a required argument: 'customer'"):
        charge()  # type: ignore[call-arg]
    assert calls(desk) == []


def test_without_a_server_nothing_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(management, "FIRST_PAUSE_S", 0.0)

    @agentstate.tool("s", url="http://127.0.0.1:9")
    def act() -> None:
        raise AssertionError("it was called")

    with pytest.raises(agentstate.ServerUnreachable, match="No AgentState server answers at http:"):
        act()


def test_a_session_that_no_server_takes_is_said_in_its_words(desk: Desk) -> None:
    @agentstate.tool("\x01", url=desk.url)
    def act() -> None:
        raise AssertionError("it was called")

    with pytest.raises(agentstate.ProxyRefused, match="control characters"):
        act()


# --- how it ends ----------------------------------------------------------------------------------


def test_an_exception_is_raised_and_in_a_later_run_told(
    desk: Desk, be_born: Callable[[], None]
) -> None:
    acted: list[int] = []

    @agentstate.tool("s", url=desk.url)
    def charge() -> None:
        acted.append(1)
        raise LookupError("no such card")

    with pytest.raises(LookupError):
        charge()
    be_born()
    with pytest.raises(agentstate.ToolError) as raised:
        charge()

    assert acted == [1]
    assert (raised.value.type, raised.value.message) == ("LookupError", "no such card")
    assert str(raised.value) == "LookupError: no such card"
    assert raised.value.call == calls(desk)[0].call


def test_an_exception_that_is_not_recorded_lets_the_next_call_try(desk: Desk) -> None:
    acted: list[int] = []

    @agentstate.tool("s", url=desk.url, record_errors=False)
    def charge() -> int:
        acted.append(1)
        if len(acted) < 3:
            raise OSError("busy")
        return len(acted)

    for _ in range(2):
        with pytest.raises(OSError, match="busy"):
            charge()
    assert charge() == 3
    (row,) = calls(desk)
    assert (row.runs, row.state) == (3, "done")


def test_a_result_that_json_cannot_say_is_an_error_and_is_not_repeated(
    desk: Desk, be_born: Callable[[], None]
) -> None:
    acted: list[int] = []

    @agentstate.tool("s", url=desk.url)
    def charge() -> object:
        acted.append(1)
        return object()

    with pytest.raises(TypeError, match="what it returned is a object"):
        charge()
    be_born()
    with pytest.raises(agentstate.ToolError, match="what it returned is a object"):
        charge()
    assert acted == [1]


def test_an_interrupt_is_no_outcome(desk: Desk, be_born: Callable[[], None]) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=0)
    def charge() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        charge()
    assert [row.state for row in calls(desk)] == ["unknown"], "people can look at once"
    for _ in range(2):
        with pytest.raises(agentstate.ToolUnknown, match="agentstate tools settle dur_"):
            charge()
        be_born()
    assert len(calls(desk)) == 1


@pytest.mark.parametrize(("unknown", "found"), [("run", "acted"), ("skip", {"skipped"})])
def test_what_nobody_knows_goes_by_the_option(
    desk: Desk, be_born: Callable[[], None], unknown: Any, found: Any
) -> None:
    deaths = [KeyboardInterrupt]

    @agentstate.tool("s", url=desk.url, unknown=unknown)
    def charge() -> Any:
        if deaths:
            raise deaths.pop()
        return "acted"

    with pytest.raises(KeyboardInterrupt):
        charge()
    be_born()
    told = charge()
    assert told == found if unknown == "run" else told["skipped"] is True


def test_a_result_that_does_not_arrive_is_said_loudly_and_reported_by_the_next_equal_call(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    acted: list[int] = []
    send = Management._send

    def lose(self: Management, method: str, path: str, body: bytes, wait_s: float) -> Any:
        if path.endswith("/result"):
            raise agentstate.ServerUnreachable("gone")
        return send(self, method, path, body, wait_s)

    @agentstate.tool("s", url=desk.url)
    def charge() -> int:
        acted.append(1)
        return len(acted)

    monkeypatch.setattr(management, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(Management, "_send", lose)
    for _ in range(2):
        with pytest.raises(agentstate.ToolUnreported, match=r"settle dur_.* --happened"):
            charge()
    monkeypatch.setattr(Management, "_send", send)

    assert charge() == 1
    assert acted == [1]
    assert [row.state for row in calls(desk)] == ["done"]
    assert charge() == 2


def test_who_reports_what_a_person_has_settled_is_told_what_was_said(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url)
    def charge() -> int:
        (row,) = calls(desk)
        word = Settlement("skip", by="ann")
        desk.run(desk.store.settle_durable("s", row.call, word, at_ms=row.created_ms))
        return 1

    with pytest.raises(agentstate.ToolUnreported, match="settled as skip by 'ann'") as raised:
        charge()
    assert "agentstate tools show dur_" in str(raised.value)
    assert "--happened" not in str(raised.value)
    assert [row.outcome for row in calls(desk)] == ["skipped"]


def test_a_server_that_comes_back_is_waited_for(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    send = Management._send
    failures = [1] * (management.PATIENT_TRIES - 1)

    def flaky(self: Management, method: str, path: str, body: bytes, wait_s: float) -> Any:
        found = send(self, method, path, body, wait_s)  # it arrives, and its answer does not
        if failures:
            failures.pop()
            raise agentstate.ServerUnreachable("cut")
        failures.extend([1] * (management.PATIENT_TRIES - 1))
        return found

    monkeypatch.setattr(management, "FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(Management, "_send", flaky)

    @agentstate.tool("s", url=desk.url)
    def charge() -> str:
        return "acted"

    assert [charge(), charge()] == ["acted", "acted"]
    assert [(row.state, row.runs) for row in calls(desk)] == [("done", 1)] * 2


# --- people ---------------------------------------------------------------------------------------


def test_a_person_may_give_it_other_arguments(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=WAIT_S)
    def send_email(to: str, *copies: str, subject: str = "hi") -> str:
        return f"{to} {copies} {subject}"

    edit = Decision(True, "ann", arguments='{"to": "b", "copies": ["c"], "subject": "x"}')
    deciding = decide_next(desk, edit)
    assert send_email("a") == "b ('c',) x"
    deciding.join()


def test_other_arguments_that_do_not_fit_are_an_error(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=WAIT_S)
    def send_email(to: str) -> str:
        raise AssertionError("it was called")

    deciding = decide_next(desk, Decision(True, "ann", arguments='{"cc": "b"}'))
    with pytest.raises(TypeError, match="a person edited the arguments of send_email"):
        send_email("a")
    deciding.join()
    assert calls(desk)[0].outcome == "error"


def test_a_refusal_is_raised_with_its_reason_or_returned_for_the_model(desk: Desk) -> None:
    def send_email(to: str) -> str:
        raise AssertionError("it was called")

    refusal = Decision(False, "ann", "not today", then="continue")
    deciding = decide_next(desk, refusal)
    raising = agentstate.tool("s", url=desk.url, wait_s=WAIT_S)(send_email)
    with pytest.raises(agentstate.ToolRefused, match="A person refused this call") as raised:
        raising("a")
    assert raised.value.reason == "not today"
    deciding.join()

    deciding = decide_next(desk, refusal)
    returning = agentstate.tool("s", url=desk.url, wait_s=WAIT_S, on_refused="return")(send_email)
    assert "Reason: not today." in returning("b")
    deciding.join()


def test_nobody_decides_in_time(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=0.05)
    def send_email(to: str) -> None:
        raise AssertionError("it was called")

    with pytest.raises(agentstate.ToolHeld, match=r"a person has not decided .apr_"):
        send_email("a")


# --- async ----------------------------------------------------------------------------------------


def test_a_coroutine_waits_without_holding_up_its_loop(
    desk: Desk, be_born: Callable[[], None]
) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=WAIT_S)
    async def send_email(to: str) -> str:
        await asyncio.sleep(0)
        return f"sent to {to}"

    async def main() -> tuple[str, int]:
        sending = asyncio.ensure_future(send_email("a"))
        turns = 0
        while not sending.done():
            turns += 1
            await asyncio.sleep(0.001)
            if turns == 5:
                deciding.append(decide_next(desk, Decision(True, "ann")))
        return await sending, turns

    deciding: list[threading.Thread] = []
    assert inspect.iscoroutinefunction(send_email)
    text, turns = asyncio.run(main())
    assert (text, turns > 5) == ("sent to a", True)
    be_born()
    assert asyncio.run(send_email("a")) == "sent to a"


def test_an_exception_of_a_coroutine_is_recorded(desk: Desk, be_born: Callable[[], None]) -> None:
    @agentstate.tool("s", url=desk.url)
    async def act() -> None:
        raise LookupError("none")

    with pytest.raises(LookupError):
        asyncio.run(act())
    be_born()
    with pytest.raises(agentstate.ToolError):
        asyncio.run(act())


def test_a_coroutine_that_is_cancelled_in_the_act_leaves_it_unknown(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=0)
    async def act() -> None:
        acting.set()
        await asyncio.Event().wait()

    async def main() -> None:
        task = asyncio.ensure_future(act())
        await acting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with pytest.raises(agentstate.ToolUnknown):
            await act()

    acting = asyncio.Event()

    asyncio.run(main())
    (row,) = calls(desk)
    assert row.state == "unknown"


def test_a_coroutine_that_is_cancelled_while_it_is_held_gives_the_call_back(desk: Desk) -> None:
    @agentstate.tool("s", url=desk.url, wait_s=WAIT_S)
    async def send_email(to: str) -> None:
        raise AssertionError("it was called")

    async def main() -> None:
        asked, loop = asyncio.Event(), asyncio.get_running_loop()
        desk._gate.on_event = lambda: loop.call_soon_threadsafe(asked.set)
        sending = asyncio.ensure_future(send_email("a"))
        await asked.wait()
        sending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sending
        decide_next(desk, Decision(True, "ann")).join()

    asyncio.run(main())  # its end waits for the thread
    (row,) = calls(desk)
    assert (row.state, row.runs) == ("ready", 1), "approved, and not lost"


# --- the package ----------------------------------------------------------------------------------


def test_importing_the_package_loads_nothing_of_it() -> None:
    look = (
        "import sys, agentstate; loaded = [m for m in sys.modules if m.startswith('agentstate.')"
        " or m in ('asyncio', 'http.client', 'ssl')]; agentstate.tool; print(loaded)"
        "; print([m for m in sys.modules if m.startswith('agentstate.') and '.sdk' not in m])"
    )
    printed = subprocess.run(
        [sys.executable, "-c", look], capture_output=True, text=True, check=True, timeout=WAIT_S
    ).stdout
    assert printed == "[]\n[]\n"


def test_what_it_does_not_offer_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'tools'"):
        agentstate.tools  # noqa: B018
