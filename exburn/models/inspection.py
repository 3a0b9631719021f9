"""What a model is, and what it takes: ``model.info()`` and ``model.plan()``."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import itertools
import traceback
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from rich.console import Console
from rich.table import Table
from rich.text import Text

from exburn.dataset import as_dataset
from exburn.device import device_name
from exburn.errors import ArgumentError, ExBurnError, OutOfMemoryError
from exburn.models.arguments import first_batch, positive
from exburn.selection import frozen_paths, layer_paths
from exburn.training.memory import (
    Footprint,
    free_bytes,
    is_exhausted,
    largest_batch,
    state_specs,
)
from exburn.training.trainer import Trainer
from exburn.traversal import iter_weights
from exburn.weights import scalars

__all__ = ["Inspection", "ModelInfo", "Plan"]


class _Report(Mapping):
    """A record that is also a mapping, and prints as a table."""

    def __getitem__(self, key: str) -> Any:
        if key not in {field.name for field in dataclasses.fields(self)}:  # type: ignore[arg-type]
            raise KeyError(key)
        return getattr(self, key)

    def __iter__(self) -> Iterator[str]:
        return (field.name for field in dataclasses.fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(dataclasses.fields(self))  # type: ignore[arg-type]

    def _lines(self) -> tuple[str, dict[str, str]]:
        raise NotImplementedError

    def __rich__(self) -> Table:
        title, lines = self._lines()
        table = Table(title=title, title_justify="left", show_header=False)
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for label, value in lines.items():
            table.add_row(label, Text(value))
        return table

    def __str__(self) -> str:
        page = io.StringIO()
        Console(force_jupyter=False, file=page, width=100, color_system=None).print(
            self
        )
        return page.getvalue()

    __repr__ = __str__


@dataclasses.dataclass(frozen=True, repr=False)
class ModelInfo(_Report):
    """What a model is; a mapping of these names, too.

    Attributes:
        name, type: The model's name and class.
        layers: Number of layers, those within others counted.
        parameters: Numbers in all weights.
        trainable: Numbers that training changes.
        frozen: Numbers in parameters that are frozen.
        state: Numbers in other weights, such as moving statistics.
        frozen_layers: Paths of the frozen layers.
        bytes: Bytes of the weights by dtype.
        optimizer_bytes: Bytes of the optimizer's state; ``None`` without an optimizer.
        precision: The model's policy.
        compiled: Whether ``compile`` was called.
        optimizer, learning_rate: Its name and rate now, or ``None``.
        loss: Its name; a dict or list where outputs have their own.
        metrics: Names of the metrics.
        device: Where the weights are.
    """

    name: str
    type: str
    layers: int
    parameters: int
    trainable: int
    frozen: int
    state: int
    frozen_layers: tuple[str, ...]
    bytes: dict[str, int]
    optimizer_bytes: int | None
    precision: str
    compiled: bool
    optimizer: str | None
    learning_rate: Any
    loss: Any
    metrics: tuple[str, ...]
    device: str

    def _lines(self) -> tuple[str, dict[str, str]]:
        sizes = [f"{size_text(n)} {dtype}" for dtype, n in self.bytes.items()]
        lines = {
            "Layers": f"{self.layers} ({len(self.frozen_layers)} frozen)",
            "Parameters": f"{self.parameters:,}",
            "  trainable": f"{self.trainable:,}",
            "  frozen": f"{self.frozen:,}",
            "  other state": f"{self.state:,}",
            "Weights": ", ".join(sizes) or "none",
            "Precision": self.precision,
            "Device": self.device,
        }
        if self.compiled:
            rate = self.learning_rate
            rate = f", learning rate {rate:.6g}" if isinstance(rate, float) else ""
            lines["Optimizer"] = (
                f"{self.optimizer}{rate}, {size_text(self.optimizer_bytes or 0)}"
            )
            lines["Loss"] = str(self.loss)
            lines["Metrics"] = ", ".join(self.metrics) or "none"
        return f"{self.name} ({self.type})", lines


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(_Report):
    """What one step takes; a mapping of these names, too.

    Attributes:
        program: ``"train"`` or ``"predict"``.
        batch_size: Rows of the step.
        flops: Floating-point operations of matrix products and convolutions.
        state_bytes: Weights, optimizer state and totals.
        batch_bytes: The batch.
        output_bytes: Results.
        temporary_bytes: Activations, gradients and other intermediate results.
        peak_bytes: All of these at once.
        available_bytes: Memory for them on the device.
        largest_batch: The most rows that fit, measured by compiling that size, or
            ``None`` if it was not asked for.
        device: The device.
    """

    program: str
    batch_size: int
    flops: float
    state_bytes: int
    batch_bytes: int
    output_bytes: int
    temporary_bytes: int
    peak_bytes: int
    available_bytes: int
    largest_batch: int | None
    device: str

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory."""
        return self.peak_bytes <= self.available_bytes

    def _lines(self) -> tuple[str, dict[str, str]]:
        lines = {
            "FLOPs": amount_text(self.flops),
            "Weights, optimizer": size_text(self.state_bytes),
            "Batch": size_text(self.batch_bytes),
            "Results": size_text(self.output_bytes),
            "Intermediate results": size_text(self.temporary_bytes),
            "Peak": size_text(self.peak_bytes),
            "Available": f"{size_text(self.available_bytes)} on {self.device}",
            "Fits": "yes" if self.fits else "no",
        }
        if self.largest_batch is not None:
            lines["Largest batch"] = f"{self.largest_batch:,}"
        return f"One {self.program} step of {self.batch_size:,} rows", lines


