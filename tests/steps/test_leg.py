"""One target of one call: what it is sent. How what comes back is read: `test_leg_answers.py`."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from agentstate.dialects import dialect_for_path
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import BadRequest
from agentstate.steps.leg import Leg, Outgoing
from agentstate.steps.target import Target
from agentstate.wire.message import Headers, OutCall, Pair
from tests.dialects.samples import SAMPLES
from tests.steps.legs import MESSAGES, NATIVE, ORIGIN, PLAIN, RAW, UNSAYABLE, outgoing, sample


def sent_body(call: OutCall) -> Any:
    assert isinstance(call.body, bytes)
    return json.loads(call.body)


def names(pairs: tuple[Pair, ...]) -> list[bytes]:
    return [name.lower() for name, _ in pairs]


# -- asking in the caller's own form


def test_the_body_goes_as_it_came() -> None:
    call = Leg(PLAIN, outgoing(query="a=1")).call()

    assert (call.method, call.target) == ("POST", b"/v1/chat/completions?a=1")
    assert call.body is RAW


def test_a_models_prefix_is_all_that_is_taken_off() -> None:
    raw = RAW.replace(b"gpt-4o-mini", b"groq/gpt-4o-mini")
    gzip: list[Pair] = [(b"Content-Encoding", b"gzip"), (b"X-Kept", b"1")]

    call = Leg(PLAIN, outgoing(raw, headers=gzip)).call()

    assert sent_body(call) == {**json.loads(raw), "model": "gpt-4o-mini"}
    assert isinstance(call.body, bytes)
    assert b"1.50" in call.body
    assert b"content-encoding" not in names(call.headers)
    assert b"x-kept" in names(call.headers)


def test_another_body_may_be_asked_in_its_place() -> None:
    changed: dict[str, JSON] = {"model": "gpt-4o-mini", "messages": [{"role": "user"}]}

    call = Leg(PLAIN, outgoing(changed=changed)).call()

    assert sent_body(call) == changed


def test_a_stranger_gets_no_query() -> None:
    stranger = replace(PLAIN, is_stranger=True, takes_callers_key=False)

    assert Leg(stranger, outgoing(query="key=k")).call().target == b"/v1/chat/completions"


@pytest.mark.parametrize("model", ["gemini-2.5-flash", "gemini-2.0-flash"])
def test_of_a_query_a_stranger_gets_only_that_geminis_own_form_streams(model: str) -> None:
    path, query = "/v1beta/models/gemini-2.5-flash:streamGenerateContent", "quotaUser=me&alt=sse"
    dialect = dialect_for_path(path, query)
    assert dialect is not None
    raw = json.dumps(SAMPLES["gemini"].ask).encode()
    out = Outgoing(dialect, dialect.read_ask(json.loads(raw)), Headers(), path, query, raw)
    stranger = replace(NATIVE, model=model, is_stranger=True, takes_callers_key=False)

    expected = f"/v1beta/models/{model}:streamGenerateContent?alt=sse".encode()
    assert Leg(stranger, out).call().target == expected


def test_a_fallback_is_no_repetition_of_what_went_before() -> None:
    out = outgoing(headers=[(b"Idempotency-Key", b"i")])

    assert b"idempotency-key" in names(Leg(PLAIN, out).call().headers)
    assert b"idempotency-key" not in names(Leg(PLAIN, out).call(is_fallback=True).headers)


@pytest.mark.parametrize(
    ("path", "model", "expected"),
    [
        ("/v1beta/models/gemini-2.5-flash:generateContent", "gemini-2.5-flash",
         b"/v1beta/models/gemini-2.5-flash:generateContent?alt=sse"),
        ("/v1beta/models/gemini-2.5-flash:streamGenerateContent", "gemini-2.0-flash",
         b"/v1beta/models/gemini-2.0-flash:streamGenerateContent?alt=sse"),
        ("/v1/models/gemini-2.5-flash:generateContent", "models/gemini-2.0-flash",
         b"/v1/models/gemini-2.0-flash:generateContent?alt=sse"),
        ("/v1beta/models/gemini-2.5-flash:generateContent", "a/b:c",
         b"/v1beta/models/a%2Fb%3Ac:generateContent?alt=sse"),
    ],
)  # fmt: skip
def test_geminis_own_form_has_the_model_in_its_path_alone(
    path: str, model: str, expected: bytes
) -> None:
    below = path.removeprefix("/v1") if path.startswith("/v1/") else path
    dialect = dialect_for_path(below, "alt=sse")
    assert dialect is not None
    raw = json.dumps(SAMPLES["gemini"].ask).encode()
    out = Outgoing(dialect, dialect.read_ask(json.loads(raw)), Headers(), path, "alt=sse", raw)

    call = Leg(replace(NATIVE, model=model), out).call()

    assert call.target == expected
    assert call.body is raw


# -- asking in another form


def test_a_translated_request_is_one_of_its_own_form() -> None:
    out = outgoing(
        headers=[(b"Content-Type", b"application/x"), (b"Content-Encoding", b"gzip"),
                 (b"User-Agent", b"a"), (b"OpenAI-Organization", b"o")],
        query="a=1",
    )  # fmt: skip

    call = Leg(MESSAGES, out).call()

    assert (call.method, call.origin, call.target) == ("POST", ORIGIN, b"/v1/messages")
    assert dict(call.headers) == {
        b"User-Agent": b"a",
        b"accept-encoding": b"gzip, identity",
        b"x-agentstate-hop": b"1",
        b"x-api-key": b"k",
        b"anthropic-version": b"2023-06-01",
        b"content-type": b"application/json",
    }
    body = sent_body(call)
    assert (body["model"], body["messages"][0]["role"]) == ("theirs", "user")


def test_what_could_not_be_said_is_known_once_it_was_asked() -> None:
    leg = Leg(MESSAGES, outgoing(missed=("messages[0]",)))
    before = leg.dropped

    leg.call()

    assert (before, leg.dropped) == (("messages[0]",), ("messages[0]", "seed"))


@pytest.mark.parametrize(
    ("streams", "path"),
    [
        (False, b"/v1beta/models/theirs:generateContent"),
        (True, b"/v1beta/models/theirs:streamGenerateContent?alt=sse"),
    ],
)
def test_what_the_targets_form_says_in_the_path_is_said_there(streams: bool, path: bytes) -> None:
    gemini = replace(NATIVE, model="theirs", dialect="gemini")

    assert Leg(gemini, sample("openai_chat", streams=streams)).call().target == path


def test_a_changed_body_is_what_is_translated() -> None:
    changed: dict[str, JSON] = {
        "model": "m", "messages": [{"role": "user", "content": "another"}],
    }  # fmt: skip

    body = sent_body(Leg(MESSAGES, outgoing(changed=changed)).call())

    assert "another" in json.dumps(body)


def test_a_request_that_has_no_translation_is_refused() -> None:
    with pytest.raises(BadRequest):
        Leg(MESSAGES, outgoing(UNSAYABLE)).call()


# -- what an upstream keeps


def going_on(**fields: Any) -> Outgoing:
    """Make a call that goes on from an earlier response, which its upstream has."""
    out = sample("openai_responses")
    assert out.ask.has_hidden_part
    return replace(out, **fields)


def test_who_keeps_the_rest_is_asked_as_it_came() -> None:
    out = going_on()

    assert Leg(replace(PLAIN, model=out.ask.model), out).call().body is out.raw


@pytest.mark.parametrize(
    ("target", "kept_by"),
    [(MESSAGES, None), (replace(PLAIN, is_stranger=True), None), (PLAIN, "another")],
)
def test_who_does_not_keep_it_cannot_be_asked(target: Target, kept_by: str | None) -> None:
    with pytest.raises(BadRequest, match="whole conversation"):
        Leg(target, going_on(kept_by=kept_by)).call()


@pytest.mark.parametrize("target", [MESSAGES, replace(PLAIN, is_stranger=True)])
def test_where_it_is_all_known_it_is_sent_along(target: Target) -> None:
    whole: dict[str, JSON] = {"model": "m", "input": [{"role": "user", "content": "all of it"}]}

    body = sent_body(Leg(target, going_on(written_out=whole)).call())

    assert "all of it" in json.dumps(body)
    assert body["model"] == target.model
