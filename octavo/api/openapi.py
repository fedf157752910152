"""`/openapi.json`: the document of all routes, made from the routes themselves.

Request and response schemas are those of the msgspec structs that parse and write them, so the
document cannot disagree with the server. Made at the first request for it.

Source: OpenAPI Specification 3.1.0; 3.2.0 for events of streams.

Runs in: API process. Owns: the document's form. Knows nothing of: what routes do.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import msgspec

from octavo.api.endpoint import Described, Operation, types_of
from octavo.api.errors import ErrorResponse, row_of

NULL = {"type": "null"}
REF = "#/components/schemas/{name}"


def openapi_document(
    operations: Sequence[Operation], *, title: str, version: str, has_keys: bool
) -> dict[str, Any]:
    """The document.

    Args:
        operations: all routes.
        has_keys: the server asks for API keys.
    """
    operations = [operation for operation in operations if operation.is_documented]
    types = _types(operations)
    schemas, components = msgspec.json.schema_components(types, ref_template=REF)
    schema_of = dict(zip(types, schemas, strict=True))
    for operation in operations:
        for request in types_of(operation.request):
            _allow_null(components[request.__name__])
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        path = re.sub(r"\{(\w+):path\}", r"{\1}", operation.path)
        item = paths.setdefault(path, {})
        for method in operation.methods:
            item[method.lower()] = _operation(operation, method, schema_of, has_keys)
    document: dict[str, Any] = {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {"schemas": components},
    }
    if has_keys:
        document["components"]["securitySchemes"] = {
            "bearer": {"type": "http", "scheme": "bearer"},
            "x-api-key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
    return document


def _allow_null(request: dict[str, Any]) -> None:
    """Null means absent for every option of a request (`octavo/api/body.py`)."""
    for name, schema in request["properties"].items():
        alternatives = schema.get("anyOf", [schema])
        if name not in request["required"] and NULL not in alternatives:
            outside = {key: schema[key] for key in ("default", "description") if key in schema}
            inside = {key: value for key, value in schema.items() if key not in outside}
            is_union = set(inside) == {"anyOf"}
            kinds = [*(inside["anyOf"] if is_union else [inside]), NULL]
            request["properties"][name] = {"anyOf": kinds, **outside}


def _types(operations: Sequence[Operation]) -> list[Any]:
    types: list[Any] = [ErrorResponse]
    for operation in operations:
        for described in (operation.request, operation.response, operation.event):
            types += [found for found in types_of(described) if found not in types]
    return types


def _schema(described: Described | str, schema_of: dict[Any, Any]) -> dict[str, Any]:
    schemas: list[dict[str, Any]] = [schema_of[found] for found in types_of(described)]
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _operation(
    operation: Operation, method: str, schema_of: dict[Any, Any], has_keys: bool
) -> dict[str, Any]:
    name = re.sub(r"\W+", "_", operation.path.split(":")[0]).strip("_")
    described: dict[str, Any] = {
        "operationId": f"{method.lower()}_{name}",
        "summary": operation.summary,
        "tags": [operation.tag],
        "responses": _responses(operation, schema_of),
    }
    parameters = _parameters(operation)
    if parameters:
        described["parameters"] = parameters
    if operation.request is not None:
        described["requestBody"] = {
            "required": operation.needs_body,
            "content": {"application/json": {"schema": _schema(operation.request, schema_of)}},
        }
    if has_keys and not operation.is_open:
        described["security"] = [{"bearer": []}, {"x-api-key": []}]
    return described


def _parameters(operation: Operation) -> list[dict[str, Any]]:
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "description": text,
            "schema": {"type": "string"},
        }
        for name, text in operation.path_params.items()
    ]
    in_query = [
        {
            "name": name,
            "in": "query",
            "description": option.description,
            "schema": (
                {"enum": list(option.choices), "default": option.choices[0]}
                if option.choices
                else {"type": "boolean", "default": False}
            ),
        }
        for name, option in operation.query_params.items()
    ]
    return in_path + in_query


def _event(operation: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    """Of one event (OpenAPI 3.2; readers of 3.1 pass over it)."""
    types = [*types_of(operation.event), ErrorResponse]
    decoded = {
        "type": "string",
        "contentMediaType": "application/json",
        "contentSchema": {"anyOf": [schema_of[event] for event in types]},
    }
    return {
        "description": "with `stream`; the last event is `[DONE]`",
        "type": "object",
        "required": ["data"],
        "properties": {"data": {"anyOf": [{"const": "[DONE]"}, decoded]}},
    }


def _responses(operation: Operation, schema_of: dict[Any, Any]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    if isinstance(operation.response, str):
        content[operation.response] = {"schema": {"type": "string"}}
    elif operation.response is not None:
        content["application/json"] = {"schema": _schema(operation.response, schema_of)}
    if operation.event is not None:
        content["text/event-stream"] = {"itemSchema": _event(operation, schema_of)}
    responses: dict[str, Any] = {"200": {"description": "OK", "content": content}}
    for error in operation.errors:
        status = row_of(error("")).status
        responses[str(status)] = {
            "description": HTTPStatus(status).phrase,
            "content": {"application/json": {"schema": schema_of[ErrorResponse]}},
        }
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            responses[str(status)]["headers"] = {
                "Retry-After": {
                    "schema": {"type": "integer"},
                    "description": "seconds",
                    "required": True,
                }
            }
    return responses
