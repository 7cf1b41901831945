"""Strict JSON in, canonical bytes and digests out.

Requests are parsed strictly: duplicate keys, NaN, deep nesting and huge integers are refused, since
two readers could disagree about them and the fingerprint must name one meaning. Numbers keep the
text they were sent with: `1`, `1.0` and `true` are three values and a 19-digit id survives.
Pure functions; the counterpart that decides *what* is hashed is `steps/identify.py`.

How numbers keep their text: the C parser hands each non-integer to `Number`; the C encoder hands it
back to `_default`, which wraps its text in an object with the one key NUL. A body that itself has
that key is refused, so the wrapped form stays unambiguous.
"""

from __future__ import annotations

import hashlib
import json
import re
from typing import Any, Union

from agentstate.ground.errors import BadRequest, shorten

JSON = Union[dict[str, "JSON"], list["JSON"], str, int, float, bool, None]

DIGEST_BYTES = 32
OFF_LOOP_BYTES = 256 * 1024  # from about here parsing takes over a millisecond: use a thread

_WRAPPED = re.compile(r'\{\s*"\\u0000":\s*"([-+0-9.eE]+)"\s*\}')
# Lone surrogates; ends of lines by Unicode; control characters that JSON does not mind.
_ODD = re.compile("[\ud800-\udfff\u2028\u2029\u0085\u007f-\u009f]")


class Number:
    """A JSON number that is not an integer, with the text it was sent as."""

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text

    def __float__(self) -> float:
        return float(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and other.text == self.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return self.text


def parse(raw: bytes) -> JSON:
    """Parse strict JSON; non-integers come back as `Number`.

    Raises:
        BadRequest: not UTF-8, not JSON, a duplicate key, NaN or Infinity, nesting over the
            interpreter's limit, or an integer of more than 4,300 digits.
    """
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest(
            f"The body must be UTF-8; byte {error.start} is not. Encode the JSON as UTF-8."
        ) from error
    try:
        value: JSON = _DECODER.decode(text)
    except RecursionError as error:
        raise BadRequest("The JSON body is nested too deeply to be read.") from error
    except json.JSONDecodeError as error:
        raise BadRequest(
            f"The body must be JSON; at line {error.lineno}, column {error.colno}: {error.msg}."
        ) from error
    except ValueError as error:  # Python's own bound on integer digits
        raise BadRequest(f"The JSON body holds a number that is too long: {error}.") from error
    return value


def object_or_text(text: str) -> JSON:
    """Return the object that a text of strict JSON is; any other text as it is."""
    try:
        value = parse(text.encode("utf-8", "surrogatepass"))
    except BadRequest:
        return text
    return value if isinstance(value, dict) else text


def canonical(value: JSON) -> bytes:
    """Render the one form that is hashed: sorted keys, no white space, ASCII, numbers as sent.

    Raises:
        BadRequest: nesting over the interpreter's limit, which is nearer the deeper the call.
    """
    return _render(_SORTED, value).encode("ascii")


def encode(value: JSON) -> bytes:
    """Render compact JSON in the order the keys were sent, numbers as sent, ASCII only.

    Raises:
        BadRequest: as for `canonical`.
    """
    text = _render(_AS_SENT, value)
    if '"\\u0000":' in text:
        text = _WRAPPED.sub(r"\1", text)
    return text.encode("ascii")


def encode_readable(value: JSON) -> bytes:
    """Render as `encode`, in UTF-8: for files that people look at. What no UTF-8 can hold, and what
    some readers take for the end of a line, stays escaped.

    Raises:
        BadRequest: as for `canonical`.
    """
    text = lay_out(value, separators=(",", ":"), ensure_ascii=False)
    return _ODD.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode("utf-8")


def lay_out(
    value: JSON,
    *,
    separators: tuple[str, str],
    ensure_ascii: bool = True,
    indent: int | None = None,
) -> str:
    """Render JSON as others lay it out, keys in the order they were sent, numbers as sent.

    Raises:
        BadRequest: as for `canonical`.
    """
    encoder = json.JSONEncoder(
        separators=separators, ensure_ascii=ensure_ascii, indent=indent, default=_default
    )
    text = _render(encoder, value)
    return _WRAPPED.sub(r"\1", text) if '"\\u0000":' in text else text


def digest(*parts: bytes) -> bytes:
    """Return the SHA-256 over the parts, each preceded by its length: no two lists collide."""
    state = hashlib.sha256()
    for part in parts:
        state.update(b"%d:" % len(part))
        state.update(part)
    return state.digest()


def _render(encoder: json.JSONEncoder, value: JSON) -> str:
    try:
        return encoder.encode(value)
    except RecursionError as error:
        raise BadRequest("The JSON is nested too deeply to be written again.") from error


def _default(value: object) -> dict[str, str]:
    if isinstance(value, Number):
        return {"\x00": value.text}
    raise TypeError(f"not JSON: {type(value).__name__}")


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise BadRequest(
                    f"The JSON body names the key {shorten(key)!r} twice in one object. "
                    "Readers disagree about which one counts; send it once.",
                    param=shorten(key),
                )
            seen.add(key)
    if "\x00" in found:
        raise BadRequest("The JSON body has an object key that is one NUL character; rename it.")
    return found


def _constant(name: str) -> None:
    raise BadRequest(f"The JSON body holds {name}, which is not JSON. Send a number or null.")


_DECODER = json.JSONDecoder(parse_float=Number, parse_constant=_constant, object_pairs_hook=_pairs)
_SORTED = json.JSONEncoder(sort_keys=True, separators=(",", ":"), default=_default)
_AS_SENT = json.JSONEncoder(separators=(",", ":"), default=_default)
