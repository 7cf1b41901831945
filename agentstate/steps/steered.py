"""Who in a running proxy is told of what people do to runs. `control.py` has the verbs."""

from __future__ import annotations

from functools import partial

from agentstate.ground.control import Rollback
from agentstate.steps.air import Air
from agentstate.steps.control import SERVED_REMOVAL_S, Control
from agentstate.steps.recording import Services
from agentstate.steps.reruns import Reruns
from agentstate.steps.revisions import Revisions
from agentstate.steps.routing import Targets


def control_of(services: Services, air: Air) -> Control:
    """Return the verbs, with all told that keep something of a run in memory."""
    control = Control(services.store, removal_s=SERVED_REMOVAL_S)

    def deleted(session: str) -> None:
        air.drop(session)
        services.ladder.misses.forget(session)
        services.abouts.forget(session)
        services.gate.ring_session(session)
        services.pauses.ring(session)
        services.durables.ring(session)

    def resumed(session: str) -> None:
        services.pauses.ring(session)
        services.durables.ring(session)

    control.on_turn = partial(_note_turned, services, air)
    control.on_delete = deleted
    control.on_resume = resumed
    control.on_event = lambda: services.gate.on_event()
    control.in_the_air = services.ladder.in_the_air
    return control


def revisions_of(services: Services, air: Air, targets: Targets) -> Revisions:
    """Return what people do to answers, with the same told."""
    revisions = Revisions(services.store, Reruns(services, targets))
    revisions.on_turn = partial(_note_turned, services, air)
    revisions.is_in_air = air.has_step
    return revisions


def _note_turned(services: Services, air: Air, row: Rollback) -> None:
    """Take in that what replays is another: what is kept of those steps does not count."""
    air.turn(row.session, row.taken, row.returned)
    services.ladder.misses.forget(row.session)
    services.gate.ring_session(row.session)
