"""``get_state_tree`` and ``set_state_tree``."""

import jax
import numpy as np
import pytest

import exburn
from exburn.errors import ArgumentError, NotBuiltError, ShapeError, UnknownNameError

RNG = np.random.default_rng(0)
X = RNG.normal(size=(16, 3)).astype("float32")
Y = X.sum(1, keepdims=True)


def start():
    layers = exburn.layers
    body = exburn.Sequential(
        [layers.Dense(4), layers.BatchNormalization()], name="body"
    )
    model = exburn.Sequential([exburn.Input((3,)), body, layers.Dense(1, name="head")])
    model.compile("adam", "mse", metrics=["mae"], seed=0)
    return model


def train(model):
    return model.fit(X, Y, 8, shuffle=False, verbose=0).history


def test_a_new_model_goes_on_where_another_one_was():
    model = start()
    assert model.get_state_tree()["optimizer_variables"] == {}
    train(model)
    tree = model.get_state_tree("numpy_array")
    assert all(isinstance(v, np.ndarray) for v in jax.tree.leaves(tree))
    assert set(tree["trainable_variables"]) == {"body", "head"}
    assert tree["trainable_variables"]["head"]["kernel"].shape == (4, 1)
    norm = tree["non_trainable_variables"]["body"]["batch_normalization"]
    assert set(norm) == {"moving_mean", "moving_variance"}
    assert set(tree["metrics_variables"]) == {"loss", "mae"}

    other = start()
    other.set_state_tree(tree)
    assert other.optimizer.iterations == 2
    found = other.get_state_tree()
    for kind in set(tree) - {"metrics_variables"}:  # those of compile come later
        jax.tree.map(np.testing.assert_array_equal, found[kind], tree[kind])
    assert train(other) == train(model)


def test_arrays_are_those_of_the_device_and_of_the_model():
    model = start()
    train(model)
    tree = model.get_state_tree()
    assert all(isinstance(v, jax.Array) for v in jax.tree.leaves(tree))
    scaled = jax.tree.map(lambda v: v * 2, tree["trainable_variables"])
    before = model.layers[-1].get_weights()[0]
    model.set_state_tree({"trainable_variables": scaled})
    np.testing.assert_allclose(model.layers[-1].get_weights()[0], 2 * before)


def test_what_does_not_fit_changes_nothing():
    model = start()
    train(model)
    before = model.get_state_tree("numpy_array")
    wrong = jax.tree.map(np.zeros_like, before)
    wrong["trainable_variables"]["head"]["bias"] = np.zeros(2)
    with pytest.raises(ShapeError, match="head/bias"):
        model.set_state_tree(wrong)
    with pytest.raises(UnknownNameError, match="head/kernl"):
        model.set_state_tree({"trainable_variables": {"head": {"kernl": 1.0}}})
    with pytest.raises(UnknownNameError, match="trainable_variables"):
        model.set_state_tree({"trainable": {}})
    with pytest.raises(ArgumentError, match="numpy_array"):
        model.get_state_tree("torch")
    jax.tree.map(np.testing.assert_array_equal, model.get_state_tree(), before)

    bare = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(1)])
    with pytest.raises(NotBuiltError, match="not compiled"):
        bare.set_state_tree({"optimizer_variables": before["optimizer_variables"]})
