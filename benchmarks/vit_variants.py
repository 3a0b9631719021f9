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
import functools
import gc
import json
import sys
import time
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parent))
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


_KERNELS = "runtime.kernels"
_NO_SHORT = exchange((f"{_KERNELS}.short_attention", "fits", lambda *_: False))
_MORE_SHORT = exchange(
    (f"{_KERNELS}.short_attention", "_TOKENS", (16, 32, 64, 128)),
    (f"{_KERNELS}.short_attention", "_SIZES", (16, 32, 64, 128)),
)
_NO_PATCHES = exchange((f"{_KERNELS}.conv.gpu", "_FEW_CHANNELS", 0))
_NO_NORM = exchange((f"{_KERNELS}.one_pass_norm", "_FEW_LANES", 0))
_BARRIER = exchange((f"{_KERNELS}.qkv_projection", "_WIDE", 1 << 22))
_NO_BARRIER = exchange((f"{_KERNELS}.qkv_projection", "memory_bound", lambda x: False))
_SEPARATE = exchange(
    ("layers.contract.joint_projection", "divides_features", lambda: True)
)
_XLA_SOFTMAX = exchange(
    ("layers.attention.scaled_dot_product", "softmax_form", lambda: "whole")
)
_JAX_ATTENTION = exchange(("layers.contract.projected_attention", "attend", _by_jax))


def variants() -> dict[str, Variant]:
    """All of them, those that are likely to matter first."""
    import jax
    import optax

    def jax_gelu(x):
        return jax.nn.gelu(x, approximate=False)

    rules = _NO_SHORT, _NO_PATCHES, _NO_NORM, _BARRIER
    return {
        "as-is": Variant(),
        "before": Variant(together(*rules)),
        "more-short": Variant(_MORE_SHORT),
        "no-short": Variant(_NO_SHORT),
        "no-norm": Variant(_NO_NORM),
        "no-patches": Variant(_NO_PATCHES),
        "barrier": Variant(together(_NO_SHORT, _BARRIER)),
        "no-barrier": Variant(together(_NO_SHORT, _NO_BARRIER)),
        "no-options": Variant(options={}),
        "jax-attention": Variant(together(_NO_SHORT, _JAX_ATTENTION)),
        "xla-softmax": Variant(together(_NO_SHORT, _XLA_SOFTMAX)),
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
        "separate-projections": Variant(together(_NO_SHORT, _SEPARATE)),
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

    from exburn.runtime.kernels import one_pass_norm, short_attention

    attend = cast(Any, short_attention.attend)
    plain_attend = short_attention.plain_attend
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
        return one_pass_norm._plain_values(*arrays, epsilon=1e-6)[0]

    said: dict[str, Any] = {}
    with jax.default_matmul_precision("float32"):
        for tokens in (16, 64, 128):
            arrays = random(0, 32, tokens, 576), random(1, 576)
            said[f"short-attention-{tokens}"] = difference(
                lambda x, bias: attend(x, bias, 3, 0.125),
                lambda x, bias: plain_attend(x, bias, 3, 0.125),
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
