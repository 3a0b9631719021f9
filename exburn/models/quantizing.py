"""``model.quantize``: a copy of a model with weights in fewer bits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp

from exburn import optimizers
from exburn.core import registry
from exburn.data import as_batch, check_finite
from exburn.errors import ArgumentError, DataError, ExBurnError
from exburn.models.changes import quantize_in_place, records
from exburn.models.training_settings import require_idle
from exburn.module.building import require_built, spec_like
from exburn.module.copying import twin
from exburn.module.traversal import iter_weights
from exburn.module.variable import Static
from exburn.transforms.quantization import (
    Blocks,
    Calibration,
    Settings,
    choose,
    make_plan,
    measure,
    quantized_weights,
    require_finite,
    token_windows,
)

if TYPE_CHECKING:
    from exburn.models.model import Model


def quantize(
    self: Model,
    mode: Any = None,
    config: Any = None,
    filters: Any = None,
    *,
    calibration: Any = None,
    dry_run: bool = False,
    block_size: int | None = None,
    compute_dtype: Any = None,
) -> Any:
    """A new model with weights in fewer bits; this one stays as it is.

    Dense, EinsumDense, convolutions, Embedding, the projections of attention and
    recurrent layers are quantized. Normalization keeps its parameters, and its
    statistics, in float32. A compiled model gives a compiled one.

    Args:
        mode: ``"float16"`` or ``"bfloat16"``: all layers in that dtype.
            ``"int8"``: weights with a scale for each output.
            ``"int8_dynamic"``: also the inputs of Dense and EinsumDense, rounded
            row by row as they come, and multiplied as integers.
            ``"int4"``: weights with a scale for each block of ``block_size``.
            ``"float8"``: weights (e4m3) with a scale for each output.
            ``"gptq"``, ``"awq"``: weights of Dense and EinsumDense, chosen on the
            data of a ``GPTQConfig`` or ``AWQConfig``.
        config: A configuration of ``exburn.quantizers``, instead of the mode or
            with it: ``Int8QuantizationConfig`` …
        filters: Which layers: a name, path or pattern as for ``freeze``, a regular
            expression that is found in a name, a list of them, or a function called
            with each layer. All by default.
        calibration: A batch of inputs, on which the report compares outputs;
            without it, it compares weights.
        dry_run: Returns only the report.
        block_size: Of int4: at least 2, or -1 for all that an output sums; 64 by
            default.
        compute_dtype: ``"bfloat16"`` or ``"float16"``: what layers compute in, with
            weights in int8, int4 or float8; unchanged by default.

    Returns:
        The model, whose ``quantization_report`` tells what became of each layer;
        with ``dry_run`` the ``QuantizationReport`` itself.

    Raises:
        UnknownNameError: No such ``mode``, or a pattern of ``filters`` names no
            layer.
        ArgumentError: The model is quantized or has adapters, no layer can be
            quantized, a weight is not finite, an argument is out of range, mode
            and configuration contradict each other, or the configuration's data or
            blocks of layers are not there.
        DataError, ShapeError: The calibration batch, or the configuration's data,
            does not fit the model.
        NotBuiltError: The model has no weights yet.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((64,)), Dense(128, "relu"), Dense(10)])
        >>> small = model.quantize("int8")
        >>> report = small.quantization_report
        >>> report.bytes_before, report.bytes_after
        (38440, 10300)
    """
    settings = Settings.of(mode, block_size, compute_dtype, config)
    if any(record["kind"] == "quantization" for record in records(self)):
        raise ArgumentError(
            "quantize",
            "the model is quantized already",
            hint="Quantize the exact model again; quantize() leaves it alone.",
        )
    require_built(self, "quantize")
    require_idle(self, "quantize")
    chosen = choose(self, filters, op="quantize")
    inner = _prepare_calibration(self, settings)
    reached = None if inner is None else inner.blocks.reached
    plan = make_plan(self, settings, chosen, calibrated=reached)
    if inner is not None:
        require_finite(plan)  # their errors come before anything is copied
        inner.check(self)
    batch = _calibration_batch(self, calibration)
    small = twin(self)
    plan = make_plan(small, settings, chosen, calibrated=reached)
    quantize_in_place(small, plan, calibration=inner)
    report = measure(self, small, plan, batch)
    if dry_run:
        return report
    small._report = Static(report)
    _compile_alike(self, small)
    return small


def get_quantization_layer_structure(self: Model, mode: str | None = None) -> Any:
    """The layers that GPTQ and AWQ take one after the other: to be overridden.

    Args:
        mode: ``"gptq"`` or ``"awq"``.

    Returns:
        ``{"pre_block_layers": […], "sequential_blocks": […]}``: what tokens go
        through first, as an embedding, and the blocks behind that, whose outputs
        are the inputs of the next. ``None`` if there is no such order.

    Source: ``keras.Model.get_quantization_layer_structure``.
    """
    return None


def _prepare_calibration(model: Model, settings: Settings) -> Calibration | None:
    """What weights are chosen on, checked against the model."""
    if not settings.uses_calibration:
        return None
    told = settings.config.quantization_layer_structure
    if told is None:
        told = model.get_quantization_layer_structure(settings.dtype)
    blocks = Blocks.of(model, told)
    return Calibration(token_windows(settings.config), blocks)


def require_trainable(model: Model, op: str) -> None:
    """Raises for a model of packed weights without adapters."""
    if packed := find_untrainable(model):
        raise ArgumentError(
            op,
            f"{len(packed)} weights are stored in few bits, which have no gradient",
            {"first": packed[0]},
            hint="Train adapters beside them: model.add_lora(rank=8); or train the "
            "exact model, and quantize that.",
        )


def find_untrainable(model: Model) -> list[str]:
    """Paths of packed weights, if nothing beside them is trained."""
    learns = any(learns for _, _, learns in iter_weights(model))
    return [] if learns else quantized_weights(model)


def _calibration_batch(model: Model, data: Any) -> Any:
    """The batch on the device, checked against the model."""
    if data is None:
        return None
    batch = as_batch(data, op="quantize (calibration)").tree[0]
    check_finite((batch, None, None), op="quantize (calibration)")
    module: Any = model
    try:
        specs = jax.tree.map(spec_like, batch)
        jax.eval_shape(lambda x: twin(module)(x), specs)  # it may assign to itself
    except ExBurnError:
        raise
    except (TypeError, ValueError) as error:
        shapes = [tuple(v.shape) for v in jax.tree.leaves(batch)]
        raise DataError(
            "quantize",
            "the model cannot be called on the calibration batch",
            {"received": shapes, "cause": str(error).partition("\n")[0]},
        ) from error
    return jax.tree.map(jnp.asarray, batch)


def _compile_alike(model: Model, other: Any) -> None:
    """Compiles another model as this one, with an optimizer of its own."""
    run = model._run.value
    if run.settings is None:
        return
    options = dict(run.settings)
    try:
        config = registry.serialize(run.optimizer)
        options["optimizer"] = registry.deserialize(config)
    except ExBurnError:  # an optax transformation: it has no state of its own
        options["optimizer"] = optimizers.get(options["optimizer"])
    options["seed"] = None
    place = {"device": run.device, "mesh": run.distribution}
    other.compile(**options, **place, check_numerics=run.check_numerics)
    other._run.value.trainer.holder.given_seed = run.trainer.holder.given_seed
