"""JSON schemas that answers are held to: what they may say, and from what they come."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from exburn.errors import ArgumentError, ModelFormatError, require
from exburn.saving.json_text import parse_json

_OP = "schema"
_BY_NAME = {"properties", "patternProperties", "$defs", "definitions"}
_IN_LIST = {"anyOf", "oneOf", "allOf", "prefixItems"}
_ONE = {"items", "additionalProperties"}
_KEYWORDS = {
    *_BY_NAME,
    *_IN_LIST,
    *_ONE,
    *("$ref", "$schema", "type", "enum", "const", "required"),
    *("minLength", "maxLength", "pattern", "format"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
}
# Keywords that say nothing of what is valid.
_NOTES = {
    *("title", "description", "default", "examples", "$comment", "deprecated"),
    *("readOnly", "writeOnly", "discriminator"),
}
_DRAFTS = ("2020-12", "2019-09", "draft-07", "draft-06")


def read_schema(schema: Any) -> Any:
    """A JSON schema, of which every keyword is one that is honoured.

    Args:
        schema: A mapping, the text of one, or a class that ``pydantic`` describes.

    Raises:
        ArgumentError: A keyword is not honoured, or it is no schema.
        MissingDependencyError: A class is described by ``pydantic``.
    """
    if isinstance(schema, type):
        schema = _schema_of_class(schema)
    value = _parse(schema)
    if isinstance(value, bool):
        value = {} if value else {"enum": []}
    for place, part in _parts(value, "#"):
        _check_part(place, part)
    return value


def _schema_of_class(cls: Any) -> Any:
    package = require("pydantic", _OP, "classes are described by `pydantic`")
    try:
        return package.TypeAdapter(cls).json_schema()
    except Exception as error:  # of the class, of whatever kind
        cause = str(error).partition("\n")[0]
        raise ArgumentError(
            _OP,
            f"`pydantic` has no schema of the class {cls.__name__}",
            {"cause": cause},
        ) from error


def _parse(schema: Any) -> Any:
    if not isinstance(schema, str | Mapping | bool):
        raise ArgumentError(
            _OP,
            "a schema is a mapping, its text, or a class, received "
            f"{type(schema).__name__}",
        )
    try:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        return parse_json(text, _OP, "", "the schema")
    except ModelFormatError as error:
        cause = error.details.get("cause", "")
        raise ArgumentError(
            _OP, error.reason, {"cause": cause} if cause else None
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(_OP, "the schema is no JSON", {"cause": error}) from None


def _parts(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The schemas that a schema is made of, with their places."""
    yield place, schema
    if not isinstance(schema, dict):
        return
    for key, value in schema.items():
        within = f"{place}/{key}"
        if key in _BY_NAME and isinstance(value, dict):
            for name, part in value.items():
                yield from _parts(part, f"{within}/{name}")
        elif key in _IN_LIST and isinstance(value, list):
            for number, part in enumerate(value):
                yield from _parts(part, f"{within}/{number}")
        elif key in _ONE:
            yield from _parts(value, within)


def _check_part(place: str, part: Any) -> None:
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        raise ArgumentError(
            _OP,
            "a schema is an object, true or false",
            {"place": place, "received": part},
        )
    known = _KEYWORDS | _NOTES
    for key in part:
        if key not in known:
            raise ArgumentError(
                _OP,
                f"the keyword {key!r} is not honoured",
                {"place": place},
                hint="Leave it out, or say it with: " + ", ".join(sorted(_KEYWORDS)),
            )
    draft = part.get("$schema")
    if draft is not None and not any(name in str(draft) for name in _DRAFTS):
        raise ArgumentError(
            _OP, f"schemas are of {', '.join(_DRAFTS)}", {"$schema": draft}
        )


def has_finite_answer(root: Any) -> bool:
    """Tells whether a schema's references come to an end, by their least fixed point.

    Example:
        >>> has_finite_answer({"type": "array", "items": {"$ref": "#"}})
        True
        >>> has_finite_answer({"type": "array", "items": {"$ref": "#"}, "minItems": 1})
        False
    """
    finite: dict[str, bool] = {}

    def holds(schema: Any) -> bool:
        if not isinstance(schema, dict):
            return schema is not False
        choices = [schema[key] for key in ("anyOf", "oneOf") if key in schema]
        reference = schema.get("$ref")
        return (
            all(map(holds, _parts_of_all(schema)))
            and all(any(map(holds, choice)) for choice in choices)
            and (reference is None or finite.setdefault(reference, False))
        )

    while True:
        before = dict(finite)
        result = holds(root)
        for reference in before:
            finite[reference] = holds(_target(root, reference))
        if finite == before:
            return result


def _parts_of_all(schema: Mapping[str, Any]) -> list[Any]:
    """The schemas of which each answer has at least one value."""
    parts = list(schema.get("allOf", ()))
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) and len(kind) == 1 else kind
    if kind == "object":
        properties = schema.get("properties", {})
        rest = schema.get("additionalProperties", True)
        names = schema.get("required", ())
        parts += [properties.get(name, rest) for name in names]
    if kind == "array":
        first, least = schema.get("prefixItems", []), schema.get("minItems", 0)
        parts += first[:least]
        parts += [schema.get("items", True)] if least > len(first) else []
    return parts


def _target(root: Any, reference: str) -> Any:
    """The schema that is referred to; of one with a name of its own nothing is said."""
    part = root
    if reference != "#" and not reference.startswith("#/"):
        return True
    for key in reference.split("/")[1:]:
        key = key.replace("~1", "/").replace("~0", "~")
        part = part[int(key)] if isinstance(part, list) else part.get(key, True)
        if part is True:
            break
    return part
