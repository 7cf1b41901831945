"""Arguments that a person wrote in place of a model's: read strictly, since they are acted on."""

from __future__ import annotations

from agentstate.dialects.lenient import name_type
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import BadRequest


def read_new_arguments(arguments: str) -> dict[str, JSON]:
    """Return the object that new arguments of a tool call are; numbers keep their text.

    Raises:
        BadRequest: not JSON, a key twice in one object, nested too deeply, or no object.
    """
    try:
        value = parse(arguments.encode("utf-8", "surrogatepass"))
    except BadRequest as error:
        raise BadRequest(
            f"The new arguments must be a JSON object: {error.message}", param="arguments"
        ) from error
    if not isinstance(value, dict):
        raise BadRequest(
            f"The new arguments must be a JSON object; found {name_type(value)}. Send one such as "
            '{"city": "Oslo"}.',
            param="arguments",
        )
    return value
