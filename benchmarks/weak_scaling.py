"""Small steps on two GPUs: what the second one costs, and what makes it cost less.

    python benchmarks/weak_scaling.py [--work diffusion-32,unet-64] [--only as-is]
        [--seconds 300] [--steps 100] [--shrink 1] [--json F] [--profile]

Each model trains on one GPU with its batch, and on two with twice the batch and twice
the rows, by one ``fit`` for each variant of the second: options of XLA's, of NCCL's as
far as XLA passes them on, or arguments of ``compile``. ``by-hand`` is the same by a
scan, whose gradients ``jax.lax.pmean`` averages. Printed is one line of JSON each:
the best epoch, a step's time, and the efficiency, the step's time on one over that on
two. An option that this XLA lacks is named, and left out. One GPU is measured again at
the end: what it differs by is noise. The models share ``--seconds`` evenly.
``--profile`` adds, for one and two, how long of a step kernels run, how long
collectives, how long these run alone, and how many kernels there are.

On two devices of a CPU it only shows that all of it runs:
``XLA_FLAGS=--xla_force_host_platform_device_count=2 python benchmarks/weak_scaling.py
--shrink 8 --steps 2``.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from breadth import scan_of
from breadth_models import CELLS, Cell
from breadth_processor import PROCESSOR_CELLS
from process import write
from variants import Kernels, Variant, train

WORKS = ("diffusion-32", "unet-64", "seq2seq-gru-128", "bert-6x384-128")
_BY_HAND = "by-hand"
_REDUCE = "xla_gpu_all_reduce_combine_threshold_bytes"
_GRAPHS = "xla_gpu_enable_command_buffer"
_COMMANDS = "FUSION,CUBLAS,CUBLASLT,CUDNN,CUSTOM_CALL,COLLECTIVES,DYNAMIC_SLICE_FUSION"
_SIZES = {
    "512-KiB": 1 << 19,
    "1-MiB": 1 << 20,
    "2-MiB": 2 << 20,
    "4-MiB": 4 << 20,
    "8-MiB": 8 << 20,
    "30-MiB": 30 << 20,
    "256-MiB": 256 << 20,
}
_JOINED = {"xla_disable_hlo_passes": "none"}  # sums of one array, as XLA does it
_SEPARATE = {"xla_disable_hlo_passes": "all-reduce-contiguous"}
_SYMMETRIC = "xla_gpu_experimental_enable_nccl_symmetric_buffers"
_ONE_SHOT = "xla_gpu_unsupported_use_all_reduce_one_shot_kernel"
_OVERLAP = "xla_gpu_experimental_parallel_collective_overlap_limit"


def variants() -> dict[str, Variant]:
    """Variants of two GPUs, the likeliest first."""

    def told(**more: Any) -> Variant:
        return Variant(more={f"xla_gpu_{name}": value for name, value in more.items()})

    return {
        "as-is": Variant(),
        "no-scheduler": told(
            enable_latency_hiding_scheduler=False,
            enable_analytical_sol_latency_estimator=False,
        ),
        "graphs-with-sums": Variant(more={_GRAPHS: _COMMANDS}),
        "unroll-4": Variant(compiles={"unroll": 4}),
        **{
            f"sums-of-{name}": Variant(more=_JOINED | {_REDUCE: size})
            for name, size in _SIZES.items()
        },
        # Joined sums of arrays where these are, without one copy to join and one to
        # part them.
        **{
            f"sums-in-place-of-{name}": Variant(more=_SEPARATE | {_REDUCE: size})
            for name, size in _SIZES.items()
        },
        # Triton's products in parts leave these to a kernel that adds them up.
        "whole-products": Variant(more={"xla_gpu_experimental_force_split_k": 1}),
        "user-buffers": told(enable_nccl_user_buffers=True),
        "symmetric-buffers": Variant(more={_SYMMETRIC: True}),
        "one-shot-sums": Variant(more={_ONE_SHOT: True}),
        "4-channels": told(nccl_collective_max_nchannels=4),
        "16-channels": told(nccl_collective_max_nchannels=16),
        "no-xla-options": Variant(options={}),
        "whole-epochs": Variant(compiles={"steps_per_execution": 100}),
        "two-sums-at-once": Variant(more={_OVERLAP: 2}),
        "double-buffered": told(enable_while_loop_double_buffering=True),
        "first-priority": told(enable_highest_priority_async_stream=True),
        "synchronous": told(disable_async_collectives="ALLREDUCE"),
        "heuristic-joins": told(
            experimental_enable_heuristic_collective_combining=True
        ),
        "no-graphs": Variant(more={_GRAPHS: ""}),
    }


@dataclasses.dataclass
class Work:
    """A model, its data, and its step's time on one GPU.

    Attributes:
        seconds: Until then something begins, by the monotonic clock.
    """

    name: str
    cell: Cell
    steps: int
    epochs: int
    seconds: float
    alone: float | None = None
    by_hand: float | None = None

    def _wider(self, times: int) -> Cell:
        batch = self.cell.batch * times
        return dataclasses.replace(self.cell, batch=batch, samples=batch * self.steps)

    def fit(self, variant: Variant, devices: int, kernels: Kernels | None = None):
        cell = self._wider(devices)
        if devices > 1:
            placed = {"mesh": "data"} | variant.compiles
            variant = dataclasses.replace(variant, compiles=placed)
        x, y = cell.data(cell.samples)
        hooks = () if kernels is None else (kernels.trace,)
        result = train(cell, variant, x, y, self.epochs + 1, hooks)
        if "epoch" in result:
            result["step_ms"] = 1e3 * result["epoch"] / self.steps
        return result

    def scan(self, devices: int) -> dict[str, Any]:
        import jax

        cell = self._wider(devices)
        mesh = None
        if devices > 1:
            mesh = jax.make_mesh((devices,), ("data",), (jax.sharding.AxisType.Auto,))
        run = scan_of(cell, *cell.data(cell.samples), mesh)
        spans = []
        for number in range(self.epochs + 1):
            start = time.perf_counter()
            run(number)
            spans.append(time.perf_counter() - start)
        best = min(spans[1:])
        return {"first": spans[0], "epoch": best, "step_ms": 1e3 * best / self.steps}


def measure(work: Work, names: list[str], profiles: bool, tell: Callable) -> None:
    """All of a model's measurements, for as long as there is time."""
    every = variants()

    def run(name: str, devices: int, function: Callable[[], dict]) -> dict:
        if time.monotonic() > work.seconds:
            return tell(work, name, devices, {"left_out": "no time"})
        try:
            result = function()
        except Exception as error:
            result = {"failed": repr(error)[:400]}
        gc.collect()
        return tell(work, name, devices, result)

    def fit(name: str, devices: int, profile: bool = False) -> dict:
        kernels = Kernels() if profile else None
        result = run(name, devices, lambda: work.fit(every[name], devices, kernels))
        if kernels is not None and kernels.names:
            said = kernels.summary(work.steps)
            tell(work, f"kernels of {name}", devices, said)
        return result

    work.alone = fit("as-is", 1, profiles).get("step_ms")
    for number, name in enumerate(names):
        if name == _BY_HAND:
            one = run(name, 1, lambda: work.scan(1))
            work.by_hand = one.get("step_ms")
            run(name, 2, lambda: work.scan(2))
        else:
            fit(name, 2, profiles and number == 0)
    fit("as-is", 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--work", default=",".join(WORKS))
    parser.add_argument("--only", help="names of variants; all of them by default")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="of an epoch")
    parser.add_argument("--shrink", type=int, default=1, help="of the batches")
    parser.add_argument("--seconds", type=float, default=300)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--profile", action="store_true")
    args = parser.parse_args()
    begun = time.monotonic()
    first, *others = variants()
    names = args.only.split(",") if args.only else [first, _BY_HAND, *others]
    works, results = args.work.split(","), {}

    def tell(work: Work, name: str, devices: int, result: dict) -> dict:
        said = {"work": work.name, "variant": name, "devices": devices} | result
        base = work.by_hand if name == _BY_HAND else work.alone
        if devices > 1 and base and "step_ms" in said:
            said["efficiency"] = round(base / said["step_ms"], 4)
        said["at"] = round(time.monotonic() - begun, 1)
        print(json.dumps(said), flush=True)
        results[f"{work.name} {name}@{devices} {len(results)}"] = said
        if args.json:
            write(args.json, results)
        return result

    for number, name in enumerate(works):
        cell: Cell = (CELLS | PROCESSOR_CELLS)[name]
        cell = dataclasses.replace(cell, batch=max(cell.batch // args.shrink, 2))
        end = begun + args.seconds * (number + 1) / len(works)
        work = Work(name, cell, args.steps, args.epochs, end)
        measure(work, names, args.profile, tell)


if __name__ == "__main__":
    main()
