"""Where the steps of a session stand among its conversations; what export asks the store for.

A *place* names a list of messages from the first on: requests that begin with the same messages
share the places of these. Places are opaque and stay what they are while a record is open.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.ground.canonical import JSON


@dataclass(frozen=True, slots=True)
class Lineage:
    """A step that has an answer on record, and where its request stands."""

    step_id: int
    index: int
    dialect: str
    is_mock: bool
    is_rolled_back: bool
    answer_id: int  # of the answer that replays, else of the last one that was taken back
    is_taken_back: bool
    provider: str
    finish_reason: str | None
    cost_microusd: int | None
    # The provider's ids of the answer and of the rounds after it.
    response_ids: tuple[str, ...]
    # Of approvals of the answer and its rounds, those left out that ask about a further release:
    is_waiting: bool  # one is not decided
    is_decided: bool  # one is
    is_touched: bool  # one is, and not by a rule
    is_edited: bool  # a person wrote the answer
    envelope_id: int  # two with the same differ in their messages alone
    envelope: JSON  # the rest of the request's body, as in `RequestRecord`
    place: int  # of all messages of the request; 0 = it has no list of messages
    # The places of ever fewer of them, the longest first; at most `PLACES_MAX`. Fewer than that =
    # these are all.
    above: tuple[int, ...]


# A call mostly adds an answer and a few results to one before it.
PLACES_MAX = 6
