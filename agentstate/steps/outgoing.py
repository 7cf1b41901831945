"""A recorded call as it is sent: with what its model has not seen yet put in, and with all at hand
that its upstream may not know."""

from __future__ import annotations

from agentstate.steps.call import Call
from agentstate.steps.chains import write_out
from agentstate.steps.leg import Outgoing
from agentstate.steps.recording import Services


async def outgoing(services: Services, call: Call, step_id: int | None) -> Outgoing:
    """Return what goes to the targets of a call; `step_id`: of its row, None = it has none.

    Raises:
        StoreError: the record cannot be read.
    """
    spliced = await services.splices.applied(call, step_id)
    whole = await write_out(services.store, call)
    return Outgoing(
        dialect=call.dialect,
        ask=call.ask,
        headers=call.headers,
        path=call.path,
        query=call.query,
        raw=call.raw,
        changed=spliced.body,
        missed=spliced.missed,
        write_out=whole.body,
        kept_by=whole.kept_by,
    )
