"""Rules of ExBurn on a processor, cell by cell: what each saves, by switching it off.

    python benchmarks/rules_cpu.py [--work table-batch-norm,vae-784] [--cores 2]
    python benchmarks/rules_cpu.py --rules one-step-calls,one-thread --rounds 20

The cells are those of ``breadth.py``. Every variant of a cell is a process of its own,
which compiles once and then waits; they train in turns, two epochs a turn, of which the
second counts. A variant is a rule that is switched off, or a candidate, which is
switched on: one function replaced, one option of XLA, or an argument of ``compile``.
Printed are the least times a step, by the clock and of the processor, and their ratio
to those of the defaults. Below 1 the variant is faster: beyond 5 % it is marked. A
variant whose function a cell never calls is left out. ``--short`` trains with a last
batch of half the rows. ``--seconds`` ends it before a time limit; with ``--json`` cells
that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from breadth import ON_PROCESSORS
from breadth_models import CELLS, loss_of
from breadth_processor import PROCESSOR_CELLS
from process import environment_of, read, write

DEFAULTS = "defaults"
NOISE = 0.05
_YNNPACK = "xla_cpu_experimental_ynn_fusion_type"
_KIND = "LIBRARY_FUSION_TYPE_"


class Variant:
    """The arguments of ``compile`` and ``fit``, and what is replaced in ExBurn.

    Attributes:
        calls: How often what replaces a function was called while a model compiled;
            ``None`` for a variant that replaces none.
    """

    def __init__(self) -> None:
        self.compile: dict[str, Any] = {}
        self.fit: dict[str, Any] = {}
        self.calls: int | None = None

    def replace(self, owner: Any, name: str, make: Callable) -> None:
        """Puts ``make(original)`` in the place of a function."""
        new = make(getattr(owner, name))
        self.calls = 0

        def counted(*args: Any, **kwargs: Any) -> Any:
            assert self.calls is not None
            self.calls += 1
            return new(*args, **kwargs)

        setattr(owner, name, counted)

    def tell_xla(self, **options: Any) -> None:
        """Gives XLA further options for all of a model's programs."""
        from exburn.training.program_cache import ProgramCache

        own = ProgramCache.compiler_options

        def compiler_options(self: Any, training: bool = True) -> dict[str, Any]:
            return (own(self, training) or {}) | options

        ProgramCache.compiler_options = compiler_options  # type: ignore[method-assign]


# ------------------------------------------------------------------ rules, off
def one_step_calls(variant: Variant) -> None:
    variant.compile["steps_per_execution"] = 1


def streamed_data(variant: Variant) -> None:
    variant.fit["resident"] = False


def threefry_dropout(variant: Variant) -> None:
    import jax

    from exburn.module import calls

    def make(own: Callable) -> Callable:
        def keep_mask(key, rate, shape, draw=0, width=None):
            key = jax.random.fold_in(key, draw)
            return jax.random.bernoulli(key, 1 - rate, shape), 1 - rate

        return keep_mask

    variant.replace(calls, "keep_mask", make)


def two_pass_statistics(variant: Variant) -> None:
    from exburn.layers.normalization import batch

    def make(own: Callable) -> Callable:
        def normalize(x, rows, steps, gamma, beta, renorm, channel, *rest):
            if not (rows is steps is renorm is None):
                return own(x, rows, steps, gamma, beta, renorm, channel, *rest)
            axes = tuple(a for a in range(x.ndim) if a != channel)
            mean, variance = x.mean(axes), x.var(axes)
            y = batch._affine(x, mean, variance, gamma, beta, channel, rest[0])
            return y, mean, variance, None

        return normalize

    variant.replace(batch, "_normalize", make)


def scanned_recurrence(variant: Variant) -> None:
    from exburn.layers.recurrent import rnn

    variant.replace(
        rnn, "recur", lambda own: lambda *a, **k: own(*a, **(k | {"fused": False}))
    )


def separate_lookups(variant: Variant) -> None:
    from exburn.training.forward_cache import ForwardCache

    variant.replace(
        ForwardCache, "joins_lookups", lambda own: lambda self, parts: False
    )


