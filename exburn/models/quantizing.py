"""``model.quantize``: a copy of a model with weights in fewer bits."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
from rich.table import Table

from exburn.compression.quantization.aware import (
    METHODS,
    add_ranges,
    is_simulated,
    measure_ranges,
    plan_as_trained,
    require_known,
)
from exburn.compression.quantization.blocks import Blocks
from exburn.compression.quantization.calibrate import CalibrationData, token_windows
from exburn.compression.quantization.convert import require_finite
from exburn.compression.quantization.measure import measure
from exburn.compression.quantization.placing import find_places
from exburn.compression.quantization.plan import (
    choose,
    make_plan,
    packed_schemes,
    quantized_weights,
)
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.core.checks import check_number
from exburn.core.printing import page_text, print_text
from exburn.data import check_finite
from exburn.errors import ArgumentError, DataError, ExBurnError, unknown_name
from exburn.models.changes import quantize_in_place, records
from exburn.models.copies import go_on_like
from exburn.models.encoding import read_batch
from exburn.models.network import Network
from exburn.models.session import require_idle
from exburn.module.building import materialize, require_built, spec_like
from exburn.module.copying import twin
from exburn.module.selection import layer_paths
from exburn.module.traversal import iter_weights
from exburn.module.variable import Static


def quantize(
    self: Network,
    mode: Any = None,
    config: Any = None,
    filters: Any = None,
    *,
    calibration: Any = None,
    method: str | None = None,
    percentile: float | None = None,
    dry_run: bool = False,
    block_size: int | None = None,
    compute_dtype: Any = None,
    verbose: bool = False,
) -> Any:
    """A new model with weights in fewer bits; this one stays as it is.

    Dense, EinsumDense, convolutions, Embedding, the projections of attention and
    recurrent layers are quantized. Normalization keeps its parameters, and its
    statistics, in float32. A compiled model gives a compiled one,
    which goes on with the optimizer's state.

    A model of ``exburn.quantize_aware`` is stored as it was trained, with the scales
    and ranges of the training: ``model.quantize()``.

    Args:
        mode: ``"float16"`` or ``"bfloat16"``: all layers in that dtype.
            ``"int8"``: weights with a scale for each output.
            ``"int8_dynamic"``: also the inputs of Dense and EinsumDense, rounded
            row by row as they come, and multiplied as integers.
            ``"int4"``: weights with a scale for each block of ``block_size``.
            ``"nf4"``: codes of 16 numbers that suit normal weights, as of QLoRA, with a
            float32 scale for each block; see ``exburn.quantizers``.
            ``"float8"``: weights (e4m3) with a scale for each output.
            ``"ternary"``: weights of Dense and TernaryDense as -1, 0 and 1, with one
            factor: those up to half of the mean magnitude are 0.
            ``"gptq"``, ``"awq"``: weights of Dense and EinsumDense, chosen on the
            data of a ``GPTQConfig`` or ``AWQConfig``.
        config: A configuration of ``exburn.quantizers``, instead of the mode or
            with it: ``Int8QuantizationConfig`` …
        filters: Which layers: a name, path or pattern as for ``freeze``, a regular
            expression that is found in a name, a list of them, or a function called
            with each layer. All by default.
        calibration: A batch of inputs, on which the report compares outputs;
            without it, it compares weights. With ``method`` also what ranges of
            activations are measured on: some hundred rows of real data.
        method: Rounds activations to 8 bits, too, within ranges that are measured on
            the calibration: ``"minmax"`` takes the ends, ``"percentile"`` leaves
            outliers out, ``"mse"`` makes the error of rounding least. With int8, int4
            and float8. Exported files compute with these ranges.
        percentile: Of that method: the percentage of values within the range, 99.99
            by default.
        dry_run: Returns only the report.
        block_size: Of int4 and nf4: at least 2, or -1 for all that an output sums; 64
            by default.
        compute_dtype: ``"bfloat16"`` or ``"float16"``: what layers compute in, with
            weights in few bits; unchanged by default.
        verbose: Whether the report is printed.

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
    if is_simulated(self):
        options = (mode, config, filters, method, percentile, block_size, compute_dtype)
        _refuse_options(options)
        return _store_as_trained(self, calibration, dry_run, verbose)
    settings = QuantizationSettings.of(mode, block_size, compute_dtype, config)
    percentile = check_method("quantize", method, calibration, percentile)
    if method is not None:
        settings = settings.with_ranges()
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
    batch = calibration_batch(self, calibration)
    small = twin(self)
    plan = make_plan(small, settings, chosen, calibrated=reached)
    if method is not None:
        round_activations(small, plan, chosen)
        measure_ranges(small, batch, method, percentile)
    unrounded = quantize_in_place(small, plan, calibration=inner)
    return _finish(self, small, plan, batch, dry_run, verbose, unrounded)


def _store_as_trained(
    model: Network, calibration: Any, dry_run: bool, verbose: bool
) -> Any:
    """A model with the weights that a simulating one reads, and its ranges."""
    require_idle(model, "quantize")
    materialize(model)
    require_known(model, "quantize")
    require_finite(plan_as_trained(model))
    batch = calibration_batch(model, calibration)
    small = twin(model)
    plan = plan_as_trained(small)
    unrounded = quantize_in_place(small, plan)
    return _finish(model, small, plan, batch, dry_run, verbose, unrounded)


