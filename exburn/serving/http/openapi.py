"""The server's routes as an OpenAPI description, with the inputs of its models."""

from __future__ import annotations

from typing import Any

from exburn.serving.http.datatypes import DATATYPES, kind_of
from exburn.serving.http.registry import Entry, Registry
from exburn.serving.http.tensor import Tensor

__all__ = ["describe_api"]

_JSON_TYPES = {
    "float": {"type": "number"},
    "integer": {"type": "integer"},
    "boolean": {"type": "boolean"},
    "text": {"type": "string"},
}
_FAILURES = {
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


def describe_api(registry: Registry, version: str) -> dict[str, Any]:
    """The description, by OpenAPI 3.1, of what is served now.

    Args:
        registry: The models.
        version: ExBurn's.
    """
    paths: dict[str, Any] = {
        "/v2": _get("Name, version and extensions of the server."),
        "/v2/health/live": _get("Whether the process should go on.", 503, key=False),
        "/v2/health/ready": _get("Whether every model answers.", 503, key=False),
        "/metrics": _get("Metrics for Prometheus.", media="text/plain"),
    }
    schemas: dict[str, Any] = {
        "Error": {
            "type": "object",
            "properties": {"error": {"type": "string"}},
            "required": ["error"],
        },
        "Datatype": {"enum": [*DATATYPES, "BYTES"]},
    }
    for name in registry.names():
        versions = registry.versions(name)
        for version_name in (None, *versions):
            entry = registry.get(name, version_name)
            path = f"/v2/models/{name}"
            if version_name is not None:
                path += f"/versions/{version_name}"
            schema = f"{name}-{entry.version}"
            paths[path] = _get("Inputs and outputs of the model.", 404)
            paths[f"{path}/ready"] = _get("Whether the model answers.", 404, 503)
            if entry.serving is not None:
                schemas[f"{schema}-request"] = _request(entry)
                schemas[f"{schema}-answer"] = _answer(entry)
                paths[f"{path}/infer"] = _infer(schema)
            if entry.stream is not None:
                paths[f"{path}/generate_stream"] = _GENERATE
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "ExBurn",
            "version": version,
            "description": "Models by the Open Inference Protocol, version 2.",
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


def _get(
    summary: str, *failures: int, media: str = "application/json", key: bool = True
) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "OK", "content": {media: {}}},
            **_failures(*failures, *((401,) if key else ())),
        },
    }
    if not key:
        operation["security"] = []
    return {"get": operation}


def _infer(schema: str) -> dict[str, Any]:
    def content(kind: str) -> dict[str, Any]:
        return {
            "application/json": {"schema": {"$ref": f"{_REF}{schema}-{kind}"}},
            "application/octet-stream": {},
        }

    return {
        "post": {
            "summary": "The outputs for some rows of inputs.",
            "parameters": [
                {
                    "name": "Inference-Header-Content-Length",
                    "in": "header",
                    "description": "Bytes of the JSON part, if binary tensors follow.",
                    "schema": {"type": "integer", "minimum": 0},
                }
            ],
            "requestBody": {"required": True, "content": content("request")},
            "responses": {
                "200": {"description": "OK", "content": content("answer")},
                **_failures(*_FAILURES),
            },
        }
    }


def _failures(*statuses: int) -> dict[str, Any]:
    return {
        str(status): {
            "description": _FAILURES[status],
            "content": {"application/json": {"schema": {"$ref": f"{_REF}Error"}}},
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
_GENERATE = {
    "post": {
        "summary": "An answer in parts, as server-sent events.",
        "requestBody": {
            "required": True,
            "content": {"application/json": {"schema": {"type": "object"}}},
        },
        "responses": {
            "200": {"description": "OK", "content": {"text/event-stream": {}}},
            **_failures(*_FAILURES),
        },
    }
}
