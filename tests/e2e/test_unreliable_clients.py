"""Agents of real SDKs over a model that fails three calls in ten; all settings as they come.

Each works by one form, streaming or not, alone or with a model of another vendor behind its own.
Each lives to the end of its fifty steps and pays for each once; what a person reads of it later,
the attempts and the calls, is what the upstream saw. A second life is paid for by the record.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.fault_rig import CALLER_KEY, providers_toml
from tests.e2e.faults import SEEN
from tests.e2e.forms import CHAT, MESSAGES, RESPONSES
from tests.e2e.unreliable_rig import (
    AGENTS,
    STEPS,
    TOKENS_SAID,
    Agent,
    Drawn,
    Lane,
    Life,
    Noted,
    Said,
    UnreliableModel,
    calls_of,
    last_text,
)
from tests.helpers.proxy import Proxy

pytestmark = [pytest.mark.slow, pytest.mark.clients]

AT_ONCE = 7
TRIES = 3  # at one target
ASKED_AGAIN_MAX = 10  # of one step, by the agent itself
TIMEOUT_S = 120.0
PAIRS = (
    (CHAT, None), (MESSAGES, None), (RESPONSES, None),
    (CHAT, MESSAGES), (MESSAGES, CHAT), (RESPONSES, MESSAGES), (RESPONSES, CHAT),
)  # fmt: skip
LANES = [Lane(caller, streams, other) for caller, other in PAIRS for streams in (False, True)]
by_lane = pytest.mark.parametrize("lane", LANES, ids=lambda lane: lane.name)


def live(proxy: Proxy, lane: Lane) -> Life:
    """Live once."""
    headers = {"x-agent-session-id": lane.name}
    if lane.fallback is not None:
        headers["x-agent-fallback-model"] = f"{lane.fallback.name}1/{lane.name}"
    life = Life()
    with client_of(proxy, lane, headers) as client:
        agent = AGENTS[lane.caller.name](client, lane.name)
        for _ in range(STEPS):
            said = ask_until_answered(agent, lane, life)
            made = [
                Noted(call_id, arguments := json.loads(text), f"noted {arguments['mark']}")
                for call_id, text in said.calls
            ]
            life.turns.append(made)
            life.text = said.text
            agent.take(said, made)
    return life


def client_of(proxy: Proxy, lane: Lane, headers: dict[str, str]) -> Any:
    """Return a client that retries as often as it does by itself."""
    if lane.caller is MESSAGES:
        import anthropic

        return anthropic.Anthropic(
            base_url=proxy.url, api_key=CALLER_KEY, default_headers=headers, timeout=TIMEOUT_S
        )
    import openai

    return openai.OpenAI(
        base_url=proxy.base_url, api_key=CALLER_KEY, default_headers=headers, timeout=TIMEOUT_S
    )


def ask_until_answered(agent: Agent, lane: Lane, life: Life) -> Said:
    """Ask; and again where the SDK gave up, which it does where a stream breaks off in the middle.

    It says so with an error of its own kind: anything else is a defect of ours.
    """
    import anthropic
    import openai

    errors: list[str] = []
    while len(errors) < ASKED_AGAIN_MAX:
        try:
            return agent.ask(streams=lane.streams)
        except (openai.APIError, anthropic.APIError) as error:
            life.spoiled += 1
            errors.append(str(error))
    raise AssertionError(f"{lane.name}: no answer to step {len(life.turns)}: {errors}")


@dataclass(frozen=True, slots=True)
class Lived:
    """Two lives of an agent."""

    first: Life
    calls: int  # that its models got by the end of the first
    again: Life
    calls_again: int


@dataclass(slots=True)
class House:
    """The proxy, the model behind it, and the lives of the agents."""

    proxy: Proxy
    model: UnreliableModel
    lives: dict[str, Future[Lived]]

    def of(self, lane: Lane) -> Lived:
        """Wait for an agent."""
        return self.lives[lane.name].result()

    def calls_on_record(self, lane: Lane) -> list[Noted]:
        """Return all tool calls of an agent as the API lists them."""
        status, body = self.proxy.get(f"/api/sessions/{lane.name}/tool-calls?limit=1000")
        assert status == 200, body
        return [
            Noted(call["call_id"], call["arguments_json"], call["result"]["content"])
            for call in json.loads(body)
        ]


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Several agents live at a time."""
    pytest.importorskip("openai")
    pytest.importorskip("anthropic")
    folder: Path = tmp_path_factory.mktemp("unreliable-clients")
    with UnreliableModel() as model:
        config = providers_toml(1, model.port)
        (folder / "agentstate.toml").write_text(config, encoding="utf-8")
        with (
            Proxy(upstream_url=model.url, db=folder / "record.db") as proxy,
            ThreadPoolExecutor(AT_ONCE) as pool,
        ):

            def live_twice(lane: Lane) -> Lived:
                first = live(proxy, lane)
                calls = model.count(lane.name)
                return Lived(first, calls, live(proxy, lane), model.count(lane.name))

            yield House(proxy, model, {lane.name: pool.submit(live_twice, lane) for lane in LANES})


