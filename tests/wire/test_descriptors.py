"""Open files run out: fewer clients than that, and one sentence a minute in place of a flood."""

from __future__ import annotations

import asyncio
import errno
import logging
from typing import Any

import pytest

from agentstate.wire.descriptors import (
    SAID_EVERY_S,
    clients_that_fit,
    handler_of_failed_accepts,
)


@pytest.mark.parametrize(
    ("limit", "wanted", "fit"),
    [(None, 4096, 4096), (20_000, 4096, 4096), (1024, 4096, 480), (64, 4096, 1), (10, 4096, 1)],
)
def test_no_more_clients_than_files(limit: int | None, wanted: int, fit: int) -> None:
    assert clients_that_fit(limit, wanted) == fit


def context(number: int) -> dict[str, Any]:
    return {
        "message": "socket.accept() out of system resource",
        "exception": OSError(number, "Too many open files"),
        "socket": None,
    }


def test_failed_accepts_are_spoken_of_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s = 5.0
    loop = asyncio.new_event_loop()
    handle = handler_of_failed_accepts(lambda: now_s)

    for _ in range(1000):
        handle(loop, context(errno.EMFILE))
    assert [record.levelno for record in caplog.records] == [logging.ERROR]
    assert "new connections wait: too many open files." in caplog.text
    now_s += SAID_EVERY_S
    handle(loop, context(errno.ENFILE))

    assert len(caplog.records) == 2
    loop.close()


def test_what_else_goes_wrong_is_told_as_ever(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.new_event_loop()
    handle = handler_of_failed_accepts()

    for one in (context(errno.EPERM), {"message": "Task was destroyed but it is pending!"}):
        handle(loop, one)
        handle(loop, one)

    assert [record.name for record in caplog.records] == ["asyncio"] * 4
    loop.close()
