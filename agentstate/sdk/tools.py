"""`@agentstate.tool(session)`: makes a function a durable tool, which acts once however often its
agent is run again.

Theory of operation. Before the function is called the server is told ("begin"), after it what came
of it ("report"). The server says `run`, or what came of it in an earlier life of the agent. Each
life of the process is an owner with a name of its own, each begin has an id, so a begin that is
sent again is known as the same one; the same report again changes nothing. If the process dies in
between nobody knows whether the act happened, and the server asks a person.

What is sent is JSON: a replay gives what JSON gives back, so a tuple comes back as a list.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import json
import os
import secrets
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal, ParamSpec, Protocol, TypeVar, cast

from agentstate.sdk.address import DEFAULT_BASE_URL
from agentstate.sdk.management import Management, ProxyRefused, ServerUnreachable, segment
from agentstate.sdk.token import find_token

POLL_S = 20.0  # the server answers a begin that is held at the latest after this time
RESULT_CHARS_MAX = 4 * 1024 * 1024  # what the server takes

P = ParamSpec("P")
R = TypeVar("R")
Unknown = Literal["ask", "run", "skip"]


class ToolProblem(Exception):
    """Base of all that a durable tool raises by itself. `call` is the id of its call, if known."""

    def __init__(self, message: str, call: str | None = None) -> None:
        super().__init__(message)
        self.call = call


class ToolError(ToolProblem):
    """The function failed in an earlier run, and that is on record: it was not called again.

    `type` and `message` are those of the exception it raised then.
    """

    def __init__(self, type_name: str, message: str, call: str | None = None) -> None:
        super().__init__(f"{type_name}: {message}" if message else type_name, call)
        self.type = type_name
        self.message = message


class ToolRefused(ToolProblem):
    """A person or a rule refused the call. The text can be given to a model; `reason` is why."""

    def __init__(self, message: str, reason: str | None, call: str | None = None) -> None:
        super().__init__(message, call)
        self.reason = reason


class ToolUnknown(ToolProblem):
    """The call was begun before and nobody knows whether it happened; no person said in time."""


class ToolHeld(ToolProblem):
    """The call waits for a person, or for another process that runs it; not in time."""


class ToolUnreported(ToolProblem):
    """The function was called, and what came of it could not be put on record."""


class Session(Protocol):
    """One run in a session, which knows its server: `agentstate.Session`."""

    @property
    def id(self) -> str:
        """What the session is named."""
        ...

    @property
    def run_id(self) -> str:
        """One life of the agent."""
        ...

    @property
    def url(self) -> str:
        """The server's address, or a base URL that leads to it."""
        ...

    @property
    def token(self) -> str | None:
        """What it brings; None = nothing."""
        ...


