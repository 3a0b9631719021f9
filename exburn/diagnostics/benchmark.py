"""How fast this machine computes, and how fast a model answers."""

from __future__ import annotations

import dataclasses
import gc
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.compute import dtypes as known_dtypes
from exburn.core.checks import check_count
from exburn.core.printing import Plain, page_text
from exburn.data import ArrayDataset
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.arguments import positive
from exburn.models.interop import predict
from exburn.runtime.device import device_of
from exburn.training.module import SplitModule
from exburn.training.trainer import Trainer

_SOFTMAX = 1_000_000  # values
_WARM_SECONDS = 0.05  # of runs that do not count: GPUs raise their clock under load


@dataclasses.dataclass(frozen=True)
class BenchmarkTimes:
    """Times of single runs, in milliseconds.

    Attributes:
        avg_ms, min_ms, max_ms, median_ms: Of the runs.
        std_ms: Standard deviation over the runs (of the population).
        p90_ms, p95_ms, p99_ms: Percentiles, interpolated.
        runs, warmup: How many runs were measured, and how many went before.
    """

    avg_ms: float
    min_ms: float
    max_ms: float
    median_ms: float
    std_ms: float
    p90_ms: float
    p95_ms: float
    p99_ms: float
    runs: int
    warmup: int

    @classmethod
    def of(cls, seconds: Sequence[float], warmup: int = 0) -> BenchmarkTimes:
        """The statistics of single times.

        Example:
            >>> timing = BenchmarkTimes.of([0.001, 0.002, 0.003])
            >>> timing.avg_ms, timing.median_ms, timing.max_ms
            (2.0, 2.0, 3.0)
        """
        ms = np.array(seconds) * 1e3
        p90, p95, p99 = map(float, np.percentile(ms, (90, 95, 99)))
        return cls(
            float(ms.mean()),
            float(ms.min()),
            float(ms.max()),
            float(np.median(ms)),
            float(ms.std()),
            *(p90, p95, p99),
            runs=len(ms),
            warmup=warmup,
        )


class _Printed:
    """A report that prints as its table."""

    def __rich__(self) -> Any:
        raise NotImplementedError

    def __str__(self) -> str:
        return page_text(self, 88).rstrip()

    __repr__ = __str__


@dataclasses.dataclass(frozen=True, repr=False)
class ModelReport(_Printed):
    """Times of a model's predictions for one input.

    Attributes:
        model: Its name.
        rows: Rows of the input.
        timing: Times of whole calls, results in host memory.
        rows_per_second: By the median.
    """

    model: str
    rows: int
    timing: BenchmarkTimes

    @property
    def rows_per_second(self) -> float:
        return self.rows / self.timing.median_ms * 1e3

    def __getattr__(self, name: str) -> Any:
        if name.endswith("_ms") or name in ("runs", "warmup"):
            return getattr(self.timing, name)
        raise AttributeError(name)

    def __rich__(self) -> Any:
        from rich.table import Table
        from rich.text import Text

        title = f"{self.model}, {self.rows} rows, times in ms"
        table = Table(title=Text(title, "table.title"), title_justify="left")
        values = dataclasses.asdict(self.timing)
        for name in values:
            table.add_column(name.removesuffix("_ms"), justify="right")
        table.add_row(
            *(f"{v:.3f}" if isinstance(v, float) else str(v) for v in values.values())
        )
        table.caption = f"{self.rows_per_second:,.0f} rows/s"
        return Plain(table)


@dataclasses.dataclass(frozen=True, repr=False)
class MachineReport(_Printed):
    """Times of a matrix product and a softmax on each device.

    Attributes:
        size: Rows and columns of the matrices.
        rows: For each device and dtype a dict with ``device``, ``dtype``, ``time_ms``
            (average), ``gflops``, ``softmax_ms`` (one million values, kept on the
            device) and ``softmax_to_host_ms`` (copied back as well).
        iterations: Runs that the averages are taken of.
    """

    size: int
    iterations: int
    rows: tuple[Mapping[str, Any], ...]

    @property
    def gflops(self) -> float:
        """GFLOP/s of the fastest row."""
        return max(row["gflops"] for row in self.rows)

    def __rich__(self) -> Any:
        from rich.table import Table

        size, count = self.size, self.iterations
        table = Table(
            title=f"{size} × {size} matrix product, softmax of a million values, "
            f"mean of {count} runs",
            title_justify="left",
        )
        for name in ("device", "dtype"):
            table.add_column(name)
        names = ("matmul ms", "GFLOP/s", "softmax ms", "softmax to host ms")
        for name in names:
            table.add_column(name, justify="right")
        for row in self.rows:
            table.add_row(
                row["device"],
                row["dtype"],
                f"{row['time_ms']:.3f}",
                f"{row['gflops']:,.1f}",
                f"{row['softmax_ms']:.3f}",
                f"{row['softmax_to_host_ms']:.3f}",
            )
        return Plain(table)


