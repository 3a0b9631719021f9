"""Tests of ``exburn.runtime.kernels.cross_entropy_gpu``."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.rows import CLASSES, batch, readings

import exburn
from exburn.runtime.kernels import cross_entropy, cross_entropy_gpu

WEIGHTED = [
    {"sample_weight": jnp.array([1.0, 0.0, 2.0, -1.0, 0.5, 3.0])},
    {"mask": jnp.array([True, False, True, True, False, True])},
    {"row_mask": jnp.arange(6) < 4, "sample_weight": jnp.arange(6.0)},
]


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


@pytest.mark.parametrize("given", WEIGHTED)
@pytest.mark.parametrize("reduction", ["sum", "mean_with_sample_weight"])
def test_weights_and_masks(request, given, reduction):
    scores, labels = batch("bfloat16")
    options = {"reduction": reduction, "from_logits": True, "ignore_class": -100}
    loss = exburn.losses.SparseCategoricalCrossentropy(**options)
    labels = labels.at[2].set(-100)
    if len(given) + ("mask" in given) == 2:  # what is masked may be anything
        scores = scores.at[4].set(jnp.nan)

    def total(scores):
        return loss(labels, scores, **given)

    def bend(scores):  # a gradient of a gradient
        return (jax.grad(total)(scores).astype(jnp.float32) ** 2).sum()

    def everything():
        found = *jax.value_and_grad(total)(scores), jax.grad(bend)(scores)
        ahead = jax.jvp(total, (scores,), (jnp.nan_to_num(scores),))[1]
        return [np.asarray(v, np.float32) for v in (*found, ahead)]

    plain = everything()
    calls = request.getfixturevalue("kernel")
    for found, expected in zip(everything(), plain, strict=True):
        np.testing.assert_allclose(
            found, expected, atol=4e-3 * abs(expected).max(), rtol=4e-3
        )
    assert calls


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_training_reads_scores_once(request, monkeypatch, dtype):
    x = np.random.default_rng(0).integers(0, CLASSES, (8, 4))
    y = (x + 1) % CLASSES

    def trained():
        exburn.utils.set_random_seed(0)
        layers = [
            exburn.Input((4,), dtype="int32"),
            exburn.layers.Embedding(CLASSES, 8),
            exburn.layers.Dense(CLASSES, dtype=dtype),
        ]
        model = exburn.Sequential(layers)
        model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
        seen = model.fit(x, y, batch_size=4, epochs=2, verbose=0, shuffle=False)
        return seen.history, model.evaluate(x, y, batch_size=4, verbose=0)

    plain = trained()
    request.getfixturevalue("kernel")
    calls = []

    def spy(name, function, *args, classes):
        calls.append((name, str(classes)))
        return function(*args, classes)

    for name in ("read", "read_with_gradient"):
        noted = functools.partial(spy, name, getattr(cross_entropy_gpu, name))
        monkeypatch.setattr(cross_entropy, name, noted)
    history, evaluated = trained()
    for name, values in plain[0].items():
        np.testing.assert_allclose(history[name], values, rtol=2e-3)
    np.testing.assert_allclose(evaluated, plain[1], rtol=2e-3)
    names = [name for name, *_ in calls]
    if dtype == "mixed_float16":  # too small numbers for it
        assert set(names) == {"read"}
        return
    # The metric asks for what the loss asked for, so that XLA runs that once.
    loss, metric = (calls[names.index("read_with_gradient") + i] for i in (0, 1))
    assert metric[0] == loss[0] == "read_with_gradient"
    assert metric[-1] == loss[-1] == str(CLASSES)
    assert names[-2:] == ["read", "read"]
