"""The real `anthropic` client through the real proxy: plain, streamed, with tools; paid once each.

Upstream are scripted answers in Anthropic's form, and the mock. What the client makes of a replay
must be what it made of the answer itself.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.samples_anthropic import (
    CALL,
    ERROR,
    PING,
    STOP,
    STREAMS,
    body,
    call_block,
    end,
    event,
    start,
    text_block,
)
from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import ask
from tests.helpers.upstream import Reply, Upstream, json_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

MODEL = "claude-opus-4-6"
SESSION = "x-agent-session-id"
WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}},
}
HI = json_reply(json.loads(body({"type": "text", "text": "Hi"})))
HI_STREAM = sse_reply((start(), PING, *text_block(0, "H", "i"), end(), STOP))


@dataclass(slots=True)
class Rig:
    """The proxy, the upstream behind it, and clients that talk to it."""

    proxy: Proxy
    upstream: Upstream
    sdk: Any
    clients: list[Any] = field(default_factory=list)

    def client(self, session: str | None = None, key: str = "sk-ant-theirs", **headers: str) -> Any:
        """Return a client of this session that does not retry by itself."""
        named = {} if session is None else {SESSION: session}
        client = self.sdk.Anthropic(
            base_url=self.proxy.url,
            api_key=key,
            max_retries=0,
            default_headers={**named, **{k.replace("_", "-"): v for k, v in headers.items()}},
        )
        self.clients.append(client)
        return client


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """One proxy for all; each test has a session of its own."""
    sdk = pytest.importorskip("anthropic")
    folder: Path = tmp_path_factory.mktemp("anthropic")
    with (
        Upstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db", env=ONCE) as proxy,
    ):
        yield Rig(proxy, upstream, sdk)


@pytest.fixture
def rig(shared: Rig) -> Iterator[Rig]:
    """The shared rig with nothing scripted."""
    shared.upstream.load(())
    yield shared
    while shared.clients:
        shared.clients.pop().close()


def ask_plain(client: Any, text: str = "hi", **fields: Any) -> Any:
    messages = [{"role": "user", "content": text}]
    return client.messages.create(
        **{"model": MODEL, "max_tokens": 64, "messages": messages, **fields}
    )


def ask_streamed(client: Any, text: str = "hi", **fields: Any) -> tuple[list[str], Any]:
    """Return the texts as they came and the message at the end."""
    messages = [{"role": "user", "content": text}]
    asked = {"model": MODEL, "max_tokens": 64, "messages": messages, **fields}
    with client.messages.stream(**asked) as stream:
        texts = list(stream.text_stream)
        return texts, stream.get_final_message()


def check_paid_once(rig: Rig, session: str) -> dict[str, Any]:
    """One request went upstream, one complete step is on record; return it."""
    assert [call.target for call in rig.upstream.received] == ["/v1/messages"]
    (step,) = rig.proxy.settled_steps(session)
    assert step["state"] == "complete"
    return step


# Answers and their replays


def test_a_message_is_paid_once_and_replayed(rig: Rig) -> None:
    rig.upstream.load([HI])
    client = rig.client("plain")

    first, again = ask_plain(client), ask_plain(client)

    assert first.content[0].text == "Hi"
    assert again == first
    step = check_paid_once(rig, "plain")
    assert (step["response"], step["finish_reason"]) == ("Hi", "end_turn")
    assert (step["usage"]["prompt_tokens"], step["usage"]["completion_tokens"]) == (20, 7)
    sent = rig.upstream.received[0]
    assert sent.header("authorization") == "Bearer sk-ant-theirs"
    assert sent.header("anthropic-version") is not None


def test_a_stream_is_paid_once_and_replayed(rig: Rig) -> None:
    rig.upstream.load([HI_STREAM])
    client = rig.client("streamed")

    first, again = ask_streamed(client), ask_streamed(client)

    assert first[0] == ["H", "i"]
    assert again == first
    assert first[1].usage.output_tokens == 7
    assert check_paid_once(rig, "streamed")["usage"]["prompt_tokens"] == 20


@pytest.mark.parametrize("name", STREAMS)
def test_every_stream_is_replayed_byte_for_byte(rig: Rig, name: str) -> None:
    rig.upstream.load([sse_reply(STREAMS[name])])
    session = f"bytes-{name.replace(' ', '-')}"
    raw = json.dumps({"model": MODEL, "max_tokens": 9, "stream": True,
                      "messages": [{"role": "user", "content": name}]}).encode()  # fmt: skip
    headers = ((SESSION.encode(), session.encode()), (b"x-api-key", b"sk-ant-theirs"))

    got = [ask(rig.proxy.address, "POST", "/v1/messages", headers, raw) for _ in range(2)]

    assert [each.body for each in got] == [b"".join(STREAMS[name])] * 2
    assert got[1].header("x-agentstate-replay") == "exact"
    check_paid_once(rig, session)


def test_an_answer_recorded_in_one_form_is_given_in_the_other(rig: Rig) -> None:
    rig.upstream.load([HI, HI_STREAM])
    plain, streamed = rig.client("from-plain"), rig.client("from-stream")

    whole = ask_plain(plain)
    made_of_whole = ask_streamed(plain)
    stream = ask_streamed(streamed)
    made_of_stream = ask_plain(streamed)

    assert made_of_whole == (["Hi"], _parsed(made_of_whole[1], whole))
    assert stream[1] == _parsed(stream[1], made_of_stream)
    assert len(rig.upstream.received) == 2


def _parsed(like: Any, message: Any) -> Any:
    """Return a plain message as the type that the streaming helper gives."""
    return type(like).construct(**message.to_dict())


def test_an_async_client_gets_the_same(rig: Rig) -> None:
    rig.upstream.load([HI_STREAM])

    async def run() -> list[str]:
        client = rig.sdk.AsyncAnthropic(
            base_url=rig.proxy.url, api_key="k", default_headers={SESSION: "async"}
        )
        async with client:
            texts = []
            for _ in range(2):
                asked = {"model": MODEL, "max_tokens": 9}
                async with client.messages.stream(
                    **asked, messages=[{"role": "user", "content": "hi"}]
                ) as stream:
                    texts.append(await stream.get_final_text())
        return texts

    assert asyncio.run(run()) == ["Hi", "Hi"]
    check_paid_once(rig, "async")


def test_thoughts_and_signatures_come_through_untouched(rig: Rig) -> None:
    rig.upstream.load([sse_reply(STREAMS["thinking"])])
    client = rig.client("thinking")

    _, streamed = ask_streamed(client)
    plain = ask_plain(client)

    assert [block.to_dict() for block in streamed.content[:3]] == [
        {"type": "thinking", "thinking": "hm \u2028 so", "signature": "EqRk/+=="},
        {"type": "redacted_thinking", "data": "b3BhcXVl"},
        {"type": "thinking", "thinking": "", "signature": "ZW1wdHk="},
    ]
    assert [block.to_dict() for block in plain.content] == [
        block.to_dict(exclude_none=True) for block in streamed.content
    ]
    check_paid_once(rig, "thinking")


# Tools


def run_agent(client: Any, tool_gave: str, *, streams: bool) -> str:
    """Ask, run the tool that is called, hand back what it gave, and return the final text."""
    create = (lambda **asked: ask_streamed(client, **asked)[1]) if streams else (
        lambda **asked: ask_plain(client, **asked)
    )  # fmt: skip
    messages: list[Any] = [{"role": "user", "content": "Weather in Oslo?"}]
    called = create(messages=messages, tools=[WEATHER])
    assert called.stop_reason == "tool_use"
    call = called.content[-1]
    assert (call.name, call.input) == ("get_weather", {"city": "Oslo"})
    result = {"type": "tool_result", "tool_use_id": call.id, "content": tool_gave}
    messages += [
        {"role": "assistant", "content": [block.to_dict() for block in called.content]},
        {"role": "user", "content": [result]},
    ]
    text: str = create(messages=messages, tools=[WEATHER]).content[0].text
    return text


@pytest.mark.parametrize("streams", [False, True])
def test_an_agent_that_runs_its_tool_again_gets_the_recorded_decision(
    rig: Rig, streams: bool
) -> None:
    if streams:
        called = (start(), *call_block(0, '{"city":', '"Oslo"}'), end("tool_use"), STOP)
        rig.upstream.load([sse_reply(called), HI_STREAM])
    else:
        call = json.loads(body({**CALL, "input": {"city": "Oslo"}}, reason="tool_use"))
        rig.upstream.load([json_reply(call), HI])
    session = f"agent-{streams}"
    client = rig.client(session)

    first = run_agent(client, "5 degrees at 10:01", streams=streams)
    again = run_agent(client, "6 degrees at 10:02", streams=streams)

    assert (first, again) == ("Hi", "Hi")
    assert len(rig.upstream.received) == 2
    calling, answering = rig.proxy.settled_steps(session)
    (recorded,) = calling["choices"][0]["tool_calls"]
    assert (recorded["id"], recorded["name"]) == ("call_1", "get_weather")
    assert json.loads(recorded["arguments"]) == {"city": "Oslo"}
    assert [step["prompt"] for step in (calling, answering)] == ["Weather in Oslo?"] * 2


def test_a_system_prompt_that_tells_the_time_is_the_same_in_the_next_run(rig: Rig) -> None:
    rig.upstream.load([HI])

    def live(run: str, minute: int) -> Any:
        client = rig.client("clock", x_agent_run_id=run)
        now = f"{_today()}T10:{minute:02d}:00Z"
        system = [{"type": "text", "text": "Be kind."}, {"type": "text", "text": f"It is {now}."}]
        return client.messages.with_raw_response.create(
            model=MODEL, max_tokens=9, system=system, messages=[{"role": "user", "content": "hi"}]
        )

    first, again = live("one", 1), live("two", 2)

    assert again.text() == first.text()
    assert again.headers["x-agentstate-replay"] == "masked"
    check_paid_once(rig, "clock")


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


# What counts


def test_the_beta_header_and_the_query_go_upstream_and_betas_count(rig: Rig) -> None:
    rig.upstream.load([HI, HI])
    client = rig.client("beta")

    for betas in (["a-2026-01-01"], ["a-2026-01-01"], ["b-2026-01-01"]):
        client.beta.messages.create(
            model=MODEL,
            max_tokens=9,
            betas=betas,
            messages=[{"role": "user", "content": "hi"}],
            extra_query={"beta": "true"},  # as older ones and Claude Code do
        )

    assert [call.header("anthropic-beta") for call in rig.upstream.received] == [
        "a-2026-01-01", "b-2026-01-01",
    ]  # fmt: skip
    assert {call.target for call in rig.upstream.received} == {"/v1/messages?beta=true"}


def test_claude_codes_own_header_names_the_session(rig: Rig) -> None:
    rig.upstream.load([HI])
    client = rig.client(x_claude_code_session_id="code")

    for _ in range(2):
        ask_plain(client, metadata={"user_id": "u"})

    check_paid_once(rig, "code")
    assert rig.upstream.received[0].header("x-claude-code-session-id") == "code"


def test_without_a_session_a_call_goes_through_unrecorded(rig: Rig) -> None:
    rig.upstream.load([HI, HI_STREAM])
    client = rig.client()

    assert ask_plain(client).content[0].text == "Hi"
    assert ask_streamed(client)[0] == ["H", "i"]


def test_the_count_of_tokens_passes_through(rig: Rig) -> None:
    rig.upstream.load([json_reply({"input_tokens": 12})])
    client = rig.client("counted")

    counted = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "x"}])

    assert counted.input_tokens == 12
    assert [call.target for call in rig.upstream.received] == ["/v1/messages/count_tokens"]
    assert rig.proxy.maybe_session("counted") is None


def test_a_configured_key_goes_in_anthropics_header(rig: Rig, tmp_path: Path) -> None:
    rig.upstream.load([HI])
    env = {"ANTHROPIC_BASE_URL": f"{rig.upstream.url}/v1/", "ANTHROPIC_API_KEY": "sk-ant-ours"}
    with Proxy(upstream_url=rig.upstream.url, db=tmp_path / "record.db", env=env) as proxy:
        other = Rig(proxy, rig.upstream, rig.sdk)
        ask_plain(other.client("key", key="your-api-key"))
        other.clients[0].close()

    (sent,) = rig.upstream.received
    assert (sent.header("x-api-key"), sent.header("authorization")) == ("sk-ant-ours", None)
    assert sent.target == "/v1/messages"


# What fails


def fails(rig: Rig, client: Any, *, streams: bool = False) -> Any:
    """Ask, and return the error that the client raises."""
    with pytest.raises(rig.sdk.APIStatusError) as raised:
        ask_streamed(client) if streams else ask_plain(client)
    return raised.value


def error_of(status: int, kind: str, **fields: Any) -> Reply:
    error = {"type": kind, "message": "No.", **fields}
    return json_reply({"type": "error", "error": error, "request_id": "req_1"}, status=status)


@pytest.mark.parametrize("streams", [False, True])
def test_an_upstreams_error_comes_as_it_is(rig: Rig, streams: bool) -> None:
    rig.upstream.load([error_of(400, "invalid_request_error"), HI_STREAM if streams else HI])
    client = rig.client(f"refused-{streams}")

    error = fails(rig, client, streams=streams)

    assert (error.status_code, error.type, error.api_message) == (
        400, "invalid_request_error", "No.",
    )  # fmt: skip
    # Errors are never replayed.
    assert (ask_streamed(client)[1] if streams else ask_plain(client)).content[0].text == "Hi"


def test_a_page_instead_of_an_error_is_told_in_anthropics_form(rig: Rig) -> None:
    html = Reply(502, ((b"content-type", b"text/html"),), (b"<html>Bad gateway</html>",))
    rig.upstream.load([html])

    error = fails(rig, rig.client("page"))

    assert (error.status_code, error.type) == (502, "api_error")
    assert error.error_code == "upstream_refused"


def test_an_error_inside_a_200_is_a_real_error(rig: Rig) -> None:
    rig.upstream.load([json_reply(ERROR), sse_reply((event("error", error=ERROR["error"]),))])
    client = rig.client("inside")

    for streams in (False, True):
        error = fails(rig, client, streams=streams)
        assert (error.status_code, error.type) == (529, "overloaded_error")


def test_an_error_in_a_stream_that_has_begun_comes_as_it_is(rig: Rig) -> None:
    events = (start(), PING, *text_block(0, "H"), event("error", error=ERROR["error"]))
    rig.upstream.load([sse_reply(events), HI_STREAM])
    client = rig.client("overloaded")

    error = fails(rig, client, streams=True)

    assert error.type == "overloaded_error"
    assert ask_streamed(client)[0] == ["H", "i"]


@pytest.mark.parametrize("kept", range(1, 7))
@pytest.mark.parametrize("ending", ["ok", "reset"])
def test_a_stream_without_its_end_is_an_error_and_asked_again(
    rig: Rig, kept: int, ending: Any
) -> None:
    frames = HI_STREAM.chunks[: kept + 1]  # the first two make the head and a ping
    rig.upstream.load([sse_reply(frames, end=ending), HI_STREAM])
    client = rig.client(f"cut-{kept}-{ending}")
    assert STOP not in frames

    error = fails(rig, client, streams=True)

    assert error.type == "api_error"
    assert error.error_code in ("incomplete_answer", "upstream_cut")
    assert ask_streamed(client)[0] == ["H", "i"]


def test_a_request_that_cannot_be_read_is_refused_in_anthropics_form(rig: Rig) -> None:
    error = fails(rig, rig.client("odd", x_agent_step_number="-1"))

    assert (error.status_code, error.type) == (400, "invalid_request_error")
    assert error.error_code == "invalid_request"
    assert "x-agent-step-number" in error.api_message
    assert rig.upstream.received == []


# The mock


def test_the_mock_answers_the_client_in_every_form(rig: Rig) -> None:
    client = rig.client("mock", key="mock-key")

    plain = ask_plain(client, "Hello")
    texts, streamed = ask_streamed(client, "Hello")
    other_texts, _ = ask_streamed(client, "Bye")
    called = ask_plain(client, 'get_weather {"city": "Oslo"}', tools=[WEATHER])
    counted = client.messages.count_tokens(model=MODEL, messages=[{"role": "user", "content": "x"}])

    assert "mock" in plain.content[0].text
    assert "".join(texts) == plain.content[0].text == streamed.content[0].text
    assert len(other_texts) > 1
    assert called.content[0].input == {"city": "Oslo"}
    assert counted.input_tokens > 0
    assert len(rig.proxy.settled_steps("mock")) == 3
    assert rig.upstream.received == []


def test_the_mock_knows_the_key_in_anthropics_header(rig: Rig) -> None:
    raw = json.dumps({"model": MODEL, "max_tokens": 9, "messages": [{"role": "user",
                      "content": "hi"}]}).encode()  # fmt: skip

    got = ask(rig.proxy.address, "POST", "/v1/messages", ((b"x-api-key", b"mock-key"),), raw)

    assert (got.status, got.header("x-agentstate-mock")) == (200, "true")


@pytest.mark.parametrize(
    ("model", "status", "kind"),
    [("mock/429", 429, "rate_limit_error"), ("mock/500", 500, "api_error")],
)
def test_the_mocks_faults_are_anthropics(rig: Rig, model: str, status: int, kind: str) -> None:
    client = rig.client("faults", key="mock-key")

    with pytest.raises(rig.sdk.APIStatusError) as raised:
        ask_plain(client, model=model)

    assert (raised.value.status_code, raised.value.type) == (status, kind)


def test_a_cut_of_the_mock_is_an_error_of_the_stream(rig: Rig) -> None:
    client = rig.client("mock-cut", key="mock-key")

    with pytest.raises(rig.sdk.APIStatusError) as raised:
        ask_streamed(client, model="mock/cut")

    assert raised.value.error_code == "upstream_cut"
