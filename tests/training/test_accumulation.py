"""Gradient accumulation: an inner scan with one update, and what fills no group."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import keras
import numpy as np
import optax
import pytest

import exburn
from exburn import layers
from exburn.data import ArrayDataset, StreamDataset
from exburn.training.feed.base import ArrayFeed, StreamFeed
from exburn.training.feed.plan import fit_groups

N = 4  # batches of a group; 203 rows in batches of 16 are 13 steps: 3 groups and 1


def sgd(**options):
    return exburn.optimizers.SGD(0.1, gradient_accumulation_steps=N, **options)


def network(optimizer=None, dropout=0.3, **settings):
    model = exburn.Sequential(
        [
            exburn.Input((8,)),
            layers.Dense(16, activation="relu"),
            layers.BatchNormalization(),
            layers.Dropout(dropout),
            layers.Dense(3),
        ]
    )
    settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
    model.compile(optimizer or sgd(), seed=3, **settings)
    return model


def fit(model, x, y, epochs=3, **options):
    options = {"batch_size": 16, "shuffle": False, "verbose": 0} | options
    return model.fit(x, y, epochs=epochs, **options).history


def same_bits(a, b):
    pairs = zip(a.get_weights(), b.get_weights(), strict=True)
    return all(np.array_equal(p, q) for p, q in pairs)


class Batches:
    """A loader that can be read again, with a ragged last batch."""

    def __init__(self, x, y):
        self.x, self.y = x, y

    def __iter__(self):
        for i in range(0, len(self.x), 16):
            yield self.x[i : i + 16], self.y[i : i + 16]


class Hooked(exburn.callbacks.Callback):
    def __init__(self, every):
        super().__init__()
        self.every, self.seen = every, []

    def on_train_batch_end(self, batch, logs=None):
        self.seen.append(batch)


@pytest.mark.parametrize(  # 13 and 3 steps
    "rows", [203, 40]
)
def test_epochs_that_fill_no_group_equal_keras(blobs, rows):
    x, y = (v[:rows] for v in blobs)
    ours = network(sgd(momentum=0.9), dropout=0.0)
    theirs = keras.Sequential(
        [
            keras.Input((8,)),
            keras.layers.Dense(16, activation="relu"),
            keras.layers.BatchNormalization(),
            keras.layers.Dense(3),
        ]
    )
    theirs.set_weights(ours.get_weights())
    theirs.compile(
        keras.optimizers.SGD(0.1, momentum=0.9, gradient_accumulation_steps=N),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    wanted = theirs.fit(x, y, batch_size=16, epochs=3, shuffle=False)
    got = fit(ours, x, y)
    for name, values in wanted.history.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-5, err_msg=name)
    for a, b in zip(ours.get_weights(), theirs.weights, strict=True):
        np.testing.assert_allclose(a, np.asarray(b.value), atol=1e-5)
    assert ours.optimizer.iterations == 3 * -(-rows // 16) // N


@pytest.mark.usefixtures("users_compilation")
def test_every_way_to_cut_the_steps_gives_the_same_bits(blobs):
    x, y = blobs
    whole = network()
    history = fit(whole, x, y)
    assert whole.trace_counts["train"] == 2  # groups, and single steps
    hooked = Hooked(3)
    runs = {
        "steps one by one": ({"steps_per_execution": 1}, {}),
        "chunks of one group": ({"steps_per_execution": N}, {}),
        "chunks of two groups": ({"steps_per_execution": 2 * N}, {}),
        "batch hooks": ({}, {"callbacks": [hooked]}),
    }
    for name, (settings, options) in runs.items():
        model = network(**settings)
        assert fit(model, x, y, **options) == history, name
        assert same_bits(model, whole), name
    assert hooked.seen == [2, 5, 8, 11] * 3
    streamed = network()
    streamed.fit(Batches(x, y), epochs=3, verbose=0)
    assert same_bits(streamed, whole)


def test_a_group_goes_on_in_the_next_fit_and_by_single_batches(blobs):
    x, y = blobs
    whole, parts = network(), network()
    fit(whole, x, y, epochs=2)
    fit(parts, x, y, epochs=1)
    for i in range(0, 80, 16):
        parts.train_on_batch(x[i : i + 16], y[i : i + 16])
    fit(parts, x[80:], y[80:], epochs=1)
    for a, b in zip(whole.get_weights(), parts.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)
    assert parts.optimizer.iterations == 26 // N


@pytest.mark.usefixtures("cpu_only")
def test_one_update_for_a_group_and_no_branch(blobs):
    """The rule stands outside of the loop over the batches, not under a condition."""
    x, y = (v[:192] for v in blobs)  # 12 steps: three groups
    counted = []

    def counting(rate):
        def update(updates, state, params=None):
            del params
            jax.debug.callback(lambda: counted.append(1))
            return jax.tree.map(lambda g: -rate * g, updates), state

        return optax.GradientTransformation(lambda params: optax.EmptyState(), update)

    model = network(
        exburn.optimizers.OptaxOptimizer(counting, 0.1, gradient_accumulation_steps=N)
    )
    fit(model, x, y, epochs=1)
    jax.effects_barrier()
    assert len(counted) == 3
    assert model.trace_counts["train"] == 1

    plain = network(sgd(momentum=0.0), dropout=0.0)
    fit(plain, x, y, epochs=1)
    trainer = plain._training_session.trainer
    batch = (jnp.zeros((2 * N, 16, 8)), jnp.zeros((2 * N, 16), jnp.int32), None)
    state = trainer.preparer.initial_state()
    programs = trainer.preparer.programs
    text = str(jax.make_jaxpr(programs.train_groups)(state, batch, None, None))
    assert "cond[" not in text
    assert text.count("scan[") == 2
    assert "cond[" in str(jax.make_jaxpr(programs.train)(state, batch, None, None))


def custom_step(state, data, model):
    tv, ntv, ov, mv = state
    x, y = data

    def loss_of(tv, ntv):
        y_pred, ntv = model.stateless_call(tv, ntv, x, training=True)
        return model.compute_loss(x, y, y_pred), ntv

    (loss, ntv), grads = jax.value_and_grad(loss_of, has_aux=True)(tv, ntv)
    tv, ov = model.optimizer.stateless_apply(ov, grads, tv)
    return {"loss": loss}, (tv, ntv, ov, mv)


class OwnStep(exburn.Sequential):
    def train_step(self, state, data):
        return custom_step(state, data, self)


def test_own_steps_and_other_optimizers_accumulate_too(blobs):
    x, y = (v[:192] for v in blobs)

    def run(cls, optimizer):
        hidden = layers.Dense(16, activation="tanh")
        model = cls([exburn.Input((8,)), hidden, layers.Dense(3)])
        model.compile(optimizer, "cross_entropy", seed=3)
        fit(model, x, y, epochs=2)
        return model

    plain = run(exburn.Sequential, sgd())
    others = {
        "own train_step": run(OwnStep, sgd()),
        "loss scale": run(
            exburn.Sequential,
            exburn.optimizers.LossScaleOptimizer(sgd(), initial_scale=16.0),
        ),
        "several optimizers": run(
            exburn.Sequential,
            exburn.optimizers.MultiOptimizer(
                exburn.optimizers.OptimizerMap(sgd(), {".*bias": sgd()})
            ),
        ),
    }
    for name, model in others.items():
        for a, b in zip(plain.get_weights(), model.get_weights(), strict=True):
            np.testing.assert_allclose(a, b, atol=1e-6, err_msg=name)


def pieces(chunks):
    return [(c.steps, c.samples, c.grouped) for c in chunks]


@pytest.mark.parametrize("steps", [1, 5, 12, 23, 48])
@pytest.mark.parametrize("group", [2, 3, 8])
@pytest.mark.parametrize("ragged", [0, 1])
def test_feeds_cut_at_the_groups(steps, group, ragged):
    rows = 4 * steps - ragged
    x = np.arange(rows, dtype=np.float32)
    data = ArrayDataset(x)
    batches = [(x[i : i + 4], None, None) for i in range(0, rows, 4)]
    stream = StreamDataset(
        lambda *_: iter(batches), batches=None, reiterable=True, batch_size=4
    )
    most, phase = fit_groups(16, group), 0
    feeds: list[ArrayFeed | StreamFeed] = [
        ArrayFeed(data, 4, most, group=group, exact_rows=exact, resident=resident)
        for exact in (False, True)
        for resident in (False, True)
    ]
    feeds.append(StreamFeed(stream, most, group=group))
    for _ in range(group):
        for feed in feeds:
            at, seen = phase, 0
            for chunk in feed.epoch(0, 0, phase):
                assert not chunk.grouped or (at % group == 0 == chunk.steps % group)
                assert chunk.grouped or chunk.steps == 1
                at, seen = at + chunk.steps, seen + chunk.samples
            assert (at - phase, seen) == (steps, rows)
        phase = (phase + steps) % group


def halfway(w):
    """MinMaxNorm(0.5, 1.5, rate=0.5): each projection goes half of the way."""
    norm = np.sqrt((w**2).sum(0))
    return w * (0.5 * np.clip(norm, 0.5, 1.5) + 0.5 * norm) / (1e-7 + norm)


@pytest.mark.parametrize("hooks", [[], [Hooked(1)]], ids=["groups", "single batches"])
def test_constraints_hold_after_every_batch(hooks):
    """As in Keras 3.15, whose weights after this training were those of the formula."""
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(64, 8)), rng.normal(size=(64, 3))
    w, b = rng.normal(size=(8, 3)), rng.normal(size=3)
    kernel = exburn.constraints.MinMaxNorm(0.5, 1.5, rate=0.5)
    dense = layers.Dense(
        3, kernel_constraint=kernel, bias_constraint=lambda bias: 0.5 * bias
    )
    model = exburn.Sequential([exburn.Input((8,)), dense])
    model.compile(sgd(), "mse")
    model.set_weights([w, b])
    model.fit(x, y, 4, epochs=2, shuffle=False, verbose=0, callbacks=hooks)
    sums = np.zeros_like(w), np.zeros_like(b)
    for step in range(32):
        rows = slice(step % 16 * 4, step % 16 * 4 + 4)
        d = 2 * (x[rows] @ w + b - y[rows]) / 12
        sums = sums[0] + x[rows].T @ d / N, sums[1] + d.sum(0) / N
        if step % N == N - 1:
            w, b = w - 0.1 * sums[0], b - 0.1 * sums[1]
            sums = np.zeros_like(w), np.zeros_like(b)
        w, b = halfway(w), 0.5 * b
    for found, wanted in zip(model.get_weights(), (w, b), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
