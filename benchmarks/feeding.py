"""Training from data on the host, beside the source and the device alone.

    python benchmarks/feeding.py [--case arrays-mlp,memmap] [--gigabytes 20] [--json F]

The cases: ``arrays-…``, the workloads of throughput.py from NumPy arrays with
``fit(resident=False)``; ``memmap``, a file of ``--gigabytes`` that is mapped, rows of
784 float32 in random order; ``grain``, a Grain pipeline; ``torch``, a PyTorch
DataLoader; ``torch-workers``, one with processes; ``generator``, a Python generator of
batches. Each case runs in a process of its own and measures three times in samples/s:

source   all of an epoch's batches made and read (summed), nothing trained
device   ``fit`` with arrays on the device
fit      ``fit`` from the source

and their ratio, fit / min(source, device). For ``arrays-…`` and ``memmap`` the source
is what NumPy alone does in one thread: ``x[order[i : i + batch]]``. ``fit`` runs with
its progress bar (into a terminal that is thrown away) and a metric. Figures are medians
of the warm epochs. The file of ``memmap`` holds real bytes and is written first; unless
it is larger than the free memory its pages then come from the page cache: what is
measured is mapping, gathering and sending, not the disk.

With ``--json``, cases that the file holds already are left out: an interrupted run goes
on where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))
from process import read, result_of, write
from throughput import fit_and_time
from workloads import TOKENS, WORKLOADS, data, keras_like

FEATURES = 784
CASES = (
    *(f"arrays-{work}" for work in WORKLOADS),
    "memmap",
    "generator",
    "grain",
    "torch",
    "torch-workers",
)
# Rows of a batch, of an epoch on a GPU, and on a CPU.
LOADERS = {
    "memmap": (128, 0, 0),
    "generator": (32, 480_000, 8_000),
    "grain": (128, 60_000, 4_000),
    "torch": (128, 60_000, 4_000),
    "torch-workers": (128, 120_000, 4_000),
}


def model_of(work: str) -> Any:
    import jax.numpy as jnp

    import exburn

    places = exburn.layers.Lambda(
        lambda t: jnp.broadcast_to(jnp.arange(TOKENS), t.shape)
    )
    model = keras_like(work, exburn, exburn.layers, places)
    model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
    return model


class Rows:
    """Single rows, for the libraries that batch them; picklable, for processes."""

    def __init__(self, x: np.ndarray, y: np.ndarray):
        self.x, self.y = x, y

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self.x[index], self.y[index]


class Shuffled:
    """What NumPy alone does: batches in random order, one after another."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int):
        self.x, self.y, self.batch = x, y, batch

    def __iter__(self):
        order = np.random.default_rng(0).permutation(len(self.x))
        for i in range(0, len(order), self.batch):
            rows = order[i : i + self.batch]
            yield self.x[rows], self.y[rows]