class Inspection:
    """Figures about a model; mixed into ``Model``."""

    name: str
    precision: Any
    optimizer: Any
    loss: Any
    compiled: bool
    graph: Any
    inputs: Any
    _run: Any
    _trainer: Any
    _require_built: Any
    _output_names_of: Any

    def info(self) -> ModelInfo:
        """What the model is: parameters, layers, bytes, loss, optimizer, device.

        Raises:
            NotBuiltError: The model has no weights yet.

        Example:
            >>> import exburn
            >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
            >>> info = model.info()
            >>> info.parameters, info["bytes"]
            (15, {'float32': 60})
        """
        self._require_built("info")
        groups: dict[str, int] = {"trainable": 0, "frozen": 0, "state": 0}
        sizes: dict[str, int] = {}
        devices: set[Any] = set()
        for _, weight, learns in iter_weights(self):
            value = weight.get_raw_value()
            fixed = weight.trainable or "stored" in weight.get_metadata()
            kind = "trainable" if learns else "frozen" if fixed else "state"
            groups[kind] += scalars(weight)
            dtype = np.dtype(value.dtype).name
            sizes[dtype] = sizes.get(dtype, 0) + value.nbytes
            devices |= value.devices()
        optimizer = self.optimizer
        return ModelInfo(
            name=self.name,
            type=type(self).__name__,
            layers=len(layer_paths(self)),
            parameters=sum(groups.values()),
            **groups,
            frozen_layers=tuple(frozen_paths(self)),
            bytes=sizes,
            optimizer_bytes=self._optimizer_bytes(),
            precision=self.precision.name,
            compiled=self.compiled,
            optimizer=None if optimizer is None else optimizer.name,
            learning_rate=_rate(optimizer),
            loss=_names(self.loss),
            metrics=tuple(_metric_names(self._run.value.settings or {})),
            device=", ".join(sorted(map(str, devices))) or device_name(),
        )

    def _optimizer_bytes(self) -> int | None:
        if self.optimizer is None:
            return None
        params = {
            path: jax.ShapeDtypeStruct(w.shape, w.dtype)
            for path, w, learns in iter_weights(self)
            if learns
        }
        state = jax.tree.leaves(jax.eval_shape(self.optimizer.init, params))
        return sum(int(np.prod(s.shape)) * np.dtype(s.dtype).itemsize for s in state)

    def plan(
        self,
        batch_size: int = 32,
        x: Any = None,
        y: Any = None,
        *,
        largest: bool = True,
    ) -> Plan:
        """What a step takes, by XLA's analysis of the compiled program; nothing runs.

        A training step if ``compile`` gave a loss, else one of ``predict``. What the
        allocator and libraries such as cuDNN need comes on top: spare a tenth.

        Args:
            batch_size: Rows of the step.
            x, y: Data whose shapes and dtypes are meant; by default those of the last
                ``fit``, or the model's own inputs.
            largest: Whether the largest batch that fits is looked for, which compiles
                two to five more programs.

        Raises:
            NotBuiltError: The model has no shapes yet, and no ``x`` is given.
            ArgumentError: A size of the inputs is unknown, or targets are not guessed.

        Example:
            >>> import exburn
            >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
            >>> model.plan(8, largest=False).flops
            192.0
        """
        batch_size = int(positive("plan", "batch_size", batch_size, 32))
        trainer, kind, batch = self._planned(batch_size, x, y)
        return _make_plan(trainer, kind, batch, batch_size, largest)

    def _planned(self, rows: int, x: Any, y: Any) -> tuple[Trainer, str, tuple]:
        """The trainer, prepared; the program; and specs of a batch."""
        run = self._run.value
        if run.trainer is None:
            run.trainer = Trainer(self)
        trainer: Trainer = run.trainer
        trains = self.compiled and trainer.objective.wants_targets
        trains = trains or callable(getattr(self, "train_step", None))
        kind = "train" if trains else "predict"
        given = None
        if x is not None:
            given = first_batch(as_dataset(x, y, op="plan"), trainer.seed)
        elif kind in trainer.batch_specs:
            given = trainer.batch_specs[kind]
        if given is None:
            self._require_built("plan")
            given = (_input_specs(self), None, None)
        batch = _with_rows(given, rows)
        if kind == "train" and batch[1] is None and trainer.objective.wants_targets:
            batch = _with_targets(trainer, self._output_names_of, batch)
        else:
            trainer.prepare(batch, names=self._output_names_of, kind=kind)
        return trainer, kind, batch


