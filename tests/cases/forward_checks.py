"""The checks of where calls went: by a route, to a stand-in, and what targets are thought of then.

`check_stand_in` and `check_route` hold for every case that has a fallback or a route.
"""

from __future__ import annotations

import json

from tests.cases.playing import Play, sending_of
from tests.cases.replay_checks import check_replayed
from tests.cases.staging import FALLBACK, FORMS, OWN_KEYS, ROUTED, STAND_IN, reply_of
from tests.helpers.reading import is_stream
from tests.helpers.upstream import Received

_KEY_HEADERS = ("authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie")
_PATHS = {
    "openai-chat": "/v1/chat/completions",
    "anthropic": "/v1/messages",
    "gemini": "/v1beta/models/{model}:generateContent",
    "ollama": "/api/chat",
}


def check_stand_in(playing: Play) -> None:
    """Each call of a stand-in is for its own model, with its own key."""
    if playing.fallback is None:
        return
    for call in playing.fallback.received:
        api = playing.case.entries_to(FALLBACK)[0]["api"]
        _check_own_key(call, FALLBACK, api)
        assert call.target == _PATHS[api]
        assert {**call.json(), "model": ""} == {**json.loads(playing.sending.body), "model": ""}
        assert call.json()["model"] == STAND_IN


def check_route(playing: Play) -> None:
    """The call went where its route says, the client cannot tell, and it is on record."""
    call, model = playing.upstream.received[0], playing.case.client["body"]["model"]
    api = playing.case.upstream[0]["api"]
    _check_own_key(call, ROUTED, api)
    assert call.target == _PATHS[api].format(model=model)
    assert api == "gemini" or call.json()["model"] == model
    first = playing.first
    assert first.header("x-agentstate-provider") == ROUTED
    assert first.header("x-agentstate-model") == model
    if is_stream(first.header("content-type")):
        assert {chunk["model"] for chunk in playing.first_read.chunks} == {model}
    else:
        assert first.json()["model"] == model
    calls = playing.call_count
    check_replayed(playing.ask(playing.sending), first)
    assert playing.call_count == calls, "it is on record, and was asked again"


def _check_own_key(call: Received, provider: str, api: str) -> None:
    """It has the provider's key where its form wants it, and nobody else's anywhere."""
    header = FORMS[api].key_header
    own = OWN_KEYS[provider] if header != "authorization" else f"Bearer {OWN_KEYS[provider]}"
    keys = {name: value for name in _KEY_HEADERS if (value := call.header(name)) is not None}
    assert keys == {header: own}


def check_health(playing: Play) -> None:
    """A target of which one failure would be enough to let it rest is asked first all the same."""
    assert playing.fallback is not None
    before, stood_in = len(playing.upstream.received), len(playing.fallback.received)
    (primary,), (fallback,) = (playing.case.entries_to(name) for name in ("primary", FALLBACK))
    playing.upstream.extend([reply_of(primary, 1.0)])
    playing.fallback.extend([reply_of(fallback, 1.0)] * 2)
    body = {**json.loads(playing.sending.body), "user": "another"}
    # A stand-in that rests would be passed over for the one after it.
    models = f"{FALLBACK}/{STAND_IN}, {FALLBACK}/another"
    other = {"body": body, "headers": {"x-agent-fallback-model": models}}
    got = playing.ask(sending_of(other, playing.session, playing.sending))
    assert got.status == playing.first.status, got.body
    (again,) = playing.upstream.received[before:]
    calls = playing.fallback.received[stood_in:]
    assert [call.json()["model"] for call in calls] == [STAND_IN, "another"]
    assert again.at_s < calls[0].at_s
