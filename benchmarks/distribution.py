"""Training on several GPUs of one host: ExBurn, PyTorch's DDP and FSDP2, and Keras.

    python benchmarks/distribution.py [--work gpt2,resnet50] [--devices 2]
        [--peers exburn-data,torch-ddp] [--seconds 5] [--budget 540] [--json F]

Weak scaling: n devices train on n times the rows in batches n times as large; with
``--strong`` on the same rows in the same batches. Each (model, peer, number of devices)
runs in a process of its own, which sees no other devices, and at most ``--limit``
seconds; ``--seconds`` bounds what comes after the first epoch. Printed are samples/s of
the median warm epoch, the efficiency (that on n devices over n times that of the same
library on one) and the greatest peak of memory of a device, then all of it as a table.
A peer that fails says why, and the others go on; nothing begins after ``--budget``
seconds. With ``--json`` what is there already is not measured again. ``--together``
runs the trainings on one device side by side, each on a GPU of its own.

Others than the scaling:

--one-of-many     one GPU is used, while the others are hidden and while they are seen
--two-processes   one process with all devices against a process for each of them
--profile         what of the collectives' time no other kernel covers

``--tiny`` shrinks the models, for two cores; without GPUs the devices are XLA's on the
CPU. ``--memory-fraction`` is the part of a GPU's memory that JAX may use: with 0.2,
``--work gpt-1b --peers exburn-data,exburn-fsdp`` shows a model that fits on two only.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import queue
import shutil
import socket
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
import report
from breadth_models import compiled_in_keras
from collectives import exposed
from distribution_models import TINY, WORKS
from process import options, read, result_of, write
from throughput import Terminal, epoch_clock
from torch_distributed import train_on_devices

PEERS = ("exburn-data", "torch-ddp", "exburn-fsdp", "torch-fsdp", "keras-data")
DEFAULT_WORKS = ("gpt2", "resnet50", "mlp", "recommender")


# ------------------------------------------------------------- inside of a process
def run_exburn(cell: Any, way: str, args: argparse.Namespace) -> dict[str, Any]:
    if args.coordinator:
        import exburn.distribution

        exburn.distribution.initialize(args.coordinator, args.devices, args.process)
    import exburn

    exburn.set_precision("float32" if cell.dtype == "float32" else "mixed_bfloat16")
    model = cell.keras_like(exburn)
    loss: Any = "cross_entropy"
    if cell.binary:
        loss = exburn.losses.BinaryCrossentropy(from_logits=True)
    placed: dict[str, Any] = {"mesh": way} if way else {}
    if way == "tensor":
        placed["mesh"] = {"data": args.devices // 2, "model": 2}
        placed["layout"] = exburn.distribution.tensor_parallel(model)
    model.compile("adam", loss=loss, metrics=["accuracy"], seed=0, **placed)
    return fit(model, exburn.callbacks, cell, args, verbose=1)


def run_keras(cell: Any, way: str, args: argparse.Namespace) -> dict[str, Any]:
    os.environ["KERAS_BACKEND"] = "jax"
    import keras

    if way == "data":
        devices = keras.distribution.list_devices()
        parallel = keras.distribution.DataParallel(devices=devices)
        keras.distribution.set_distribution(parallel)
    model = compiled_in_keras(cell)
    return fit(model, keras.callbacks, cell, args, verbose=0)


def run_torch(cell: Any, way: str, args: argparse.Namespace) -> dict[str, Any]:
    return train_on_devices(cell, way or "alone", args.devices, args.seconds)


RUNNERS = {"exburn": run_exburn, "torch": run_torch, "keras": run_keras}


def fit(
    model: Any, callbacks: Any, cell: Any, args: argparse.Namespace, verbose: int
) -> dict[str, Any]:
    """Trains for a number of epochs, or of seconds: times, losses and the peak."""

    def ends(times: list[float]) -> bool:
        late = times[-1] - times[1] > args.seconds
        return args.epochs is None and late and len(times) > 3

    clock, hooks = epoch_clock(callbacks, ends), []
    if args.profile:
        hooks.append(trace_epoch(callbacks, 2, args.profile))
    x, y = cell.data(cell.samples * args.devices)
    with contextlib.redirect_stdout(Terminal()):
        history = model.fit(
            x,
            y,
            batch_size=cell.batch * args.devices,
            epochs=args.epochs or 10_000,
            verbose=verbose,
            callbacks=[clock, *hooks],
        )
    result = {"times": clock.times, "loss": list(map(float, history.history["loss"]))}
    return result | {"peak": peak_bytes()}


def trace_epoch(callbacks: Any, number: int, folder: str) -> Any:
    """A callback that traces one epoch into a folder."""
    import jax

    class Trace(callbacks.Callback):
        light = True

        def on_epoch_begin(self, epoch, logs=None):
            if epoch == number:
                jax.profiler.start_trace(folder)

        def on_epoch_end(self, epoch, logs=None):
            if epoch == number:
                jax.profiler.stop_trace()

    return Trace()


def peak_bytes() -> int | None:
    import jax

    stats = [device.memory_stats() or {} for device in jax.local_devices()]
    return max(s.get("peak_bytes_in_use", 0) for s in stats) or None


def child(work: str, peer: str, args: argparse.Namespace) -> None:
    cell = (TINY if args.tiny else WORKS)[work]
    if args.strong:
        share = {"batch": cell.batch, "samples": cell.samples}
        share = {name: count // args.devices for name, count in share.items()}
        cell = dataclasses.replace(cell, **share)
    library, _, way = peer.partition("-")
    result = RUNNERS[library](cell, way, args)
    times = result.pop("times")
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    batch = cell.batch * args.devices
    steps = cell.samples * args.devices // batch
    result |= {"devices": args.devices, "batch": batch, "steps": steps}
    result |= {"first": spans[0], "warm": spans[1:]}
    print("RESULT " + json.dumps(result), flush=True)


# --------------------------------------------------------------------- the comparison
class Runner:
    """Starts processes within the limits that the command line sets."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        self.end = time.monotonic() + args.budget
        self.cpu = os.environ.get("JAX_PLATFORMS") == "cpu"
        self.cpu = self.cpu or shutil.which("nvidia-smi") is None
        seen = os.environ.get("CUDA_VISIBLE_DEVICES")
        self.gpus = seen.split(",") if seen else [str(i) for i in range(64)]

    def run(
        self, work: str, peer: str, devices: int, *more: str, see: slice | None = None
    ) -> dict[str, Any] | None:
        """The measurement of a peer on some devices; None if it failed, or had no time.

        Args:
            work: The model.
            peer: The peer.
            devices: On how many it trains.
            more: Further options of the child.
            see: The GPUs that the process sees; as many as it trains on by default.
        """
        args, left = self.args, self.end - time.monotonic()
        if left < 5:
            print(f"{work} {peer} on {devices}: left out, no time", flush=True)
            return None
        words = [work, peer, "--devices", str(devices), "--seconds", str(args.seconds)]
        words += [f"--{name}" for name in ("tiny", "strong") if getattr(args, name)]
        see = see or slice(0, devices)
        result = result_of(
            *(__file__, *words, *more),
            env=self._environment(see),
            timeout=min(args.limit, left),
        )
        if result is not None:
            result["epoch"] = statistics.median(result["warm"])
            rows = result["batch"] * result["steps"]
            result["samples_per_s"] = rows / result["epoch"]
            result["step_ms"] = 1e3 * result["epoch"] / result["steps"]
        return result

    def _environment(self, see: slice) -> dict[str, str]:
        if self.cpu:
            count = see.stop - see.start
            flags = f"--xla_force_host_platform_device_count={count}"
            return {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": flags}
        variables = {"CUDA_VISIBLE_DEVICES": ",".join(self.gpus[see])}
        if (fraction := self.args.memory_fraction) is not None:
            variables["XLA_PYTHON_CLIENT_MEM_FRACTION"] = str(fraction)
        return variables


def scaling(runner: Runner) -> None:
    """Each peer on one device and on several, and the table of all of it."""
    args = runner.args
    peers = args.peers.split(",")
    counts = [int(count) for count in args.devices.split(",")]
    bases = list(dict.fromkeys(peer.partition("-")[0] for peer in peers))
    results: dict[str, dict[str, dict]] = read(args.json)

    def keep(work: str, peer: str, count: int, result: dict | None) -> None:
        if result is None:
            return
        runs = results.setdefault(work, {})
        runs[f"{peer}@{count}"] = result
        one = runs.get(f"{peer.partition('-')[0]}@1")
        if one is not None and count > 1:
            ideal = count * one["samples_per_s"]
            result["efficiency"] = result["samples_per_s"] / ideal
        print(line(work, peer, result), flush=True)
        if args.json:
            write(args.json, results)

    together = max(counts) if args.together and not runner.cpu else 1
    free: queue.Queue[int] = queue.Queue()
    for gpu in range(together):
        free.put(gpu)

    def alone(work: str, peer: str) -> dict | None:
        gpu = free.get()
        try:
            return runner.run(work, peer, 1, see=slice(gpu, gpu + 1))
        finally:
            free.put(gpu)

    for work in args.work.split(","):
        present = results.get(work, {})
        left = [peer for peer in bases if f"{peer}@1" not in present]
        with ThreadPoolExecutor(together) as pool:
            values = pool.map(alone, [work] * len(left), left)
            for peer, result in zip(left, values, strict=True):
                keep(work, peer, 1, result)
        for count in counts:
            for peer in peers:
                if f"{peer}@{count}" not in present and peer not in bases:
                    keep(work, peer, count, runner.run(work, peer, count))
    print("\n".join(report.distribution(results)), flush=True)


def line(work: str, peer: str, result: dict[str, Any]) -> str:
    said = f"{work:12} {peer:20} on {result['devices']}"
    said += f" {result['samples_per_s']:>12,.1f} samples/s"
    said += f"  step {result['step_ms']:8.2f} ms  first epoch {result['first']:6.2f} s"
    if result["peak"]:
        said += f"  peak {result['peak'] / 2**20:8,.0f} MiB"
    if "efficiency" in result:
        said += f"  efficiency {result['efficiency']:5.1%}"
    return said


def one_of_many(runner: Runner) -> None:
    """One device is trained on, while the process sees no other, and while it does."""
    args, results = runner.args, {}
    count = int(args.devices.split(",")[0])
    for work in args.work.split(","):
        runs: dict[str, Any] = {}
        for name, see in (("hidden", 1), ("seen", count)):
            result = runner.run(work, "exburn", 1, see=slice(0, see))
            if result is not None:
                runs[name] = result
                print(name, line(work, "exburn", result), flush=True)
        if len(runs) == 2:
            speeds = {name: run["samples_per_s"] for name, run in runs.items()}
            runs["ratio"] = speeds["seen"] / speeds["hidden"]
            print(f"{work}: {runs['ratio']:.3f} × with {count} devices in sight")
        results[work] = runs
        if args.json:
            write(args.json, results)


def two_processes(runner: Runner) -> None:
    """One process with all devices, and a process for each: the same training?"""
    args, results = runner.args, {}
    count = int(args.devices.split(",")[0])
    epochs = ("--epochs", str(args.epochs or 4))
    for work in args.work.split(","):
        for peer in args.peers.split(","):
            if not peer.startswith("exburn"):
                continue
            runs: dict[str, Any] = results.setdefault(work, {}).setdefault(peer, {})
            one = runner.run(work, peer, count, *epochs)
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                port = free.getsockname()[1]
            meet = ("--coordinator", f"127.0.0.1:{port}", "--process")

            def each(
                i: int, work: str = work, peer: str = peer, meet: Any = meet
            ) -> Any:
                see = slice(i, i + 1)
                return runner.run(work, peer, count, *epochs, *meet, str(i), see=see)

            with ThreadPoolExecutor(count) as pool:
                many = list(pool.map(each, range(count)))
            if one is None or None in many:
                continue
            print("one ", line(work, peer, one), flush=True)
            print("each", line(work, peer, many[0]), flush=True)
            runs |= {"one": one, "each": many[0]}
            runs["ratio"] = many[0]["samples_per_s"] / one["samples_per_s"]
            runs["difference"] = max(
                abs(a - b) / abs(a)
                for other in many
                for a, b in zip(one["loss"], other["loss"], strict=True)
            )
            said = (
                f"{work} {peer}: {runs['ratio']:.3f} × the speed in {count} processes"
            )
            print(f"{said}, losses differ by {runs['difference']:.1e}", flush=True)
            if args.json:
                write(args.json, results)


def profile(runner: Runner) -> None:
    """The shares of an epoch that collectives take, covered and not."""
    args, results = runner.args, {}
    count = int(args.devices.split(",")[0])
    for work in args.work.split(","):
        for peer in args.peers.split(","):
            if peer.startswith("torch"):
                continue
            with tempfile.TemporaryDirectory() as folder:
                options = ("--profile", folder, "--epochs", "4")
                result = runner.run(work, peer, count, *options)
                if result is None:
                    continue
                shares = exposed(Path(folder))
            if shares is None:
                print(f"{work} {peer}: the trace has no streams of a GPU", flush=True)
                continue
            per_step = {name: 1e3 * s / result["steps"] for name, s in shares.items()}
            results.setdefault(work, {})[peer] = per_step
            covered = ("span", "busy", "collectives", "exposed")
            kinds = [name for name in per_step if name not in covered]
            said = ", ".join(f"{kind} {per_step[kind]:.2f}" for kind in kinds)
            print(
                f"{work:12} {peer:12} a step of {per_step['span']:.2f} ms: kernels run "
                f"{per_step['busy']:.2f}, collectives {per_step['collectives']:.2f} "
                f"({said}), exposed {per_step['exposed']:.2f}",
                flush=True,
            )
            if args.json:
                write(args.json, results)


def main() -> None:
    parser = options(__doc__, PEERS, DEFAULT_WORKS)
    parser.add_argument("--devices", default="2")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--budget", type=float, default=float("inf"))
    parser.add_argument("--limit", type=float, default=150)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--memory-fraction", type=float)
    parser.add_argument("--profile", nargs="?", const="yes")
    for name in ("strong", "tiny", "together", "one-of-many", "two-processes"):
        parser.add_argument(f"--{name}", action="store_true")
    parser.add_argument("--coordinator")  # of a child, as --process
    parser.add_argument("--process", type=int)
    args = parser.parse_args()
    if args.child:
        args.devices = int(args.devices)
        work, peer = args.child
        child(work, peer, args)
        return
    modes = {"one_of_many": one_of_many, "two_processes": two_processes}
    chosen = [run for name, run in modes.items() if getattr(args, name)]
    chosen += [profile] if args.profile else []
    for run in chosen or [scaling]:
        run(Runner(args))


if __name__ == "__main__":
    main()
