"""Nested containers of arrays, with a name for every leaf."""

from collections import OrderedDict, namedtuple

import numpy as np
import pytest

from exburn.data.trees import as_values, in_order, leaves, map_leaves

Pair = namedtuple("Pair", ["left", "right"])
NEST = {"a": [1, (2, None)], "b": Pair(3, {"c": 4})}


def test_leaves_have_the_names_that_a_user_would_write():
    found = dict(leaves(NEST, "x"))
    assert found == {
        "x['a'][0]": 1,
        "x['a'][1][0]": 2,
        "x['b'][0]": 3,
        "x['b'][1]['c']": 4,
    }
    for name, leaf in found.items():
        assert eval(name, {"x": NEST}) == leaf
    assert list(leaves(None, "x")) == [] and list(leaves([None], "x", nones=True)) == [
        ("x[0]", None)
    ]


def test_containers_stay_what_they_are():
    names = []
    made = map_leaves(lambda name, v: names.append(name) or v * 10, NEST, "x")
    assert made == {"a": [10, (20, None)], "b": Pair(30, {"c": 40})}
    assert type(made["b"]) is Pair and names == [name for name, _ in leaves(NEST, "x")]


@pytest.mark.parametrize(
    ("tree", "names", "wanted"),
    [
        (OrderedDict(b=1, a=2, id=3), ["a", "b"], [2, 1]),
        ({"a": 1}, ["a", "b"], {"a": 1}),
        ({"a": 1}, None, {"a": 1}),
        ([1, 2], ["b", "a"], [1, 2]),
    ],
)
def test_a_dict_is_put_in_order_if_it_has_all_names(tree, names, wanted):
    assert in_order(tree, names) == wanted


def test_lists_of_strings_are_arrays():
    made = as_values({"words": ["a", b"b"], "both": [["c"], [1]], "n": 1})
    assert made["words"].tolist() == ["a", b"b"] and made["words"].dtype == object
    assert made["both"].tolist() == [["c"], [1]]
    assert made["n"] == 1
    assert as_values([["a", "b"], ["c", "d"]]).shape == (2, 2)
    assert as_values([], 2) == []


def test_lists_of_numbers_are_arrays():
    assert as_values([1, 2, True]).tolist() == [1, 2, 1]
    assert as_values(([1.5, 2], [3, 4])).tolist() == [[1.5, 2], [3, 4]]
    assert as_values([1, None]).tolist() == [1, None]
    assert as_values([[1], [2, 3]]).tolist() == [[1], [2, 3]]
    one, two = as_values([[1, 2], ["a", "b"]], 2)
    assert one.tolist() == [1, 2] and two.tolist() == ["a", "b"]
    arrays = [np.ones(2), np.ones(2)]
    assert as_values(arrays)[0] is arrays[0]
    assert as_values([arrays[0], [1, 2]], 2)[1].tolist() == [1, 2]
    assert as_values([None, None]) == [None, None]


def test_what_stands_for_one_array_is_a_leaf():
    class Table(dict):
        shape = (2, 3)

    table = Table(a=1)
    assert list(leaves(table, "x")) == [("x", table)]
    assert in_order(table, ["a"]) is table
