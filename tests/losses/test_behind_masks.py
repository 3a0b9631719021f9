"""Loss and metric functions of rows and of steps behind ``mask_zero``, beside Keras."""

import jax.numpy as jnp
import keras as peer
import numpy as np
import pytest

import exburn
from exburn import losses
from exburn.errors import ShapeError

IDS = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 3, 4]])
MASK = IDS != 0
Y = np.arange(24.0).reshape(3, 4, 2).astype(np.float32)
P = np.ones_like(Y) * 5
REDUCTIONS = ("sum_over_batch_size", "sum", "none")


def column(y, p):
    return jnp.mean(jnp.square(y - p), axis=(1, 2))[:, None]


def scalar(y, p):
    return jnp.mean(jnp.square(y - p))


def steps(y, p):
    return jnp.mean(jnp.square(y - p), axis=-1)


def rows(y, p):
    return column(y, p)[:, 0]


def of_keras(fn, reduction):
    class Own(peer.losses.Loss):
        def call(self, y_true, y_pred):
            return fn(y_true, y_pred)

    p = jnp.asarray(P)
    p._keras_mask = jnp.asarray(MASK)
    return Own(reduction=reduction)(Y, p)


@pytest.mark.parametrize(
    ("fn", "reduction"),
    [(fn, kind) for fn in (column, steps) for kind in REDUCTIONS]
    + [(scalar, REDUCTIONS[0])],
)
def test_a_loss_behind_a_mask_is_that_of_keras(fn, reduction, golden):
    found = losses.FunctionLoss(fn, reduction=reduction)(Y, P, mask=MASK)
    theirs = golden(lambda: of_keras(fn, reduction))
    np.testing.assert_allclose(found, theirs, rtol=1e-5)


def test_a_value_for_each_row_is_weighed_by_its_steps():
    values, counts = np.asarray(rows(Y, P)), MASK.sum(1)  # Keras: a shape error
    mean = (values * counts).sum() / counts.sum()
    loss = losses.FunctionLoss(rows)
    assert float(loss(Y, P, mask=MASK)) == pytest.approx(mean)
    assert float(losses.FunctionLoss(column)(Y, P, mask=MASK)) == pytest.approx(mean)
    weight = np.array([1.0, 2.0, 0.5], np.float32)
    mean = (values * counts * weight).sum() / counts.sum()
    found = loss(Y, P, sample_weight=weight, mask=MASK)
    assert float(found) == pytest.approx(mean)
    with pytest.raises(ShapeError, match="each entry of the mask, or for each row"):
        losses.FunctionLoss(lambda y, p: (y - p)[:, :3, 0])(Y, P, mask=MASK)


def model_of(fn, **settings):
    ids = exburn.Input((4,), dtype="int32")
    embedded = exburn.layers.Embedding(6, 2, mask_zero=True)(ids)
    model = exburn.Model(ids, exburn.layers.Dense(2)(embedded))
    model.compile("sgd", fn, **settings)
    return model


def test_a_model_trains_on_it_and_measures_rows_without_the_mask():
    def right(y, p):
        return (jnp.abs(y - p) < 9).all((1, 2))

    ids, y = np.tile(IDS, (3, 1)), np.tile(Y, (3, 1, 1))
    model = model_of(rows, metrics=[right])
    logs = model.evaluate(ids, y, batch_size=4, verbose=0, return_dict=True)
    outputs = model.predict(ids, verbose=0)
    found = []
    for start in range(0, 9, 4):
        part = slice(start, start + 4)
        counts = (ids[part] != 0).sum(1)
        values = np.asarray(rows(y[part], outputs[part]))
        found.append((values * counts).sum() / counts.sum())
    assert logs["loss"] == pytest.approx(np.average(found, weights=[4, 4, 1]), rel=1e-5)
    assert logs["right"] == pytest.approx(np.asarray(right(y, outputs)).mean())
    before = logs["loss"]
    model.fit(ids, y, epochs=5, verbose=0)
    assert model.evaluate(ids, y, verbose=0)[0] < before
