"""Products with frozen weights of 4 bits, and their gradients by the inputs.

    python benchmarks/qlora_products.py [--variants bf16,xla,nf4,int4,triton,mgpu]
        [--tokens 1,2048,16384] [--shapes 1b,8b] [--json out.json]

The weights are those of a block of decoders of 1B and 8B parameters: attention's output
(square), and the wide matrix of the gated network. ``bf16`` multiplies by a matrix of
bfloat16, ``xla`` reads blocks of int4 and multiplies (what `multiply` of a quantized
weight does), ``nf4`` the same from codes, ``int4`` multiplies by an array of JAX' int4
and scales it by blocks, ``triton`` unpacks within a kernel. ``mgpu`` is
JAX' own kernel for Hopper, of int8 with a scale for each output, forward alone. Each
prints milliseconds of
the pass forward and of the x-gradient, and the peak of memory that the program needs
beside its arguments. Lines are written as they come; about two minutes on an H200.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.experimental import pallas as pl

from exburn.compression.quantization.scheme import Scheme
from exburn.compression.quantization.weight import _product_of

BLOCK, CALLS, ROUNDS = 64, 10, 3
SHAPES = {
    "1b": [(2048, 8192)],
    "8b": [(4096, 4096), (4096, 14336)],
}


def scheme_of(dtype: str, columns: int, rows: int) -> Scheme:
    scales = "float32" if dtype == "nf4" else "bfloat16"
    return Scheme(dtype, (columns, rows), (0,), BLOCK, exact="bfloat16", scales=scales)


def stored(dtype: str, columns: int, rows: int) -> tuple[Callable, tuple]:
    """The product of ExBurn, and random parts of a weight."""
    scheme = scheme_of(dtype, columns, rows)
    key = jax.random.key(1)
    values = jax.random.bits(key, scheme.values_spec[0], jnp.uint8)
    shape, kind = scheme.scale_spec
    return _product_of(scheme, False), (values, jnp.full(shape, 0.01, kind))


# ------------------------------------------------------------------------- variants
def bf16(columns: int, rows: int) -> tuple[Callable, tuple]:
    matrix = jax.random.normal(jax.random.key(1), (rows, columns), jnp.bfloat16)
    return (lambda x, w: _dot(x, w, 1)), (matrix,)


def xla(columns: int, rows: int) -> tuple[Callable, tuple]:
    return stored("int4", columns, rows)


def nf4(columns: int, rows: int) -> tuple[Callable, tuple]:
    return stored("nf4", columns, rows)


def int4(columns: int, rows: int) -> tuple[Callable, tuple]:
    """Blocks of JAX' own int4, which XLA stores as it likes."""
    shape = rows, columns // BLOCK, BLOCK
    values = jax.random.randint(jax.random.key(1), shape, -8, 8, jnp.int8)
    scale = jnp.full(shape[:2], 0.01, jnp.bfloat16)

    @jax.checkpoint
    def product(x: Any, values: Any, scale: Any) -> Any:
        matrix = values.astype(x.dtype) * scale[..., None].astype(x.dtype)
        return _dot(x, matrix.reshape(rows, columns), 1)

    return product, (values.astype(jnp.int4), scale)


def triton(columns: int, rows: int) -> tuple[Callable, tuple]:
    """A kernel of Triton for each way; the scale is a factor of the unpacked tile."""
    _, (values, scale) = stored("int4", columns, rows)

    @jax.custom_vjp
    def product(x: Any, values: Any, scale: Any) -> Any:
        return _forward(x, values, scale)

    def backward(parts: tuple, slope: Any) -> tuple:
        return _backward(slope, *parts), None, None

    product.defvjp(lambda x, *parts: (_forward(x, *parts), parts), backward)
    return product, (values, scale)


def mgpu(columns: int, rows: int) -> tuple[Callable, tuple]:
    """JAX' kernel, which has no blocks: int8 with a scale for each output."""
    from jax.experimental.pallas.ops.gpu import hopper_mixed_type_matmul_mgpu as hopper

    config = hopper.TuningConfig(
        tile_m=128,
        tile_n=128,
        tile_k=64,
        max_concurrent_steps=4,
        grid_tile_width=8,
        wg_dimension=hopper.MatmulDimension.M,
    )

    @jax.custom_vjp
    def product(x: Any, values: Any, scale: Any) -> Any:
        y = hopper.mixed_matmul_kernel(values, x.T, out_dtype=x.dtype, config=config)
        return y.T * scale

    def backward(parts: tuple, slope: Any) -> tuple:
        values, scale = parts
        return _dot(slope * scale, values.astype(slope.dtype), 0), None, None

    product.defvjp(lambda x, *parts: (product(x, *parts), parts), backward)
    values = jax.random.randint(jax.random.key(1), (rows, columns), -127, 128, jnp.int8)
    return product, (values, jnp.full((rows,), 0.01, jnp.bfloat16))


