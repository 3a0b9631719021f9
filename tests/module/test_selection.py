"""Layers chosen by name, path or pattern."""

import re

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, UnknownNameError
from exburn.module.traversal import iter_weights

RNG = np.random.default_rng(0)
X = RNG.standard_normal((96, 6)).astype(np.float32)
Y = RNG.integers(0, 3, 96)


def block(name):
    stack = [layers.Dense(5, "relu"), layers.BatchNormalization(), layers.Dense(4)]
    return exburn.Sequential(stack, name=name)


def network(optimizer=None, **settings):
    model = exburn.Sequential(
        [exburn.Input((6,)), block("block_0"), block("block_1"), layers.Dense(3)]
    )
    if optimizer is not None:
        model.compile(optimizer, "cross_entropy", seed=0, **settings)
    return model


def values(model):
    return {p: np.array(w.get_value()) for p, w, _ in iter_weights(model)}


PATTERNS = {
    "a path": ("block_0/dense", ["block_0/dense"]),
    "a name at any depth": (
        "batch_normalization",
        ["block_0/batch_normalization", "block_1/batch_normalization"],
    ),
    "a name at the top, which is a path": ("dense", ["dense"]),
    "a shell pattern for names": ("block_*", ["block_0", "block_1"]),
    "a shell pattern for paths": ("block_0/d*", ["block_0/dense", "block_0/dense_1"]),
    "a shell pattern for names at any depth": (
        "*norm*",
        ["block_0/batch_normalization", "block_1/batch_normalization"],
    ),
    "a regular expression": (r"block_[01]/dense(_\d)?", 4),
    "a compiled one": (re.compile(r".*_1"), ["block_0/dense_1", "block_1"]),
}


@pytest.mark.parametrize("kind", PATTERNS)
def test_patterns(kind):
    pattern, expected = PATTERNS[kind]
    model = network()
    found = model.freeze(pattern)
    if isinstance(expected, int):
        assert len(found) == expected
    elif kind == "a compiled one":
        assert set(expected) <= set(found)
    else:
        assert found == expected
    assert model.is_frozen(pattern)
    assert set(found) <= set(model.frozen_layers)
    model.unfreeze(pattern)
    assert model.frozen_layers == []


def test_a_layer_names_itself_and_attributes_are_paths():
    class Net(exburn.Model):
        def __init__(self):
            super().__init__()
            self.body, self.head = block("encoder"), layers.Dense(3)

        def call(self, x):
            return self.head(self.body(x))

    model = Net()
    model(X)
    assert model.freeze(model.head) == model.freeze("head") == ["head"]
    assert model.freeze("encoder") == ["body"]
    assert [w.path for w in model.head.weights] == ["head/kernel", "head/bias"]


def test_a_layer_of_a_frozen_block_can_be_unfrozen_alone():
    model = network("adam")
    model.freeze("block_1")
    model.unfreeze("block_1/dense_1")
    learned = [p for p, _, learns in iter_weights(model) if learns]
    assert [p for p in learned if p.startswith("block_1")] == [
        "block_1/dense_1/kernel",
        "block_1/dense_1/bias",
    ]
    before = values(model)
    model.fit(X, Y, verbose=0)
    after = values(model)
    moved = {p for p in before if (before[p] != after[p]).any()}
    assert "block_1/dense_1/kernel" in moved and "block_1/dense/kernel" not in moved
    assert "block_1/batch_normalization/moving_mean" not in moved


def test_unfreezing_inside_of_a_layer_with_weights_of_its_own_is_an_error():
    class Wrapped(exburn.Layer):
        def __init__(self, **options):
            super().__init__(**options)
            self.inner = layers.Dense(6)

        def build(self, shape):
            self.scale = self.add_weight((6,), "ones")

        def call(self, x):
            return self.inner(x) * self.scale

    model = exburn.Sequential([exburn.Input((6,)), Wrapped(name="wrapped")])
    model.freeze("wrapped")
    with pytest.raises(ArgumentError, match="weights of its own"):
        model.unfreeze("wrapped/inner")
    assert model.is_frozen("wrapped/inner")


@pytest.mark.parametrize(
    ("pattern", "error", "said"),
    [
        ("blok_0", UnknownNameError, "Did you mean 'block_0'"),
        ("block_9/*", UnknownNameError, "unknown layer"),
        (re.compile("nothing"), UnknownNameError, "unknown layer"),
        ("dense/kernel", UnknownNameError, "name its layer: 'dense'"),
        (3, ArgumentError, "named by strings"),
        (layers.Dense(1), UnknownNameError, "unknown layer"),
    ],
)
@pytest.mark.parametrize("op", ["freeze", "unfreeze", "is_frozen", "remat"])
def test_what_matches_nothing_is_a_typed_error(op, pattern, error, said):
    model = network()
    with pytest.raises(error, match=re.escape(said)):
        getattr(model, op)(pattern)
    if op == "freeze":
        with pytest.raises(error):
            model.freeze("block_0", pattern)
        assert model.frozen_layers == []
