"""Tests of ``exburn.losses.contract.own_call``."""

import numpy as np
import pytest
from tests.golden import keras

import exburn as keras_api


def classes_with_a_call(package):
    class Doubled(package.losses.MeanSquaredError):
        def __call__(self, y_true, y_pred, sample_weight=None):
            return 2 * super().__call__(y_true, y_pred, sample_weight=sample_weight)

    class Alone(package.losses.Loss):
        def __call__(self, y_true, y_pred, sample_weight=None):
            return package.ops.mean(package.ops.abs(y_true - y_pred)) + 1.0

    return Doubled(name="doubled"), Alone(name="alone")


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("weighted", [False, True])
def test_classes_may_write_call_as_keras_code_does(which, weighted):
    """It was called with arguments that only ours take."""
    rng = np.random.default_rng(0)
    x = np.array([[1, 2, 0], [3, 0, 0], [1, 1, 1], [2, 0, 0], [3, 3, 0]])
    y = rng.normal(size=(5, 3, 1)).astype("float32")
    weights = rng.random((5, 3), "float32") if weighted else None
    found = []
    for package in (keras_api, keras):
        layers = package.layers
        model = package.Sequential(
            [
                package.Input((3,), dtype="int32"),
                layers.Embedding(4, 2, mask_zero=True, embeddings_initializer="ones"),
                layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        model.compile("sgd", classes_with_a_call(package)[which])
        found.append(model.evaluate(x, y, 5, sample_weight=weights, verbose=0))
    assert found[0] == pytest.approx(found[1], rel=1e-5)


@pytest.mark.parametrize("reduction", ["sum_over_batch_size", "sum"])
def test_the_mask_that_comes_with_predictions_counts(reduction):
    """In a loop of one's own: ``loss(y, model(x))``."""
    ids = np.array([[1, 2, 0], [3, 0, 0]])
    targets = np.arange(6, dtype="float32").reshape(2, 3, 1)

    def run(library):
        model = library.Sequential(
            [
                library.layers.Embedding(4, 2, "ones", mask_zero=True),
                library.layers.Dense(1, kernel_initializer="ones"),
            ]
        )
        loss = library.losses.MeanSquaredError(reduction=reduction)
        return float(loss(targets, model(ids)))

    assert run(keras_api) == pytest.approx(run(keras))
    assert run(keras_api) == pytest.approx(6.0 / (1 if reduction == "sum" else 3))
