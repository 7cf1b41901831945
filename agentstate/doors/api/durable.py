"""Durable tools: begin a call, report what came of it, say whether it happened.

For tools in any language. A tool POSTs before it acts and does what `state` says: `run` (act, then
report), `replay` (do not act, here is what came of it), `held` (ask again, or wait longer),
`refused`, or `unknown` (nobody knows whether it happened: a person settles it). What each means is
in `steps/durable.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol, cast, get_args

from agentstate.doors.api.bodies import (
    read_body,
    read_choice,
    read_flag,
    read_seconds,
    read_text,
    unexpected,
    without_nulls,
)
from agentstate.doors.api.durable_rows import (
    BegunShown,
    DurableCallShown,
    begun_json,
    call_json,
)
from agentstate.doors.api.reply import (
    PAGE,
    json_response,
    next_headers,
    read_one_of,
    read_page,
    read_params,
)
from agentstate.ground.approvals import Then
from agentstate.ground.canonical import JSON, encode, object_or_text
from agentstate.ground.durable import (
    Begun,
    DurableCall,
    DurablePage,
    DurableState,
    OnUnknown,
    Report,
    SettledAs,
    Settlement,
)
from agentstate.ground.errors import BadRequest, NotFound, TooLarge, shorten
from agentstate.steps import aside
from agentstate.steps.durable import Wanted
from agentstate.steps.identify import check_session
from agentstate.store.base import Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

KIB = 1024
ARGUMENTS_BYTES_MAX = 256 * KIB  # a list of calls shows those of each
RESULT_BYTES_MAX = 4 * KIB * KIB  # more is a file: give its place instead
ROOM_BYTES = 64 * KIB  # for the other keys
NAME_CHARS_MAX = 256
ID_CHARS_MAX = 512
REASON_CHARS_MAX = 1000
BY_CHARS_MAX = 200
WAIT_S_MAX = 60.0  # shorter than most clients and proxies keep a silent connection
LEASE_S_MAX = 24 * 3600.0
DEPTH_MAX = 100  # not every reader of ours takes more

_BY = Field("by", f"who does it; at most {BY_CHARS_MAX} characters")
_REASON = Field("reason", f"why; at most {REASON_CHARS_MAX} characters")
_BEGIN = (
    Field("name", "the tool's name, as policies know it", is_needed=True),
    Field("arguments", "an object, or text; none = {}", "object"),
    Field("key", "the caller's own name for this one call; none = equal calls are counted"),
    Field("call_id", "the id of the model's call"),
    Field("owner", "one life of the agent process, e.g. its run id"),
    Field("begin_id", "this begin, the same on every retry of it"),
    Field("lease_s", "seconds for which the owner surely lives", "number"),
    Field("unknown", "instead of tools.unknown", choices=get_args(OnUnknown)),
    Field("on_reject", "instead of gate.on_reject", choices=get_args(Then)),
    Field("wait_s", f"seconds to wait while it is open, at most {WAIT_S_MAX:g}", "number"),
)
_RESULT = (
    Field("result", "what the tool returned, any JSON", "object", takes_null=True),
    Field("error", "or what it failed with, any JSON", "object", takes_null=True),
    Field("unknown", "or true: it was interrupted, and nobody knows", "boolean"),
    Field("record", "false: an error that is not kept, the call may be run again", "boolean"),
    Field("owner", "who was told to run it"),
)
_SETTLE = (
    Field("outcome", "what is so", choices=get_args(SettledAs), is_needed=True),
    Field("result", "what a replay gives, any JSON", "object", takes_null=True),
    _REASON,
    _BY,
)
_FORGET = (_REASON, _BY)
_STATE = Field("state", "calls in this state", choices=get_args(DurableState))


class DurableKeeper(Protocol):
    """Takes begins and reports: `steps.durable.Durables`."""

    async def begin(self, wanted: Wanted, *, wait_s: float, is_gone: IsGone) -> Begun:
        """Say what a tool is to do."""
        ...

    async def refusal_of(self, call: DurableCall) -> str:
        """Return what a model is told of a call that was refused."""
        ...

    async def report(self, session: str, call: str, report: Report) -> DurableCall:
        """Take what came of a call."""
        ...

    async def settle(self, session: str, call: str, settlement: Settlement) -> DurableCall:
        """Take a person's word on a call without an outcome."""
        ...

    async def forget(
        self, session: str, call: str, *, by: str | None, reason: str | None
    ) -> DurableCall:
        """Have the next equal call be a new one."""
        ...

    def ring(self, session: str) -> None:
        """Have the calls of a session that are held look again."""
        ...


class IsGone(Protocol):
    """Says whether a client has left."""

    def __call__(self) -> bool:
        """Say so."""
        ...


