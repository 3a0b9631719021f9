"""Pure functions and modules of ``flax.linen`` as layers."""

import copy

import flax.linen as nn
import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError

RNG = np.random.default_rng(0)
X = RNG.random((40, 6, 6, 1)).astype("float32")
Y = np.eye(3, dtype="float32")[RNG.integers(0, 3, 40)]


@exburn.register
def make(rng, inputs, training):
    assert training
    sizes = [int(np.prod(inputs.shape[1:])), 8, 3]
    params = []
    for key, m, n in zip(jax.random.split(rng, 2), sizes, sizes[1:], strict=False):
        params.append((0.1 * jax.random.normal(key, (m, n)), jnp.zeros(n)))
    return params, {"steps": jnp.zeros((), "int32")}


@exburn.register
def compute(training, inputs, rng, state, params):
    (w1, b1), (w2, b2) = params
    h = jnp.tanh(inputs.reshape(inputs.shape[0], -1) @ w1 + b1)
    if training:
        state = {"steps": state["steps"] + 1}
        h = h * jax.random.bernoulli(rng, 0.9, h.shape)
    return jax.nn.softmax(h @ w2 + b2), state


@exburn.register
class Net(nn.Module):
    @nn.compact
    def __call__(self, x, training):
        x = nn.BatchNorm(use_running_average=not training)(nn.Conv(2, (3, 3))(x))
        x = nn.Dropout(0.2, deterministic=not training)(x)
        return nn.softmax(nn.Dense(3)(x.reshape(x.shape[0], -1)))

    @nn.compact
    def plain(self, x):
        return nn.softmax(nn.Dense(3)(x.reshape(x.shape[0], -1)))

    def get_config(self):
        return {}

    @classmethod
    def from_config(cls, config):
        return cls(**config)


MAKERS = {
    "functions": lambda **options: layers.JaxLayer(compute, make, **options),
    "linen": lambda **options: layers.FlaxLayer(Net(), **options),
    "a method": lambda **options: layers.FlaxLayer(Net(), Net.plain, **options),
    "halves": lambda **options: layers.JaxLayer(
        compute, make, dtype="mixed_bfloat16", **options
    ),
}


def fitted(maker, **options):
    inputs = exburn.Input((6, 6, 1))
    layer = maker(**options)
    model = exburn.Model(inputs, layer(inputs))
    model.compile("adam", "categorical_crossentropy", seed=0)
    model.fit(X, Y, batch_size=16, epochs=3, verbose=0)
    return model, layer


@pytest.mark.parametrize("name", MAKERS)
def test_they_learn_and_come_back_from_files(name, tmp_path):
    first = MAKERS[name](seed=3)
    first(X)
    model, layer = fitted(MAKERS[name], seed=3)
    learned = [np.asarray(w) for w in layer.trainable_weights]
    for before, after in zip(first.trainable_weights, learned, strict=True):
        assert before.shape == after.shape
        assert not np.array_equal(before, after)
    assert jax.tree.structure(first.params) == jax.tree.structure(layer.params)
    predicted = model.predict(X, verbose=0)
    np.testing.assert_allclose(predicted.sum(1), 1, rtol=1e-2)
    model.save(tmp_path / "model.keras")
    again = exburn.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(X, verbose=0), predicted)
    again.fit(X, Y, verbose=0)


def test_a_state_is_kept_in_training_alone():
    model, layer = fitted(MAKERS["functions"])
    assert layer.state == {"steps": 9}  # three epochs of three batches
    model.evaluate(X, Y, verbose=0)
    model.predict(X, verbose=0)
    model(X)
    assert layer.state == {"steps": 9}
    assert [w.trainable for w in layer.weights] == [True] * 4 + [False]


def test_statistics_of_a_short_batch_are_its_own():
    """Batch normalization of ``flax.linen`` knows nothing of padding."""
    norm = nn.BatchNorm(use_running_average=False, momentum=0.0)
    inputs = exburn.Input((6, 6, 1))
    layer = layers.FlaxLayer(norm)
    outputs = layers.Dense(3)(layers.Flatten()(layer(inputs)))
    model = exburn.Model(inputs, outputs)
    model.compile("sgd", "mse")
    model.fit(X, Y, batch_size=16, shuffle=False, verbose=0)
    stats = layer.state["batch_stats"]
    np.testing.assert_allclose(stats["mean"], [X[32:].mean()], rtol=1e-5)
    np.testing.assert_allclose(stats["var"], [X[32:].var()], rtol=1e-5)


