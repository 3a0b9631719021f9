"""Documents in packed rows: attention within them, and epochs of ``fit``.

    python benchmarks/packing.py [--part attention,fit] [--json out.json]

``attention`` takes the pass forward and backward of a layer's heads (32 of 64 features,
8 of keys, bfloat16) over 16,384 tokens in rows of 2,048, 8,192 and 16,384, with
documents of about 400 tokens: ``whole`` sees the whole row (cuDNN, causal), ``mask``
keeps to documents by a mask (cuDNN's on a GPU), ``blocks`` by blocks of queries, and
``triton`` by the segments of JAX' Pallas kernel, on a GPU alone. ``fit`` trains a small
decoder on documents of 4 to 2,048 tokens: ``packed``, with a row for each filled up to
2,048 (``padded``), and in a few widths (``buckets``); it prints tokens of documents a
second. Lines are written as they come; both parts take about two minutes on an H200.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import exburn
from exburn.applications import Llama
from exburn.layers.attention.scaled_dot_product import attend
from exburn.layers.attention.segment_blocks import attend_by_blocks
from exburn.text import Document, PackedDocuments

TOKENS, HEADS, KEY_HEADS, SIZE, MEAN = 16_384, 32, 8, 64, 400
ON_GPU = jax.default_backend() == "gpu"
CALLS, ROUNDS = (10, 3) if ON_GPU else (1, 2)


def segments_of(rows: int, length: int) -> jax.Array:
    """Documents of about `MEAN` tokens."""
    rng = np.random.default_rng(0)
    ends = rng.random((rows, length)) < 1 / MEAN
    return jnp.asarray(1 + np.cumsum(ends, axis=1), jnp.int32)


# ------------------------------------------------------------------------- attention
def whole(query: Any, key: Any, value: Any, segments: Any) -> Any:
    return attend(query, key, value, causal=True, scale=SIZE**-0.5, cudnn=ON_GPU)


def mask(query: Any, key: Any, value: Any, segments: Any) -> Any:
    same = segments[:, None, :, None] == segments[:, None, None]
    options = {"causal": True, "scale": SIZE**-0.5, "cudnn": ON_GPU}
    return attend(query, key, value, mask=same, **options)


def blocks(query: Any, key: Any, value: Any, segments: Any) -> Any:
    return attend_by_blocks(query, key, value, segments, causal=True, scale=SIZE**-0.5)


def triton(query: Any, key: Any, value: Any, segments: Any) -> Any:
    from jax.experimental.pallas.ops.gpu.attention import mha

    repeats = query.shape[2] // key.shape[2]
    key, value = (jnp.repeat(v, repeats, axis=2) for v in (key, value))
    return mha(query, key, value, segments, sm_scale=SIZE**-0.5, causal=True)


def attention(lengths: list[int], tokens: int) -> Any:
    """Milliseconds and memory of each form, for each length of rows."""
    for length in lengths:
        rows = max(tokens // length, 1)
        keys = jax.random.split(jax.random.key(0), 3)
        heads = [
            jax.random.normal(k, (rows, length, n, SIZE), jnp.bfloat16)
            for k, n in zip(keys, (HEADS, KEY_HEADS, KEY_HEADS), strict=True)
        ]
        segments = segments_of(rows, length)
        for form in (whole, mask, blocks, *([triton] if ON_GPU else [])):
            name = {"length": length, "form": form.__name__}
            try:
                yield name | measure(form, heads, segments)
            except Exception as error:  # a form that a device does not have
                yield name | {"error": f"{type(error).__name__}: {error}"[:200]}


def measure(form: Callable, heads: list[Any], segments: Any) -> dict[str, float]:
    def loss(*heads: Any) -> Any:
        return form(*heads, segments).astype(jnp.float32).sum()

    compiled = jax.jit(jax.grad(loss, (0, 1, 2))).lower(*heads).compile()
    jax.block_until_ready(compiled(*heads))
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(CALLS):
            out = compiled(*heads)
        jax.block_until_ready(out)
        times.append((time.perf_counter() - start) / CALLS * 1e3)
    memory = compiled.memory_analysis()
    return {
        "ms": round(min(times), 3),
        "median": round(statistics.median(times), 3),
        "MiB": round(memory.temp_size_in_bytes / 2**20, 1) if memory else math.nan,
    }


# ------------------------------------------------------------------------- fit
def documents_of(count: int) -> list[Document]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(5.5, 0.8, count).astype(int), 4, 2048)
    return [Document(rng.integers(1, 4096, n)) for n in lengths]


def small_decoder() -> Any:
    exburn.utils.set_random_seed(1)
    sizes: dict[str, Any] = {
        "layers": 8,
        "width": 512,
        "heads": 8,
        "key_value_heads": 4,
    }
    if not ON_GPU:
        sizes |= {"layers": 2, "width": 128}
    policy = "mixed_bfloat16" if ON_GPU else "float32"
    model = Llama(4096, mlp_width=4 * sizes["width"], dtype=policy, **sizes)
    model.compile(exburn.optimizers.AdamW(1e-4))
    return model


def fit(count: int, tokens: int) -> Any:
    """Tokens of documents a second, for each form of rows."""
    documents = documents_of(count)
    total = sum(map(len, documents))
    rows, length = tokens // 2048, 2048

    def padded() -> tuple:
        x = np.zeros((count, length), np.int32)
        weights = np.zeros((count, length), np.float32)
        for row, one in enumerate(documents):
            x[row, : len(one)], weights[row, : len(one) - 1] = one.tokens, 1
        y = np.pad(x[:, 1:], ((0, 0), (0, 1)))
        return (x, y), {"sample_weight": weights, "batch_size": rows}

    def buckets() -> tuple:
        x = [one.tokens[:-1] for one in documents]
        y = [one.tokens[1:] for one in documents]
        return (x, y), {"batch_size": tokens // int(total / count)}

    def packed() -> tuple:
        return (PackedDocuments(documents, length),), {"batch_tokens": tokens}

    for form in (packed, buckets, padded):
        data, options = form()
        model, times = small_decoder(), []
        for _ in range(3):
            start = time.perf_counter()
            history = model.fit(*data, verbose=0, **options)
            times.append(time.perf_counter() - start)
        name = {"form": form.__name__, "loss": round(history.history["loss"][0], 4)}
        yield name | {
            "tokens/s": round(total / min(times)),
            "first fit": round(times[0], 2),
            "second": round(times[1], 2),
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", default="attention,fit")
    parser.add_argument("--json")
    arguments = parser.parse_args()
    device = jax.devices()[0].device_kind
    lines = []
    parts = {
        "attention": lambda: (
            attention([2048, 8192, 16_384], TOKENS)
            if ON_GPU
            else attention([512, 2048], 2048)
        ),
        "fit": lambda: fit(4000, 16_384) if ON_GPU else fit(12, 4096),
    }
    for part in arguments.part.split(","):
        for line in parts[part]():
            lines.append({"part": part, "device": device, **line})
            print(json.dumps(lines[-1]), flush=True)
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(lines, file, indent=1)


if __name__ == "__main__":
    main()
