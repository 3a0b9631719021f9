"""Random orthogonal matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from exburn.core import registry
from exburn.core.checks import check_float
from exburn.errors import ShapeError
from exburn.initializers.random import RandomInitializer


@registry.register_builtin
class Orthogonal(RandomInitializer):
    """A random matrix with orthonormal rows or columns, whichever are fewer.

    All axes but the last are taken together as rows: ``QᵀQ = gain² · I`` if there are
    at least as many rows as columns, else ``QQᵀ = gain² · I``.

    Args:
        gain: Factor of the matrix.

    Raises:
        ShapeError: The weight has fewer than two axes.

    Example:
        >>> q = Orthogonal(seed=0)((4, 3))
        >>> bool(np.allclose(q.T @ q, np.eye(3), atol=1e-5))
        True

    Source: Saxe et al., *Exact Solutions to the Nonlinear Dynamics of Learning in Deep
    Linear Neural Networks*, 2014; drawn as in Stewart, *The Efficient Generation of
    Random Orthogonal Matrices*, 1980.
    """

    def __init__(self, gain: float = 1.0, seed: Any = None):
        super().__init__(seed)
        self.gain = check_float("Orthogonal", "gain", gain)

    def draw(self, shape, dtype, rng):
        if len(shape) < 2:
            raise ShapeError(
                type(self).__name__,
                f"the weight needs at least two axes, received shape {shape}",
            )
        rows, columns = math.prod(shape[:-1]), shape[-1]
        q = _orthonormal(rng, max(rows, columns), min(rows, columns), dtype)
        q *= self.gain
        return (q if rows >= columns else q.T).reshape(shape)

    def get_config(self):
        return {"gain": self.gain, **super().get_config()}


def _orthonormal(rng, rows, columns, dtype, block=128) -> np.ndarray:
    """The Q of a Gaussian matrix's QR decomposition with a positive diagonal of R.

    What a Householder reflection leaves below and right of its pivot is Gaussian again,
    and independent of it. So column i of one triangle of fresh normal values already
    holds the i-th reflection, nothing has to be decomposed, and Q is the product of the
    reflections, taken ``block`` at a time as ``I - V T Vᵀ``. That is seven to thirty
    times faster than ``np.linalg.qr``, which works in float64 throughout.
    """
    v = np.tril(rng.standard_normal((rows, columns), dtype))
    diagonal = np.einsum("ii->i", v[:columns])
    sign = np.copysign(dtype.type(1), diagonal)
    diagonal += sign * np.sqrt(np.einsum("ij,ij->j", v, v))
    diagonal[diagonal == 0] = 1  # a pivot of exactly 0 in the last row
    v *= np.sqrt(2 / np.einsum("ij,ij->j", v, v))
    q = np.zeros((rows, columns), dtype)
    np.einsum("ii->i", q[:columns])[:] = -sign
    for start in reversed(range(0, columns, block)):
        part = v[start:, start : start + block]
        t = np.linalg.inv(np.triu(part.T @ part, 1) + np.eye(part.shape[1]))
        rest = q[start:, start:]
        rest -= part @ (t.astype(dtype) @ (part.T @ rest))
    return q
