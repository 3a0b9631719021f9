"""Tables of configuration files: entries are used, harmless by name, or refused."""

import pytest

from exburn.errors import FileFormatError
from exburn.weights.entries import (
    Field,
    Misfit,
    Table,
    choice,
    flag,
    list_of,
    nullable,
    one_or_list,
    real,
    section,
    text,
    whole,
)

INNER = Table("config.json", [Field("base", "base", real(0, above=True), 1e4)])
TABLE = Table(
    "config.json",
    [
        Field("layers", "depth", whole(), 12),
        Field("window", "window", nullable(whole()), 4096),
        Field("rope", "rope", nullable(section(INNER.at("rope"), "op"))),
    ],
    only={"act": ("silu", "swish"), "bias": (False,), "heads": ()},
    harmless=["use_cache"],
)


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, {"depth": 12, "window": 4096, "rope": None}),
        ({"layers": 3, "window": None}, {"depth": 3, "window": None, "rope": None}),
        ({"act": "swish", "bias": False, "use_cache": [1]}, {"depth": 12}),
        ({"act": None, "heads": None, "new": None}, {"depth": 12}),
        ({"rope": {"base": 5}}, {"rope": {"base": 5.0}}),
        ({"rope": {}}, {"rope": {"base": 1e4}}),
    ],
)
def test_what_is_used(told, expected):
    found = TABLE.read(told, "op")
    assert {name: found[name] for name in expected} == expected


@pytest.mark.parametrize(
    ("told", "match"),
    [
        (
            {"layers": "3"},
            "'layers' in config.json must be a whole number of at least 1",
        ),
        ({"layers": None}, "'layers' in config.json must be a whole number"),
        (
            {"act": "gelu"},
            "'act' in config.json must be 'silu' or 'swish', the file has",
        ),
        ({"bias": 0}, "'bias' in config.json must be False, the file has 0"),
        ({"heads": 3}, "'heads' in config.json must be null, the file has 3"),
        ({"new": False}, "has an entry that nothing is known of: 'new'"),
        ({"b": 1, "a": 2}, "has entries that nothing is known of: 'b', 'a'"),
        ({"rope": {"base": 0}}, "'rope.base' in config.json must be a number above 0"),
        ({"rope": {"scale": 2}}, "'rope.scale'"),
        ({"rope": 3}, "'rope' in config.json must be an object"),
    ],
)
def test_what_is_refused_by_name(told, match):
    with pytest.raises(FileFormatError, match=match):
        TABLE.read(told, "op")


def test_a_table_is_changed_without_the_one_that_it_comes_from():
    other = TABLE.derive(
        [Field("act", "act", choice({"gelu": "erf"}), "erf")],
        only={"tied": (True,)},
        harmless=["bias"],
        defaults={"layers": 24},
        without=["rope"],
    )
    found = other.read({"act": "gelu", "bias": True, "tied": True}, "op")
    assert found == {"depth": 24, "window": 4096, "act": "erf"}
    for told in ({"tied": False}, {"rope": {}}):
        with pytest.raises(FileFormatError):
            other.read(told, "op")
    with pytest.raises(FileFormatError, match="'act'"):
        TABLE.read({"act": "gelu"}, "op")


INFINITE, NAN = float("inf"), float("nan")


@pytest.mark.parametrize(
    ("kind", "good", "bad"),
    [
        (whole(), [1, 2**40], [0, -1, 1.0, True, "1", None, [1]]),
        (whole(0), [0], [-1]),
        (real(), [0, -1.5], ["1", True, None, NAN, INFINITE, 10**400]),
        (real(0, 1), [0, 0.5, 1], [-0.1, 1.1]),
        (real(0, above=True), [0.1], [0, -1]),
        (flag, [True, False], [0, 1, None, "true"]),
        (text, ["", "a"], [1, None]),
        (choice({"a": 1, True: 2}), ["a", True], [1, "b", None, [], {}]),
        (nullable(whole()), [None, 1], [0]),
        (list_of(whole(), [2]), [[1, 2]], [[1], [1, 0], (1, 2), None, 3]),
        (one_or_list(whole(0)), [0, [0, 1], [], None], ["0", [None]]),
    ],
)
def test_kinds(kind, good, bad):
    for value in good:
        kind(value)
    for value in bad:
        with pytest.raises(Misfit, match=r"\w+ \w+|text|number"):
            kind(value)
