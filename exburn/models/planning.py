"""What one step of a model takes, by XLA's analysis of the compiled program."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.checks import check_number
from exburn.core.precision.matmul import FLOAT8
from exburn.core.printing import amount_text, size_text, time_text
from exburn.core.symbolic_shapes import describe
from exburn.data.packed import PackedTokens
from exburn.distribution.step_time import Link, StepTime, estimate, get_link
from exburn.errors import ArgumentError, ExBurnError
from exburn.models.report import Figures
from exburn.module.traversal import iter_modules
from exburn.runtime.device import device_name
from exburn.runtime.sharding.arrays import held_bytes
from exburn.runtime.sharding.strategies import Distribution
from exburn.training.memory import Footprint, free_bytes, largest_batch, state_specs
from exburn.training.placement import placement_for
from exburn.training.state import TrainState
from exburn.training.trainer import Trainer

# Operations a second that training reaches in half precision: about 0.4 of what the
# data sheets of NVIDIA's GPUs say of dense products. Others, and CPUs, are guesses.
_RATES = {"H200": 4e14, "H100": 4e14, "A100": 1.2e14, "gpu": 1e14, "cpu": 1e11}
_KNOWN = ("H200", "H100", "A100")  # of others no speed is told


@dataclasses.dataclass(frozen=True, repr=False)
class Plan(Footprint, Figures):
    """What one step takes; a mapping of these names, too.

    On a mesh all bytes are those of one device.

    Attributes:
        batch_size: Rows of the step.
        flops: Floating-point operations of matrix products and convolutions, of all
            devices together.
        state_bytes: Weights, optimizer state and totals.
        batch_bytes: The batch.
        output_bytes: Results.
        temporary_bytes: Activations, gradients and other intermediate results.
        peak_bytes: All of these at once.
        collectives: What devices send each other: ``distribution.step_time.Collective``
            objects.
        float8_flops: Of ``flops`` those of products in 8 bits: of ``"mixed_float8"``,
            where they pay.
        program: ``"train"`` or ``"predict"``.
        available_bytes: Memory for them on the device.
        largest_batch: The most rows that fit, measured by compiling that size, or
            ``None`` if it was not asked for.
        longest_context: The most positions of a row that fit, on a mesh that divides
            them, looked for in the place of ``largest_batch``; else ``None``.
        device: The device.
        mesh: The distribution over several devices, in words; ``None`` for one.
        step_time: What the step's time is made of, by a simple model; ``None`` on one
            device.
        link, rate: How devices reach each other, and operations a second that a device
            reaches, by which ``step_time`` was estimated.
        tokens: Tokens of the step, of a plan by ``batch_tokens``, which has the rest,
            too; else ``None``.
        frozen_bytes, trained_bytes: Weights that are not trained, such as quantized
            ones, and those that are, such as adapters.
        slots_bytes: The optimizer's state. These three are part of ``state_bytes``.
        cache_bytes: Keys and values that ``generate`` keeps of as many tokens; not part
            of the step. ``None`` of a model that keeps none.
        tokens_per_second: ``tokens`` by the time that the operations take at ``rate``.
        asks_for_float8: Whether a layer's policy has products in 8 bits.
    """

    program: str = "train"
    available_bytes: int = 0
    largest_batch: int | None = None
    longest_context: int | None = None
    device: str = ""
    mesh: str | None = None
    step_time: StepTime | None = None
    link: Link | None = None
    rate: float | None = None
    tokens: int | None = None
    frozen_bytes: int | None = None
    trained_bytes: int | None = None
    slots_bytes: int | None = None
    cache_bytes: int | None = None
    tokens_per_second: float | None = None
    asks_for_float8: bool = False

    @property
    def fits(self) -> bool:
        """Whether the device has enough memory."""
        return self.peak_bytes <= self.available_bytes

    def _lines(self) -> tuple[str, dict[str, str]]:
        lines = {} if self.mesh is None else {"Devices": f"{self.mesh}; bytes of each"}
        lines |= {
            "FLOPs": amount_text(self.flops),
            **self._float8_line(),
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
        if self.longest_context is not None:
            lines["Longest context"] = f"{self.longest_context:,} positions"
        if self.step_time is not None and self.link is not None:
            lines |= self._time_lines(self.step_time, self.link)
        title = f"One {self.program} step of {self.batch_size:,} rows"
        if self.tokens is not None:
            title += f", {self.tokens:,} tokens"
            lines = self._token_lines(lines)
        return title, lines

    def _float8_line(self) -> dict[str, str]:
        """How much is computed in 8 bits, if a layer's policy asks for it."""
        if not self.asks_for_float8:
            return {}
        share = self.float8_flops / self.flops if self.flops else 0.0
        if not share:
            return {"  in float8": "none: no dense product is large enough"}
        return {"  in float8": f"{share:.0%}"}

    def _token_lines(self, lines: dict[str, str]) -> dict[str, str]:
        """The lines, with the parts of the state and what is known of tokens."""
        parts = {
            "  weights, frozen": self.frozen_bytes,
            "  weights, trained": self.trained_bytes,
            "  optimizer": self.slots_bytes,
        }
        result: dict[str, str] = {}
        for name, line in lines.items():
            result[name] = line
            if name == "Weights, optimizer":
                result |= {part: size_text(size or 0) for part, size in parts.items()}
        if self.cache_bytes is not None:
            size = size_text(self.cache_bytes)
            result["Cache of generate"] = f"{size} for as many tokens, beside the step"
        if self.tokens_per_second is not None and self.rate is not None:
            result["Tokens a second"] = (
                f"{amount_text(self.tokens_per_second)}, if the device reaches "
                f"{amount_text(self.rate)} operations a second"
            )
        return result

    def _time_lines(self, time: StepTime, link: Link) -> dict[str, str]:
        counts = Counter(one.kind for one in self.collectives)
        sent = ", ".join(f"{n} × {kind}" for kind, n in counts.items()) or "nothing"
        traffic = sum(one.traffic for one in self.collectives)
        none = dataclasses.replace(time, covered=0.0).seconds
        return {
            "Sent": f"{size_text(traffic)} by each: {sent}",
            "Time: compute": f"{time_text(time.compute)}, by "
            f"{amount_text(self.rate or 0)} operations a second",
            "Time: bandwidth": f"{time_text(time.bandwidth)}, by "
            f"{amount_text(link.bandwidth)} bytes a second",
            "Time: latency": time_text(time.latency),
            "Time: step": f"{time_text(time.best)} if computation covers all traffic, "
            f"{time_text(none)} if none",
        }