class Decorator(Protocol):
    """Makes a function a durable tool of the same signature."""

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Wrap it."""
        ...


def tool(
    session: str | Session,
    *,
    name: str | None = None,
    key: Callable[..., str] | None = None,
    unknown: Unknown | None = None,
    on_reject: Literal["stop", "continue"] | None = None,
    on_refused: Literal["raise", "return"] = "raise",
    record_errors: bool = True,
    wait_s: float = 3600.0,
    lease_s: float | None = None,
    url: str | None = None,
    token: str | None = None,
) -> Decorator:
    """Make a function, sync or async, a durable tool of a session.

    ```python
    @agentstate.tool("invoice-1183")
    def charge_card(customer: str, cents: int) -> str:
        return bank.charge(customer, cents)
    ```

    name: as policies know it; the function's own name by default.
    key: a function of the same arguments that names one call, e.g. the number of an invoice. With
        it there is one call of that key, whatever the run; without it equal calls are counted.
    unknown: what becomes of a call that was begun and never reported, instead of `tools.unknown`.
    on_reject: what else follows if a person refuses it, instead of `gate.on_reject`.
    on_refused: "return" gives the text for the model instead of raising `ToolRefused`.
    record_errors: an exception is recorded, and an equal call of a later run raises `ToolError`
        with its type and text. False: it is not, and the next call tries again.
    wait_s: how long to wait for people and for other processes.
    lease_s: where processes share a session: how long another one waits for this call.
    session: an id, and then this process is the life of the agent; or a run in a session, which is
        one by itself, and knows its server and its token.
    url: the server; http://localhost:8080 by default.
    token: what an agent brings where the server asks for it; None = what AGENTSTATE_TOKEN says.

    The wrapped function raises:
        TypeError: an argument is nothing that JSON can say; it names it. Nothing was called.
        ServerUnreachable, ProxyRefused: the server did not let it begin. Nothing was called.
        ToolRefused, ToolUnknown, ToolHeld: nothing was called.
        ToolError: it failed in an earlier run; it was not called again.
        ToolUnreported: it was called, and the server could not be told what came of it.
    """
    session_id, owner, server = _at(session, url, token)
    said = {"unknown": unknown, "on_reject": on_reject, "lease_s": lease_s}

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        return _wrapped(
            function,
            _Tool(
                function=function,
                name=name or str(getattr(function, "__name__", "tool")),
                path=f"/api/sessions/{segment(session_id)}/tool-calls",
                server=server,
                owner=owner,
                key=key,
                said={word: value for word, value in said.items() if value is not None},
                returns_refusal=on_refused == "return",
                records_errors=record_errors,
                wait_s=wait_s,
            ),
        )

    return wrap


def _at(
    session: str | Session, url: str | None, token: str | None
) -> tuple[str, str | None, Management]:
    """Return the session's id, the owner of its calls, and the server."""
    if isinstance(session, str):
        return session, None, Management(url or DEFAULT_BASE_URL, find_token(token))
    brought = session.token if token is None else find_token(token)
    return session.id, session.run_id, Management(url or session.url, brought)


def _wrapped(function: Callable[P, R], durable: _Tool) -> Callable[P, R]:
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def act_async(*args: P.args, **kwargs: P.kwargs) -> Any:
            return await durable.call_async(args, kwargs)

        return cast("Callable[P, R]", act_async)

    @functools.wraps(function)
    def act(*args: P.args, **kwargs: P.kwargs) -> R:
        return cast(R, durable.call(args, kwargs))

    return act


@dataclass(slots=True)
class _Asked:
    """One begin."""

    body: dict[str, Any]
    equal: str  # what is the same of equal calls
    bound: inspect.BoundArguments


@dataclass(slots=True)
class _Told:
    """What the server said: how to end the call without calling, or with which arguments to."""

    call: str
    bound: inspect.BoundArguments | None  # None = it is not to be called
    value: Any = None  # what it gives then


