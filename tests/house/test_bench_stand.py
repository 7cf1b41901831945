"""The benchmark's requests."""

from __future__ import annotations

import json
import zlib

import pytest

from agentstate.house.bench_load import NONCE
from agentstate.house.bench_stand import ANSWER, Load, environment, make_request, words


@pytest.mark.parametrize("kind", ["new", "replay"])
@pytest.mark.parametrize("size", [1024, 400 * 1024])
def test_a_request_is_whole_and_as_long_as_its_load_says(kind: str, size: int) -> None:
    head, _, body = make_request(Load("some", kind, 4, size), 3).partition(b"\r\n\r\n")
    assert f"content-length: {len(body)}".encode() in head
    assert abs(len(body) - size) < 16
    assert json.loads(body)["messages"][0]["role"] == "user"
    assert (NONCE in body) == (kind == "new")


def test_clients_of_new_calls_have_sessions_of_their_own() -> None:
    new, replay = Load("n", "new", 2), Load("r", "replay", 2)
    assert make_request(new, 0) != make_request(new, 1)
    assert make_request(replay, 0) == make_request(replay, 1)


def test_a_stream_is_asked_for_by_its_models_name() -> None:
    raw = make_request(Load("s", "new", 1, stream="stream-5-20-0"), 0)
    body = json.loads(raw.partition(b"\r\n\r\n")[2])
    assert (body["model"], body["stream"]) == ("stream-5-20-0", True)


def test_text_is_the_same_for_a_seed_and_as_hard_to_compress_as_prose() -> None:
    text = words(6000, seed=7)
    assert text == words(6000, seed=7) != words(6000, seed=8)
    assert len(text) == 6000
    assert 0.3 < len(zlib.compress(text.encode())) / 6000 < 0.6


def test_no_process_of_the_bench_sees_a_key_that_is_exported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-theirs")
    monkeypatch.setenv("AGENTSTATE_LOG_LEVEL", "debug")
    found = environment(OPENAI_BASE_URL="http://127.0.0.1:1/v1")
    assert "OPENAI_API_KEY" not in found
    assert "AGENTSTATE_LOG_LEVEL" not in found
    assert found["OPENAI_BASE_URL"] == "http://127.0.0.1:1/v1"


def test_the_upstreams_answer_is_complete() -> None:
    assert json.loads(ANSWER)["choices"][0]["finish_reason"] == "stop"
