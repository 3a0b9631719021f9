"""Long rows of scores are read by a kernel on a GPU; here it is interpreted."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import memory_bound
from exburn.losses import long_rows

CLASSES = 5_000  # no whole number of the kernel's blocks


@pytest.fixture
def kernel(monkeypatch):
    """Lets the kernel read everything, and counts its calls."""
    calls = []

    def options(**_):
        calls.append(1)
        return {"interpret": True}

    monkeypatch.setattr(long_rows, "runs_kernels", lambda: True)
    monkeypatch.setattr(memory_bound, "ELEMENTS", 0)
    monkeypatch.setattr(long_rows, "options", options)
    return calls


def batch(dtype):
    rng = np.random.default_rng(0)
    scores = jnp.asarray(3 * rng.standard_normal((6, CLASSES)), dtype)
    highest = jnp.argmax(scores, axis=-1)
    labels = jnp.where(jnp.arange(6) % 2 == 0, highest, rng.integers(0, CLASSES, 6))
    # The last two rows: the label ties with a class before it, and with one after it.
    first, later = int(highest[4]), int(highest[5])
    scores = scores.at[4, (first + 1) % CLASSES].set(scores[4, first])
    scores = scores.at[5, (later + 1) % CLASSES].set(scores[5, later])
    labels = labels.at[4].set((first + 1) % CLASSES).at[5].set(later)
    return scores, labels.astype(jnp.int32)


def readings(scores, labels):
    def loss(scores):
        return exburn.losses.CrossEntropy()(labels, scores)

    hits = exburn.metrics.sparse_categorical_accuracy(labels, scores)
    value, gradient = jax.value_and_grad(loss)(scores)
    return float(value), np.asarray(gradient, np.float32), np.asarray(hits)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_the_kernel_agrees_with_the_plain_form(request, dtype):
    scores, labels = batch(dtype)
    value, gradient, hits = readings(scores, labels)
    calls = request.getfixturevalue("kernel")
    found = readings(scores, labels)
    assert calls, "the kernel was not used"
    np.testing.assert_allclose(found[0], value, rtol=1e-6)
    np.testing.assert_allclose(found[1], gradient, atol=1e-6, rtol=4e-3)
    np.testing.assert_array_equal(found[2], hits)
    assert hits.tolist() == [1, 0, 1, 0, 0, 1]


def test_spare_columns_change_nothing(kernel):
    scores, labels = batch("bfloat16")
    value, gradient, hits = readings(scores, labels)
    # Spare columns hold more than any class; they make the last block end elsewhere.
    wide = jnp.pad(scores, [(0, 0), (0, 1_120)], constant_values=50)
    with long_rows.spare_after(CLASSES):
        found = readings(wide, labels)
    assert len(kernel) == 4
    np.testing.assert_allclose(found[0], value, rtol=1e-6)
    np.testing.assert_allclose(found[1][:, :CLASSES], gradient, atol=1e-6, rtol=4e-3)
    assert not found[1][:, CLASSES:].any()
    np.testing.assert_array_equal(found[2], hits)


def test_labels_that_are_no_class_and_rows_with_nan(kernel):
    scores, labels = batch("bfloat16")
    scores = scores.at[0, 7].set(jnp.nan)
    labels = labels.at[2].set(CLASSES).at[3].set(-1)
    values = exburn.losses.CrossEntropy(reduction=None)(labels, scores)
    assert np.isnan(values).tolist() == [True, False, True, True, False, False]
    hits = exburn.metrics.sparse_categorical_accuracy(labels, scores)
    assert np.asarray(hits).tolist() == [0, 0, 0, 0, 0, 1]
    assert kernel


def test_other_scores_are_read_by_xla(kernel):
    scores, labels = batch("float32")
    readings(scores, labels)
    readings(scores.astype("bfloat16")[:, :100], labels % 100)
    assert not kernel
