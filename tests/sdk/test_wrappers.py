"""What frameworks are given. That they take it is for tests/e2e/test_sdk_frameworks.py."""

from __future__ import annotations

import pytest

from agentstate import (
    session,
    wrap_crewai,
    wrap_langchain,
    wrap_langchain_anthropic,
    wrap_langchain_embeddings,
)


def test_constant_headers_name_session_and_run_and_no_call() -> None:
    for wrapped in (
        wrap_crewai("s", tags={"a": "b"}),
        wrap_langchain_anthropic("s", tags={"a": "b"}),
    ):
        assert set(wrapped["default_headers"]) == {
            "x-agent-session-id", "x-agent-run-id", "x-agent-tags"
        }  # fmt: skip


def test_each_is_given_the_base_url_of_its_client() -> None:
    assert wrap_crewai("s", base_url="http://h:1")["base_url"] == "http://h:1/v1"
    assert wrap_langchain_anthropic("s", base_url="http://h:1/v1")["base_url"] == "http://h:1"


def test_a_key_is_passed_on_only_if_there_is_one() -> None:
    assert "api_key" not in wrap_crewai("s")
    assert wrap_crewai("s", api_key="k")["api_key"] == "k"


def test_a_session_that_is_given_keeps_its_run() -> None:
    run = session("s")

    assert wrap_crewai(run)["default_headers"]["x-agent-run-id"] == run.run_id
    with pytest.raises(ValueError, match="replay, run_id: say this where the session is made"):
        wrap_crewai(run, run_id="r", replay="off")


@pytest.mark.clients
def test_langchain_is_given_http_clients_that_name_each_call() -> None:
    pytest.importorskip("openai")
    wrapped = wrap_langchain("s", base_url="http://h:1", api_key="k")

    assert wrapped["base_url"] == "http://h:1/v1"
    assert len(wrapped["http_client"].event_hooks["request"]) == 1
    assert len(wrapped["http_async_client"].event_hooks["request"]) == 1


@pytest.mark.clients
def test_langchain_is_to_ask_for_the_usage_of_its_streams_and_embeddings_have_none() -> None:
    pytest.importorskip("openai")

    model, embeddings = wrap_langchain("s"), wrap_langchain_embeddings("s")

    assert model.keys() - embeddings.keys() == {"stream_usage"}
    assert model["stream_usage"] is True
