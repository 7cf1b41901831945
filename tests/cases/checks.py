"""One check for each thing a case may expect; an unknown key or sentence is an error.

What a case expects is a value or an English sentence. The table at the end is the index: part of
`expect` → key → check.
"""

from __future__ import annotations

import re
from typing import Any

from tests.cases.client_checks import CLIENT
from tests.cases.export_checks import check_export
from tests.cases.files import to_bytes
from tests.cases.forward_checks import check_health, check_route, check_stand_in
from tests.cases.gate_checks import ALSO, APPROVAL
from tests.cases.playing import Play
from tests.cases.replay_checks import check_cache_key, check_replay
from tests.cases.sentences import Check, same_sentence
from tests.cases.step_checks import STEP
from tests.cases.told import check_told
from tests.cases.upstream_checks import PROXY, UPSTREAM
from tests.helpers.raw_client import Connection, render_request

_ACCEPTED_STEP = re.compile(r"[0-9]{1,18}", re.ASCII)
_PLAY_ON = ("export", "health", "replay")  # in this order, after all that looks at what was played


def check_all(playing: Play) -> None:
    """Check every expectation of the case, and what holds for all of its kind."""
    check_stand_in(playing)
    expect = playing.case.expect
    parts = [part for part in expect if part not in _PLAY_ON]
    for part in (*parts, *(part for part in _PLAY_ON if part in expect)):
        table = PARTS[part]
        if isinstance(table, dict):
            for key, value in expect[part].items():
                table[key](playing, value)
        else:
            table(playing, expect[part])
    if "route" in playing.case.setup:
        check_route(playing)


def _webhook(playing: Play, wanted: dict[str, Any]) -> None:
    assert playing.told is not None, "nobody was told"
    assert playing.service is not None
    check_told(playing.told, playing.service, wanted)


def _security(playing: Play) -> None:
    sending, address = playing.sending, playing.proxy.address
    both = (*sending.headers, (b"transfer-encoding", b"chunked"), (b"content-length", b"4"))
    with Connection(address) as connection:
        connection.send(render_request("POST", sending.target, address, both, b"0\r\n\r\n"))
        got = connection.receive()
        assert got.status == 400
        assert connection.is_closed_by_peer(within_s=5.0)


def _step_rule(playing: Play) -> None:
    value = to_bytes(playing.case.variant).decode("latin-1").strip(" ")
    if _ACCEPTED_STEP.fullmatch(value):
        assert playing.first.status == 200
        assert playing.step["step_number"] == int(value)
    else:
        assert playing.first.status == 400
        assert not playing.upstream.received, "a refused request was paid"


# --- the index ------------------------------------------------------------------------------------

PARTS: dict[str, dict[str, Check] | Check] = {
    "client": CLIENT,
    "step": STEP,
    "upstream": UPSTREAM,
    "proxy": PROXY,
    "approval": APPROVAL,
    "webhook": _webhook,
    "also": ALSO,
    "export": check_export,
    "replay": check_replay,
    "health": same_sentence("neither target is marked unhealthy", check_health),
    "security": same_sentence(
        "a request with both is answered 400 and its connection closed", _security
    ),
    "rule": same_sentence(
        "accepted only if ^[0-9]{1,18}$ after trimming spaces; accepted values never alias "
        "('07' vs '7': decide)",
        _step_rule,
    ),
    "cache_key": same_sentence("differs when any of these fields differs", check_cache_key),
}