@by_lane
def test_it_lives_to_its_end_and_is_told_each_call_once(house: House, lane: Lane) -> None:
    life = house.of(lane).first

    assert life.text == last_text(lane.name)
    told = [[noted.arguments["mark"] for noted in made] for made in life.turns]
    assert told == [[f"{at}.{n}" for n in range(calls_of(at))] for at in range(STEPS)]
    ids = [noted.id for made in life.turns for noted in made]
    assert len(set(ids)) == len(ids)


@by_lane
def test_each_step_is_answered_and_paid_for_once(house: House, lane: Lane) -> None:
    house.of(lane)

    drawn = house.model.drawn[lane.name]
    assert [each.turn for each in drawn if each.fault is None] == list(range(STEPS))
    steps = house.proxy.settled_steps(lane.name)
    assert [step["index"] for step in steps] == list(range(STEPS))
    assert {step["state"] for step in steps} == {"complete"}
    shown = house.proxy.maybe_session(lane.name)
    assert shown is not None
    assert shown["session"]["output_tokens"] == TOKENS_SAID * STEPS


@by_lane
def test_every_attempt_is_on_record(house: House, lane: Lane) -> None:
    house.of(lane)

    recorded = [
        (step["index"], _form_of(lane, attempt["provider"]), attempt["error_code"] is None)
        for step in house.proxy.settled_steps(lane.name)
        for attempt in step["attempts"]
        if attempt["error_code"] != "target_rests"  # nothing was sent
    ]
    drawn = house.model.drawn[lane.name]
    assert recorded == [(each.turn, each.form, each.fault is None) for each in drawn]


def _form_of(lane: Lane, provider: str) -> str:
    return lane.caller.name if provider == lane.caller.own else provider.removesuffix("1")


@by_lane
def test_the_model_is_told_what_the_agent_lived_through(house: House, lane: Lane) -> None:
    life = house.of(lane).first

    for turn, history in house.model.histories[lane.name]:
        assert history == [noted for made in life.turns[:turn] for noted in made]


@by_lane
def test_its_calls_and_their_results_are_on_record(house: House, lane: Lane) -> None:
    life = house.of(lane).first

    assert house.calls_on_record(lane) == [noted for made in life.turns for noted in made]


@by_lane
def test_its_sdk_gives_up_only_where_a_stream_had_begun(house: House, lane: Lane) -> None:
    life = house.of(lane).first

    drawn = house.model.drawn[lane.name]
    seen = sum(each.fault in _SEEN for each in drawn)
    # Where nothing else is left to try, a stream's head goes out before its content.
    spent = lane.streams * sum(len(tries) > TRIES for tries in _tries_of(drawn))
    assert seen <= life.spoiled <= seen + spent


_SEEN = {fault.name for fault in SEEN}


def _tries_of(drawn: list[Drawn]) -> list[list[Drawn]]:
    """Group what was drawn by turn."""
    return [list(tries) for _, tries in groupby(drawn, key=lambda each: each.turn)]


@by_lane
def test_a_second_life_is_paid_for_by_the_record(house: House, lane: Lane) -> None:
    lived = house.of(lane)

    assert lived.calls_again == lived.calls
    assert (lived.again.turns, lived.again.text) == (lived.first.turns, lived.first.text)
    assert lived.again.spoiled == 0
    assert len(house.proxy.settled_steps(lane.name)) == STEPS


def test_the_models_failed_in_many_ways_and_others_stood_in(house: House) -> None:
    for lane in LANES:
        house.of(lane)

    assert len(house.model.faults()) >= 20, house.model.faults()
    for lane in LANES:
        answered = {each.form for each in house.model.drawn[lane.name] if each.fault is None}
        assert answered == {form.name for form in (lane.caller, lane.fallback) if form}, lane.name