def separate_blocks(variant: Variant) -> None:
    from exburn.training import forward, steps

    for module in (forward, steps):
        variant.replace(module, "pays", lambda own: lambda *args: False)


def plain_products(variant: Variant) -> None:
    import jax.numpy as jnp

    from exburn.layers.core import dense

    def wide_product(x, kernel, bias=None):
        y = jnp.matmul(x, kernel)
        return y if bias is None else y + bias

    variant.replace(dense, "wide_product", lambda own: wide_product)


def plain_softmax(variant: Variant) -> None:
    import jax

    from exburn.activations import vectors
    from exburn.runtime.kernels import attention_softmax

    for module in (vectors, attention_softmax):
        variant.replace(module, "shares", lambda own: jax.nn.softmax)


def plain_gelu(variant: Variant) -> None:
    import jax

    from exburn.activations import rectifiers

    variant.replace(
        rectifiers, "erf_gelu", lambda own: lambda x: jax.nn.gelu(x, approximate=False)
    )


def plain_layer_norm(variant: Variant) -> None:
    import jax

    from exburn.layers.normalization import layer

    def standardize(x, axes, epsilon):
        wide = x.astype("float32")
        mean = wide.mean(axes, keepdims=True)
        scale = jax.lax.rsqrt(wide.var(axes, keepdims=True) + epsilon)
        return (wide - mean) * scale

    variant.replace(layer, "standardize", lambda own: standardize)


def plain_convolutions(variant: Variant) -> None:
    from exburn import config

    config.disable_convolution_forms()


# ------------------------------------------------------------------ candidates, on
def eight_step_calls(variant: Variant) -> None:
    variant.compile["steps_per_execution"] = 8


def four_steps_a_turn(variant: Variant) -> None:
    variant.compile["unroll"] = 4


def one_thread(variant: Variant) -> None:
    variant.tell_xla(xla_cpu_multi_thread_eigen=False)


def without_ynnpack(variant: Variant) -> None:
    variant.tell_xla(**{_YNNPACK: ""})


def ynnpack_products(variant: Variant) -> None:
    variant.tell_xla(**{_YNNPACK: f"{_KIND}DOT,{_KIND}INDIVIDUAL_DOT"})


def wide_vectors(variant: Variant) -> None:
    variant.tell_xla(xla_cpu_prefer_vector_width=512)


def projected_before(variant: Variant) -> None:
    from exburn.layers.recurrent import rnn

    variant.replace(
        rnn, "recur", lambda own: lambda *a, **k: own(*a, **(k | {"hoist": True}))
    )


def four_times_a_turn(variant: Variant) -> None:
    from exburn.layers.recurrent import rnn

    variant.replace(
        rnn, "recur", lambda own: lambda *a, **k: own(*a, **(k | {"unroll": 4}))
    )


RULES: dict[str, Callable[[Variant], None]] = {
    "one-step-calls": one_step_calls,
    "streamed-data": streamed_data,
    "two-pass-statistics": two_pass_statistics,
    "threefry-dropout": threefry_dropout,
    "scanned-recurrence": scanned_recurrence,
    "separate-lookups": separate_lookups,
    "separate-blocks": separate_blocks,
    "plain-products": plain_products,
    "plain-softmax": plain_softmax,
    "plain-gelu": plain_gelu,
    "plain-layer-norm": plain_layer_norm,
    "plain-convolutions": plain_convolutions,
}
CANDIDATES: dict[str, Callable[[Variant], None]] = {
    "eight-step-calls": eight_step_calls,
    "four-steps-a-turn": four_steps_a_turn,
    "one-thread": one_thread,
    "without-ynnpack": without_ynnpack,
    "ynnpack-products": ynnpack_products,
    "wide-vectors": wide_vectors,
    "projected-before": projected_before,
    "four-times-a-turn": four_times_a_turn,
}
VARIANTS = RULES | CANDIDATES


