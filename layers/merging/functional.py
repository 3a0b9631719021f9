"""Merging layers as functions, as in ``add([x, y])``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from exburn.errors.boundary import api_boundary
from exburn.layers.merging.concatenate import Concatenate, Dot
from exburn.layers.merging.elementwise import (
    Add,
    Average,
    Maximum,
    Minimum,
    Multiply,
    Subtract,
)
from exburn.module.layer_options import LayerOptions

__all__ = [
    "add",
    "average",
    "concatenate",
    "dot",
    "maximum",
    "minimum",
    "multiply",
    "subtract",
]


@api_boundary
def add(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """Sum of a list of inputs; see :class:`exburn.layers.Add`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> add([np.array([1.0]), np.array([2.0])]).tolist()
        [3.0]
    """
    return Add(**kwargs)(inputs)


@api_boundary
def subtract(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """First input minus the second; see :class:`exburn.layers.Subtract`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> subtract([np.array([1.0]), np.array([2.0])]).tolist()
        [-1.0]
    """
    return Subtract(**kwargs)(inputs)


@api_boundary
def multiply(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """Product of a list of inputs; see :class:`exburn.layers.Multiply`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> multiply([np.array([3.0]), np.array([2.0])]).tolist()
        [6.0]
    """
    return Multiply(**kwargs)(inputs)


@api_boundary
def average(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """Mean of a list of inputs; see :class:`exburn.layers.Average`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> average([np.array([3.0]), np.array([2.0])]).tolist()
        [2.5]
    """
    return Average(**kwargs)(inputs)


@api_boundary
def maximum(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """Largest of a list of inputs; see :class:`exburn.layers.Maximum`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> maximum([np.array([3.0]), np.array([2.0])]).tolist()
        [3.0]
    """
    return Maximum(**kwargs)(inputs)


@api_boundary
def minimum(inputs: Any, **kwargs: Unpack[LayerOptions]) -> Any:
    """Smallest of a list of inputs; see :class:`exburn.layers.Minimum`.

    Args:
        inputs: Symbols or arrays of one shape.

    Example:
        >>> import numpy as np
        >>> minimum([np.array([3.0]), np.array([2.0])]).tolist()
        [2.0]
    """
    return Minimum(**kwargs)(inputs)


@api_boundary
def concatenate(inputs: Any, axis: int = -1, **kwargs: Unpack[LayerOptions]) -> Any:
    """Joins a list of inputs along an axis; see :class:`exburn.layers.Concatenate`.

    Args:
        inputs: Symbols or arrays.
        axis: Along which axis.

    Example:
        >>> import numpy as np
        >>> concatenate([np.ones((2, 3)), np.ones((2, 4))]).shape
        (2, 7)
    """
    return Concatenate(axis, **kwargs)(inputs)


@api_boundary
def dot(
    inputs: Any, axes: int | Sequence[int] = -1, **kwargs: Unpack[LayerOptions]
) -> Any:
    """Dot product of two inputs, sample by sample; see :class:`exburn.layers.Dot`.

    Args:
        inputs: Two symbols or arrays.
        axes: The axis of each, or of both, that is summed over.

    Example:
        >>> import numpy as np
        >>> dot([np.ones((2, 3)), np.ones((2, 3))]).tolist()
        [[3.0], [3.0]]
    """
    return Dot(axes, **kwargs)(inputs)
