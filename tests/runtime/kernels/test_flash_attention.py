"""Tests of ``exburn.runtime.kernels.flash_attention``."""

import jax
import numpy as np
import pytest

from exburn import config, errors, layers, ops
from exburn.runtime.kernels import flash_attention as module
from exburn.runtime.kernels.flash_attention import (
    flash_attention,
    takes_cudnn,
    why_not_cudnn,
)

X = np.random.default_rng(0).normal(size=(4, 6, 8)).astype("float32")
HEADS = X.reshape(4, 6, 2, 4)

# Whatever has an argument ``flash_attention``.
ASKING = {
    "MultiHeadAttention": lambda asked: layers.MultiHeadAttention(
        2, 4, flash_attention=asked
    )(X, X),
    "GroupQueryAttention": lambda asked: layers.GroupQueryAttention(
        4, 2, 1, flash_attention=asked
    )(X, X),
    "dot_product_attention": lambda asked: ops.dot_product_attention(
        HEADS, HEADS, HEADS, flash_attention=asked
    ),
    "with capped logits": lambda asked: ops.dot_product_attention(
        HEADS, HEADS, HEADS, flash_attention=asked, attn_logits_soft_cap=2.0
    ),
}


@pytest.mark.parametrize(
    ("own", "setting", "runs"),
    [
        (None, None, True),
        (None, True, True),
        (None, False, False),
        (True, False, True),
        (False, True, False),
    ],
)
def test_the_setting_counts_where_nothing_is_asked(own, setting, runs, monkeypatch):
    monkeypatch.setattr(module, "why_not_cudnn", lambda *_: None)
    monkeypatch.setitem(config._settings, "flash_attention", setting)
    assert takes_cudnn("op", own, X, X, X, None) is runs


@pytest.mark.usefixtures("cpu_only")
@pytest.mark.parametrize("kind", ASKING)
def test_where_it_cannot_run_only_to_ask_for_it_is_an_error(kind, monkeypatch):
    attended = [ASKING[kind](False)]
    for setting in (None, True, False):
        monkeypatch.setitem(config._settings, "flash_attention", setting)
        attended.append(ASKING[kind](None))
        with pytest.raises(errors.ArgumentError, match="flash attention"):
            ASKING[kind](True)
    assert len({np.shape(values) for values in attended}) == 1
    assert why_not_cudnn(HEADS, HEADS, HEADS, None) == "JAX runs on cpu"


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_what_the_kernel_is_asked_is_attention(causal, window, monkeypatch):
    """XLA's form stands in for cuDNN's, which a CPU does not have.

    A row that sees nothing gets the mean of all values, as by matrices of weights.
    """
    attend = jax.nn.dot_product_attention

    def by_xla(*args, implementation, **options):
        assert implementation == "cudnn"
        return attend(*args, implementation="xla", **options)

    monkeypatch.setattr(jax.nn, "dot_product_attention", by_xla)
    mask = np.ones((4, 1, 1, 6), bool)
    mask[0, ..., 2:] = False
    mask[1] = False
    bias = np.linspace(-1, 1, 12, dtype="float32").reshape(1, 2, 1, 6)
    options = {"causal": causal, "window": window}
    found = flash_attention(HEADS, HEADS, HEADS, mask=mask, bias=bias, **options)

    ahead = np.arange(6)[:, None] - np.arange(6)
    seen = ahead >= 0 if causal else np.full((6, 6), True)
    if window is not None:
        seen = seen & (np.abs(ahead) < window)
    scores = np.einsum("btnh,bsnh->bnts", HEADS, HEADS) / 2 + bias
    scores = np.where(seen & mask, scores, -1e30)
    shares = np.exp(scores - scores.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    wanted = np.einsum("bnts,bsnh->btnh", shares, HEADS)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
