"""Products of one row with a matrix: kernels of Triton by tiling, beside XLA's.

    python benchmarks/vector_product.py [--seconds 90] [--forms columns,rows,int4]

Products follow on each other, each with a matrix of its own, more of them than a GPU's
cache holds. Told are microseconds a product, and the share of the memory's bandwidth.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from exburn.runtime.kernels import vector_product
from exburn.runtime.kernels.vector_product import PLAIN, Around, Tiling, call

SHAPES = [(2048, 3072), (2048, 8192), (8192, 2048), (2048, 2048)]
SHAPES += [(768, 2304), (3072, 768)]
TABLES = [(2048, 128256), (768, 50257)]
COLUMNS = [(16, 2048, 16), (16, 1024, 16), (16, 1024, 8), (8, 1024, 8), (32, 512, 8)]
ROWS = [(4, 2048, 4), (8, 2048, 8), (16, 2048, 8), (4, 1024, 2)]
INT4 = [(8, 2048, 4), (16, 2048, 4), (4, 2048, 2), (8, 2048, 8)]
TILINGS = {"columns": COLUMNS, "rows": ROWS, "int4": INT4}
BANDWIDTH = {"H100": 3.35e12, "H200": 4.8e12, "A100": 2.04e12}


#: The sum with another vector behind the product.
SUM = Around(PLAIN.totals, PLAIN.before, lambda y, others: [y[0] + others[0]])


def matrix(form: str, terms: int, outputs: int, seed: int) -> list[jax.Array]:
    key, half = jax.random.key(seed), jnp.bfloat16
    if form in ("columns", "rows"):
        shape = (terms, outputs) if form == "columns" else (outputs, terms)
        return [jax.random.normal(key, shape, half) * 0.02]
    shape = outputs, terms // 64, 32
    values = jax.random.randint(key, shape, 0, 256, jnp.uint8)
    return [values, jnp.full(shape[:2], 1e-3, half)]


def normalized(terms: int) -> Around:
    """RMS norm in front, the sum with another vector behind."""

    def totals(vectors: Any, filled: Any) -> list:
        x = vectors[0].astype(jnp.float32)
        return [jax.lax.rsqrt(jnp.sum(x * x) / terms + 1e-5)]

    def before(vectors: Any, totals: Any) -> Any:
        x, gamma = vectors
        x = x.astype(jnp.float32) * totals[0] * gamma.astype(jnp.float32)
        return x.astype(jnp.bfloat16)

    return Around(totals, before, lambda y, others: [y[0] + others[0]])


def by_xla(form: str, x: Any, last: Any, parts: list) -> Any:
    """Eight rows, as ``wide_product`` has them, or a sum of few bits."""
    if form in ("columns", "rows"):
        rows = jnp.pad(x[None], [(0, 7), (0, 0)])
        kernel = parts[0] if form == "columns" else parts[0].T
        return (jnp.matmul(rows, kernel)[0] + last).astype(jnp.bfloat16)
    from exburn.compression.quantization.scheme import Scheme
    from exburn.compression.quantization.weight import _vector_product

    shape = x.shape[0], last.shape[0]
    scheme = Scheme(form, shape, (0,), block_size=64, exact="bfloat16")
    return _vector_product(scheme, x[None], *parts)[0] + last


def seconds_of(function: Any, *arguments: Any) -> float:
    run = jax.jit(function)
    jax.block_until_ready(run(*arguments))
    best = np.inf
    for _ in range(4):
        start = time.perf_counter()
        for _ in range(5):
            out = run(*arguments)
        jax.block_until_ready(out)
        best = min(best, (time.perf_counter() - start) / 5)
    return best


class Case:
    """Products with matrices of one form and size."""

    def __init__(self, form: str, terms: int, outputs: int, small: bool):
        self.form, self.small = form, small
        self.name = f"{form:8} {terms:5} × {outputs:6}"
        self.size = sum(part.nbytes for part in matrix(form, terms, outputs, 0))
        count = 1 if small else int(min(max(4, 400e6 // self.size), 48))
        self.matrices = [matrix(form, terms, outputs, n) for n in range(count)]
        self.x = jax.random.normal(jax.random.key(99), (terms,), jnp.bfloat16)
        self.last = jnp.zeros(outputs, jnp.bfloat16)

    def tell(self, name: str, step: Any) -> None:
        """Measures products that follow on each other."""

        def chain(x: Any, last: Any, matrices: Any) -> Any:
            for parts in matrices:
                last = step(x, last, parts)
            return last

        try:
            seconds = seconds_of(chain, self.x, self.last, self.matrices)
        except Exception as error:  # of a tiling that does not compile
            print(f" | {name} {str(error)[:60]}", end="", flush=True)
            return
        print(f" | {name} {1e6 * seconds / len(self.matrices):.2f}", end="", flush=True)

    def by_xla(self, x: Any, last: Any, parts: list) -> Any:
        return by_xla(self.form, x, last, parts)

    def by_kernel(self, tiling: Tiling, around: Around) -> Any:
        def step(x: Any, last: Any, parts: list) -> Any:
            vectors = [x] if around is SUM else [x, jnp.ones_like(x)]
            types = [jnp.bfloat16]
            more = {"around": around, "tiling": tiling}
            return call(self.form, [parts], vectors, [last], types, **more)[0]

        return step


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=90)
    parser.add_argument("--forms", default="columns,rows,int4")
    args = parser.parse_args()
    device, begun = jax.devices()[0].device_kind, time.perf_counter()
    rate = next((r for name, r in BANDWIDTH.items() if name in device), 1e11)
    small = jax.default_backend() != "gpu"
    if small:
        vector_product.options = lambda *_, **__: {"interpret": True}
    for form in args.forms.split(","):
        for terms, outputs in TABLES if form == "rows" else SHAPES:
            if time.perf_counter() - begun > args.seconds:
                return
            case = Case(form, terms, outputs, small)
            bound = 1e6 * case.size / rate
            print(f"{case.name} µs, bound {bound:.2f}", end="")
            case.tell("xla", case.by_xla)
            whole = 1 << (terms - 1).bit_length()
            tilings = [(n, min(t, whole), w) for n, t, w in TILINGS[form]]
            for tiling in dict.fromkeys(tilings[: 1 if small else None]):
                around = normalized(terms) if terms < 3072 else SUM
                step = case.by_kernel(Tiling(*tiling), around)
                case.tell("×".join(map(str, tiling)), step)
            print(flush=True)


if __name__ == "__main__":
    main()
