"""What comes back from a cassette, on its way into the record. Values only, all frozen.

The counterparts are `house/cassette_import.py`, which makes them, and `store/base_tape.py`, which
keeps them.
"""

from __future__ import annotations

from dataclasses import dataclass

from agentstate.ground.records import Checkpoint, Claim

# The run that imported steps belong to. The run that asks for them is another, and so they answer
# it as the steps of any earlier run would.
TAPE_RUN = "cassette"


@dataclass(frozen=True, slots=True)
class TapedStep:
    """A step that was recorded elsewhere: what was asked, and what the agent got."""

    claim: Claim
    checkpoint: Checkpoint  # its `step_id` says nothing: the step has none yet


@dataclass(frozen=True, slots=True)
class TapedSession:
    """A session that was recorded elsewhere; it has a step."""

    session: str
    steps: tuple[TapedStep, ...]  # in order