def _make_plan(trainer, kind, batch, rows: int, largest: bool) -> Plan:
    programs, state = trainer.programs, state_specs(trainer, kind)

    def measure(rows: int) -> Footprint:
        return Footprint.of(programs, kind, state, _with_rows(batch, rows))

    found = measure(rows)
    # What the model holds already is free for it.
    available = free_bytes() + trainer.held_bytes(kind)
    most = largest_batch(measure, found, available) if largest else None
    return Plan(
        program=kind,
        **{f.name: getattr(found, f.name) for f in dataclasses.fields(found)},
        available_bytes=available,
        largest_batch=most,
        device=device_name(),
    )


def _input_specs(model: Any) -> Any:
    if getattr(model, "graph", None) is None:
        raise ArgumentError(
            "plan",
            "the shapes of the model's inputs are unknown",
            hint="Pass some: model.plan(32, x), or fit the model first.",
        )

    def spec(symbol: Any) -> jax.ShapeDtypeStruct:
        if any(size is None for size in symbol.shape[1:]):
            raise ArgumentError(
                "plan",
                f"a size of the input {symbol.name!r} is free: {symbol.shape}",
                hint="Pass inputs of the size that is meant: model.plan(32, x).",
            )
        return jax.ShapeDtypeStruct((1, *symbol.shape[1:]), jnp.dtype(symbol.dtype))

    return jax.tree.map(spec, model.input)


def _with_rows(tree: Any, rows: int) -> Any:
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), tree
    )


def _with_targets(trainer: Trainer, names: Any, batch: tuple) -> tuple:
    """The batch with targets that suit the losses: like the outputs, or labels."""
    outputs = trainer.prepare((batch[0], None, None), kind="predict")
    leaves, treedef = jax.tree.flatten(outputs)

    def candidates(spec: Any) -> list[Any]:
        like = jax.ShapeDtypeStruct(spec.shape, jnp.float32)
        return [like, jax.ShapeDtypeStruct(spec.shape[:-1], jnp.int32)]

    for targets in itertools.product(*map(candidates, leaves)):
        made = (batch[0], treedef.unflatten(targets), None)
        try:
            trainer.prepare(made, names=names, kind="train")
        except ExBurnError:
            continue
        return made
    raise ArgumentError(
        "plan",
        "the losses take targets whose shape is not that of the outputs",
        hint="Pass some data: model.plan(32, x, y).",
    )


