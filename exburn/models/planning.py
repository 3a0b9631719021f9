"""What one step of a model takes, by XLA's analysis of the compiled program."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.printing import amount_text, size_text
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ExBurnError
from exburn.models.report import Figures
from exburn.runtime.device import device_name
from exburn.training.memory import Footprint, free_bytes, largest_batch, state_specs
from exburn.training.trainer import Trainer


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Footprint, Figures):
    """What one step takes; a mapping of these names, too.

    Attributes:
        batch_size: Rows of the step.
        flops: Floating-point operations of matrix products and convolutions.
        state_bytes: Weights, optimizer state and totals.
        batch_bytes: The batch.
        output_bytes: Results.
        temporary_bytes: Activations, gradients and other intermediate results.
        peak_bytes: All of these at once.
        program: ``"train"`` or ``"predict"``.
        available_bytes: Memory for them on the device.
        largest_batch: The most rows that fit, measured by compiling that size, or
            ``None`` if it was not asked for.
        device: The device.
    """

    program: str
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


def make_plan(
    trainer: Trainer, kind: str, batch: tuple, rows: int, largest: bool
) -> Plan:
    """The plan of a step of a prepared trainer.

    Args:
        trainer: The trainer.
        kind: ``"train"`` or ``"predict"``.
        batch: Specs of ``(x, y, sample_weight)`` for any number of rows.
        rows: Rows of the step.
        largest: Whether the largest batch is looked for.
    """
    programs, state = trainer.preparer.programs, state_specs(trainer.preparer, kind)

    def measure(rows: int) -> Footprint:
        return Footprint.of(programs, kind, state, with_rows(batch, rows))

    found = measure(rows)
    # What the model holds already is free for it.
    devices = trainer.holder.placement.local_devices
    available = free_bytes(devices) + trainer.holder.held_bytes(kind)
    most = largest_batch(measure, found, available) if largest else None
    return Plan(
        **vars(found),
        program=kind,
        available_bytes=available,
        largest_batch=most,
        device=device_name(),
    )


def input_specs(model: Any) -> Any:
    """Specs of one row of a functional model's inputs."""
    if getattr(model, "graph", None) is None:
        raise ArgumentError(
            "plan",
            "the shapes of the model's inputs are unknown",
            hint="Pass some: model.plan(32, x), or fit the model first.",
        )

    def row(spec: Any) -> jax.ShapeDtypeStruct:
        sizes = spec.shape[1:]
        if not all(isinstance(size, int) for size in sizes):
            raise ArgumentError(
                "plan",
                f"a size of an input is free: {describe(spec)}",
                hint="Pass inputs of the size that is meant: model.plan(32, x).",
            )
        return jax.ShapeDtypeStruct((1, *sizes), spec.dtype)

    return jax.tree.map(row, model.program_inputs)


def with_rows(tree: Any, rows: int) -> Any:
    """Specs of the same with so many rows."""
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), tree
    )


def with_targets(trainer: Trainer, names: Any, batch: tuple) -> tuple:
    """The batch with targets that suit the losses: like the outputs, or labels."""
    outputs = trainer.preparer.prepare((batch[0], None, None), kind="predict")
    leaves, treedef = jax.tree.flatten(outputs)

    def candidates(spec: Any) -> list[Any]:
        like = jax.ShapeDtypeStruct(spec.shape, jnp.float32)
        return [like, jax.ShapeDtypeStruct(spec.shape[:-1], jnp.int32)]

    for targets in itertools.product(*map(candidates, leaves)):
        made = (batch[0], treedef.unflatten(targets), None)
        try:
            trainer.preparer.prepare(made, names=names, kind="train")
        except ExBurnError:
            continue
        return made
    raise ArgumentError(
        "plan",
        "the losses take targets whose shape is not that of the outputs",
        hint="Pass some data: model.plan(32, x, y).",
    )
