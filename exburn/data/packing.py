"""A batch as one object, in the forms that Keras' steps take."""

from __future__ import annotations

from typing import Any

from exburn.errors import DataError
from exburn.errors.boundary import api_boundary


@api_boundary
def pack_x_y_sample_weight(x: Any, y: Any = None, sample_weight: Any = None) -> Any:
    """A batch as ``x`` alone, ``(x, y)`` or ``(x, y, sample_weight)``.

    Args:
        x: Inputs.
        y: Targets.
        sample_weight: Weights of the rows.

    Example:
        >>> pack_x_y_sample_weight(1, 2)
        (1, 2)
    """
    if y is None and sample_weight is None:
        return (x,) if isinstance(x, list | tuple) else x
    return (x, y) if sample_weight is None else (x, y, sample_weight)


@api_boundary
def unpack_x_y_sample_weight(data: Any) -> tuple[Any, Any, Any]:
    """``x``, ``y`` and ``sample_weight`` of a batch, ``None`` for what it lacks.

    Args:
        data: A batch, or a tuple of up to three of these.

    Raises:
        DataError: A tuple of more than three.

    Example:
        >>> unpack_x_y_sample_weight((1, 2))
        (1, 2, None)
    """
    parts = tuple(data) if isinstance(data, list | tuple) else (data,)
    if not 1 <= len(parts) <= 3:
        raise DataError(
            "unpack_x_y_sample_weight",
            f"a batch is x, (x, y) or (x, y, sample_weight), not {len(parts)} parts",
        )
    x, y, sample_weight = (*parts, None, None)[:3]
    return x, y, sample_weight
