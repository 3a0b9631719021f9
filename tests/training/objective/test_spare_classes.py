"""Wide outputs are filled up to whole tiles on a GPU: no loss or metric may notice."""

import jax
import numpy as np
import pytest

import exburn
from exburn.runtime.kernels import padded_matmul
from exburn.training.objective import objective

CLASSES, POSITIONS, ROWS = 50, 6, 70


@pytest.fixture
def read(monkeypatch):
    """Pretends to run on a GPU, and notes the widths that losses and metrics read."""
    widths = []
    original = objective._seen_by

    def seen_by(*args):
        out = original(*args)
        widths.append((type(args[0]).__name__, out[0].shape[-1]))
        return out

    monkeypatch.setattr(padded_matmul, "WIDE", 8)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(objective, "_seen_by", seen_by)
    return widths


class Counting(exburn.losses.SparseCategoricalCrossentropy):
    """Counts the classes, which spare ones would change."""

    def call(self, y_true, y_pred):
        return super().call(y_true, y_pred) * y_pred.shape[-1]


def trained(loss, metric, bias):
    exburn.utils.set_random_seed(0)
    table = exburn.layers.ReversibleEmbedding(CLASSES, 16)
    tokens = exburn.Input((POSITIONS,), dtype="int32")
    h = exburn.layers.LayerNormalization()(table(tokens))
    out = exburn.layers.Dense(CLASSES)(h) if bias else table(h, reverse=True)
    model = exburn.Model(tokens, out)
    model.compile("adam", loss=loss, metrics=[metric])
    rng = np.random.default_rng(0)
    x = rng.integers(0, CLASSES, (ROWS, POSITIONS)).astype("int32")
    y = np.where(x < 25, x, 3)
    history = model.fit(x, y, batch_size=16, epochs=1, verbose=0).history
    return [*history["loss"], *model.evaluate(x, y, verbose=0), *history[metric]]


@pytest.mark.parametrize(
    ("loss", "metric", "bias", "width"),
    [
        ("cross_entropy", "sparse_categorical_accuracy", False, 128),
        (
            exburn.losses.SparseCategoricalCrossentropy(from_logits=True),
            "sparse_categorical_accuracy",
            True,
            128,
        ),
        (
            exburn.losses.CrossEntropy(label_smoothing=0.1),
            "sparse_top_k_categorical_accuracy",
            True,
            CLASSES,
        ),
        (Counting(from_logits=True), "sparse_categorical_accuracy", False, CLASSES),
    ],
)
def test_spare_classes_change_nothing(request, loss, metric, bias, width):
    expected = trained(loss, metric, bias)
    widths = request.getfixturevalue("read")
    np.testing.assert_allclose(trained(loss, metric, bias), expected, rtol=1e-5)
    name = type(loss).__name__ if not isinstance(loss, str) else "CrossEntropy"
    assert {w for n, w in widths if n == name} == {width}
