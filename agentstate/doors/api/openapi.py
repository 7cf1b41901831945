"""The management API as an OpenAPI 3.1 document, made from the endpoint table.

What a client needs to call an endpoint is whole: path, parameters, body, token, statuses, the one
error shape. The shapes of answers are those that the functions which make them are checked against
(`shapes.py`); of a row of the table that has none, README says them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from agentstate.doors.api.reply import ErrorShown, json_response, read_params
from agentstate.doors.api.shapes import Schemas, schema_of
from agentstate.doors.guard import COOKIE
from agentstate.ground.canonical import JSON
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

VERSION = "3.1.0"
_SEGMENT = re.compile(r"\{(\w+)\}")
# Any one of them will do. Where the server has no token, none is asked for.
_SECURITY: dict[str, JSON] = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "A token of this server."},
    "token": {"type": "apiKey", "in": "header", "name": "x-agentstate-token"},
    "cookie": {
        "type": "apiKey",
        "in": "cookie",
        "name": COOKIE,
        "description": "A browser's; POST /api/login sets it.",
    },
}


class OpenAPIEndpoints:
    """Answers `/api/openapi.json`."""

    def __init__(self, version: str, others: Sequence[Endpoint]) -> None:
        self._version = version
        self._endpoints = (*others, *self.rows())

    def rows(self) -> tuple[Endpoint, ...]:
        """Return this topic's part of the endpoint table."""
        return (
            Endpoint("GET", "/api/openapi.json", self.show, "Describe this API as OpenAPI 3.1."),
        )

    async def show(self, request: Request, params: Params) -> Response:
        """Answer with the document."""
        read_params(request, frozenset())
        return json_response(openapi_document(self._endpoints, self._version))


def openapi_document(endpoints: Iterable[Endpoint], version: str) -> dict[str, JSON]:
    """Return the document of a table of endpoints."""
    paths: dict[str, JSON] = {}
    schemas: Schemas = {}
    for endpoint in endpoints:
        path = paths.setdefault(endpoint.pattern, {})
        assert isinstance(path, dict), "a path is an object of methods"
        path[endpoint.method.lower()] = _operation(endpoint, schemas)
    return {
        "openapi": VERSION,
        "info": {
            "title": "AgentState management API",
            "version": version,
            "description": "What is on record, and control over runs. Errors have one shape. Where "
            "the server has no token, none is asked for.",
        },
        "paths": paths,
        "components": {
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": _SECURITY,
        },
    }


def _operation(endpoint: Endpoint, schemas: Schemas) -> JSON:
    names = _SEGMENT.findall(endpoint.pattern)
    parameters: list[JSON] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in names
    ]
    parameters += [
        {
            "name": field.name,
            "in": "query",
            "required": field.is_needed,
            "description": field.summary,
            "schema": _schema(field),
        }
        for field in endpoint.query
    ]
    # The role that the token must stand for, as OpenAPI 3.1 has it for what is not OAuth.
    role = endpoint.needed
    security: list[JSON] = [] if role == "anybody" else [{name: [role]} for name in _SECURITY]
    operation: dict[str, JSON] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": _responses(endpoint, schemas),
        "security": security,
    }
    if endpoint.takes:
        file: JSON = {"schema": {"type": "string"}}
        operation["requestBody"] = {
            "required": True,
            "content": dict.fromkeys(endpoint.takes, file),
        }
    if endpoint.body is not None:
        needed: list[JSON] = [field.name for field in endpoint.body if field.is_needed]
        schema: dict[str, JSON] = {
            "type": "object",
            "properties": {
                field.name: {**_schema(field), "description": field.summary}
                for field in endpoint.body
            },
            "additionalProperties": False,
        }
        if needed:
            schema["required"] = needed
        operation["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schema}},
        }
    return operation


def _responses(endpoint: Endpoint, schemas: Schemas) -> JSON:
    error = schema_of(ErrorShown, schemas)
    # What a row does not list and any request may meet: an odd query, a foreign page, a full disk;
    # and where a token is needed that there is none, or that too many were wrong.
    statuses = {400, 403, 503, *endpoint.errors}
    statuses |= {404} if _SEGMENT.search(endpoint.pattern) else set()
    statuses |= {401, 429} if endpoint.needed != "anybody" else set()
    shapes = dict.fromkeys(map(str, sorted(statuses)), error)
    if endpoint.passes_errors:
        shapes |= {"4XX": error, "5XX": error}
    shapes |= {str(status): schema_of(shape, schemas) for status, shape in endpoint.faults}
    responses: dict[str, JSON] = {"200": _success(endpoint, schemas)}
    for status, schema in shapes.items():
        said = HTTPStatus(int(status)).phrase if status.isdigit() else "What an upstream said."
        content: JSON = {"application/json": {"schema": schema}}
        responses[status] = {"description": said, "content": content}
    return responses


def _success(endpoint: Endpoint, schemas: Schemas) -> JSON:
    if endpoint.answers == "lines":
        content: dict[str, JSON] = {endpoint.media_type: {"schema": {"type": "string"}}}
        if endpoint.or_object:
            content["application/json"] = {"schema": {"type": "object"}}
        return {"description": "JSON lines.", "content": content}
    if endpoint.answers == "events":
        return {
            "description": "Server-sent events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    schema: dict[str, JSON] = {"type": "object"}
    if endpoint.shape is not None:
        schema = schema_of(endpoint.shape, schemas)
    if endpoint.answers == "array":
        schema = {"type": "array", "items": schema}
    return {"description": "It is so.", "content": {"application/json": {"schema": schema}}}


def _schema(field: Field) -> dict[str, JSON]:
    kinds: list[JSON] = [field.kind]
    choices: list[JSON] = list(field.choices)
    if field.takes_null:
        kinds.append("null")
    schema: dict[str, JSON] = {"type": kinds if field.takes_null else field.kind}
    if choices:
        schema["enum"] = choices
    return schema


def _operation_id(endpoint: Endpoint) -> str:
    """Return a name for programs, as in `postSessionsIdReset`."""
    words = re.findall(r"[A-Za-z0-9]+", endpoint.pattern.removeprefix("/api"))
    return endpoint.method.lower() + "".join(word[0].upper() + word[1:] for word in words)
