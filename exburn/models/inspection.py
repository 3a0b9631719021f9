"""What a model is, and what it takes: ``model.info()`` and ``model.plan()``."""

from __future__ import annotations

from functools import partial
from typing import Any

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.models.arguments import first_batch, positive
from exburn.models.compiling import count_by_tokens
from exburn.models.encoding import encode_dataset, read_dataset
from exburn.models.generation.generate import cache_bytes
from exburn.models.inferring import require_predictor
from exburn.models.information import ModelInfo, describe
from exburn.models.network import Network
from exburn.models.packing import context_of, fixed_length
from exburn.models.planning import (
    Plan,
    input_specs,
    make_plan,
    packed_specs,
    with_rows,
    with_targets,
    with_tokens,
)
from exburn.models.preparing import output_names
from exburn.models.quantizing import find_untrainable
from exburn.module.building import require_built
from exburn.runtime.sharding.strategies import make_distribution
from exburn.text.packing import USUAL_ROW
from exburn.training.objective.likelihood import likelihood_loss
from exburn.training.overrides import overrides
from exburn.training.trainer import Trainer


def info(self: Network) -> ModelInfo:
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
    require_built(self, "info")
    return describe(self)


_LONGEST = 2**24  # positions that a plan tries


def plan(
    self: Network,
    batch_size: int = 32,
    x: Any = None,
    y: Any = None,
    *,
    batch_tokens: int | None = None,
    length: int | None = None,
    largest: bool | None = None,
    mesh: Any = None,
    layout: Any = None,
    link: Any = None,
    rate: float | None = None,
    cache_dtype: str | None = None,
) -> Plan:
    """What a step takes, by XLA's analysis of the compiled program; nothing runs.

    A training step if ``compile`` gave a loss, else one of ``predict``, as for
    weights in few bits, which do not train. What the allocator and libraries such
    as cuDNN need comes on top: spare a tenth.

    On a mesh, that of ``compile`` or another one to be tried, bytes are those of each
    device, and the plan tells what the step's time is made of: compute, bandwidth and
    latency of what XLA has devices send each other, by ``distribution.step_time``.
    XLA's programs for a CPU send more than those for GPUs: they sum all gradients on
    every device where GPUs sum parts (``"fsdp"``).

    Args:
        batch_size: Rows of the step.
        x, y: Data whose shapes and dtypes are meant; by default those of the last
            ``fit``, or the model's own inputs.
        batch_tokens, length: Tokens of a batch and of a row of packed documents, as of
            ``fit(chats, batch_tokens=…)``, in the place of ``batch_size`` and data. The
            plan then tells weights, adapters, the optimizer's state and the cache of
            ``generate`` apart; and the model trains by tokens from then on, as ``fit``
            of documents has it. With ``exburn.models.without_weights`` a plan needs no
            weights.
        largest: Whether the largest batch that fits is looked for, which compiles
            two to five more programs; by default unless there are ``batch_tokens``. On
            a mesh that divides positions it is the longest context, of so many rows.
        mesh, layout: As for ``compile``; those of ``compile`` by default.
        link: How devices reach each other: a ``distribution.step_time.Link``, its name
            (``"nvlink"``, ``"pcie"``, ``"infiniband"``, ``"ethernet"`` …), or bytes a
            second. By default NVLink, or InfiniBand between processes.
        rate: Floating-point operations a second that a device reaches; by default a
            guess by the kind of device.
        cache_dtype: Of the cache of ``generate`` that the plan tells of packed rows:
            ``"int8"``, or that of the model if ``None``.

    Raises:
        NotBuiltError: The model has no shapes yet, and no ``x`` is given.
        ArgumentError: A size of the inputs is unknown, targets are not guessed, or
            there is no such link.
        LayoutError: There are no such devices, or a weight cannot be laid out so.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.plan(8, largest=False).flops
        192.0
        >>> plan = model.plan(8, largest=False, mesh={"data": 1}, rate=1e6)
        >>> plan.step_time.compute
        0.000192
    """
    op, tokens = "plan", None
    if batch_tokens is not None:
        batch_size, length, x, y = _packed_sizes(self, batch_tokens, length, x, y)
        tokens = batch_size * length
    elif length is not None:
        raise ArgumentError(op, "length is of packed rows: pass batch_tokens, too")
    elif cache_dtype is not None:
        raise ArgumentError(op, "cache_dtype needs packed rows: pass batch_tokens, too")
    batch_size = int(positive(op, "batch_size", batch_size, 32))
    distribution = self._training_session.distribution_in_force
    if mesh is not None or layout is not None:
        distribution = make_distribution(mesh, layout, "plan")
    trainer, kind, batch = prepare_plan(self, batch_size, x, y, length)
    plan = make_plan(
        trainer,
        kind,
        batch,
        batch_size,
        tokens is None if largest is None else largest,
        distribution=distribution,
        link=link,
        rate=rate,
        context=_free_context(self, distribution),
    )
    if tokens is None or length is None:
        return plan
    cache = cache_bytes(self, batch_size, length, cache_dtype)
    return with_tokens(plan, trainer, tokens, rate, cache, distribution)