def make_plan(
    trainer: Trainer,
    kind: str,
    batch: tuple,
    rows: int,
    largest: bool,
    *,
    distribution: Distribution | None = None,
    link: Any = None,
    rate: float | None = None,
    available: int | None = None,
    context: int | None = None,
) -> Plan:
    """The plan of a step of a prepared trainer.

    Args:
        batch: Specs of ``(x, y, sample_weight)`` for any number of rows.
        link: How devices reach each other, as of ``distribution.step_time``.
        rate: Floating-point operations a second that a device reaches.
        available: Bytes of memory; by default what is free, or holds the model.
        context: The most positions of a row that the model takes, if the longest that
            fits is to be looked for.
    """
    preparer, state = trainer.preparer, state_specs(trainer.preparer, kind)
    programs, exact = preparer.programs, preparer.exact_rows(kind == "train")
    if distribution is not trainer.holder.placement.distribution:
        programs = preparer.make_programs(placement_for(distribution))
    programs.steps.placement.check(trainer.holder.module, _weights(state))
    if distribution is not None:
        link = get_link(link or _likely_link(distribution))
        rate = check_number("plan", "rate", rate or _likely_rate(), open_low=True)

    def measure(rows: int) -> Footprint:
        return Footprint.of(programs, kind, state, with_rows(batch, rows), exact)

    footprint = measure(rows)
    if available is None:
        available = _available_bytes(trainer, kind, distribution)
    most = longest = None
    if largest and context and distribution is not None:

        def measure_context(length: int) -> Footprint:
            longer = with_positions(with_rows(batch, rows), length)
            return Footprint.of(programs, kind, state, longer, exact)

        unit = 2 * distribution.sequence_parts  # zigzag has two pieces on each
        longest = _longest_context(measure_context, batch, unit, available, context)
    elif largest:
        most = largest_batch(measure, footprint, available)
    mesh = time = None
    if distribution is None or rate is None:
        link = rate = None
    else:
        share = _share_of_work(distribution, _weights(state), rows, exact)
        time = estimate(footprint.flops * share, rate, footprint.collectives, link)
        mesh = f"{distribution.mesh.size}: {distribution}"
    return Plan(
        **vars(footprint),
        program=kind,
        available_bytes=available,
        largest_batch=most,
        longest_context=longest,
        device=device_name(),
        mesh=mesh,
        step_time=time,
        link=link,
        rate=rate,
        asks_for_float8=kind == "train" and _asks_for_float8(trainer.holder.module),
    )


