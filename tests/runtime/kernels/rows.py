"""Scores and labels of long rows, and the kernel that reads them."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.runtime.kernels import cross_entropy, cross_entropy_gpu, memory_bound

CLASSES = 5_000  # no whole number of the kernel's blocks


@pytest.fixture
def kernel(monkeypatch):
    """Lets the kernel read everything, and counts its calls."""
    return interpret(monkeypatch)


def interpret(monkeypatch):
    """Has the kernel interpreted; a list that grows with each of its traces."""
    calls = []

    def options(*_, **__):
        calls.append(1)
        return {"interpret": True}

    monkeypatch.setattr(cross_entropy, "runs_kernels", lambda **_: True)
    monkeypatch.setattr(memory_bound, "ELEMENTS", 0)
    monkeypatch.setattr(cross_entropy_gpu, "options", options)
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
