"""The checks of what the upstreams saw, and of the proxy itself; `checks.py` has the index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.cases.client_checks import decoded
from tests.cases.playing import Play
from tests.cases.sentences import Check
from tests.cases.staging import FALLBACK
from tests.cases.translated_checks import check_request

BUSY_S = 1.0  # that a machine with much to do may take beside a pause


def _calls(playing: Play, wanted: int | dict[str, int]) -> None:
    if isinstance(wanted, int):
        assert playing.call_count == wanted
        return
    got = {"primary": len(playing.upstream.received)}
    if playing.fallback is not None:
        got[FALLBACK] = len(playing.fallback.received)
    assert got == wanted


def _calls_at_most(playing: Play, wanted: int) -> None:
    assert playing.call_count <= wanted


def _calls_of_first(playing: Play, wanted: int) -> None:
    assert playing.calls_of_first == wanted


def _gap_before_second(playing: Play, wanted: str) -> None:
    """The pause is not cut short, and not much longer than it has to be."""
    first, second = playing.upstream.received
    least, _, most = wanted.removesuffix(" s").partition("-")
    gap_s = second.at_s - first.at_s
    assert float(least) <= gap_s <= float(most) + BUSY_S, gap_s


def _request_same(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.upstream.received[0].body == playing.sending.body


def _headers_absent(playing: Play, wanted: list[str]) -> None:
    call = playing.upstream.received[0]
    for name in wanted:
        if name == "host of the proxy":
            assert call.header("host") == playing.upstream.url.removeprefix("http://")
        else:
            assert call.header(name) is None, f"{name} went upstream"


def _request_paths(playing: Play, wanted: dict[str, Any]) -> None:
    for path, value in wanted.items():
        got = playing.upstream.received[0].json()
        for key in path.removeprefix("$.").split("."):
            got = got[key]
        assert got == value


def _targets(playing: Play, wanted: list[str]) -> None:
    assert [call.target for call in playing.upstream.received[1:]] == wanted


def _fully_answered(playing: Play, wanted: int) -> None:
    received = playing.upstream.received
    assert sum(call.outcome == "answered" for call in received) == wanted


def _upstream_any_of(playing: Play, wanted: list[str]) -> None:
    ways: dict[str, Callable[[Play], bool]] = {
        "first call cancelled within 1000 ms": lambda p: p.upstream.received[0].outcome == "left",
        "first call completes, is stored, and the retry is answered from it (1 call)": lambda p: (
            len(p.upstream.received) == 1 and decoded(p.later[0]).first.text == "late"
        ),
    }
    assert any(ways[way](playing) for way in wanted)


def _reading_paused(playing: Play, wanted: bool) -> None:
    assert playing.upstream.received[0].was_blocked is wanted


def _encodings_offered(playing: Play, wanted: list[str]) -> None:
    offered = (playing.upstream.received[0].header("accept-encoding") or "identity").split(",")
    assert {coding.strip().partition(";")[0] for coding in offered} <= set(wanted)


# --- the proxy itself -------------------------------------------------------------------


def _memory_below(playing: Play, wanted_mb: int) -> None:
    before, *after = playing.memory_kib
    assert max(after) - before < wanted_mb * 1024, f"{before} KiB, then {after}"


def _latency_below(playing: Play, wanted_ms: float) -> None:
    assert playing.latencies_s
    assert max(playing.latencies_s) < wanted_ms / 1000


def _others_ok(playing: Play, wanted: bool) -> None:
    assert wanted
    assert playing.latencies_s, "no other request was answered meanwhile"


def _no_leaked_task(playing: Play, wanted: bool) -> None:
    assert wanted
    assert all(step["state"] != "in_flight" for step in playing.proxy.steps(playing.session))


# --- the table of checks --------------------------------------------------------------------------

UPSTREAM: dict[str, Check] = {
    "calls": _calls,
    "calls_at_most": _calls_at_most,
    "calls_during_first_request": _calls_of_first,
    "request_body_same_as_client": _request_same,
    "request_headers_absent": _headers_absent,
    "request_json_paths": _request_paths,
    "request_asserts": check_request,
    "gap_before_call_2": _gap_before_second,
    "paths": _targets,
    "requests_fully_answered": _fully_answered,
    "any_of": _upstream_any_of,
    "reading_paused": _reading_paused,
    "encodings_offered": _encodings_offered,
}

PROXY: dict[str, Check] = {
    "peak_memory_growth_mb_below": _memory_below,
    "rss_growth_mb_below": _memory_below,
    "other_requests_latency_ms_below": _latency_below,
    "other_requests_ok": _others_ok,
    "no_leaked_task": _no_leaked_task,
}
