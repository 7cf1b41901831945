"""A call that names a session, read and identified: what all steps after that work on."""

from __future__ import annotations

from dataclasses import dataclass, replace

from agentstate.dialects.base import Ask, Dialect
from agentstate.ground.records import Identity, RequestRecord
from agentstate.ground.redaction import NOTHING_KNOWN, Redactor
from agentstate.steps.identify import Caller, Sought, message_digest
from agentstate.steps.policy import Policy
from agentstate.steps.target import Target
from agentstate.wire.message import Headers


@dataclass(frozen=True, slots=True)
class Entry:
    """How a call came in: what its URL said."""

    dialect: Dialect
    path: str  # below the base, e.g. /v1/chat/completions
    query: str
    url_session: str | None = None  # None = not named in the URL
    url_provider: str | None = None


@dataclass(frozen=True, slots=True)
class Call:
    """A call that names a session, read and identified."""

    dialect: Dialect
    path: str  # below the base, e.g. /v1/chat/completions
    query: str
    headers: Headers
    started_s: float
    arrived_ms: int  # see `Ladder.moment`
    caller: Caller
    ask: Ask
    raw: bytes  # the body as received
    identity: Identity
    record: RequestRecord
    targets: tuple[Target, ...]  # in the order they are tried; there is a first
    skipped: tuple[str, ...]  # fallbacks that cannot be asked, each with the reason, for people
    # The body names a guarded tool, so the answer's text may spell a call of it.
    names_guarded: bool
    policy: Policy  # in force when it came: what becomes of it follows from this one alone
    is_fetch: bool = False  # it names an answer by its id, so nothing can be asked in its place
    redactor: Redactor = NOTHING_KNOWN  # takes out what nothing on record may have: its keys, too

    @property
    def target(self) -> Target:
        """The target that was asked for."""
        return self.targets[0]

    def slim(self) -> Call:
        """Return the call without what is large in it and on record: it may wait for hours.

        A body with secrets is on record without them. It is kept, where a model may have to be
        told how a person decided: that one needs what the agent sent.
        """
        may_be_held = self.names_guarded or self.ask.has_hidden_part
        keeps_body = may_be_held and self.redactor.finds(self.ask.body)
        body = self.ask.body if keeps_body else {}
        ask = replace(self.ask, messages=(), envelope={}, body=body)
        record = RequestRecord(envelope={}, shared=(), list_key="", chain=())
        return replace(self, ask=ask, raw=b"", record=record)

    def sought(self) -> Sought:
        """Return the call as the ladder needs it."""
        chain = tuple(part.digest for part in self.record.chain)
        return Sought(
            dialect=self.dialect,
            caller=self.caller,
            identity=self.identity,
            ask=self.ask,
            # A text that stands for a message is in no recorded chain, but begins a conversation.
            chain=chain or tuple(map(message_digest, self.ask.messages)),
            goes_to_mock=self.target.is_mock,
            redactor=self.redactor,
        )
