"""A small vision transformer on one GPU: the parts of its step, switched one by one.

    python benchmarks/vit_variants.py [--work vit-64-float32] [--only as-is,no-barrier]
        [--seconds 240] [--shrink 1] [--json F] [--profile]

Each variant trains a model of `breadth_models.py` by one ``fit``, with one function of
ours exchanged or one option of XLA's set, and then the scan written by hand trains
again, so that both see the same card. Printed is one line of JSON a variant: the best
epoch of either, and the ratio, above 1 where ``fit`` is faster; nothing begins after
``--seconds``. ``as-is`` runs first and last: what it differs by is noise. ``--check``
first compares kernels with what they replace, which only a GPU can; ``--profile`` also
prints which kernels the epochs of ``as-is`` and of the scan spend their time in.
On a CPU, with ``--shrink 100``, it only shows that all variants run.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import gc
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast
from unittest import mock

sys.path.insert(0, str(Path(__file__).parent))
import short_attention
from breadth import scan_of
from breadth_models import CELLS, Cell
from breadth_processor import PROCESSOR_CELLS
from process import write
from variants import Kernels, Variant, exchange, together, train


# ------------------------------------------------------------------ functions of ours
def _by_jax(query, key, value, *, mask=None, causal=False, window=None, scale, cudnn):
    import jax

    assert window is None and not cudnn
    options = {"scale": scale, "is_causal": causal, "implementation": "xla"}
    return jax.nn.dot_product_attention(query, key, value, mask=mask, **options)


@contextlib.contextmanager
def _short_attention() -> Iterator[None]:
    """Attention by the kernels of `short_attention.py`."""
    import jax.numpy as jnp

    from exburn.layers.contract.projected_attention import ProjectedAttention
    from exburn.runtime.kernels.padded_matmul import wide_product

    plain = ProjectedAttention.call

    @functools.wraps(plain)
    def call(self: Any, query, value, *args, **options):
        heads, key_heads, size, value_size = self._heads
        parts = self.query, self.key, self.value
        alike = heads == key_heads and size == value_size and self.use_bias
        if query is value and alike and not self.dropout:
            rows = query.shape[-1]
            kernels = [self.cast(p.kernel).reshape(rows, -1) for p in parts]
            product = wide_product(query, jnp.concatenate(kernels, axis=1))
            if short_attention.fits(product, heads):
                bias = jnp.concatenate([self.cast(p.bias).ravel() for p in parts])
                attend = cast(Any, short_attention.attend)
                out = attend(product, bias, heads, size**-0.5)
                shape = *query.shape[:-1], heads, size
                return self.attention_output(out.reshape(shape))
        return plain(self, query, value, *args, **options)

    with mock.patch.object(ProjectedAttention, "call", call):
        yield


def _patches(form: Callable) -> Callable:
    """Convolutions of windows that neither overlap nor leave gaps, as one product."""

    def product(x, kernel, strides, pads, dilation):
        del pads, dilation
        batch, high, wide, channels = x.shape
        a, b = strides
        x = x.reshape(batch, high // a, a, wide // b, b, channels)
        x = x.swapaxes(2, 3).reshape(-1, a * b * channels)
        y = x @ kernel.reshape(a * b * channels, -1)
        return y.reshape(batch, high // a, wide // b, -1)

    @functools.wraps(form)
    def choose(shape, dtype, window, groups, strides, spread, dilation, *more):
        plain = groups == 1 and len(window) == 2 and max(*spread, *dilation) == 1
        whole = all(n % k == 0 for n, k in zip(shape[1:-1], window, strict=True))
        if plain and whole and tuple(window) == tuple(strides) != (1, 1):
            return product
        return form(shape, dtype, window, groups, strides, spread, dilation, *more)

    return choose


@contextlib.contextmanager
def _patch_products() -> Iterator[None]:
    from exburn.runtime.kernels.conv import dispatch

    with mock.patch.object(dispatch, "gpu_form", _patches(dispatch.gpu_form)):
        yield


def _shares_of_threads(features: int) -> int | None:
    """As ``one_pass_norm._lanes``, from 64 features on instead of 128."""
    for lanes in (8, 16, 32, 64, 128, 256):
        parts, rest = divmod(features, lanes * 8)
        if parts <= 3:
            return lanes if parts and not rest else None
    return None


_NO_BARRIER = exchange(
    ("runtime.kernels.qkv_projection", "memory_bound", lambda x: False)
)
_SEPARATE = exchange(
    ("layers.contract.projected_attention", "divides_features", lambda: True)
)
_XLA_SOFTMAX = exchange(
    ("layers.attention.scaled_dot_product", "softmax_form", lambda: "whole")
)
_JAX_ATTENTION = exchange(("layers.contract.projected_attention", "attend", _by_jax))
_NORM_KERNEL = exchange(("runtime.kernels.one_pass_norm", "_lanes", _shares_of_threads))


def variants() -> dict[str, Variant]:
    """All of them, those that are likely to matter first."""
    import jax
    import optax

    def jax_gelu(x):
        return jax.nn.gelu(x, approximate=False)

    best = _short_attention, _patch_products
    return {
        "as-is": Variant(),
        "no-barrier": Variant(_NO_BARRIER),
        "short-attention": Variant(_short_attention),
        "patch-products": Variant(_patch_products),
        "short-attention+patch-products": Variant(together(*best)),
        "short-attention+patch-products+norm-kernel": Variant(
            together(*best, _NORM_KERNEL)
        ),
        "no-options": Variant(options={}),
        "jax-attention": Variant(together(_NO_BARRIER, _JAX_ATTENTION)),
        "xla-softmax": Variant(_XLA_SOFTMAX),
        "norm-kernel": Variant(_NORM_KERNEL),
        "pdl": Variant(more={"xla_gpu_enable_pdl_launch": True}),
        "concurrent-graphs": Variant(
            more={"xla_gpu_graph_enable_concurrent_region": True}
        ),
        "fusion-tuner": Variant(
            more={"xla_gpu_experimental_enable_fusion_autotuner": True}
        ),
        "flat-adam": Variant(
            compiles={"optimizer": lambda: optax.flatten(optax.adam(1e-3))}
        ),
        "separate-projections": Variant(_SEPARATE),
        "no-triton-products": Variant(more={"xla_gpu_enable_triton_gemm": False}),
        "jax-gelu": Variant(
            exchange(("runtime.kernels.biased_gelu", "erf_gelu", jax_gelu))
        ),
        "unroll-2": Variant(compiles={"unroll": 2}),
        "float32-products": Variant(precision="float32"),
        "unroll-4": Variant(compiles={"unroll": 4}),
    }


class Scan:
    """The program written by hand, compiled once for each precision."""

    def __init__(self, cell: Cell, x, y, epochs: int):
        self._data, self._epochs, self._runs = (cell, x, y), epochs, {}

    def measure(self, precision: str | None) -> float:
        """Seconds of its best epoch."""
        import jax

        spans = []
        with jax.default_matmul_precision(precision):
            if precision not in self._runs:
                self._runs[precision] = scan_of(*self._data)
                self._runs[precision](0)
            for e in range(self._epochs):
                start = time.perf_counter()
                self._runs[precision](e)
                spans.append(time.perf_counter() - start)
        return min(spans)

    def run(self) -> None:
        self._runs[None](0)


def check() -> dict[str, Any]:
    """How far the kernels are from the plain forms, relative to these, at most."""
    import jax
    import jax.numpy as jnp

    from exburn.runtime.kernels import one_pass_norm

    attend = cast(Any, short_attention.attend)
    normalize = cast(Any, one_pass_norm.normalize)

    def difference(one, other, *arrays):
        def both(function, *arrays):
            value, pull = jax.vjp(function, *arrays)
            return value, *pull(jnp.cos(value))

        results = (
            jax.jit(functools.partial(both, function))(*arrays)
            for function in (one, other)
        )
        pairs = zip(*results, strict=True)
        return max(float(jnp.abs(a - b).max() / jnp.abs(b).max()) for a, b in pairs)

    def random(number, *shape):
        return jax.random.normal(jax.random.key(number), shape)

    def plain_norm(*arrays):
        return one_pass_norm._plain_values(*arrays, 1e-6)[0]

    said: dict[str, Any] = {}
    with jax.default_matmul_precision("float32"), _NORM_KERNEL():
        for tokens in (16, 64, 128):
            arrays = random(0, 32, tokens, 576), random(1, 576)
            said[f"short-attention-{tokens}"] = difference(
                lambda x, bias: attend(x, bias, 3, 0.125),
                lambda x, bias: short_attention.plain_attend(x, bias, 3, 0.125),
                *arrays,
            )
        arrays = random(2, 8192, 192), random(3, 192), random(4, 192)
        said["norm-192"] = difference(
            lambda x, g, b: normalize(x, g, b, 1e-6), plain_norm, *arrays
        )
    return {"check": said}


def profile(cell: Cell, x, y, scan: Scan, steps: int) -> None:
    ours, theirs = Kernels(), Kernels()
    train(cell, Variant(), x, y, 2, (ours.trace,))
    with theirs.trace():
        scan.run()
    for who, kernels in (("as-is", ours), ("scan", theirs)):
        said = {"kernels_of": who} | kernels.summary(steps, 40)
        print(json.dumps(said), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", default="vit-64-float32")
    parser.add_argument("--only", help="names of variants; all of them by default")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1, help="of the samples")
    parser.add_argument("--seconds", type=float, default=240)
    parser.add_argument("--json", type=Path)
    for name in ("check", "profile"):
        parser.add_argument(f"--{name}", action="store_true")
    args = parser.parse_args()
    begun, results = time.monotonic(), {}
    cell: Cell = (CELLS | PROCESSOR_CELLS)[args.work]
    samples = max(cell.samples // args.shrink, cell.batch * 2)
    x, y = cell.data(samples)
    scan, steps = Scan(cell, x, y, args.epochs), samples // cell.batch
    every = variants()
    if args.check:
        print(json.dumps(check()), flush=True)
    names = args.only.split(",") if args.only else [*every, "as-is"]
    for number, name in enumerate(names):
        if time.monotonic() - begun > args.seconds:
            print(json.dumps({"left_out": names[number:]}), flush=True)
            break
        variant = every[name]
        result: dict[str, Any] = {"work": args.work, "variant": name}
        import jax

        try:
            with jax.default_matmul_precision(variant.precision):
                result |= train(cell, variant, x, y, args.epochs + 1)
            if "epoch" in result:
                result["scan"] = scan.measure(variant.precision)
                result["ratio"] = round(result["scan"] / result["epoch"], 4)
                result["step_ms"] = round(1e3 * result["epoch"] / steps, 4)
        except Exception as error:
            result["failed"] = repr(error)[:500]
        result["at"] = round(time.monotonic() - begun, 1)
        print(json.dumps(result), flush=True)
        results[f"{name}@{number}"] = result
        if args.json:
            write(args.json, results)
        gc.collect()
        if args.profile and number == 0:
            profile(cell, x, y, scan, steps)


if __name__ == "__main__":
    main()
