"""Sequential, functional and subclassed models; accessors; configurations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import exburn
from exburn import layers
from exburn.errors import ExBurnError

RNG = np.random.default_rng(0)
X = RNG.standard_normal((24, 4)).astype(np.float32)


def two_headed():
    a, b = exburn.Input((4,), name="a"), exburn.Input((4,), name="b")
    shared = layers.Dense(5, activation="tanh", name="shared")
    h = layers.Concatenate()([shared(a), shared(b)])
    reg = layers.Dense(1, name="reg")(h)
    cls = layers.Dense(3, name="cls")(h * 0.5 + 1.0)
    return exburn.Model([a, b], [reg, cls])


def test_unknown_sizes_besides_the_batch():
    x = exburn.Input((None, 4))
    model = exburn.Model(x, layers.GlobalAveragePooling1D()(layers.Dense(3)(x)))
    for length in (2, 7):
        data = RNG.standard_normal((5, length, 4)).astype(np.float32)
        assert model.predict(data, verbose=0).shape == (5, 3)


class Net(exburn.Model):
    def __init__(self, depth=2):
        super().__init__()
        self.blocks = [layers.Dense(6, activation="relu") for _ in range(depth)]
        self.extra = []
        self.extra.append(layers.Dense(5))
        self.table = {"out": layers.Dense(3)}
        self.drop = layers.Dropout(0.5)

    def call(self, x, training=False):
        for block in self.blocks:
            x = block(x)
        return self.table["out"](self.drop(self.extra[0](x), training=training))


def test_a_subclass_with_lists_and_dicts_of_layers():
    model = Net()
    model.compile("adam", "cross_entropy", metrics=["accuracy"])
    model.fit(X, np.arange(24) % 3, epochs=2, verbose=0)
    assert model.count_params() == (4 * 6 + 6) + (6 * 6 + 6) + (6 * 5 + 5) + (5 * 3 + 3)
    names = [layer.name for layer in model.layers]
    assert names == ["dense", "dense_1", "dense_2", "dense_3", "dropout"]
    once, twice = model(X, training=True), model(X, training=True)
    assert not np.allclose(once, twice)
    np.testing.assert_array_equal(model(X), model(X))


def test_an_nnx_module_in_a_functional_model():
    x = exburn.Input((4,))
    linear = nnx.Linear(4, 3, rngs=nnx.Rngs(0))
    model = exburn.Model(x, layers.ModuleLayer(linear)(x))
    np.testing.assert_allclose(model.predict(X, verbose=0), linear(X), atol=1e-6)


def test_accessors():
    model = two_headed()
    assert model.input_names == ["a", "b"] and model.output_names == ["reg", "cls"]
    assert model.input_shape == [(None, 4), (None, 4)]
    assert model.output_shape == [(None, 1), (None, 3)]
    assert len(model.weights) == len(model.trainable_weights) == 6
    assert model.non_trainable_weights == []
    assert model.get_layer(index=-1).name == "cls"
    assert [type(layer).__name__ for layer in model.layers][:2] == ["InputLayer"] * 2
    weights = [w + 1 for w in model.get_weights()]
    model.set_weights(weights)
    for a, b in zip(model.get_weights(), weights, strict=True):
        np.testing.assert_array_equal(a, b)
    dense = model.get_layer("reg")
    assert dense.trainable and dense.count_params() == 11
    assert dense.input_shape == (None, 10) and dense.output_shape == (None, 1)
    assert [w.name for w in dense.weights] == ["kernel", "bias"]


def test_a_subclass_called_on_symbols_is_part_of_another_model():
    one = Net()
    assert not hasattr(one, "input")
    one(exburn.Input((4,)))
    assert one.output_shape == (None, 3) and one.inputs == [one.input]
    model = exburn.Model(one.input, layers.Softmax()(one.output))
    np.testing.assert_allclose(model(X), jax.nn.softmax(one(X)), rtol=1e-5)
    assert one in model.layers


def test_trainable_of_a_model_reaches_every_layer():
    model = two_headed()
    model.trainable = False
    assert model.trainable_weights == [] and len(model.non_trainable_weights) == 6
    model.trainable = True
    assert len(model.trainable_weights) == 6


@pytest.mark.parametrize("make", [two_headed, lambda: exburn.Sequential(
    [exburn.Input((4,)), layers.Dense(3), layers.BatchNormalization()]
)])  # fmt: skip
def test_config_and_clone(make):
    model = make()
    again = type(model).from_config(model.get_config())
    assert again.get_config() == model.get_config()
    copy = model.clone()
    data = [X] * len(model.inputs)
    data = data[0] if len(data) == 1 else data
    ours, theirs = (jax.tree.leaves(m.predict(data, verbose=0)) for m in (model, copy))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)
    copy.set_weights([np.zeros_like(w) for w in copy.get_weights()])
    assert any(w.any() for w in model.get_weights())


def test_a_built_model_is_called_on_arrays_and_inside_jit():
    model = two_headed()
    eager = model([X, X])
    graphdef, state = nnx.split(model)
    jitted = jax.jit(lambda state, x: nnx.merge(graphdef, state)([x, x]))(state, X)
    for a, b in zip(eager, jitted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


def test_random_layers_inside_jit_need_a_key():
    model = exburn.Sequential([exburn.Input((4,)), layers.Dropout(0.5)])
    with pytest.raises(ExBurnError, match="key_scope"):
        jax.jit(lambda x: model(x, training=True))(X)

    @jax.jit
    def draw(x, key):
        with exburn.key_scope(key):
            return model(x, training=True)

    a, b = draw(X, jax.random.key(0)), draw(X, jax.random.key(1))
    assert not np.allclose(a, b)
    np.testing.assert_array_equal(a, draw(X, jax.random.key(0)))


def test_masks_travel_from_embedding_to_loss():
    """Padded steps count neither in the loss nor in the metric."""
    tokens = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 3, 4]])
    targets = np.array([[1, 0, 1, 1], [1, 1, 1, 1], [0, 1, 0, 1]])
    model = exburn.Sequential(
        [
            exburn.Input((4,), dtype="int32"),
            layers.Embedding(5, 6, mask_zero=True),
            layers.Dense(2),
        ]
    )
    model.compile("sgd", "cross_entropy", metrics=["accuracy"])
    loss, accuracy = model.evaluate(tokens, targets, verbose=0)
    logits = model.predict(tokens, verbose=0)
    keep = tokens != 0
    picked = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], -1)
    assert loss == pytest.approx(-float(picked[..., 0][keep].mean()), rel=1e-5)
    hits = (logits.argmax(-1) == targets)[keep].mean()
    assert accuracy == pytest.approx(hits, rel=1e-6)
