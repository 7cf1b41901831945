"""What is asked wrongly is refused plainly: 4xx, the dialect's error, nothing paid or kept."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Connection, Pair, Reception, ask, render_request
from tests.helpers.upstream import CountingUpstream

pytestmark = pytest.mark.slow

PATH = "/v1/chat/completions"
JSON_TYPE = (b"content-type", b"application/json")
GOOD = b'{"model":"m","messages":[{"role":"user","content":"hi"}]}'
MIB = 1024 * 1024
BODY_MAX_MB = 8


@dataclass(frozen=True, slots=True)
class Rig:
    """A proxy with a small body limit before a counting upstream."""

    proxy: Proxy
    upstream: CountingUpstream


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    """Start both, once for all tests: a refused request leaves no trace."""
    folder: Path = tmp_path_factory.mktemp("bad")
    limit = {"AGENTSTATE_SERVER_BODY_MAX_MB": str(BODY_MAX_MB)}
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=folder / "record.db", env=limit) as proxy,
    ):
        yield Rig(proxy, upstream)


def named(session: str, *more: Pair) -> tuple[Pair, ...]:
    """Return the headers of a call in a session."""
    return (JSON_TYPE, (b"x-agent-session-id", session.encode()), *more)


def check_refused(rig: Rig, got: Reception, session: str, status: int, said: str) -> None:
    """The error is the dialect's, says what is wrong, and nothing was paid or kept."""
    assert got.status == status, got.body[:300]
    error = got.json()["error"]
    assert {"message", "type", "param", "code"} <= set(error)
    assert said.lower() in error["message"].lower()
    assert "Traceback" not in error["message"]
    assert got.header("x-should-retry") == "false"
    assert rig.upstream.counts.total() == 0
    assert rig.proxy.maybe_session(session) is None


DEEP = GOOD.replace(b'"hi"', b"[" * 100_000 + b"]" * 100_000)

WRONG_BODIES = {
    "empty": (b"", "body"),
    "not-json": (b"hello", "json"),
    "cut": (GOOD[:-3], "json"),
    "two-values": (GOOD + GOOD, "json"),
    "nan": (GOOD[:-1] + b',"temperature":NaN}', "NaN"),
    "not-utf8": (GOOD.replace(b"hi", b"\xff\xfe"), "utf-8"),
    "utf16": (GOOD.decode().encode("utf-16"), "utf-8"),
    "a-list": (b"[]", "object"),
    "a-string": (b'"hi"', "object"),
    "no-model": (b'{"messages":[{"role":"user","content":"hi"}]}', "model"),
    "model-of-wrong-type": (GOOD.replace(b'"m"', b"7"), "model"),
    "no-messages": (b'{"model":"m"}', "messages"),
    "messages-null": (b'{"model":"m","messages":null}', "messages"),
    "messages-a-string": (b'{"model":"m","messages":"hi"}', "messages"),
    "messages-an-object": (b'{"model":"m","messages":{"role":"user"}}', "messages"),
    "duplicate-keys": (GOOD[:-1] + b',"model":"other"}', "twice"),
    "duplicate-keys-deep": (GOOD.replace(b'"role":', b'"role":"tool","role":'), "twice"),
    "deep": (DEEP, "nested"),
    "endless-integer": (GOOD[:-1] + b',"seed":' + b"9" * 5000 + b"}", "number"),
}


@pytest.mark.parametrize("name", WRONG_BODIES)
def test_a_wrong_body_is_refused(rig: Rig, name: str) -> None:
    body, said = WRONG_BODIES[name]

    got = ask(rig.proxy.address, "POST", PATH, named(name), body)

    check_refused(rig, got, name, 400, said)


WRONG_STEPS = ("abc", "-1", "+1", "1.5", "1e3", "0x1", "1_000", "NaN", "", "99999999999999999999")


