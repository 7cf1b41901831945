"""`GET /v1/models` through the proxy: always a list, whatever the upstream does."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.upstream import Reply, Upstream, json_reply

pytestmark = pytest.mark.slow

CONFIG = """
[[provider]]
name = "openai"
models = ["gpt-own", "gpt-*"]

[[provider]]
name = "near"
base_url = "http://127.0.0.1:9/v1"
models = ["llama3", "qwen-[0-9]"]

[[provider]]
name = "far"
base_url = "http://far.test/v1"
models = ["unreachable-without-a-key"]

[[provider]]
name = "keyed"
base_url = "http://keyed.test/v1"
api_key = "sk-keyed"
models = ["big"]
"""
THEIRS: dict[str, Any] = {"id": "gpt-4o", "object": "model", "created": 1, "owned_by": "openai"}
OURS = ["gpt-own", "near/llama3", "keyed/big"]


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Upstream]]:
    """A proxy with three more providers before a scripted upstream."""
    folder: Path = tmp_path_factory.mktemp("models")
    (folder / "agentstate.toml").write_text(CONFIG, encoding="utf-8")
    with (
        Upstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db") as proxy,
    ):
        yield proxy, upstream


def list_models(
    started: tuple[Proxy, Upstream], reply: Reply, *headers: Pair, path: str = "/v1/models"
) -> Reception:
    """Ask once, the upstream answering so."""
    proxy, upstream = started
    upstream.load([reply])
    return ask(proxy.address, "GET", path, headers)


def names_of(got: Reception) -> list[str]:
    """Return the ids that are listed."""
    assert got.status == 200
    return [each["id"] for each in got.json()["data"]]


def test_the_upstreams_list_comes_first(started: tuple[Proxy, Upstream]) -> None:
    _, upstream = started
    key = (b"authorization", b"Bearer sk-caller")

    got = list_models(
        started, json_reply({"object": "list", "data": [THEIRS]}), key, (b"if-none-match", b'"1"')
    )

    assert names_of(got) == ["gpt-4o", *OURS]
    assert got.json()["data"][0] == THEIRS
    (sent,) = upstream.received
    assert sent.header("authorization") == "Bearer sk-caller"
    assert sent.header("if-none-match") is None


@pytest.mark.parametrize(
    ("reply", "why"),
    [
        (json_reply({"error": {"message": "no key"}}, status=401), "openai answered 401"),
        (json_reply({}, status=503), "openai answered 503"),
        (Reply(chunks=(b"<html>",)), "openai answered 200 with no list"),
        (Reply(chunks=(b"{",), content_length=9, end="eof_no_terminator"), "openai: upstream_cut"),
    ],
)
def test_where_the_upstream_has_no_list_the_configured_names_are_told(
    started: tuple[Proxy, Upstream], reply: Reply, why: str
) -> None:
    got = list_models(started, reply)

    assert names_of(got) == OURS
    assert got.header("x-agentstate-models-missing") == why


def test_a_provider_in_the_url_has_its_own_list(started: tuple[Proxy, Upstream]) -> None:
    theirs = json_reply({"object": "list", "data": []})
    assert names_of(list_models(started, theirs, path="/p/openai/v1/models")) == ["gpt-own"]
    assert names_of(list_models(started, theirs, path="/p/near/v1/models")) == ["llama3"]


def test_one_model_passes_through(started: tuple[Proxy, Upstream]) -> None:
    got = list_models(started, json_reply(THEIRS), path="/v1/models/vendor/gpt-4o%3Afree")

    assert got.json() == THEIRS
    assert started[1].received[0].target == "/v1/models/vendor/gpt-4o%3Afree"


def test_the_mock_lists_what_it_plays(tmp_path: Path) -> None:
    with Proxy(
        upstream_url="http://127.0.0.1:9", db=tmp_path / "record.db", flags=("--mock",)
    ) as proxy:
        status, body = proxy.get("/v1/models")
    assert status == 200
    assert "mock/429" in [each["id"] for each in json.loads(body)["data"]]