def _packed_sizes(
    model: Network, batch_tokens: Any, length: Any, x: Any, y: Any
) -> tuple[int, int, None, None]:
    """Rows and their length of packed documents, of which a plan needs no data."""
    op = "plan"
    if x is not None or y is not None:
        raise ArgumentError(
            op, "batch_tokens says what the data are: leave out x and y"
        )
    batch_tokens = check_count(op, "batch_tokens", batch_tokens, 2)
    if length is None:
        length = min(USUAL_ROW, context_of(model) or USUAL_ROW, batch_tokens)
    length = fixed_length(model) or check_count(op, "length", length, 2)
    if length > batch_tokens:
        raise ArgumentError(
            op,
            f"batch_tokens must be at least a row, {length} tokens, received "
            f"{batch_tokens}",
        )
    return batch_tokens // length, length, None, None


def _free_context(model: Network, distribution: Any) -> int | None:
    """How long rows may be, on a mesh that divides positions, if it is not fixed."""
    if distribution is None or distribution.sequence_parts == 1:
        return None
    if model.built and fixed_length(model) is not None:
        return None
    return context_of(model) or _LONGEST


def prepare_plan(
    model: Network, rows: int, x: Any, y: Any, length: int | None = None
) -> tuple[Trainer, str, tuple]:
    """The trainer, prepared; the program; and specs of a batch."""
    trainer = require_predictor(model)
    if length is not None and model.compiled:
        count_by_tokens(model)
    trains = model.compiled and trainer.preparer.objective.wants_targets
    trains = trains or overrides(model, "train_step")
    kind = "train" if trains and not find_untrainable(model) else "predict"
    specs = None
    if length is not None:
        require_built(model, "plan")
        loss = likelihood_loss(trainer.preparer.objective.losses)
        specs = packed_specs(rows, length, loss is not None)
        specs = specs if kind == "train" else (specs[0], None, None)
    elif x is not None:
        dataset = read_dataset(model, x, y, op="plan")
        dataset = encode_dataset(model, dataset, op="plan", batch_size=rows)
        specs = first_batch(dataset, trainer.holder.seed)
    elif kind in trainer.preparer.batch_specs:
        specs = trainer.preparer.batch_specs[kind]
    if specs is None:
        require_built(model, "plan")
        specs = (input_specs(model), None, None)
    batch = with_rows(specs, rows)
    if (
        kind == "train"
        and batch[1] is None
        and trainer.preparer.objective.wants_targets
    ):
        batch = with_targets(trainer, partial(output_names, model), batch)
    else:
        trainer.preparer.prepare(batch, names=partial(output_names, model), kind=kind)
    return trainer, kind, batch


def summary(
    self: Network,
    line_length: int | None = None,
    positions: Any = None,
    print_fn: Any = None,
    expand_nested: bool = False,
    show_trainable: bool = False,
    layer_range: Any = None,
) -> None:
    """Prints the layers, their shapes and parameters, and the totals.

    Args:
        line_length: Width in characters; the terminal's by default.
        positions: Where the columns end, as shares of the width or as characters.
        print_fn: Called with the text, instead of printing it.
        expand_nested: Whether the layers of models inside are listed.
        show_trainable: Whether a column tells which layers are trained.
        layer_range: Names, or patterns of names, of the first and the last layer.
    """
    from exburn.module.summary import summary

    summary(
        self,
        line_length=line_length,
        positions=positions,
        print_fn=print_fn,
        expand_nested=expand_nested,
        show_trainable=show_trainable,
        layer_range=layer_range,
    )