@contextlib.contextmanager
def memory_errors(model: Any, op: str, dataset: Any, rows: int) -> Iterator[None]:
    """In the block, a device that runs out of memory is an ``OutOfMemoryError``.

    Args:
        model: The model.
        op: ``"fit"``, ``"evaluate"`` or ``"predict"``.
        dataset: What it runs on.
        rows: The batch size.

    Raises:
        OutOfMemoryError: With the figures of ``model.plan`` where they can be had.
    """
    try:
        yield
    except Exception as error:
        if not is_exhausted(error) or isinstance(error, OutOfMemoryError):
            raise
        traceback.clear_frames(error.__traceback__)  # they hold data on the device
        raise _exhausted(model, op, dataset, rows, error) from error


def _exhausted(model, op, dataset, rows: int, error) -> OutOfMemoryError:
    details: dict[str, Any] = {"batch size": rows}
    plan, half = None, f"batch_size={max(rows // 2, 1)}"
    trainer = model._run.value.trainer
    kind = "train" if op in ("fit", "train_on_batch") else "predict"
    try:
        batch = _with_rows(first_batch(dataset, trainer.seed), rows)
        plan = _make_plan(trainer, kind, batch, rows, largest=True)
    except Exception as failure:  # the analysis needs memory, too
        details["no analysis"] = type(failure).__name__
    if plan is not None:
        details |= {
            "needed": size_text(plan.peak_bytes),
            "available": size_text(plan.available_bytes),
            "largest batch that fits": f"{plan.largest_batch:,}",
            "FLOPs of a step": amount_text(plan.flops),
        }
        if not plan.fits:
            half = f"batch_size={plan.largest_batch} or less"
            if not plan.largest_batch:
                half = "a smaller model or another device: one row does not fit"
    details["device"] = device_name()
    lines = str(error).strip().splitlines()
    details["said"] = lines[0] if lines else type(error).__name__
    more = (
        ", the same update from smaller batches (accumulate_gradients=…), "
        'model.remat("block_*") or dtype="mixed_bfloat16"'
        if kind == "train"
        else ' or dtype="bfloat16"'
    )
    raised = OutOfMemoryError(
        op,
        "the device has not enough memory; the model is as it was before this step",
        details,
        hint=f"Try {half}{more}.",
    )
    raised.plan = plan
    return raised


def _rate(optimizer: Any) -> Any:
    try:
        return None if optimizer is None else optimizer.learning_rate
    except ExBurnError:  # a MultiOptimizer has several
        return None


def _names(loss: Any) -> Any:
    if loss is None or isinstance(loss, str):
        return loss
    if isinstance(loss, Mapping):
        return {key: _names(one) for key, one in loss.items()}
    if isinstance(loss, list | tuple):
        return [_names(one) for one in loss]
    return getattr(loss, "name", None) or getattr(loss, "__name__", str(loss))


def _metric_names(settings: Mapping[str, Any]) -> Iterator[str]:
    for given in (settings.get("metrics"), settings.get("weighted_metrics")):
        for one in jax.tree.leaves(given):
            yield str(_names(one))


def size_text(number: float) -> str:
    """Bytes for people.

    Example:
        >>> size_text(1536)
        '1.50 KB'
    """
    for unit in ("B", "KB", "MB", "GB"):
        if number < 1024:
            return f"{number:.0f} {unit}" if unit == "B" else f"{number:.2f} {unit}"
        number /= 1024
    return f"{number:.2f} TB"


def amount_text(number: float) -> str:
    """A count for people.

    Example:
        >>> amount_text(2_500_000)
        '2.50 M'
    """
    for unit in ("", " K", " M", " G"):
        if number < 1000:
            return f"{number:.0f}" if not unit else f"{number:.2f}{unit}"
        number /= 1000
    return f"{number:.2f} T"
