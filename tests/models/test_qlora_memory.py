"""What a step of QLoRA keeps, by the shapes of a model of 8B; nothing is computed."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.applications import Llama
from exburn.quantizers import NF4QuantizationConfig

TOKENS, LAYERS, WIDTH, VOCABULARY = 2048, 32, 4096, 128_256
CONFIGS = {
    "int4": "int4",
    "nf4": NF4QuantizationConfig(double_quantization=True),
}


def size(arrays):
    return sum(math.prod(a.shape) * a.dtype.itemsize for a in arrays)


@functools.cache
def measure(layers, mode):
    """Frozen weights, trained ones, and what the pass forward keeps beside them."""
    with exburn.models.without_weights():
        model = Llama(
            VOCABULARY,
            layers=layers,
            width=WIDTH,
            heads=32,
            key_value_heads=8,
            mlp_width=14336,
            dtype="bfloat16",
        ).quantize(config=CONFIGS[mode])
        model.add_lora(rank=16, filter="block_*")
        model.remat("block_*")
    trained, frozen = (
        [jax.ShapeDtypeStruct(w.shape, w.dtype) for w in weights]
        for weights in (model.trainable_variables, model.non_trainable_variables)
    )

    def pull(trained, frozen, ids):
        def total(trained):
            scores, _ = model.stateless_call(trained, frozen, ids, training=True)
            return scores.astype(jnp.float32).mean()

        return jax.vjp(total, trained)[1]

    ids = jax.ShapeDtypeStruct((1, TOKENS), jnp.int32)
    kept = jax.tree.leaves(jax.eval_shape(pull, trained, frozen, ids))
    own = {(v.shape, v.dtype) for v in (*trained, *frozen)}
    return trained, frozen, [v for v in kept if (v.shape, v.dtype) not in own]


@pytest.mark.parametrize("mode", CONFIGS)
def test_no_weight_is_kept_as_floats(mode):
    _, frozen, kept = measure(1, mode)
    matrices = {
        v.size for v in frozen if v.dtype == np.uint8 and v.ndim == 3
    }  # bytes, of two entries each
    assert max(matrices) == VOCABULARY * WIDTH // 2
    floats = [v for v in kept if jnp.issubdtype(v.dtype, jnp.floating)]
    assert all(2 * matrix not in {v.size for v in floats} for matrix in matrices)
    assert all(TOKENS in v.shape or v.size <= WIDTH for v in floats)  # of tokens


@pytest.mark.parametrize("mode", CONFIGS)
def test_8b_trains_within_8_gib(mode):
    """With blocks computed again, and the loss by chunks of tokens."""
    trained, frozen, kept = (
        [size(part) for part in pair]
        for pair in zip(measure(1, mode), measure(2, mode), strict=True)
    )

    def whole(pair):
        return pair[0] + (LAYERS - 1) * (pair[1] - pair[0])

    weights, adapters = whole(frozen), whole(trained)
    assert 3.9e9 < weights < 4.4e9  # 8.03 billion of them
    assert 160e6 < adapters < 180e6  # float32
    inputs = LAYERS * TOKENS * WIDTH * 2
    block = kept[1] - kept[0]
    assert block < 300e6
    unpacked = 14336 * WIDTH * (2 + 4)  # the largest matrix, also in float32
    head = VOCABULARY * WIDTH * 2 + 1024 * VOCABULARY * 4  # read, and scores of a chunk
    states = 2 * adapters
    total = weights + 2 * adapters + states + inputs + block + unpacked + head
    assert total < 8 * 2**30
