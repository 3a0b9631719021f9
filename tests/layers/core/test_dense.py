"""Tests of ``exburn.layers.core.dense``."""

import jax
import numpy as np
import pytest
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.inputs import FLAT, SEQUENCE, TIME
from tests.layers.interface import X as ROWS
from tests.layers.noise_and_masks import X
from tests.runtime.kernels.wide import X as WIDE

from exburn import layers as L
from exburn.errors import ShapeError
from exburn.layers import Dense

CONTRACT = {
    "Dense": (L.Dense, (5, "tanh"), FLAT, {}),
    "Dense-time": (L.Dense, (5,), SEQUENCE, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.Dense(0), "units must be an integer ≥ 1"),
    (lambda: L.Dense(2.5), "units must be an integer"),
    (lambda: L.Dense(3, kernel_size=2), "unknown argument 'kernel_size'"),
]

BESIDE_KERAS = [
    ("Dense", {"units": 3}, FLAT_BESIDE_KERAS),
    (
        "Dense",
        {"units": 3, "activation": "gelu", "use_bias": False},
        SEQUENCE_BESIDE_KERAS,
    ),
]


def test_an_activation_may_be_a_layer():
    dense = L.Dense(3, activation=L.PReLU())
    assert dense(X).shape == (4, 3)
    assert {w.name for w in dense.weights} == {"kernel", "bias", "alpha"}


def test_a_layer_keeps_to_the_size_it_was_built_for():
    layer = L.Dense(3)
    layer(ROWS)
    with pytest.raises(ShapeError, match="size 6 on axis -1"):
        layer(ROWS[:, :5])


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("activation", ["relu", "softmax", "gelu", "glu"])
def test_on_a_cpu_rows_get_bias_and_activation_before_they_are_sequences(activation):
    layer = Dense(6, activation=activation, bias_initializer="random_normal")
    out = layer(WIDE)
    wanted = layer.activation(WIDE @ layer.kernel.numpy() + layer.bias.numpy())
    np.testing.assert_allclose(out, wanted, rtol=1e-5, atol=1e-6)
    *_, last = jax.make_jaxpr(layer)(WIDE).eqns
    assert last.primitive.name == "reshape"


def test_a_function_of_ones_own_sees_sequences():
    seen = []
    layer = Dense(6, activation=lambda y: seen.append(y.shape) or y[:, ::-1])
    assert layer(WIDE).shape == (2, 3, 6)
    assert set(seen) == {(2, 3, 6)}
