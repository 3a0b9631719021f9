"""Tests of ``exburn.optimizers.lbfgs``."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import exburn
from exburn import layers, optimizers
from exburn.errors import ArgumentError
from exburn.optimizers import LBFGS


def rosenbrock(params):
    x = params["x"]
    return jnp.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def classifier(optimizer, penalty=0.0):
    model = exburn.Sequential(
        [
            exburn.Input((30,)),
            layers.Dense(1, kernel_regularizer=exburn.regularizers.L2(penalty)),
        ]
    )
    loss = exburn.losses.BinaryCrossentropy(from_logits=True)
    model.compile(optimizer, loss, seed=0)
    return model


class OwnStep(exburn.Sequential):
    def train_step(self, state, data):
        tv, ntv, ov, mv = state
        loss, grads = jax.value_and_grad(
            lambda tv: jnp.mean(self.stateless_call(tv, ntv, data[0])[0] ** 2)
        )(tv)
        tv, ov = self.optimizer.stateless_apply(ov, grads, tv)
        return {"loss": loss}, (tv, ntv, ov, mv)


def test_the_steps_are_those_of_optax():
    start = {"x": jnp.array([-1.2, 1.0, 0.5])}
    ours, theirs = LBFGS(memory_size=5), optax.lbfgs(memory_size=5)
    params, state = start, ours.init(start)
    other, its = start, theirs.init(start)

    @jax.jit
    def update(params, state):
        grads = jax.grad(rosenbrock)(params)
        return ours.update(grads, state, params, value_fn=rosenbrock)

    @jax.jit
    def reference(params, state):
        value, grads = jax.value_and_grad(rosenbrock)(params)
        steps, state = theirs.update(
            grads, state, params, value=value, grad=grads, value_fn=rosenbrock
        )
        return optax.apply_updates(params, steps), state

    for step in range(40):
        params, state = update(params, state)
        other, its = reference(other, its)
        if step < 10:  # later, rounding decides where a search ends
            np.testing.assert_allclose(params["x"], other["x"], rtol=1e-3, atol=1e-4)
    assert update._cache_size() == 1
    assert float(rosenbrock(params)) < 0.01
    assert int(state["rate"]["count"]) == 40


def test_a_logistic_regression_reaches_scikit_learns_optimum():
    data = load_breast_cancer()
    x = (data.data - data.data.mean(0)) / data.data.std(0)
    x, y = x.astype(np.float32), data.target.astype(np.float32)[:, None]
    reference = LogisticRegression(C=1.0, tol=1e-8, max_iter=1000).fit(x, y[:, 0])
    model = classifier(LBFGS(), penalty=0.5 / len(x))  # of the mean loss
    history = model.fit(x, y, batch_size=len(x), epochs=60, verbose=0).history
    assert model.trace_counts["train"] == 1
    kernel, bias = model.get_weights()
    np.testing.assert_allclose(kernel[:, 0], reference.coef_[0], atol=0.02)
    np.testing.assert_allclose(bias, reference.intercept_, atol=0.02)
    adam = classifier("adam", penalty=0.5 / len(x))
    slower = adam.fit(x, y, batch_size=len(x), epochs=60, verbose=0).history
    assert history["loss"][-1] < 0.5 * slower["loss"][-1]


def test_dropout_and_padding_stay_the_same_during_a_search():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((203, 8)).astype(np.float32)
    y = x.sum(1, keepdims=True)
    model = exburn.Sequential(
        [exburn.Input((8,)), layers.Dropout(0.1), layers.Dense(1)]
    )
    model.compile("lbfgs", "mse", seed=0)
    loss = model.fit(x, y, batch_size=64, epochs=5, verbose=0).history["loss"]
    assert np.isfinite(loss).all() and loss[-1] < 0.3 * loss[0]
    assert model.optimizer.iterations == 20


def test_configuration_and_half_precision():
    made = optimizers.deserialize(optimizers.serialize(LBFGS(0.5, memory_size=3)))
    assert (made.learning_rate, made.memory_size) == (0.5, 3)
    params = {"x": jnp.zeros(3, jnp.bfloat16)}
    state = made.init(params)
    grads = jax.grad(rosenbrock)(params)
    update = jax.jit(lambda g, s, p: made.update(g, s, p, value_fn=rosenbrock))
    params, state = update(grads, state, params)
    assert params["x"].dtype == jnp.bfloat16
    assert {leaf.dtype for leaf in jax.tree.leaves(state["inner"])} <= {
        np.dtype("float32"),
        np.dtype("int32"),
    }


@pytest.mark.parametrize(
    ("wrap", "model"),
    [
        (lambda o: o, OwnStep),
        (optimizers.LossScaleOptimizer, exburn.Sequential),
        (
            lambda o: optimizers.MultiOptimizer(
                optimizers.OptimizerMap(optimizers.SGD(), {"kernel": o})
            ),
            exburn.Sequential,
        ),
    ],
)
def test_where_the_loss_is_not_at_hand_it_says_so(wrap, model):
    made = model([exburn.Input((4,)), layers.Dense(1)])
    x = np.ones((8, 4), np.float32)
    with pytest.raises(ArgumentError, match="the (plain )?loss"):
        made.compile(wrap(LBFGS()), "mse")
        made.fit(x, x[:, :1], verbose=0)
    with pytest.raises(ArgumentError, match="≥ 1"):
        LBFGS(memory_size=0)
