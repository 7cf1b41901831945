"""Reads a tool call's arguments, strictly: what two readers could take differently is refused. And
finds what a request says they may be."""

from __future__ import annotations

from agentstate.dialects.base import CallingDialect
from agentstate.dialects.lenient import name_type
from agentstate.ground.canonical import JSON, parse
from agentstate.ground.errors import BadRequest
from agentstate.steps.names import exact_readings


def read_arguments(arguments: str) -> dict[str, JSON]:
    """Return the object that a call's arguments are; no text at all is an empty one.

    Raises:
        BadRequest: not JSON, a key twice in one object, NaN, nested too deeply, or no object.
    """
    if not arguments.strip():
        return {}
    try:
        value = parse(arguments.encode("utf-8", "surrogatepass"))
    except BadRequest as error:
        if error.param is not None:
            fault = f"name the key {error.param!r} twice in one object"
        elif isinstance(error.__cause__, RecursionError):
            fault = "are nested too deeply to be read"
        else:
            fault = "are not JSON"
        raise BadRequest(f"The arguments {fault}; a JSON object is expected.") from error
    if not isinstance(value, dict):
        raise BadRequest(f"The arguments are {name_type(value)}; a JSON object is expected.")
    return value


def schema_in(dialect: CallingDialect, request: dict[str, JSON], name: str) -> JSON:
    """Return the JSON schema that a request gives for the arguments of a tool, or None."""
    try:
        tools = dialect.tools(dialect.read_ask(request))
    except BadRequest:
        return None
    spelled = exact_readings(name)
    named = [tool for tool in tools if tool.name == name]
    named += [tool for tool in tools if spelled & exact_readings(tool.name)]
    return named[0].schema if named else None
