"""Tests of ``exburn.distillation.losses``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.distillation.students import BOTH, STUDENT, TEACHER
from tests.golden import keras

import exburn

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("loss", ["kl_divergence", "KLDivergence()"])
def test_logits_are_compared_as_distributions(loss):
    if loss != "kl_divergence":
        loss = exburn.losses.KLDivergence()
    found = exburn.distillation.LogitsDistillation(3.0, loss)
    p, q = softmax(TEACHER / 3), softmax(STUDENT / 3)
    expected = 9 * (p * np.log(p / q)).sum(-1).mean()
    value = found.compute_loss(jnp.array(TEACHER), jnp.array(STUDENT))
    np.testing.assert_allclose(value, expected, rtol=1e-5)
    # Keras does so for an object only: of the name it makes a function.
    theirs = keras.distillation.LogitsDistillation(3.0, keras.losses.KLDivergence())
    np.testing.assert_allclose(value, theirs.compute_loss(TEACHER, STUDENT), rtol=1e-4)


@pytest.mark.parametrize("from_logits", [True, False])
def test_the_cross_entropy_is_that_of_hinton(from_logits):
    loss = exburn.losses.CategoricalCrossentropy(from_logits=from_logits)
    found = exburn.distillation.LogitsDistillation(2.0, loss)
    value = found.compute_loss(jnp.array(TEACHER), jnp.array(STUDENT))
    p, q = softmax(TEACHER / 2), softmax(STUDENT / 2)
    np.testing.assert_allclose(value, -4 * (p * np.log(q)).sum(-1).mean(), rtol=1e-5)


@pytest.mark.parametrize("kind", ["LogitsDistillation", "FeatureDistillation"])
@pytest.mark.parametrize("loss", ["mse", "mae", "cosine_similarity"])
def test_other_losses_are_those_of_keras(kind, loss, golden):
    def compute(api):
        distillation = getattr(api.distillation, kind)(loss=loss)
        return distillation.compute_loss(jnp.array(TEACHER), jnp.array(STUDENT))

    theirs = golden(lambda: compute(keras))
    np.testing.assert_allclose(compute(exburn), theirs, rtol=1e-5)


@pytest.mark.parametrize(
    "make, error",
    [
        (lambda d: d.LogitsDistillation(temperature=0), ValueError),
        (lambda d: d.LogitsDistillation(temperature="3"), ValueError),
        (lambda d: d.LogitsDistillation(loss=None), ValueError),
        (lambda d: d.FeatureDistillation(loss=[None]), ValueError),
    ],
)
@BOTH
def test_losses_that_cannot_be(api, make, error):
    with pytest.raises(error):
        make(api.distillation)