@api_boundary
def benchmark(
    model: Any = None,
    input: Any = None,
    *,
    size: int = 100,
    iterations: int = 10,
    warmup: int = 3,
    runs: int = 10,
    devices: Sequence[Any] | None = None,
    dtypes: Sequence[str] = ("float32", "bfloat16", "float16"),
) -> Any:
    """Times this machine, or a model's predictions.

    ``benchmark(size=100, iterations=10)`` multiplies matrices on every device and in
    every dtype, and takes the softmax of a million values. ``benchmark(model, x)``
    calls the model's compiled inference on ``x``. What is compiled, or run for the
    first time, does not count.

    Args:
        model: A model, a module or a function, or any other that ``exburn.predict``
            takes.
        input: Its input, rows first: one batch.
        size: Rows and columns of the matrices.
        iterations: Runs that the machine's times are averaged over, after a warm-up;
            they are sent off together, so that a device has no time to idle.
        warmup: Runs of the model before those that count.
        runs: Runs of the model that count.
        devices: Devices to time, or their names such as ``"gpu:1"``; by default one of
            each kind that JAX offers.
        dtypes: Their dtypes.

    Returns:
        A ``MachineReport`` or a ``ModelReport``; both print as tables.

    Raises:
        ArgumentError: A count is below 1, only one of model and input is given, or
            there is no such device.
        UnknownNameError: An unknown dtype.

    Example:
        >>> report = benchmark(size=32, iterations=2, dtypes=["float32"])
        >>> report.rows[0]["gflops"] > 0 and report.rows[0]["softmax_ms"] > 0
        True
        >>> report = benchmark(jnp.tanh, np.ones((4, 2)), runs=5)
        >>> report.runs, report.min_ms <= report.median_ms <= report.max_ms
        (5, True)
    """
    if (model is None) != (input is None):
        raise ArgumentError(
            "benchmark",
            "a model and its input are given together",
            {"model": type(model).__name__, "input": type(input).__name__},
            hint="benchmark(model, x) times the model, benchmark() the machine.",
        )
    size = positive("benchmark", "size", size)
    iterations = positive("benchmark", "iterations", iterations)
    runs = positive("benchmark", "runs", runs)
    warmup = check_count("benchmark", "warmup", warmup, 0)
    if model is None:
        if unknown := [name for name in dtypes if name not in known_dtypes()]:
            raise unknown_name("dtype", unknown[0], known_dtypes(), op="benchmark")
        if devices is None:
            devices = _one_of_each()
        devices = [device_of(device, "benchmark") for device in devices]
        rows = [
            _machine(device, dtype, size, iterations)
            for device in devices
            for dtype in dtypes
        ]
        return MachineReport(size, iterations, tuple(rows))
    run, count = _inference(model, input)
    name = getattr(model, "name", None) or getattr(model, "__name__", None)
    timing = _measure(run, runs, warmup)
    return ModelReport(str(name or type(model).__name__), count, timing)


def _measure(run: Callable[[], Any], runs: int, warmup: int) -> BenchmarkTimes:
    """Times of single runs, each until its results are there."""
    for _ in range(warmup):
        jax.block_until_ready(run())
    collects = gc.isenabled()
    gc.disable()  # a collection in the middle of a run is not the run's time
    try:
        seconds = []
        for _ in range(runs):
            began = time.perf_counter()
            jax.block_until_ready(run())
            seconds.append(time.perf_counter() - began)
    finally:
        if collects:
            gc.enable()
    return BenchmarkTimes.of(seconds, warmup)


def _machine(device: Any, dtype: str, size: int, iterations: int) -> dict[str, Any]:
    rng = np.random.default_rng(0)

    def put(*shape: int) -> jax.Array:
        values = rng.standard_normal(shape).astype(jnp.dtype(dtype))
        return jax.device_put(values, device)

    a, b, flat = put(size, size), put(size, size), put(_SOFTMAX)
    matmul, softmax = jax.jit(jnp.matmul), jax.jit(jax.nn.softmax)
    product = _average_ms(lambda: matmul(a, b), iterations)
    return {
        "device": str(device),
        "dtype": dtype,
        "time_ms": product,
        "gflops": 2 * size**3 / product / 1e6,
        "softmax_ms": _average_ms(lambda: softmax(flat), iterations),
        "softmax_to_host_ms": _average_ms(
            lambda: jax.device_get(softmax(flat)), iterations
        ),
    }


def _average_ms(run: Callable[[], Any], iterations: int) -> float:
    """The mean time of runs one behind the other, as a device works under load."""
    until = time.perf_counter() + _WARM_SECONDS
    jax.block_until_ready(run())
    while time.perf_counter() < until:
        jax.block_until_ready(run())
    began = time.perf_counter()
    results = [run() for _ in range(iterations)]
    jax.block_until_ready(results)
    return (time.perf_counter() - began) / iterations * 1e3


def _one_of_each() -> list[Any]:
    """The default device, and the CPU where that is another."""
    devices = [jax.local_devices()[0]]
    host = jax.local_devices(backend="cpu")[:1]
    return devices + [device for device in host if device not in devices]


def _inference(model: Any, x: Any) -> tuple[Callable[[], Any], int]:
    """One call of a model's inference on the whole of ``x``, and its rows."""
    if not isinstance(model, Model):
        rows = np.shape(jax.tree.leaves(x)[0])[:1]
        count = rows[0] if rows else 1
        return lambda: predict(model, x, batch_size=None), count
    data = ArrayDataset(x, op="benchmark")
    Trainer(model).preparer.prepare((data.tree[0], None, None), kind="predict")
    split = SplitModule(model)

    def forward(groups, x):
        key = jax.random.key(0)
        return split.forward(groups, x, training=False, key=key)[0]

    compiled = jax.jit(forward)
    groups, x = split.read(), jax.device_put(data.tree[0])
    return lambda: jax.device_get(compiled(groups, x)), data.size
