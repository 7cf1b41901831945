"""What a session is called: its name, its tags, and how long and how many they may be. Pure.

An agent says it in headers, a person through the API; both come through here.
"""

from __future__ import annotations

from dataclasses import replace

from agentstate.ground.control import TAGS_MAX, About, Tags
from agentstate.ground.errors import BadRequest, shorten
from agentstate.ground.redaction import Redactor

NAME_CHARS_MAX = 200  # a title: one line of a list
TAG_CHARS_MAX = 64  # of a tag's name: a word or two
VALUE_CHARS_MAX = 256  # of its value: a URL or an id


def without_secrets(about: About, redactor: Redactor) -> About:
    """Return what a call says of its session as it is kept."""
    return replace(
        about,
        name=None if about.name is None else redactor.text(about.name),
        tags=tuple((name, redactor.text(value)) for name, value in about.tags),
    )


def check_name(name: str, source: str) -> str:
    """Return a session's name for people, trimmed; '' = none. Raises `BadRequest`."""
    return _check_text(name.strip(), source, "a name", NAME_CHARS_MAX)


def check_tag(name: str, value: str, source: str) -> tuple[str, str]:
    """Return a tag that a listing can ask for. Raises `BadRequest`."""
    name, value = name.strip(), value.strip()
    if not name or "=" in name or "," in name:
        raise BadRequest(
            f"{source}: a tag's name is 1 to {TAG_CHARS_MAX} characters without '=' and ','; found "
            f"{shorten(name)!r}.",
            param=source,
        )
    if "," in value:
        raise BadRequest(f"{source}: the value of {shorten(name)!r} holds a comma.", param=source)
    _check_text(name, source, "a tag's name", TAG_CHARS_MAX)
    return name, _check_text(value, source, f"the value of {shorten(name)!r}", VALUE_CHARS_MAX)


def parse_tags(text: str, source: str) -> Tags:
    """Read `k=v,k2=v2` into tags, sorted by name.

    Raises:
        BadRequest: it is something else, too long, or names a tag twice.
    """
    found: dict[str, str] = {}
    for item in text.split(",") if text.strip() else ():
        name, separator, value = item.partition("=")
        if not separator:
            raise BadRequest(
                f"{source} must be name=value pairs, separated by commas; found {shorten(item)!r}.",
                param=source,
            )
        name, value = check_tag(name, value, source)
        if name in found:
            raise BadRequest(f"{source} names the tag {name!r} twice.", param=source)
        found[name] = value
    if len(found) > TAGS_MAX:
        raise BadRequest(
            f"{source} names {len(found)} tags; a session has at most {TAGS_MAX}.", param=source
        )
    return tuple(sorted(found.items()))


def _check_text(text: str, source: str, what: str, chars_max: int) -> str:
    if len(text) > chars_max:
        raise BadRequest(
            f"{source}: {what} has at most {chars_max} characters; found {len(text)}.", param=source
        )
    if any(ord(char) < 32 or ord(char) == 127 or 0xD800 <= ord(char) < 0xE000 for char in text):
        raise BadRequest(
            f"{source}: {what} holds control characters: {shorten(repr(text))}.", param=source
        )
    return text
