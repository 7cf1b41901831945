from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given

from agentstate.ground.events import Event
from agentstate.webhooks.base import Format, Links
from agentstate.webhooks.signed_json import SignedJSON, sign
from agentstate.webhooks.text import TEXT_CHARS_MAX
from agentstate.wire.message import Headers
from tests.webhooks import hostile
from tests.webhooks.hostile import LINKS, event

JSON_FORMAT: Format = SignedJSON()
SECRET = "whsec_" + base64.b64encode(b"0123456789abcdefghijklmn").decode()
NOW_S = 1_780_000_005


def verify(headers: Mapping[str, str], body: bytes, key: bytes) -> Any:
    """Verify as the specification tells a receiver to, and return the payload.

    Source: github.com/standard-webhooks/standard-webhooks, spec/standard-webhooks.md.
    """
    signed = ".".join((headers["webhook-id"], headers["webhook-timestamp"], body.decode()))
    wanted = hmac.new(key, signed.encode(), hashlib.sha256).digest()
    signatures = [entry.split(",", 1) for entry in headers["webhook-signature"].split(" ")]
    assert any(
        version == "v1" and hmac.compare_digest(base64.b64decode(value), wanted)
        for version, value in signatures
    )
    return json.loads(body)


def render(of: Event, links: Links = LINKS) -> Any:
    return json.loads(JSON_FORMAT.render(of, links, secret=None, sent_s=NOW_S).body)


def test_a_receiver_that_follows_the_specification_accepts_it() -> None:
    post = JSON_FORMAT.render(event(tool="é"), LINKS, secret=SECRET, sent_s=NOW_S)

    payload = verify(post.headers, post.body, b"0123456789abcdefghijklmn")
    assert post.headers["webhook-id"] == "evt_1"
    assert post.headers["webhook-timestamp"] == str(NOW_S)
    assert payload["type"] == "approval.required"


def test_the_signature_of_the_specification_s_example_comes_out() -> None:
    """The vector of the reference libraries' own tests."""
    signature = sign(
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "msg_p5jXN8AQM9LWM0D4loKWxJek",
        1614265330,
        b'{"test": 2432232314}',
    )

    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    ("secret", "key"),
    [
        ("plain words é", "plain words é".encode()),
        ("whsec_MDEyMzQ1", b"012345"),
        ("whsec_MDEyMzQ", b"01234"),
        ("whsec_not base64!", b"whsec_not base64!"),
        ("whsec_", b"whsec_"),
    ],
)
def test_a_secret_is_base64_with_its_prefix_or_any_text(secret: str, key: bytes) -> None:
    post = JSON_FORMAT.render(event(), LINKS, secret=secret, sent_s=NOW_S)

    verify(post.headers, post.body, key)


def test_without_a_secret_there_is_no_signature() -> None:
    for none in (None, ""):
        post = JSON_FORMAT.render(event(), LINKS, secret=none, sent_s=NOW_S)
        assert set(post.headers) == {"content-type", "webhook-id", "webhook-timestamp"}


def test_the_payload_says_all_there_is() -> None:
    assert render(event(tool="pay", arguments="{}", cap=0.5, spent=None), Links("http://p/")) == {
        "type": "approval.required",
        "timestamp": "2026-05-28T20:26:40.000Z",
        "data": {
            "event_id": "evt_1",
            "session": "nightly",
            "step": 4,
            "step_index": 3,
            "approval_id": "apr_1",
            "facts": {"tool": "pay", "arguments": "{}", "cap": 0.5, "spent": None},
            "links": {"dashboard": "http://p/", "session": None, "approval": None},
            "cut": [],
            "is_sample": False,
        },
    }


@given(hostile.events, hostile.links)
def test_the_payload_is_json_that_every_reader_reads(of: Event, links: Links) -> None:
    post = JSON_FORMAT.render(of, links, secret=SECRET, sent_s=NOW_S)

    payload = verify(post.headers, post.body, b"0123456789abcdefghijklmn")
    json.loads(post.body, parse_constant=pytest.fail)
    json.dumps(payload, ensure_ascii=False).encode("utf-8")  # has no half surrogates


def test_texts_are_exact_but_for_keys() -> None:
    facts = render(event(arguments="<!channel>\u202e```\x00", why="sk-abcdefghijklm"))["data"][
        "facts"
    ]

    assert facts == {"arguments": "<!channel>\u202e```\x00", "why": "sk-…"}


def test_a_long_text_is_cut_and_named() -> None:
    data = render(event(arguments="x" * (TEXT_CHARS_MAX + 1), tool="x" * TEXT_CHARS_MAX))["data"]

    assert data["cut"] == ["arguments"]
    assert data["facts"]["arguments"].endswith("… (cut: there is more)")
    assert data["facts"]["tool"] == "x" * TEXT_CHARS_MAX


def test_a_fact_beyond_what_json_readers_keep_is_text_or_nothing() -> None:
    deep: Any = "end"
    for _ in range(100_000):
        deep = [deep]

    facts = render(event(spent=2**80, cap=float("inf"), why=deep))["data"]["facts"]

    assert facts["spent"] == str(2**80)
    assert facts["cap"] is None
    assert json.dumps(facts["why"]) == "[[[[[[[[null]]]]]]]]"


@pytest.mark.parametrize("status", [200, 202, 204])
def test_every_2xx_is_taken(status: int) -> None:
    assert JSON_FORMAT.read(status, Headers(), b"anything").outcome == "taken"


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 405, 410, 413, 414, 415, 422])
def test_what_will_never_be_taken_is_given_up(status: int) -> None:
    verdict = JSON_FORMAT.read(status, Headers(), b"Cannot POST /hooks/s3cret")

    assert verdict.outcome == "never"
    assert str(status) in verdict.why
    assert "s3cret" not in verdict.why


@pytest.mark.parametrize("status", [408, 409, 423, 425, 429, 500, 502, 503, 521, 599])
def test_what_may_pass_comes_again_when_it_is_asked_to(status: int) -> None:
    verdict = JSON_FORMAT.read(status, Headers([(b"Retry-After", b"7")]), b"Cannot POST /s3cret")

    assert (verdict.outcome, verdict.after_s) == ("again", 7.0)
    assert verdict.why == f"The receiver answered {status}"


def test_there_is_no_plainer_form() -> None:
    assert JSON_FORMAT.render_plain(event(), LINKS, secret=None, sent_s=0) is None
