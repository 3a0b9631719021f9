"""Tests of ``exburn.layers.contract.pure``."""

import jax
import numpy as np
from tests.golden import keras
from tests.layers.core.made import PLANES, Net, Y, compute, fitted, make

import exburn
from exburn import layers

MAKERS = {
    "functions": lambda **options: layers.JaxLayer(compute, make, **options),
    "linen": lambda **options: layers.FlaxLayer(Net(), **options),
    "a method": lambda **options: layers.FlaxLayer(Net(), Net.plain, **options),
    "halves": lambda **options: layers.JaxLayer(
        compute, make, dtype="mixed_bfloat16", **options
    ),
}


def one(state, inputs):
    return inputs


def scaled(params, inputs):
    return inputs * params


def test_a_state_is_kept_in_training_alone():
    model, layer = fitted(MAKERS["functions"])
    assert layer.state == {"steps": 9}  # three epochs of three batches
    model.evaluate(PLANES, Y, verbose=0)
    model.predict(PLANES, verbose=0)
    model(PLANES)
    assert layer.state == {"steps": 9}
    assert [w.trainable for w in layer.weights] == [True] * 4 + [False]


def test_given_variables_are_those_of_keras():
    linen = Net()
    variables = linen.init(jax.random.key(0), PLANES, training=False)
    ours = layers.FlaxLayer(linen, variables=variables)
    theirs = keras.layers.FlaxLayer(linen, variables=variables)
    np.testing.assert_allclose(ours(PLANES), theirs(PLANES), rtol=1e-5)
    params, _ = make(jax.random.key(0), PLANES, True)
    state = {"steps": 0}
    ours = layers.JaxLayer(compute, params=params, state=state)
    theirs = keras.layers.JaxLayer(compute, params=params, state=state)
    np.testing.assert_allclose(ours(PLANES), theirs(PLANES), rtol=1e-5)
    assert len(ours.weights) == len(theirs.weights) == 5


def test_a_seed_makes_the_same_parameters():
    exburn.set_random_seed(5)
    one, two = (np.asarray(MAKERS["functions"]()(PLANES)) for _ in range(2))
    exburn.set_random_seed(5)
    np.testing.assert_array_equal(MAKERS["functions"]()(PLANES), one)
    assert not np.array_equal(one, two)


def test_parameters_that_nothing_makes_are_part_of_the_file():
    layer = layers.JaxLayer(scaled, params=np.float32(3), name="scaled")
    with exburn.saving.custom_object_scope({"scaled": scaled}):
        again = layers.JaxLayer.from_config(layer.get_config())
    assert again(PLANES[:1, 0, 0]).tolist() == (3 * PLANES[:1, 0, 0]).tolist()


BAD_ARGUMENTS = [
    (lambda: layers.JaxLayer(one, lambda inputs: [3])(PLANES), "init_fn returns"),
    (lambda: layers.JaxLayer(one, state=[1])(PLANES), "call_fn returns"),
    (lambda: layers.JaxLayer(3), "is a function"),
    (lambda: layers.JaxLayer(scaled), "nothing makes them"),
    (lambda: layers.JaxLayer(lambda x: x), "has a parameter 'x'"),
    (lambda: layers.JaxLayer(lambda params: params), "no parameter 'inputs'"),
    (lambda: layers.JaxLayer(scaled, lambda rng: 3), "no parameter 'inputs'"),
    (lambda: layers.FlaxLayer(scaled), "flax.linen.Module is needed"),
    (
        lambda: layers.JaxLayer(lambda state, inputs: (inputs, [1, 2]), state=[1])(
            PLANES
        ),
        "must have the form",
    ),
]
