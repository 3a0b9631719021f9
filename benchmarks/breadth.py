"""A grid of kinds of models: ExBurn beside hand-written JAX, Keras and PyTorch.

    python benchmarks/breadth.py [--work vit-64-float32,unet-64] [--peers exburn,scan]
    python benchmarks/breadth.py --device cpu --cores 2 --shrink 20

On a GPU, or on some cores of a processor, where ``breadth_processor.py`` has more
kinds. The peer ``keras-nightly`` runs 32 steps a call; ``KERAS_NIGHTLY`` names the
folder that it is in (``pip install --target FOLDER keras-nightly``). ExBurn runs
``fit`` with its defaults, its progress bar (into a terminal that is thrown away) and a
metric. Printed are samples/s of the best warm epoch, and ExBurn's ratio to each peer:
above 1, ExBurn is faster. A process measures all cells of one peer, so that a run of
the whole grid takes minutes; ``--seconds`` ends it before a time limit. With ``--json``
what is there already is not measured again.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from breadth_models import CELLS, Cell, compiled_in_keras, loss_of
from breadth_processor import PROCESSOR_CELLS
from process import environment_of, options, read, write
from throughput import fit_and_time
from torch_loop import torch_device, train_in_torch

PEERS = ("exburn", "scan", "keras", "torch", "torch-compiled")
# What of the grid a processor finishes in minutes; names of parts of it, shrunk.
ON_PROCESSORS = (
    *PROCESSOR_CELLS,
    "embed-1k-8x1",
    "embed-1k-8x26-each",
    "embed-10k-16x26-own",
    "embed-100k-32x8",
    "vit-16-float32",
    "vit-64-float32",
    "text-64-float32",
    "text-256-float32",
    "lstm-1x64-100",
    "lstm-2x64-100-tokens",
    "gru-2x64-120-both",
    "conv1d-512",
    "unet-64",
    "mixer-64x256",
    "tabular-30",
    "tabular-100",
)


def run_exburn(cell: Cell, x, y, epochs: int) -> list[float]:
    import exburn

    exburn.set_precision("float32" if cell.dtype == "float32" else "mixed_bfloat16")
    model = cell.keras_like(exburn)
    model.compile("adam", **loss_of(cell, exburn))
    return fit_and_time(model, exburn.callbacks, x, y, cell.batch, epochs, verbose=1)


def run_keras(cell: Cell, x, y, epochs: int, **more: Any) -> list[float]:
    model = compiled_in_keras(cell, **more)
    import keras

    return fit_and_time(model, keras.callbacks, x, y, cell.batch, epochs, verbose=0)


def run_scan(cell: Cell, x, y, epochs: int) -> list[float]:
    train = scan_of(cell, x, y)
    times = [time.perf_counter()]
    for e in range(epochs):
        train(e)
        times.append(time.perf_counter())
    return times


def scan_of(cell: Cell, x, y, mesh: Any = None) -> Callable[[int], Any]:
    """A function that trains for an epoch by one program, written by hand.

    Args:
        mesh: Devices of one axis, ``"data"``, among which the rows of each batch are
            divided; their gradients, losses and metrics are averaged.
    """
    import jax
    import jax.numpy as jnp
    import optax

    params, forward = cell.hand_written()
    optimizer, n = optax.adam(1e-3), len(x)

    def step(state, x, y, key):
        params, opt_state, loss_sum, hits = state

        def objective(params):
            logits = forward(params, x, key) if cell.random else forward(params, x)
            logits, extra = logits if cell.extra else (logits, 0.0)
            if cell.values:
                errors = logits - y
                return jnp.square(errors).mean() + extra, jnp.abs(errors).mean()
            if cell.binary:
                loss = optax.sigmoid_binary_cross_entropy(logits, y)
                return loss.mean(), ((logits > 0) == (y > 0.5)).mean()
            loss = optax.softmax_cross_entropy_with_integer_labels(logits, y)
            return loss.mean(), (logits.argmax(-1) == y).mean()

        both = jax.value_and_grad(objective, has_aux=True)(params)
        (loss, hit), grads = both if mesh is None else jax.lax.pmean(both, "data")
        updates, opt_state = optimizer.update(grads, opt_state, params)
        params = optax.apply_updates(params, updates)
        return params, opt_state, loss_sum + loss, hits + hit

    def epoch(state, key, dx, dy):
        order = jax.random.permutation(key, n)[: n // cell.batch * cell.batch]
        order = order.reshape(-1, cell.batch)
        if mesh is not None:
            part = cell.batch // mesh.size
            start = jax.lax.axis_index("data") * part
            order = jax.lax.dynamic_slice_in_dim(order, start, part, 1)
        keys = jax.random.split(key, len(order))

        def body(state, item):
            rows, key = item
            return step(state, dx[rows], dy[rows], key), None

        return jax.lax.scan(body, state, (order, keys))[0]

    dx, dy = x, y
    state = (params, optimizer.init(params), jnp.zeros(()), jnp.zeros(()))
    if mesh is not None:
        spec = jax.sharding.PartitionSpec()
        epoch = jax.shard_map(
            epoch, mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False
        )
        whole = jax.sharding.NamedSharding(mesh, spec)
        state, dx, dy = jax.device_put((state, dx, dy), whole)
    run = jax.jit(epoch, donate_argnums=(0,))
    dx, dy = jax.device_put(dx), jax.device_put(dy)

    def train(number: int) -> Any:
        nonlocal state
        state = run(state, jax.random.key(number), dx, dy)
        return jax.device_get(state[-2:])

    return train


def run_torch(cell: Cell, x, y, epochs: int, compiled: bool = False) -> list[float]:
    import torch
    from torch.nn import functional as F

    device = torch_device()
    model = cell.torch_module().to(device)
    dx, dy = torch.from_numpy(x).to(device), torch.from_numpy(y).to(device)

    def measure(logits, y):
        logits, extra = logits if cell.extra else (logits, 0.0)
        if cell.values:
            return F.mse_loss(logits, y) + extra, (logits - y).abs().mean()
        if cell.binary:
            hits = ((logits > 0) == (y > 0.5)).float().mean()
            return F.binary_cross_entropy_with_logits(logits, y), hits
        return F.cross_entropy(logits, y), (logits.argmax(1) == y).float().mean()

    return train_in_torch(
        *(model, measure, dx, dy if cell.binary or cell.values else dy.long()),
        batch=cell.batch,
        epochs=epochs,
        bfloat16=cell.dtype != "float32",
        compiled=compiled,
    )


RUNNERS: dict[str, Any] = {
    "exburn": run_exburn,
    "scan": run_scan,
    "keras": run_keras,
    "keras-nightly": lambda *a: run_keras(*a, steps_per_execution=32),
    "torch": run_torch,
    "torch-compiled": lambda *a: run_torch(*a, compiled=True),
}


def child(works: str, peer: str, epochs: int, shrink: int) -> None:
    """Measures cells one after the other, and prints what each one took."""
    for work in works.split(","):
        cell = (CELLS | PROCESSOR_CELLS)[work]
        part = 1 if work in PROCESSOR_CELLS else shrink
        samples = max(cell.samples // part, cell.batch * 2)
        x, y = cell.data(samples)
        try:
            times = RUNNERS[peer](cell, x, y, epochs)
        except Exception as error:
            print(f"{work} {peer} failed: {error!r}"[:1000], file=sys.stderr)
            continue
        finally:
            gc.collect()
            if peer == "torch-compiled":
                sys.modules["torch"]._dynamo.reset()
        spans = [b - a for a, b in zip(times, times[1:], strict=False)]
        out = {
            "work": work,
            "samples": samples // cell.batch * cell.batch,
            "first": spans[0],
            "warm": spans[1:],
        }
        print("RESULT " + json.dumps(out), flush=True)


def environment(peer: str, device: str) -> dict[str, str]:
    """The environment of a peer's process."""
    # The next process needs the memory that this one would keep from it.
    more = {"XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    if device == "cpu":
        more |= {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}
    if peer == "keras-nightly":
        paths = (os.environ["KERAS_NIGHTLY"], os.environ.get("PYTHONPATH", ""))
        more["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    return os.environ | more if "PYTHONPATH" in more else environment_of(**more)


def measured(
    works: list[str],
    peer: str,
    epochs: int,
    shrink: int,
    seconds: float,
    device: str,
) -> Iterator[dict]:
    """The results of cells, each measured in a process of its own."""
    command = [sys.executable, __file__, "--child", ",".join(works), peer]
    command += ["--epochs", str(epochs), "--shrink", str(shrink)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(peer, device)
    ) as process:
        assert process.stdout is not None
        clock = threading.Timer(min(seconds, threading.TIMEOUT_MAX), process.kill)
        clock.start()
        for line in process.stdout:
            if line.startswith("RESULT "):
                yield json.loads(line[7:])
        clock.cancel()


def main() -> None:
    parser = options(__doc__, PEERS, ("",))
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--cores", type=int, help="how many cores of the processor")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--shrink", type=int, default=1, help="of a GPU's samples")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    args = parser.parse_args()
    if args.child:
        works, peer = args.child
        child(works, peer, args.epochs, args.shrink)
        return
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    works = args.work or ",".join(ON_PROCESSORS if args.device == "cpu" else CELLS)
    begun = time.monotonic()
    report: dict[str, dict] = read(args.json)
    for peer in args.peers.split(","):
        new = [work for work in works.split(",") if peer not in report.get(work, {})]
        left = args.seconds - (time.monotonic() - begun)
        if not new or left <= 0:
            continue
        for result in measured(new, peer, args.epochs, args.shrink, left, args.device):
            work = result.pop("work")
            runs = report.setdefault(work, {})
            runs[peer] = result
            speed = result["samples"] / min(result["warm"])
            result["samples_per_s"] = speed
            line = f"{work:26} {peer:15} {speed:>12,.0f} samples/s"
            line += f"  epoch {min(result['warm']) * 1e3:8.1f} ms"
            line += f"  first {result['first']:6.2f} s"
            for name, other in runs.items():
                if name != "exburn" and "exburn" in runs:
                    ours = runs["exburn"]["samples_per_s"]
                    other["ratio"] = ours / other["samples_per_s"]
            if "ratio" in result:
                line += f"  ExBurn is {result['ratio']:.2f} ×"
            print(line, flush=True)
            if args.json:
                write(args.json, report)


if __name__ == "__main__":
    main()
