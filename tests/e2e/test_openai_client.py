"""The real `openai` client through the proxy, for all that is not chat: as if it were not there.

Embeddings and completions are recorded and replayed; files and audio pass through.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.upstream import Reply, Upstream, json_reply, sse_reply

pytestmark = [pytest.mark.slow, pytest.mark.clients]

CONTENT = bytes(range(256)) * 8192  # 2 MiB


@dataclass(frozen=True, slots=True)
class Rig:
    """The client, the proxy it talks to, and the upstream behind that."""

    client: Any
    proxy: Proxy
    upstream: Upstream


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Rig]:
    """Start both; the client names a session."""
    openai = pytest.importorskip("openai")
    with (
        Upstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        client = openai.OpenAI(
            base_url=proxy.base_url,
            api_key="sk-test",
            max_retries=0,
            default_headers={"x-agent-session-id": "plain"},
        )
        yield Rig(client, proxy, upstream)
        client.close()


def check_paid_once(rig: Rig, path: str) -> None:
    """One request went upstream and one step is on record."""
    assert [each.target for each in rig.upstream.received] == [path]
    (step,) = rig.proxy.settled_steps("plain")
    assert step["state"] == "complete"


def test_embeddings_are_recorded_and_replayed(rig: Rig) -> None:
    vectors = {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": "AACAPwAAAAA="}],
        "model": "text-embedding-3-small",
        "usage": {"prompt_tokens": 2, "total_tokens": 2},
    }
    rig.upstream.load([json_reply(vectors)])

    answers = [
        rig.client.embeddings.create(model="text-embedding-3-small", input=["hello"])
        for _ in range(2)
    ]

    for answer in answers:  # the client asks for base64 and decodes it
        assert answer.data[0].embedding == [1.0, 0.0]
        assert answer.usage.total_tokens == 2
    check_paid_once(rig, "/v1/embeddings")


COMPLETION: dict[str, Any] = {
    "id": "cmpl-1",
    "object": "text_completion",
    "created": 1,
    "model": "gpt-3.5-turbo-instruct",
}
TEXTS = ("Once ", "upon", " a time")


def piece(text: str, reason: str | None) -> dict[str, Any]:
    """Return a body or chunk with one choice."""
    choice = {"index": 0, "text": text, "logprobs": None, "finish_reason": reason}
    return {**COMPLETION, "choices": [choice]}


def complete(rig: Rig, *, stream: bool) -> str:
    """Ask for a completion; return its text."""
    answer = rig.client.completions.create(
        model="gpt-3.5-turbo-instruct", prompt="Tell.", stream=stream
    )
    if not stream:
        return str(answer.choices[0].text)
    return "".join(chunk.choices[0].text for chunk in answer if chunk.choices)


@pytest.mark.parametrize("recorded_from", ["body", "stream"])
def test_completions_are_recorded_and_replayed_in_either_form(rig: Rig, recorded_from: str) -> None:
    if recorded_from == "body":
        rig.upstream.load([json_reply(piece("".join(TEXTS), "stop"))])
    else:
        chunks = [piece(text, None) for text in TEXTS] + [piece("", "stop")]
        frames = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
        rig.upstream.load([sse_reply([*frames, b"data: [DONE]\n\n"])])

    first = complete(rig, stream=recorded_from == "stream")
    rig.proxy.settled_steps("plain")
    again = [complete(rig, stream=stream) for stream in (False, True)]

    assert [first, *again] == ["".join(TEXTS)] * 3
    check_paid_once(rig, "/v1/completions")


def test_a_file_goes_up_and_comes_down(rig: Rig) -> None:
    file = {
        "id": "file-1", "object": "file", "bytes": len(CONTENT), "created_at": 1,
        "filename": "data.bin", "purpose": "assistants", "status": "processed",
    }  # fmt: skip
    kind = (b"content-type", b"application/octet-stream")
    rig.upstream.load([json_reply(file), Reply(headers=(kind,), chunks=(CONTENT,))])

    made = rig.client.files.create(file=("data.bin", CONTENT), purpose="assistants")
    content = rig.client.files.content("file-1").read()

    assert made.id == "file-1"
    assert content == CONTENT
    up, down = rig.upstream.received
    assert CONTENT in up.body
    assert str(up.header("content-type")).startswith("multipart/form-data; boundary=")
    assert (down.method, down.target) == ("GET", "/v1/files/file-1/content")
    assert rig.proxy.maybe_session("plain") is None


def test_speech_comes_as_it_is_made(rig: Rig) -> None:
    sound = Reply(
        headers=((b"content-type", b"audio/mpeg"),),
        chunks=tuple(CONTENT[at : at + 65536] for at in range(0, len(CONTENT), 65536)),
        framing="chunked",
    )
    rig.upstream.load([sound])

    with rig.client.audio.speech.with_streaming_response.create(
        model="gpt-4o-mini-tts", voice="alloy", input="Hello"
    ) as response:
        heard = b"".join(response.iter_bytes())

    assert heard == CONTENT
    assert response.headers["content-type"] == "audio/mpeg"


def test_a_transcription_is_uploaded(rig: Rig) -> None:
    rig.upstream.load([json_reply({"text": "hello"})])

    answer = rig.client.audio.transcriptions.create(
        model="whisper-1", file=("a.wav", io.BytesIO(CONTENT))
    )

    assert answer.text == "hello"
    assert CONTENT in rig.upstream.received[0].body


def test_the_models_are_listed(rig: Rig) -> None:
    theirs = {"id": "gpt-4o", "object": "model", "created": 1, "owned_by": "openai"}
    rig.upstream.load([json_reply({"object": "list", "data": [theirs]}), json_reply(theirs)])

    assert [model.id for model in rig.client.models.list()] == ["gpt-4o"]
    assert rig.client.models.retrieve("gpt-4o").owned_by == "openai"
