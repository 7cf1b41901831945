"""How an answer's bytes stand in a line of a cassette, and come back exactly. Pure.

1. JSON stands as JSON, with the name of the way in which it was laid out, where one of those that
   libraries write gives these very bytes.
2. A stream stands as its events, a text each.
3. Other UTF-8 stands as a text.
4. What is no UTF-8 stands as base64.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Literal

from agentstate.ground.canonical import JSON, lay_out, parse
from agentstate.ground.errors import BadRequest

_PLAIN, _SPACED = (",", ":"), (", ", ": ")
_INDENTED = (",", ": ")
_WAYS: Mapping[str, Callable[[JSON], str]] = {
    "": lambda value: lay_out(value, separators=_PLAIN),
    "utf8": lambda value: lay_out(value, separators=_PLAIN, ensure_ascii=False),
    "spaced": lambda value: lay_out(value, separators=_SPACED),
    "spaced utf8": lambda value: lay_out(value, separators=_SPACED, ensure_ascii=False),
    "indented": lambda value: lay_out(value, separators=_INDENTED, indent=2),
    "indented utf8": lambda value: lay_out(
        value, separators=_INDENTED, indent=2, ensure_ascii=False
    ),
}


def _with_line(way: Callable[[JSON], str], value: JSON) -> str:
    return way(value) + "\n"


# By its name: how JSON is laid out. "line": with the end of a line behind it.
LAYOUTS: Mapping[str, Callable[[JSON], str]] = {
    **_WAYS,
    **{f"{name} line".strip(): partial(_with_line, way) for name, way in _WAYS.items()},
}
# After the blank line that ends an event.
_AFTER_EVENT = re.compile(r"(?<=\n\n)(?=[^\n])|(?<=\r\n\r\n)(?=[^\r\n])")
CONTENT_KEYS = ("body", "layout", "events", "text", "base64", "form")


def write_content(content: bytes, form: Literal["body", "events"]) -> dict[str, JSON]:
    """Return the keys that stand for an answer's content."""
    try:
        text = content.decode("utf-8")
    except UnicodeDecodeError:
        written: dict[str, JSON] = {"base64": base64.b64encode(content).decode("ascii")}
        return written if form == "body" else {"form": form, **written}
    if form == "events":
        events: list[JSON] = [*_AFTER_EVENT.split(text)] if text else []
        return {"events": events}
    try:
        value = parse(content)
        layout = _layout_of(value, text)
    except BadRequest:
        return {"text": text}
    if layout is None:
        return {"text": text}
    return {"body": value} | ({"layout": layout} if layout else {})


def read_content(found: Mapping[str, JSON]) -> tuple[bytes, Literal["body", "events"]]:
    """Return the content that keys stand for, and its form.

    Raises:
        BadRequest: they stand for none; the message says why, and begins in the middle.
    """
    kinds = [key for key in ("body", "events", "text", "base64") if key in found]
    if len(kinds) != 1:
        raise BadRequest("it must have one of body, events, text and base64")
    value, layout = found[kinds[0]], found.get("layout", "")
    said = found.get("form", "body")
    if said not in ("body", "events"):
        raise BadRequest("form must be body or events")
    form: Literal["body", "events"] = "body" if said == "body" else "events"
    match kinds[0], value:
        case "body", _ if isinstance(layout, str) and layout in LAYOUTS:
            return _to_utf8(LAYOUTS[layout](value)), "body"
        case "body", _:
            raise BadRequest(f"layout must be one of {', '.join(filter(None, LAYOUTS))}")
        case "events", list():
            if all(isinstance(each, str) for each in value):
                return _to_utf8("".join(map(str, value))), "events"
        case "text", str():
            return _to_utf8(value), form
        case "base64", str():
            with suppress(ValueError):
                return base64.b64decode(value.encode("ascii"), validate=True), form
    raise BadRequest(f"{kinds[0]} cannot be read")


def _layout_of(value: JSON, text: str) -> str | None:
    """Return how a value was laid out; None = in none of the ways we know."""
    for name, way in LAYOUTS.items():
        # Who indents writes the end of a line right after the bracket, and nobody else does.
        if len(text) > 3 and ("indented" in name) != text[1].isspace():
            continue
        if way(value) == text:
            return name
    return None


def _to_utf8(text: str) -> bytes:
    try:
        return text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRequest("it holds half a character") from error
