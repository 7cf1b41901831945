"""Names each call of a client that takes an HTTP client of ours, as LangChain's do.

There a call is seen once a try. OpenAI's SDK says which try a request is, and makes all tries of a
call in one thread, or one task: so what the first try was named is found again in its context.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

from agentstate.sdk.run import CALL, SESSION, STEP_NUMBER, Run, is_step

RETRY_COUNT = "x-stainless-retry-count"

# The last call that began here: its run, and what it said of itself.
_begun: ContextVar[tuple[Run, dict[str, str]] | None] = ContextVar("begun", default=None)


class Hooks:
    """What an `httpx` client calls with each request."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def stamp(self, request: Any) -> None:
        """Add the id and the number of the call to an `httpx.Request`; what it has stands."""
        headers = request.headers
        if CALL in headers or not is_step(request.method, request.url.path):
            return
        if headers.get(SESSION, self._run.session_id) != self._run.session_id:
            return
        begun = _begun.get()
        if headers.get(RETRY_COUNT, "0") in ("0", ""):
            begun = (self._run, self._run.call_headers())
            _begun.set(begun)
        elif begun is None or begun[0] is not self._run:
            return  # the proxy knows a retry by its count
        for name, value in begun[1].items():
            if name != STEP_NUMBER or name not in headers:
                headers[name] = value

    async def stamp_async(self, request: Any) -> None:
        """Do the same for an asynchronous client."""
        self.stamp(request)
