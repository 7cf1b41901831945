"""Gemini's own form through the proxy: the real `google-genai` client, its base URL swapped.

What no client does (a key in the query, a cut stream) is asked for with a plain socket.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import ONCE, Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.upstream import Reply, Upstream, json_reply, sse_reply

pytestmark = pytest.mark.slow

MODEL = "gemini-2.5-flash"
PLAIN = f"/v1beta/models/{MODEL}:generateContent"
STREAM = f"/v1beta/models/{MODEL}:streamGenerateContent?alt=sse"
USAGE = {"promptTokenCount": 7, "candidatesTokenCount": 3, "totalTokenCount": 10}
CALL = {"functionCall": {"name": "get_weather", "args": {"city": "Oslo"}}}
TEXTS = ("It is ", "5 degrees ", "in Oslo.")
KEY = "AIzaSyCanary0123456789"


def answer(*parts: dict[str, Any], reason: str | None = "STOP") -> dict[str, Any]:
    """Return a GenerateContentResponse."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    if reason is not None:
        candidate["finishReason"] = reason
    return {"candidates": [candidate], "modelVersion": MODEL, "usageMetadata": USAGE}


def streamed(*answers: dict[str, Any], end: Any = "ok") -> Reply:
    """Return a stream as Google sends it."""
    return sse_reply([f"data: {json.dumps(each)}\r\n\r\n".encode() for each in answers], end=end)


TEXT_STREAM = streamed(
    *(answer({"text": text}, reason=None) for text in TEXTS[:-1]), answer({"text": TEXTS[-1]})
)


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy whose Gemini is a scripted upstream."""

    proxy: Proxy
    upstream: Upstream


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Start both."""
    with Upstream() as upstream:
        (tmp_path / "agentstate.toml").write_text(
            f'[[provider]]\nname = "gemini"\nbase_url = "{upstream.url}/v1beta/openai"\n',
            encoding="utf-8",
        )
        with Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", env=ONCE) as proxy:
            yield Rig(proxy, upstream)


def post(rig: Rig, target: str, body: Any, *headers: Pair, session: bytes = b"raw") -> Reception:
    """Ask with a plain socket."""
    named = ((b"content-type", b"application/json"), (b"x-agent-session-id", session))
    return ask(rig.proxy.address, "POST", target, (*named, *headers), json.dumps(body).encode())


BODY = {"contents": [{"role": "user", "parts": [{"text": "Weather?"}]}]}


# --- the real client ------------------------------------------------------------------------------


@pytest.fixture
def client(rig: Rig) -> Iterator[Any]:
    """The client; it names a session."""
    genai = pytest.importorskip("google.genai", reason="needs the google-genai package")
    options = genai.types.HttpOptions(
        base_url=rig.proxy.url, headers={"x-agent-session-id": "genai"}
    )
    client = genai.Client(api_key=KEY, http_options=options)
    yield client
    client.close()


def get_weather(city: str) -> str:
    """Tell the weather in a city."""
    return f"5 degrees in {city}"


def run_agent(client: Any) -> str:
    """Ask with a tool, which the client calls by itself, and stream a second answer."""
    asked = client.models.generate_content(
        model=MODEL, contents="Weather in Oslo?", config={"tools": [get_weather]}
    )
    chunks = client.models.generate_content_stream(model=MODEL, contents="Say it again.")
    return str(asked.text) + "|" + "".join(chunk.text or "" for chunk in chunks)


@pytest.mark.clients
def test_an_agent_is_recorded_and_replayed(rig: Rig, client: Any) -> None:
    rig.upstream.load(
        [json_reply(answer(CALL)), json_reply(answer({"text": "".join(TEXTS)})), TEXT_STREAM]
    )

    first = run_agent(client)
    steps = rig.proxy.settled_steps("genai")
    again = run_agent(client)

    assert first == again == "It is 5 degrees in Oslo.|It is 5 degrees in Oslo."
    # The version is the client's affair: /v1 of late, /v1beta before.
    asked = [each.target.partition("/models/")[2] for each in rig.upstream.received]
    assert asked == [target.partition("/models/")[2] for target in (PLAIN, PLAIN, STREAM)]
    assert all(each.header("x-goog-api-key") == KEY for each in rig.upstream.received)
    assert [step["state"] for step in steps] == ["complete"] * 3
    assert [step["model"] for step in steps] == [MODEL] * 3


