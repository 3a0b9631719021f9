"""Random JSON schemas, of all that constraints honour, with values that are valid."""

from __future__ import annotations

import random
from typing import Any

NAMES = [
    "a",
    "b",
    "name",
    "naïve",
    "日本",
    "a b",
    'q"t',
    "x/y",
    "t~",
    "",
    "😀",
    "<|endoftext|>",
]
PATTERNS = [
    (
        r"^[a-f]{1,4}$",
        lambda draw: "".join(draw.choices("abcdef", k=draw.randint(1, 4))),
    ),
    (
        r"^(é|日本)+$",
        lambda draw: "".join(draw.choices(["é", "日本"], k=draw.randint(1, 3))),
    ),
    (
        r"\d{2}-\d{2}",
        lambda draw: (
            draw.choice(["", "x"]) + f"{draw.randint(10, 99)}-{draw.randint(10, 99)}"
        ),
    ),
    (r"^[^a-zA-Z\\]{2}$", lambda draw: "".join(draw.choices('12日+😀"', k=2))),
    (r"^(yes|no)?$", lambda draw: draw.choice(["yes", "no", ""])),
]
FORMATS = {
    "date": lambda draw: (
        f"{draw.randint(1900, 2100)}-{draw.randint(1, 12):02}-{draw.randint(1, 28):02}"
    ),
    "time": lambda draw: f"{draw.randint(0, 23):02}:{draw.randint(0, 59):02}:07Z",
    "date-time": lambda draw: f"{FORMATS['date'](draw)}T{FORMATS['time'](draw)}",
    "uuid": lambda draw: (
        f"{draw.getrandbits(32):08x}-1234-4abc-8def-{draw.getrandbits(48):012x}"
    ),
    "ipv4": lambda draw: ".".join(str(draw.randint(0, 255)) for _ in range(4)),
    "email": lambda draw: f"{draw.choice('abc')}@{draw.choice('xyz')}.org",
}


