"""Approvals: what waits for a person, what was decided, and the one way to decide.

Deciding is a POST with a JSON body and nothing else: a page of another origin cannot send one
(`front.py` refuses its Origin, and no form can say application/json), and a link preview that
fetches an address never decides. Arguments are shown three times: exact as the model sent them,
parsed, and in a form in which nothing is invisible. Integers of any length keep their digits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol, TypedDict, cast, get_args

from agentstate.doors.api.reply import (
    PAGE,
    check_is_json,
    json_response,
    next_headers,
    read_one_of,
    read_page,
    read_params,
)
from agentstate.doors.api.shapes import Anything, as_json
from agentstate.ground.approvals import (
    Approval,
    ApprovalKind,
    ApprovalStatus,
    Decision,
    Earlier,
    Then,
)
from agentstate.ground.budget import cap_of, schema_of_more
from agentstate.ground.canonical import JSON, OFF_LOOP_BYTES, encode, parse
from agentstate.ground.clock import iso_moment, now_ms
from agentstate.ground.errors import AlreadyDecided, BadRequest, NotFound, shorten
from agentstate.ground.load import nearest
from agentstate.ground.records import Query
from agentstate.ground.visible import duplicate_keys, visible
from agentstate.steps.schema import unchecked_keywords
from agentstate.store.base import LIST_LIMIT_MAX, Store
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Pair, Request, Response

MIB = 1024 * 1024
ACTION_BYTES_MAX = 16 * MIB  # an edited call may write a whole file
REASON_CHARS_MAX = 4000  # the model reads it: a page is plenty
BY_CHARS_MAX = 200
PENDING_MAX = 10 * LIST_LIMIT_MAX  # a list nobody works down to its end
DEPTH_MAX = 100  # deeper JSON is shown as its text alone: not every reader of ours could take it

Action = Literal["APPROVED", "REJECTED"]


class Decider(Protocol):
    """Takes decisions: the gate."""

    async def decide(self, approval_id: str, decision: Decision) -> Approval:
        """Write a decision; whoever waits for it goes on.

        Raises:
            NotFound: there is no such approval.
            AlreadyDecided: the first decision stands.
            BadRequest: edited arguments or `then` do not fit; nothing was decided.
        """
        ...

    async def schema_of(self, approval: Approval) -> JSON:
        """Return the JSON schema that edited arguments are checked against; None = none is."""
        ...


@dataclass(frozen=True, slots=True)
class _Key:
    """One key of an action's body."""

    name: str
    expects: str
    only_with: Action | None = None  # None = with both


_KEYS = {
    key.name: key
    for key in (
        _Key("action", '"APPROVED" or "REJECTED"'),
        _Key("arguments", "an object, or its JSON as text", only_with="APPROVED"),
        _Key("then", '"stop" or "continue"', only_with="REJECTED"),
        _Key("reason", f"text of at most {REASON_CHARS_MAX} characters"),
        _Key("by", f"text of at most {BY_CHARS_MAX} characters"),
    )
}

_BODY = (
    Field("action", "the decision", choices=get_args(Action), is_needed=True),
    Field("arguments", "other arguments for the call, with APPROVED", "object", takes_null=True),
    Field("then", "what follows a rejection", choices=get_args(Then)),
    Field("reason", f"why; at most {REASON_CHARS_MAX} characters", takes_null=True),
    Field("by", f"who decides; at most {BY_CHARS_MAX} characters", takes_null=True),
)