@dataclass(slots=True)
class _Tool:
    """A durable function."""

    function: Callable[..., Any]
    name: str
    path: str
    server: Management
    owner: str | None  # None = this life of the process
    key: Callable[..., str] | None
    said: Mapping[str, Any]
    returns_refusal: bool
    records_errors: bool
    wait_s: float
    # Reports that did not arrive: they are sent before an equal call is begun.
    unreported: dict[str, tuple[str, dict[str, Any]]] = field(default_factory=dict)

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Begin, call, report."""
        asked = self._ask(args, kwargs)
        told = self._begin(asked)
        if told.bound is None:
            return told.value
        try:
            value = self.function(*told.bound.args, **told.bound.kwargs)
        except Exception as error:  # whatever it raises is an outcome
            self._report(asked, told.call, self._failed(error))
            raise
        except BaseException:  # an interrupt is none: it may have come before, in or after the act
            self._report_unknown(asked, told.call)
            raise
        self._report_value(asked, told.call, value)
        return value

    async def call_async(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The same; what waits for the server does so in a thread."""
        asked = self._ask(args, kwargs)
        told = await _Beginning(self, asked).told()
        if told.bound is None:
            return told.value
        try:
            value = await self.function(*told.bound.args, **told.bound.kwargs)
        except Exception as error:  # as above
            await asyncio.to_thread(self._report, asked, told.call, self._failed(error))
            raise
        except BaseException:  # as above, and so is being cancelled
            await asyncio.to_thread(self._report_unknown, asked, told.call)
            raise
        await asyncio.to_thread(self._report_value, asked, told.call, value)
        return value

    # --- before -------------------------------------------------------------------------------

    def _ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Asked:
        bound = inspect.signature(self.function).bind(*args, **kwargs)
        bound.apply_defaults()
        arguments = {name: _as_json(value, name) for name, value in bound.arguments.items()}
        body: dict[str, Any] = {
            "name": self.name,
            "arguments": arguments,
            "owner": self.owner or _owner_of(os.getpid()),
            "begin_id": secrets.token_hex(12),
            **self.said,
        }
        if self.key is not None:
            key = self.key(*bound.args, **bound.kwargs)
            if not isinstance(key, str) or not key:
                raise TypeError(f"key of {self.name} must give a text; found {key!r}")
            body["key"] = key
        equal = json.dumps([arguments, body.get("key")], sort_keys=True)
        return _Asked(body, equal, bound)

    def _begin(self, asked: _Asked) -> _Told:
        if (late := self.unreported.get(asked.equal)) is not None:
            return self._catch_up(asked, *late)
        left_s = self.wait_s
        while True:
            wait_s = max(min(left_s, POLL_S), 0.0)
            body = asked.body | {"wait_s": wait_s}
            found = self.server.post(self.path, body, wait_s=wait_s)
            left_s -= wait_s
            if found["state"] not in ("held", "unknown") or left_s <= 0:
                return self._told(asked, found)
            threading.Event().wait(0.05)  # a server that is being stopped does not wait

    def _told(self, asked: _Asked, found: dict[str, Any]) -> _Told:
        call = found["call"]
        match found["state"]:
            case "run":
                bound = asked.bound
                if found["arguments_are_edited"]:
                    bound = self._rebound(asked, call, found["arguments"])
                return _Told(call, bound)
            case "replay" if found["outcome"] == "error":
                raise _recorded(found["error"], call)
            case "replay":
                return _Told(call, None, found["result"])
            case "refused" if self.returns_refusal:
                return _Told(call, None, found["message"])
            case "refused":
                raise ToolRefused(found["message"], found["reason"], call)
            case "unknown":
                raise ToolUnknown(
                    f"{self.name} was begun before and never reported: nobody knows whether it "
                    f"happened. Look, then say so: agentstate tools settle {call} --happened (or "
                    "--not-happened, --skip), and run the agent again.",
                    call,
                )
            case _:
                why = {
                    "approval": f"a person has not decided ({found.get('approval_id')})",
                    "running": "another process is running it",
                    "pause": "its session is paused",
                }.get(found.get("held_by", ""), "it is held")
                raise ToolHeld(f"{self.name} was not called in {self.wait_s:g} s: {why}.", call)

    def _rebound(
        self, asked: _Asked, call: str, arguments: dict[str, Any]
    ) -> inspect.BoundArguments:
        """Return the arguments that a person gave instead."""
        signature = inspect.signature(self.function)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        left = dict(arguments)
        for name, parameter in signature.parameters.items():
            if parameter.kind is parameter.VAR_POSITIONAL:
                args.extend(left.pop(name, ()))
            elif parameter.kind is parameter.VAR_KEYWORD:
                kwargs.update(left.pop(name, {}))
            elif name in left and parameter.kind is parameter.KEYWORD_ONLY:
                kwargs[name] = left.pop(name)
            elif name in left:
                args.append(left.pop(name))
        try:
            bound = signature.bind(*args, **kwargs, **left)
        except TypeError as error:
            misfit = TypeError(f"a person edited the arguments of {self.name}, and {error}")
            self._report(asked, call, self._failed(misfit))
            raise misfit from error
        bound.apply_defaults()
        return bound

    # --- after --------------------------------------------------------------------------------

    def _report_value(self, asked: _Asked, call: str, value: Any) -> None:
        try:
            result = _as_json(value, "what it returned")
            if len(json.dumps(result)) > RESULT_CHARS_MAX:
                raise TypeError(f"what it returned is over {RESULT_CHARS_MAX} characters of JSON")
        except TypeError as error:
            # It has acted, so this is on record as how it ended: it must not act again.
            misfit = TypeError(f"{self.name}: {error}; a replay could not give it")
            self._report(asked, call, {"error": _described(misfit)})
            raise misfit from error
        self._report(asked, call, {"result": result})

    def _report_unknown(self, asked: _Asked, call: str) -> None:
        """Say that nobody knows, so that an equal call of this process meets it as well."""
        body = {"unknown": True, "owner": asked.body["owner"]}
        path = f"{self.path}/{segment(call)}/result"
        with suppress(ServerUnreachable, ProxyRefused):  # then the next life finds it so
            self.server.post(path, body, is_patient=False)

    def _failed(self, error: Exception) -> dict[str, Any]:
        body: dict[str, Any] = {"error": _described(error)}
        return body if self.records_errors else body | {"record": False}

    def _report(self, asked: _Asked, call: str, outcome: dict[str, Any]) -> None:
        body = outcome | {"owner": asked.body["owner"]}
        path = f"{self.path}/{segment(call)}/result"
        try:
            self.server.post(path, body)
        except (ServerUnreachable, ProxyRefused) as error:
            if isinstance(error, ServerUnreachable):
                self.unreported[asked.equal] = (call, outcome)
            if isinstance(error, ProxyRefused) and error.status == 409:  # e.g. it was settled
                mend = f"What stands there instead: agentstate tools show {call}."
            else:
                mend = (
                    "Do not call it again by hand. Once the server is back, an equal call of this "
                    "process reports it, or say so yourself: agentstate tools settle "
                    f"{call} --happened."
                )
            what = "failed" if "error" in outcome else "was called"
            raise ToolUnreported(
                f"{self.name} {what}, and that could not be put on record: {error} {mend}", call
            ) from error

    def _catch_up(self, asked: _Asked, call: str, outcome: dict[str, Any]) -> _Told:
        """Report what an equal call came to that could not be reported, instead of calling."""
        self._report(asked, call, outcome)
        del self.unreported[asked.equal]
        if "error" in outcome:
            raise _recorded(outcome["error"], call)
        return _Told(call, None, outcome["result"])

    def release(self, asked: _Asked, told: _Told) -> None:
        """Tell the server that a call which it let run was not run after all."""
        outcome = {"error": "cancelled before it was called", "record": False}
        self._report(asked, told.call, outcome)


