"""What any store must do. A backend subclasses `StoreContract` in its test file and makes stores.

`make_store` is a fixture that returns a function; each call of it returns a store that is not open
yet, always on the same record.
"""

from __future__ import annotations

import asyncio
import hashlib
import struct
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from agentstate.ground.canonical import JSON, canonical, digest, parse
from agentstate.ground.chat import ToolCall, Usage
from agentstate.ground.errors import BadRequest, NotFound, StoreError
from agentstate.ground.records import (
    Attempt,
    Checkpoint,
    Claim,
    Claimed,
    Identity,
    Part,
    Query,
    RecordedAnswer,
    ReplayNote,
    RequestRecord,
    Served,
    StepRow,
    Tail,
)
from agentstate.store.base import COUNT_MAX, LIST_LIMIT_MAX, Key, Store

T = TypeVar("T")
MakeStore = Callable[[], Store]
START_MS = 1_790_000_000_000
KEYS: tuple[Key, ...] = ("raw", "exact", "pinned", "masked")


# --- makers ---------------------------------------------------------------------------------------


def run(make_store: MakeStore, scenario: Callable[[Store], Awaitable[T]]) -> T:
    """Open a store, play a scenario on it, close it."""

    async def whole() -> T:
        store = make_store()
        await store.open()
        try:
            return await scenario(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def message(text: str, role: str = "user") -> dict[str, JSON]:
    """Make a chat message."""
    return {"role": role, "content": text}


def part(value: JSON) -> Part:
    """Make a part as `steps/identify.py` does."""
    return Part(hashlib.sha256(canonical(value)).digest(), value)


def request_of(*messages: JSON, shared: dict[str, JSON] | None = None) -> RequestRecord:
    """Make a chat request; its body has the keys model, messages, then the shared ones."""
    envelope: dict[str, JSON] = {"model": "gpt-4o-mini", "messages": None}
    envelope.update(dict.fromkeys(shared or {}))
    parts = tuple((key, part(value)) for key, value in (shared or {}).items())
    return RequestRecord(envelope, parts, "messages", tuple(part(one) for one in messages))


def identity_of(text: str) -> Identity:
    """Make four different keys."""
    raw, exact, pinned, masked = (digest(key.encode(), text.encode()) for key in KEYS)
    return Identity(raw, exact, pinned, masked)


def claim_of(text: str = "hi", **changes: Any) -> Claim:
    """Make a claim whose request and keys follow from `text`."""
    claim = Claim(
        session="s",
        step_number=None,
        run_id=None,
        call_id=None,
        occurrence=0,
        dialect="openai_chat",
        path="/v1/chat/completions",
        model="gpt-4o-mini",
        streams=False,
        identity=identity_of(text),
        request=request_of(message(text)),
        created_ms=START_MS,
        prompt=text,
    )
    return replace(claim, **changes)


def attempt_of(**changes: Any) -> Attempt:
    """Make an attempt that succeeded."""
    return replace(
        Attempt("openai", "gpt-4o-mini", START_MS, START_MS + 900, 200, first_byte_ms=800),
        **changes,
    )


def answer_of(content: bytes = b'{"text":"hello"}', **changes: Any) -> RecordedAnswer:
    """Make an answer that is a body."""
    headers = ((b"content-type", b"application/json"), (b"x-request-id", b"req_1"))
    return replace(RecordedAnswer(200, headers, "body", content), **changes)


def checkpoint_of(step_id: int, **changes: Any) -> Checkpoint:
    """Make the checkpoint of an answer of 10 tokens in, 4 out, for 25 micro-dollars."""
    checkpoint = Checkpoint(
        step_id=step_id,
        answered_ms=START_MS + 1000,
        attempts=(attempt_of(),),
        answer=answer_of(),
        provider="openai",
        model="gpt-4o-mini-2024",
        response_id="chatcmpl-1",
        finish_reason="stop",
        text="hello",
        tool_calls=(),
        usage=Usage(10, 4, 2, 1, 3),
        usage_estimated=False,
        cost_microusd=25,
        latency_ms=950,
        first_content_ms=None,
    )
    return replace(checkpoint, **changes)


def tail_of(step_id: int, content: bytes = b"data: [DONE]\n\n", **changes: Any) -> Tail:
    """Make a tail that seals and changes no usage."""
    pace = struct.pack("<II", len(content), 1200) if content else b""
    return replace(Tail(step_id, content, pace, True, None, False, None), **changes)


def note_of(step_id: int, **changes: Any) -> ReplayNote:
    """Make the note of a replay that saved 25 micro-dollars."""
    return replace(ReplayNote("s", step_id, START_MS + 5000, "exact", 25), **changes)


async def answered(store: Store, text: str = "hi", **changes: Any) -> Claimed:
    """Record one whole step."""
    claimed = await store.claim_step(claim_of(text, **changes))
    await store.record_answer(checkpoint_of(claimed.step_id))
    return claimed


async def step_at(store: Store, step_id: int) -> StepRow:
    """Read a step that must be there."""
    row = await store.read_step(step_id)
    assert row is not None
    return row


# --- the contract ---------------------------------------------------------------------------------


class StoreContract:
    """Subclass it as `Test…` and give it a fixture `make_store`."""

    # --- life -------------------------------------------------------------------------------

    def test_a_new_record_is_empty(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            assert (await store.list_sessions(Query())).rows == ()
            assert await store.read_session("s") is None
            assert (await store.list_steps(Query(session="s"))).rows == ()
            assert await store.read_step(1) is None
            assert await store.find_step("s", 0) is None
            assert await store.read_answer(1) is None
            assert await store.read_request(1) is None
            assert await store.list_attempts(1) == ()
            assert await store.list_served("s", "r", (1,)) == ()
            assert await store.find_emitters("s", ("c",)) == {"c": ()}
            assert await store.find_alike("s", 1, None, 5) == ()
            assert await store.count_steps_at("s", 0) == 0
            assert await store.find_candidates("s", "raw", b"") == ()
            totals = await store.read_totals()
            assert {totals[name] for name in totals if not name.startswith("bytes_")} == {0}
            await store.check()

        run(make_store, scenario)

    def test_what_was_written_is_there_after_opening_again(self, make_store: MakeStore) -> None:
        async def write(store: Store) -> tuple[Any, ...]:
            claimed = await answered(store)
            store.note_replay(note_of(claimed.step_id))
            return await read(store)

        async def read(store: Store) -> tuple[Any, ...]:
            return (
                await store.list_sessions(Query()),
                await store.list_steps(Query(session="s")),
                await store.find_candidates("s", "exact", identity_of("hi").exact),
                await store.read_answer(1),
                await store.read_request(1),
                await store.list_attempts(1),
            )

        assert run(make_store, write) == run(make_store, read)

    def test_claims_of_a_dead_process_are_interrupted(self, make_store: MakeStore) -> None:
        async def die() -> None:
            store = make_store()
            await store.open()
            await store.claim_step(claim_of("lost"))
            await answered(store, "kept")
            await store.close()

        asyncio.run(die())

        async def reborn() -> None:
            store = make_store()
            interrupted_count = await store.open()
            page = await store.list_steps(Query(session="s", newest_first=False))
            assert [row.state for row in page.rows] == ["interrupted", "complete"]
            assert interrupted_count == 1
            await store.close()
            assert await store.open() == 0
            await store.close()

        asyncio.run(reborn())

    def test_an_interrupted_refresh_leaves_the_answer_standing(self, make_store: MakeStore) -> None:
        async def refresh(store: Store) -> None:
            claimed = await answered(store)
            await store.claim_step(claim_of(step_id=claimed.step_id))

        async def look(store: Store) -> None:
            assert (await step_at(store, 1)).state == "complete"
            assert await store.read_answer(1) == answer_of()

        run(make_store, refresh)
        run(make_store, look)

    def test_a_closed_store_refuses(self, make_store: MakeStore) -> None:
        async def scenario() -> None:
            store = make_store()
            await store.open()
            await answered(store)
            await store.close()
            for call in (
                store.check(),
                store.claim_step(claim_of()),
                store.record_answer(checkpoint_of(1)),
                store.append_tail(tail_of(1)),
                store.record_failure(1, (), failed_ms=START_MS),
                store.record_served(Served(1, None, START_MS, False), "s", "r"),
                store.list_served("s", "r", (1,)),
                store.keep_replays(),
                store.record_alias("s", b"e", 1),
                store.find_emitters("s", ("c",)),
                store.count_steps_at("s", 0),
                store.find_alike("s", 1, None, 5),
                store.find_candidates("s", "raw", b""),
                store.read_answer(1),
                store.list_sessions(Query()),
                store.read_session("s"),
                store.list_steps(Query(session="s")),
                store.read_step(1),
                store.find_step("s", 0),
                store.read_request(1),
                store.list_attempts(1),
                store.read_totals(),
            ):
                with pytest.raises(StoreError):
                    await call
            store.note_replay(note_of(1))  # never fails
            await store.close()

        asyncio.run(scenario())

    # --- claims -----------------------------------------------------------------------------

    def test_a_claim_makes_its_session_and_is_in_flight(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claim = claim_of(run_id="r", call_id="c", occurrence=2, streams=True, is_mock=True)

            claimed = await store.claim_step(claim)

            row = await step_at(store, claimed.step_id)
            assert row == StepRow(
                step_id=claimed.step_id,
                session="s",
                index=0,
                step_number=0,
                state="in_flight",
                fingerprint=claim.identity.exact,
                dialect="openai_chat",
                path="/v1/chat/completions",
                model="gpt-4o-mini",
                provider=None,
                streams=True,
                run_id="r",
                response_id=None,
                finish_reason=None,
                prompt="hi",
                text="",
                usage=None,
                usage_estimated=False,
                cost_microusd=None,
                latency_ms=None,
                first_content_ms=None,
                created_ms=START_MS,
                answered_ms=None,
                replays=0,
                replayed_ms=None,
                saved_microusd=0,
                error_code=None,
                error=None,
                is_mock=True,
            )
            session = await store.read_session("s")
            assert session is not None
            assert (session.status, session.steps) == ("RUNNING", 1)
            assert (session.created_ms, session.updated_ms) == (START_MS, START_MS)
            assert session.last_step_number == 0

        run(make_store, scenario)

    def test_numbers_are_said_or_the_next_free_one(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            said = [None, 7, None, 7, 3, None]

            claimed = [
                await store.claim_step(claim_of(str(place), step_number=number))
                for place, number in enumerate(said)
            ]

            assert [one.index for one in claimed] == [0, 1, 2, 3, 4, 5]
            assert [one.step_number for one in claimed] == [0, 7, 8, 7, 3, 9]
            session = await store.read_session("s")
            assert session is not None
            assert session.last_step_number == 9

        run(make_store, scenario)

    def test_indexes_are_counted_per_session(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            names = ["a", "b", "a", "b", "a"]

            claimed = [await store.claim_step(claim_of(session=name)) for name in names]

            assert [one.index for one in claimed] == [0, 0, 1, 1, 2]

        run(make_store, scenario)

    def test_concurrent_claims_get_each_index_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claims = [claim_of(str(place), session=f"s{place % 3}") for place in range(60)]

            claimed = await asyncio.gather(*map(store.claim_step, claims))

            assert len({one.step_id for one in claimed}) == 60
            for session in range(3):
                assert sorted(one.index for one in claimed[session::3]) == list(range(20))

        run(make_store, scenario)

    def test_a_claim_can_reuse_a_failed_row(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            first = await store.claim_step(claim_of(step_number=4, run_id="r1"))
            failed = attempt_of(status=500, error_code="upstream_refused", error="no")
            await store.record_failure(first.step_id, (failed,), failed_ms=START_MS + 1)
            again = claim_of("hi again", run_id="r2", created_ms=START_MS + 2)

            second = await store.claim_step(replace(again, step_id=first.step_id))

            assert second == first
            row = await step_at(store, first.step_id)
            assert (row.state, row.run_id, row.created_ms) == ("in_flight", "r2", START_MS + 2)
            assert (row.index, row.step_number, row.prompt) == (0, 4, "hi again")
            assert await store.list_attempts(first.step_id) == (failed,)
            assert await store.find_candidates("s", "raw", identity_of("hi").raw) == ()
            assert await store.read_request(first.step_id) == _body(message("hi again"))
            session = await store.read_session("s")
            assert session is not None
            assert (session.steps, session.updated_ms) == (1, START_MS + 2)

        run(make_store, scenario)

    def test_a_claim_cannot_reuse_a_row_of_another_session(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            other = await store.claim_step(claim_of(session="other"))
            for step_id in (other.step_id, 999):
                with pytest.raises(NotFound):
                    await store.claim_step(claim_of(step_id=step_id))
            assert (await step_at(store, other.step_id)).session == "other"

        run(make_store, scenario)

    # --- requests ---------------------------------------------------------------------------

    def test_a_request_comes_back_with_its_keys_in_order(self, make_store: MakeStore) -> None:
        raw = (
            b'{"z":1.50,"model":"m","messages":[{"role":"system","content":"a"},'
            b'{"role":"user","content":["x",{"n":12345678901234567890,"f":-0.0e+1}]}],'
            b'"tools":[{"b":1,"a":true}],"a":null}'
        )

        async def scenario(store: Store) -> None:
            body = parse(raw)
            assert isinstance(body, dict)
            messages = body["messages"]
            assert isinstance(messages, list)
            request = RequestRecord(
                envelope=body | {"messages": None, "tools": None},
                shared=(("tools", part(body["tools"])),),
                list_key="messages",
                chain=tuple(map(part, messages)),
            )

            claimed = await store.claim_step(claim_of(request=request))

            found = await store.read_request(claimed.step_id)
            assert isinstance(found, dict)
            assert found == body
            assert list(found) == list(body)

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "request_record",
        [
            RequestRecord({"input": "text", "model": "m"}, (), "", ()),
            RequestRecord({"model": "m", "messages": None}, (), "messages", ()),
            RequestRecord(["not", "an", "object"], (), "", ()),
            RequestRecord(None, (), "", ()),
            RequestRecord({}, (("tools", part([])),), "", ()),
            request_of(message("twice"), message("twice")),
            request_of(message("half \ud83d of a pair")),
            request_of("", 0, False, None, [], {}),
        ],
    )
    def test_odd_requests_come_back(
        self, make_store: MakeStore, request_record: RequestRecord
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(request=request_record))

            found = await store.read_request(claimed.step_id)

            expected = request_record.envelope
            if isinstance(expected, dict):
                expected = expected | {key: one.value for key, one in request_record.shared}
                if request_record.list_key:
                    chain = [one.value for one in request_record.chain]
                    expected = expected | {request_record.list_key: chain}
            assert found == expected

        run(make_store, scenario)

    def test_requests_that_share_a_beginning_come_back_each(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            long = [message(f"message {place} " * 20) for place in range(40)]
            bodies = [long[:count] for count in (40, 1, 20, 33, 39, 40)]
            bodies += [[*long[:10], message("branch")], [message("other root"), *long]]
            bodies += [[*long[:10], message("branch"), *long[10:]], long]
            shared: dict[str, JSON] = {"tools": [{"name": "t" * 500}]}

            claimed = [
                await store.claim_step(claim_of(request=request_of(*body, shared=shared)))
                for body in bodies
            ]

            for one, body in zip(claimed, bodies, strict=True):
                assert await store.read_request(one.step_id) == _body(*body, **shared)

        run(make_store, scenario)

    def test_a_conversation_comes_back_at_each_step(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            chain: list[JSON] = [message("be helpful", "system"), message("do it")]
            steps: list[tuple[int, list[JSON]]] = []
            for place in range(12):
                text = f"I will now look at file number {place}, which may say more. " * 5
                claimed = await store.claim_step(claim_of(str(place), request=request_of(*chain)))
                steps.append((claimed.step_id, list(chain)))
                answer = answer_of(canonical({"choices": [{"message": {"content": text}}]}))
                await store.record_answer(checkpoint_of(claimed.step_id, answer=answer, text=text))
                chain += [message(text, "assistant"), message(f"result {place}", "tool")]

            for step_id, messages in steps:
                assert await store.read_request(step_id) == _body(*messages)

        run(make_store, scenario)

    def test_a_large_request_comes_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            image = message("iVBORw0KGgo" * 30_000)

            claimed = await store.claim_step(claim_of(request=request_of(image, message("this?"))))

            assert await store.read_request(claimed.step_id) == _body(image, message("this?"))

        run(make_store, scenario)

    # --- candidates -------------------------------------------------------------------------

    @pytest.mark.parametrize("key", KEYS)
    def test_candidates_are_found_by_each_key(self, make_store: MakeStore, key: Key) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of("a"))
            await store.claim_step(claim_of("b"))
            await store.claim_step(claim_of("a", session="other"))

            found = await store.find_candidates("s", key, getattr(identity_of("a"), key))

            assert [one.step_id for one in found] == [claimed.step_id]
            assert found[0].identity == identity_of("a")
            for other in set(KEYS) - {key}:
                value = getattr(identity_of("a"), other)
                assert await store.find_candidates("s", key, value) == ()

        run(make_store, scenario)

    def test_keys_are_compared_whole(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            key = identity_of("a").raw
            await store.claim_step(claim_of("a"))
            for value in (key[:8], key[:-1], key[:-1] + b"\0", key + b"\0", b""):
                assert await store.find_candidates("s", "raw", value) == ()

        run(make_store, scenario)

    def test_a_candidate_tells_what_the_ladder_asks(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claim = claim_of(run_id="r", call_id="c", occurrence=1, streams=True, step_number=9)
            claimed = await store.claim_step(claim)

            (before,) = await store.find_candidates("s", "exact", claim.identity.exact)
            await store.record_answer(checkpoint_of(claimed.step_id))
            store.note_replay(note_of(claimed.step_id))
            (after,) = await store.find_candidates("s", "exact", claim.identity.exact)

            assert (before.state, before.answer_id, before.answered_ms) == ("in_flight", None, None)
            assert (before.cost_microusd, before.provider, before.replayed_ms) == (None, None, None)
            assert (before.index, before.step_number, before.occurrence) == (0, 9, 1)
            assert (before.run_id, before.call_id) == ("r", "c")
            assert (before.streams, before.is_mock) == (True, False)
            assert (before.model, before.created_ms) == ("gpt-4o-mini", START_MS)
            assert after.answer_id is not None
            assert after == replace(
                before,
                state="complete",
                answer_model=checkpoint_of(claimed.step_id).model,
                answer_id=after.answer_id,
                answered_ms=START_MS + 1000,
                replayed_ms=START_MS + 5000,
                cost_microusd=25,
                provider="openai",
            )

        run(make_store, scenario)

    def test_candidates_come_by_index_however_many(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claims = [claim_of("same", call_id=str(place)) for place in range(150)]
            await asyncio.gather(*map(store.claim_step, claims))

            found = await store.find_candidates("s", "exact", identity_of("same").exact)

            assert [one.index for one in found] == list(range(150))

        run(make_store, scenario)

    # --- answers ----------------------------------------------------------------------------

    @pytest.mark.parametrize(
        "answer",
        [
            answer_of(),
            answer_of(b""),
            answer_of(bytes(range(256)) * 3),
            answer_of(b"{}\n" * 60_000),
            answer_of(hashlib.sha512(b"noise").digest() * 2),
            answer_of(headers=()),
            answer_of(headers=((b"x", bytes(range(256))), (b"x", b"\n\0"), (b"", b""))),
            answer_of(status=203),
            answer_of(b"data: 1\n\n" * 50, form="events", pace=struct.pack("<II", 9, 70) * 50),
            answer_of(b"data: " + b"\xff" * 90_000, form="events", pace=b"\1" * 8),
        ],
    )
    def test_an_answer_comes_back_byte_for_byte(
        self, make_store: MakeStore, answer: RecordedAnswer
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())

            await store.record_answer(checkpoint_of(claimed.step_id, answer=answer))

            assert await store.read_answer(claimed.step_id) == answer

        run(make_store, scenario)

    def test_an_answer_completes_its_step(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())

            await store.record_answer(checkpoint_of(claimed.step_id, first_content_ms=300))

            row = await step_at(store, claimed.step_id)
            assert (row.state, row.provider, row.model) == (
                "complete",
                "openai",
                "gpt-4o-mini-2024",
            )
            assert (row.response_id, row.finish_reason, row.text) == ("chatcmpl-1", "stop", "hello")
            assert (row.usage, row.usage_estimated) == (Usage(10, 4, 2, 1, 3), False)
            assert (row.cost_microusd, row.latency_ms, row.first_content_ms) == (25, 950, 300)
            assert (row.answered_ms, row.error_code, row.error) == (START_MS + 1000, None, None)
            assert await store.list_attempts(claimed.step_id) == (attempt_of(),)
            session = await store.read_session("s")
            assert session is not None
            assert (session.input_tokens, session.output_tokens) == (10, 4)
            assert (session.cost_microusd, session.unknown_costs) == (25, 0)
            assert session.updated_ms == START_MS + 1000

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "text",
        ["", "plain", 'with "quotes" and \\ and \n', "grüße an alle Leute — 好的谢谢", "x" * 500],
    )
    @pytest.mark.parametrize("is_ascii", [True, False])
    def test_the_text_of_an_answer_is_shown(
        self, make_store: MakeStore, text: str, is_ascii: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            content = canonical({"content": text + " and more"})
            if not is_ascii:
                content = content.decode("unicode_escape").encode("utf-8", "surrogatepass")
            claimed = await store.claim_step(claim_of())

            await store.record_answer(
                checkpoint_of(claimed.step_id, answer=answer_of(content), text=text)
            )

            assert (await step_at(store, claimed.step_id)).text == text
            page = await store.list_steps(Query(session="s"))
            assert [row.text for row in page.rows] == [text]

        run(make_store, scenario)

    def test_unknown_usage_and_cost_are_counted_as_unknown(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())

            unknown = checkpoint_of(claimed.step_id, usage=None, cost_microusd=None)
            await store.record_answer(unknown)

            row = await step_at(store, claimed.step_id)
            assert (row.usage, row.cost_microusd) == (None, None)
            session = await store.read_session("s")
            assert session is not None
            assert (session.input_tokens, session.cost_microusd, session.unknown_costs) == (0, 0, 1)

        run(make_store, scenario)

    def test_tool_calls_are_taken(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            calls = (
                (0, ToolCall(0, "call_1", "send_email", '{"to":"someone@example.org"}')),
                (0, ToolCall(1, None, "broken \ud83d", '{"x": "\ud83d and much more than that')),
                (1, ToolCall(0, "call_1", "shell", "", kind="local_shell")),
            )
            content = canonical({"arguments": '{"to":"someone@example.org"}'})

            await store.record_answer(
                checkpoint_of(claimed.step_id, answer=answer_of(content), tool_calls=calls)
            )

            assert (await step_at(store, claimed.step_id)).state == "complete"

        run(make_store, scenario)

    def test_an_answer_to_no_step_is_refused(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for call in (
                store.record_answer(checkpoint_of(5)),
                store.append_tail(tail_of(5)),
                store.record_failure(5, (attempt_of(),), failed_ms=START_MS),
            ):
                with pytest.raises(NotFound):
                    await call
            assert await store.list_attempts(5) == ()
            assert await store.read_answer(5) is None

        run(make_store, scenario)

    @pytest.mark.parametrize("was_claimed_so", [False, True])
    def test_an_answer_says_whether_the_mock_gave_it_after_all(
        self, make_store: MakeStore, was_claimed_so: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(is_mock=was_claimed_so))
            found = []
            for said in (None, not was_claimed_so, None):
                await store.record_answer(checkpoint_of(claimed.step_id, is_mock=said))
                found.append((await step_at(store, claimed.step_id)).is_mock)

            assert found == [was_claimed_so, not was_claimed_so, not was_claimed_so]

        run(make_store, scenario)

    def test_a_refresh_replaces_the_answer_and_both_were_paid(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await store.claim_step(claim_of(step_id=claimed.step_id))
            assert (await step_at(store, claimed.step_id)).state == "in_flight"
            assert await store.read_answer(claimed.step_id) == answer_of()

            new = answer_of(b'{"text":"new"}')
            second = checkpoint_of(
                claimed.step_id, answer=new, text="new", cost_microusd=40, usage=Usage(7, 1)
            )
            await store.record_answer(second)

            assert await store.read_answer(claimed.step_id) == new
            row = await step_at(store, claimed.step_id)
            assert (row.state, row.text, row.cost_microusd) == ("complete", "new", 40)
            session = await store.read_session("s")
            assert session is not None
            assert (session.steps, session.cost_microusd) == (1, 65)
            assert (session.input_tokens, session.output_tokens) == (17, 5)
            assert len(await store.list_attempts(claimed.step_id)) == 2

        run(make_store, scenario)

    # --- tails ------------------------------------------------------------------------------

    def test_tails_are_appended_and_seal(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            begun = answer_of(b"data: 1\n\n", form="events", pace=b"\1" * 8, is_sealed=False)
            claimed = await store.claim_step(claim_of(streams=True))
            unknown = {"usage": None, "cost_microusd": None}
            await store.record_answer(checkpoint_of(claimed.step_id, answer=begun, **unknown))
            assert await store.read_answer(claimed.step_id) == begun

            usage = tail_of(claimed.step_id, b"data: {}\n\n" * 30, pace=b"\2" * 8, seals=False)
            await store.append_tail(usage)
            await store.append_tail(tail_of(claimed.step_id, pace=b"\3" * 8))
            await store.append_tail(tail_of(claimed.step_id, b""))

            assert await store.read_answer(claimed.step_id) == replace(
                begun,
                content=b"data: 1\n\n" + b"data: {}\n\n" * 30 + b"data: [DONE]\n\n",
                pace=b"\1" * 8 + b"\2" * 8 + b"\3" * 8,
                is_sealed=True,
            )

        run(make_store, scenario)

    def test_a_tail_brings_usage_and_cost(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(streams=True))
            unknown = checkpoint_of(claimed.step_id, usage=None, cost_microusd=None)
            await store.record_answer(unknown)

            usage = Usage(100, 20)
            await store.append_tail(tail_of(claimed.step_id, usage=usage, cost_microusd=70))
            await store.append_tail(tail_of(claimed.step_id))  # names no usage: nothing changes

            row = await step_at(store, claimed.step_id)
            assert (row.usage, row.usage_estimated, row.cost_microusd) == (usage, False, 70)
            session = await store.read_session("s")
            assert session is not None
            assert (session.input_tokens, session.output_tokens) == (100, 20)
            assert (session.cost_microusd, session.unknown_costs) == (70, 0)

        run(make_store, scenario)

    def test_a_tail_may_take_a_cost_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)

            tail = tail_of(claimed.step_id, usage=Usage(1, 1), usage_estimated=True)
            await store.append_tail(tail)

            row = await step_at(store, claimed.step_id)
            assert (row.usage, row.usage_estimated, row.cost_microusd) == (Usage(1, 1), True, None)
            session = await store.read_session("s")
            assert session is not None
            assert (session.input_tokens, session.cost_microusd, session.unknown_costs) == (1, 0, 1)

        run(make_store, scenario)

    # --- failures ---------------------------------------------------------------------------

    def test_a_failure_keeps_its_attempts(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            attempts = (
                attempt_of(status=None, first_byte_ms=None, error_code="upstream_unreachable"),
                attempt_of(
                    status=529,
                    error_code="upstream_refused",
                    error="overloaded",
                    excerpt=bytes(range(256)),
                    dropped=("seed", "größe"),
                ),
            )

            await store.record_failure(claimed.step_id, attempts, failed_ms=START_MS + 7)

            assert await store.list_attempts(claimed.step_id) == attempts
            row = await step_at(store, claimed.step_id)
            assert (row.state, row.error_code) == ("failed", "upstream_refused")
            assert (row.error, row.answered_ms) == ("overloaded", None)
            session = await store.read_session("s")
            assert session is not None
            assert (session.updated_ms, session.unknown_costs) == (START_MS + 7, 0)
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert (candidate.state, candidate.answer_id) == ("failed", None)

        run(make_store, scenario)

    def test_the_last_attempt_says_what_went_wrong(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            failed = attempt_of(error_code="upstream_cut", error="cut")

            await store.record_failure(claimed.step_id, (failed,), failed_ms=START_MS)
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS)
            assert (await step_at(store, claimed.step_id)).error_code == "upstream_cut"
            await store.record_answer(checkpoint_of(claimed.step_id, attempts=(attempt_of(),)))
            assert (await step_at(store, claimed.step_id)).error_code is None

        run(make_store, scenario)

    def test_an_answer_can_be_taken_back(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)

            await store.record_failure(claimed.step_id, (), failed_ms=START_MS + 2000)

            assert await store.read_answer(claimed.step_id) is None
            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert (candidate.state, candidate.answer_id) == ("failed", None)
            assert (candidate.cost_microusd, candidate.answered_ms) == (None, None)
            row = await step_at(store, claimed.step_id)
            assert (row.state, row.text, row.finish_reason) == ("failed", "hello", "stop")
            session = await store.read_session("s")
            assert session is not None
            assert (session.input_tokens, session.output_tokens) == (0, 0)
            assert (session.cost_microusd, session.unknown_costs) == (0, 0)
            with pytest.raises(NotFound):
                await store.append_tail(tail_of(claimed.step_id))

        run(make_store, scenario)

    def test_a_step_recovers_from_a_taken_back_answer(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS + 2000)
            await store.claim_step(claim_of(step_id=claimed.step_id))

            await store.record_answer(checkpoint_of(claimed.step_id, text="second"))

            assert await store.read_answer(claimed.step_id) == answer_of()
            row = await step_at(store, claimed.step_id)
            assert (row.state, row.text) == ("complete", "second")
            session = await store.read_session("s")
            assert session is not None
            assert session.cost_microusd == 25

        run(make_store, scenario)

    def test_a_failed_refresh_leaves_the_answer_standing(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await store.claim_step(claim_of(step_id=claimed.step_id))
            failed = attempt_of(error_code="upstream_timeout")

            await store.record_failure(claimed.step_id, (failed,), failed_ms=START_MS + 3000)
            await store.record_failure(claimed.step_id, (), failed_ms=START_MS + 3001)

            assert await store.read_answer(claimed.step_id) == answer_of()
            row = await step_at(store, claimed.step_id)
            assert (row.state, row.error_code) == ("complete", "upstream_timeout")
            session = await store.read_session("s")
            assert session is not None
            assert session.cost_microusd == 25

        run(make_store, scenario)

    def test_taking_back_a_refresh_brings_back_the_answer_before(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await store.claim_step(claim_of(step_id=claimed.step_id))
            new = checkpoint_of(claimed.step_id, answer=answer_of(b"new"), cost_microusd=1)
            await store.record_answer(new)

            await store.record_failure(claimed.step_id, (), failed_ms=START_MS + 3000)

            assert await store.read_answer(claimed.step_id) == answer_of()
            assert (await step_at(store, claimed.step_id)).state == "complete"
            session = await store.read_session("s")
            assert session is not None
            assert session.cost_microusd == 25

        run(make_store, scenario)

    # --- replays ----------------------------------------------------------------------------

    def test_replays_are_counted_at_once(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)

            for later_ms in (3, 9, 6):
                store.note_replay(note_of(claimed.step_id, replayed_ms=START_MS + later_ms))

            (candidate,) = await store.find_candidates("s", "exact", identity_of("hi").exact)
            assert candidate.replayed_ms == START_MS + 9
            row = await step_at(store, claimed.step_id)
            assert (row.replays, row.replayed_ms, row.saved_microusd) == (3, START_MS + 9, 75)
            session = await store.read_session("s")
            assert session is not None
            assert (session.replays, session.saved_microusd) == (3, 75)
            totals = await store.read_totals()
            assert (totals["replays"], totals["saved_microusd"]) == (3, 75)

        run(make_store, scenario)

    def test_a_replay_is_activity(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            await answered(store, session="other", created_ms=START_MS + 1)

            store.note_replay(note_of(claimed.step_id, replayed_ms=START_MS + 2000))

            page = await store.list_sessions(Query())
            assert [row.session for row in page.rows] == ["s", "other"]
            assert page.rows[0].updated_ms == START_MS + 2000

        run(make_store, scenario)

    def test_replays_of_a_step_that_is_not_there_do_no_harm(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store)

            store.note_replay(note_of(77, session="gone"))

            assert await store.read_session("gone") is None
            assert (await store.read_totals())["replays"] == 0

        run(make_store, scenario)

    def test_many_replays_are_counted_each(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = [await answered(store, str(place)) for place in range(12)]

            for _ in range(200):
                for one in claimed:
                    store.note_replay(note_of(one.step_id))

            assert (await store.read_totals())["replays"] == 2400

        run(make_store, scenario)

    # --- what a run was served --------------------------------------------------------------

    def test_a_run_has_what_it_was_served_and_what_it_claimed(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            old = await answered(store, "old", run_id="r0")
            own = await answered(store, "own", run_id="r1", call_id="c7")
            await answered(store, "elsewhere", session="other", run_id="r1")
            steps = (old.step_id, own.step_id, 99)

            await store.record_served(Served(old.step_id, "c8", START_MS + 9, False), "s", "r1")

            [first, second] = await store.list_served("s", "r1", steps)
            assert first == Served(old.step_id, "c8", START_MS + 9, False)
            assert (second.step_id, second.call_id) == (own.step_id, "c7")
            assert [one.step_id for one in await store.list_served("s", "r0", steps)] == [
                old.step_id
            ]
            assert await store.list_served("s", "r2", steps) == ()
            assert await store.list_served("s", "r1", ()) == ()

        run(make_store, scenario)

    def test_a_delivery_is_seen_at_once_and_a_new_serving_undoes_it(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step = await answered(store, run_id="r")

            async def is_delivered() -> bool:
                [one] = await store.list_served("s", "r", (step.step_id,))
                return one.is_delivered

            assert not await is_delivered()
            store.note_delivered("s", "r", step.step_id)
            assert await is_delivered()
            await store.record_served(Served(step.step_id, None, START_MS, False), "s", "r")
            assert not await is_delivered()
            store.note_delivered("s", "gone", 99)

        run(make_store, scenario)

    def test_only_what_is_there_can_be_served_or_named_again(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await answered(store)
            for session, step_id in (("s", 99), ("gone", claimed.step_id)):
                with pytest.raises(NotFound):
                    await store.record_served(Served(step_id, None, START_MS, False), session, "r")
                with pytest.raises(NotFound):
                    await store.record_alias(session, b"e", step_id)

        run(make_store, scenario)

    def test_a_step_whose_answer_asks_for_a_tool_says_so(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            call = (0, ToolCall(0, "call_0", "f", "{}"))
            asks = await store.claim_step(claim_of("asks"))
            await store.record_answer(checkpoint_of(asks.step_id, tool_calls=(call,)))
            says = await answered(store, "says")

            found = [
                await store.find_candidates("s", "exact", identity_of(text).exact)
                for text in ("asks", "says")
            ]
            assert [(one.step_id, one.calls_tools) for (one,) in found] == [
                (asks.step_id, True),
                (says.step_id, False),
            ]

        run(make_store, scenario)

    def test_what_is_kept_of_replays_can_be_read_after_it_was_closed(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step = await answered(store)
            store.note_replay(ReplayNote("s", step.step_id, START_MS + 5, "exact", 0))
            await store.keep_replays()
            assert (await step_at(store, step.step_id)).replayed_ms == START_MS + 5

        run(make_store, scenario)

    def test_an_alias_finds_the_step_that_answered_in_its_own_session(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            step = await answered(store)
            other = await answered(store, "b")
            for _ in range(2):
                await store.record_alias("s", b"x" * 32, other.step_id)
            await store.record_alias("s", b"x" * 32, step.step_id)

            found = await store.find_candidates("s", "alias", b"x" * 32)
            assert [one.step_id for one in found] == [step.step_id, other.step_id]
            assert await store.find_candidates("other", "alias", b"x" * 32) == ()
            assert await store.find_candidates("s", "alias", b"y" * 32) == ()

        run(make_store, scenario)

    def test_the_steps_that_made_a_tool_call_are_found_by_its_id(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            call = (0, ToolCall(0, "call_0", "f", "{}"))
            first = await store.claim_step(claim_of("a", request=request_of("a")))
            await store.record_answer(checkpoint_of(first.step_id, tool_calls=(call,)))
            second = await store.claim_step(claim_of("abc", request=request_of("a", "b", "c")))
            await store.record_answer(checkpoint_of(second.step_id, tool_calls=(call,)))
            lost = await store.claim_step(claim_of("d"))
            await store.record_answer(checkpoint_of(lost.step_id, tool_calls=(call,)))
            await store.record_failure(lost.step_id, (), failed_ms=START_MS)
            store.note_replay(ReplayNote("s", second.step_id, START_MS + 5, "exact", 0))

            found = await store.find_emitters("s", ("call_0", "call_1"))
            assert found["call_1"] == ()
            assert [(one.step_id, one.replayed_ms) for one in found["call_0"]] == [
                (first.step_id, None),
                (second.step_id, START_MS + 5),
            ]
            assert found["call_0"][0].depth < found["call_0"][1].depth
            assert await store.find_emitters("other", ("call_0",)) == {"call_0": ()}

        run(make_store, scenario)

    def test_look_alikes_stand_at_a_number_or_have_as_many_messages(
        self, make_store: MakeStore
    ) -> None:
        async def scenario(store: Store) -> None:
            one = await answered(store, "a", request=request_of("a"), step_number=7)
            two = await answered(store, "ab", request=request_of("a", "b"), step_number=7)
            three = await answered(store, "c", request=request_of("c"), step_number=8)

            async def alike(depth: int, number: int | None, limit: int = 5) -> list[int]:
                found = await store.find_alike("s", depth, number, limit)
                return [each.step_id for each in found]

            assert await alike(1, None) == [three.step_id, one.step_id]
            assert await alike(1, None, 1) == [three.step_id]
            assert await alike(1, 7) == [two.step_id, one.step_id]
            assert await store.count_steps_at("s", 7) == 2
            assert await store.count_steps_at("s", 8) == 1
            assert await store.count_steps_at("s", 9) == 0
            flying = await store.claim_step(claim_of("d", step_number=9))
            assert await store.count_steps_at("s", 9) == 1
            await store.record_failure(flying.step_id, (), failed_ms=START_MS)
            assert await store.count_steps_at("s", 9) == 0

        run(make_store, scenario)

    def test_a_step_says_what_it_came_near_to(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            miss: JSON = {"step_number": 3, "path": "messages[0].content", "sent": "\ud83d"}
            claimed = await store.claim_step(claim_of(miss=miss))
            plain = await store.claim_step(claim_of("b"))

            step, other = (
                await store.read_step(claimed.step_id),
                await store.read_step(plain.step_id),
            )
            assert step is not None
            assert step.miss == miss
            assert other is not None
            assert other.miss is None
            await store.claim_step(claim_of(step_id=claimed.step_id))
            again = await store.read_step(claimed.step_id)
            assert again is not None
            assert again.miss is None

        run(make_store, scenario)

    # --- reading ----------------------------------------------------------------------------

    def test_sessions_are_listed_by_last_activity(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for place, name in enumerate("abcde"):
                await store.claim_step(claim_of(session=name, created_ms=START_MS + place // 2))
            await answered(store, session="a")

            newest = await store.list_sessions(Query())
            oldest = await store.list_sessions(Query(newest_first=False))

            assert [row.session for row in newest.rows] == ["a", "e", "d", "c", "b"]
            assert oldest.rows == newest.rows[::-1]
            assert newest.next_cursor is None

        run(make_store, scenario)

    @pytest.mark.parametrize("newest_first", [True, False])
    def test_sessions_are_listed_page_by_page(
        self, make_store: MakeStore, newest_first: bool
    ) -> None:
        async def scenario(store: Store) -> None:
            for place in range(7):
                await store.claim_step(claim_of(session=str(place), created_ms=START_MS))
            query = Query(limit=3, newest_first=newest_first)

            pages = [await store.list_sessions(query)]
            while (after := pages[-1].next_cursor) is not None:
                pages.append(await store.list_sessions(replace(query, after=after)))

            names = [row.session for page in pages for row in page.rows]
            assert [len(page.rows) for page in pages] == [3, 3, 1]
            assert names == sorted(names, reverse=newest_first)

        run(make_store, scenario)

    @pytest.mark.parametrize(
        ("search", "found"),
        [
            ("", ["100%", "a_b", "axb", "back\\slash", "ÄB"]),
            ("a", ["a_b", "axb", "back\\slash"]),
            ("A_B", ["a_b"]),
            ("%", ["100%"]),
            ("_", ["a_b"]),
            ("\\", ["back\\slash"]),
            ("äb", []),
            ("ÄB", ["ÄB"]),
            ("' or 1=1 --", []),
            ("\ud800", []),
        ],
    )
    def test_sessions_are_searched_by_name(
        self, make_store: MakeStore, search: str, found: list[str]
    ) -> None:
        async def scenario(store: Store) -> None:
            for name in ("a_b", "axb", "100%", "back\\slash", "ÄB"):
                await store.claim_step(claim_of(session=name))

            page = await store.list_sessions(Query(search=search))

            assert sorted(row.session for row in page.rows) == found

        run(make_store, scenario)

    def test_sessions_are_filtered_by_status(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store)
            assert len((await store.list_sessions(Query(status="RUNNING"))).rows) == 1
            assert (await store.list_sessions(Query(status="PAUSED"))).rows == ()

        run(make_store, scenario)

    @pytest.mark.parametrize("newest_first", [True, False])
    def test_steps_are_listed_page_by_page(self, make_store: MakeStore, newest_first: bool) -> None:
        async def scenario(store: Store) -> None:
            for place in range(5):
                await store.claim_step(claim_of(str(place), step_number=1))
                await store.claim_step(claim_of(str(place), session="other"))
            query = Query(session="s", limit=2, newest_first=newest_first)

            pages = [await store.list_steps(query)]
            while (after := pages[-1].next_cursor) is not None:
                pages.append(await store.list_steps(replace(query, after=after)))

            indexes = [row.index for page in pages for row in page.rows]
            assert [len(page.rows) for page in pages] == [2, 2, 1]
            assert indexes == sorted(range(5), reverse=newest_first)
            assert {row.session for page in pages for row in page.rows} == {"s"}

        run(make_store, scenario)

    def test_steps_are_filtered_by_state(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await store.claim_step(claim_of("a"))
            await answered(store, "b")

            page = await store.list_steps(Query(session="s", state="complete"))

            assert [row.index for row in page.rows] == [1]
            assert (await store.list_steps(Query(session="s", state="failed"))).rows == ()

        run(make_store, scenario)

    def test_a_step_is_found_by_its_index(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, "a", session="other")
            await answered(store, "b")
            second = await answered(store, "c")

            row = await store.find_step("s", 1)

            assert row == await store.read_step(second.step_id)
            for session, index in (("s", 2), ("s", -1), ("gone", 0)):
                assert await store.find_step(session, index) is None

        run(make_store, scenario)

    @pytest.mark.parametrize("limit", [0, -1, LIST_LIMIT_MAX + 1])
    def test_odd_limits_are_refused(self, make_store: MakeStore, limit: int) -> None:
        async def scenario(store: Store) -> None:
            for listing in (store.list_sessions, store.list_steps):
                with pytest.raises(BadRequest) as caught:
                    await listing(Query(session="s", limit=limit))
                assert caught.value.param == "limit"

        run(make_store, scenario)

    @pytest.mark.parametrize(
        "after", ["", "x", "ÿ", "bnVsbA==", "WzFd", "W10=", "WyJhIiwgImIiXQ==", "WzEsIDIsIDNd"]
    )
    def test_odd_cursors_are_refused(self, make_store: MakeStore, after: str) -> None:
        async def scenario(store: Store) -> None:
            for listing in (store.list_sessions, store.list_steps):
                if listing == store.list_steps and after == "WzFd":
                    continue  # that is one of its own: [1]
                with pytest.raises(BadRequest) as caught:
                    await listing(Query(session="s", after=after))
                assert caught.value.param == "after"

        run(make_store, scenario)

    def test_a_listing_of_steps_needs_a_session(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            with pytest.raises(BadRequest):
                await store.list_steps(Query())

        run(make_store, scenario)

    def test_totals_are_those_of_all_sessions(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            for name in ("a", "b", "b"):
                await answered(store, session=name)
            await store.claim_step(claim_of(session="c"))

            totals = await store.read_totals()

            del totals["bytes_on_disk"], totals["bytes_used"]
            assert totals == {
                "sessions": 3,
                "steps": 4,
                "replays": 0,
                "cost_microusd": 75,
                "saved_microusd": 0,
            }

        run(make_store, scenario)

    # --- odd values -------------------------------------------------------------------------

    @pytest.mark.parametrize("name", ["a/b", "../../x", "'; drop table step;--", "\0", "会话", " "])
    def test_odd_session_names_are_names(self, make_store: MakeStore, name: str) -> None:
        async def scenario(store: Store) -> None:
            await answered(store, session=name)

            session = await store.read_session(name)

            assert session is not None
            assert (session.session, session.steps) == (name, 1)

        run(make_store, scenario)

    def test_text_that_is_no_unicode_is_mended(self, make_store: MakeStore) -> None:
        odd, mended = "a\ud83d\ude00 b\ud83d", "a😀 b\ufffd"

        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of(model=odd, prompt=odd))
            failed = attempt_of(model=odd, error=odd, provider=odd, dropped=(odd,))
            answer = checkpoint_of(
                claimed.step_id,
                model=odd,
                text=odd,
                response_id=odd,
                finish_reason=odd,
                provider=odd,
                attempts=(failed,),
            )
            await store.record_answer(answer)

            row = await step_at(store, claimed.step_id)
            assert {row.model, row.text, row.response_id, row.finish_reason} == {mended}
            assert {row.prompt, row.provider, row.error} == {mended}
            assert (await store.list_attempts(claimed.step_id))[0].dropped == (mended,)

        run(make_store, scenario)

    def test_absurd_counts_are_kept_within_bounds(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            claimed = await store.claim_step(claim_of())
            usage = Usage(10**30, -5, 10**19, 2**63, 0)

            await store.record_answer(
                checkpoint_of(claimed.step_id, usage=usage, cost_microusd=10**40)
            )

            row = await step_at(store, claimed.step_id)
            assert row.usage == Usage(COUNT_MAX, 0, COUNT_MAX, COUNT_MAX, 0)
            assert row.cost_microusd == COUNT_MAX

        run(make_store, scenario)

    # --- neighbours -------------------------------------------------------------------------

    def test_one_that_fails_takes_nobody_with_it(self, make_store: MakeStore) -> None:
        async def scenario(store: Store) -> None:
            good = [store.claim_step(claim_of(str(place))) for place in range(20)]
            bad = [store.claim_step(claim_of("bad", session="new", step_id=999)) for _ in range(5)]
            work = [call for pair in zip(good[:5], bad, strict=True) for call in pair] + good[5:]

            outcomes = await asyncio.gather(*work, return_exceptions=True)

            failed = [one for one in outcomes if isinstance(one, NotFound)]
            done = [one for one in outcomes if isinstance(one, Claimed)]
            assert (len(failed), len(done)) == (5, 20)
            assert sorted(one.index for one in done) == list(range(20))
            assert await store.read_session("new") is None

        run(make_store, scenario)


def _body(*messages: JSON, **shared: JSON) -> JSON:
    return {"model": "gpt-4o-mini", "messages": list(messages), **shared}
