"""``model.compress``: a smaller model that is nearly as good."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from exburn.models.model import Model


def compress(
    self: Model,
    x: Any,
    y: Any = None,
    target: Any = "4x",
    within: float = 0.5,
    *,
    validation_data: Any = None,
    validation_split: float = 0.2,
    metric: str | None = None,
    epochs: int = 5,
    batch_size: int = 32,
    temperature: float = 2.0,
    student_loss_weight: float = 0.5,
    verbose: int | str = 0,
) -> Any:
    """The smallest of several smaller models that is good enough; this one stays.

    It tries, in this order, until a model reaches the target within the points:

    1. weights in 16, 8 and 4 bits, which takes no training: the smallest that is good;
    2. 4 bits, trained with their rounding;
    3. a quarter, a half and three quarters of the units of each layer taken away,
       trained, and stored in 8 and in 4 bits.

    Ways whose file would miss the target come last, smallest first. What is trained is
    trained on the data and beside this model, by an ``exburn.Distiller``. Size is what
    the file takes. ``exburn.compression.plan(model)`` tells sizes, operations and speed
    beforehand.

    Args:
        x, y: Data to train on, as of ``fit``.
        target: How many times smaller the file is to be: ``"4x"``, or a number.
            ``None``: as small as the points allow. The smallest file comes first then,
            and most of them are trained.
        within: Points that may be lost: hundredths of an accuracy or another metric
            between 0 and 1 that rises; of others, as a loss, per cent of this model's.
        validation_data: What models are scored on, as of ``fit``.
        validation_split: Without it, the share of the rows, taken from the end, that
            models are scored on and not trained on.
        metric: Name of the score; by default the first metric of ``compile``, or the
            loss.
        epochs, batch_size, verbose: Of each training.
        temperature: As of ``exburn.distillation.SoftTargets``.
        student_loss_weight: As of ``exburn.Distiller``.

    Returns:
        The model, whose ``compression_report`` tells what was tried and what became of
        it. If no way stays within the points, it is a copy of this one, with a warning.

    Raises:
        NotCompiledError: ``compile`` was not called.
        NotBuiltError: The model has no weights yet.
        BusyError: The model is being trained.
        ArgumentError: A number is out of range, no way is open to the model, the
            direction of the metric is unknown, or data is an iterator, which several
            trainings cannot share.
        UnknownNameError: There is no such metric.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> from exburn.layers import Dense, Input
        >>> x = np.random.default_rng(0).normal(size=(200, 64)).astype("float32")
        >>> y = (x.sum(-1) > 0).astype(int)
        >>> model = exburn.Sequential([Input((64,)), Dense(256, "relu"), Dense(2)])
        >>> model.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
        >>> _ = model.fit(x, y, epochs=3, verbose=0)
        >>> small = model.compress(x, y, target="3x", within=20)
        >>> report = small.compression_report
        >>> report.chosen.name, report.reached
        ('int4', True)
    """
    # On a level above models, and loaded for those who compress.
    module = importlib.import_module("exburn.compression.compressing")
    return module.compress(
        self,
        x,
        y,
        target,
        within,
        validation_data=validation_data,
        validation_split=validation_split,
        metric=metric,
        epochs=epochs,
        batch_size=batch_size,
        temperature=temperature,
        student_loss_weight=student_loss_weight,
        verbose=verbose,
    )