def _asks_for_float8(model: Any) -> bool:
    policies = (getattr(part, "precision", None) for _, part in iter_modules(model))
    return any(policy is not None and policy.matmul == FLOAT8 for policy in policies)


def _longest_context(
    measure: Callable[[int], Footprint],
    batch: tuple,
    unit: int,
    limit: int,
    context: int,
) -> int:
    """The most positions of a row whose peak stays within a limit, in whole units."""

    def measure_units(units: int) -> Footprint:
        return dataclasses.replace(measure(units * unit), batch_size=units)

    length = jax.tree.leaves(batch[0])[0].shape[1]
    first, most = -(-min(length, context) // unit), max(context // unit, 1)
    footprint = measure_units(first)
    return min(largest_batch(measure_units, footprint, limit, most) * unit, context)


def with_tokens(
    plan: Plan,
    trainer: Trainer,
    tokens: int,
    rate: Any,
    cache: int | None,
    distribution: Distribution | None,
) -> Plan:
    """The plan of a step of so many tokens, with the parts of its state.

    Args:
        rate: Operations a second that a device reaches, if the user says so. Of known
            kinds of devices it is the one that training reaches.
        cache: Bytes of keys and values, if there are such.
    """
    state = state_specs(trainer.preparer, plan.program)
    parts = {"frozen_bytes": plan.state_bytes, "trained_bytes": 0, "slots_bytes": 0}
    if isinstance(state, TrainState):
        placed = placement_for(distribution).state_specs(state)
        parts = {
            "frozen_bytes": held_bytes((placed.frozen, placed.others)),
            "trained_bytes": held_bytes(placed.params),
            "slots_bytes": held_bytes(placed.opt_state),
        }
    kind = jax.devices()[0].device_kind
    known = next((_RATES[name] for name in _KNOWN if name in kind), None)
    rate, speed = plan.rate or rate or known, None
    if plan.step_time is not None:
        speed = tokens / plan.step_time.best
    elif rate is not None:
        rate = check_number("plan", "rate", rate, open_low=True)
        speed = tokens * rate / plan.flops if plan.flops else None
    return dataclasses.replace(
        plan,
        tokens=tokens,
        cache_bytes=cache,
        rate=rate,
        tokens_per_second=speed,
        **parts,
    )


def packed_specs(rows: int, length: int, paired: bool = False) -> tuple:
    """Specs of a batch of packed documents, as ``fit`` gives them to the program.

    Args:
        paired: Whether they are pairs of answers, of which a row has one here.
    """
    numbers = jax.ShapeDtypeStruct((rows, length), jnp.int32)
    weights = jax.ShapeDtypeStruct((rows, length), jnp.float32)
    labels = jax.ShapeDtypeStruct((rows, 1), jnp.int32)
    targets = {"tokens": numbers, "labels": labels} if paired else numbers
    return PackedTokens(numbers, numbers), targets, weights


def _weights(state: Any) -> dict[str, Any]:
    """Specs of the weights in those of a state, or of a module's arrays."""
    params = getattr(state, "params", None)
    if params is not None:
        return {**params, **state.frozen, **state.others}
    return {name: spec for arrays in state for name, spec in arrays.items()}


def _available_bytes(
    trainer: Trainer, kind: str, distribution: Distribution | None
) -> int:
    """Memory for a step on each device; what the model holds there is free for it."""
    bytes_of = trainer.holder.held_bytes
    devices = placement_for(distribution).local_devices
    if not devices:
        return free_bytes(devices) + bytes_of(kind)
    return free_bytes(devices) + min(bytes_of(kind, device) for device in devices)


def _share_of_work(
    distribution: Distribution, weights: dict[str, Any], rows: int, exact: bool
) -> float:
    """The share of a step's operations that one device does: by the sizes of kernels.

    Rows and their positions are divided evenly, and the products with a kernel as the
    kernel is, unless it is gathered.
    """
    parts = distribution.num_model_replicas
    width = rows if exact else math.ceil(rows / parts) * parts
    share = width / rows / (1 if width % parts else parts)
    kernels = {n: v.shape for n, v in weights.items() if len(v.shape) > 1}
    share /= distribution.sequence_parts
    sharding, local = distribution.sharding, 0
    for name, shape in kernels.items():
        layout = sharding(distribution.compute_spec(name, shape))
        local += math.prod(layout.shard_shape(shape))
    whole = sum(map(math.prod, kernels.values()))
    return share * local / whole if whole else share


def _likely_link(distribution: Distribution) -> str:
    return "infiniband" if distribution.spans_processes else "nvlink"


def _likely_rate() -> float:
    kind = jax.devices()[0].device_kind
    named = (rate for name, rate in _RATES.items() if name in kind)
    return next(named, _RATES.get(jax.default_backend(), _RATES["gpu"]))


def input_specs(model: Any, hint: str = "model.plan(32, x), or fit first") -> Any:
    """Specs of one row of a functional model's inputs."""
    if getattr(model, "graph", None) is None:
        raise ArgumentError(
            "plan",
            "the shapes of the model's inputs are unknown",
            hint=f"Pass some: {hint}.",
        )

    def row(spec: Any) -> jax.ShapeDtypeStruct:
        sizes = spec.shape[1:]
        if not all(isinstance(size, int) for size in sizes):
            raise ArgumentError(
                "plan",
                f"a size of an input is free: {describe(spec)}",
                hint=f"Pass inputs of the size that is meant: {hint}.",
            )
        return jax.ShapeDtypeStruct((1, *sizes), spec.dtype)

    return jax.tree.map(row, model.program_inputs)


def with_rows(tree: Any, rows: int) -> Any:
    """Specs of the same with so many rows."""
    return jax.tree.map(
        lambda v: jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype), tree
    )


