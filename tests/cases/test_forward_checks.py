"""The checks of retries, fallbacks and heartbeats take what is right and refuse the rest."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.cases.client_checks import CLIENT
from tests.cases.files import Case, load_cases
from tests.cases.forward_checks import check_stand_in
from tests.cases.playing import Play, sending_of
from tests.cases.staging import OWN_KEYS, STAND_IN
from tests.cases.step_checks import STEP
from tests.cases.upstream_checks import BUSY_S, UPSTREAM
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Piece, Reception
from tests.helpers.upstream import Received, Upstream

CASES = {case.file_id[:3]: case for case in load_cases()}
OWN_KEY = {"authorization": f"Bearer {OWN_KEYS['fallback']}"}
Headers = Mapping[str, str]


class Seen(Upstream):
    """An upstream that is not there, and has seen these requests."""

    def __init__(self, received: Sequence[Received]) -> None:
        super().__init__()
        self._received = list(received)


@pytest.fixture
def proxy(tmp_path: Path) -> Proxy:
    """A proxy that does not run."""
    return Proxy(upstream_url="http://127.0.0.1:9", db=tmp_path / "none.db")


def received(*at_s: float) -> list[Received]:
    return [Received(n, 0, "POST", "/", (), b"{}", each) for n, each in enumerate(at_s)]


def reception(status: int, headers: Headers, *pieces: bytes) -> Reception:
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    got = Reception(0.0, status=status, headers=pairs, ending="complete")
    got.pieces = [Piece(2.0 * n, data) for n, data in enumerate(pieces)]
    got.wire += b"".join(pieces)
    return got


def played(
    proxy: Proxy,
    case: Case,
    first: Reception,
    primary: Sequence[Received] = (),
    fallback: Sequence[Received] = (),
    step: Mapping[str, Any] | None = None,
) -> Play:
    """Return a case of which this was seen."""
    return Play(
        case, proxy, Seen(primary), "none", sending_of(case.client, "none"), None,
        fallback=Seen(fallback), first=first, steps=[dict(step or {})],
    )  # fmt: skip


NOTHING = reception(200, {})


@pytest.mark.parametrize(
    ("counts", "wanted", "is_right"),
    [
        ((1, 1), {"primary": 1, "fallback": 1}, True),
        ((2, 1), {"primary": 1, "fallback": 1}, False),
        ((1, 0), {"primary": 1, "fallback": 1}, False),
        ((2, 0), 2, True),
        ((1, 1), 1, False),
    ],
)
def test_calls_are_counted_at_each_target(
    counts: tuple[int, int], wanted: Any, is_right: bool, proxy: Proxy
) -> None:
    primary, fallback = (received(*range(count)) for count in counts)
    playing = played(proxy, CASES["017"], NOTHING, primary, fallback)

    expect(is_right, lambda: UPSTREAM["calls"](playing, wanted))


@pytest.mark.parametrize(
    ("gap_s", "is_right"), [(1.99, False), (2.0, True), (3.0, True), (3.1 + BUSY_S, False)]
)
def test_a_pause_has_a_least_and_a_most(gap_s: float, is_right: bool, proxy: Proxy) -> None:
    playing = played(proxy, CASES["090"], NOTHING, received(10.0, 10.0 + gap_s))

    expect(is_right, lambda: UPSTREAM["gap_before_call_2"](playing, "2.0-3.0 s"))


@pytest.mark.parametrize(
    ("provider", "told", "index", "is_right"),
    [
        ("fallback", "fallback", "1", True),
        ("openai", "fallback", "1", False),
        ("fallback", "openai", "1", False),
        ("fallback", "fallback", "0", False),
    ],
)
def test_who_served_is_on_record_and_told(
    provider: str, told: str, index: str, is_right: bool, proxy: Proxy
) -> None:
    headers = {"x-agentstate-provider": told, "x-agentstate-fallback-index": index}
    step = {"provider": provider}
    playing = played(proxy, CASES["017"], reception(200, headers), step=step)

    expect(is_right, lambda: STEP["served_by"](playing, "fallback"))


@pytest.mark.parametrize(
    ("attempts", "is_right"),
    [
        ([{"provider": "openai", "ok": False}, {"provider": "fallback", "ok": True}], True),
        ([{"provider": "fallback", "ok": False}, {"provider": "fallback", "ok": True}], False),
        ([{"provider": "openai", "ok": True}, {"provider": "fallback", "ok": True}], False),
        ([{"provider": "openai", "ok": False}], False),
    ],
)
def test_each_attempt_is_compared(attempts: Any, is_right: bool, proxy: Proxy) -> None:
    playing = played(proxy, CASES["051"], NOTHING, step={"attempts": attempts})
    wanted = [{"to": "primary", "ok": False}, {"to": "fallback", "ok": True}]

    expect(is_right, lambda: STEP["attempts"](playing, wanted))
    expect(len(attempts) == 2, lambda: STEP["attempts"](playing, 2))


TRIED = "openai/gpt-4o-mini: 429 rate_limit; fallback/stand-in: 400 context"


@pytest.mark.parametrize(
    ("message", "header", "is_right"),
    [
        (f"Rate limit [{TRIED}]", TRIED, True),
        ("Rate limit", TRIED, False),
        (f"Rate limit [{TRIED}]", "", False),
        (f"Rate limit [{TRIED}]", TRIED.partition(";")[0], False),
        (f"Rate limit [{TRIED.replace('400', '429')}]", TRIED, False),
    ],
)
def test_all_that_was_tried_is_listed(
    message: str, header: str, is_right: bool, proxy: Proxy
) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    headers = {"content-type": "application/json", "x-agentstate-tried": header}
    playing = played(proxy, CASES["099"], reception(429, headers, body))

    expect(is_right, lambda: CLIENT["error"](playing, {"lists_all_attempts": True}))
    expect(True, lambda: CLIENT["message_from"](playing, "a target's own words"))


def test_words_of_ours_are_not_a_targets(proxy: Proxy) -> None:
    body = b'{"error": {"message": "All targets failed."}}'
    got = reception(429, {"content-type": "application/json"}, body)
    playing = played(proxy, CASES["099"], got)

    expect(False, lambda: CLIENT["message_from"](playing, "a target's own words"))


@pytest.mark.parametrize(
    ("status", "headers", "is_right"),
    [
        (429, {"retry-after": "1"}, True),
        (429, {}, False),
        (429, {"retry-after": "2"}, False),
        (400, {}, True),
    ],
)
def test_the_pause_is_told_with_429(
    status: int, headers: Headers, is_right: bool, proxy: Proxy
) -> None:
    playing = played(proxy, CASES["099"], reception(status, headers))

    expect(is_right, lambda: CLIENT["headers_if_429"](playing, {"retry-after": "1"}))


@pytest.mark.parametrize(
    ("kind", "body", "is_right"),
    [
        ("application/json", b'{"type":"error"}', True),
        ("text/event-stream", b"event: error\n\n", False),
        ("application/json", b'event: message_start\n\n{"type":"error"}', False),
    ],
)
def test_nothing_comes_before_an_error(
    kind: str, body: bytes, is_right: bool, proxy: Proxy
) -> None:
    playing = played(proxy, CASES["026"], reception(529, {"content-type": kind}, body))
    wanted = CASES["026"].expect["client"]["no_event_before_error"]

    expect(is_right, lambda: CLIENT["no_event_before_error"](playing, wanted))


@pytest.mark.parametrize(
    ("beats", "is_right"),
    [(b": held\n: held\n", True), (b"", False), (b": held\n\n", False), (b"data: held\n\n", False)],
)
def test_a_heartbeat_is_a_comment_without_a_blank_line(
    beats: bytes, is_right: bool, proxy: Proxy
) -> None:
    case = CASES["085"]
    sent = "".join(case.upstream[0]["chunks"]).encode()
    playing = played(proxy, case, reception(200, {}, beats, sent))
    wanted = case.expect["client"]["own_heartbeat"]

    expect(is_right, lambda: CLIENT["own_heartbeat"](playing, wanted))


@pytest.mark.parametrize(("between", "is_right"), [(b"", True), (b": held\n", False)])
def test_a_stream_that_has_begun_gets_no_heartbeat(
    between: bytes, is_right: bool, proxy: Proxy
) -> None:
    case = CASES["006"]
    one, *others = (chunk.encode() for chunk in case.upstream[0]["chunks"])
    got = reception(200, {}, one, between, b"", b"".join(others))
    playing = played(proxy, case, got)
    wanted = case.expect["client"]["own_heartbeat"]

    expect(is_right, lambda: CLIENT["own_heartbeat"](playing, wanted))


@pytest.mark.parametrize(
    ("headers", "changed", "is_right"),
    [
        (OWN_KEY, {}, True),
        ({"authorization": "Bearer sk-client-test"}, {}, False),
        ({**OWN_KEY, "x-api-key": "sk-client-test"}, {}, False),
        (OWN_KEY, {"model": "gpt-4o-mini"}, False),
        (OWN_KEY, {"messages": []}, False),
    ],
)
def test_a_stand_in_has_its_own_key_and_model(
    headers: Headers, changed: Mapping[str, Any], is_right: bool, proxy: Proxy
) -> None:
    case = CASES["017"]
    body = json.dumps({**case.client["body"], "model": STAND_IN, **changed}).encode()
    pairs = tuple((name.encode(), value.encode()) for name, value in headers.items())
    call = Received(0, 0, "POST", "/v1/chat/completions", pairs, body, 0.0)
    playing = played(proxy, case, NOTHING, fallback=[call])

    expect(is_right, lambda: check_stand_in(playing))


def expect(is_right: bool, check: Any) -> None:
    """Have a check pass, or fail."""
    if is_right:
        check()
        return
    with pytest.raises(AssertionError):
        check()
