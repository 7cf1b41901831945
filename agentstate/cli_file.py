"""The record in its file, for the verbs, where no server runs.

The same endpoints that a server has answer here in this process, so that a verb sees no difference.
The file is opened as a server opens it: under its lock, so never beside one.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

from agentstate.cli_server import TIMEOUT_S, Answer, Record, RemoteRecord, ServerSilent, read_answer
from agentstate.doors.api.approvals import ApprovalEndpoints
from agentstate.doors.api.budget import BudgetEndpoints
from agentstate.doors.api.cassettes import CassetteEndpoints
from agentstate.doors.api.control import ControlEndpoints
from agentstate.doors.api.durable import DurableEndpoints
from agentstate.doors.api.export import ExportEndpoints
from agentstate.doors.api.forks import ForkEndpoints
from agentstate.doors.api.recovery import RecoveryEndpoints
from agentstate.doors.api.reply import error_reply
from agentstate.doors.api.retention import RetentionEndpoints
from agentstate.doors.api.revisions import RevisionEndpoints
from agentstate.doors.api.sessions import SessionEndpoints
from agentstate.doors.api.tool_calls import ToolCallEndpoints
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.clock import monotonic_s
from agentstate.ground.errors import AgentStateError, StoreBusy, TooLarge
from agentstate.ground.load import load_settings
from agentstate.ground.redaction import Redactor
from agentstate.ground.settings import Settings, read_environment
from agentstate.house.retention import Retention
from agentstate.steps.budget import Budgets
from agentstate.steps.control import Control
from agentstate.steps.durable import Durables
from agentstate.steps.gate import Gate
from agentstate.steps.policy import Policy
from agentstate.steps.revisions import Revisions
from agentstate.store import open_store
from agentstate.wire.endpoint import Endpoint, Params, Router
from agentstate.wire.message import Abort, Headers, Pair, Request, Response, split_target


@contextmanager
def open_record(url: str, *, falls_back: bool, config: Path | None = None) -> Iterator[Record]:
    """Open the record of the server at `url`; with `falls_back` the configured file if none is.

    Raises:
        ServerSilent: neither is there.
        SettingError: the URL or the configuration is wrong.
        StoreBusy: a server elsewhere holds the file.
    """
    remote = RemoteRecord(url)
    try:
        remote.get("/api/sessions?limit=1")
    except ServerSilent as error:
        if not falls_back:
            raise
        settings = load_settings({}, read_environment(), Path.cwd(), config).settings
        path = Path(settings.store.path.removeprefix("sqlite://"))
        if not path.is_file():  # else opening it would make it
            raise ServerSilent(f"{error.message} There is no file {path} to read either.") from None
    else:
        yield remote
        return
    with _open_file(settings, url) as local:
        yield local


class FileRecord:
    """The record in a file that no server holds."""

    def __init__(self, place: str, router: Router, runner: asyncio.Runner) -> None:
        self.place = place
        self._router = router
        self._runner = runner

    def get(self, target: str) -> Answer:
        """See `Record.get`."""
        return self._ask(_LocalRequest("GET", target))

    def post(self, target: str, value: JSON, timeout_s: float = TIMEOUT_S) -> Answer:
        """See `Record.post`."""
        return self._ask(_LocalRequest("POST", target, encode(value)))

    def patch(self, target: str, value: JSON) -> Answer:
        """See `Record.patch`."""
        return self._ask(_LocalRequest("PATCH", target, encode(value)))

    def delete(self, target: str, value: JSON) -> Answer:
        """See `Record.delete`."""
        return self._ask(_LocalRequest("DELETE", target, encode(value)))

    def send_file(self, target: str, body: bytes, media_type: str) -> Answer:
        """See `Record.send_file`."""
        return self._ask(_LocalRequest("POST", target, body, media_type))

    def stream(self, target: str) -> Generator[bytes, None, None]:
        """See `Record.stream`."""
        response = self._respond(_LocalRequest("GET", target))
        if isinstance(response.body, bytes):
            if response.status != 200:
                read_answer(response.status, response.body, None)
            yield response.body
            return
        body = response.body
        try:
            while chunk := self._runner.run(_next_of(body)):
                yield chunk
        except Abort as error:
            raise ServerSilent(f"{self.place} could not be read to its end.") from error
        finally:
            self._runner.run(_close(body))

    def _ask(self, request: _LocalRequest) -> Answer:
        response = self._respond(request)
        body = response.body
        raw = body if isinstance(body, bytes) else b"".join(self.stream(request.target.decode()))
        cursors = [value for name, value in response.headers if name == b"x-next-cursor"]
        return read_answer(response.status, raw, cursors[0].decode() if cursors else None)

    def _respond(self, request: _LocalRequest) -> Response:
        try:
            endpoint, params = self._router.find(request.method, request.path)
            return self._runner.run(_answer(endpoint, request, params))
        except AgentStateError as error:
            return error_reply(error)


async def _answer(endpoint: Endpoint, request: Request, params: Params) -> Response:
    return await endpoint.handler(request, params)


async def _next_of(body: AsyncIterator[bytes]) -> bytes:
    """Return what comes next; b'' = nothing does."""
    return await anext(body, b"")


async def _close(body: AsyncIterator[bytes]) -> None:
    close = getattr(body, "aclose", None)
    if close is not None:
        await close()


@contextmanager
def _open_file(settings: Settings, url: str) -> Iterator[FileRecord]:
    store = open_store(settings.store)
    gate = Gate(store, settings.gate, Policy(settings.gate))
    control = Control(store)
    budgets = Budgets(store, gate, settings.budget)
    router = Router(
        (
            *SessionEndpoints(store, budgets).rows(),
            *ToolCallEndpoints(store).rows(),
            *RecoveryEndpoints(store).rows(),
            *ControlEndpoints(store, control).rows(),
            *BudgetEndpoints(store, budgets).rows(),
            *ForkEndpoints(store, control).rows(),
            *RevisionEndpoints(store, Revisions(store)).rows(),
            *DurableEndpoints(store, Durables(store, gate, settings)).rows(),
            *ExportEndpoints(store, Redactor(settings.secrets, settings.redact.patterns)).rows(),
            *CassetteEndpoints(store, control, lambda: settings.secrets).rows(),
            *ApprovalEndpoints(store, gate).rows(),
            *RetentionEndpoints(Retention(store, settings.store, control.retire)).rows(),
        )
    )
    with asyncio.Runner() as runner:
        try:
            runner.run(store.open())
        except StoreBusy as error:
            raise StoreBusy(
                f"No AgentState server answers at {url}, and another one holds the file: "
                f"{error.message}",
                hint="Say with --url where it listens.",
            ) from error
        try:
            yield FileRecord(settings.store.path, router, runner)
        finally:
            runner.run(store.close())


class _LocalRequest:
    """A `wire.message.Request` that came over no wire."""

    def __init__(
        self, method: str, target: str, body: bytes = b"", media_type: str = "application/json"
    ) -> None:
        self.method = method
        self.target = target.encode("ascii")
        self.path, self.query = split_target(self.target)
        pairs: tuple[Pair, ...] = ((b"content-type", media_type.encode()),) if body else ()
        self.headers = Headers(pairs)
        self.peer = ""
        self.started_s = monotonic_s()
        self._body = body

    async def body(self, bytes_max: int) -> bytes:
        """Return the body."""
        if len(self._body) > bytes_max:
            raise TooLarge(f"This is over {bytes_max} bytes; send less.")
        return self._body

    def forget_body(self) -> None:
        """It is as small as what a person types."""

    async def stream(self) -> AsyncIterator[bytes]:
        """Yield the body."""
        yield self._body

    async def gone(self) -> None:
        """Wait: who asks does not leave."""
        await asyncio.Event().wait()

    def is_gone(self) -> bool:
        """Say no: who asks does not leave."""
        return False

    def on_gone(self, callback: Callable[[], None]) -> None:
        """Drop the callback: who asks does not leave."""

    def send_interim(self, status: int) -> None:
        """Send nothing: nobody's patience ends."""