def with_positions(batch: tuple, length: int) -> tuple:
    """Specs of the same with so many positions in what has as many as the inputs."""
    before = jax.tree.leaves(batch[0])[0].shape[1]

    def resize(spec: Any) -> Any:
        if len(spec.shape) < 2 or spec.shape[1] != before:
            return spec
        shape = spec.shape[0], length, *spec.shape[2:]
        return jax.ShapeDtypeStruct(shape, spec.dtype)

    return jax.tree.map(resize, batch)


def with_targets(trainer: Trainer, names: Any, batch: tuple) -> tuple:
    """The batch with targets that suit the losses: like the outputs, or labels."""
    outputs = trainer.preparer.prepare((batch[0], None, None), kind="predict")
    leaves, treedef = jax.tree.flatten(outputs)

    def candidates(spec: Any) -> list[Any]:
        like = jax.ShapeDtypeStruct(spec.shape, jnp.float32)
        return [like, jax.ShapeDtypeStruct(spec.shape[:-1], jnp.int32)]

    for targets in itertools.product(*map(candidates, leaves)):
        batch_specs = (batch[0], treedef.unflatten(targets), None)
        try:
            trainer.preparer.prepare(batch_specs, names=names, kind="train")
        except ExBurnError:
            continue
        return batch_specs
    raise ArgumentError(
        "plan",
        "the losses take targets whose shape is not that of the outputs",
        hint="Pass some data: model.plan(32, x, y).",
    )