class DurableEndpoints:
    """Answers about durable tool calls."""

    def __init__(self, store: Store, durables: DurableKeeper) -> None:
        self._store = store
        self._durables = durables

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        calls = "/api/sessions/{id}/tool-calls"
        return (
            Endpoint(
                "POST",
                calls,
                self.begin,
                "Begin a durable tool call: told to run it, or what came of it before.",
                body=_BEGIN,
                shape=BegunShown,
                errors=(413,),
                needs="agent",
            ),
            Endpoint(
                "POST",
                calls + "/{call}/result",
                self.report,
                "Report what came of it; the same again changes nothing.",
                body=_RESULT,
                shape=DurableCallShown,
                errors=(409, 413),
                needs="agent",
            ),
            Endpoint(
                "POST",
                calls + "/{call}/settle",
                self.settle,
                "Say whether a call happened that was begun and never reported.",
                body=_SETTLE,
                shape=DurableCallShown,
                errors=(409, 413),
            ),
            Endpoint(
                "POST",
                calls + "/{call}/forget",
                self.forget,
                "Have the next equal call be a new one.",
                body=_FORGET,
                shape=DurableCallShown,
                errors=(409,),
            ),
            Endpoint(
                "GET",
                "/api/sessions/{id}/durable-calls",
                self.list_of_session,
                "List the durable tool calls of a session, newest first.",
                query=(*PAGE, _STATE),
                answers="array",
                shape=DurableCallShown,
            ),
            Endpoint(
                "GET",
                "/api/tool-calls",
                self.list,
                "List the durable tool calls of all sessions, newest first.",
                query=(*PAGE, _STATE),
                answers="array",
                shape=DurableCallShown,
            ),
            Endpoint(
                "GET",
                "/api/tool-calls/{call}",
                self.show,
                "Show one durable tool call whole.",
                shape=DurableCallShown,
            ),
        )

    # --- what tools say -----------------------------------------------------------------------

    async def begin(self, request: Request, params: Params) -> Response:
        """Answer with what the tool is to do."""
        session = check_session(params["id"], "The session id")
        bytes_max = ARGUMENTS_BYTES_MAX + ROOM_BYTES
        sent = without_nulls(await read_body(request, "A tool call", _BEGIN, bytes_max), _BEGIN)
        wanted = _read_wanted(session, sent)
        wait_s = read_seconds(sent, "wait_s", WAIT_S_MAX) or 0.0
        request.on_gone(lambda: self._durables.ring(session))
        begun = await self._durables.begin(wanted, wait_s=wait_s, is_gone=request.is_gone)
        message = None
        if begun.state == "refused" and begun.call is not None:
            message = await self._durables.refusal_of(begun.call)
        size = 0 if begun.call is None else begun.call.value_bytes or 0
        return await aside.run(lambda: json_response(begun_json(begun, message)), size)

    async def report(self, request: Request, params: Params) -> Response:
        """Take `{"result"}` or `{"error"}`; answer with the call. 409: it ended otherwise."""
        bytes_max = RESULT_BYTES_MAX + ROOM_BYTES
        sent = without_nulls(await read_body(request, "A result", _RESULT, bytes_max), _RESULT)
        given = [name for name in ("result", "error", "unknown") if name in sent]
        if len(given) != 1 or sent.get("unknown") not in (None, True):
            raise BadRequest(
                'The body must have either "result" or "error", or "unknown": true.', param="result"
            )
        is_final = read_flag(sent, "record", default=True)
        if not is_final and given != ["error"]:
            raise BadRequest('"record": false goes with an "error".', param="record")
        report = Report(
            given[0],
            "null" if given == ["unknown"] else await _read_value(sent, given[0]),
            read_text(sent, "owner", ID_CHARS_MAX),
            is_final,
        )
        row = await self._durables.report(params["id"], params["call"], report)
        return json_response(call_json(replace(row, value=None)))

    # --- what people say ----------------------------------------------------------------------

    async def settle(self, request: Request, params: Params) -> Response:
        """Take `{"outcome", "result"?, "reason"?, "by"?}`; answer with the call. 409: it was
        settled before, its owner said that it lives, or there is nothing to settle."""
        bytes_max = RESULT_BYTES_MAX + ROOM_BYTES
        sent = without_nulls(await read_body(request, "A settlement", _SETTLE, bytes_max), _SETTLE)
        outcome = cast(SettledAs, read_choice(sent, "outcome", get_args(SettledAs)))
        has_result = sent.get("result") is not None
        if has_result and outcome == "not_happened":
            raise BadRequest("What has not happened has no result.", param="result")
        settlement = Settlement(
            outcome,
            await _read_value(sent, "result") if has_result else None,
            read_text(sent, "by", BY_CHARS_MAX),
            read_text(sent, "reason", REASON_CHARS_MAX),
        )
        row = await self._durables.settle(params["id"], params["call"], settlement)
        return json_response(call_json(replace(row, value=None)))

    async def forget(self, request: Request, params: Params) -> Response:
        """Take `{"reason"?, "by"?}`; answer with the call. 409: it has not ended."""
        sent = without_nulls(await read_body(request, "This", _FORGET, ROOM_BYTES), _FORGET)
        row = await self._durables.forget(
            params["id"],
            params["call"],
            by=read_text(sent, "by", BY_CHARS_MAX),
            reason=read_text(sent, "reason", REASON_CHARS_MAX),
        )
        return json_response(call_json(replace(row, value=None)))

    # --- what is on record --------------------------------------------------------------------

    async def list_of_session(self, request: Request, params: Params) -> Response:
        """Answer with a page of the calls of a session."""
        session = params["id"]
        if await self._store.read_session(session) is None:
            raise NotFound(f"There is no session {shorten(session)!r}.")
        return await self._list(request, session)

    async def list(self, request: Request, params: Params) -> Response:
        """Answer with a page of the calls of all sessions."""
        return await self._list(request, None)

    async def _list(self, request: Request, session: str | None) -> Response:
        sent = read_params(request, frozenset(("limit", "after", "state")))
        state = read_one_of(sent, "state", get_args(DurableState))
        query = replace(read_page(sent), session=session, state=state)
        page = await self._store.list_durables(query)
        size = sum(len(row.arguments) for row in page.rows)
        return await aside.run(lambda: _page_response(page), size)

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with one call and what came of it."""
        read_params(request, frozenset())
        row = await self._store.read_durable(params["call"])
        if row is None:
            raise NotFound(f"There is no durable call {shorten(params['call'])!r}.")
        return await aside.run(lambda: json_response(call_json(row)), row.value_bytes or 0)


def _page_response(page: DurablePage) -> Response:
    rows: list[JSON] = [call_json(row) for row in page.rows]
    return json_response(rows, headers=next_headers(page.next_cursor))


def _read_wanted(session: str, sent: Mapping[str, JSON]) -> Wanted:
    name = read_text(sent, "name", NAME_CHARS_MAX)
    if name is None or any(ord(char) < 32 or ord(char) == 127 for char in name):
        raise unexpected("name", "a name without control characters", sent["name"])
    return Wanted(
        session=session,
        tool=name,
        arguments=_read_arguments(sent),
        key=read_text(sent, "key", ID_CHARS_MAX),
        call_id=read_text(sent, "call_id", ID_CHARS_MAX),
        owner=read_text(sent, "owner", ID_CHARS_MAX),
        begin_id=read_text(sent, "begin_id", ID_CHARS_MAX),
        lease_s=read_seconds(sent, "lease_s", LEASE_S_MAX),
        on_unknown=cast(OnUnknown | None, read_choice(sent, "unknown", get_args(OnUnknown))),
        on_reject=cast(Then | None, read_choice(sent, "on_reject", get_args(Then))),
    )


def _read_arguments(sent: Mapping[str, JSON]) -> str:
    value = sent.get("arguments")
    if value is None:
        return "{}"
    if isinstance(value, dict):
        _check_depth(value, "arguments")
        text = encode(value).decode("ascii")
    elif isinstance(value, str):
        text = value
        if isinstance(read := object_or_text(text), dict):
            _check_depth(read, "arguments")
    else:
        raise unexpected("arguments", "an object or text", value)
    if len(text) > ARGUMENTS_BYTES_MAX:
        raise TooLarge(f"The arguments are over {ARGUMENTS_BYTES_MAX} bytes. Pass a place of what "
                       "is long, as a file's name.", param="arguments")  # fmt: skip
    return text


async def _read_value(sent: Mapping[str, JSON], name: str) -> str:
    value = sent[name]
    _check_depth(value, name)
    # Its size is known only now; what came in is bounded, so this is some milliseconds at most.
    text = await aside.run(lambda: encode(value).decode("ascii"), RESULT_BYTES_MAX)
    if len(text) > RESULT_BYTES_MAX:
        raise TooLarge(
            f'"{name}" has {len(text)} bytes as JSON; at most {RESULT_BYTES_MAX} are kept. Store '
            "what is long elsewhere, and report where.",
            param=name,
        )
    return text


def _check_depth(value: JSON, name: str) -> None:
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [child for item in level for child in _children(item)]
        if not level:
            return
    raise BadRequest(f'"{name}" is nested over {DEPTH_MAX} deep.', param=name)


def _children(value: JSON) -> Iterator[JSON]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value