def test_given_variables_are_those_of_keras():
    linen = Net()
    variables = linen.init(jax.random.key(0), X, training=False)
    ours = layers.FlaxLayer(linen, variables=variables)
    theirs = keras.layers.FlaxLayer(linen, variables=variables)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-5)
    params, _ = make(jax.random.key(0), X, True)
    state = {"steps": 0}
    ours = layers.JaxLayer(compute, params=params, state=state)
    theirs = keras.layers.JaxLayer(compute, params=params, state=state)
    np.testing.assert_allclose(ours(X), theirs(X), rtol=1e-5)
    assert len(ours.weights) == len(theirs.weights) == 5


def test_copies_share_a_module_that_has_no_configuration(tmp_path):
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.FlaxLayer(nn.Dense(3)), layers.JaxLayer(doubled)]
    )
    x = RNG.random((5, 4)).astype("float32")
    for copied in (copy.deepcopy(model), model.clone()):
        np.testing.assert_array_equal(copied(x), model(x))
    fresh = exburn.models.clone_model(model)
    assert not np.array_equal(fresh(x), model(x))
    model.compile("sgd", "mse")
    before = np.asarray(fresh(x))
    model.fit(x, x[:, :3], verbose=0)
    np.testing.assert_array_equal(fresh(x), before)
    with pytest.raises(ArgumentError, match="cannot be described"):
        model.save(tmp_path / "model.keras")


def test_a_seed_makes_the_same_parameters():
    exburn.set_random_seed(5)
    one, two = (np.asarray(MAKERS["functions"]()(X)) for _ in range(2))
    exburn.set_random_seed(5)
    np.testing.assert_array_equal(MAKERS["functions"]()(X), one)
    assert not np.array_equal(one, two)


def test_structures_without_parameters():
    def swapped(inputs):
        return {"x": inputs["y"], "y": 2 * inputs["x"]}

    layer = layers.JaxLayer(swapped)
    symbols = layer({"x": exburn.Input((3,)), "y": exburn.Input((None, 2))})
    assert (symbols["x"].shape, symbols["y"].shape) == ((None, None, 2), (None, 3))
    made = layer({"x": np.ones((1, 3)), "y": np.zeros((1, 4, 2))})
    assert (made["x"].shape, made["y"].tolist()) == ((1, 4, 2), [[2, 2, 2]])
    assert layer.params is None and not layer.weights


def doubled(inputs):
    return 2 * inputs


def one(state, inputs):
    return inputs


def scaled(params, inputs):
    return inputs * params


def test_parameters_that_nothing_makes_are_part_of_the_file():
    layer = layers.JaxLayer(scaled, params=np.float32(3), name="scaled")
    with exburn.saving.custom_object_scope({"scaled": scaled}):
        again = layers.JaxLayer.from_config(layer.get_config())
    assert again(X[:1, 0, 0]).tolist() == (3 * X[:1, 0, 0]).tolist()


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: layers.JaxLayer(one, lambda inputs: [3])(X), "init_fn returns"),
        (lambda: layers.JaxLayer(one, state=[1])(X), "call_fn returns"),
        (lambda: layers.JaxLayer(3), "is a function"),
        (lambda: layers.JaxLayer(scaled), "nothing makes them"),
        (lambda: layers.JaxLayer(lambda x: x), "has a parameter 'x'"),
        (lambda: layers.JaxLayer(lambda params: params), "no parameter 'inputs'"),
        (lambda: layers.JaxLayer(scaled, lambda rng: 3), "no parameter 'inputs'"),
        (lambda: layers.FlaxLayer(scaled), "flax.linen.Module is needed"),
        (
            lambda: layers.JaxLayer(lambda state, inputs: (inputs, [1, 2]), state=[1])(
                X
            ),
            "must have the form",
        ),
    ],
)
def test_refusals(call, text):
    with pytest.raises(ArgumentError, match=text):
        call()