class ApprovalEndpoints:
    """Answers under /api/approvals."""

    def __init__(self, store: Store, decider: Decider) -> None:
        self._store = store
        self._decider = decider

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            # Before the row with a name in its place, which would take it for an id.
            Endpoint(
                "GET",
                "/api/approvals/pending",
                self.pending,
                "List what waits for a decision, the first asked first.",
                answers="array",
                shape=ApprovalShown,
            ),
            Endpoint(
                "GET",
                "/api/approvals",
                self.list,
                "List approvals, the last asked first.",
                query=(
                    *PAGE,
                    Field("status", "approvals of this status", choices=get_args(ApprovalStatus)),
                    Field("session", "approvals of this session"),
                ),
                answers="array",
                shape=ApprovalShown,
            ),
            Endpoint(
                "GET",
                "/api/approvals/{id}",
                self.show,
                "Show one approval whole.",
                shape=ApprovalWholeShown,
            ),
            Endpoint(
                "POST",
                "/api/approvals/{id}/action",
                self.decide,
                "Approve, edit or reject; the first decision stands.",
                body=_BODY,
                shape=ApprovalShown,
                errors=(409,),
                needs="approve",
            ),
        )

    async def pending(self, request: Request, params: Params) -> Response:
        """Answer with an array of what is not decided; EXPIRED marks those whose time is over."""
        read_params(request, frozenset())
        at_ms = now_ms()
        rows: list[Approval] = []
        query = Query(status="PENDING", limit=LIST_LIMIT_MAX)
        while len(rows) < PENDING_MAX:
            page = await self._store.list_approvals(query, at_ms=at_ms)
            rows += page.rows
            if page.next_cursor is None:
                break
            query = replace(query, after=page.next_cursor)
        rows.reverse()  # people work down a list, and the first asked expires first
        return await _list_response(rows, at_ms)

    async def list(self, request: Request, params: Params) -> Response:
        """Answer with an array; `status` PENDING gives the expired, undecided ones as well."""
        asked = read_params(request, frozenset(("limit", "after", "status", "session")))
        status = read_one_of(asked, "status", get_args(ApprovalStatus))
        asked.pop("status", None)  # a page's is a session's
        query = replace(read_page(asked), status=status, session=asked.get("session"))
        at_ms = now_ms()
        page = await self._store.list_approvals(query, at_ms=at_ms)
        return await _list_response(page.rows, at_ms, next_headers(page.next_cursor))

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with one approval, and what a person needs to judge and to edit it."""
        read_params(request, frozenset())
        approval = await self._store.read_approval(params["id"])
        if approval is None:
            raise NotFound(f"There is no approval {shorten(params['id'])!r}.")
        is_request = approval.question.kind == "request"
        step, asked = None, None
        if approval.step_id is not None:
            step = await self._store.read_step(approval.step_id)
            asked = await self._store.read_request(approval.step_id) if is_request else None
        schema = None if is_request else await self._schema_of(approval)

        def render() -> Response:
            found = approval_json(approval, now_ms())
            found["prompt"] = "" if step is None else step.prompt
            found["request"] = _shallow(asked)
            found["schema"] = _shallow(schema)
            found["schema_unchecked"] = list(unchecked_keywords(schema))
            return json_response(found)

        return await asyncio.to_thread(render)  # arguments and request may be megabytes

    async def decide(self, request: Request, params: Params) -> Response:
        """Take `{"action", "arguments"?, "then"?, "reason"?, "by"?}`; answer with the approval.

        409 if it was decided before, with the approval that stands.
        """
        read_params(request, frozenset())
        check_is_json(request, "A decision")
        raw = await request.body(ACTION_BYTES_MAX)
        if len(raw) < OFF_LOOP_BYTES:
            decision = read_decision(raw)
        else:
            decision = await asyncio.to_thread(read_decision, raw)
        try:
            approval = await self._decider.decide(params["id"], decision)
        except AlreadyDecided as error:
            return _refused_again(error)
        return await asyncio.to_thread(lambda: json_response(approval_json(approval, now_ms())))

    async def _schema_of(self, approval: Approval) -> JSON:
        if approval.question.kind == "budget":
            return schema_of_more(cap_of(approval.question.tool))
        return await self._decider.schema_of(approval)


def read_decision(raw: bytes) -> Decision:
    """Read the body of an action.

    A key whose value is null counts as not sent; an object of arguments becomes its JSON text.

    Raises:
        BadRequest: it is not as `_KEYS` says; the message says what was expected and found.
    """
    body = parse(raw)
    if not isinstance(body, dict):
        raise BadRequest(
            f'The body must be an object such as {{"action": "APPROVED"}}; found {_found(body)}.'
        )
    for name in body:
        if name not in _KEYS:
            raise BadRequest(
                f"The body has an unknown key {shorten(name)!r}. {nearest(name, _KEYS)}",
                param=shorten(name),
            )
    sent: dict[str, JSON] = {name: value for name, value in body.items() if value is not None}
    action = _read_choice(sent, "action", get_args(Action))
    if action is None:
        raise _unexpected("action", None)
    for name in sent:
        only_with = _KEYS[name].only_with
        if only_with not in (None, action):
            raise BadRequest(
                f'"{name}" goes with "action": "{only_with}"; found it with "{action}". Nothing '
                "was decided.",
                param=name,
            )
    return Decision(
        is_approved=action == "APPROVED",
        by=_read_text(sent, "by", BY_CHARS_MAX),
        reason=_read_text(sent, "reason", REASON_CHARS_MAX),
        arguments=_read_edit(sent),
        then=cast(Then | None, _read_choice(sent, "then", get_args(Then))),
    )


class DecisionShown(TypedDict):
    """What a person said to a question; null = nobody has decided."""

    decided_by: str | None
    reason: str | None
    then: Then | None
    edited_arguments: str | None


class EarlierShown(DecisionShown):
    """What was decided about the same call before its session was forked."""

    session: str
    status: Literal["APPROVED", "REJECTED"]
    decided_ms: int


class ApprovalShown(DecisionShown):
    """A question to a person, and what was decided."""

    approval_id: str
    id: str
    session: str
    session_id: str
    step_number: int | None
    index: int | None
    kind: ApprovalKind
    status: ApprovalStatus
    tool: str
    arguments: str
    arguments_json: Anything
    arguments_display: str
    duplicate_keys: list[str]
    call_id: str | None
    choice: int
    position: int
    rule: str
    why: str
    on_reject: Then
    can_edit: bool
    dialect: str
    model: str
    run_id: str | None
    created_ms: int
    asked_ms: int
    deadline_ms: int | None
    decided_ms: int | None
    rolled_back_ms: int | None
    earlier: EarlierShown | None
    durable_call: str | None


class ApprovalWholeShown(ApprovalShown):
    """A question with what a person needs to judge and to edit it."""

    prompt: str
    request: Anything
    schema: Anything
    schema_unchecked: list[str]


def approval_json(approval: Approval, at_ms: int) -> dict[str, JSON]:
    """Render an approval as it is at a time."""
    question = approval.question
    decision = approval.decision
    is_native = question.kind in ("tool_call", "durable") and question.generation == 0
    parsed, twice = read_arguments(question.arguments)
    shown: ApprovalShown = {
        "approval_id": approval.approval_id,
        "id": approval.approval_id,
        "session": approval.session,
        "session_id": approval.session,
        "step_number": approval.step_number,
        "index": approval.index,
        "kind": question.kind,
        "status": approval.status(at_ms),
        "tool": question.tool,
        "arguments": question.arguments,
        "arguments_json": parsed,
        "arguments_display": visible(question.arguments),
        "duplicate_keys": list(twice),
        "call_id": question.call_id,
        "choice": question.choice,
        "position": question.position,
        "rule": question.rule,
        "why": question.why,
        "on_reject": question.on_reject,
        "can_edit": (is_native or question.kind == "budget") and decision is None,
        "dialect": approval.dialect,
        "model": approval.model,
        "run_id": approval.run_id,
        "created_ms": approval.created_ms,
        "asked_ms": approval.asked_ms,
        "deadline_ms": question.deadline_ms,
        "decided_ms": approval.decided_ms,
        **decision_shown(decision),
        "rolled_back_ms": approval.rolled_back_ms,
        "earlier": None if approval.earlier is None else _earlier(approval.earlier),
        "durable_call": approval.durable,
    }
    return as_json(shown)


def decision_shown(decision: Decision | None) -> DecisionShown:
    """Render what a person said; None = nothing so far."""
    return {
        "decided_by": None if decision is None else decision.by,
        "reason": None if decision is None else decision.reason,
        "then": None if decision is None else decision.then,
        "edited_arguments": None if decision is None else decision.arguments,
    }


def _earlier(earlier: Earlier) -> EarlierShown:
    """Render what was decided about the same call before its session was forked."""
    decision = earlier.decision
    return {
        "session": earlier.session,
        "status": "APPROVED" if decision.is_approved else "REJECTED",
        "decided_ms": earlier.decided_ms,
        **decision_shown(decision),
    }


def _refused_again(refusal: AlreadyDecided) -> Response:
    approval = refusal.approval
    assert isinstance(approval, Approval), "it says so"
    decision = approval.decision
    assert decision is not None, "it is decided already"
    assert approval.decided_ms is not None, "a decision has its time"
    moment = iso_moment(approval.decided_ms)
    by = "" if decision.by is None else f" by {shorten(decision.by)!r}"
    status = "APPROVED" if decision.is_approved else "REJECTED"
    error: JSON = {
        "code": AlreadyDecided.code,
        "message": f"{approval.approval_id} was {status}{by} at {moment}; the first decision "
        "stands.",
        "hint": "To have it decided anew, roll the step back: its call then asks again.",
    }
    found: JSON = {"error": error, "approval": approval_json(approval, now_ms())}
    return json_response(found, AlreadyDecided.status)


def _read_choice(sent: dict[str, JSON], name: str, choices: tuple[str, ...]) -> str | None:
    value = sent.get(name)
    if value is None or (isinstance(value, str) and value in choices):
        return value
    raise _unexpected(name, value)


def _read_text(sent: dict[str, JSON], name: str, chars_max: int) -> str | None:
    value = sent.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > chars_max:
        raise _unexpected(name, value)
    return value.strip() or None


def _read_edit(sent: dict[str, JSON]) -> str | None:
    value = sent.get("arguments")
    if isinstance(value, dict):
        return encode(value).decode("ascii")
    if value is None or isinstance(value, str):
        return value
    raise _unexpected("arguments", value)


def _unexpected(name: str, value: JSON) -> BadRequest:
    return BadRequest(
        f'"{name}" must be {_KEYS[name].expects}; found {_found(value)}. Nothing was decided.',
        param=name,
    )


def _found(value: JSON) -> str:
    """Name what was sent without repeating more than a line of it."""
    match value:
        case None:
            return "nothing"
        case str():
            return f"{len(value)} characters" if len(value) > BY_CHARS_MAX else repr(shorten(value))
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return shorten(encode(value).decode("ascii"))


def read_arguments(text: str) -> tuple[JSON, tuple[str, ...]]:
    """Return the value of a JSON text, None where readers might differ on it, and keys in it that
    come twice."""
    try:
        return _shallow(parse(text.encode("utf-8", "surrogatepass"))), ()
    except BadRequest:  # for whatever reason: only now is it worth a second look
        return None, duplicate_keys(text)


def _shallow(value: JSON) -> JSON:
    """Return a value, or None if it is nested over `DEPTH_MAX` deep."""
    level = [value]
    for _ in range(DEPTH_MAX):
        level = [child for item in level for child in _children(item)]
        if not level:
            return value
    return None


def _children(value: JSON) -> Iterator[JSON]:
    if isinstance(value, dict):
        yield from value.values()
    elif isinstance(value, list):
        yield from value


async def _list_response(
    rows: Sequence[Approval], at_ms: int, headers: tuple[Pair, ...] = ()
) -> Response:
    def render() -> Response:
        # Row by row, so that the loop gets its turn between them: one call of the encoder for a
        # thousand held calls would keep the interpreter for tens of milliseconds.
        body = b",".join(encode(cast(JSON, approval_json(row, at_ms))) for row in rows)
        response = json_response([], headers=headers)
        response.body = b"[" + body + b"]"
        return response

    return await asyncio.to_thread(render)  # each has arguments of any length, three times
