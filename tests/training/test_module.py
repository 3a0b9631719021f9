"""Frozen weights that a training pass assigns."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers, optimizers

RNG = np.random.default_rng(0)
X = RNG.standard_normal((16, 4)).astype(np.float32)
Y = X[:, :1]


class Teacher(exburn.Layer):
    """A student, and a frozen teacher that follows it."""

    def __init__(self):
        super().__init__()
        self.student = layers.Dense(1, kernel_initializer="ones", use_bias=False)
        self.teacher = layers.Dense(1, kernel_initializer="zeros", use_bias=False)
        self.teacher.trainable = False

    def build(self, shape):
        self.student.build(shape)
        self.teacher.build(shape)

    def follow(self):
        mean = 0.5 * (self.teacher.kernel + self.student.kernel)
        self.teacher.kernel.assign(mean)

    def call(self, x, training=False):
        if training:
            self.follow()
        return self.student(x) + 0 * self.teacher(x)


class LateTeacher(exburn.Model):
    def __init__(self):
        super().__init__()
        self.pair = Teacher()

    def call(self, x):
        return self.pair(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None):
        self.pair.follow()
        return ((y - y_pred) ** 2).mean()


def pair_of(kind):
    if kind == "compute_loss":
        model = LateTeacher()
        model(X)
        return model, model.pair
    pair = Teacher()
    model = exburn.Sequential([exburn.Input((4,)), pair])
    if kind == "rematerialized":
        model.remat(pair)
    return model, pair


@pytest.mark.parametrize("kind", ["layer", "rematerialized", "compute_loss"])
@pytest.mark.parametrize("grouped", [1, 2])
def test_frozen_weights_keep_what_is_assigned(kind, grouped):
    model, pair = pair_of(kind)
    accumulated = {"gradient_accumulation_steps": grouped} if grouped > 1 else {}
    model.compile(optimizers.SGD(0.1, momentum=0.0, **accumulated), "mse")
    student, teacher = np.ones((4, 1)), np.zeros((4, 1))
    gradient = np.zeros((4, 1))
    for i, rows in enumerate([slice(0, 8), slice(8, 16)] * 2):
        for _ in range(2 if kind == "compute_loss" else 1):  # in the pass, too
            teacher = 0.5 * (teacher + student)
        error = X[rows] @ student - Y[rows]
        gradient = gradient + X[rows].T @ error / 4 / grouped
        if (i + 1) % grouped == 0:
            student, gradient = student - 0.1 * gradient, np.zeros((4, 1))
    model.fit(X, Y, batch_size=8, epochs=2, shuffle=False, verbose=0)
    np.testing.assert_allclose(pair.student.kernel, student, atol=1e-5)
    np.testing.assert_allclose(pair.teacher.kernel, teacher, atol=1e-5)
    assert model.trace_counts["train"] == 1


@pytest.mark.parametrize("grouped", [None, 2])
@pytest.mark.filterwarnings("ignore::exburn.errors.NonFiniteLossWarning")
def test_a_step_that_is_left_out_assigns_nothing(grouped):
    model, pair = pair_of("layer")
    inner = optimizers.SGD(0.1, gradient_accumulation_steps=grouped)
    model.compile(optimizers.LossScaleOptimizer(inner), "mse")
    model.fit(np.full_like(X, 1e30), Y, batch_size=8, verbose=0)
    np.testing.assert_array_equal(pair.teacher.kernel, np.zeros((4, 1)))
    model.fit(X, Y, batch_size=8, verbose=0)
    assert (np.array(pair.teacher.kernel) != 0).all()


def test_a_resumed_run_goes_on_with_assigned_weights(tmp_path):
    whole, pair = pair_of("layer")
    whole.compile("adam", "mse", seed=0)
    whole.fit(X, Y, epochs=4, verbose=0)
    expected = np.array(pair.teacher.kernel)
    assert expected.all()
    model, pair = pair_of("layer")
    model.compile("adam", "mse", seed=0)
    folder = tmp_path / "run"
    saver = exburn.callbacks.ModelCheckpoint(f"{folder}/")
    model.fit(X, Y, epochs=2, verbose=0, callbacks=[saver])
    model, pair = pair_of("layer")
    model.compile("adam", "mse", seed=0)
    model.fit(X, Y, epochs=4, verbose=0, resume=folder)
    np.testing.assert_array_equal(pair.teacher.kernel, expected)


def test_programs_only_pass_on_what_is_not_assigned():
    hidden = layers.Dense(4, trainable=False)
    model = exburn.Sequential([exburn.Input((4,)), hidden, layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(X, Y, verbose=0)
    trainer = model._training_session.trainer
    state = trainer.preparer.initial_state()
    programs = trainer.preparer.programs
    step = jax.make_jaxpr(lambda s: programs.steps.step(s, (X, Y, None), None).frozen)(
        state
    )
    assert set(step.jaxpr.outvars) <= set(step.jaxpr.invars)
