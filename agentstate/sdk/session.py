"""One session for all clients of an agent: one run, one numbering, and how it ended.

    with agentstate.session("invoice-run-42") as run:
        client = run.openai()
        ...

A clean end makes the session COMPLETED, an error FAILED. Who is stopped from outside (Ctrl-C, exit,
a cancelled task) has not failed: nothing is said, and the run goes on where it was when it is
started again.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, ParamSpec, Self, TypeVar, overload

from agentstate.sdk.address import DEFAULT_BASE_URL
from agentstate.sdk.management import Management, ProxyRefused, ServerUnreachable, segment
from agentstate.sdk.missing import load
from agentstate.sdk.run import OnReject, ReplayMode, Run

if TYPE_CHECKING:
    from agentstate.sdk.anthropic_clients import AgentStateAnthropic, AsyncAgentStateAnthropic
    from agentstate.sdk.openai_clients import AgentStateOpenAI, AsyncAgentStateOpenAI
    from agentstate.sdk.tools import Decorator

REASON_CHARS_MAX = 1000  # what the management API takes
NOT_FOUND = 404

P = ParamSpec("P")
R = TypeVar("R")


class Session:
    """A session, seen from the agent: makes its clients and says how it ended."""

    def __init__(
        self,
        session_id: str,
        *,
        base_url: str = DEFAULT_BASE_URL,
        api_key: str | None = None,
        step_number: int = 0,
        run_id: str | None = None,
        require_approval: bool = False,
        fallback_model: str | Iterable[str] | None = None,
        replay: ReplayMode | None = None,
        on_reject: OnReject | None = None,
        name: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        token: str | None = None,
    ) -> None:
        """Begin a run; `api_key` is for the clients it makes, None = as they find one.

        `token`: None = what AGENTSTATE_TOKEN says, an empty one = none. `run_id`: None = a new one.
        One that is given must be new for each life of the agent: by it the second of two equal
        calls is told from the same call of a second life.

        Raises:
            ValueError: an id, a number or a text that no header can carry.
        """
        self._api_key = api_key
        self.run = Run(
            session_id,
            base_url=base_url,
            step_number=step_number,
            run_id=run_id,
            require_approval=require_approval,
            fallback_model=fallback_model,
            replay=replay,
            on_reject=on_reject,
            name=name,
            parent=parent,
            tags=tags,
            token=token,
        )
        self._server = Management(self.url, self.token)

    @property
    def id(self) -> str:
        """What it is named."""
        return self.run.session_id

    @property
    def run_id(self) -> str:
        """This life of the agent."""
        return self.run.run_id

    @property
    def token(self) -> str | None:
        """What its calls bring where the server asks for it; None = nothing."""
        return self.run.token

    @property
    def url(self) -> str:
        """Where the proxy is."""
        return self.run.address.url

    @property
    def base_url(self) -> str:
        """What OpenAI's clients take as their base URL."""
        return self.run.address.base_url

    @property
    def anthropic_base_url(self) -> str:
        """What Anthropic's clients take: the same without /v1."""
        return self.run.address.anthropic_base_url

    def constant_headers(self) -> dict[str, str]:
        """Return the headers that all calls of this run may have in common.

        For clients that take headers once. The n-th time they ask a thing they get the n-th answer;
        two that ask the same thing at the same time get one answer.
        """
        return self.run.constant_headers()

    def headers(self) -> dict[str, str]:
        """Return the headers of one call: call it for each anew, and not for a retry.

        >>> session = Session("invoice-run-42", step_number=7)
        >>> session.headers()["x-agent-step-number"], session.headers()["x-agent-step-number"]
        ('7', '8')
        """
        return {**self.run.constant_headers(), **self.run.call_headers()}

    # --- clients ----------------------------------------------------------------------------

    def openai(self, **options: Any) -> AgentStateOpenAI:
        """Make an `openai.OpenAI` of this run; `options` are the real client's."""
        client: AgentStateOpenAI = self._client(
            "openai", "AgentStateOpenAI", self.base_url, options
        )
        return client

    def async_openai(self, **options: Any) -> AsyncAgentStateOpenAI:
        """Make an `openai.AsyncOpenAI` of this run."""
        client: AsyncAgentStateOpenAI = self._client(
            "openai", "AsyncAgentStateOpenAI", self.base_url, options
        )
        return client

    def anthropic(self, **options: Any) -> AgentStateAnthropic:
        """Make an `anthropic.Anthropic` of this run."""
        client: AgentStateAnthropic = self._client(
            "anthropic", "AgentStateAnthropic", self.anthropic_base_url, options
        )
        return client

    def async_anthropic(self, **options: Any) -> AsyncAgentStateAnthropic:
        """Make an `anthropic.AsyncAnthropic` of this run."""
        client: AsyncAgentStateAnthropic = self._client(
            "anthropic", "AsyncAgentStateAnthropic", self.anthropic_base_url, options
        )
        return client

    def _client(self, package: str, name: str, base_url: str, options: dict[str, Any]) -> Any:
        module = load(f"agentstate.sdk.{package}_clients", package, f"A client for {package}")
        given = {"api_key": self._api_key, "base_url": base_url, **options}
        return getattr(module, name)(_run=self.run, **given)

    # --- tools ------------------------------------------------------------------------------

    @overload
    def tool(self, function: Callable[P, R], /) -> Callable[P, R]: ...

    @overload
    def tool(self, /, **options: Any) -> Decorator: ...

    def tool(self, function: Callable[..., Any] | None = None, /, **options: Any) -> Any:
        """Make a function a durable tool of this run: `@run.tool`, or `@run.tool(key=...)`.

        `options` are those of `agentstate.tool`.
        """
        from agentstate.sdk.tools import tool  # few agents have one

        decorate = tool(self, **options)
        return decorate if function is None else decorate(function)

    # --- how it ended -----------------------------------------------------------------------

    def complete(self) -> None:
        """Say that the run is done.

        Raises:
            ServerUnreachable: the proxy is not there.
            ProxyRefused: it says no, for example since it knows no such session.
        """
        self._say({"status": "COMPLETED"})

    def fail(self, reason: str) -> None:
        """Say that the run failed, and why, which whoever watches is told.

        Raises:
            ServerUnreachable: the proxy is not there.
            ProxyRefused: it says no, for example since it knows no such session.
        """
        self._say({"status": "FAILED", "reason": reason[:REASON_CHARS_MAX]})

    def _say(self, change: dict[str, Any]) -> None:
        self._server.patch(f"/api/sessions/{segment(self.id)}", change)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if error is None:
                self.complete()
            elif isinstance(error, Exception):
                self.fail(_told(error))
        except (ProxyRefused, ServerUnreachable) as fault:
            if isinstance(fault, ProxyRefused) and fault.status == NOT_FOUND:
                return  # it made no call, so there is nothing that could end
            # The agent's own end counts: it is neither undone nor hidden by what came after it.
            if error is None:
                warnings.warn(f"The session was not marked COMPLETED. {fault}", stacklevel=2)
            else:
                error.add_note(f"The session was not marked FAILED. {fault}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)


def session(session_id: str, **options: Any) -> Session:
    """Begin a run in a session; `options` are those of `Session`.

    >>> session("invoice-run-42").base_url
    'http://localhost:8080/v1'
    """
    return Session(session_id, **options)


def _told(error: Exception) -> str:
    said = str(error)
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