class RandomSchema:
    """A schema, and a value of it; a schema without an end has none.

    Example:
        >>> schema, value = RandomSchema(random.Random(0)).draw()
    """

    def __init__(self, draw: random.Random, depth: int = 3):
        self._draw, self._depth = draw, depth
        self._definitions: dict[str, Any] = {}

    def draw(self) -> tuple[Any, Any]:
        schema, value = self._any(self._depth)
        if self._definitions:
            schema = {**schema, "$defs": self._definitions}
        if self._draw.random() < 0.2:
            schema = {
                "$schema": "https://json-schema.org/draft/2020-12/schema",
                **schema,
            }
        return schema, value

    def _any(self, depth: int) -> tuple[Any, Any]:
        plain = [self._integer, self._number, self._string, self._enum, self._plain]
        nested = [self._object, self._array, self._either, self._reference, self._all]
        nested += [self._object, self._array]
        makers = plain if depth <= 0 else plain + nested
        maker = self._draw.choice(makers)
        schema, value = maker(depth)
        if self._draw.random() < 0.1:
            schema = {**schema, "title": "T", "description": "of a value"}
        return schema, value

    def _plain(self, depth):
        kind, value = self._draw.choice(
            [("boolean", True), ("null", None), (["null", "boolean"], False)]
        )
        return {"type": kind}, value

    def _integer(self, depth):
        low = self._draw.choice([0, -5, 7, -1000, 10**6])
        high = low + self._draw.choice([0, 1, 9, 995])
        schema: dict[str, Any] = {"type": "integer"}
        lowest = self._draw.choice([None, "minimum", "exclusiveMinimum"])
        highest = self._draw.choice([None, "maximum", "exclusiveMaximum"])
        if lowest:
            schema[lowest] = low - (lowest != "minimum")
        if highest:
            schema[highest] = high + (highest != "maximum")
        value = self._draw.randint(low, high)
        if self._draw.random() < 0.2 and low <= 0 <= high:
            schema["multipleOf"], value = self._draw.choice([2, 3, 10]), 0
        return schema, value

    def _number(self, depth):
        low = self._draw.choice([0, -2.5, 0.001, 100, -1e3])
        high = low + self._draw.choice([0.5, 1, 1e4])
        schema: dict[str, Any] = {"type": "number"}
        if self._draw.random() < 0.6:
            schema["minimum"] = low
        if self._draw.random() < 0.6:
            schema["maximum"] = high
        if self._draw.random() < 0.2:
            schema["exclusiveMaximum"] = high + 1
        return schema, round(low + (high - low) / 2, 4)

    def _string(self, depth):
        schema: dict[str, Any] = {"type": "string"}
        way = self._draw.random()
        if way < 0.3:
            schema["pattern"], make = self._draw.choice(PATTERNS)
            return schema, make(self._draw)
        if way < 0.5:
            schema["format"] = self._draw.choice(sorted(FORMATS))
            return schema, FORMATS[schema["format"]](self._draw)
        low = self._draw.randint(0, 3)
        high = low + self._draw.randint(0, 3)
        value = "".join(
            self._draw.choices('ab "\\\n日é😀\u2028', k=self._draw.randint(low, high))
        )
        schema["minLength"] = low
        schema["maxLength"] = high
        return schema, value

    def _enum(self, depth):
        values = [
            1,
            -2.5,
            "é",
            "日本",
            None,
            True,
            'a"b',
            "\n",
            [1, "x"],
            {"k": []},
            {},
        ]
        value = self._draw.choice(values)
        if self._draw.random() < 0.3:
            return {"const": value}, value
        return {"enum": [value, *self._draw.sample(["p", 7, False, "zé"], 2)]}, value

    def _object(self, depth):
        names = self._draw.sample(NAMES, self._draw.randint(0, 3))
        parts = {name: self._any(depth - 1) for name in names}
        required = [name for name in names if self._draw.random() < 0.6]
        schema: dict[str, Any] = {
            "type": "object",
            "properties": {name: part for name, (part, _) in parts.items()},
            "required": required,
        }
        value = {
            name: part
            for name, (_, part) in parts.items()
            if name in required or self._draw.random() < 0.5
        }
        way = self._draw.random()
        if way < 0.6:
            schema["additionalProperties"] = False
        elif way < 0.8:
            more, part = self._any(0)
            schema["additionalProperties"] = more
            value["other"] = part
        elif way < 0.9 and not names:
            more, part = self._any(0)
            schema["patternProperties"] = {"^p": more}
            schema["additionalProperties"] = False
            value["p1"] = part
        elif way < 0.95:
            schema["minProperties"] = len(value)
            schema["maxProperties"] = len(value) + 1
        return schema, value

    def _array(self, depth):
        items, _ = part = self._any(depth - 1)
        schema: dict[str, Any] = {"type": "array", "items": items}
        count = self._draw.randint(0, 3)
        value = [part[1]] * count
        if self._draw.random() < 0.7:
            schema["minItems"] = self._draw.randint(0, count)
        schema["maxItems"] = count + self._draw.randint(0, 1)
        if self._draw.random() < 0.3:
            first, start = self._any(depth - 1)
            schema["prefixItems"] = [first]
            schema["maxItems"] += 1
            value = [start, *value]
        return schema, value

    def _either(self, depth):
        parts = [self._any(depth - 1) for _ in range(self._draw.randint(1, 3))]
        return {"anyOf": [part for part, _ in parts]}, self._draw.choice(parts)[1]

    def _all(self, depth):
        low = self._draw.randint(-9, 9)
        parts = [{"type": "integer", "minimum": low}, {"maximum": low + 20}]
        return {"allOf": parts}, low + 3

    def _reference(self, depth):
        name = f"d{len(self._definitions)}"
        if self._draw.random() < 0.3:  # a list of such lists, or a chain
            self._definitions[name] = schema = {
                "type": "object",
                "properties": {"v": {"type": "integer", "maximum": 9, "minimum": 0}},
                "required": ["v"],
                "additionalProperties": False,
            }
            schema["properties"]["next"] = {"$ref": f"#/$defs/{name}"}
            return {"$ref": f"#/$defs/{name}"}, {"v": 1, "next": {"v": 2}}
        self._definitions[name] = True
        self._definitions[name], value = self._any(depth - 1)
        return {"$ref": f"#/$defs/{name}"}, value
