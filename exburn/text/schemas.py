"""JSON schemas that answers are held to: what they may say, and from what they come."""

from __future__ import annotations

import decimal
import json
import math
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
_DEEPEST = 1000  # of 8 MB of a thread's stack the package takes a third
_LARGEST_DIVISOR = 10_000  # 0.2 s; a million takes 25 s, and 500 MB
_LARGEST = 1 << 20  # characters
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
    parts = dict(_parts(value, "#"))
    for place, part in parts.items():
        _check_part(place, part)
    references = {part["$ref"] for part in parts.values() if _has(part, "$ref")}
    for reference in references - {*parts}:
        raise ArgumentError(
            _OP,
            "a reference must lead to a part of the schema that is one itself",
            {"$ref": reference},
        )
    if _is_old(parts):
        raise ArgumentError(_OP, "prefixItems is of 2020-12, and $schema says another")
    _check_size(parts, references)
    return value


def _check_size(parts: Mapping[str, Any], references: set[str]) -> None:
    """Raises if compiling could take too long, or all of a thread's stack.

    The package follows references into one another, and has a state for each remainder
    of a division.
    """
    depth = _depth(parts["#"]) + sum(_depth(parts[name]) for name in references)
    if depth > _DEEPEST:
        raise ArgumentError(
            _OP, f"the schema's references are {depth} levels deep, at most {_DEEPEST}"
        )
    dividing = [part for part in parts.values() if _has(part, "multipleOf")]
    common = math.lcm(*(_digits(part["multipleOf"]) for part in dividing))
    if common > _LARGEST_DIVISOR:
        raise ArgumentError(
            _OP,
            f"the digits of all multipleOf have the common multiple {common}, at most "
            f"{_LARGEST_DIVISOR}",
        )


def _has(part: Any, key: str) -> bool:
    return isinstance(part, dict) and key in part


def _is_old(parts: Mapping[str, Any]) -> bool:
    draft = parts["#"].get("$schema", _DRAFTS[0])
    tuples = any(_has(part, "prefixItems") for part in parts.values())
    return tuples and _DRAFTS[0] not in str(draft)


def _depth(schema: Any) -> int:
    """Levels of schemas in one another, without references."""
    return 1 + max((_depth(part) for _, part in _within(schema)), default=0)


def _digits(divisor: Any) -> int:
    """The digits of a number as an integer, without zeros around them."""
    if isinstance(divisor, bool) or not isinstance(divisor, int | float):
        return 1  # which the package refuses
    digits = decimal.Decimal(str(divisor)).normalize().as_tuple().digits
    return max(int("".join(map(str, digits))), 1)


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
        if len(text) > _LARGEST:
            raise ValueError(f"{len(text):,} characters, at most {_LARGEST:,}")
        value = parse_json(text, _OP, "", "the schema")
        text = json.dumps(value, allow_nan=False, ensure_ascii=False)
        text.encode()  # no lone surrogates
        return json.loads(text, parse_int=_exact_integer)
    except ModelFormatError as error:
        cause = error.details.get("cause", "")
        raise ArgumentError(
            _OP, error.reason, {"cause": cause} if cause else None
        ) from None
    except (TypeError, ValueError, RecursionError) as error:
        raise ArgumentError(_OP, "the schema is not sound", {"cause": error}) from None


def _exact_integer(text: str) -> int:
    """An integer that the package, which computes with floats, does not change."""
    value = int(text)
    if abs(value) > 1 << 53:
        raise ValueError(f"integers are from -2**53 to 2**53, received {text}")
    return value


def _parts(schema: Any, place: str) -> Iterator[tuple[str, Any]]:
    """The schemas that a schema is made of, with their places."""
    yield place, schema
    for within, part in _within(schema):
        yield from _parts(part, f"{place}/{within}")


def _within(schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas right within one, with their places in it."""
    for key, value in schema.items() if isinstance(schema, dict) else ():
        if key in _BY_NAME and isinstance(value, dict):
            for name, part in value.items():
                name = name.replace("~", "~0").replace("/", "~1")
                yield f"{key}/{name}", part
        elif key in _IN_LIST and isinstance(value, list):
            for number, part in enumerate(value):
                yield f"{key}/{number}", part
        elif key in _ONE:
            yield key, value


def _check_part(place: str, part: Any) -> None:
    if isinstance(part, bool):
        return
    if not isinstance(part, dict):
        raise ArgumentError(
            _OP,
            "a schema is an object, true or false",
            {"place": place, "received": part},
        )
    for key in part:
        if key not in _KEYWORDS | _NOTES:
            raise ArgumentError(
                _OP,
                f"the keyword {key!r} is not honoured",
                {"place": place},
                hint="Leave it out, or say it with: " + ", ".join(sorted(_KEYWORDS)),
            )
    if not isinstance(part.get("$ref", ""), str):
        raise ArgumentError(_OP, "$ref must be a text", {"place": place})
    draft = part.get("$schema")
    known = place == "#" and any(name in str(draft) for name in _DRAFTS)
    if draft is not None and not known:
        raise ArgumentError(
            _OP,
            f"a schema is as a whole of {', '.join(_DRAFTS)}",
            {"$schema": draft, "place": place},
        )


def has_finite_answer(root: Any) -> bool:
    """Tells whether a schema's references come to an end, by their least fixed point.

    Example:
        >>> has_finite_answer({"type": "array", "items": {"$ref": "#"}})
        True
        >>> has_finite_answer({"type": "array", "items": {"$ref": "#"}, "minItems": 1})
        False
    """
    parts = dict(_parts(root, "#"))
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
            finite[reference] = holds(parts[reference])
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
