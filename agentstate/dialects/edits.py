"""What a person wrote in place of a model's words.

Arguments are read strictly, since they are acted on; a whole answer is made one that clients take
for the model's.
"""

from __future__ import annotations

from agentstate.dialects.lenient import Unreadable, as_object, name_type, read_exact
from agentstate.ground.canonical import JSON, encode, parse
from agentstate.ground.errors import BadRequest

# By which later requests know an answer: another one would name nothing.
_IDS = ("id", "responseId")


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


def new_body(written: JSON, before: bytes) -> bytes:
    """Return an answer that a person wrote whole, in the form that is not streamed, with what it
    does not say (model, usage, time) from the one it replaces, and under its id.

    Raises:
        BadRequest: it is no object.
    """
    if not isinstance(written, dict):
        raise BadRequest(
            f"The new answer must be an object, as the API answers without a stream; found "
            f"{name_type(written)}.",
            param="body",
        )
    try:
        old = as_object(read_exact(before))
    except Unreadable:
        old = {}
    return encode({**old, **written, **{key: old[key] for key in _IDS if old.get(key)}})


def no_choice(choice: int, count: int) -> BadRequest:
    """Return the error for a choice that an answer does not have."""
    have = "one choice, 0" if count == 1 else f"{count} choices, from 0"
    return BadRequest(f"The answer has {have}; found {choice}.", param="choice")
