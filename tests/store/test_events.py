"""What the backends share about events: ids, and who wants what."""

from __future__ import annotations

import re

import pytest

from agentstate.ground.events import EVENT_KINDS, Subscription, new_event_id
from agentstate.store.events import hooks_of, readable_error, readable_event
from tests.store.contract_events import event_of, wants
from tests.store.contract_gate import MENDED, ODD


def test_no_two_ids_are_the_same() -> None:
    ids = {new_event_id() for _ in range(1000)}
    assert len(ids) == 1000
    assert all(re.fullmatch("evt_[0-9a-f]{24}", one) for one in ids)


@pytest.mark.parametrize(
    ("subscription", "is_wanted"),
    [
        (Subscription("h", frozenset(EVENT_KINDS)), True),
        (Subscription("h", frozenset()), False),
        (wants("h", "fallback.used"), True),
        (wants("h", "session.failed"), False),
        (wants("h", sessions=("*",)), True),
        (wants("h", sessions=("prod-*", "dev")), True),
        (wants("h", sessions=("PROD-*",)), False),
        (wants("h", sessions=("prod",)), False),
        (wants("h", sessions=("prod-[12]",)), True),
        (wants("h", "session.failed", sessions=("prod-*",)), False),
    ],
)
def test_a_webhook_wants_kinds_and_sessions(subscription: Subscription, is_wanted: bool) -> None:
    assert hooks_of(event_of(session="prod-1"), [subscription]) == ("h",) * is_wanted


def test_all_texts_of_an_event_can_be_encoded() -> None:
    event = readable_event(
        event_of(event_id=ODD, session=ODD, approval_id=ODD, facts={ODD: [{ODD: ODD}, 1, None]})
    )

    assert (event.event_id, event.session, event.approval_id) == (MENDED, MENDED, MENDED)
    assert event.facts == {MENDED: [{MENDED: MENDED}, 1, None]}
    assert readable_event(event) == event


def test_an_error_is_a_short_line() -> None:
    assert readable_error(None) is None
    assert readable_error(ODD) == MENDED
    assert (readable_error("x" * 9999) or "").endswith("x…")
