"""``exburn.quantize_aware``: a model that is trained as it will be stored."""

from __future__ import annotations

from typing import Any

from exburn.compression.quantization.aware import measure_ranges
from exburn.compression.quantization.convert import require_finite
from exburn.compression.quantization.plan import choose, make_plan
from exburn.compression.quantization.settings import QuantizationSettings
from exburn.core.checks import check_number
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.changes import records, simulate_in_place
from exburn.models.copies import go_on_like
from exburn.models.quantizing import (
    calibration_batch,
    check_method,
    round_activations,
)
from exburn.models.session import require_idle
from exburn.module.building import require_built
from exburn.module.copying import twin

RANGES = ("observed", "learned")
MODES = ("int8", "int4", "float8")


@api_boundary
def quantize_aware(
    model: Model,
    mode: str = "int8",
    filters: Any = None,
    *,
    activations: bool | None = None,
    ranges: str = "observed",
    momentum: float = 0.99,
    calibration: Any = None,
    method: str | None = None,
    percentile: float | None = None,
    block_size: int | None = None,
) -> Any:
    """A new model that computes with weights, and activations, of few bits.

    ``fit`` trains it: it reads its weights as they will be stored, and rounds its
    activations to 8 bits within ranges; gradients pass the rounding as if it were not
    there. ``model.quantize()`` then stores it so, and gives the same outputs; files
    that are exported from it compute with the scales of the training. The model that
    is given stays as it is. A compiled one gives a compiled one, which goes on with the
    optimizer's state; its schedule, if it has one, begins anew.

    Activations are rounded where runtimes for integers round them: behind a
    convolution or product with its bias, normalization and relu, behind sums and
    concatenations, and where the inputs come in.

    Args:
        model: A model with weights, trained or not.
        mode: ``"int8"``: weights with a scale for each output. ``"int4"``: with one for
            each block of ``block_size``. ``"float8"``: e4m3, with one for each output.
        filters: Which layers: as of ``model.quantize``; all by default.
        activations: Whether activations are rounded, too: by default with int8 and
            float8. Only then LiteRT and ONNX compute in integers.
        ranges: ``"observed"``: they follow the least and the largest value of each
            batch. ``"learned"``: their ends are trained, and begin as they are on the
            calibration.
        momentum: Of observed ranges: ``end ← momentum * end + (1 - momentum) * now``.
        calibration: Inputs that the ranges are measured on before training; without
            them the first batch of the training is their beginning.
        method: How: ``"minmax"`` (the default), ``"percentile"`` or ``"mse"``; see
            ``model.quantize``.
        percentile: Of that method; 99.99 by default.
        block_size: Of int4: at least 2, or -1 for all that an output sums; 64 by
            default, and -1 with activations.

    Returns:
        The model.

    Raises:
        UnknownNameError: No such mode, ranges or method, or a pattern of ``filters``
            names no layer.
        ArgumentError: The model is quantized or has adapters, no layer can be
            quantized, a weight is not finite, learned ranges have no calibration, or
            an argument is out of range.
        DataError, ShapeError: The calibration does not fit the model.
        DTypeError: It is no model.
        NotBuiltError: The model has no weights yet.
        BusyError: The model is being trained.

    Example:
        >>> import numpy as np
        >>> from exburn import Sequential, layers
        >>> model = Sequential([layers.Input((8,)), layers.Dense(16, "relu"),
        ...                     layers.Dense(2)])
        >>> model.compile("adam", "mse")
        >>> x, y = np.random.default_rng(0).normal(size=(2, 64, 8)).astype("float32")
        >>> aware = quantize_aware(model, "int8")
        >>> _ = aware.fit(x, y[:, :2], epochs=2, verbose=0)
        >>> small = aware.quantize()
        >>> [row.scheme for row in small.quantization_report.layers]
        ['int8 static', 'int8 static']
        >>> bool(np.abs(small.predict(x, verbose=0) - aware.predict(x, verbose=0)).max()
        ...      < 0.05)
        True

    Source: Jacob et al., *Quantization and Training of Neural Networks for Efficient
    Integer-Arithmetic-Only Inference*, 2018.
    """
    op = "quantize_aware"
    if not isinstance(model, Model):
        raise DTypeError(op, f"a model is needed, received {type(model).__name__}")
    for name, value, names in (("mode", mode, MODES), ("ranges", ranges, RANGES)):
        if value not in names:
            raise unknown_name(name, value, names, op=op)
    momentum = check_number(op, "momentum", momentum, high=1, open_high=True)
    if activations is None:
        activations = mode != "int4"
    elif not isinstance(activations, bool):
        raise ArgumentError(
            op, f"activations must be True or False, received {activations!r}"
        )
    percentile = check_method(op, method, calibration, percentile)
    _check_ranges(op, activations, ranges, calibration)
    settings = QuantizationSettings.of(
        mode, _block_size(mode, activations, block_size), op=op
    )
    if activations:
        settings = settings.with_ranges()
    if any(record["kind"] == "quantization" for record in records(model)):
        raise ArgumentError(
            op,
            "the model is quantized already",
            hint="Begin with the exact model; quantize_aware() leaves it alone.",
        )
    require_built(model, op)
    require_idle(model, op)
    chosen = choose(model, filters, op=op)
    require_finite(make_plan(model, settings, chosen, op=op), op)
    batch = calibration_batch(model, calibration, op)
    copy = twin(model)
    plan = make_plan(copy, settings, chosen)
    if activations:
        round_activations(
            copy, plan, chosen, learned=ranges == "learned", momentum=momentum
        )
        if batch is not None:
            measure_ranges(copy, batch, method or "minmax", percentile)
    simulate_in_place(copy, plan)
    go_on_like(copy, model)
    return copy


def _block_size(mode: str, activations: bool, block_size: int | None) -> int | None:
    """Integer arithmetic has one scale for all that an output sums."""
    return -1 if mode == "int4" and activations and block_size is None else block_size


def _check_ranges(op: str, activations: bool, ranges: str, calibration: Any) -> None:
    if not activations and calibration is not None:
        raise ArgumentError(
            op,
            "ranges are measured on the calibration, and there are none: activations "
            "stay exact",
            hint="activations=True, or no calibration.",
        )
    if activations and ranges == "learned" and calibration is None:
        raise ArgumentError(
            op,
            "learned ranges begin with the ends on some data, and there is none",
            hint="Give some hundred rows: calibration=x[:512].",
        )
