"""Rematerialized layers: the same results, in less memory."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import ArgumentError, UnknownNameError
from exburn.training.module import SplitModule

RNG = np.random.default_rng(0)
X = RNG.standard_normal((70, 12)).astype(np.float32)
Y = RNG.integers(0, 3, 70)


def block(name, width=16):
    return exburn.Sequential(
        [
            layers.Dense(width, "gelu"),
            layers.BatchNormalization(),
            layers.Dropout(0.2),
            layers.Dense(12, "gelu", activity_regularizer="l2"),
        ],
        name=name,
    )


def network(blocks=2, **options):
    stack = [block(f"block_{i}", **options) for i in range(blocks)]
    # The model ends in probabilities: the loss must still see that.
    end = layers.Dense(3, activation="softmax")
    model = exburn.Sequential([exburn.Input((12,)), *stack, end])
    model.compile("adam", "cross_entropy", seed=0)
    return model


@pytest.fixture(scope="module")
def trained():
    model = network()
    return model, model.fit(X, Y, epochs=2, verbose=0).history["loss"]


@pytest.mark.parametrize(
    ("patterns", "policy"),
    [
        (("block_*",), "full"),
        (("block_0",), "dots"),
        (("*",), jax.checkpoint_policies.everything_saveable),
        ((), "dots_with_no_batch_dims"),
    ],
)
def test_results_stay(trained, patterns, policy):
    plain, losses = trained
    model = network()
    model.remat(*patterns, policy=policy)
    history = model.fit(X, Y, epochs=2, verbose=0)
    np.testing.assert_allclose(history.history["loss"], losses, rtol=1e-6)
    for ours, theirs in zip(model.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert model.trace_counts["train"] == 1


def test_masks_and_several_inputs_go_through():
    def make(mode):
        ids = exburn.Input((6,), dtype="int32")
        with exburn.RematScope(mode):
            x = layers.Embedding(9, 8, mask_zero=True)(ids)
            x = layers.MultiHeadAttention(2, 4)(x, x)
            x = layers.Add()([x, layers.Dense(8)(x)])
            x = layers.LSTM(4)(x)
        model = exburn.Model(ids, layers.Dense(1)(x))
        model.compile("sgd", "mse", seed=0)
        return model

    x = RNG.integers(0, 9, (32, 6))
    plain, ours = make(None), make("full")
    assert ours.get_layer("lstm").rematerialized
    for model in (plain, ours):
        model.fit(x, np.ones((32, 1)), epochs=2, verbose=0)
    for a, b in zip(ours.get_weights(), plain.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_it_takes_less_memory():
    def plan(policy):
        blocks = [
            exburn.Sequential(
                [layers.Dense(64, "gelu"), layers.Dense(64, "gelu"), layers.Dense(16)],
                name=f"block_{i}",
            )
            for i in range(6)
        ]
        model = exburn.Sequential([exburn.Input((16,)), *blocks, layers.Dense(3)])
        model.compile("sgd", "cross_entropy")
        model.remat("dense*", policy=policy)
        return model.plan(512, largest=False)

    plain, full, dots = plan(None), plan("full"), plan("dots")
    assert full.temporary_bytes < 0.7 * plain.temporary_bytes
    assert full.temporary_bytes <= dots.temporary_bytes < plain.temporary_bytes
    assert full.flops > dots.flops == plain.flops  # only what is cheap is done again


@pytest.mark.parametrize(
    ("mode", "options", "expected"),
    [
        ("full", {}, [True, True]),
        ("activations", {}, [True, True]),
        ("list_of_layers", {"layer_names": ["wide"]}, [True, False]),
        ("larger_than", {"output_size_threshold": 10}, [True, False]),
        (None, {}, [False, False]),
    ],
)
def test_scopes(mode, options, expected):
    with exburn.RematScope("full"), exburn.RematScope(mode, **options):
        stack = [layers.Dense(20, "tanh", name="wide"), layers.Dense(4, "tanh")]
    model = exburn.Sequential([exburn.Input((12,)), *stack])
    model.compile("sgd", "mse")
    split = SplitModule(model)
    arrays, key = split.read(), jax.random.key(0)
    program = jax.make_jaxpr(
        lambda x: split.forward(arrays, x, training=True, key=key)[0]
    )(X)
    names = [eqn.primitive.name for eqn in program.eqns]
    assert names.count("checkpoint") + names.count("remat2") == sum(expected)
    outside = exburn.layers.Dense(2)
    assert not outside.rematerialized


def test_functions_and_layers():
    calls = []

    class Twice(exburn.Layer):
        def build(self, shape):
            self.w = self.add_weight((shape[-1],), "ones")

        def call(self, x, training=False):
            def part(x, scale, training):
                calls.append(training)
                return jnp.sin(jnp.sin(x * self.cast(self.w)) * scale)

            return exburn.remat(part, policy="dots")(x, 2.0, training=training)

    model = exburn.Sequential([exburn.Input((12,)), Twice(), layers.Dense(3)])
    model.compile("sgd", "cross_entropy")
    history = model.fit(X, Y, epochs=5, verbose=0).history["loss"]
    assert history[-1] < history[0] and True in calls
    layer = layers.Dense(3)
    assert exburn.remat(layer) is layer and layer.rematerialized
    layer.rematerialized = False
    assert not layer.rematerialized


REFUSALS = [
    (lambda: network().remat("block_0", policy="dost"), UnknownNameError),
    (lambda: exburn.remat(jnp.sin, policy="dost"), UnknownNameError),
    (lambda: exburn.RematScope("some"), UnknownNameError),
    (lambda: exburn.RematScope("list_of_layers"), ArgumentError),
]


def test_it_can_be_ended():
    model = network()
    model.remat("block_*")
    model.remat("block_*", policy=None)
    assert not any(layer.rematerialized for layer in model.layers)
