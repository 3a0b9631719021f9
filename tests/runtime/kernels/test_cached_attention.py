"""The kernel of attention over a cache, interpreted, beside the form for XLA."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.layers import RotaryEmbedding
from exburn.layers.contract.key_value_cache import PromptCache, StepCache
from exburn.runtime.kernels import cached_attention

# heads, key heads, size, prompt, slots, window, soft cap, index, slots of a block
CASES = [
    (4, 2, 8, 16, 80, None, None, 40, 256),
    (4, 4, 6, 16, 80, 5, 2.0, 30, 256),
    (4, 1, 8, 16, 80, 7, None, 60, 16),
    (2, 2, 8, 16, 80, None, None, 16, 16),
    (4, 2, 8, 64, 300, 90, None, 200, 16),
]


class Layer:
    name = "attention"


def _attend(case, few_bits, turned, by_kernel, monkeypatch):
    heads, groups, size, prompt, slots, window, cap, index, block = case
    rng = np.random.default_rng(0)

    def draw(*shape):
        return jnp.asarray(rng.normal(size=shape), jnp.float32)

    lengths = jnp.array([prompt, 3, prompt // 2], jnp.int32)
    past = draw(3, slots, groups, size), draw(3, slots, groups, size)
    first = PromptCache(slots, few_bits)
    options = {"scale": 0.3, "window": window, "soft_cap": cap}
    first.attend(Layer, past[0], *past, whole=lambda q, k, v: q, **options)
    cache = StepCache(first.entries, lengths, prompt, index)
    query, key, value = draw(3, 1, heads, size), *(draw(3, 1, groups, size),) * 2
    if turned:
        rotary, heads_of = RotaryEmbedding(), (query, key)
        angles = rotary._angles(cache.positions(1), size, 4, 1, 3)
        query, key = (_turn(x, *angles) for x in heads_of)
        for new, old in zip((query, key), heads_of, strict=True):
            cache.note_turned(new, old, angles, rotary)
    with monkeypatch.context() as patch:
        if by_kernel:
            patch.setattr(cached_attention.dispatch, "runs_kernels", lambda **_: True)
            interpret = {"interpret": True}
            patch.setattr(cached_attention, "options", lambda *_, **__: interpret)
            patch.setattr(cached_attention, "SMALLEST", 2)
            patch.setattr(cached_attention, "ROWS", 3)
            patch.setattr(cached_attention, "_BLOCK", block)
        out = cache.attend(Layer, query, key, value, whole=None, **options)
    return out, cache.entries


def _turn(x, cos, sin):
    low, high = jnp.split(x, 2, -1)
    return jnp.concatenate([low * cos - high * sin, high * cos + low * sin], -1)


@pytest.mark.parametrize("few_bits", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_the_kernel_reads_and_keeps_what_the_plain_form_does(
    case, few_bits, monkeypatch
):
    turned = case is CASES[0] or case is CASES[2]
    plain, kept = _attend(case, few_bits, turned, False, monkeypatch)
    out, entries = _attend(case, few_bits, turned, True, monkeypatch)
    np.testing.assert_allclose(out, plain, atol=2e-6)
    for old, new in zip(kept.values(), entries.values(), strict=True):
        assert len(new) == (4 if few_bits else 2)
        for one, other in zip(old, new, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_allclose(one, other, atol=1e-6)


def test_integers_of_8_bits_are_within_half_a_step():
    heads = jnp.asarray(np.random.default_rng(0).normal(size=(3, 5, 8)), jnp.float32)
    heads = heads.at[0, 0].set(0)
    whole, scale = cached_attention.round_heads(heads)
    assert whole.dtype == jnp.int8
    error = jnp.abs(whole * scale[..., None] - heads)
    assert (error <= 0.501 * scale[..., None] + 1e-9).all()


def test_the_kernel_lowers_for_a_gpu(monkeypatch):
    def run(query, key, *entry):
        cache = StepCache({"attention:1": entry}, jnp.array([3]), 16, jnp.array(20))
        options = {"scale": 1.0, "window": None, "soft_cap": None}
        return cache.attend(Layer, query, key, key, whole=None, **options)

    monkeypatch.setattr(cached_attention.dispatch, "runs_kernels", lambda **_: True)
    half = jnp.bfloat16
    query, key = jnp.ones((1, 1, 4, 16), half), jnp.ones((1, 1, 2, 16), half)
    entry = [jnp.ones((1, 2, 64, 16), half)] * 2
    traced = jax.jit(run).trace(query, key, *entry)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert "cached_attention" in text
