"""Reading the JSON of others, which is not always JSON, and is of any shape.

Answers are read to be looked at; their bytes pass as they came. So this reader takes what clients
take: NaN, raw control characters, bytes that are no UTF-8, half surrogate pairs. It is not for
requests: those are read by `ground/canonical.py`, strictly, since their meaning is what is hashed.
The `as_` functions look into values of unknown shape without a branch at every step.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn

from agentstate.ground.canonical import JSON, Number
from agentstate.ground.errors import shorten

# A count beyond it is no count. It also keeps sums of counts and prices within 63 bits.
COUNT_MAX = 10**12


class Unreadable(ValueError):
    """Not JSON, or JSON that no reader here can hold: nested too deeply, integers too long."""


def read(data: bytes) -> JSON:
    """Read JSON for looking at it: numbers become int and float.

    Raises:
        Unreadable: it cannot be read.
    """
    try:
        value: JSON = _LOOK.decode(_text(data))
    except (ValueError, RecursionError) as error:
        _give_up(error)
    return value


def read_exact(data: bytes | str) -> JSON:
    """Read JSON for writing it again with `canonical.encode`: numbers keep their text.

    NaN and the infinities become null, as they do in JavaScript: they have no form in JSON. A key
    that comes twice in an object reads as the last one and is written twice again: a tool's
    arguments that two readers take differently must show that they do.

    Raises:
        Unreadable: it cannot be read.
    """
    try:
        value: JSON = _KEEP.decode(data if isinstance(data, str) else _text(data))
    except (ValueError, RecursionError) as error:
        _give_up(error)
    return value


def read_answer_body(body: bytes, reader: Callable[[bytes], JSON] = read_exact) -> dict[str, JSON]:
    """Read the body of an answer, which is an object or no answer.

    Raises:
        Unreadable: it is none; the error says what it is, as a fault of an answer.
    """
    try:
        value = reader(body)
    except Unreadable as error:
        raise Unreadable("the body is no JSON") from error
    if not isinstance(value, dict):
        raise Unreadable(f"the body is {name_type(value)}, not an object")
    return value


def as_object(value: JSON) -> dict[str, JSON]:
    """Return `value` if it is an object, else an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: JSON) -> list[JSON]:
    """Return `value` if it is a list, else an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: JSON) -> str | None:
    """Return `value` if it is a string with something in it, else None."""
    return value if isinstance(value, str) and value else None


def as_integer(value: JSON) -> int | None:
    """Return `value` if it is an integer, else None. True and false are none."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def as_count(value: JSON) -> int | None:
    """Return `value` if it is an integer from 0 to `COUNT_MAX`, else None."""
    count = as_integer(value)
    return count if count is not None and 0 <= count <= COUNT_MAX else None


def split_data_url(url: str) -> tuple[str | None, str]:
    """Return (media type, base64) of a data URL; '' = it is none, or its data is no base64."""
    head, _, data = url.partition(",")
    if head[:5].lower() != "data:" or not head.endswith(";base64"):
        return None, ""
    return head[5:].partition(";")[0] or None, data


def join_text(pieces: list[str]) -> str:
    """Join the pieces of a streamed text.

    A character above U+FFFF that was cut in two, each half escaped in a piece of its own, becomes
    one again, as it does in JavaScript. Halves that stay alone stay.
    """
    text = "".join(pieces)
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text


def name_type(value: JSON) -> str:
    """Name a value's type for a message; never the value, which may be somebody's prompt."""
    match value:
        case None:
            return "null or nothing"
        case bool():
            return "a boolean"
        case str():
            return "a string" if value else "an empty string"
        case list():
            return "a list"
        case dict():
            return "an object"
        case _:
            return f"the number {shorten(repr(value))}"


def _text(data: bytes) -> str:
    text = str(data, "utf-8", "replace")
    return text[1:] if text.startswith("\ufeff") else text


def _give_up(error: Exception) -> NoReturn:
    raise Unreadable(str(error)) from error


def _null(name: str) -> None:
    """Stand in for NaN, Infinity and -Infinity."""


class _Repeated(dict[str, JSON]):
    """An object with a key that came twice; the encoder writes what `items` says."""

    __slots__ = ("_pairs",)

    def __init__(self, pairs: list[tuple[str, JSON]]) -> None:
        super().__init__(pairs)
        self._pairs = pairs

    def items(self) -> Any:
        return self._pairs


def _keep_repeated(pairs: list[tuple[str, JSON]]) -> dict[str, JSON]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Repeated(pairs)


_LOOK = json.JSONDecoder(strict=False)
_KEEP = json.JSONDecoder(
    strict=False, parse_float=Number, parse_constant=_null, object_pairs_hook=_keep_repeated
)
