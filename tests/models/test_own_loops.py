"""Loops written by hand over pure functions, as Keras' guide for JAX shows them."""

import jax
import numpy as np

import exburn as keras

RNG = np.random.default_rng(0)
X = RNG.standard_normal((256, 8)).astype(np.float32)
Y = np.eye(2, dtype=np.float32)[(X[:, 0] > 0).astype(int)]


def test_a_loop_takes_the_variables_themselves():
    keras.set_random_seed(0)
    model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(2)])
    loss_fn = keras.losses.CategoricalCrossentropy(from_logits=True)
    accuracy = keras.metrics.CategoricalAccuracy()
    optimizer = keras.optimizers.Adam(0.1)
    optimizer.build(model.trainable_variables)

    def objective(tv, ntv, x, y):
        y_pred, ntv = model.stateless_call(tv, ntv, x, training=True)
        return loss_fn(y, y_pred), (y_pred, ntv)

    @jax.jit
    def step(state, x, y):
        tv, ntv, ov, mv = state
        grad = jax.value_and_grad(objective, has_aux=True)
        (_, (y_pred, ntv)), grads = grad(tv, ntv, x, y)
        tv, ov = optimizer.stateless_apply(ov, grads, tv)
        return tv, ntv, ov, accuracy.stateless_update_state(mv, y, y_pred)

    state = (
        model.trainable_variables,  # variables, not arrays
        model.non_trainable_variables,
        optimizer.variables,
        accuracy.variables,
    )
    for start in 3 * list(range(0, 256, 32)):
        state = step(state, X[start : start + 32], Y[start : start + 32])
    seen = float(accuracy.stateless_result(state[3]))
    for variable, value in zip(model.trainable_variables, state[0], strict=True):
        variable.assign(value)
    hits = (model.predict(X, verbose=0).argmax(-1) == Y.argmax(-1)).mean()
    assert hits > 0.9 and 0.4 < seen < 1.0, (hits, seen)