def _finish(
    model: Network,
    small: Any,
    plan: Any,
    batch: Any,
    dry_run: bool,
    verbose: bool,
    unrounded: tuple[str, ...],
) -> Any:
    """The quantized copy with its report, or the report alone."""
    report = measure(model, small, plan, batch)
    report.unrounded = unrounded
    if verbose:
        print_text(report)
    if dry_run:
        return report
    small._report = Static(report)
    go_on_like(small, model)
    return small


def quantization_summary(self: Network, verbose: bool = True) -> str:
    """A table of the layers that are stored in few bits, and of what that saves.

    Args:
        verbose: Whether it is printed, too.

    Returns:
        The table as text.

    Example:
        >>> from exburn import Sequential
        >>> from exburn.layers import Dense, Input
        >>> small = Sequential([Input((64,)), Dense(64, name="head")]).quantize("int8")
        >>> print(small.quantization_summary(verbose=False).splitlines()[-1])
         Stored in few bits: 16,384 → 4,224 bytes (0.258 of float32)

    Source: ``keras.Model.quantization_summary``, of Keras 3.16.
    """
    table = Table(title="Layers in few bits", title_justify="left")
    for name in ("Layer", "Policy", "Stored as"):
        table.add_column(name, overflow="fold")
    for name in ("Numbers", "Bytes", "in float32"):
        table.add_column(name, justify="right")
    stored = exact = 0
    for path, layer in {"": self, **layer_paths(self)}.items():
        schemes = packed_schemes(layer)
        if not schemes:
            continue
        count = sum(math.prod(scheme.shape) for scheme in schemes)
        size = sum(scheme.nbytes for scheme in schemes)
        names = ", ".join(dict.fromkeys(scheme.name for scheme in schemes))
        policy = layer.dtype_policy.name
        cells = (f"{count:,}", f"{size:,}", f"{4 * count:,}")
        table.add_row(path or self.name, policy, names, *cells)
        stored, exact = stored + size, exact + 4 * count
    total = " No layer is stored in few bits."
    if exact:
        share = f"({stored / exact:.3f} of float32)"
        total = f" Stored in few bits: {exact:,} → {stored:,} bytes {share}"
    lines = [*([page_text(table, 110).rstrip()] if exact else []), total]
    text = "\n".join(lines)
    if verbose:
        print_text(text)
    return text


def round_activations(model: Any, plan: Any, chosen: set[str], **options: Any) -> None:
    """Gives a model ranges where the operators of its plan's layers need them."""
    targets = {target.path for target in plan.targets if target.schemes}
    dtype = "float8" if plan.settings.storage == "float8" else "int8"
    places = find_places(model, targets, chosen)
    add_ranges(model, places, dtype=dtype, **options)


def check_method(op: str, method: Any, calibration: Any, percentile: Any) -> float:
    """The percentile, after a check of how ranges are to be measured."""
    if method is not None and method not in METHODS:
        raise unknown_name("method", method, METHODS, op=op)
    if method is not None and calibration is None:
        raise ArgumentError(
            op,
            f"method={method!r} measures activations, and there is nothing to do it on",
            hint="Give some hundred rows of real data: calibration=x[:512].",
        )
    if percentile is None:
        return 99.99
    if method != "percentile":
        raise ArgumentError(
            op, f"percentile= belongs to method='percentile', received {method!r}"
        )
    return check_number(op, "percentile", percentile, low=50, high=100)


def _refuse_options(options: tuple) -> None:
    if any(value is not None for value in options):
        raise ArgumentError(
            "quantize",
            "the model was trained for the numbers that it will be stored in",
            hint="Call quantize() without a mode; other ways begin with the model that "
            "quantize_aware() was given.",
        )


def get_quantization_layer_structure(self: Network, mode: str | None = None) -> Any:
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


def _prepare_calibration(
    model: Any, settings: QuantizationSettings
) -> CalibrationData | None:
    """What weights are chosen on, checked against the model."""
    if not settings.uses_calibration:
        return None
    structure = settings.config.quantization_layer_structure
    if structure is None:
        structure = model.get_quantization_layer_structure(settings.dtype)
    blocks = Blocks.of(model, structure)
    return CalibrationData(token_windows(settings.config), blocks)


def require_trainable(model: Network, op: str) -> None:
    """Raises for a model of packed weights without adapters."""
    if packed := find_untrainable(model):
        raise ArgumentError(
            op,
            f"{len(packed)} weights are stored in few bits, which have no gradient",
            {"first": packed[0]},
            hint="Train adapters beside them: model.add_lora(rank=8); or train the "
            "exact model, and quantize that.",
        )


def find_untrainable(model: Network) -> list[str]:
    """Paths of packed weights, if nothing beside them is trained."""
    learns = any(learns for _, _, learns in iter_weights(model))
    return [] if learns else quantized_weights(model)


def calibration_batch(model: Network, data: Any, op: str = "quantize") -> Any:
    """The batch on the device, checked against the model."""
    if data is None:
        return None
    batch = read_batch(model, data, op=f"{op} (calibration)").tree[0]
    check_finite((batch, None, None), op=f"{op} (calibration)")
    module: Any = model
    try:
        specs = jax.tree.map(spec_like, batch)
        jax.eval_shape(lambda x: twin(module)(x), specs)  # it may assign to itself
    except ExBurnError:
        raise
    except (TypeError, ValueError) as error:
        shapes = [tuple(v.shape) for v in jax.tree.leaves(batch)]
        raise DataError(
            op,
            "the model cannot be called on the calibration batch",
            {"received": shapes, "cause": str(error).partition("\n")[0]},
        ) from error
    return jax.tree.map(jnp.asarray, batch)
