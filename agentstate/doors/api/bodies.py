"""How the bodies of changes are read: an object with known keys, each of a known kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agentstate.doors.api.reply import check_is_json, read_params
from agentstate.ground.canonical import JSON, Number, encode, parse
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.load import nearest
from agentstate.steps import aside
from agentstate.steps.identify import STEP_NUMBER_MAX
from agentstate.wire.endpoint import Field
from agentstate.wire.message import Request

BODY_BYTES_MAX = 64 * 1024  # the most tags there can be, with room
REASON_CHARS_MAX = 1000
BY_CHARS_MAX = 200

BY = Field("by", f"who does it; at most {BY_CHARS_MAX} characters", takes_null=True)
REASON = Field("reason", f"why; at most {REASON_CHARS_MAX} characters", takes_null=True)


async def read_body(
    request: Request, what: str, fields: Sequence[Field], bytes_max: int = BODY_BYTES_MAX
) -> dict[str, JSON]:
    """Read an object with some of these keys; an empty body is one with none. `what` is meant by
    it, for messages.

    Raises:
        BadRequest: it is something else; the message says what was expected.
        TooLarge: it has over `bytes_max` bytes.
    """
    read_params(request, frozenset())
    check_is_json(request, what)
    raw = await request.body(bytes_max)
    body = await aside.run(lambda: parse(raw), len(raw)) if raw.strip() else {}
    if not isinstance(body, dict):
        raise BadRequest(f"The body must be an object; found {_shown(body)}.")
    names = [field.name for field in fields]
    for name in body:
        if name not in names:
            known = nearest(name, names) if names else "It takes none."
            raise BadRequest(
                f"The body has an unknown key {shorten(name)!r}. {known}", param=shorten(name)
            )
    return body


def without_nulls(body: Mapping[str, JSON], fields: Sequence[Field]) -> dict[str, JSON]:
    """Return a body without the keys whose value is null, unless their field takes null.

    Raises:
        BadRequest: a key that is needed is not there.
    """
    takes_null = {field.name for field in fields if field.takes_null}
    sent = {name: value for name, value in body.items() if value is not None or name in takes_null}
    for field in fields:
        if field.is_needed and field.name not in sent:
            raise BadRequest(
                f'The body must have "{field.name}": {field.summary}.', param=field.name
            )
    return sent


def read_text(sent: Mapping[str, JSON], name: str, chars_max: int) -> str | None:
    """Return a text, without white space around it; None = it was not sent, or is blank."""
    value = sent.get(name)
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > chars_max:
        raise unexpected(name, f"text of at most {chars_max} characters", value)
    return value.strip() or None


def read_choice(sent: Mapping[str, JSON], name: str, choices: tuple[str, ...]) -> str | None:
    """Return one of `choices`; None = it was not sent."""
    value = sent.get(name)
    if value is None or (isinstance(value, str) and value in choices):
        return value
    raise unexpected(name, f"one of {', '.join(choices)}", value)


def read_seconds(sent: Mapping[str, JSON], name: str, most: float) -> float | None:
    """Return a number of seconds from 0 to `most`; None = it was not sent."""
    value = sent.get(name)
    if value is None:
        return None
    if isinstance(value, int | Number) and not isinstance(value, bool) and len(str(value)) < 20:
        seconds = float(value)
        if 0 <= seconds <= most:
            return seconds
    raise unexpected(name, f"a number of seconds from 0 to {most:g}", value)


def read_flag(sent: Mapping[str, JSON], name: str, *, default: bool = False) -> bool:
    """Return a key that is true or false; `default` = it was not sent. Raises `BadRequest`."""
    value = sent.get(name)
    if value is None:
        return default
    if isinstance(value, bool):
        return value
    raise unexpected(name, "true or false", value)


def read_integer(sent: Mapping[str, JSON], name: str) -> int | None:
    """Read an integer from 0; None = it was not sent. Raises `BadRequest`."""
    value = sent.get(name)
    if value is None:
        return None
    # Numbers are kept as they were sent, so 1.0 and 1e0 are none.
    text = encode(value).decode("ascii")
    if text.isdigit() and len(text) <= 16 and int(text) <= STEP_NUMBER_MAX:
        return int(text)
    raise unexpected(name, "an integer from 0", value)


def read_by(sent: Mapping[str, JSON]) -> str | None:
    """Read who does it; None = nobody says. Raises `BadRequest`."""
    return read_text(sent, "by", BY_CHARS_MAX)


def unexpected(name: str, expected: str, value: JSON) -> BadRequest:
    """Make the error for a key whose value is another than expected."""
    return BadRequest(
        f'"{name}" must be {expected}; found {_shown(value)}. Nothing was changed.', param=name
    )


def _shown(value: JSON) -> str:
    """Name a value without repeating more than a line of it, or walking through much of it."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case _:
            return shorten(encode(value).decode("ascii"))
