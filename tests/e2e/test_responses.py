"""Responses of the real `openai` client through the real proxy: recorded, replayed, cut."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from agentstate.steps.stream import AFTER_DONE_S
from tests.dialects.samples_responses import (
    added,
    call,
    call_events,
    end,
    event,
    message,
    part,
    response,
    stream,
    text_events,
)
from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.reading import read_events
from tests.helpers.upstream import Reply, Upstream, json_reply, sse_reply

openai = pytest.importorskip("openai")
pytestmark = [pytest.mark.slow, pytest.mark.clients]

WEATHER: Any = {
    "type": "function",
    "name": "get_weather",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
        "additionalProperties": False,
    },
    "strict": True,
}
HI = stream(*text_events(0, "Hi ", "there"), end(message(part("Hi there"))))
CALL = stream(*call_events(0, call(), '{"city":', '"Oslo"}'), end(call()))
USER = {"role": "user", "content": "Weather in Oslo?"}


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Upstream]]:
    """One proxy before one scripted upstream."""
    db = tmp_path_factory.mktemp("responses") / "record.db"
    with Upstream() as upstream, Proxy(upstream_url=upstream.url, db=db, env=ONCE) as proxy:
        yield proxy, upstream


@pytest.fixture
def upstream(started: tuple[Proxy, Upstream]) -> Upstream:
    started[1].load([])
    return started[1]


@pytest.fixture
def proxy(started: tuple[Proxy, Upstream]) -> Proxy:
    return started[0]


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """A session of the test's own."""
    return str(request.node.name)


@pytest.fixture
def client(proxy: Proxy, session: str) -> Iterator[Any]:
    headers = {"x-agent-session-id": session}
    with openai.OpenAI(
        base_url=proxy.base_url, api_key="sk-test", max_retries=0, default_headers=headers
    ) as made:
        yield made


def post(proxy: Proxy, session: str, body: dict[str, Any]) -> Reception:
    headers: tuple[Pair, ...] = (
        (b"content-type", b"application/json"),
        (b"authorization", b"Bearer sk-test"),
        (b"x-agent-session-id", session.encode()),
    )
    return ask(proxy.address, "POST", "/v1/responses", headers, json.dumps(body).encode())


# --- recorded and replayed ------------------------------------------------------------------------


def test_a_plain_answer_is_recorded_and_replayed(
    proxy: Proxy, upstream: Upstream, client: Any, session: str
) -> None:
    upstream.load([json_reply(response(message(part("Hi there"))))])

    raws = [
        client.responses.with_raw_response.create(model="gpt-5", input="hi", store=False)
        for _ in range(2)
    ]

    assert [raw.parse().output_text for raw in raws] == ["Hi there"] * 2
    assert raws[0].content == raws[1].content
    assert [raw.headers["x-agentstate-cache-hit"] for raw in raws] == ["false", "true"]
    assert len(upstream.received) == 1
    assert upstream.received[0].target == "/v1/responses"
    assert upstream.received[0].json() == {"model": "gpt-5", "input": "hi", "store": False}
    (step,) = proxy.settled_steps(session)
    assert (step["state"], step["response"], step["prompt"]) == ("complete", "Hi there", "hi")
    assert step["response_id"] == "resp_1"
    assert step["usage"]["prompt_tokens"] == 20


def test_a_stream_arrives_event_by_event_and_is_replayed_byte_for_byte(
    proxy: Proxy, upstream: Upstream, client: Any, session: str
) -> None:
    upstream.load([sse_reply(CALL)])
    asked = {"model": "gpt-5", "input": "Weather in Oslo?", "tools": [WEATHER], "stream": True}

    events = list(client.responses.create(**asked))
    replays = [post(proxy, session, asked) for _ in range(2)]

    assert [each.type for each in events][-4:] == [
        "response.function_call_arguments.delta",
        "response.function_call_arguments.done",
        "response.output_item.done",
        "response.completed",
    ]
    assert [each.sequence_number for each in events] == list(range(len(CALL)))
    assert len(upstream.received) == 1
    for replay in replays:
        assert replay.body == b"".join(CALL)
        assert replay.header("x-agentstate-cache-hit") == "true"
    (step,) = proxy.settled_steps(session)
    (called,) = step["choices"][0]["tool_calls"]
    assert (called["id"], called["name"]) == ("call_1", "get_weather")