VARIANTS = {f.__name__: f for f in (bf16, xla, nf4, int4, triton, mgpu)}


def _dot(x: Any, matrix: Any, axis: int) -> Any:
    return lax.dot_general(x, matrix, (((1,), (axis,)), ((), ())))


def _unpack(packed: Any, scale: Any) -> tuple[Any, Any]:
    """Both halves of one block of each row, scaled: ``[rows, block / 2]``."""
    signed = packed.astype(jnp.int32)
    low, high = ((signed & 15) ^ 8) - 8, ((signed >> 4) ^ 8) - 8
    wide = scale.astype(jnp.float32)[:, None]
    return tuple(
        (v.astype(jnp.float32) * wide).astype(jnp.bfloat16) for v in (low, high)
    )


def _options(warps: int) -> dict[str, Any]:
    if jax.default_backend() != "gpu":
        return {"interpret": True}
    from jax.experimental.pallas import triton as backend

    return {"compiler_params": backend.CompilerParams(num_warps=warps, num_stages=3)}


def _tile(size: int, most: int) -> int:
    return next(n for n in (most, 128, 64, 32, 16) if n <= most and size % n == 0)


def _forward(x: Any, values: Any, scale: Any) -> Any:
    """``[tokens, columns]`` times the stored matrix: ``[tokens, rows]``."""
    tokens, (rows, blocks, half) = x.shape[0], values.shape
    x = jnp.pad(x, ((0, -tokens % 16), (0, 0))).reshape(-1, blocks, 2, half)
    m, n = _tile(x.shape[0], 128), _tile(rows, 128)

    def kernel(x_ref: Any, values_ref: Any, scale_ref: Any, y_ref: Any) -> None:
        def step(block: Any, total: Any) -> Any:
            low, high = _unpack(values_ref[:, block], scale_ref[:, block])
            total += _tile_dot(x_ref[:, block, 0], low.T)
            return total + _tile_dot(x_ref[:, block, 1], high.T)

        total = lax.fori_loop(0, blocks, step, jnp.zeros((m, n), jnp.float32))
        y_ref[...] = total.astype(y_ref.dtype)

    y = pl.pallas_call(
        kernel,
        grid=(rows // n, x.shape[0] // m),
        in_specs=[
            pl.BlockSpec((m, blocks, 2, half), lambda j, i: (i, 0, 0, 0)),
            pl.BlockSpec((n, blocks, half), lambda j, i: (j, 0, 0)),
            pl.BlockSpec((n, blocks), lambda j, i: (j, 0)),
        ],
        out_specs=pl.BlockSpec((m, n), lambda j, i: (i, j)),
        out_shape=jax.ShapeDtypeStruct((x.shape[0], rows), x.dtype),
        **_options(8),
    )(x, values, scale)
    return y[:tokens]


def _backward(slope: Any, values: Any, scale: Any) -> Any:
    """``[tokens, rows]`` times the stored matrix: ``[tokens, columns]``."""
    tokens, (rows, blocks, half) = slope.shape[0], values.shape
    slope = jnp.pad(slope, ((0, -tokens % 16), (0, 0)))
    m, n = _tile(slope.shape[0], 128), _tile(rows, 64)

    def kernel(slope_ref: Any, values_ref: Any, scale_ref: Any, x_ref: Any) -> None:
        def step(i: Any, totals: tuple) -> tuple:
            part = pl.ds(i * n, n)
            tiles = _unpack(values_ref[part, 0], scale_ref[part, 0])
            piece = slope_ref[:, part]
            return tuple(
                total + _tile_dot(piece, tile)
                for total, tile in zip(totals, tiles, strict=True)
            )

        zeros = jnp.zeros((m, half), jnp.float32)
        low, high = lax.fori_loop(0, rows // n, step, (zeros, zeros))
        x_ref[:, 0, 0] = low.astype(x_ref.dtype)
        x_ref[:, 0, 1] = high.astype(x_ref.dtype)

    x = pl.pallas_call(
        kernel,
        grid=(blocks, slope.shape[0] // m),
        in_specs=[
            pl.BlockSpec((m, rows), lambda b, i: (i, 0)),
            pl.BlockSpec((rows, 1, half), lambda b, i: (0, b, 0)),
            pl.BlockSpec((rows, 1), lambda b, i: (0, b)),
        ],
        out_specs=pl.BlockSpec((m, 1, 2, half), lambda b, i: (i, b, 0, 0)),
        out_shape=jax.ShapeDtypeStruct((slope.shape[0], blocks, 2, half), slope.dtype),
        **_options(4),
    )(slope, values, scale)
    return x.reshape(-1, blocks * 2 * half)[:tokens]


def _tile_dot(x: Any, y: Any) -> Any:
    return jnp.dot(x, y, preferred_element_type=jnp.float32)


# ------------------------------------------------------------------------- measuring
def measure(product: Callable, x: jax.Array, parts: tuple) -> dict[str, float]:
    """Milliseconds and megabytes of both passes."""
    slope = jnp.ones(jax.eval_shape(product, x, *parts).shape, x.dtype)

    def gradient(x: Any, slope: Any, parts: tuple) -> Any:
        return jax.vjp(lambda x: product(x, *parts), x)[1](slope)[0]

    figures = {}
    for name, function, args in (
        ("forward", lambda x, slope, parts: product(x, *parts), (x, slope, parts)),
        ("gradient", gradient, (x, slope, parts)),
    ):
        program = jax.jit(function).lower(*args).compile()
        memory: Any = program.memory_analysis()
        jax.block_until_ready(program(*args))
        times = []
        for _ in range(ROUNDS):
            start = time.perf_counter()
            jax.block_until_ready([program(*args) for _ in range(CALLS)])
            times.append((time.perf_counter() - start) / CALLS * 1e3)
        figures[f"{name} ms"] = round(min(times), 4)
        figures[f"{name} median ms"] = round(statistics.median(times), 4)
        figures[f"{name} MB"] = round(memory.temp_size_in_bytes / 1e6, 1)
    return figures


def check(product: Callable, parts: tuple, columns: int, rows: int) -> float:
    """The greatest difference of `triton` from `xla`, as a share of the values."""
    x = jax.random.normal(jax.random.key(0), (32, columns), jnp.bfloat16)
    slope = jax.random.normal(jax.random.key(2), (32, rows), jnp.bfloat16)
    plain, errors = xla(columns, rows)[0], []
    for run in (product, plain):
        y, pull = jax.vjp(lambda x, run=run: run(x, *parts), x)
        errors.append([np.asarray(v, np.float32) for v in (y, pull(slope)[0])])
    pairs = zip(*errors, strict=True)
    return float(max(np.abs(a - b).max() / np.abs(b).max() for a, b in pairs))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--variants", default=",".join(VARIANTS))
    parser.add_argument("--tokens", default="1,2048,16384")
    parser.add_argument("--shapes", default="1b,8b")
    parser.add_argument("--json")
    options = parser.parse_args()
    lines = []
    print(jax.devices()[0].device_kind, "jax", jax.__version__, flush=True)
    for size in options.shapes.split(","):
        for columns, rows in SHAPES.get(size) or [tuple(map(int, size.split("x")))]:
            for name in options.variants.split(","):
                for tokens in map(int, options.tokens.split(",")):
                    line: dict[str, Any] = {
                        "variant": name,
                        "shape": [columns, rows],
                        "tokens": tokens,
                    }
                    try:  # a variant that a device cannot compile is told, and left out
                        product, parts = VARIANTS[name](columns, rows)
                        x = jnp.ones((tokens, columns), jnp.bfloat16)
                        if name == "triton":
                            line["error"] = check(product, parts, columns, rows)
                        line |= measure(product, x, parts)
                    except Exception as failure:
                        line["failure"] = f"{type(failure).__name__}: {failure}"[:300]
                    print(json.dumps(line), flush=True)
                    lines.append(line)
                    if options.json:
                        with open(options.json, "w") as file:
                            json.dump(lines, file, indent=1)


if __name__ == "__main__":
    main()
