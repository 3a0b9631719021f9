"""Tests of ``exburn.runtime.kernels.attention_softmax``."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.runtime.kernels.interpreted import losses

import exburn
from exburn import config, layers
from exburn.core import forward_context
from exburn.runtime.kernels import attention_softmax, memory_bound
from exburn.runtime.kernels.attention_softmax import masked_softmax

SCORES = jnp.asarray(np.random.default_rng(0).standard_normal((2, 3, 4, 5)) * 3)
MASK = jnp.array([True, True, False, True, False])


def total(scores: Any) -> Any:
    return (masked_softmax(scores, MASK) ** 3).sum()


@pytest.fixture(autouse=True)
def training():
    with forward_context.forward(forward_context.Context(training=True)):
        yield


@pytest.fixture
def on_gpu(monkeypatch):
    """Runs as it would on a GPU, beside what it is on a CPU."""

    def of(function: Any) -> tuple[Any, Any]:
        plain = function(SCORES)
        monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
        text = str(jax.make_jaxpr(function)(SCORES))
        assert "optimization_barrier" in text
        return plain, function(SCORES)

    return of


@pytest.mark.parametrize(
    "function",
    [
        lambda x: masked_softmax(x, MASK),
        lambda x: masked_softmax(x - 1e4, None),
        lambda x: masked_softmax(x, ~jnp.ones(5, bool)),
        jax.grad(lambda x: total(x)),
        jax.vmap(jax.grad(lambda x: total(x))),
        lambda x: jax.jvp(jax.grad(total), (x,), (x,))[1],
    ],
    ids=["masked", "far", "unseen", "gradient", "by rows", "second derivative"],
)
def test_in_steps_it_is_the_same(on_gpu, function):
    plain, apart = on_gpu(function)
    np.testing.assert_allclose(apart, plain, rtol=2e-5, atol=2e-6)


def test_many_scores_are_left_to_one_kernel(monkeypatch):
    monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
    many = jax.ShapeDtypeStruct((1 << 12, 1 << 10), jnp.float32)
    text = str(jax.make_jaxpr(lambda x: masked_softmax(x, None))(many))
    assert "optimization_barrier" not in text


def test_it_can_be_left_to_xla(on_gpu):
    config.disable_gpu_kernels()
    try:
        with pytest.raises(AssertionError, match="optimization_barrier"):
            on_gpu(lambda x: masked_softmax(x, MASK))
    finally:
        config.enable_gpu_kernels()


def test_a_traced_layer_follows_the_switch(monkeypatch):
    monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
    layer = layers.MultiHeadAttention(2, 3)
    x = jnp.ones((1, 4, 6))
    layer(x, x)

    def traced() -> str:
        return str(jax.make_jaxpr(lambda x: layer(x, x, training=True))(x))

    assert "optimization_barrier" in traced()
    config.disable_gpu_kernels()
    try:
        assert "optimization_barrier" not in traced()
    finally:
        config.enable_gpu_kernels()


def test_outside_of_training_it_is_one_kernel(monkeypatch):
    monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
    with forward_context.forward(forward_context.Context(training=False)):
        text = str(jax.make_jaxpr(lambda x: masked_softmax(x, MASK))(SCORES))
    assert "optimization_barrier" not in text


@pytest.mark.usefixtures("cpu_only")  # a GPU would run them in both
def test_attention_takes_them_in_fit(request, monkeypatch):
    def model():
        x = exburn.Input((16, 8))
        y = layers.MultiHeadAttention(2, 4, dropout=0.2)(x, x, use_causal_mask=True)
        made = exburn.Model(x, layers.Dense(1)(y))
        made.compile("sgd", "mse", seed=0)
        return made

    data = np.random.default_rng(0).standard_normal((8, 16, 8), np.float32)

    plain = losses(model(), data)
    calls = request.getfixturevalue("kernels")
    monkeypatch.setattr(memory_bound, "ELEMENTS", 1 << 22)
    monkeypatch.setattr(attention_softmax, "chosen_platform", lambda: "gpu")
    made = model()
    np.testing.assert_allclose(losses(made, data), plain, rtol=1e-5)
    assert len(calls) == 2  # forward and back
    made.evaluate(data, data[..., :1], 4, verbose=0)
    jax.jvp(lambda x: made(x, training=True), (data,), (data,))
    assert len(calls) == 2


@pytest.mark.parametrize(("masked", "runs"), [(False, True), (True, False)])
def test_large_scores_without_a_mask_go_through_the_kernels(kernels, masked, runs):
    mask = jnp.ones((64, 16), bool) if masked else None
    scores = jnp.zeros((64, 16))
    attention_softmax.masked_softmax(scores, mask, "kernels")
    assert memory_bound.memory_bound(scores)
    assert bool(kernels) is runs
