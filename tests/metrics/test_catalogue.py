"""Tests of ``exburn.metrics.catalogue``."""

import inspect

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.metrics.protocol import LOGITS, OTHER, N, distance, rng, spec

from exburn import losses, metrics
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError


def mean_distance(y_true, y_pred):
    return jnp.mean(jnp.abs(y_true - y_pred))


def test_functions_with_and_without_rows():
    weight = rng.uniform(size=N)
    for function, rows in ((distance, True), (mean_distance, False)):
        metric = metrics.get(function)
        metric.build(spec("b", 3), spec("b", 3))
        assert metric.per_sample is rows
        state = metric.init()
        for part in (slice(0, 4), slice(4, 6)):  # uneven: rows count, not batches
            state = metric.update(state, OTHER[part], LOGITS[part])
        expected = np.mean(np.abs(OTHER - LOGITS))
        np.testing.assert_allclose(metric.compute(state), expected, rtol=1e-6)
    metric = metrics.get(distance)
    metric.update_state(OTHER, LOGITS, weight)
    each = np.abs(OTHER - LOGITS).mean(1)
    np.testing.assert_allclose(
        metric.result(), np.average(each, weights=weight), rtol=1e-6
    )
    with pytest.raises(ShapeError, match="one value per row"):
        metrics.get(lambda t, p: jnp.mean(p, axis=0)).update_state(OTHER, LOGITS)


@pytest.mark.parametrize(
    ("y_true", "y_pred", "kind"),
    [
        (spec("b"), spec("b", 10), "SparseCategorical"),
        (spec("b", 1), spec("b", 10), "SparseCategorical"),
        (spec("b", 10), spec("b", 10), "Categorical"),
        (spec("b", 1), spec("b", 1), "Binary"),
        (spec("b"), spec("b", 1), "Binary"),
        (spec("b"), spec("b"), "Binary"),
        (spec("b", "t"), spec("b", "t", 10), "SparseCategorical"),
        (spec("b", "t", 10), spec("b", "t", 10), "Categorical"),
        (spec("b", "t", 1), spec("b", "t", 1), "Binary"),
    ],
)
def test_resolution_by_shapes(y_true, y_pred, kind):
    for name in ("accuracy", "acc"):
        metric = metrics.resolve(name, y_true, y_pred)
        assert (type(metric).__name__, metric.name) == (f"{kind}Accuracy", name)
        metric.build(y_true, y_pred)
    for name in ("crossentropy", "ce"):
        metric = metrics.resolve(name, y_true, y_pred)
        assert (type(metric).__name__, metric.name) == (f"{kind}Crossentropy", name)


def test_resolution_of_other_things():
    y = spec("b", 3)
    assert metrics.resolve("mse", y, y).name == "mse"
    assert metrics.resolve(metrics.Precision, y, y).name == "precision"
    assert metrics.resolve(distance, y, y).name == "distance"
    assert metrics.resolve(losses.Huber(), y, y).name == "huber_loss"
    with pytest.raises(ShapeError, match="accuracy"):
        metrics.resolve("accuracy", spec("b", 4), y)
    with pytest.raises(ArgumentError, match="averages values"):
        metrics.resolve(metrics.Mean(), y, y)


def test_unknown_names():
    for call in (metrics.get, metrics.check_name):
        with pytest.raises(UnknownNameError, match="Did you mean 'precision'"):
            call("precison")
    with pytest.raises(ArgumentError, match="num_classes"):
        metrics.get("MeanIoU")
    with pytest.raises(DTypeError):
        metrics.get(1.5)
    for name in ("accuracy", "ACC", "mse", "AUC", "huber", "binary_accuracy"):
        metrics.check_name(name)
    assert metrics.get(None) is None


def test_every_name_of_keras():
    for name in dir(keras.metrics):
        if name.startswith("_") or name in ("KLD", "kld"):
            continue
        theirs, ours = getattr(keras.metrics, name), getattr(metrics, name)
        names = list(inspect.signature(theirs).parameters)
        if name == "Metric":  # (name, dtype), the order that all of its subclasses have
            names = names[::-1]
        assert list(inspect.signature(ours).parameters)[: len(names)] == names, name
        parameters = inspect.signature(theirs).parameters.values()
        if inspect.isclass(theirs) and all(
            p.default is not p.empty for p in parameters
        ):
            mine = inspect.signature(ours).parameters
            for p in parameters:
                if p.name != "name" or p.default is not None:
                    assert mine[p.name].default == p.default, (name, p.name)
