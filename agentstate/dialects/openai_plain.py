"""What OpenAI's dialects without a conversation share: completions and embeddings build on it.

Their requests have no list that grows from call to call, no tools and no system text; so nothing of
them is pinned or masked, and a request is found by its exact fingerprint alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from agentstate.dialects import openai_errors
from agentstate.dialects.base import ErrorFacts
from agentstate.ground.canonical import JSON
from agentstate.ground.errors import AgentStateError


class OpenAIPlain:
    """The part of `base.Dialect` that is the same for all of them."""

    name: str
    paths: tuple[str, ...]
    shared_keys: tuple[str, ...]
    provider = "openai"
    counted_headers: tuple[bytes, ...] = ()
    list_key = ""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r})"

    def tool_result_blank(self, message: JSON) -> JSON | None:
        """Return None: there are no messages."""
        return None

    def tool_results(self, message: JSON) -> Sequence[tuple[str, JSON]]:
        """Return none: there are no messages."""
        return ()

    def masked(self, message: JSON, mask: Callable[[str], str]) -> JSON | None:
        """Return None: there are no messages."""
        return None

    def mask_envelope(
        self, envelope: dict[str, JSON], mask: Callable[[str], str]
    ) -> dict[str, JSON] | None:
        """Return None: there is no system text."""
        return None

    def error_body(self, error: AgentStateError) -> bytes:
        """Render an error of ours as a JSON body."""
        return openai_errors.error_body(error)

    def error_event(self, error: AgentStateError) -> bytes:
        """Render an error of ours as an event."""
        return openai_errors.error_event(error)

    def read_error(self, body: bytes) -> ErrorFacts | None:
        """Read an upstream's error."""
        return openai_errors.read_error(body)

    def mend_error_body(self, status: int, body: bytes) -> bytes | None:
        """Make an upstream's error body readable; None = it is."""
        return openai_errors.mend_error_body(status, body)
