"""The page's section "Distillation"; ``tests/distillation`` has more."""

import jax
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, LABELS, X

import exburn

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")  # Keras'
TEACHER, STUDENT = np.random.default_rng(0).normal(size=(2, 5, 3)).astype("float32")


def distance(framework, loss):
    made = framework.distillation.LogitsDistillation(3.0, loss)
    return float(made.compute_loss(TEACHER, STUDENT))


@says("`LogitsDistillation` compares distributions")
def test_logits_are_compared_as_distributions():
    p, q = (np.asarray(jax.nn.softmax(v / 3)) for v in (TEACHER, STUDENT))
    divergence = 9 * (p * np.log(p / q)).sum(-1).mean()
    entropy = -9 * (p * np.log(q)).sum(-1).mean()
    assert distance(exburn, "kl_divergence") == pytest.approx(divergence, rel=1e-4)
    for framework in BOTH:
        by_object = distance(framework, framework.losses.KLDivergence())
        assert by_object == pytest.approx(divergence, rel=1e-4)
    found = [
        distance(f, f.losses.CategoricalCrossentropy(from_logits=True)) for f in BOTH
    ]
    assert found[0] == pytest.approx(entropy, rel=1e-4)
    assert found[1] != pytest.approx(entropy, rel=1e-2)
    assert distance(keras, "kl_divergence") != pytest.approx(divergence, rel=1e-2)


def distiller(framework, calls, **options):
    """A student whose hidden layer notes its calls, and has a penalty."""

    class Counted(framework.layers.Dense):
        def call(self, x):
            calls.append(1)
            return super().call(x)

    teacher = framework.Sequential(
        [
            framework.Input((4,)),
            framework.layers.Dense(8, name="t"),
            framework.layers.Dense(3),
        ]
    )
    student = framework.Sequential(
        [
            framework.Input((4,)),
            Counted(8, name="s", kernel_initializer="ones", kernel_regularizer="l2"),
            framework.layers.Dense(3, kernel_initializer="zeros"),
        ]
    )
    features = framework.distillation.FeatureDistillation("mse", "t", "s")
    model = framework.distillation.Distiller(teacher, student, features, **options)
    loss = framework.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("sgd", loss=loss, run_eagerly=True)
    return model


@says("takes the student's features from the pass that made its outputs")
@pytest.mark.filterwarnings("ignore:The structure of", "ignore:Exception encountered")
@pytest.mark.parametrize("framework", BOTH)
def test_passes_of_the_student(framework):
    calls = []
    model = distiller(framework, calls, student_loss_weight=0.0)
    model.predict(X, batch_size=48, verbose=0)
    before = len(calls)
    if framework is exburn:
        model.compute_loss(X, LABELS)
    else:
        model.compute_loss(X, LABELS, model(X))
    assert len(calls) - before == (1 if framework is exburn else 2)


@says("Its own loss counts sample weights and penalties")
@pytest.mark.parametrize("framework", BOTH)
def test_weights_and_penalties(framework):
    """The penalty of a kernel of ones, and the entropy of three equal classes."""
    model = distiller(framework, [], student_loss_weight=1.0)
    logs = model.evaluate(
        X,
        LABELS,
        batch_size=48,
        sample_weight=np.zeros(48, "float32"),
        verbose=0,
        return_dict=True,
    )
    expected = 0.01 * 4 * 8 if framework is exburn else np.log(3)
    assert logs["student_loss"] == pytest.approx(expected, rel=1e-4)
