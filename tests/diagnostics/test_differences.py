"""Gradients by differences of losses."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.diagnostics.models import X, Y, model

import exburn
from exburn import layers
from exburn.diagnostics import differences
from exburn.errors import ArgumentError, DataError, UnknownNameError


@pytest.fixture(scope="module")
def smooth():
    return model(layers.Dense(5, "tanh"), layers.Dropout(0.3))


@pytest.mark.parametrize(
    ("method", "atol"), [("numerical", 1e-4), ("numerical_batch", 3e-3)]
)
def test_differences(smooth, method, atol):
    """With dropout: the same mask in every one of the losses."""
    wanted = exburn.compute_gradients(smooth, (X, Y))
    found = exburn.compute_gradients(smooth, (X, Y), method=method)
    for name, value in wanted.items():
        np.testing.assert_allclose(found[name], value, atol=atol)
        assert found[name].shape == value.shape


def temporary_bytes(made, budget):
    trainer, tree = differences.prepare_batch(made, (X, Y), "", "numerical")
    state = trainer.preparer.initial_state()
    flat = {path: value.ravel() for path, value in state.params.items()}
    rows = {path: np.arange(v.size, dtype=np.int32) for path, v in flat.items()}
    found = trainer.preparer.programs
    run = differences._differences(found, "numerical", budget, False)
    compiled = jax.jit(run).lower(state, tree, flat, flat, rows).compile()
    return compiled.memory_analysis().temp_size_in_bytes


def test_chunks_fit_the_memory(smooth, monkeypatch):
    sizes = [temporary_bytes(smooth, 2**bits) for bits in (14, 22)]
    assert 3 * sizes[0] < sizes[1] < 2**22
    whole = exburn.compute_gradients(smooth, (X, Y), method="numerical")
    monkeypatch.setattr(differences, "free_bytes", lambda: 2**17)
    parts = exburn.compute_gradients(smooth, (X, Y), method="numerical")
    assert "numerical 2**14 bytes" in smooth.trace_counts
    for name, value in whole.items():
        np.testing.assert_allclose(parts[name], value, atol=1e-4)


class Own(exburn.Layer):
    """Weights that are used in all the ways that a product can be cut, or cannot."""

    def build(self, shape):
        self.left = self.add_weight((3, 4), name="left")
        self.deep = self.add_weight((2, 2, 3), name="deep")
        self.twice = self.add_weight((4, 4), name="twice")
        self.scale = self.add_weight((4,), "ones", name="scale")

    def call(self, x):
        y = (self.left.get_value() @ x.T).T
        pairs = x.reshape(-1, 2, 2)
        y = y + jnp.einsum("bij,ijk->bk", pairs, self.deep.get_value())
        twice = self.twice.get_value()
        return y + jnp.tanh(x @ twice @ twice * self.scale.get_value())[:, :3]


@pytest.mark.parametrize("method", ["numerical", "numerical_batch"])
def test_products_are_cut_where_that_is_the_same(method):
    made = exburn.Sequential([exburn.Input((4,)), Own()])
    made.compile("sgd", "cross_entropy", seed=1)
    trainer, tree = differences.prepare_batch(made, (X, Y), "", method)
    state = trainer.preparer.initial_state()
    loss = differences.loss_of(trainer.preparer.programs)
    traced = differences._Traced.of(loss, state, tree)
    cut = {path for path in state.params if traced.product(path) is not None}
    assert cut == {"own/left", "own/deep"}
    code = str(jax.make_jaxpr(differences.precise(loss))(state, tree))
    assert (
        code.count("dot_general[") == len(re.findall(r"precision=.*HIGHEST", code)) > 0
    )
    wanted = exburn.compute_gradients(made, (X, Y))
    found = exburn.compute_gradients(made, (X, Y), method=method)
    for path, value in wanted.items():
        np.testing.assert_allclose(found[path], value, atol=3e-3, err_msg=path)
        assert float(jnp.abs(value).max()) > 0.01


def test_epsilon_by_dtype():
    sizes = [differences.default_epsilon(d) for d in ("float64", "float32", "bfloat16")]
    assert sizes == sorted(sizes)
    assert differences.default_epsilon("float32", "numerical_batch") < sizes[1]


def test_a_step_that_a_weight_cannot_hold_is_one_to_the_next_number():
    made = model(dtype="bfloat16")
    found = exburn.compute_gradients(made, (X, Y), method="numerical", epsilon=1e-12)
    assert all(np.isfinite(np.asarray(v, np.float32)).all() for v in found.values())


class OwnStep(exburn.Model):
    def __init__(self):
        super().__init__()
        self.dense = exburn.layers.Dense(3)

    def call(self, x):
        return self.dense(x)

    def train_step(self, state, data):
        return {"loss": 0.0}, state


def test_a_batch_is_checked_and_the_model_is_built_for_it():
    made = exburn.Sequential([exburn.layers.Dense(3)])
    made.compile("sgd", "cross_entropy")
    trainer, (x, y, weight) = differences.prepare_batch(
        made, (X, Y), "train_step", "autodiff"
    )
    assert made.built and weight is None
    assert trainer is made._training_session.trainer
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, Y)


def test_what_is_refused():
    made = model()
    with pytest.raises(UnknownNameError, match="numerical_batch"):
        differences.prepare_batch(made, (X, Y), "train_step", "symbolic")
    with pytest.raises(DataError, match="received 4 parts"):
        differences.prepare_batch(made, (X, Y, Y, Y), "train_step", "autodiff")
    own = OwnStep()
    own.compile("sgd", "mse")
    for op, method in (("compute_gradients", "autodiff"), ("train_step", "numerical")):
        with pytest.raises(ArgumentError, match="its gradients in its own train_step"):
            differences.prepare_batch(own, (X, Y), op, method)
