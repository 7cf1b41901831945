"""Every target on its seeds, and on what random changes make of them."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentstate.wire.sse import Frame, SSEDecoder
from tests.fuzz import targets
from tests.fuzz.targets import SEEDS, TARGETS, Target

EXAMPLES = 60
# What is worth putting in anywhere: what the grammars of the targets turn on.
PIECES = (
    b"\r\n", b"\n", b"\r", b"\0", b":", b" ", b"\t", b";", b",", b"=", b"&", b"%", b"/", b"..",
    b"?", b"0\r\n\r\n", b"5\r\nhello\r\n", b"Content-Length: 5\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", b"HTTP/1.0", b"HEAD", b"stream", b"Connection: close\r\n",
    b"data: ", b"event: error\n", b"\n\n", b"[DONE]", b"{", b"}", b"[", b"]", b'"', b"\\u0000",
    b"null", b"true", b"-1", b"1e999", b"NaN", b'{"a":1,"a":2}', b"\xff", b"\xf0\x9f\x98\x80",
    b"\xed\xa0\xbd", b'"id":', b'"type":', b'"index":7', b"agentstate=", b"key=",
)  # fmt: skip


def changed(seeds: list[bytes], number: int) -> bytes:
    """Return one of the seeds with a few cuts, doublings, swaps and insertions."""
    chance = random.Random(number)
    data = bytearray(chance.choice(seeds))
    for _ in range(chance.randint(1, 5)):
        at, to = sorted(chance.randint(0, len(data)) for _ in range(2))
        match chance.randrange(5):
            case 0:
                del data[at : min(to, at + 20)]
            case 1:
                data[at:at] = data[at:to]
            case 2:
                data[at:at] = chance.choice(PIECES)
            case 3:
                data[at : at + 1] = bytes((chance.randrange(256),))
            case _:
                other = chance.choice(seeds)
                data[at:] = other[chance.randint(0, len(other)) :]
    return bytes(data[:20_000])


@pytest.fixture(params=TARGETS.values(), ids=TARGETS)
def target(request: pytest.FixtureRequest) -> Target:
    """Each row of the table."""
    row: Target = request.param
    return row


def test_every_seed_keeps_the_rules(target: Target) -> None:
    assert target.begun
    for seed in target.seeds():
        target.check(seed)


@pytest.mark.parametrize("name", TARGETS)
@given(number=st.integers(0, 2**32 - 1))
@settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
def test_a_changed_seed_keeps_the_rules(name: str, number: int) -> None:
    TARGETS[name].check(changed(TARGETS[name].seeds(), number))


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.binary(max_size=200))
@settings(derandomize=True, deadline=None, database=None, max_examples=EXAMPLES)
def test_any_bytes_keep_the_rules(name: str, data: bytes) -> None:
    TARGETS[name].check(data)


def test_a_kept_seed_belongs_to_a_target() -> None:
    assert {path.parent.name for path in SEEDS.rglob("*.bin")} <= TARGETS.keys()


def test_a_broken_parser_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Forgetful(SSEDecoder):
        def feed(self, data: bytes) -> list[Frame]:
            return super().feed(data.replace(b"\r", b""))

    monkeypatch.setattr(targets, "SSEDecoder", Forgetful)
    seed = TARGETS["sse"].begun[0]

    with pytest.raises(AssertionError):
        TARGETS["sse"].check(seed)
