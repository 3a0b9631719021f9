"""Tests of ``exburn.tree``."""

from collections import OrderedDict, defaultdict, namedtuple

import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import errors, tree
from exburn.layers import Dense

Pair = namedtuple("Pair", "b a")

NESTED = {
    "b": [1, (2, None)],
    "a": Pair(3, 4),
    "o": OrderedDict(z=1, y=2),
    "d": defaultdict(int, k=1),
}


def test_flatten_and_paths():
    assert tree.flatten(NESTED) == keras.tree.flatten(NESTED)
    assert tree.flatten_with_path(NESTED) == keras.tree.flatten_with_path(NESTED)
    assert tree.pack_sequence_as(NESTED, tree.flatten(NESTED)) == NESTED
    assert tree.pack_sequence_as(1, [4]) == 4
    for value in ([], {}, (), "ab", Pair(1, 2), {1}, None, np.ones(2)):
        assert tree.is_nested(value) == keras.tree.is_nested(value)


def test_map():
    def double(x):
        return None if x is None else x * 2

    assert tree.map_structure(double, NESTED) == keras.tree.map_structure(
        double, NESTED
    )
    seven = tree.map_structure(lambda x: 7, NESTED, none_is_leaf=False)
    assert seven["b"] == [7, (7, None)]
    assert isinstance(seven["d"], defaultdict) and isinstance(seven["a"], Pair)
    shallow, deep = [1, [2]], [[1, 2], [{"a": 1}]]
    got = tree.map_structure_up_to(shallow, lambda a, b: (a, b), shallow, deep)
    assert got == [(1, [1, 2]), [(2, {"a": 1})]]
    assert tree.lists_to_tuples(NESTED)["b"] == (1, (2, None))
    shapes = {"a": (None, 2), "b": [(1, 2), [3, None]]}
    assert tree.map_shape_structure(len, shapes) == {"a": 2, "b": [2, 2]}


def test_weights_and_symbols_are_leaves():
    layer = Dense(2)
    layer(np.ones((1, 3)))
    assert tree.flatten({"w": [layer.kernel, layer.bias]}) == [layer.kernel, layer.bias]
    x = exburn.Input((3,))
    assert tree.flatten([x, layer]) == [x, layer]


@pytest.mark.parametrize("top_down", [True, False])
def test_traverse(top_down):
    def total(v):
        whole = isinstance(v, list) and all(isinstance(i, int) for i in v)
        return sum(v) if whole else None

    data = [[1, 2], {"a": [3], "b": "text"}]
    wanted = keras.tree.traverse(total, data, top_down=top_down)
    assert tree.traverse(total, data, top_down=top_down) == wanted
    gone = tree.traverse(lambda v: tree.MAP_TO_NONE if v == "text" else None, data)
    assert gone == [[1, 2], {"a": [3], "b": None}]


@pytest.mark.parametrize(
    "call",
    [
        lambda t: t.assert_same_structure([1], (1,)),
        lambda t: t.assert_same_structure({"a": 1}, {"b": 1}),
        lambda t: t.assert_same_paths([1], [1, 2]),
        lambda t: t.pack_sequence_as([1], [1, 2]),
        lambda t: t.map_structure(lambda a, b: a, [1], [1, 2]),
        lambda t: t.map_structure_up_to([1, 2], lambda a: a, [1]),
        lambda t: t.map_structure(1, [1]),
    ],
)
def test_what_both_refuse(call):
    with pytest.raises((ValueError, TypeError)):
        call(keras.tree)
    with pytest.raises(errors.ExBurnError):
        call(tree)


def test_what_both_accept():
    tree.assert_same_structure([1, None], [None, 1])
    tree.assert_same_paths([1], (1,))


def test_kinds_of_dicts_are_alike():
    """A layer keeps a dict in an order of its own: packages compare it with theirs."""

    class Holder(exburn.layers.Layer):
        def __init__(self):
            super().__init__()
            self.parts = {"b": 1, "a": [exburn.layers.Dense(2), 3]}

    plain = {"a": [0, 0], "b": 0}
    for other in (Holder().parts, OrderedDict(b=0, a=[1, 2]), defaultdict(int, plain)):
        tree.assert_same_structure(other, plain)
        tree.assert_same_structure([other], [plain])
    for other in ({"a": [0, 0]}, OrderedDict(b=0, a=(1, 2)), {"a": [0], "b": 0}):
        with pytest.raises(errors.ArgumentError, match="structures differ"):
            tree.assert_same_structure(other, plain)
