"""No secret is in a cassette unasked, and none that is taken out breaks a replay silently."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from agentstate.ground.records import Query
from agentstate.house.cassette_secrets import SecretsInAnswers
from agentstate.store.base import Store
from tests.ground.test_redaction import DIGITS, PEM
from tests.house.tapes import (
    ABOUT,
    call,
    chat,
    chat_body,
    chat_events,
    copied,
    lines_of,
    on_store,
    said,
    tape,
    user,
)

KEY = "sk-" + DIGITS
OWN = "a-key-of-no-known-form-42"


def test_secrets_of_requests_are_taken_out_and_the_step_is_still_found() -> None:
    async def scenario(store: Store) -> None:
        body = {
            "model": "gpt-4o",
            "messages": [
                user(f"use {KEY} and {OWN}"),
                {"role": "tool", "tool_call_id": "1", "content": json.dumps({"pem": PEM})},
            ],
            "metadata": {KEY: OWN},
        }
        await call(store, body, chat_body("fine"))
        [step] = (await store.list_steps(Query(session="s"))).rows

        raw = await tape(store, keys=(OWN,))

        assert DIGITS.encode() not in raw
        assert OWN.encode() not in raw
        assert b"MIIE" not in raw
        end = lines_of(raw)[-1]["end"]
        assert end["secrets"] == {"configured_key": 2, "openai_key": 2, "private_key": 1}
        other = await copied(raw)
        [found] = await other.find_candidates("s", "exact", step.fingerprint)
        assert found.state == "complete"

    on_store(scenario)


def test_what_a_session_is_called_is_looked_at_too() -> None:
    async def scenario(store: Store) -> None:
        about = replace(ABOUT, name=f"with {KEY}", tags=(("key", KEY),))
        await chat(store, user("a"), about=about)

        assert DIGITS.encode() not in await tape(store)

    on_store(scenario)


def test_a_secret_that_an_answer_ends_with_is_taken_out() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"), answer="one")
        await chat(store, user("a"), said("one"), user("b"), answer=f"it is {KEY}")

        raw = await tape(store)

        assert DIGITS.encode() not in raw
        assert lines_of(raw)[-1]["end"]["secrets"] == {"openai_key": 1}
        other = await copied(raw)
        answer = await other.read_answer(2)
        assert answer is not None
        assert json.loads(answer.content)["choices"][0]["message"]["content"] == (
            "it is [secret:openai_key]"
        )

    on_store(scenario)


@pytest.mark.parametrize("secret", [KEY, PEM, OWN])
def test_a_secret_that_the_agent_sends_back_is_refused_until_somebody_decides(secret: str) -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user("a"), answer=f"it is {secret} so")
        # As a tool's arguments in a text in a text: escaped as often.
        again = json.dumps({"said": json.dumps(secret)})
        await chat(store, user("a"), user(again), answer="two")

        with pytest.raises(SecretsInAnswers, match=r"step 0 .* sent again by step 1") as caught:
            await tape(store, keys=(OWN,))
        assert secret not in caught.value.message

        raw = await tape(store, keys=(OWN,), keeps_secrets=True)
        first, second = lines_of(raw)[2:4]
        assert secret in first["answer"]["body"]["choices"][0]["message"]["content"]
        assert secret not in json.dumps(second)

    on_store(scenario)


def test_it_is_looked_for_only_in_requests_that_come_after() -> None:
    async def scenario(store: Store) -> None:
        await chat(store, user(f"my key is {KEY}"), answer="one")
        await chat(store, user("b"), answer=f"it is {KEY}")

        assert DIGITS.encode() not in await tape(store)

    on_store(scenario)


def test_a_secret_spread_over_a_stream_is_found() -> None:
    async def scenario(store: Store) -> None:
        pieces = ("it is ", KEY[:9], KEY[9:20], KEY[20:], " now")
        body = {"model": "m", "stream": True, "messages": [user("a")]}
        await call(store, body, chat_events(*pieces))

        raw = await tape(store)

        step = lines_of(raw)[2]
        assert KEY[20:].encode() not in raw
        assert step["answer"]["body"]["choices"][0]["message"]["content"] == (
            "it is [secret:openai_key] now"
        )
        assert step["answer"]["type"] == "application/json"
        await copied(raw)

    on_store(scenario)


def test_a_secret_in_one_event_leaves_a_stream_a_stream() -> None:
    async def scenario(store: Store) -> None:
        body = {"model": "m", "stream": True, "messages": [user("a")]}
        await call(store, body, chat_events("it is ", KEY, " now"))

        raw = await tape(store)

        assert DIGITS.encode() not in raw
        assert "[secret:openai_key]" in "".join(lines_of(raw)[2]["answer"]["events"])

    on_store(scenario)


def test_a_stream_that_holds_none_stays_byte_for_byte() -> None:
    async def scenario(store: Store) -> None:
        content = chat_events("sk-", "learn ", "is a library")
        body = {"model": "m", "stream": True, "messages": [user("a")]}
        await call(store, body, content)

        other = await copied(await tape(store))

        answer = await other.read_answer(1)
        assert answer is not None
        assert (answer.form, answer.content) == ("events", content)

    on_store(scenario)
