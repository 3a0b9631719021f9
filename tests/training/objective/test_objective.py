"""What is minimized and measured: odd losses, and those that draw."""

import warnings

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers, ops


@pytest.mark.long
def test_a_scalar_loss_sees_the_last_batch_at_its_own_size(blobs, classifier):
    x, y = blobs
    onehot = np.eye(3, dtype=np.float32)[y]

    def scalar(y_true, y_pred):
        return jnp.mean(jnp.square(y_true - y_pred))

    a = classifier(loss=scalar, metrics=[])
    b = classifier(loss="mse", metrics=[])
    one = a.fit(x, onehot, epochs=2, verbose=0).history["loss"]
    two = b.fit(x, onehot, epochs=2, verbose=0).history["loss"]
    np.testing.assert_allclose(one, two, rtol=1e-5)


@pytest.mark.long
def test_a_loss_that_keeps_rows_apart_is_measured_but_not_minimized(blobs, classifier):
    x, y = blobs[0][:50], blobs[1][:50]
    loss = exburn.losses.SparseCategoricalCrossentropy
    model, apart = classifier(loss=loss()), classifier(loss=loss(reduction="none"))
    np.testing.assert_allclose(
        apart.evaluate(x, y, verbose=0), model.evaluate(x, y, verbose=0), rtol=1e-5
    )
    np.testing.assert_allclose(
        apart.test_on_batch(x, y), model.test_on_batch(x, y), rtol=1e-5
    )
    with pytest.raises(exburn.errors.ShapeError, match="must be one number"):
        apart.fit(x, y, verbose=0)
    with pytest.raises(exburn.errors.ShapeError, match="must be one number"):
        apart.train_on_batch(x, y)


X = np.ones((8, 3), "float32")


def noisy(y_true, y_pred):
    noise = exburn.random.normal(ops.shape(y_pred))
    return ops.mean(ops.square(y_true - y_pred + noise), -1)


def drawn(y_true, y_pred):
    return exburn.random.uniform(ops.shape(y_pred)[:-1])


class Seeded(exburn.losses.Loss):
    def __init__(self):
        super().__init__()
        self.seeds = exburn.random.SeedGenerator(3)

    def call(self, y_true, y_pred):
        noise = exburn.random.normal(ops.shape(y_pred), seed=self.seeds)
        return ops.mean(ops.square(y_true - y_pred + noise), -1)


def compiled(loss, **options):
    model = exburn.Sequential([exburn.Input((3,)), layers.Dense(3)])
    options = {"metrics": [drawn], "seed": 1} | options
    model.compile(exburn.optimizers.SGD(0.0), loss, **options)
    return model


@pytest.mark.long
@pytest.mark.longest_cases("function")
@pytest.mark.parametrize("loss", [noisy, Seeded()], ids=["function", "generator"])
def test_each_step_draws_anew_and_a_run_is_repeated(loss):
    first = compiled(loss).fit(X, X, batch_size=4, epochs=3, verbose=0).history
    again = compiled(loss).fit(X, X, batch_size=4, epochs=3, verbose=0).history
    assert first == again
    for values in first.values():
        assert len(set(values)) == 3
    bare = compiled("mse", metrics=[]).evaluate(X, X, verbose=0)
    assert all(value > bare for value in first["loss"])


def test_batches_of_an_evaluation_draw_of_their_own():
    """So they are not joined, and the next evaluation draws the same."""
    rows = np.ones((640, 3), "float32")
    model = compiled(noisy)
    found = model.evaluate(rows, rows, batch_size=4, verbose=0)
    assert found == model.evaluate(rows, rows, batch_size=4, verbose=0)
    assert 0.45 < found[1] < 0.55  # the mean of 640 draws, not of 4
    alone = compiled(noisy, join_batches=1)
    alone.set_weights(model.get_weights())
    np.testing.assert_allclose(
        found, alone.evaluate(rows, rows, batch_size=4, verbose=0), rtol=1e-5
    )


@pytest.mark.long
def test_single_batches_and_eager_steps_draw_too():
    model = compiled(noisy)
    assert model.train_on_batch(X, X) != model.train_on_batch(X, X)
    assert np.isfinite(model.test_on_batch(X, X)).all()
    eager = compiled(noisy, run_eagerly=True)
    assert np.isfinite(eager.fit(X, X, verbose=0).history["loss"]).all()


Sparse = exburn.losses.SparseCategoricalCrossentropy


@pytest.mark.parametrize(
    ("activation", "loss", "warns"),
    [
        (
            "softmax",
            Sparse(from_logits=True),
            True,
        ),
        ("softmax", Sparse(), False),
        (
            "linear",
            Sparse(from_logits=True),
            False,
        ),
        ("softmax", exburn.losses.CrossEntropy(from_logits=True), False),  # it adapts
    ],
)
def test_probabilities_that_are_taken_as_logits_are_told(activation, loss, warns):
    stack = [exburn.Input((4,)), layers.Dense(3, activation=activation, name="kind")]
    model = exburn.Sequential(stack)
    model.compile("sgd", loss, seed=0)
    x, y = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(x, y, verbose=0)
    told = [str(one.message) for one in caught]
    assert len(told) == warns
    assert all("'kind' as logits" in text for text in told)
