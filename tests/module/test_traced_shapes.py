"""Layers that are alike are traced once."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.module import building, traced_shapes


@pytest.fixture
def traces(monkeypatch):
    """The names of layers that were traced for their shapes; none is known before."""
    names = []
    trace = building.trace_shapes

    def note(run, specs, *, where):
        names.append(where)
        return trace(run, specs, where=where)

    monkeypatch.setattr(traced_shapes, "_results", {})
    monkeypatch.setattr(building, "trace_shapes", note)
    return names


def test_one_of_layers_that_are_alike_is_traced(traces):
    x = h = exburn.Input((8,))
    for _ in range(5):
        h = layers.Add()([h, layers.LayerNormalization()(layers.Dense(8)(h))])
    model = exburn.Model(x, h)
    assert len(traces) == 3
    first, second = model.layers[1], model.layers[4]
    assert (first.name, second.name) == ("dense", "dense_1")
    assert not np.array_equal(first.kernel, second.kernel)
    assert model(np.ones((2, 8))).shape == (2, 8)


def test_weights_are_those_of_layers_that_were_traced(traces):
    def make():
        x = exburn.Input((4,))
        h = layers.MultiHeadAttention(2, 3)(*[layers.Reshape((2, 2))(x)] * 2)
        h = layers.MultiHeadAttention(2, 3)(h, h)
        return exburn.Model(x, layers.Dense(3, activation="relu")(h))

    exburn.set_random_seed(7)
    before = make().get_weights()
    count = len(traces)
    exburn.set_random_seed(7)
    after = make().get_weights()
    assert len(traces) == count
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)


ALIKE = [
    (lambda: layers.Dense(4), lambda: layers.Dense(5)),
    (lambda: layers.Dense(4), lambda: layers.Dense(4, dtype="bfloat16")),
    (lambda: layers.Dense(4), lambda: layers.Dense(4, use_bias=False)),
    (lambda: layers.Activation("relu"), lambda: layers.Activation("softmax")),
    (lambda: layers.Flatten(), lambda: layers.Reshape((2, 4))),
    (lambda: layers.Reshape((8, 1)), lambda: layers.Reshape((2, 4))),
]


@pytest.mark.parametrize("pair", ALIKE)
def test_what_differs_is_traced(pair, traces):
    outputs = [make()(exburn.Input((8,))) for make in (*pair, *pair)]
    assert len(traces) == 2
    for make, output in zip((*pair, *pair), outputs, strict=True):
        array = make()(np.ones((3, 8), np.float32))
        assert (output.shape[1:], output.dtype) == (array.shape[1:], array.dtype)


def test_other_inputs_are_traced(traces):
    layers.Dense(4)(exburn.Input((8,)))
    assert layers.Dense(4)(exburn.Input((2, 8))).shape == (None, 2, 4)
    assert layers.Dense(4)(exburn.Input((8,), batch_size=3)).shape == (3, 4)
    layers.Dense(4)(exburn.Input((8,), dtype="float16"))
    assert len(traces) == 4


def test_modes_of_the_process_are_told_apart(traces):
    layers.Dense(4)(exburn.Input((8,)))
    with jax.numpy_dtype_promotion("strict"):
        layers.Dense(4)(exburn.Input((8,)))
    assert len(traces) == 2


def test_layers_and_functions_of_a_user_are_traced_each_time(traces):
    class Double(layers.Layer):
        def call(self, x):
            return 2 * x

    class Own(layers.Dense):
        pass

    def third(x):
        return x / 3

    makers = (
        Double,
        lambda: Own(2),
        lambda: layers.Dense(2, activation=third),
        lambda: layers.Lambda(third),
    )
    for make in makers:
        before = len(traces)
        make()(exburn.Input((4,)))
        make()(exburn.Input((4,)))
        assert len(traces) == before + 2


def test_a_method_that_is_replaced_is_traced(traces, monkeypatch):
    assert layers.Flatten()(exburn.Input((2, 3))).shape == (None, 6)
    monkeypatch.setattr(layers.Flatten, "call", lambda self, x: x[:, 0])
    assert layers.Flatten()(exburn.Input((2, 3))).shape == (None, 3)


def test_layers_with_masks_are_traced(traces):
    masked = layers.Embedding(5, 3, mask_zero=True)(exburn.Input((4,), dtype="int32"))
    plain = layers.Embedding(5, 3)(exburn.Input((4,), dtype="int32"))
    assert layers.Dense(3)(plain).mask is None
    assert layers.Dense(3)(masked).mask is not None
    assert layers.Dense(3)(plain).mask is None


def test_no_more_results_are_kept_than_a_number(traces, monkeypatch):
    monkeypatch.setattr(traced_shapes, "_MOST", 3)
    for units in range(1, 9):
        layers.Dense(units)(exburn.Input((2,)))
        assert len(traced_shapes._results) <= 3


def test_an_error_is_told_for_each_layer(traces):
    for _ in range(2):
        with pytest.raises(exburn.errors.ShapeError):
            layers.Add()([exburn.Input((2,)), exburn.Input((3,))])
