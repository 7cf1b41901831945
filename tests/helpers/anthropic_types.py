"""Checks what we make against the types of the `anthropic` package: strictly, and nothing else.

There is no published document for this API; the package's types are generated from one. Its client
reads leniently, so a test that only used the client would prove less.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from tests.helpers.reading import read_events


def check(name: str, raw: bytes | str) -> None:
    """Raise `pydantic.ValidationError` if JSON does not satisfy the package's type called `name`.

    Names are Message, ErrorResponse, MessageTokensCount and the like, and those of the beta. Skips
    the test where the package is not installed.
    """
    _adapter(name).validate_json(raw, strict=True)


def check_stream(name: str, stream: bytes) -> None:
    """Check every event of a stream by the union called `name`; pings are not in it."""
    for event in read_events(stream):
        if event.name != "ping":
            check(name, event.data)
        assert f'"type":"{event.name}"' in event.data, "an event is named for what it is"


@cache
def _adapter(name: str) -> Any:
    types = pytest.importorskip("anthropic.types")
    pydantic = pytest.importorskip("pydantic")
    home = types.beta if name.startswith("Beta") else types
    return pydantic.TypeAdapter(getattr(home, name))