@pytest.mark.clients
def test_errors_can_be_read_by_the_client(rig: Rig, client: Any) -> None:
    errors = pytest.importorskip("google.genai.errors")
    refusal = {"error": {"code": 400, "message": "No such field", "status": "INVALID_ARGUMENT"}}
    rig.upstream.load([json_reply(refusal, status=400), Reply(chunks=(b"<html>",))])

    with pytest.raises(errors.ClientError) as theirs:
        client.models.generate_content(model=MODEL, contents="a")
    with pytest.raises(errors.ServerError) as ours:
        client.models.generate_content(model=MODEL, contents="b")

    assert (theirs.value.code, theirs.value.message) == (400, "No such field")
    assert (ours.value.code, ours.value.status) == (502, "UNAVAILABLE")
    assert "no complete answer" in ours.value.message


@pytest.mark.clients
def test_other_calls_pass_through(rig: Rig, client: Any) -> None:
    listed = {"models": [{"name": "models/gemini-2.5-flash", "displayName": "Flash"}]}
    rig.upstream.load([json_reply(listed), json_reply({"totalTokens": 31})])

    assert [model.name for model in client.models.list()] == ["models/gemini-2.5-flash"]
    assert client.models.count_tokens(model=MODEL, contents="Hi").total_tokens == 31
    assert rig.proxy.maybe_session("genai") is None


# --- any client -----------------------------------------------------------------------------------


def test_either_form_answers_the_other(rig: Rig) -> None:
    rig.upstream.load([TEXT_STREAM])

    first = post(rig, STREAM, BODY)
    rig.proxy.settled_steps("raw")
    same, plain = post(rig, STREAM, BODY), post(rig, PLAIN, BODY)

    assert first.body == same.body == b"".join(TEXT_STREAM.chunks)
    assert plain.header("content-type") == "application/json"
    assert plain.header("x-agentstate-replay") == "exact"
    (candidate,) = plain.json()["candidates"]
    assert candidate["content"] == {"role": "model", "parts": [{"text": "".join(TEXTS)}]}
    assert len(rig.upstream.received) == 1


def test_two_models_are_two_calls(rig: Rig) -> None:
    rig.upstream.load([json_reply(answer({"text": name})) for name in ("a", "b")])

    got = [post(rig, f"/v1beta/models/{name}:generateContent", BODY) for name in ("a", "b")]

    texts = [each.json()["candidates"][0]["content"]["parts"][0]["text"] for each in got]
    assert texts == ["a", "b"]


def test_a_key_in_the_query_is_nowhere_kept(rig: Rig) -> None:
    echo = {"error": {"code": 400, "message": f"API key {KEY} not valid", "status": "X"}}
    rig.upstream.load([json_reply(answer({"text": "Hi"})), json_reply(echo, status=400)])

    first = post(rig, f"{PLAIN}?key={KEY}", BODY)
    replay = post(rig, f"{PLAIN}?key={KEY}", BODY, (b"x-agent-replay", b"exact"))
    failed = post(rig, f"{PLAIN}?key={KEY}", {**BODY, "tools": []})
    rig.proxy.settled_steps("raw")

    assert (first.status, failed.status) == (200, 400)
    assert replay.header("x-agentstate-cache-hit") == "true"
    sent = rig.upstream.received[0]
    assert (sent.target, sent.header("x-goog-api-key")) == (PLAIN, KEY)
    assert KEY.encode() not in rig.proxy.stored_bytes()


def test_a_cut_stream_is_no_answer(rig: Rig) -> None:
    rig.upstream.load(
        [
            streamed(answer({"text": "It is"}, reason=None), end="eof_no_terminator"),
            streamed(answer({"text": "It is"}, reason=None)),
            TEXT_STREAM,
        ]
    )

    cut, ended_early, whole = (post(rig, STREAM, BODY) for _ in range(3))

    for failed in (cut, ended_early):
        assert b'"error"' in failed.body
        assert failed.ending == "cut" or failed.status == 502
    assert whole.body == b"".join(TEXT_STREAM.chunks)
    (step,) = rig.proxy.settled_steps("raw")
    assert step["state"] == "complete"


def test_a_list_that_is_streamed_passes_through_unrecorded(rig: Rig) -> None:
    rig.upstream.load([json_reply([answer({"text": "Hi"})])])

    got = post(rig, STREAM.removesuffix("?alt=sse"), BODY)

    assert got.json() == [answer({"text": "Hi"})]
    assert rig.proxy.maybe_session("raw") is None


def test_what_is_asked_wrongly_is_told_in_googles_form(rig: Rig) -> None:
    got = post(rig, PLAIN, {"contents": "hi"})

    error = got.json()["error"]
    assert (got.status, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert rig.upstream.received == []
