"""Which paths the gate stands on, and which go by."""

from __future__ import annotations

import pytest

from agentstate.doors.gated import check_strict, is_gated, maybe_way_round, plain_path
from agentstate.ground.errors import UngatedPath

MODEL = "/v1beta/models/gemini-2.5-pro"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("/v1/responses/r", "/v1/responses/r"),
        ("/v1//responses/r/", "/v1/responses/r"),
        ("/v1/%72esponses%2Fr", "/v1/responses/r"),
        ("/v1/x/../responses/./r", "/v1/responses/r"),
        ("/v1/x/%2e%2E/responses/r", "/v1/responses/r"),
        ("/v1/responses;a=b/r", "/v1/responses/r"),
        ("/v1\\responses\\r", "/v1/responses/r"),
        ("/../../v1/responses/r", "/v1/responses/r"),
        ("/", "/"),
    ],
)
def test_a_path_is_read_as_an_upstream_may(path: str, plain: str) -> None:
    assert plain_path(path) == plain


GATED = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/responses"),
    ("POST", "/v1/messages"),
    ("POST", "/v1/completions"),
    ("POST", "/v1/embeddings"),
    ("POST", f"{MODEL}:generateContent"),
    ("GET", "/v1/responses/r"),
    ("GET", "/v1/responses/r/"),
    ("POST", "/v1/responses/r/cancel"),
]
HARMLESS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/moonshotai/kimi-k2:free"),
    ("GET", "/v1beta/models"),
    ("POST", "/v1/messages/count_tokens"),
    ("POST", f"{MODEL}:countTokens"),
    ("POST", "/v1/files"),
    ("GET", "/v1/files"),
    ("DELETE", "/v1/files/f"),
    ("POST", "/upload/v1beta/files"),
    ("POST", "/v1/audio/speech"),
    ("POST", "/v1/images/edits"),
    ("POST", "/v1/moderations"),
]
REFUSED = [
    ("GET", "/v1/chat/completions/c"),
    ("GET", "/v1/chat/completions"),
    ("GET", "/v1/conversations/c/items"),
    ("GET", "/v1/responses/r/input_items"),
    ("POST", "/v1/responses/compact"),
    ("POST", "/v1/responses/r"),
    ("GET", "/v1/files/f/content"),
    ("GET", "/v1beta/files/f:download"),
    ("POST", "/v1/batches"),
    ("POST", "/v1/messages/batches"),
    ("GET", "/v1/messages/batches/b/results"),
    ("POST", "/v1/threads/t/runs"),
    ("POST", "/v1//threads/t/runs"),
    ("POST", "/v1/Threads/t/runs"),
    ("POST", "/v1/realtime/client_secrets"),
    ("POST", f"{MODEL}:batchGenerateContent"),
    ("POST", f"{MODEL}:streamGenerateContent"),  # one JSON list; events are asked for by ?alt=sse
    ("POST", "/v1beta/interactions"),
    ("GET", "/v1beta/batches/b"),
    ("POST", "/v1/models"),
    ("POST", "/v1/chat/completions/"),
    ("GET", "/v1/models/../responses/r"),
    ("GET", "/v1/models/%2e%2e/conversations/c/items"),
    ("POST", "/v1/threads/../files"),
    ("GET", "/v1/files/f%2Fcontent"),
    ("GET", "/v1/what/comes/next"),
]


@pytest.mark.parametrize(("method", "path"), [*GATED, *HARMLESS])
def test_strict_lets_by_what_is_held_and_what_calls_nothing(method: str, path: str) -> None:
    check_strict(method, path, "")

    assert is_gated(method, path, "") is ((method, path) in GATED)


@pytest.mark.parametrize(("method", "path"), REFUSED)
def test_strict_refuses_all_else(method: str, path: str) -> None:
    with pytest.raises(UngatedPath, match=r"gate\.strict is on"):
        check_strict(method, path, "")


@pytest.mark.parametrize(("method", "path"), [*GATED, *HARMLESS, ("GET", "/v1/files/a%2Fb")])
def test_a_plain_path_leads_round_nothing(method: str, path: str) -> None:
    assert maybe_way_round(method, path, "") is None


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/v1//chat/completions", "/v1/chat/completions"),
        ("POST", "/v1/chat/completions/", "/v1/chat/completions"),
        ("POST", "/v1/CHAT/completions", "/v1/chat/completions"),
        ("POST", "/v1beta//models/m:streamGenerateContent", "models/m:streamGenerateContent"),
        ("POST", "/v1beta/models/m%3AgenerateContent", "models/m:generateContent"),
        ("GET", "/v1//responses/r", "/v1/responses/r"),
        ("POST", "/v1/responses//r/cancel", "/v1/responses/r/cancel"),
        ("GET", "/v1/files/../responses/r", "/v1/responses/r"),
        ("GET", "/v1/files/../threads", "/v1/threads"),
    ],
)
def test_a_path_that_may_be_read_as_another_is_told_the_right_one(
    method: str, path: str, right: str
) -> None:
    fault = maybe_way_round(method, path, "")

    assert fault is not None
    assert fault.status == 404
    assert right in fault.message
