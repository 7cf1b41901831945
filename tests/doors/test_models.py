"""The list of models: nothing of the upstream's is lost, and there is always a list."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator

import pytest

from agentstate.doors.models import configured_list, merged_list
from agentstate.wire.message import Headers, Pair, Response
from tests.helpers.openai_schema import check


class Listed:
    """An exchange whose body was read already."""

    def __init__(self, *headers: Pair) -> None:
        self.status = 200
        self.headers = Headers(((b"content-type", b"application/json"), *headers))

    def chunks(self) -> AsyncIterator[bytes]:
        raise AssertionError("the body was read")

    async def read(self, bytes_max: int) -> bytes:
        raise AssertionError("the body was read")

    async def close(self) -> None:
        """Nothing is open."""


def merged(raw: bytes, *names: str, headers: tuple[Pair, ...] = ()) -> Response:
    """Merge and return the response; its body is bytes."""
    response = merged_list(Listed(*headers), raw, names)
    assert response is not None
    return response


def body_of(response: Response) -> bytes:
    """Return the whole body."""
    assert isinstance(response.body, bytes)
    return response.body


THEIRS = (
    b'{"object":"list","data":[{"id":"gpt-4o","object":"model","created":1.50e9,"owned_by":"x",'
    b'"pricing":{"prompt":0.00000015,"id":2512292042121000001}}],"x_unknown":true}'
)


def test_configured_names_follow_and_theirs_keep_every_field() -> None:
    made = body_of(merged(THEIRS, "ollama/llama3"))

    begin, _, end = made.partition(b',{"id":"ollama/llama3"')
    assert begin == THEIRS[: THEIRS.index(b'],"x_unknown')]
    assert end.endswith(b'],"x_unknown":true}')
    check("ListModelsResponse", json.loads(made.replace(b"1.50e9", b"1500000000")))


def test_with_nothing_to_add_the_bytes_pass() -> None:
    raw = THEIRS.replace(b",", b" , ")
    assert body_of(merged(raw)) == raw
    assert body_of(merged(raw, "gpt-4o")) == raw  # theirs already


def test_a_changed_list_has_not_the_old_tag() -> None:
    tag = (b"ETag", b'"1"')
    assert tag in merged(THEIRS, headers=(tag,)).headers
    assert tag not in merged(THEIRS, "new", headers=(tag,)).headers


def test_a_server_without_models_may_send_null() -> None:
    made = json.loads(body_of(merged(b'{"object":"list","data":null}', "a")))
    assert [each["id"] for each in made["data"]] == ["a"]


@pytest.mark.parametrize("raw", [b"[]", b'{"models":[]}', b'{"data":{}}', b'[{"id":"a"}]'])
def test_a_list_in_another_form_passes_as_it_is(raw: bytes) -> None:
    assert body_of(merged(raw, "a")) == raw


@pytest.mark.parametrize("raw", [b"", b"<html>", b"\xff", b"["])
def test_what_is_no_json_is_no_list(raw: bytes) -> None:
    assert merged_list(Listed(), raw, ("a",)) is None


def test_without_an_upstream_the_configured_names_are_listed_and_the_reason_told() -> None:
    response = configured_list(("a", "ollama/b"), "openai answered 401")

    assert response.status == 200
    assert (b"x-agentstate-models-missing", b"openai answered 401") in response.headers
    found = json.loads(body_of(response))
    check("ListModelsResponse", found)
    assert [each["id"] for each in found["data"]] == ["a", "ollama/b"]


def test_an_empty_list_is_a_list() -> None:
    check("ListModelsResponse", json.loads(body_of(configured_list((), "openai answered 401"))))