class _Beginning:
    """A begin in a thread, for a coroutine that may be cancelled meanwhile.

    Whoever of the two comes second sees that a call which nobody will run is given back.
    """

    def __init__(self, durable: _Tool, asked: _Asked) -> None:
        self._durable = durable
        self._asked = asked
        self._lock = threading.Lock()
        self._is_left = False  # the coroutine was cancelled
        self._told: _Told | None = None

    async def told(self) -> _Told:
        """Return what the server said."""
        try:
            return await asyncio.to_thread(self._work)
        except asyncio.CancelledError:
            with self._lock:
                self._is_left = True
                told = self._told
            if told is not None and told.bound is not None:
                threading.Thread(target=self._durable.release, args=(self._asked, told)).start()
            raise

    def _work(self) -> _Told:
        told = self._durable._begin(self._asked)
        with self._lock:
            self._told = told
            is_left = self._is_left
        if is_left and told.bound is not None:
            self._durable.release(self._asked, told)
        return told


@functools.cache
def _owner_of(process_id: int) -> str:
    """Return the name of this life of the process; a forked child is another one."""
    return f"py-{process_id}-{secrets.token_hex(8)}"


def _recorded(error: Any, call: str) -> ToolError:
    """Return the error that is on record; other languages may have recorded any JSON."""
    if isinstance(error, dict) and isinstance(error.get("type"), str):
        return ToolError(error["type"], str(error.get("message", "")), call)
    return ToolError("Error", error if isinstance(error, str) else json.dumps(error), call)


def _described(error: Exception) -> dict[str, str]:
    return {"type": type(error).__name__, "message": str(error)[:10_000]}


def _as_json(value: Any, name: str) -> Any:
    """Return a value as JSON has it.

    Raises:
        TypeError: JSON cannot say it; the message names where.
    """
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if value != value or value in (float("inf"), float("-inf")):
                raise TypeError(f"{name} is {value}, which JSON cannot say")
            return value
        case list() | tuple():
            return [_as_json(item, f"{name}[{number}]") for number, item in enumerate(value)]
        case dict():
            for key in value:
                if not isinstance(key, str):
                    raise TypeError(f"{name} has the key {key!r}; keys of JSON are texts")
            return {key: _as_json(item, f"{name}.{key}") for key, item in value.items()}
    raise TypeError(f"{name} is a {type(value).__name__}, which JSON cannot say")
