"""Changed training steps, trained by ``fit``, and the time of their kernels."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

from breadth_models import Cell, loss_of
from collectives import exposed
from throughput import fit_and_time

__all__ = ["Kernels", "Variant", "exchange", "together", "train"]


@dataclasses.dataclass(frozen=True)
class Variant:
    """A change to a training step.

    Attributes:
        change: Makes the change, while the model is built and trained.
        options: XLA's options instead of ours; ``None`` leaves ours.
        more: XLA's options beside ours.
        compiles: Arguments of ``compile``.
        precision: JAX' precision of products, of either program.
    """

    change: Callable[[], AbstractContextManager] = nullcontext
    options: dict[str, Any] | None = None
    more: dict[str, Any] = dataclasses.field(default_factory=dict)
    compiles: dict[str, Any] = dataclasses.field(default_factory=dict)
    precision: str | None = None


def exchange(*changes: tuple[str, str, Any]) -> Callable[[], AbstractContextManager]:
    """Exchanges functions: of a module, by a name, for another."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for module, name, other in changes:
                stack.enter_context(mock.patch(f"exburn.{module}.{name}", other))
            yield

    return change


def together(*changes: Callable[[], AbstractContextManager]) -> Callable:
    """Several changes as one."""

    @contextlib.contextmanager
    def change() -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            for one in changes:
                stack.enter_context(one())
            yield

    return change


# ------------------------------------------------------------------ measuring
def known(options: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The options that this XLA has, and the names of the others."""
    import jax

    options, strange = dict(options), []
    while options:
        try:
            with jax.default_device(jax.devices("cpu")[0]):
                jax.jit(lambda: ()).lower().compile(options)
        except jax.errors.JaxRuntimeError as error:
            bad = [name for name in options if name in str(error)]
            if not bad:
                raise
            strange.append(bad[0])
            del options[bad[0]]
        else:
            break
    return options, strange


def train(cell: Cell, variant: Variant, x, y, epochs: int, hooks=()) -> dict:
    """Trains by ``fit``: seconds of the first and of the best epoch."""
    import exburn
    import exburn.training.program_cache as programs

    options, strange = known(variant.options or variant.more)
    if strange:
        return {"left_out": f"this XLA has no {', '.join(strange)}"}
    ours = programs.compiler_options

    def chosen(*args: Any) -> dict[str, Any] | None:
        if variant.options is not None:
            return options or None
        return (ours(*args) or {}) | options

    halves = cell.dtype != "float32"
    exburn.set_precision("mixed_bfloat16" if halves else "float32")
    arguments = dict(variant.compiles)
    optimizer = arguments.pop("optimizer", lambda: "adam")()
    with mock.patch.object(programs, "compiler_options", chosen), variant.change():
        model = cell.keras_like(exburn)
        model.compile(optimizer, **loss_of(cell, exburn), **arguments)
        add = functools.partial(fit_and_time, model, exburn.callbacks)
        times = add(x, y, cell.batch, epochs, verbose=0)
        if hooks:
            with hooks[0]():
                add(x, y, cell.batch, 1, verbose=0)
    spans = [b - a for a, b in zip(times, times[1:], strict=False)]
    return {"first": spans[0], "epoch": min(spans[1:])}


# ------------------------------------------------------------------ kernels
class Kernels:
    """The kernels of what runs in the block ``with trace():``.

    Attributes:
        names: Seconds and calls of each kernel, by its name without numbers.
        shares: What `collectives.exposed` says of the trace.
    """

    def __init__(self):
        self.names: dict[str, tuple[float, int]] = {}
        self.shares: dict[str, float] = {}

    @contextlib.contextmanager
    def trace(self) -> Iterator[None]:
        import jax

        with tempfile.TemporaryDirectory() as folder:
            jax.profiler.start_trace(folder)
            yield
            jax.profiler.stop_trace()
            self.names = _kernels_in(Path(folder))
            self.shares = exposed(Path(folder)) or {}

    def summary(self, steps: int, most: int = 12) -> dict[str, Any]:
        """Microseconds and calls of a step, of the kernels that take the most."""
        ordered = sorted(self.names.items(), key=lambda item: -item[1][0])
        said: dict[str, Any] = {
            f"{name}_us": round(1e6 * seconds / steps, 1)
            for name, seconds in self.shares.items()
        }
        said["calls"] = round(sum(n for _, (_, n) in ordered) / steps, 1)
        said["kernels"] = [
            [name, round(1e6 * seconds / steps, 2), round(calls / steps, 2)]
            for name, (seconds, calls) in ordered[:most]
        ]
        return said


def _kernels_in(folder: Path) -> dict[str, tuple[float, int]]:
    """Seconds and calls of each kernel in a trace, of all of its GPUs."""
    from jax.profiler import ProfileData

    total: dict[str, list] = defaultdict(lambda: [0.0, 0])
    for file in folder.glob("**/*.xplane.pb"):
        for plane in ProfileData.from_file(str(file)).planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            for line in plane.lines:
                if not line.name.startswith("Stream"):
                    continue
                for event in line.events:
                    entry = total[re.sub(r"[._]?\d+", "", event.name)[:90]]
                    entry[0] += event.duration_ns / 1e9
                    entry[1] += 1
    return {name: (seconds, calls) for name, (seconds, calls) in total.items()}
