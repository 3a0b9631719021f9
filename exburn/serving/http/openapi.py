"""The server's routes as an OpenAPI description, with the inputs of its models."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from exburn.core.version import __version__
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.http.route import BINARY, JSON, ServerRoute
from exburn.serving.http.tensor import DATATYPES, Tensor, kind_of

_JSON_TYPES = {
    "float": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "text": {"type": "string"},
}
FAILURES = {
    400: "The body is not what the model takes.",
    401: "A valid API key is needed.",
    403: "A page of another origin asks.",
    404: "There is no such model, or no such version.",
    408: "The body came too slowly.",
    413: "The body is too long, or has too many rows.",
    429: "Too many requests wait, or come from this caller.",
    500: "The model failed.",
    503: "The server is closing, or has no memory now.",
    504: "There was no answer within the time allowed.",
}
_REF = "#/components/schemas/"
_NAME = {
    "name": "name",
    "in": "path",
    "required": True,
    "schema": {"type": "string"},
}
_HEADER_LENGTH = {
    "name": "Inference-Header-Content-Length",
    "in": "header",
    "description": "Bytes of the JSON part, if binary tensors follow.",
    "schema": {"type": "integer", "minimum": 0},
}


def describe_api(table: Iterable[ServerRoute], registry: Registry) -> dict[str, Any]:
    """The description, by OpenAPI 3.1, of what is served now."""
    rows = [row for row in table if row.is_listed]
    paths = {row.path: _operation(row) for row in rows if not row.of_model}
    schemas: dict[str, Any] = {
        "Error": {
            "type": "object",
            "properties": {"error": {"type": "string"}},
            "required": ["error"],
        },
        "OpenAIError": {
            "type": "object",
            "properties": {"error": {"type": "object"}},
            "required": ["error"],
        },
        "Datatype": {"enum": [*DATATYPES, "BYTES"]},
    }
    for name in registry.names():
        for version in (None, *registry.versions(name)):
            entry = registry.get(name, version)
            schema = f"{name}-{entry.version}"
            if entry.serving is not None:
                schemas[f"{schema}-request"] = _request(entry)
                schemas[f"{schema}-answer"] = _answer(entry)
            for row in rows:
                if row.of_model and _has_route(entry, row):
                    path = row.paths[version is not None]
                    path = path.format(model=name, version=version)
                    paths[path] = _operation(row, schema)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ExBurn",
            "version": __version__,
            "description": "Models by the Open Inference Protocol, version 2; "
            "those that write texts also by OpenAI's API.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "bearer": {"type": "http", "scheme": "bearer"},
                "key": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
        },
        "security": [{}, {"bearer": []}, {"key": []}],
    }


def _has_route(entry: Entry, row: ServerRoute) -> bool:
    return row.models == "all" or getattr(entry, row.models) is not None


def _operation(row: ServerRoute, schema: str = "") -> dict[str, Any]:
    """The description of one route, for a model's schemas where it takes tensors."""

    def content(media: tuple[str, ...], kind: str) -> dict[str, Any]:
        contents: dict[str, Any] = {each: {} for each in media}
        if BINARY in media:  # tensors, in JSON by the model's schema
            contents[JSON] = {"schema": {"$ref": f"{_REF}{schema}-{kind}"}}
        elif kind == "request":
            contents[JSON] = {"schema": {"type": "object"}}
        return contents

    failures = {*row.failures, *(() if row.is_open else (401,))}
    operation: dict[str, Any] = {
        "summary": row.text,
        "responses": {
            "200": {"description": "OK", "content": content(row.answers, "answer")},
            **_failures(row, failures),
        },
    }
    if BINARY in row.takes:
        operation["parameters"] = [_HEADER_LENGTH]
    if "{name}" in row.path:
        operation["parameters"] = [_NAME]
    if row.takes:
        body = {"required": True, "content": content(row.takes, "request")}
        operation["requestBody"] = body
    if row.is_open:
        operation["security"] = []
    return {row.method.lower(): operation}


def _failures(row: ServerRoute, statuses: set[int]) -> dict[str, Any]:
    name = "OpenAIError" if row.path.startswith("/v1/") else "Error"
    return {
        str(status): {
            "description": FAILURES[status],
            "content": {"application/json": {"schema": {"$ref": f"{_REF}{name}"}}},
        }
        for status in sorted(statuses)
    }


def _request(entry: Entry) -> dict[str, Any]:
    inputs = list(entry.signature.inputs.values())
    return {
        "type": "object",
        "required": ["inputs"],
        "properties": {
            "id": {"type": "string"},
            "parameters": {
                "type": "object",
                "properties": {
                    "binary_data_output": {"type": "boolean"},
                    "timeout": {"type": "integer", "description": "Microseconds."},
                },
            },
            "inputs": {
                "type": "array",
                "minItems": len(inputs),
                "maxItems": len(inputs),
                "items": {
                    "oneOf": [
                        *(_tensor(tensor) for tensor in inputs),
                        *(_image(name) for name in entry.signature.images),
                    ]
                },
            },
            "outputs": {
                "type": "array",
                "items": {
                    "type": "object",
                    "required": ["name"],
                    "properties": {"name": {"enum": [*entry.signature.outputs]}},
                },
            },
        },
    }


def _answer(entry: Entry) -> dict[str, Any]:
    outputs = entry.signature.outputs.values()
    return {
        "type": "object",
        "required": ["model_name", "model_version", "outputs"],
        "properties": {
            "model_name": {"const": entry.name},
            "model_version": {"const": entry.version},
            "id": {"type": "string"},
            "outputs": {
                "type": "array",
                "items": {"oneOf": [_tensor(tensor) for tensor in outputs]},
            },
        },
    }


def _image(name: str) -> dict[str, Any]:
    tensor = _tensor(Tensor(name, "BYTES", (-1,)))
    tensor["description"] = "PNG or JPEG files: in JSON as base64."
    return tensor


def _tensor(tensor: Tensor) -> dict[str, Any]:
    return {
        "type": "object",
        "required": ["name", "shape", "datatype"],
        "properties": {
            "name": {"const": tensor.name},
            "datatype": {"const": tensor.datatype},
            "shape": {
                "type": "array",
                "prefixItems": [
                    {"type": "integer", "minimum": int(axis == 0)}
                    if n < 0
                    else {"const": n}
                    for axis, n in enumerate(tensor.shape)
                ],
                "minItems": len(tensor.shape),
                "maxItems": len(tensor.shape),
            },
            "data": {
                "type": "array",
                "minItems": 0 if 0 in tensor.shape or -1 in tensor.shape[1:] else 1,
                "description": "Row by row, flat or nested.",
                "items": {"anyOf": [_JSON_TYPES[kind_of(tensor.datatype)], _NESTED]},
            },
            "parameters": {"type": "object"},
        },
    }


_NESTED = {"type": "array"}
