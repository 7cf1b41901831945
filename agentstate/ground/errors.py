"""What can go wrong, as values with a stable code.

    AgentStateError
    ├── ClientError            the caller asked wrongly: 4xx, a retry cannot help
    │   ├── Deleted            410  the session was deleted while the call waited
    │   ├── BadRequest         400  not JSON, no messages, duplicate keys, odd step number
    │   ├── NotFound           404  no such session, step, endpoint
    │   │   └── OfflineMiss         replay.offline is on, and it is not on record
    │   ├── MethodNotAllowed   405
    │   ├── Conflict           409  the thing is not in a state for that
    │   │   ├── AlreadyDecided      an approval has its decision; the first one stands
    │   │   └── RolledBack          a held call's step was rolled back: a retry asks anew
    │   ├── TooLarge           413  body, header or frame over its named limit
    │   ├── UnsupportedCoding  415  a Content-Encoding that cannot be read here
    │   ├── Unauthorized       401  a token is needed
    │   ├── Forbidden          403  Host or Origin check failed, or the token may not do this
    │   ├── TooManyTries       429  too many wrong tokens came from one address
    │   └── RequestTimeout     408  the client was too slow in sending
    ├── GateError              the gate does not let the call through; a retry cannot help
    │   ├── HumanRejection     403  a person refused it
    │   ├── PolicyRejection    403  a rule refused it
    │   ├── ApprovalTimeout    408  nobody decided in time
    │   ├── BudgetReached      429  its session may not pay for more
    │   └── UngatedPath        403  tool calls cannot be held on this path
    ├── UpstreamError          a target failed: mostly 502 and 504
    │   ├── ConnectFailed      nothing was sent; another try is free
    │   ├── UpstreamTimeout    504  connect, first byte, gap or total limit
    │   ├── UpstreamCut        the answer stopped in the middle
    │   ├── UpstreamProtocol   what came was not HTTP, or not decodable
    │   │   └── AnswerTooLong      it cannot be recorded; a retry cannot help
    │   ├── UpstreamRefused    an HTTP error status, or an error inside a 200
    │   └── NotAnAnswer        a 200 that is no complete answer of its dialect
    ├── Stopping               the proxy is being stopped: 503, a retry finds the next one
    ├── StoreError             our disk failed: 503, nothing was paid
    │   └── StoreBusy          a second server holds the file
    └── SettingError           the configuration is wrong: refuse to start

Our own bugs are `AssertionError` or whatever they are: logged whole, shown as `internal`.
A message says what was expected, what was found, where, and what to do. It never holds a key, a
prompt or an answer; values are cut by `shorten`.
"""

from __future__ import annotations

VALUE_CHARS_MAX = 80  # long enough to recognise a value, short enough for one log line


