"""Arguments of calls in forms that have only objects for them.

Other forms have text, which may be '' or no JSON. And a tool that takes free text is offered there
as a function with one text argument; its calls are written with it and read back out of it. Pure.
"""

from __future__ import annotations

from agentstate.dialects.lenient import Unreadable, as_object, read_exact
from agentstate.dialects.neutral import Called
from agentstate.ground.canonical import JSON, encode
from agentstate.ground.errors import BadRequest

FREE_TEXT_KEY = "input"
FREE_TEXT: dict[str, JSON] = {
    "type": "object",
    "properties": {FREE_TEXT_KEY: {"type": "string"}},
    "required": [FREE_TEXT_KEY],
}


def wrap_free_text(text: str) -> str:
    """Return the arguments that stand for a free text."""
    return encode({FREE_TEXT_KEY: text}).decode("ascii")


def unwrap_free_text(arguments: str) -> str:
    """Return the free text that arguments stand for; themselves where they are of another form."""
    try:
        value = as_object(read_exact(arguments))
    except Unreadable:
        return arguments
    text = value.get(FREE_TEXT_KEY)
    return text if isinstance(text, str) and len(value) == 1 else arguments


def object_of(arguments: str) -> dict[str, JSON] | None:
    """Return the object that arguments are, numbers as sent; None = they are none."""
    if not arguments.strip():
        return {}
    try:
        value = read_exact(arguments)
    except Unreadable:
        return None
    return value if isinstance(value, dict) else None


def object_of_called(call: Called, at: int) -> dict[str, JSON]:
    """Return the object that the arguments of a call in turn `at` of a history are.

    Raises:
        BadRequest: they are none; `param` names the turn.
    """
    found = {FREE_TEXT_KEY: call.arguments} if call.is_custom else object_of(call.arguments)
    if found is None:
        raise BadRequest(
            f"The arguments of a tool call in `messages[{at}]` must be a JSON object to be sent to "
            "this provider; they are none. Mend or remove the call, or ask another model.",
            param=f"messages[{at}]",
        )
    return {**found}
