"""Models of ours in programs of plain JAX, optax and NNX, and theirs in ours."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

import exburn
from exburn import layers
from exburn.models.preparing import prepare


def test_eight_models_train_side_by_side_under_vmap(blobs, classifier):
    """One pure step, mapped over parameters and learning rates: sweeps stand on it."""
    x, y = blobs
    x, y = x[:192].reshape(6, 32, 8), y[:192].reshape(6, 32)
    rates = np.linspace(1e-3, 5e-2, 8).astype(np.float32)
    states = []
    for i, rate in enumerate(rates):
        model = classifier(exburn.optimizers.Adam(float(rate)), seed=i, dropout=0.2)
        prepare(model, "fit", exburn.data.ArrayDataset(x[0], y[0]), train=True)
        trainer = model._training_session.trainer
        states.append(jax.tree.map(jnp.copy, trainer.preparer.initial_state()))
    single, singles = jax.jit(trainer.preparer.programs.steps.step), []
    for state in states:
        for bx, by in zip(x, y, strict=True):
            state = single(state, (bx, by, None), None)
        singles.append(state)
    stacked = jax.tree.map(lambda *v: jnp.stack(v), *states)
    step = jax.jit(
        jax.vmap(trainer.preparer.programs.steps.step, in_axes=(0, None, None))
    )
    for bx, by in zip(x, y, strict=True):
        stacked = step(stacked, (bx, by, None), None)
    for i, single in enumerate(singles):
        for name, value in single.params.items():
            np.testing.assert_allclose(stacked.params[name][i], value, atol=2e-6)
    losses = stacked.metrics["loss"]["total"]
    assert len(set(np.asarray(losses).tolist())) == 8


def test_plain_jax_grad_and_optax_train_a_built_model(blobs):
    x, y = blobs
    model = exburn.Sequential(
        [exburn.Input((8,)), layers.Dense(16, activation="relu"), layers.Dense(3)]
    )
    graphdef, params = nnx.split(model, nnx.Param)
    optimizer = optax.adam(1e-2)
    opt_state = optimizer.init(params)

    @jax.jit
    def step(params, opt_state):
        def loss(params):
            logits = nnx.merge(graphdef, params)(x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, grads = jax.value_and_grad(loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state, params)
        return optax.apply_updates(params, updates), opt_state, value

    values = []
    for _ in range(60):
        params, opt_state, value = step(params, opt_state)
        values.append(float(value))
    assert values[-1] < 0.5 * values[0]
    nnx.update(model, params)
    assert (model.predict(x, verbose=0).argmax(-1) == y).mean() > 0.8


def test_nnx_jit_with_an_nnx_optimizer_trains_a_built_model(blobs):
    x, y = blobs
    model = exburn.Sequential([exburn.Input((8,)), layers.Dense(3)])
    optimizer = nnx.Optimizer(model, optax.sgd(0.5), wrt=nnx.Param)

    @nnx.jit
    def step(model, optimizer):
        def loss(model):
            return optax.softmax_cross_entropy_with_integer_labels(model(x), y).mean()

        value, grads = nnx.value_and_grad(loss)(model)
        optimizer.update(model, grads)
        return value

    first = float(step(model, optimizer))
    for _ in range(20):
        last = float(step(model, optimizer))
    assert last < first


def test_nnx_modules_and_functions_stack(blobs):
    x, y = blobs

    class Branch(nnx.Module):
        def __init__(self, rngs):
            self.linear = nnx.Linear(8, 16, rngs=rngs)
            self.norm = nnx.BatchNorm(16, rngs=rngs)
            self.drop = nnx.Dropout(0.1, rngs=rngs)

        def __call__(self, x):
            return self.drop(self.norm(self.linear(x)))

    branch = Branch(nnx.Rngs(0))
    model = exburn.Sequential([branch, jax.nn.relu, layers.Dense(3)])
    adam = exburn.optimizers.Adam(0.01)
    model.compile(adam, "cross_entropy", metrics=["accuracy"], seed=0)
    before = np.array(branch.norm.mean[...])
    history = model.fit(x, y, epochs=40, verbose=0).history
    assert history["accuracy"][-1] > 0.8 > history["accuracy"][0]
    assert not np.allclose(before, np.asarray(branch.norm.mean[...]))
    once, twice = (model.predict(x, verbose=0) for _ in range(2))
    np.testing.assert_array_equal(once, twice)
