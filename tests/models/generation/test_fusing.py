"""Steps of one row as kernels, interpreted, beside the plain steps."""

from __future__ import annotations

import numpy as np
import pytest

import exburn
from exburn.applications import GPT2, Llama
from exburn.applications.decoder import Decoder
from exburn.runtime.kernels import cached_attention, padded_matmul, vector_product

SIZES = {"vocabulary_size": 40, "layers": 1, "width": 16, "heads": 4, "mlp_width": 24}
MODELS = {
    "gpt2": lambda: GPT2(40, layers=1, width=16, heads=4, positions=64),
    "llama": lambda: Llama(**SIZES, key_value_heads=2, tie_embeddings=True),
    "both-norms": lambda: Decoder(
        **SIZES,
        norms="both",
        unit_offset=True,
        scale_embeddings=True,
        activation="gelu_tanh",
        logit_soft_cap=3.0,
        attention_soft_cap=5.0,
        sliding_window=5,
    ),
    "after-norms": lambda: Decoder(**SIZES, norms="after", query_key_norm="heads"),
    "experts": lambda: Decoder(
        **SIZES, experts=4, expert_width=8, shared_expert_width=8, mlp_bias=True
    ),
}


@pytest.fixture
def kernels(monkeypatch):
    """Kernels run, interpreted; a list of the forms of their products."""
    calls = []
    call = vector_product.call

    def count(form, matrices, *args, **kwargs):
        calls.append((form, len(matrices)))
        return call(form, matrices, *args, **kwargs)

    for module in (vector_product, cached_attention):
        monkeypatch.setattr(module, "options", lambda *_, **__: {"interpret": True})
    monkeypatch.setattr(cached_attention, "SMALLEST", 2)
    monkeypatch.setattr(vector_product, "wins", lambda *_: True)
    monkeypatch.setattr(vector_product, "call", count)
    runs = padded_matmul.dispatch
    monkeypatch.setattr(runs, "runs_kernels", lambda **_: True)
    return calls


def _written(model, **options):
    return model.generate(np.array([3, 1, 4, 1, 5]), 12, **options)


@pytest.mark.parametrize("name", MODELS)
def test_texts_are_those_of_the_plain_steps(name, request):
    exburn.set_random_seed(0)
    model = MODELS[name]()
    for weight in model.weights:  # so that no two tokens are as likely
        weight.assign(weight.numpy() * 3 + np.float32(0.01))
    texts = _written(model), _written(model, sampler=exburn.text.TopK(5), seed=3)
    again = model.__class__.from_config(model.get_config())
    again.set_weights(model.get_weights())
    calls = request.getfixturevalue("kernels")
    np.testing.assert_array_equal(_written(again), texts[0])
    fused = _written(again, sampler=exburn.text.TopK(5), seed=3)
    np.testing.assert_array_equal(fused, texts[1])
    assert calls


def test_weights_of_4_bits_are_read_by_the_kernel(request):
    exburn.set_random_seed(0)
    sizes = SIZES | {"width": 32, "mlp_width": 64}
    exact = Llama(**sizes, key_value_heads=2, tie_embeddings=True)
    for weight in exact.weights:
        weight.assign(weight.numpy() * 3 + np.float32(0.01))
    text = _written(exact.quantize("int4", block_size=16))
    calls = request.getfixturevalue("kernels")
    np.testing.assert_array_equal(_written(exact.quantize("int4", block_size=16)), text)
    # Key and value, and gate and up, are of one size: two matrices in a kernel each.
    assert sorted(calls) == [("int4", 1)] * 4 + [("int4", 2)] * 2