@pytest.mark.parametrize("value", WRONG_STEPS)
def test_a_wrong_step_number_is_refused(rig: Rig, value: str) -> None:
    session = f"step {value}"
    step = (b"x-agent-step-number", value.encode())

    got = ask(rig.proxy.address, "POST", PATH, named(session, step), GOOD)

    check_refused(rig, got, session, 400, "x-agent-step-number")


def test_a_hundred_megabytes_are_refused_before_they_are_read(rig: Rig) -> None:
    length = (b"content-length", b"%d" % (100 * MIB))
    with Connection(rig.proxy.address) as connection:
        head = render_request("POST", PATH, rig.proxy.address, named("huge", length))
        connection.send(head + b"{")
        got = connection.receive()

    check_refused(rig, got, "huge", 413, "server.body_max_mb")


def test_a_body_without_length_is_refused_at_the_limit(rig: Rig) -> None:
    chunked = (b"transfer-encoding", b"chunked")
    before = rig.proxy.memory_kib("VmHWM")
    with Connection(rig.proxy.address) as connection:
        connection.send(render_request("POST", PATH, rig.proxy.address, named("endless", chunked)))
        piece = b"%x\r\n%s\r\n" % (MIB, b"x" * MIB)
        for _ in range(BODY_MAX_MB + 1):
            connection.send(piece)
        got = connection.receive()

    check_refused(rig, got, "endless", 413, "server.body_max_mb")
    assert rig.proxy.memory_kib("VmHWM") - before < 64 * 1024


def test_a_gzip_bomb_is_refused_within_bounded_memory(rig: Rig) -> None:
    bomb = gzip.compress(b"[" + b" " * (128 * MIB) + b"]", compresslevel=1)
    assert len(bomb) < BODY_MAX_MB * MIB
    before = rig.proxy.memory_kib("VmHWM")

    got = ask(rig.proxy.address, "POST", PATH, named("bomb", (b"content-encoding", b"gzip")), bomb)

    check_refused(rig, got, "bomb", 413, "server.body_max_mb")
    assert rig.proxy.memory_kib("VmHWM") - before < 64 * 1024


def test_a_corrupt_gzip_body_is_refused(rig: Rig) -> None:
    headers = named("cut gzip", (b"content-encoding", b"gzip"))

    got = ask(rig.proxy.address, "POST", PATH, headers, gzip.compress(GOOD)[:-6])

    check_refused(rig, got, "cut gzip", 400, "gzip")


def test_an_unknown_content_encoding_is_refused(rig: Rig) -> None:
    headers = named("br", (b"content-encoding", b"br"))

    got = ask(rig.proxy.address, "POST", PATH, headers, GOOD)

    check_refused(rig, got, "br", 415, "content-encoding")


def test_an_over_long_session_name_is_refused(rig: Rig) -> None:
    session = "s" * 10_000

    got = ask(rig.proxy.address, "POST", PATH, named(session), GOOD)

    assert got.status == 400
    assert got.header("x-should-retry") == "false"
    assert rig.upstream.counts.total() == 0


def test_the_proxy_still_works_after_all_that(rig: Rig) -> None:
    """Last in this file: it is the first call that is paid."""
    got = ask(rig.proxy.address, "POST", PATH, named("fine"), GOOD)

    assert got.status == 200
    assert got.json()["choices"][0]["finish_reason"] == "stop"
    assert [step["state"] for step in rig.proxy.steps("fine")] == ["complete"]


def test_without_a_session_even_nonsense_goes_to_the_upstream_as_it_is(tmp_path: Path) -> None:
    body = json.dumps({"messages": "hi", "stream": "perhaps"}).encode()
    with (
        CountingUpstream() as upstream,
        Proxy(upstream_url=upstream.url, db=tmp_path / "record.db") as proxy,
    ):
        ask(proxy.address, "POST", PATH, (JSON_TYPE,), body)
        seen = upstream.received

    assert [call.body for call in seen] == [body]
