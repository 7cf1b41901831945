"""What real clients put on the wire replays: their own requests, headers and all, twice.

`tests/clients/` has one run of each of some twenty-five clients (plain and streaming, with a tool):
what they sent and what they were answered. Here an upstream gives the recorded answers; the second
time it has none to give.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import pytest

from agentstate.dialects import dialect_for_path
from tests.helpers.proxy import Proxy
from tests.helpers.raw_client import Pair, Reception, ask
from tests.helpers.upstream import Received, Reply, Upstream, json_reply

pytestmark = pytest.mark.slow

RECORDINGS = sorted((Path(__file__).parents[1] / "clients").glob("*.json"))
SESSION = b"x-agent-session-id"
# What belongs to the connection the recording was made on, or follows from the body.
_OF_THE_HOP = frozenset(
    ("host", "connection", "keep-alive", "content-length", "transfer-encoding", "accept-encoding")
)


@dataclass(frozen=True, slots=True)
class Exchanged:
    """One call of a client and its answer."""

    method: str
    target: str
    headers: tuple[Pair, ...]
    body: bytes
    reply: Reply

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Read one row of a recording."""
        response = row["response"]
        content = response["body"]
        is_stream = isinstance(content, str)
        raw = content if is_stream else json.dumps(content)
        # A recording is two runs, one plain and one streamed, in one session; there, by design, an
        # answer of the one would be given to the other, in the other form.
        return cls(
            method=row["method"],
            target=row["path"],
            headers=tuple(
                (name, value + b"-streamed" if name == SESSION and is_stream else value)
                for name, value in _pairs(row["headers"])
            ),
            body=json.dumps(row["body"], separators=(",", ":")).encode(),
            reply=Reply(
                status=response["status"],
                headers=_pairs(response["headers"]),
                chunks=(raw.encode(),),
                framing="chunked",
            ),
        )

    @property
    def is_spoken(self) -> bool:
        """Whether a dialect takes it; what none takes passes through and is not recorded."""
        path, _, query = self.target.partition("?")
        below = path.removeprefix("/v1") if path.startswith("/v1/") else path
        return dialect_for_path(below, query) is not None


class RecordedUpstream(Upstream):
    """Gives each request the answer it got when it was recorded; once."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: dict[tuple[str, bytes], Reply] = {}

    def know(self, calls: list[Exchanged]) -> None:
        """Forget what was, and know the answers to these."""
        self.load(())
        self._answers = {(call.target, call.body): call.reply for call in calls}

    def reply_to(self, request: Received) -> Reply:
        answer = self._answers.pop((request.target, request.body), None)
        return answer or json_reply({"error": {"message": "asked before, or never"}}, status=599)


def _pairs(headers: list[list[str]]) -> tuple[Pair, ...]:
    return tuple(
        (name.encode(), value.encode())
        for name, value in headers
        if name.lower() not in _OF_THE_HOP
    )


@pytest.fixture(scope="module")
def rig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, RecordedUpstream]]:
    """One proxy for all: each recording has a session of its own."""
    folder: Path = tmp_path_factory.mktemp("recorded")
    with RecordedUpstream() as upstream:
        (folder / "agentstate.toml").write_text(
            f'[[provider]]\nname = "gemini"\nbase_url = "{upstream.url}/v1beta/openai"\n',
            encoding="utf-8",
        )
        env = {"ANTHROPIC_BASE_URL": upstream.url}
        with Proxy(upstream_url=upstream.url, db=folder / "record.db", env=env) as proxy:
            yield proxy, upstream


def play(proxy: Proxy, calls: list[Exchanged]) -> list[Reception]:
    """Send the calls one after another."""
    return [ask(proxy.address, call.method, call.target, call.headers, call.body) for call in calls]


@pytest.mark.parametrize("path", RECORDINGS, ids=lambda path: str(path.stem))
def test_a_recorded_client_is_answered_from_the_record(
    rig: tuple[Proxy, RecordedUpstream], path: Path
) -> None:
    rows = [Exchanged.of(row) for row in json.loads(path.read_text(encoding="utf-8"))]
    calls = [call for call in rows if call.is_spoken]
    if not calls:
        pytest.skip(f"no dialect for {sorted({call.target for call in rows})}")
    proxy, upstream = rig
    upstream.know(calls)

    first = play(proxy, calls)
    asked = upstream.received
    second = play(proxy, calls)

    assert [(each.target, each.body) for each in asked] == [(c.target, c.body) for c in calls]
    assert len(upstream.received) == len(asked), "a finished call went upstream again"
    for call, fresh, replay in zip(calls, first, second, strict=True):
        assert (fresh.status, fresh.ending) == (200, "complete"), fresh.body[:300]
        assert fresh.header("x-agentstate-cache-hit") == "false"
        assert replay.header("x-agentstate-cache-hit") == "true"
        assert replay.header("x-agentstate-replay") == "exact"
        assert fresh.body == replay.body == b"".join(call.reply.chunks)


def test_the_recordings_are_there() -> None:
    assert len(RECORDINGS) >= 20
