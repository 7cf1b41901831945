"""Calls and what came of them, in every dialect, found in a record that knows nothing of it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentstate.ground.approvals import Decision, Question
from agentstate.ground.control import Place
from agentstate.ground.errors import BadRequest
from agentstate.steps import tool_calls, tool_results
from agentstate.steps.tool_calls import Made, Sought, list_made
from agentstate.store.base import Store
from agentstate.store.memory import MemoryStore
from agentstate.store.sqlite import SqliteStore
from tests.helpers.calling import CHAT, FORMS, GEMINI, LEGACY, MESSAGES, RESPONSES, Call, Form
from tests.helpers.recording import START_MS, record
from tests.store.contract import checkpoint_of

SEND: Call = ("call_1", "send", {"to": "ann"})
READ: Call = ("call_2", "read", {"path": "a"})
FAR_MS = START_MS + 10**9

Play = Callable[[Callable[[Store], Awaitable[None]]], None]


@pytest.fixture(params=["memory", "sqlite"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    def run(scenario: Callable[[Store], Awaitable[None]]) -> None:
        async def whole() -> None:
            store: Store = MemoryStore()
            if request.param == "sqlite":
                store = SqliteStore(tmp_path / "record.db", durability="normal")
            await store.open()
            try:
                await scenario(store)
            finally:
                await store.close()

        asyncio.run(whole())

    return run


async def made(store: Store, **changes: Any) -> tuple[Made, ...]:
    page = await list_made(store, replace(Sought("s"), **changes), at_ms=FAR_MS)
    return page.rows


async def contents(store: Store, **changes: Any) -> list[list[Any]]:
    """Return the results of each call."""
    return [[came.content for came in one.results] for one in await made(store, **changes)]


def plain(content: Any) -> Any:
    """Return a result as every form has it."""
    return content["response"]["result"] if isinstance(content, dict) else content


async def ask(
    store: Store, form: Form, messages: Sequence[Any], answer: Any, **changes: Any
) -> Any:
    return await record(store, form.body(list(messages)), answer, dialect=form.dialect, **changes)


def told(*results: tuple[Call, str]) -> list[tuple[str | None, str, str]]:
    return [(call[0], call[1], text) for call, text in results]


async def one_round(
    store: Store, form: Form, calls: Sequence[Call], results: Sequence[str]
) -> None:
    """Record an answer with calls, and the request that tells their results."""
    first = [form.asks("go")]
    await ask(store, form, first, form.answer(calls))
    both = told(*zip(calls, results, strict=True))
    messages = [*first, *form.said(calls), *form.results(both)]
    await ask(store, form, messages, form.ends)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)
def test_parallel_calls_have_their_results(play: Play, form: Form) -> None:
    async def scenario(store: Store) -> None:
        await one_round(store, form, [SEND, READ], ["sent", "text"])
        rows = await made(store)
        assert [one.call.name for one in rows] == ["send", "read"]
        assert [[plain(came.content) for came in one.results] for one in rows] == [
            ["sent"],
            ["text"],
        ]
        assert [came.index for one in rows for came in one.results] == [1, 1]
        assert all(one.is_continued and not one.runs_upstream for one in rows)
        assert [one.decided for one in rows] == ["none", "none"]

    play(scenario)


def test_calls_without_ids_go_by_their_names(play: Play) -> None:
    async def scenario(store: Store) -> None:
        calls: list[Call] = [(None, "send", {"n": 1}), (None, "read", {}), (None, "send", {"n": 2})]
        first = [GEMINI.asks("go")]
        await ask(store, GEMINI, first, GEMINI.answer(calls))
        results = told((calls[1], "text"), (calls[0], "one"), (calls[2], "two"))
        messages = [*first, *GEMINI.said(calls), *GEMINI.results(results)]
        await ask(store, GEMINI, messages, GEMINI.ends)
        found = await contents(store)
        assert [plain(each[0]) for each in found] == ["one", "text", "two"]

    play(scenario)


def test_the_legacy_form_has_one_call_and_no_id(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await one_round(store, LEGACY, [(None, "send", {"a": 1})], ["sent"])
        assert await contents(store) == [["sent"]]

    play(scenario)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)
def test_a_call_without_a_later_request_has_no_result(play: Play, form: Form) -> None:
    async def scenario(store: Store) -> None:
        await ask(store, form, [form.asks("go")], form.answer([SEND]))
        await ask(store, form, [form.asks("something else")], form.ends)
        # The answer was dropped: somebody asked on without it.
        await ask(store, form, [form.asks("go"), form.asks("well?")], form.ends)
        (one,) = await made(store)
        assert (one.results, one.is_continued) == ((), False)

    play(scenario)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)
def test_an_id_that_comes_again_is_told_apart(play: Play, form: Form) -> None:
    """Some models begin with call_0 in every answer."""

    async def scenario(store: Store) -> None:
        messages: list[Any] = [form.asks("go")]
        for turn in range(3):
            call: Call = ("call_0", "send", {"to": "ann"})
            await ask(store, form, messages, form.answer([call]))
            messages += form.said([call]) + form.results(told((call, f"sent {turn}")))
        await ask(store, form, messages, form.ends)
        rows = await made(store)
        assert [[plain(came.content) for came in one.results] for one in rows] == [
            ["sent 0"], ["sent 1"], ["sent 2"]
        ]  # fmt: skip
        assert [one.results[0].index for one in rows] == [1, 2, 3]

    play(scenario)


def test_two_parallel_calls_with_one_id_are_told_in_order(play: Play) -> None:
    async def scenario(store: Store) -> None:
        calls: list[Call] = [("x", "send", {"n": 1}), ("x", "send", {"n": 2})]
        await one_round(store, CHAT, calls, ["one", "two"])
        assert await contents(store) == [["one"], ["two"]]

    play(scenario)


def test_other_results_of_the_same_call_come_after_the_first(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await one_round(store, CHAT, [SEND], ["sent at 9"])
        first = [CHAT.asks("go"), *CHAT.said([SEND])]
        for text in ("sent at 10", "sent at 9"):
            again = [*first, *CHAT.results(told((SEND, text)))]
            await ask(store, CHAT, again, CHAT.ends)
        (one,) = await made(store)
        assert [(came.content, came.index) for came in one.results] == [
            ("sent at 9", 1), ("sent at 10", 2)
        ]  # fmt: skip

    play(scenario)


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.dialect)
def test_a_run_whose_tools_told_otherwise_is_followed(play: Play, form: Form) -> None:
    """The second life was given the recorded answers, and only its last request is new."""

    async def scenario(store: Store) -> None:
        calls: list[Call] = [("call_0", "send", {"turn": turn}) for turn in range(3)]

        def history(life: int, turns: int) -> list[Any]:
            messages = [form.asks("go")]
            for turn in range(turns):
                told_now = told((calls[turn], f"turn {turn} in life {life}"))
                messages += form.said([calls[turn]]) + form.results(told_now)
            return messages

        for turn in range(3):
            await ask(store, form, history(1, turn), form.answer([calls[turn]]))
        await ask(store, form, history(2, 3), form.ends)
        rows = await made(store)
        found = [[(plain(came.content), came.index) for came in one.results] for one in rows]
        assert found == [
            [("turn 0 in life 1", 1), ("turn 0 in life 2", 3)],
            [("turn 1 in life 1", 2), ("turn 1 in life 2", 3)],
            [("turn 2 in life 2", 3)],
        ]

    play(scenario)


def test_a_step_asked_again_has_results_of_its_own(play: Play) -> None:
    """Rolled back and run again: one place, two answers."""

    async def scenario(store: Store) -> None:
        await one_round(store, CHAT, [SEND], ["first"])
        await store.roll_back("s", Place(index=0), at_ms=START_MS)
        other: Call = ("call_1", "send", {"to": "bob"})
        await one_round(store, CHAT, [other], ["second"])
        old, new = await made(store)
        assert (old.calling.state, new.calling.state) == ("rolled_back", "active")
        assert [one.content for one in old.results] == ["first"]
        assert [(one.content, one.index) for one in new.results] == [("second", 3)]

    play(scenario)


def test_the_same_again_after_a_rollback_has_the_result_of_its_own_request(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await one_round(store, CHAT, [SEND], ["sent"])
        await store.roll_back("s", Place(index=0), at_ms=START_MS)
        await one_round(store, CHAT, [SEND], ["sent"])
        old, new = await made(store)
        assert (old.results[0].index, new.results[0].index) == (1, 3)

    play(scenario)


def test_an_answer_that_was_replaced_is_listed_as_such(play: Play) -> None:
    async def scenario(store: Store) -> None:
        first = await ask(store, CHAT, [CHAT.asks("go")], CHAT.answer([SEND]))
        await ask(store, CHAT, [CHAT.asks("go")], CHAT.answer([READ]), step_id=first.step_id)
        messages = [CHAT.asks("go"), *CHAT.said([READ]), *CHAT.results(told((READ, "text")))]
        await ask(store, CHAT, messages, CHAT.ends)
        old, new = await made(store)
        assert [one.calling.state for one in (old, new)] == ["replaced", "active"]
        assert (old.results, [one.content for one in new.results]) == ((), ["text"])
        await store.record_failure(first.step_id, (), failed_ms=START_MS)
        assert [one.calling.state for one in await made(store)] == ["active", "taken_back"]

    play(scenario)


def test_an_error_says_so(play: Play) -> None:
    async def scenario(store: Store) -> None:
        first = [MESSAGES.asks("go")]
        await ask(store, MESSAGES, first, MESSAGES.answer([SEND]))
        result = MESSAGES.results(told((SEND, "no such person")))[0]
        result["content"][0]["is_error"] = True
        await ask(store, MESSAGES, [*first, *MESSAGES.said([SEND]), result], MESSAGES.ends)
        (one,) = await made(store)
        assert [(came.content, came.is_error) for came in one.results] == [("no such person", True)]

    play(scenario)


def test_a_chained_request_tells_by_the_id_of_the_call(play: Play) -> None:
    async def scenario(store: Store) -> None:
        answer = RESPONSES.answer([SEND, READ]) | {"id": "resp_1"}
        await record(store, {"model": "m", "input": "go"}, answer, dialect=RESPONSES.dialect)
        body = RESPONSES.body(RESPONSES.results(told((READ, "text"), (SEND, "sent"))))
        body["previous_response_id"] = "resp_1"
        await record(store, body, RESPONSES.ends, dialect=RESPONSES.dialect)
        rows = await made(store)
        assert [(one.results[0].content, one.results[0].index) for one in rows] == [
            ("sent", 1), ("text", 1)
        ]  # fmt: skip
        assert all(one.is_continued for one in rows)

    play(scenario)


def test_what_was_asked_as_a_text_goes_on_as_a_list(play: Play) -> None:
    async def scenario(store: Store) -> None:
        body = {"model": "m", "input": "go"}
        await record(store, body, RESPONSES.answer([SEND]), dialect=RESPONSES.dialect)
        for text in ("gone", "go"):
            messages = [RESPONSES.asks(text), *RESPONSES.said([SEND])]
            messages += RESPONSES.results(told((SEND, f"sent after {text}")))
            await ask(store, RESPONSES, messages, RESPONSES.ends)
        assert await contents(store) == [["sent after go"]]

    play(scenario)


@pytest.mark.parametrize("form", [CHAT, MESSAGES], ids=lambda form: form.dialect)
def test_a_history_that_was_rewritten_is_read_from_its_end(play: Play, form: Form) -> None:
    """A clock in the first message: no request begins like the one before."""

    async def scenario(store: Store) -> None:
        later: list[Any] = []
        for turn in range(3):
            call: Call = ("call_0", "send", {"turn": turn})
            await ask(store, form, [form.asks(f"at {turn}"), *later], form.answer([call]))
            later += form.said([call]) + form.results(told((call, f"sent {turn}")))
        await ask(store, form, [form.asks("at 3"), *later], form.ends)
        rows = await made(store)
        assert [[came.content for came in one.results] for one in rows] == [
            ["sent 0"], ["sent 1"], ["sent 2"]
        ]  # fmt: skip
        assert [one.results[0].index for one in rows] == [1, 2, 3]

    play(scenario)


def test_a_result_far_later_is_found_as_well(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_results, "FOLLOWING_MAX", 3)

    async def scenario(store: Store) -> None:
        first = [CHAT.asks("go")]
        await ask(store, CHAT, first, CHAT.answer([SEND]))
        for number in range(9):
            await ask(store, CHAT, [CHAT.asks(f"other {number}")], CHAT.ends)
        messages = [*first, *CHAT.said([SEND]), *CHAT.results(told((SEND, "sent")))]
        await ask(store, CHAT, messages, CHAT.ends)
        (one,) = await made(store)
        assert [(came.content, came.index) for came in one.results] == [("sent", 10)]

    play(scenario)


# --- decisions ------------------------------------------------------------------------------------


def question(position: int = 0, **changes: Any) -> Question:
    asked = Question("tool_call", 0, position, b"d" * 32, "send", "call_1", "{}", "r", "", None)
    return replace(asked, **changes)


def test_a_call_says_what_was_decided(play: Play) -> None:
    async def scenario(store: Store) -> None:
        calls: list[Call] = [(f"c{at}", "send", {"n": at}) for at in range(6)]
        step = await ask(store, CHAT, [CHAT.asks("go")], CHAT.answer(calls))
        questions = [question(at, deadline_ms=1 if at == 1 else None) for at in range(1, 6)]
        opened = await store.open_approvals(
            step.step_id, step.answer_id, tuple(questions), at_ms=START_MS
        )
        decisions = (
            Decision(True, by="ann"),
            Decision(True, by="ann", arguments='{"n": 9}'),
            Decision(False, by="bob", reason="no", then="continue"),
        )
        for approval, decision in zip(opened[2:], decisions, strict=True):
            await store.decide(approval.approval_id, decision, at_ms=START_MS)
        rows = await made(store)
        expected = ["none", "expired", "pending", "approved", "edited", "rejected"]
        assert [one.decided for one in rows] == expected
        for at, word in enumerate(expected):
            assert [one.call.position for one in await made(store, decided=word)] == [at]
        # A further release is asked about anew: that question stands.
        again = question(3, generation=1)
        await store.open_approvals(step.step_id, step.answer_id, (again,), at_ms=START_MS)
        assert (await made(store))[3].decided == "pending"

    play(scenario)


def test_an_edited_call_has_the_result_of_the_edited_one(play: Play) -> None:
    async def scenario(store: Store) -> None:
        first = [CHAT.asks("go")]
        step = await ask(store, CHAT, first, CHAT.answer([(None, "send", {"to": "ann"})]))
        (approval,) = await store.open_approvals(
            step.step_id, step.answer_id, (question(),), at_ms=START_MS
        )
        edit = Decision(True, by="ann", arguments='{"to": "bob"}')
        await store.decide(approval.approval_id, edit, at_ms=START_MS)
        # Somebody else's answer at the same place, and the agent goes on with the edited call.
        await ask(store, CHAT, first, CHAT.answer([(None, "send", {"to": "eve"})]))
        got: Call = ("made_up", "send", {"to": "bob"})
        messages = [*first, *CHAT.said([got]), *CHAT.results(told((got, "sent to bob")))]
        await ask(store, CHAT, messages, CHAT.ends)
        one, other = await made(store)
        assert ([came.content for came in one.results], other.results) == (["sent to bob"], ())

    play(scenario)


def test_a_call_that_a_text_spells_is_listed_with_what_was_observed(play: Play) -> None:
    async def scenario(store: Store) -> None:
        text = "Thought: hm\nAction: send\nAction Input: ann"
        answer = {"id": "c", "object": "chat.completion", "model": "m", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
        ]}  # fmt: skip
        first = [CHAT.asks("go")]
        step = await ask(store, CHAT, first, answer)
        asked = question(kind="text", arguments="ann", call_id=None)
        await store.open_approvals(step.step_id, step.answer_id, (asked,), at_ms=START_MS)
        said = {"role": "assistant", "content": text}
        await ask(store, CHAT, [*first, said, CHAT.asks("Observation: sent")], CHAT.ends)
        (one,) = await made(store)
        assert (one.call.name, one.call.kind, one.call.arguments) == ("send", "text", "ann")
        assert [came.content for came in one.results] == ["sent"]

    play(scenario)


def test_rounds_after_a_refusal_are_listed_with_their_answer(play: Play) -> None:
    async def scenario(store: Store) -> None:
        first = [CHAT.asks("go")]
        step = await ask(store, CHAT, first, CHAT.answer([SEND]))
        (approval,) = await store.open_approvals(
            step.step_id, step.answer_id, (question(),), at_ms=START_MS
        )
        refusal = Decision(False, by="ann", then="continue")
        await store.decide(approval.approval_id, refusal, at_ms=START_MS)
        # What the model answered to the refusal: another step's answer, recorded as a round.
        other = await ask(store, CHAT, [CHAT.asks("x")], CHAT.answer([READ]), session="other")
        recorded = await store.read_answer_by_id(other.answer_id)
        assert recorded is not None
        calls = tuple(
            (choice, call)
            for one in await store.list_callings("other", (0, 0), 9)
            for choice, call in one.calls
        )
        checkpoint = checkpoint_of(step.step_id, answer=recorded, tool_calls=calls)
        await store.record_round(checkpoint, step.answer_id, 1)
        messages = [*first, *CHAT.said([READ]), *CHAT.results(told((READ, "text")))]
        await ask(store, CHAT, messages, CHAT.ends)
        refused, called = await made(store)
        assert (refused.decided, refused.results, refused.calling.number) == ("rejected", (), 0)
        assert ([one.content for one in called.results], called.calling.number) == (["text"], 1)

    play(scenario)


# --- pages and filters ----------------------------------------------------------------------------


async def long_run(store: Store, turns: int, parallel: int = 2) -> None:
    messages: list[Any] = [CHAT.asks("go")]
    for turn in range(turns):
        calls: list[Call] = [
            (f"c{turn}_{at}", ("mcp__mail__send", "read")[at % 2], {"n": at})
            for at in range(parallel)
        ]
        await ask(store, CHAT, messages, CHAT.answer(calls))
        messages += CHAT.said(calls) + CHAT.results(
            told(*((call, call[0] or "") for call in calls))
        )


@pytest.mark.parametrize("limit", [1, 2, 3, 7, 100])
def test_pages_give_each_call_once_with_its_result(play: Play, limit: int) -> None:
    async def scenario(store: Store) -> None:
        await long_run(store, 5, parallel=3)
        found: list[tuple[str | None, bool]] = []
        after: str | None = None
        for _ in range(99):
            page = await list_made(store, Sought("s", after=after, limit=limit), at_ms=FAR_MS)
            assert len(page.rows) <= limit
            found += [(one.call.call_id, bool(one.results)) for one in page.rows]
            after = page.next_cursor
            if after is None:
                break
        assert found == [(f"c{turn}_{at}", turn < 4) for turn in range(5) for at in range(3)]

    play(scenario)


def test_filters(play: Play) -> None:
    async def scenario(store: Store) -> None:
        await long_run(store, 4)

        async def ids(**changes: Any) -> list[str | None]:
            return [one.call.call_id for one in await made(store, **changes)]

        assert await ids(tool="SEND") == ["c0_0", "c1_0", "c2_0", "c3_0"]
        assert await ids(tool="r?ad", index=2) == ["c2_1"]
        assert await ids(answered=False) == ["c3_0", "c3_1"]
        assert await ids(answered=True, tool="read") == ["c0_1", "c1_1", "c2_1"]
        assert await ids(state="rolled_back") == []
        await store.roll_back("s", Place(index=3), at_ms=START_MS)
        assert await ids(state="rolled_back") == ["c3_0", "c3_1"]
        assert await ids(index=9) == []
        assert await list_made(store, Sought("nobody"), at_ms=0) == tool_calls.MadePage((), None)
        for odd in ({"tool": "["}, {"after": "odd"}):
            with pytest.raises(BadRequest):
                await made(store, **odd)

    play(scenario)


def test_a_page_that_filters_looks_at_so_many_calls_and_no_more(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tool_calls, "SCANNED_MAX", 4)

    async def scenario(store: Store) -> None:
        await long_run(store, 6)
        sought = Sought("s", answered=False, limit=1)
        pages = 0
        found: list[str | None] = []
        while True:
            page = await list_made(store, sought, at_ms=FAR_MS)
            pages += 1
            found += [one.call.call_id for one in page.rows]
            if page.next_cursor is None:
                break
            sought = replace(sought, after=page.next_cursor)
        assert found == ["c5_0", "c5_1"]
        assert pages > 2

    play(scenario)


def test_what_the_provider_ran_is_marked(play: Play) -> None:
    async def scenario(store: Store) -> None:
        content = [
            {"type": "server_tool_use", "id": "srv", "name": "web_search", "input": {"query": "x"}},
            {"type": "web_search_tool_result", "tool_use_id": "srv", "content": []},
            {"type": "tool_use", "id": "t1", "name": "send", "input": {}},
        ]
        answer = MESSAGES.answer([]) | {"content": content}
        first = [MESSAGES.asks("go")]
        await ask(store, MESSAGES, first, answer)
        said = {"role": "assistant", "content": content}
        result = MESSAGES.results([("t1", "send", "sent")])
        await ask(store, MESSAGES, [*first, said, *result], MESSAGES.ends)
        search, send = await made(store)
        assert (search.runs_upstream, search.results) == (True, ())
        assert (send.runs_upstream, [one.content for one in send.results]) == (False, ["sent"])

    play(scenario)
