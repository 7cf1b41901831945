"""The OpenAPI document: it follows from the table, says what endpoints take, and is well formed.

The checks are the rules of OpenAPI 3.1 and JSON Schema 2020-12 that such a document can break.
"""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any, get_args

import pytest
from jsonschema import Draft202012Validator

from agentstate.doors.api import endpoint_table
from agentstate.doors.api.openapi import openapi_document
from agentstate.ground.records import SessionStatus
from agentstate.wire.endpoint import Endpoint, Field
from tests.helpers.desk import Desk

METHODS = {"get", "post", "patch", "put", "delete"}
KINDS = {"object", "array", "string", "integer", "number", "boolean", "null"}
OPERATION_KEYS = {"operationId", "summary", "parameters", "requestBody", "responses", "security"}
SCHEME_KEYS = {
    "http": {"type", "scheme", "description"},
    "apiKey": {"type", "in", "name", "description"},
}
TABLE = endpoint_table(None, None, "", *[None] * 8)  # type: ignore[arg-type]  # only the rows


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    with Desk() as desk:
        yield desk


def ask(desk: Desk, method: str, target: str, body: bytes | None = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection(desk.url.removeprefix("http://"), timeout=10)
    headers = {} if body is None else {"content-type": "application/json"}
    try:
        connection.request(method, target, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def check_schema(schema: Any, document: dict[str, Any]) -> None:
    """Check a JSON schema of the few kinds that we write."""
    Draft202012Validator.check_schema(schema)
    if not schema:
        return  # any JSON
    if "anyOf" in schema:
        assert set(schema) == {"anyOf"}
        for each in schema["anyOf"]:
            check_schema(each, document)
        return
    if "$ref" in schema:
        assert set(schema) == {"$ref"}
        place = document
        for step in schema["$ref"].removeprefix("#/").split("/"):
            place = place[step]
        return
    assert set(schema) <= {"type", "items", "properties", "required", "enum", "description",
                           "additionalProperties"}  # fmt: skip
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    assert set(kinds) <= KINDS
    assert len(set(kinds)) == len(kinds)
    for inner in schema.get("properties", {}).values():
        check_schema(inner, document)
    assert set(schema.get("required", ())) <= set(schema.get("properties", {}))
    if "items" in schema:
        check_schema(schema["items"], document)
    if isinstance(schema.get("additionalProperties"), dict):
        check_schema(schema["additionalProperties"], document)
    if "enum" in schema:
        assert schema["enum"]
        assert len(set(schema["enum"])) == len(schema["enum"])


def check_content(content: Any, document: dict[str, Any]) -> None:
    assert content
    for kind, media in content.items():
        assert re.fullmatch(r"[a-z]+/[a-z.+-]+", kind)
        assert set(media) == {"schema"}
        check_schema(media["schema"], document)


def check_operation(path: str, operation: dict[str, Any], document: dict[str, Any]) -> None:
    assert set(operation) <= OPERATION_KEYS
    assert operation["summary"].endswith(".")
    places = [(each["in"], each["name"]) for each in operation["parameters"]]
    assert len(set(places)) == len(places)
    assert [name for place, name in places if place == "path"] == re.findall(r"{(\w+)}", path)
    for parameter in operation["parameters"]:
        assert set(parameter) <= {"name", "in", "required", "description", "schema"}
        assert parameter["in"] in ("path", "query")
        assert parameter["required"] is True or parameter["in"] == "query"
        check_schema(parameter["schema"], document)
    for status, response in operation["responses"].items():
        assert re.fullmatch(r"[1-5](\d\d|XX)", status)
        assert response["description"]
        check_content(response["content"], document)
    for needed in operation["security"]:
        ((name, roles),) = needed.items()
        assert name in document["components"]["securitySchemes"]
        assert roles
    # Who asks for a token says what comes of none; who asks for none has no endpoint but its own.
    assert bool(operation["security"]) <= ({"401", "403", "429"} <= set(operation["responses"]))
    if "requestBody" in operation:
        assert set(operation["requestBody"]) == {"required", "content"}
        check_content(operation["requestBody"]["content"], document)


def check(document: dict[str, Any]) -> None:
    assert set(document) == {"openapi", "info", "paths", "components"}
    assert re.fullmatch(r"3\.1\.\d+", document["openapi"])
    assert document["info"]["title"]
    assert document["info"]["version"]
    ids = []
    for path, methods in document["paths"].items():
        assert path.startswith("/")
        assert set(methods) <= METHODS
        for operation in methods.values():
            check_operation(path, operation, document)
            ids.append(operation["operationId"])
    assert len(set(ids)) == len(ids)
    assert set(document["components"]) == {"schemas", "securitySchemes"}
    for schema in document["components"]["schemas"].values():
        check_schema(schema, document)
    for scheme in document["components"]["securitySchemes"].values():
        assert set(scheme) <= SCHEME_KEYS[scheme["type"]]


def test_it_is_served_and_well_formed(desk: Desk) -> None:
    status, document = ask(desk, "GET", "/api/openapi.json")
    assert status == 200
    check(document)
    assert ask(desk, "GET", "/api/openapi.json?x=1")[0] == 400


def test_every_endpoint_is_in_it_and_nothing_else(desk: Desk) -> None:
    _, document = ask(desk, "GET", "/api/openapi.json")
    found = {(method.upper(), path) for path, each in document["paths"].items() for method in each}
    assert found == {(each.method, each.pattern) for each in TABLE}


@pytest.mark.parametrize(
    "endpoint",
    [
        each
        for each in TABLE
        if each.method == "GET" and each.pattern not in ("/healthz", "/readyz")
    ],
    ids=lambda each: each.pattern,
)
def test_it_names_the_parameters_that_the_endpoint_takes(desk: Desk, endpoint: Endpoint) -> None:
    desk.hold(("send_email", "{}"), session="s")
    target = endpoint.pattern.replace("{id}", "s").replace("{index}", "0")
    status, found = ask(desk, "GET", f"{target}?zz=1")
    assert status == 400, found
    _, _, known = found["error"]["message"].partition("known are ")
    names = [name for name in known.rstrip(".").split(", ") if name]
    assert sorted(each.name for each in endpoint.query) == names


@pytest.mark.parametrize(
    "endpoint",
    [each for each in TABLE if each.body is not None],
    ids=lambda each: f"{each.method} {each.pattern}",
)
def test_it_names_the_keys_that_a_body_takes(desk: Desk, endpoint: Endpoint) -> None:
    assert endpoint.body is not None
    desk.hold(("send_email", "{}"), session="s")
    target = endpoint.pattern.replace("{id}", "s").replace("{name}", "n")
    for field in endpoint.body:
        # A value that is none of ours: an endpoint that does not know the key says so.
        sent = json.dumps({field.name: [[]]}).encode()
        status, found = ask(desk, endpoint.method, target, sent)
        assert status in (400, 404), found
        assert "unknown key" not in found["error"]["message"]
    assert all(
        each.method in ("POST", "PATCH", "DELETE") for each in TABLE if each.body is not None
    )


def test_what_a_row_says_is_in_the_document() -> None:
    async def nobody(*_: Any) -> Any:
        raise AssertionError("it is not asked")

    row = Endpoint(
        "POST",
        "/api/things/{id}/paint",
        nobody,
        "Paint a thing.",
        query=(Field("wet", "at once", "boolean"),),
        body=(
            Field("color", "which", choices=("red", "blue"), is_needed=True),
            Field("coats", "how often", "integer", takes_null=True),
        ),
        answers="array",
        errors=(409,),
    )
    document: Any = openapi_document((row,), "1.0")
    check(document)
    operation = document["paths"]["/api/things/{id}/paint"]["post"]
    assert operation["operationId"] == "postThingsIdPaint"
    assert [each["name"] for each in operation["parameters"]] == ["id", "wet"]
    schema = operation["requestBody"]["content"]["application/json"]["schema"]
    assert schema["required"] == ["color"]
    assert schema["properties"]["color"]["enum"] == ["red", "blue"]
    assert schema["properties"]["coats"]["type"] == ["integer", "null"]
    assert set(operation["responses"]) == {
        "200", "400", "401", "403", "404", "409", "429", "503",
    }  # fmt: skip
    assert operation["security"] == [
        {"bearer": ["admin"]},
        {"token": ["admin"]},
        {"cookie": ["admin"]},
    ]


def operation_of(document: Any, method: str, path: str) -> Any:
    return document["paths"][path][method]


def test_it_says_who_may_ask_and_what_a_file_is_and_which_errors_come() -> None:
    document: Any = openapi_document(TABLE, "1.0")
    pending = operation_of(document, "get", "/api/approvals/pending")
    assert [each for each in pending["security"] if "bearer" in each] == [{"bearer": ["read"]}]
    action = operation_of(document, "post", "/api/approvals/{id}/action")
    assert action["security"][0] == {"bearer": ["approve"]}
    assert operation_of(document, "get", "/healthz")["security"] == []

    taken = operation_of(document, "post", "/api/cassettes")["requestBody"]["content"]
    assert "application/x-ndjson" in taken
    given = operation_of(document, "get", "/api/sessions/{id}/cassette")["responses"]["200"]
    assert list(given["content"]) == ["application/x-ndjson"]
    export = operation_of(document, "get", "/api/export/dataset")["responses"]["200"]
    assert list(export["content"]) == ["application/jsonl", "application/json"]

    rerun = operation_of(document, "post", "/api/sessions/{id}/steps/{index}/rerun")
    assert {"4XX", "5XX"} <= set(rerun["responses"])
    degraded = operation_of(document, "get", "/healthz")["responses"]["503"]
    assert degraded["content"]["application/json"]["schema"]["$ref"].endswith("/Degraded")


def test_the_main_rows_have_a_schema() -> None:
    document: Any = openapi_document(TABLE, "1.0")
    schemas = document["components"]["schemas"]
    main = {
        "Session",
        "Step",
        "Approval",
        "Webhook",
        "Delivery",
        "DurableCall",
        "ToolCall",
        "Error",
    }
    assert main <= set(schemas)
    assert schemas["Session"]["properties"]["status"]["enum"] == list(get_args(SessionStatus))
    assert schemas["Session"]["properties"]["tags"]["additionalProperties"] == {"type": "string"}


@pytest.mark.parametrize(
    "spoil",
    [
        lambda paths: paths["/healthz"]["get"].pop("summary"),
        lambda paths: paths["/api/sessions/{id}"]["get"]["parameters"].pop(0),
        lambda paths: paths["/healthz"]["get"].update(operationId="getSessions"),
        lambda paths: paths["/healthz"]["get"]["responses"].update({"OK": {}}),
        lambda paths: paths.update(odd={}),
    ],
)
def test_the_check_can_fail(spoil: Any) -> None:
    document: Any = json.loads(json.dumps(openapi_document(TABLE, "1.0")))
    check(document)
    spoil(document["paths"])
    with pytest.raises((AssertionError, KeyError)):
        check(document)
