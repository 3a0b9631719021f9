"""One update, or the gradients of one batch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.diagnostics.models import X, Y, model

import exburn
from exburn import layers
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotCompiledError,
    ShapeError,
    UnknownNameError,
)


def exact(made, x, y):
    """The gradients by plain JAX, without dropout in the way."""
    weights = [w.get_value() for w in made.trainable_weights]

    def loss(values):
        h = jnp.tanh(x @ values[0] + values[1])
        return -jnp.take_along_axis(
            jax.nn.log_softmax(h @ values[2] + values[3]), y[:, None], 1
        ).mean()

    return jax.grad(loss)(weights)


def test_autodiff_is_jax_grad():
    made = model(layers.Dense(5, "tanh"))
    found = exburn.compute_gradients(made, (X, Y))
    assert list(found) == [
        "dense/kernel",
        "dense/bias",
        "dense_1/kernel",
        "dense_1/bias",
    ]
    for a, b in zip(found.values(), exact(made, X, Y), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_train_step_is_train_on_batch():
    one, other = model(layers.Dense(5, "tanh")), model(layers.Dense(5, "tanh"))
    for _ in range(3):
        loss, same = exburn.train_step(one, (X, Y))
        assert same is one
        assert loss == pytest.approx(other.train_on_batch(X, Y), rel=1e-6)
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_train_step_by_differences_updates_everything():
    def make():
        return model(layers.Dense(5, "tanh"), layers.BatchNormalization())

    one, other = make(), make()
    losses = [
        (
            exburn.train_step(one, (X, Y))[0],
            exburn.train_step(other, (X, Y), method="numerical")[0],
        )
        for _ in range(3)
    ]
    np.testing.assert_allclose(*np.transpose(losses), atol=1e-3)
    for a, b in zip(one.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-3)
    moved = other.get_layer("batch_normalization").moving_mean.numpy()
    assert abs(moved).max() > 0
    assert one.optimizer.iterations == other.optimizer.iterations == 3


def test_train_step_takes_options_for_one_step():
    made = model(optimizer=exburn.optimizers.SGD(1.0, momentum=0.0))
    before = made.get_weights()
    exburn.train_step(made, (X, Y), clip_norm=1e-3)
    moved = [a - b for a, b in zip(made.get_weights(), before, strict=True)]
    assert np.sqrt(sum((m**2).sum() for m in moved)) == pytest.approx(1e-3, rel=1e-3)
    before = made.get_weights()
    exburn.train_step(made, (X, Y))
    moved = [a - b for a, b in zip(made.get_weights(), before, strict=True)]
    assert np.sqrt(sum((m**2).sum() for m in moved)) > 0.01


def test_fit_tells_where_its_time_went():
    import time

    def slow():
        for _ in range(2):
            time.sleep(0.03)
            yield X, Y

    made = model()
    history = made.fit(slow(), steps_per_epoch=2, verbose=0, profile=True)
    (epoch,) = history.profile
    parts = ("data_ms", "device_ms", "host_ms", "validation_ms")
    assert sum(epoch[p] for p in parts) == pytest.approx(epoch["total_ms"])
    assert epoch["data_ms"] > 25 and epoch["validation_ms"] == 0
    assert made.fit(X, Y, verbose=0).profile is None


def grads(x=X, y=Y, **options):
    return exburn.compute_gradients(model(), (x, y), **options)


def fit(optimizer="sgd", **options):
    model(optimizer=optimizer).fit(X, Y, verbose=0, **options)


def unready():
    exburn.train_step(exburn.Sequential([layers.Dense(1)]), (X, Y))


def frozen():
    made = model()
    made.freeze("*")
    return made


BAD = [
    (unready, NotCompiledError),
    (lambda: grads(method="magic"), UnknownNameError),
    (lambda: grads(method="numerical", epsilon=0), ArgumentError),
    (lambda: grads(method="numerical", epsilon=np.inf), ArgumentError),
    (lambda: grads(method="numerical", epsilon="small"), ArgumentError),
    (lambda: exburn.train_step(object(), (X, Y)), DTypeError),
    (lambda: exburn.compute_gradients(len, (X, Y)), DTypeError),
    (lambda: exburn.check_gradients(model(), (X, Y), elements=0), ArgumentError),
    (lambda: exburn.check_gradients(model(), (X, Y), tolerance=-1), ArgumentError),
    (lambda: exburn.check_gradients(frozen(), (X, Y)), ArgumentError),
    (lambda: grads(X[:, :2]), ShapeError),
    (lambda: grads(y=Y + 9), DataError),
    (lambda: exburn.compute_gradients(model(), (X, Y, Y, Y)), DataError),
    (lambda: exburn.compute_gradients(model(), iter([(X, Y)])), DataError),
    (lambda: exburn.check_gradients(model(), (X, Y), method="autodiff"), ArgumentError),
    (lambda: exburn.profile_step(model(), (X, Y), runs=0), ArgumentError),
    (lambda: exburn.profile_step(model(), (X, Y), warmup=1.5), ArgumentError),
    (lambda: fit(learning_rate=-1), ArgumentError),
    (lambda: fit(device="gpu:9"), ArgumentError),
    (lambda: exburn.train_step(model(), (X, Y), clip_norm=-1), ArgumentError),
    (lambda: fit("adam", nesterov=True), ArgumentError),
    (lambda: fit(lr_schedule=("step",)), ArgumentError),
    (lambda: fit(warmup=(1, 2)), ArgumentError),
    (lambda: model(device="gpu:9"), ArgumentError),
    (lambda: model(accumulate_gradients=0), ArgumentError),
    (lambda: model(metrics={"dense": ["mse"]}, accuracy=True), ArgumentError),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_bad_calls(case):
    call, error = BAD[case]
    with pytest.raises(error):
        call()


def test_profile_step_changes_nothing():
    made = model(layers.Dense(5, "tanh"))
    before = made.get_weights()
    found = exburn.profile_step(made, (X, Y), warmup=1, runs=2)
    assert found.keys() == {
        *("forward_ms", "backward_ms", "optimizer_ms", "total_ms", "loss")
    }
    assert found["loss"] == pytest.approx(made.evaluate(X, Y, verbose=0), rel=1e-5)
    assert found["forward_ms"] > 0 and found["total_ms"] > 0
    for a, b in zip(before, made.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    assert made.optimizer.iterations == 0