class AgentStateError(Exception):
    """Base of all errors that are meant. Not raised itself."""

    code = "internal"
    status = 500
    retry_helps = False  # False renders `x-should-retry: false`

    def __init__(self, message: str, *, param: str | None = None, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param  # the field or header at fault; None = not one field
        self.hint = hint  # what to do, where the message does not say it; None = it does


class ClientError(AgentStateError):
    """They asked wrongly."""

    code = "invalid_request"
    status = 400


class BadRequest(ClientError):
    """The request cannot be understood."""


class NotFound(ClientError):
    """What was named does not exist."""

    code = "not_found"
    status = 404


class OfflineMiss(NotFound):
    """Nothing on record answers the call, and `replay.offline` says that nobody else is asked."""

    code = "offline_miss"


class MethodNotAllowed(ClientError):
    """The path exists, the method does not; `allowed` are those that do."""

    code = "method_not_allowed"
    status = 405

    def __init__(self, message: str, *, allowed: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.allowed = allowed


class Conflict(ClientError):
    """The thing exists and is not in a state for that."""

    code = "conflict"
    status = 409


class AlreadyDecided(Conflict):
    """An approval has its decision. `approval` is the `ground.approvals.Approval` that stands."""

    code = "already_decided"

    def __init__(self, message: str, *, approval: object, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.approval = approval


class RolledBack(Conflict):
    """The step of a call that waited for a decision was rolled back: the same call asks anew."""

    code = "rolled_back"
    retry_helps = True


class Deleted(ClientError):
    """The session of a call was deleted while it waited. Asked again it begins a new session, so
    that is left to who runs the agent."""

    code = "session_deleted"
    status = 410

    @classmethod
    def of(cls, session: str) -> Deleted:
        """Make the error of a call of this session."""
        return cls(
            f"Session {shorten(session)!r} was deleted while this call waited; nothing of it is on "
            "record. The same call asked again begins a new, empty session of that name."
        )


class TooLarge(ClientError):
    """A body, header or frame is over its named limit."""

    code = "too_large"
    status = 413


class UnsupportedCoding(ClientError):
    """The body carries a Content-Encoding that cannot be read here."""

    code = "unsupported_encoding"
    status = 415


class Unauthorized(ClientError):
    """No token was brought where one is needed, or one that is not ours."""

    code = "unauthorized"
    status = 401


class TooManyTries(ClientError):
    """Too many wrong tokens came from one address."""

    code = "too_many_tries"
    status = 429


class Forbidden(ClientError):
    """A Host or Origin check failed, or the token may not do this."""

    code = "forbidden"
    status = 403


class RequestTimeout(ClientError):
    """The client was too slow in sending its request."""

    code = "request_timeout"
    status = 408


class GateError(AgentStateError):
    """The gate does not let the call through. `approval_id` None = there was none to decide."""

    code = "gate_refused"
    status = 403

    def __init__(self, message: str, *, approval_id: str | None = None) -> None:
        super().__init__(message)
        self.approval_id = approval_id


class HumanRejection(GateError):
    """A person refused it."""

    code = "human_rejection"


class PolicyRejection(GateError):
    """A rule refused it."""

    code = "policy_rejection"


class ApprovalTimeout(GateError):
    """Nobody decided in time."""

    code = "approval_timeout"
    status = 408


class BudgetReached(GateError):
    """The session has come to one of its caps, and the setting is to refuse."""

    code = "budget_reached"
    status = 429


class UngatedPath(GateError):
    """Tool calls cannot be held on this path, and `gate.strict` is on."""

    code = "ungated_path"


class UpstreamError(AgentStateError):
    """A target failed. `upstream_status` is what it said; None = it did not get that far."""

    code = "upstream_error"
    status = 502
    retry_helps = True

    def __init__(
        self,
        message: str,
        *,
        upstream_status: int | None = None,
        provider: str | None = None,
        param: str | None = None,
        hint: str | None = None,
    ) -> None:
        super().__init__(message, param=param, hint=hint)
        self.upstream_status = upstream_status
        self.provider = provider


class ConnectFailed(UpstreamError):
    """No connection could be made: nothing was sent, another try is free."""

    code = "upstream_unreachable"


class UpstreamTimeout(UpstreamError):
    """One of the limits passed: `limit` is connect, first_byte, gap or total."""

    code = "upstream_timeout"
    status = 504

    def __init__(self, message: str, *, limit: str, provider: str | None = None) -> None:
        super().__init__(message, provider=provider)
        self.limit = limit


class UpstreamCut(UpstreamError):
    """The answer stopped in the middle: reset, early end, or fewer bytes than announced."""

    code = "upstream_cut"


class UpstreamProtocol(UpstreamError):
    """What came was not HTTP, or its coding could not be decoded."""

    code = "upstream_protocol"


class AnswerTooLong(UpstreamProtocol):
    """The answer is longer than can be recorded. It was paid, and would be again."""

    code = "answer_too_long"
    retry_helps = False


class UpstreamRefused(UpstreamError):
    """The target answered with an error: an HTTP error status, or an error inside a 200."""

    code = "upstream_refused"


class NotAnAnswer(UpstreamError):
    """A 200 that is no complete answer of its dialect: an HTML page, no finish reason, all null."""

    code = "incomplete_answer"


class Stopping(AgentStateError):
    """The proxy is being stopped, and the call waits for a person: it goes on when asked again."""

    code = "stopping"
    status = 503
    retry_helps = True


class StoreError(AgentStateError):
    """Our disk failed. Raised before anything is paid wherever that is possible."""

    code = "store_unavailable"
    status = 503
    retry_helps = True


class StoreBusy(StoreError):
    """A second server was started on a file that another one holds."""

    code = "store_busy"


class SettingError(AgentStateError):
    """The configuration is wrong; the message names file, line and the nearest known key."""

    code = "bad_setting"


def shorten(value: object, chars_max: int = VALUE_CHARS_MAX) -> str:
    """Render a value for a message: `repr`, cut to `chars_max` characters with a mark."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= chars_max else text[: chars_max - 1] + "…"
