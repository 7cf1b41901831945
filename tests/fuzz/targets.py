"""What is fuzzed, a row a target: a function of bytes that raises where a rule is broken.

Whoever makes the bytes is elsewhere: `test_targets.py` mutates seeds in every run of the tests,
`run.py` lets coverage lead (`build.py fuzz`). An input is a byte that says how it is cut, and the
rest. Seeds are complete, ordinary inputs; what was found once lies in `seeds/<target>/`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from urllib.parse import urlencode

import h11

from agentstate.dialects import DIALECTS, UPSTREAM_DIALECTS, dialect_for_path
from agentstate.dialects.base import Dialect, Mark
from agentstate.doors import gated
from agentstate.doors.api.reply import read_params
from agentstate.doors.guard import COOKIE, Guard
from agentstate.doors.proxy import hide_key, read_address
from agentstate.ground.access import Tokens, cookie_of
from agentstate.ground.canonical import canonical, encode, encode_readable, parse
from agentstate.ground.chat import Answer
from agentstate.ground.errors import BadRequest, ClientError
from agentstate.wire.lines import LinesDecoder
from agentstate.wire.message import Headers, Request, split_target
from agentstate.wire.sse import Frame, SSEDecoder
from agentstate.wire.strict import ChunkGuard, read_head
from tests.dialects.samples import SAMPLES
from tests.fuzz.served import check_served

SEEDS = Path(__file__).parent / "seeds"


@dataclass(frozen=True, slots=True)
class Target:
    """One thing that takes bytes from outside."""

    name: str
    check: Callable[[bytes], None]
    begun: tuple[bytes, ...]  # inputs to begin with

    def seeds(self) -> list[bytes]:
        """Return all inputs to begin with, those of the folder included."""
        kept = sorted((SEEDS / self.name).glob("*.bin"))
        return [*self.begun, *(path.read_bytes() for path in kept)]


def cut(data: bytes) -> tuple[bytes, list[bytes]]:
    """Return what an input says, whole and in pieces; its first byte is their size, 0 = one."""
    size, whole = data[:1], data[1:]
    step = size[0] if size and size[0] else max(1, len(whole))
    return whole, [whole[at : at + step] for at in range(0, len(whole), step)]


# --- server-sent events and lines ---------------------------------------------------------------


def check_sse(data: bytes) -> None:
    """Cuts change no event, and every byte comes out once, in order."""
    whole, pieces = cut(data)
    frames = _decode(SSEDecoder(), [whole])
    cut_frames = _decode(SSEDecoder(), pieces)
    assert b"".join(frame.raw for frame in frames) == whole
    assert b"".join(frame.raw for frame in cut_frames) == whole
    assert _events(frames) == _events(cut_frames)


def check_lines(data: bytes) -> None:
    """The same for one object a line."""
    whole, pieces = cut(data)
    frames = _decode(LinesDecoder(), [whole])
    assert frames == _decode(LinesDecoder(), pieces)
    assert b"".join(frame.raw for frame in frames).strip() == whole.strip()


def _decode(decoder: SSEDecoder | LinesDecoder, pieces: Iterable[bytes]) -> list[Frame]:
    frames = [frame for piece in pieces for frame in decoder.feed(piece)]
    rest = decoder.finish()
    return frames if rest is None else [*frames, rest]


def _events(frames: list[Frame]) -> list[tuple[bytes, bytes]]:
    return [(frame.event, frame.data) for frame in frames if frame.data is not None]


# --- JSON ---------------------------------------------------------------------------------------


def check_json(data: bytes) -> None:
    """What is read is what Python reads, and has one canonical form that is read as the same."""
    try:
        value = parse(data)
    except BadRequest:
        return
    for written in (encode(value), encode_readable(value)):
        assert json.loads(written) == json.loads(data.decode("utf-8"))
        assert parse(written) == value
        assert canonical(parse(written)) == canonical(value)


# --- dialects -----------------------------------------------------------------------------------


def check_stream(dialect: Dialect) -> Callable[[bytes], None]:
    """Any stream is read without an error, however it is cut, and says whether it was whole."""

    def decoder() -> SSEDecoder | LinesDecoder:
        return LinesDecoder() if dialect in UPSTREAM_DIALECTS else SSEDecoder()

    def check(data: bytes) -> None:
        whole, pieces = cut(data)
        frames = _decode(decoder(), [whole])
        assembler, cut_one = dialect.assembler(), dialect.assembler()
        for frame in frames:
            mark = assembler.feed(frame)
            assembler.new_text()
            answer = assembler.snapshot()
            assert answer.is_complete == (answer.fault is None)
            named = [(choice, call.position, call.name) for choice, call in answer.tool_calls]
            # No call goes by unseen; of what has not begun, or has failed, none is an answer's.
            assert assembler.call_names() == named or not answer.choices
            if mark is Mark.ERROR:
                break
        for frame in _decode(decoder(), pieces):
            if cut_one.feed(frame) is Mark.ERROR:
                break
        answer = assembler.finish(True)
        assert answer == cut_one.finish(True)
        if dialect not in UPSTREAM_DIALECTS:
            other = dialect.read_answer(dialect.body_from_events(frames))
            if answer.is_complete:
                _check_other_form(answer, other)

    return check


def check_body(dialect: Dialect) -> Callable[[bytes], None]:
    """Any body of an answer is read without an error, and so is any body of an error."""

    def check(data: bytes) -> None:
        answer = dialect.read_answer(data)
        assert answer.is_complete == (answer.fault is None)
        events = dialect.events_from_body(data, True)
        if answer.is_complete and events:
            other = dialect.assembler(len(answer.choices))
            for frame in _decode(SSEDecoder(), [b"".join(events)]):
                other.feed(frame)
            _check_other_form(answer, other.finish(True))
        dialect.read_error(data)
        dialect.mend_error_body(502, data)

    return check


def _check_other_form(recorded: Answer, other: Answer) -> None:
    """What replays in the other form is whole, says the same, and calls no tool that the gate has
    not seen: it looks at the form that was recorded."""
    assert other.is_complete, other.fault
    assert [choice.text for choice in other.choices] == [choice.text for choice in recorded.choices]
    found, told = _calls(other), _calls(recorded)
    assert {call[:2] for call in found} == {call[:2] for call in told}
    # Arguments that not all read alike a form may have otherwise; a person is asked in any case.
    if None not in {call[2] for call in told}:
        assert found == told


def _calls(answer: Answer) -> set[tuple[int, str, bytes | None]]:
    """Return choice, name and arguments of every call; None = they are no object all read alike."""
    return {(choice, call.name, _object_in(call.arguments)) for choice, call in answer.tool_calls}


def _object_in(text: str) -> bytes | None:
    try:
        value = parse(text.encode("utf-8", "surrogatepass"))
    except BadRequest:
        return None
    return canonical(value) if isinstance(value, dict) else None


def check_ask(dialect: Dialect) -> Callable[[bytes], None]:
    """Any request is read or refused, and reading changes nothing of it."""

    def check(data: bytes) -> None:
        try:
            body = parse(data)
            before = canonical(body)
            ask = dialect.read_ask(body)
        except BadRequest:
            return
        for message in ask.messages:
            dialect.tool_result_blank(message)
            dialect.masked(message, str.lower)
        dialect.mask_envelope(ask.envelope, str.lower)
        assert canonical(body) == before

    return check


def _dialect_targets(dialect: Dialect) -> list[Target]:
    name = str(dialect.name)
    if dialect in UPSTREAM_DIALECTS:
        lines = b'{"message":{"role":"assistant","content":"hi"},"done":false}\n{"done":true}\n'
        return [Target(f"stream-{name}", check_stream(dialect), (b"\0" + lines,))]
    samples = SAMPLES[dialect.name]
    bound = dialect_for_path(samples.path) if samples.path else dialect
    assert bound is not None
    streams = (*samples.streams.values(), samples.error_stream)
    bodies = (*samples.bodies.values(), samples.error_body)
    return [
        Target(f"stream-{name}", check_stream(bound),
               tuple(b"\0" + b"".join(frames) for frames in streams)),
        Target(f"body-{name}", check_body(bound), bodies),
        Target(f"ask-{name}", check_ask(bound), (json.dumps(samples.ask).encode(),)),
    ]  # fmt: skip


# --- heads, chunks, cookies, queries, paths -----------------------------------------------------

_CHUNKED = b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n"


def check_chunks(data: bytes) -> None:
    """What the guard lets pass ends where it ends for h11, however it is cut."""
    whole, pieces = cut(data)
    assert _read_chunks([whole]) == _read_chunks(pieces)


def _read_chunks(pieces: list[bytes]) -> tuple[bytes, bytes] | None:
    """Return (body, what follows); None = refused, or not whole."""
    guard, parser, body, rest = ChunkGuard(), read_head(_CHUNKED).parser, b"", b""
    is_done = False
    try:
        for piece in pieces:
            admitted = guard.admit(piece)
            rest += piece[admitted:]
            parser.receive_data(piece[:admitted])
            while not is_done and (event := parser.next_event()) is not h11.NEED_DATA:
                is_done = isinstance(event, h11.EndOfMessage)
                body += event.data if isinstance(event, h11.Data) else b""
            assert is_done or not rest, "the guard sees an end that h11 does not see"
            assert not is_done or guard.admit(b"x") == 0, "h11 sees an end that the guard does not"
    except (BadRequest, h11.RemoteProtocolError):
        return None
    return (body, rest) if is_done else None


_TOKEN = "admin-" + "x" * 26
_OURS = f"{COOKIE}={cookie_of(_TOKEN)}".encode()


def check_cookie(data: bytes) -> None:
    """Whatever cookies stand beside ours, it is found; without it nobody gets in."""
    guard = Guard(Tokens([("admin", _TOKEN)]))

    def role(line: bytes) -> str | None:
        return guard.role_of(_asking(b"/", (b"cookie", line)))

    assert role(data) is None or _OURS in data
    assert role(_OURS + b";" + data) == "admin"
    names = [item.partition(b"=")[0].strip(b" \t") for item in data.split(b";")]
    if COOKIE.encode() not in names:
        assert role(data + b"; " + _OURS) == "admin"


_KNOWN = frozenset(("status", "limit", "after", "search", "tag"))


def check_query(data: bytes) -> None:
    """Any target is taken apart or refused; what is read of a query writes the same again."""
    request = _asking(data)
    try:
        params = read_params(request, _KNOWN)
    except BadRequest:
        params = {}
    written = urlencode(params, errors="surrogatepass").encode("ascii")
    assert read_params(_asking(b"/?" + written), _KNOWN) == params
    try:
        hide_key(request)
        address = read_address(request.path)
        if address is not None:
            dialect_for_path(gated.below(address.path), request.query)
    except ClientError:
        pass  # it says what is wrong
    assert "key=" not in [field[:4] for field in request.query.split("&")]
    assert "/../" not in gated.plain_path(request.path) + "/"


def _asking(target: bytes, *pairs: tuple[bytes, bytes]) -> Request:
    path, query = split_target(target)
    asking = SimpleNamespace(path=path, query=query, headers=Headers(pairs), peer="127.0.0.1")
    return cast(Request, cast(Any, asking))


# --- the table ----------------------------------------------------------------------------------

_GET = b"GET /x?a=b HTTP/1.1\r\nHost: h\r\n\r\n"
_POST = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\nhello"
_STREAM = b"GET http://h/stream HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
_CHUNKS = b'5;a="b"\r\nhello\r\nA\r\n0123456789\r\n0\r\nX: y\r\n\r\n'

TARGETS: dict[str, Target] = {
    target.name: target
    for target in (
        Target("server", check_served, (
            b"\0" + _GET, b"\7" + _POST + _GET, b"\1" + _CHUNKED + _CHUNKS + _STREAM,
            b"\0" + _GET.replace(b"GET", b"HEAD") + _GET.replace(b"1.1", b"1.0"),
            b"\3" + b"OPTIONS * HTTP/1.1\r\nHost: [::1]:80\r\nA: b\tc\r\n\r\n" + _POST,
        )),
        Target("chunks", check_chunks, (b"\0" + _CHUNKS, b"\1" + _CHUNKS + _GET)),
        Target("sse", check_sse, (
            b"\1: hi\r\n\r\nevent: a\ndata: b\ndata\n\nid: 1\rretry: 2\r\r", b"\0data: [DONE]\n\n",
        )),
        Target("lines", check_lines, (b'\2{"a":1}\n\r\n{"b":2}\r\n{"c"',)),
        Target("json", check_json, (
            b'{"a":[1,-2.50,3e400,true,null],"b":{"c":"\\ud83d\\ude00 \\u0000"},"":""}',
            '["é\u2028",0,-0,-0.0,1E+2,123456789012345678901234567890]'.encode(),
        )),
        *(target for dialect in (*DIALECTS, *UPSTREAM_DIALECTS)
          for target in _dialect_targets(dialect)),
        Target("cookie", check_cookie, (
            b"theme=dark; " + _OURS, b'a="b;c"; agentstate="x"', b'prefs={"a":1}; ;=',
        )),
        Target("query", check_query, (
            b"/api/sessions?status=FAILED&limit=10&after=x%20y&search=a+b&tag=k=v,w",
            b"/s/run%2F1/p/groq/v1/chat/completions?key=AIza%41&alt=sse",
            b"/v1beta/models/gemini-2:streamGenerateContent?alt=sse&key=k",
            b"/v1/%2e%2e/..;a/%5c../x%ff?%zz",
        )),
    )
}  # fmt: skip
