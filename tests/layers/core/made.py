"""Pure functions and modules of ``flax.linen`` as layers."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import exburn

RNG = np.random.default_rng(0)
PLANES = RNG.random((40, 6, 6, 1)).astype("float32")
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


def fitted(maker, **options):
    inputs = exburn.Input((6, 6, 1))
    layer = maker(**options)
    model = exburn.Model(inputs, layer(inputs))
    model.compile("adam", "categorical_crossentropy", seed=0)
    model.fit(PLANES, Y, batch_size=16, epochs=3, verbose=0)
    return model, layer


def check_they_learn_and_come_back_from_files(case, tmp_path):
    first = case(seed=3)
    first(PLANES)
    model, layer = fitted(case, seed=3)
    learned = [np.asarray(w) for w in layer.trainable_weights]
    for before, after in zip(first.trainable_weights, learned, strict=True):
        assert before.shape == after.shape
        assert not np.array_equal(before, after)
    assert jax.tree.structure(first.params) == jax.tree.structure(layer.params)
    predicted = model.predict(PLANES, verbose=0)
    np.testing.assert_allclose(predicted.sum(1), 1, rtol=1e-2)
    model.save(tmp_path / "model.keras")
    again = exburn.models.load_model(tmp_path / "model.keras")
    np.testing.assert_array_equal(again.predict(PLANES, verbose=0), predicted)
    again.fit(PLANES, Y, verbose=0)
