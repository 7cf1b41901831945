"""The gate after the checkpoint, as the pipeline uses it: is there a hold, and answer through it.

Fresh and replayed answers come through here alike. What waits is the delivery to one client, never
the call: that is on record already, so a client that leaves, or a restart, costs nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agentstate.ground.canonical import encode
from agentstate.ground.records import Candidate, RecordedAnswer
from agentstate.steps import aside
from agentstate.steps.call import Call
from agentstate.steps.delivery import (
    Delivery,
    heartbeat_s,
    stop,
    taken,
    takes_interim,
    wait_with_interim,
)
from agentstate.steps.findings import Finding
from agentstate.steps.gate import Hold
from agentstate.steps.reading import read_recorded
from agentstate.steps.recording import Services
from agentstate.steps.rounds import LetOut, Passed
from agentstate.wire.message import Request, Response


@dataclass(frozen=True, slots=True)
class Held:
    """A call whose answer waits at the gate."""

    call: Call
    hold: Hold
    recorded: RecordedAnswer
    step_id: int | None
    render: Callable[[RecordedAnswer], Response]  # the response of what is let out


class Holding:
    """Holds answers back from clients until the gate lets them out."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._store = services.store

    def is_needed(self, found: Candidate) -> bool:
        """Say whether a recorded answer has to be looked at before it goes out."""
        assert found.answer_id is not None, "a step that replays has an answer"
        return not self._services.gate.is_clear(found.answer_id)

    async def examine(
        self, call: Call, found: Candidate, answer: RecordedAnswer, *, is_own: bool
    ) -> Hold | None:
        """Return what must be decided about a recorded answer; None = nothing.

        `is_own` False: the call is not quite the one that was recorded, so that one may have named
        a tool which this one does not.
        """
        gate = self._services.gate
        assert found.answer_id is not None
        scans_text = gate.scans_text(call)
        if not (scans_text or is_own):
            request = await self._store.read_request(found.step_id)
            is_named = call.policy.is_named_in
            scans_text = await aside.run(lambda: is_named(encode(request)), len(call.raw))
        decided = await gate.decisions(found.answer_id)
        scans_text = scans_text or any(each.question.kind == "text" for each in decided)
        findings: tuple[Finding, ...] = ()
        if found.calls_tools or scans_text:
            read = await aside.run(lambda: read_recorded(call.dialect, answer), len(answer.content))
            findings = await gate.find(call.dialect, read, call.policy, scans_text=scans_text)
        if not findings and not decided:
            if is_own:
                gate.note_clear(found.answer_id, call.policy)
            return None
        return await gate.ask(found.step_id, found.answer_id, findings, call.caller)

    async def deliver(self, request: Request, held: Held) -> Response:
        """Wait for what the gate lets out and answer with it; a stream begins meanwhile."""
        call = held.call
        request.forget_body()
        settings = self._services.gate.settings
        every_s = heartbeat_s(request.headers, settings)
        work = self.begin(held)
        if not call.ask.streams:
            let_out = await wait_with_interim(
                request, work, every_s, sends_interim=takes_interim(request, settings)
            )
            if not request.is_gone():
                self.note_let_out(call, held.step_id, let_out)
            return held.render(let_out.answer)
        request.on_gone(lambda: stop(work))
        await asyncio.wait({work}, timeout=every_s)
        # Decided at once: nothing was sent yet, so a refusal is a real HTTP error.
        answer = taken(work).answer if work.done() else held.recorded
        response = held.render(answer)
        response.body = Delivery(
            call.dialect,
            flight=None,
            follower=None,
            every_s=every_s,
            render=lambda answer: content_of(held.render(answer)),
            on_delivered=lambda let_out: self.note_let_out(call, held.step_id, let_out),
            work=work,
        )
        return response

    async def _pass(self, held: Held) -> Passed:
        return await self._services.rounds.passed(held.call, held.hold, held.recorded)

    def note_let_out(self, call: Call, step_id: int | None, let_out: LetOut | None) -> None:
        """Note that an answer reached its client whole."""
        if let_out is not None and let_out.release_id is not None:
            self._store.note_released(let_out.release_id)
        if step_id is not None:
            self._services.ladder.note_delivered(call.caller, step_id)

    def begin(self, held: Held) -> asyncio.Task[Passed]:
        """Begin to wait for what the gate lets out."""
        return self._services.tasks.start(self._pass(held), "hold")


def content_of(response: Response) -> bytes:
    """Return the body of a response that is whole."""
    assert isinstance(response.body, bytes), "a rendered answer is whole"
    return response.body
