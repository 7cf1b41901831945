"""The management API as an OpenAPI 3.1 document, made from the endpoint table.

What a client needs to call an endpoint is whole: path, parameters, body, statuses, the one error
shape. The shapes of answers are said in README and only named here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from http import HTTPStatus

from agentstate.doors.api.reply import json_response, read_params
from agentstate.ground.canonical import JSON
from agentstate.wire.endpoint import Endpoint, Field, Params
from agentstate.wire.message import Request, Response

VERSION = "3.1.0"
_SEGMENT = re.compile(r"\{(\w+)\}")
_ERROR_REF: JSON = {"$ref": "#/components/schemas/Error"}


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
    for endpoint in endpoints:
        path = paths.setdefault(endpoint.pattern, {})
        assert isinstance(path, dict), "a path is an object of methods"
        path[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": VERSION,
        "info": {
            "title": "AgentState management API",
            "version": version,
            "description": "What is on record, and control over runs. Errors have one shape.",
        },
        "paths": paths,
        "components": {"schemas": {"Error": _error_schema()}},
    }


def _operation(endpoint: Endpoint) -> JSON:
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
    # What a row does not list and any request may meet: an odd query, a foreign page, a full disk.
    statuses = {400, 403, 503, *endpoint.errors} | ({404} if names else set())
    responses: dict[str, JSON] = {"200": _success(endpoint)}
    for status in sorted(statuses):
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": _ERROR_REF}},
        }
    operation: dict[str, JSON] = {
        "operationId": _operation_id(endpoint),
        "summary": endpoint.summary,
        "parameters": parameters,
        "responses": responses,
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


def _success(endpoint: Endpoint) -> JSON:
    if endpoint.answers == "lines":
        return {
            "description": "JSON lines.",
            "content": {"application/jsonl": {"schema": {"type": "string"}}},
        }
    if endpoint.answers == "events":
        return {
            "description": "Server-sent events.",
            "content": {"text/event-stream": {"schema": {"type": "string"}}},
        }
    schema: dict[str, JSON] = {"type": endpoint.answers}
    if endpoint.answers == "array":
        schema["items"] = {"type": "object"}
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


def _error_schema() -> JSON:
    text: JSON = {"type": "string"}
    return {
        "type": "object",
        "properties": {
            "error": {
                "type": "object",
                "properties": {
                    "code": text,
                    "message": text,
                    "hint": {"type": ["string", "null"]},
                },
                "required": ["code", "message", "hint"],
            }
        },
        "required": ["error"],
    }
