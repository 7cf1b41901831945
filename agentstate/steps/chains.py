"""A request that goes on from what its upstream keeps, written out for an upstream that does not.

A Responses request may name an earlier response in place of the conversation. Another target knows
nothing of it, so the conversation is put together from the record: request and answer of each step,
back to the first. Where a part is not on record (another session's, a prompt or a conversation that
the vendor keeps under a name) it cannot be, and such a target is not asked.

So where a person has another answer stand than the one that its vendor keeps: nobody has that, and
all that goes on from it is written out, for the vendor as well.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from agentstate.dialects.base import Chains, Dialect
from agentstate.ground.canonical import JSON
from agentstate.ground.records import RecordedAnswer
from agentstate.ground.redaction import is_redacted
from agentstate.steps import aside
from agentstate.steps.call import Call
from agentstate.steps.leg import is_elsewhere
from agentstate.steps.reading import as_body
from agentstate.store.base import Store

LINKS_MAX = 1_000  # steps of one conversation
BYTES_MAX = 64 * 1024 * 1024  # of their answers: about what a request may have
NOBODY = ""  # who keeps an answer that a person wrote


@dataclass(frozen=True, slots=True)
class WrittenOut:
    """What is known of what a call goes on from."""

    # Who answered what it goes on from, so who keeps it; None = not known, so whoever is asked.
    kept_by: str | None = None
    # Gives the body with all of it in it, or None where it is not all on record; None = nobody will
    # need it. It reads the whole conversation, so it is for whoever comes to need it.
    body: Callable[[], Awaitable[dict[str, JSON] | None]] | None = None


async def write_out(store: Store, call: Call) -> WrittenOut:
    """Return what the record knows of what a call goes on from."""
    dialect, before = call.dialect, call.ask.goes_on_from
    if before is None or not isinstance(dialect, Chains):
        return WrittenOut()
    if await _is_revised(store, dialect, call.caller.session, before):
        finds = partial(_find_any, store, call.caller.session)
        return WrittenOut(NOBODY, partial(_written_out, store, dialect, call.ask.body, finds))
    # Looking for an answer by its id costs time that grows with the session. With one target, which
    # made its answers itself, there is nothing to find out.
    is_alone = len(call.targets) == 1 and not is_elsewhere(call.target)
    if is_alone and not dialect.is_made_here(before):
        return WrittenOut()
    step = await store.find_response(call.caller.session, before)
    finds = partial(_find_active, store, call.caller.session)
    return WrittenOut(
        None if step is None else step.provider,
        partial(_written_out, store, dialect, call.ask.body, finds),
    )


async def is_all_on_record(
    store: Store, dialect: Dialect, session: str, request: dict[str, JSON]
) -> bool:
    """Say whether what a request goes on from could be written out."""
    finds = partial(_find_any, store, session)
    return await _written_out(store, dialect, request, finds) is not None


async def _is_revised(store: Store, dialect: Chains, session: str, before: str) -> bool:
    """Say whether a person has changed since what an answer's vendor keeps it to go on from."""
    revised = {each.step_id: each for each in await store.list_revised(session)}
    if not revised:
        return False
    changed_ms = max(each.changed_ms for each in revised.values())
    is_first, link = True, before
    for _ in range(LINKS_MAX):
        found = await store.find_answered(session, link)
        if found is None:
            return False
        own = revised.get(found.step_id)
        if own is not None and (own.is_edited or found.is_replaced or not is_first):
            return True
        # What was answered since was asked with the changes in it.
        request = await store.read_request(found.step_id)
        next_link = dialect.link(request) if isinstance(request, dict) else None
        if next_link is None or found.answered_ms >= changed_ms:
            return False
        is_first, link = False, next_link
    return False


_Find = Callable[[str], Awaitable[tuple[int, int] | None]]  # by id: the step, its answer


async def _find_active(store: Store, session: str, answer_id: str) -> tuple[int, int] | None:
    step = await store.find_response(session, answer_id)
    return None if step is None or step.answer_id is None else (step.step_id, step.answer_id)


async def _find_any(store: Store, session: str, answer_id: str) -> tuple[int, int] | None:
    """Find one that was rolled back, too: an agent that is alive goes on from it."""
    link = await store.find_answered(session, answer_id)
    return None if link is None else (link.step_id, link.answer_id)


async def _written_out(
    store: Store, dialect: Dialect, body: dict[str, JSON], finds: _Find
) -> dict[str, JSON] | None:
    assert isinstance(dialect, Chains), "it goes on from an answer"
    bytes_left = BYTES_MAX
    for _ in range(LINKS_MAX):
        before = dialect.link(body)
        if before is None:
            return None if dialect.has_more_hidden(body) else body
        found = await finds(before)
        if found is None:
            return None
        step_id, answer_id = found
        request = await store.read_request(step_id)
        delivered = await store.read_borrowed(answer_id)
        recorded = delivered or await store.read_answer_by_id(answer_id)
        # Without its secrets a request does not say what its model was asked.
        if not isinstance(request, dict) or recorded is None or is_redacted(request):
            return None
        bytes_left -= len(recorded.content)
        if bytes_left < 0:
            return None
        link = partial(_with_link, dialect, body, request, recorded)
        body = await aside.run(link, len(recorded.content))
    return None


def _with_link(
    dialect: Dialect,
    body: Mapping[str, JSON],
    request: Mapping[str, JSON],
    recorded: RecordedAnswer,
) -> dict[str, JSON]:
    assert isinstance(dialect, Chains), "it goes on from an answer"
    return dialect.with_link(body, request, as_body(dialect, recorded))
