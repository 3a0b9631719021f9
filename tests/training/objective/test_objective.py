"""What is minimized and measured: odd losses, and those that draw."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers, ops
from exburn.errors import LogitsWarning
from exburn.training.objective.objective import _LOSS_MEAN


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


def test_single_batches_and_eager_steps_draw_too():
    model = compiled(noisy)
    assert model.train_on_batch(X, X) != model.train_on_batch(X, X)
    assert np.isfinite(model.test_on_batch(X, X)).all()
    eager = compiled(noisy, run_eagerly=True)
    assert np.isfinite(eager.fit(X, X, verbose=0).history["loss"]).all()


Sparse = exburn.losses.SparseCategoricalCrossentropy
CrossEntropy = exburn.losses.CrossEntropy


def mixed(units=3):
    """Probabilities that no softmax ends: two, weighed by a third."""
    x = exburn.Input((4,))
    first, second = (layers.Dense(units, "softmax")(x) for _ in range(2))
    share = layers.Dense(1, "sigmoid")(x)
    return exburn.Model(x, share * first + (1 - share) * second)


def convolved():
    return exburn.Sequential(
        [
            exburn.Input((4,)),
            layers.Reshape((4, 1)),
            layers.Conv1D(3, 4),
            layers.Flatten(),
        ]
    )


def ended(*last, **options):
    return exburn.Sequential([exburn.Input((4,)), layers.Dense(3, **options), *last])


@pytest.mark.parametrize(
    ("model", "loss", "told"),
    [
        (ended(activation="softmax"), Sparse(from_logits=True), "as logits"),
        (ended(activation="softmax"), Sparse(), None),
        (ended(), Sparse(from_logits=True), None),
        (ended(activation="softmax"), CrossEntropy(from_logits=True), None),
        (ended(), "cross_entropy", None),  # it adapts
        (ended(), Sparse(), "as probabilities"),
        (ended(), exburn.losses.sparse_categorical_crossentropy, "as probabilities"),
        (ended(dtype="mixed_bfloat16"), Sparse(), "as probabilities"),
        (ended(layers.Dropout(0.5), layers.Dense(3)), Sparse(), "as probabilities"),
        (ended(layers.Softmax()), Sparse(), None),
        (ended(activation="hard_sigmoid"), Sparse(), None),
        (convolved(), Sparse(), "as probabilities"),
        (mixed(), Sparse(), None),
        (ended(), "mse", None),
    ],
)
def test_outputs_that_are_taken_for_something_else_are_told(model, loss, told):
    model.compile("sgd", loss, seed=0)
    x, y = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    if loss == "mse":
        y = np.zeros((8, 3), np.float32)
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.fit(x, y, epochs=2, validation_data=(x[:3], y[:3]), verbose=0)
    texts = [str(w.message) for w in caught if w.category is LogitsWarning]
    assert len(texts) == (told is not None) and all(told in text for text in texts)


@pytest.mark.parametrize("kind", ["BinaryCrossentropy", "BinaryFocalCrossentropy"])
def test_a_single_logit_is_told_too(kind):
    model = exburn.Sequential([exburn.Input((4,)), layers.Dense(1, name="odd")])
    model.compile("sgd", getattr(exburn.losses, kind)())
    with warnings.catch_warnings(record=True, action="always") as caught:
        model.evaluate(np.ones((8, 4)), np.ones((8, 1)), verbose=0)
    (warning,) = caught
    assert "'odd' as probabilities" in str(warning.message)
    assert "end in a sigmoid" in str(warning.message)


def test_the_running_loss_is_a_product_and_a_sum_that_xla_may_join():
    """Whatever stood between them would change the last bit of logged losses."""
    state = _LOSS_MEAN.init()
    program = jax.make_jaxpr(_LOSS_MEAN.update)(state, np.float32(1), np.float32(2))
    assert sorted(e.primitive.name for e in program.eqns) == ["add", "add", "mul"]
