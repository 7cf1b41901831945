"""What makes a client of others one of ours: each call says which session, run and call it is.

Mixed into the real classes, in front of them. The hook is `request`, through which every call of
these clients goes once, whatever its form (raw, streaming, parsed, a page of a list); their own
tries of one call come after it, with the headers it was given. They have no public hook that is
called once a call: `_prepare_options` is called for each try.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from agentstate.sdk.address import DEFAULT_BASE_URL, Address
from agentstate.sdk.run import OnReject, ReplayMode, Run, is_step


class Stamping:
    """A client whose calls belong to a run."""

    def __init__(
        self,
        session_id: str | None = None,
        *,
        step_number: int = 0,
        base_url: str = DEFAULT_BASE_URL,
        api_key: Any = None,
        require_approval: bool = False,
        fallback_model: str | Iterable[str] | None = None,
        run_id: str | None = None,
        replay: ReplayMode | None = None,
        on_reject: OnReject | None = None,
        name: str | None = None,
        parent: str | None = None,
        tags: Mapping[str, str] | None = None,
        token: str | None = None,
        _run: Run | None = None,
        **options: Any,
    ) -> None:
        """Begin a run in the session `session_id`.

        `step_number` is the number of the first call; the others count up from there. `run_id` None
        means a run of this client's own, `token` None what the environment says. `options` are the
        real client's.

        Raises:
            ValueError: no session, or one that cannot be.
        """
        if _run is None:
            if session_id is None:
                raise ValueError(
                    "session_id must name the agent's run: by it the run is found again. "
                    'For example session_id="invoice-run-42".'
                )
            _run = Run(
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
            base_url = self._base_url_at(_run.address)
        self._agentstate_run = _run
        real: Any = super()
        real.__init__(base_url=base_url, api_key=api_key, **options)

    @property
    def session_id(self) -> str:
        """The session its calls belong to."""
        return self._agentstate_run.session_id

    @property
    def run_id(self) -> str:
        """The run its calls belong to."""
        return self._agentstate_run.run_id

    @staticmethod
    def _base_url_at(address: Address) -> str:
        return address.base_url

    # Type checkers see the real client's methods, which have many forms.
    if not TYPE_CHECKING:

        def request(self, cast_to, options, *arguments, **named):
            """Make one call, in as many tries as it takes."""
            given = options.headers if isinstance(options.headers, Mapping) else {}
            stamp = self._agentstate_run.stamp(
                (*given, *self.default_headers), is_step=is_step(options.method, options.url)
            )
            stamped = copy.copy(options)
            stamped.headers = {**stamp, **given}
            return super().request(cast_to, stamped, *arguments, **named)

        @property
        def user_agent(self):
            """The real client's, by which the proxy knows what a client can take."""
            return super().user_agent.replace("AgentState", "", 1)

        def copy(self, *, _extra_kwargs=None, **options):
            """Make a client with other options, in the same run."""
            extra = {**(_extra_kwargs or {}), "_run": self._agentstate_run}
            return super().copy(_extra_kwargs=extra, **options)

        with_options = copy