class Batches:
    """A generator's batches, again for each epoch."""

    def __init__(self, x: np.ndarray, y: np.ndarray, batch: int):
        self.x, self.y, self.batch = x, y, batch

    def __len__(self) -> int:
        return -(-len(self.x) // self.batch)

    def __iter__(self):
        for i in range(0, len(self.x), self.batch):
            yield self.x[i : i + self.batch], self.y[i : i + self.batch]


def loader(case: str, x: np.ndarray, y: np.ndarray, batch: int) -> Iterable:
    if case == "generator":
        return Batches(x, y, batch)
    if case == "grain":
        import grain
        from absl import flags

        if not flags.FLAGS.is_parsed():
            flags.FLAGS.mark_as_parsed()
        return grain.MapDataset.source(Rows(x, y)).shuffle(seed=0).batch(batch)  # type: ignore[arg-type]
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    rows: Any = TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
    more: dict[str, Any] = {}
    if case == "torch-workers":
        workers = max(1, len(os.sched_getaffinity(0)) // 2)
        rows = Rows(x, y)  # the tensors would go through /dev/shm, which may be small
        more = {
            "num_workers": workers,
            "multiprocessing_context": "spawn",
            "persistent_workers": True,
        }
    return DataLoader(rows, batch_size=batch, shuffle=True, **more)


def read_all(source: Iterable) -> float:
    """Seconds that all batches take, each summed: it has to be read."""
    start, total = time.perf_counter(), 0.0
    for x, y in source:
        total += float(x.sum()) + float(y.sum())
    assert np.isfinite(total)
    return time.perf_counter() - start


def epochs_of(model: Any, x: Any, y: Any, batch: int | None, epochs: int, **options):
    """Seconds of the warm epochs, and the share of each that waited for data."""
    import exburn

    times = fit_and_time(
        model, exburn.callbacks, x, y, batch, epochs, verbose=1, profile=True, **options
    )
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    profile = model.history.profile
    return spans[1:], [e["data_ms"] / e["total_ms"] for e in profile][1:]


def measure(
    work: str,
    arrays: tuple[np.ndarray, np.ndarray],
    resident: tuple[np.ndarray, np.ndarray],
    batch: int,
    source: Iterable,
    fit: Callable[[Any, int], tuple],
    epochs: int,
) -> dict[str, Any]:
    """Source, device and fit alone, in turn."""
    model = model_of(work)
    rates: dict[str, list[float]] = {"source": [], "device": [], "fit": []}
    size, resident_size = len(arrays[0]), len(resident[0])
    spans, _ = epochs_of(model, *resident, batch, epochs, resident=True)
    rates["device"] += [resident_size / s for s in spans]
    if work == "mlp" and size == resident_size:
        read_all(source)  # a loader's processes start now
    rates["source"].append(size / read_all(source))
    spans, waits = fit(model, epochs)
    rates["fit"] += [size / s for s in spans]
    rates["source"].append(size / read_all(source))
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "samples": size,
        "batch": batch,
        "bytes": sum(a.nbytes for a in arrays),
        "rates": rates,
        "data_wait": statistics.median(waits),
        **medians,
        "ratio": medians["fit"] / min(medians["source"], medians["device"]),
        "to_device": medians["fit"] / medians["device"],
    }


def mapped(path: Path, gigabytes: float) -> tuple[np.ndarray, float]:
    """A file of float32 rows with real bytes, mapped; and the seconds to write it."""
    rows = int(gigabytes * 1e9 / (4 * FEATURES))
    rng, start = np.random.default_rng(0), time.perf_counter()
    block = rng.standard_normal((min(rows, 100_000), FEATURES), dtype=np.float32)
    with path.open("wb") as file:
        for i in range(0, rows, len(block)):
            block[: rows - i].tofile(file)
    seconds = time.perf_counter() - start
    return np.memmap(path, np.float32, "r", shape=(rows, FEATURES)), seconds


def child(case: str, epochs: int, gigabytes: float | None) -> None:
    import jax

    cpu = jax.default_backend() == "cpu"
    if case.startswith("arrays-"):
        work = case.removeprefix("arrays-")
        load = WORKLOADS[work]
        arrays = data(work, load.cpu_samples if cpu else load.samples)
        result = measure(
            work,
            arrays,
            arrays,
            load.batch,
            Shuffled(*arrays, load.batch),
            lambda model, n: epochs_of(model, *arrays, load.batch, n, resident=False),
            epochs,
        )
    elif case == "memmap":
        batch = LOADERS[case][0]
        with tempfile.TemporaryDirectory(dir=os.environ.get("FEEDING_DIR")) as folder:
            size = gigabytes or (0.05 if cpu else 20)
            x, seconds = mapped(Path(folder) / "rows.bin", size)
            y = np.random.default_rng(1).integers(0, 10, len(x)).astype(np.int32)
            few = np.array(x[: min(len(x), 400_000)]), y[: min(len(x), 400_000)]
            result = measure(
                "mlp",
                (x, y),
                few,
                batch,
                Shuffled(x, y, batch),
                lambda model, n: epochs_of(model, x, y, batch, 3, resident=False),
                epochs,
            )
            result["writing_s"] = seconds
            result["free_memory"] = _free_memory()
    else:
        batch, *sizes = LOADERS[case]
        arrays = data("mlp", sizes[cpu])
        source = loader(case, *arrays, batch)
        result = measure(
            "mlp",
            arrays,
            arrays,
            batch,
            source,
            lambda model, n: epochs_of(model, source, None, None, n),
            epochs,
        )
    result["cores"] = len(os.sched_getaffinity(0))
    print("RESULT " + json.dumps(result), flush=True)


def _free_memory() -> int:
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--case", default=",".join(CASES))
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--gigabytes", type=float)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--child")
    args = parser.parse_args()
    if args.child:
        child(args.child, args.epochs, args.gigabytes)
        return
    options = ["--epochs", str(args.epochs)]
    if args.gigabytes is not None:
        options += ["--gigabytes", str(args.gigabytes)]
    results: dict[str, Any] = read(args.json)
    for case in args.case.split(","):
        if case not in results:
            result = result_of(__file__, case, *options)
            if result is None:
                continue
            results[case] = result
            if args.json:
                write(args.json, results)
        r = results[case]
        line = f"{case:20}" + "".join(
            f" {name} {r[name]:>11,.0f}/s" for name in ("source", "device", "fit")
        )
        line += f"   ratio {r['ratio']:.2f}   fit/device {r['to_device']:.2f}"
        print(f"{line}   data wait {r['data_wait']:.0%}", flush=True)


if __name__ == "__main__":
    main()