def test_a_done_after_the_end_stays_where_it_was(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    whole = (*HI, b"data: [DONE]\n\n")
    upstream.load([sse_reply(whole)])

    got = [post(proxy, session, {"model": "m", "input": "hi", "stream": True}) for _ in range(2)]

    assert [each.body for each in got] == [b"".join(whole)] * 2
    assert [each.ending for each in got] == ["complete"] * 2
    assert len(upstream.received) == 1


@pytest.mark.parametrize("streams_first", [True, False])
def test_each_form_answers_a_call_that_wants_the_other(
    upstream: Upstream, client: Any, streams_first: bool
) -> None:
    whole = response(message(part("Hi there")), call(2))
    events = stream(*text_events(0, "Hi there"), *call_events(1, call(2), call(2)["arguments"]),
                    ("response.completed", {"response": whole}))  # fmt: skip
    upstream.load([sse_reply(events) if streams_first else json_reply(whole)])
    asked: dict[str, Any] = {"model": "gpt-5", "input": "hi"}

    def streamed() -> Any:
        with client.responses.stream(**asked) as running:  # keeps count of items and parts
            running.until_done()
            return running.get_final_response()

    first = streamed() if streams_first else client.responses.create(**asked)
    second = client.responses.create(**asked) if streams_first else streamed()

    assert first.output_text == second.output_text == "Hi there"
    assert first.output[1].arguments == second.output[1].arguments == call(2)["arguments"]
    assert first.usage == second.usage
    assert len(upstream.received) == 1


@pytest.mark.parametrize("chained", [False, True])
def test_a_rerun_gets_its_answers_though_its_tools_say_something_else(
    upstream: Upstream, client: Any, chained: bool
) -> None:
    """Pinned tool results, also where the upstream holds the conversation."""
    upstream.load([json_reply(response(call())), json_reply(response(message(part("5 degrees"))))])

    def live(output: str) -> str:
        first = client.responses.create(
            model="gpt-5", input="Weather in Oslo?" if chained else [USER], tools=[WEATHER]
        )
        result = {"type": "function_call_output", "call_id": "call_1", "output": output}
        made = first.output[0].to_dict()
        again: dict[str, Any] = {"input": [USER, made, result]}
        if chained:
            again = {"input": [result], "previous_response_id": first.id}
        return str(client.responses.create(model="gpt-5", tools=[WEATHER], **again).output_text)

    lives = [live("5 degrees at 12:01"), live("5 degrees at 12:02")]

    assert lives == ["5 degrees", "5 degrees"]
    assert len(upstream.received) == 2


def test_a_turn_after_a_text_is_no_near_miss(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.load([json_reply(response(call())), json_reply(response())])

    post(proxy, session, {"model": "m", "input": "Weather in Oslo?"})
    got = post(proxy, session, {"model": "m", "input": [USER, call()]})

    assert got.status == 200
    assert got.header("x-agentstate-miss") is None


def test_a_chained_request_names_the_step_it_goes_on_from(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.load([json_reply(response(call())), json_reply({**response(), "id": "resp_2"})])
    first = post(proxy, session, {"model": "m", "input": "Weather in Oslo?"})
    response_id = json.loads(first.body)["id"]
    chained = {"model": "m", "input": "And then?", "previous_response_id": response_id}

    post(proxy, session, chained)

    status, body = proxy.get(f"/api/sessions/{session}/steps/1")
    assert status == 200
    assert json.loads(body)["goes_on_from"] == {"id": response_id, "index": 0}
    _, body = proxy.get(f"/api/sessions/{session}/steps/0")
    assert json.loads(body)["goes_on_from"] is None


def test_what_is_not_stored_is_another_request(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.load([json_reply(response()), json_reply(response())])

    for store in (True, False):
        post(proxy, session, {"model": "m", "input": "hi", "store": store})

    assert len(upstream.received) == 2


# --- what is no answer ----------------------------------------------------------------------------


def test_a_stream_that_stops_ends_in_an_error_with_the_next_number(
    proxy: Proxy, upstream: Upstream, client: Any, session: str
) -> None:
    opened = call(arguments="", status="in_progress")
    cut = stream(added(0, opened))
    upstream.load([sse_reply(cut), sse_reply(CALL)])
    asked = {"model": "gpt-5", "input": "Weather in Oslo?", "stream": True}

    seen: list[Any] = []
    with pytest.raises(openai.APIConnectionError):
        seen.extend(client.responses.create(**asked))
    again = post(proxy, session, asked)

    assert [each.type for each in seen][-2:] == ["response.output_item.added", "error"]
    assert seen[-1].sequence_number == 3
    assert seen[-1].code == "incomplete_answer"
    assert again.body == b"".join(CALL)
    assert len(upstream.received) == 2
    (step,) = proxy.settled_steps(session)
    assert [attempt["error_code"] for attempt in step["attempts"]] == ["incomplete_answer", None]


@pytest.mark.parametrize(
    "last",
    [
        event("response.failed", 8, response=response(
            status="failed", error={"code": "server_error", "message": "boom"})),
        event("response.incomplete", 8, response=response(
            status="incomplete", incomplete_details={"reason": "content_filter"})),
        event("error", 8, code="server_error", message="boom", param=None),
    ],
)  # fmt: skip
def test_a_failed_response_goes_out_as_it_came_and_is_not_replayed(
    proxy: Proxy, upstream: Upstream, session: str, last: bytes
) -> None:
    whole = (*stream(*text_events(0, "Hi")), last)
    upstream.load([sse_reply(whole), sse_reply(HI)])
    asked = {"model": "m", "input": "hi", "stream": True}

    got, again = post(proxy, session, asked), post(proxy, session, asked)

    assert got.body == b"".join(whole)
    assert got.ending != "complete"
    assert again.body == b"".join(HI)
    assert len(upstream.received) == 2


def test_an_error_that_is_the_first_event_is_a_real_one(upstream: Upstream, client: Any) -> None:
    upstream.load(
        [sse_reply([event("error", 0, code="rate_limit_exceeded", message="Slow.", param=None)])]
    )

    with pytest.raises(openai.RateLimitError, match="Slow"):
        client.responses.create(model="gpt-5", input="hi", stream=True)


def test_an_answer_cut_by_its_token_limit_is_one(upstream: Upstream, client: Any) -> None:
    item = message(part("Hi"), status="incomplete")
    whole = response(item, status="incomplete", incomplete_details={"reason": "max_output_tokens"})
    upstream.load([json_reply(whole)])

    got = [
        client.responses.create(model="gpt-5", input="hi", max_output_tokens=16) for _ in range(2)
    ]

    assert [each.incomplete_details.reason for each in got] == ["max_output_tokens"] * 2
    assert len(upstream.received) == 1


@pytest.mark.parametrize("how", ["stall", "reset", "eof_no_terminator"])
def test_nothing_after_the_last_event_takes_the_answer_back(
    proxy: Proxy, upstream: Upstream, session: str, how: Any
) -> None:
    upstream.load([sse_reply(HI, end=how)])
    asked = {"model": "m", "input": "hi", "stream": True}

    began = time.perf_counter()
    got = [post(proxy, session, asked) for _ in range(2)]

    assert time.perf_counter() - began < AFTER_DONE_S + 4
    assert [each.body for each in got] == [b"".join(HI)] * 2
    assert [each.ending for each in got] == ["complete"] * 2
    assert len(upstream.received) == 1
    (step,) = proxy.settled_steps(session)
    assert step["state"] == "complete"


# --- what is not recorded -------------------------------------------------------------------------


def test_a_background_request_passes_through_and_so_does_its_answer(
    proxy: Proxy, upstream: Upstream, client: Any, session: str
) -> None:
    queued = response(status="queued", background=True)
    upstream.load([json_reply(queued), json_reply(queued), json_reply(response())])

    first = client.responses.create(model="gpt-5", input="hi", background=True)
    second = client.responses.create(model="gpt-5", input="hi", background=True)
    done = client.responses.retrieve(first.id)

    assert (first.status, second.status, done.status) == ("queued", "queued", "completed")
    assert [call.target for call in upstream.received] == [
        "/v1/responses", "/v1/responses", "/v1/responses/resp_1",
    ]  # fmt: skip
    assert proxy.steps(session) == []


def test_a_call_without_a_session_is_only_passed_on(proxy: Proxy, upstream: Upstream) -> None:
    upstream.load([json_reply(response(message(part("Hi")))) for _ in range(2)])

    with openai.OpenAI(base_url=proxy.base_url, api_key="sk-test", max_retries=0) as plain:
        texts = [plain.responses.create(model="m", input="hi").output_text for _ in range(2)]

    assert texts == ["Hi", "Hi"]
    assert len(upstream.received) == 2


def test_a_wrong_request_is_refused_before_it_costs(upstream: Upstream, client: Any) -> None:
    with pytest.raises(openai.BadRequestError, match="`input` must be a text or a list") as caught:
        client.responses.create(model="gpt-5")

    assert caught.value.param == "input"
    assert upstream.received == []


# --- the mock -------------------------------------------------------------------------------------


def test_the_mock_runs_a_tool_loop_offline(proxy: Proxy, upstream: Upstream, session: str) -> None:
    headers = {"x-agent-session-id": session}
    with openai.OpenAI(
        base_url=proxy.base_url, api_key="mock-key", max_retries=0, default_headers=headers
    ) as mocked:
        with mocked.responses.stream(
            model="mock/any", input="get_weather for 'Oslo'", tools=[WEATHER]
        ) as running:
            running.until_done()
            first = running.get_final_response()
        (made,) = first.output
        last = mocked.responses.create(
            model="mock/any",
            input=[
                {"role": "user", "content": "get_weather for 'Oslo'"},
                {"type": "function_call", "call_id": made.call_id, "name": made.name,
                 "arguments": made.arguments},
                {"type": "function_call_output", "call_id": made.call_id, "output": "5 degrees"},
            ],
            tools=[WEATHER],
        )  # fmt: skip

    assert json.loads(made.arguments) == {"city": "Oslo"}
    assert "5 degrees" in last.output_text
    assert upstream.received == []
    assert [step["is_mock"] for step in proxy.settled_steps(session)] == [True, True]


def test_the_mock_parses_into_a_schema(proxy: Proxy, session: str) -> None:
    pydantic = pytest.importorskip("pydantic")
    weather = pydantic.create_model("Weather", city=(str, ...))
    headers = {"x-agent-session-id": session}

    with openai.OpenAI(
        base_url=proxy.base_url, api_key="mock-key", max_retries=0, default_headers=headers
    ) as mocked:
        found = mocked.responses.parse(model="mock/any", input="city=Oslo", text_format=weather)

    assert found.output_parsed.city == "Oslo"


def test_an_error_event_of_ours_is_read_by_any_reader(
    proxy: Proxy, upstream: Upstream, session: str
) -> None:
    upstream.load([Reply(
        headers=((b"content-type", b"text/event-stream"),), chunks=HI[:3], framing="chunked",
        end="reset",
    )])  # fmt: skip

    got = post(proxy, session, {"model": "m", "input": "hi", "stream": True})

    last = read_events(got.body)[-1]
    assert last.name == "error"
    assert json.loads(last.data)["sequence_number"] == 3
    assert got.ending != "complete"