# ------------------------------------------------------------------ a process
def child(work: str, name: str, steps: int, short: bool) -> None:
    """Compiles a variant of a cell, and trains it whenever a line comes in."""
    import exburn

    variant = Variant()
    if name != DEFAULTS:
        VARIANTS[name](variant)
    cell = (CELLS | PROCESSOR_CELLS)[work]
    rows = steps * cell.batch - (cell.batch // 2 if short else 0)
    x, y = cell.data(rows)
    model = cell.keras_like(exburn)
    model.compile("adam", **loss_of(cell, exburn), **variant.compile)

    class Clock(exburn.callbacks.Callback):
        light = True

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            self.begun = time.perf_counter(), time.process_time()

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            now = time.perf_counter(), time.process_time()
            self.spans = [b - a for a, b in zip(self.begun, now, strict=True)]

    def train(epochs: int) -> list[float]:
        clock = Clock()
        options = {"batch_size": cell.batch, "epochs": epochs, "verbose": 0}
        model.fit(x, y, **options, **variant.fit, callbacks=[clock])
        return [span / steps * 1e3 for span in clock.spans]

    train(1)
    print("READY", int(variant.calls != 0), flush=True)
    for _ in sys.stdin:
        print(json.dumps(train(2)), flush=True)


class Process:
    """A variant of a cell that waits for its turn."""

    def __init__(self, work: str, name: str, steps: int, short: bool):
        self.name, self.clock, self.processor = name, [], []
        command = [sys.executable, __file__, "--child", work, name]
        command += ["--steps", str(steps)] + ["--short"] * short
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment_of(JAX_PLATFORMS="cpu", EXBURN_COMPILATION_CACHE="off"),
        )
        answer = self._answer()
        self.is_used = answer == "READY 1\n"
        if not answer:
            print(f"{work} {name} failed", file=sys.stderr, flush=True)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()

    def train(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        clock, processor = json.loads(self._answer())
        self.clock.append(clock)
        self.processor.append(processor)

    def end(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def processes(work: str, names: list[str], args: Any) -> Iterator[list[Process]]:
    """The variants of a cell that differ from its defaults; ended after the block."""
    running: list[Process] = []
    try:
        for name in [DEFAULTS, *names]:
            process = Process(work, name, args.steps, args.short)
            running.append(process)
        yield [process for process in running if process.is_used]
    finally:
        for process in running:
            process.end()


def measured(work: str, names: list[str], args: Any) -> dict[str, dict]:
    """Milliseconds a step of each variant, and its ratios to the defaults."""
    with processes(work, names, args) as running:
        for _ in range(args.rounds):
            for process in running:
                process.train()
        least = {p.name: (min(p.clock), min(p.processor)) for p in running}
    base = least[DEFAULTS]
    return {
        name: {
            "clock_ms": times[0],
            "processor_ms": times[1],
            "clock_ratio": times[0] / base[0],
            "processor_ratio": times[1] / base[1],
        }
        for name, times in least.items()
    }


def show(work: str, results: dict[str, dict]) -> None:
    for name, r in results.items():
        kind = "off" if name in RULES else "on" if name in CANDIDATES else "  "
        line = f"{work:26} {name:20} {r['clock_ms']:8.3f} ms a step"
        line += f" {r['processor_ms']:8.3f} of the processor"
        if name != DEFAULTS:
            line += f"   {r['clock_ratio']:.2f} and {r['processor_ratio']:.2f}"
            if r["clock_ratio"] < 1 - NOISE:
                line += f"  <- faster with it {kind}"
        print(line, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", default=",".join(ON_PROCESSORS))
    parser.add_argument("--rules", default=",".join(VARIANTS))
    parser.add_argument("--cores", type=int)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=40, help="of an epoch")
    parser.add_argument("--short", action="store_true", help="a short last batch")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child", nargs=2)
    args = parser.parse_args()
    if args.child:
        work, name = args.child
        child(work, name, args.steps, args.short)
        return
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    begun, report = time.monotonic(), read(args.json)
    for work in args.work.split(","):
        if work in report or time.monotonic() - begun > args.seconds:
            continue
        report[work] = measured(work, args.rules.split(","), args)
        show(work, report[work])
        if args.json:
            write(args.json, report)


if __name__ == "__main__":
    main()
