"""Random initializers whose variance follows from the number of inputs and outputs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from exburn.core import registry
from exburn.core.checks import check_choice, check_float
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.initializers.random import (
    RandomInitializer,
    normal,
    truncated_normal,
    uniform,
)

__all__ = [
    "GlorotNormal",
    "GlorotUniform",
    "HeNormal",
    "HeUniform",
    "LecunNormal",
    "LecunUniform",
    "VarianceScaling",
    "compute_fans",
]

# Standard deviation of a standard normal distribution cut off at ±2.
_TRUNCATED_STD = 0.87962566103423978


@api_boundary
def compute_fans(
    shape: Sequence[int],
    input_axes: Sequence[int] | None = None,
    output_axes: Sequence[int] | None = None,
) -> tuple[int, int]:
    """Number of inputs and outputs that a weight of this shape connects.

    The last two axes are inputs and outputs, those before them the receptive field of a
    convolution, which counts for both.

    Args:
        shape: Shape of the weight.
        input_axes: Axes whose sizes multiply to the inputs, for other layouts.
        output_axes: Axes whose sizes multiply to the outputs.

    Example:
        >>> compute_fans((784, 256)), compute_fans((3, 3, 16, 32))
        ((784, 256), (144, 288))
    """
    if input_axes is not None and output_axes is not None:
        fan_in = math.prod(shape[axis] for axis in input_axes)
        return fan_in, math.prod(shape[axis] for axis in output_axes)
    if len(shape) < 2:
        size = math.prod(shape)
        return size, size
    field = math.prod(shape[:-2])
    return field * shape[-2], field * shape[-1]


@registry.register_builtin
class VarianceScaling(RandomInitializer):
    """Draws with a variance that keeps signals at one scale from layer to layer.

    ``Var(w) = scale / n`` with n the number of inputs, outputs, or their mean.

    Args:
        scale: Factor of the variance.
        mode: What n is: ``"fan_in"``, ``"fan_out"`` or ``"fan_avg"``.
        distribution: ``"truncated_normal"`` (cut off at two deviations, and widened so
            that the variance holds), ``"untruncated_normal"`` or ``"uniform"``.
        input_axes: Axes that count as inputs, together with ``output_axes``; by default
            see :func:`compute_fans`.
        output_axes: Axes that count as outputs.

    Raises:
        ArgumentError: An argument is none of the values above.
        ShapeError: The weight has no such axes.

    Example:
        >>> init = VarianceScaling(2.0, "fan_in", "untruncated_normal", seed=0)
        >>> round(float(init((200, 300)).std()), 2)
        0.1

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    def __init__(
        self,
        scale: float = 1.0,
        mode: str = "fan_in",
        distribution: str = "truncated_normal",
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        super().__init__(seed)
        op = type(self).__name__
        if not scale > 0:
            raise ArgumentError(op, f"scale must be above 0, received {scale!r}")
        mode = check_choice(op, "mode", mode, ("fan_in", "fan_out", "fan_avg"))
        distribution = str(distribution).lower()
        if distribution == "normal":
            distribution = "truncated_normal"
        distributions = ("truncated_normal", "untruncated_normal", "uniform")
        distribution = check_choice(op, "distribution", distribution, distributions)
        if (input_axes is None) != (output_axes is None):
            raise ArgumentError(op, "input_axes and output_axes go together: pass both")
        self.scale = check_float(op, "scale", scale)
        self.mode, self.distribution = mode, distribution
        self.input_axes = None if input_axes is None else tuple(input_axes)
        self.output_axes = None if output_axes is None else tuple(output_axes)

    def draw(self, shape, dtype, rng):
        try:
            fan_in, fan_out = compute_fans(shape, self.input_axes, self.output_axes)
        except IndexError:
            axes = {"input_axes": self.input_axes, "output_axes": self.output_axes}
            raise ShapeError(
                type(self).__name__, f"a weight of shape {shape} lacks these axes", axes
            ) from None
        n = {"fan_in": fan_in, "fan_out": fan_out, "fan_avg": (fan_in + fan_out) / 2}
        variance = self.scale / max(1.0, n[self.mode])
        if self.distribution == "uniform":
            limit = math.sqrt(3 * variance)
            return uniform(rng, shape, dtype, -limit, limit)
        if self.distribution == "untruncated_normal":
            return normal(rng, shape, dtype, math.sqrt(variance))
        return truncated_normal(rng, shape, dtype, math.sqrt(variance) / _TRUNCATED_STD)

    def get_config(self) -> dict[str, Any]:
        config = {k: getattr(self, k) for k in ("scale", "mode", "distribution")}
        for key in ("input_axes", "output_axes"):
            axes = getattr(self, key)
            config[key] = None if axes is None else list(axes)
        return {**super().get_config(), **config}


class _FixedScaling(VarianceScaling):
    """A variance scaling whose scale, mode and distribution the class decides."""

    _fixed: tuple[float, str, str]

    def __init__(
        self,
        seed: Any = None,
        input_axes: Sequence[int] | None = None,
        output_axes: Sequence[int] | None = None,
    ):
        super().__init__(*self._fixed, seed, input_axes, output_axes)

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        return {k: config[k] for k in ("seed", "input_axes", "output_axes")}


@registry.register_builtin
class GlorotUniform(_FixedScaling):
    """Uniform, keeping the variance of signals and gradients (Xavier).

    ``w ~ U(-a, a)`` with ``a = √(6 / (fan_in + fan_out))``

    Example:
        >>> value = GlorotUniform(seed=0)((100, 200))
        >>> bool(abs(value).max() <= (6 / 300) ** 0.5)
        True

    Source: Glorot & Bengio, *Understanding the Difficulty of Training Deep Feedforward
    Neural Networks*, 2010.
    """

    _fixed = (1.0, "fan_avg", "uniform")


@registry.register_builtin
class GlorotNormal(_FixedScaling):
    """Truncated normal, keeping the variance of signals and gradients (Xavier).

    ``Var(w) = 2 / (fan_in + fan_out)``

    Example:
        >>> round(float(GlorotNormal(seed=0)((100, 100)).std()), 2)
        0.1

    Source: Glorot & Bengio, *Understanding the Difficulty of Training Deep Feedforward
    Neural Networks*, 2010.
    """

    _fixed = (1.0, "fan_avg", "truncated_normal")


@registry.register_builtin
class HeNormal(_FixedScaling):
    """Truncated normal for layers followed by ReLU (Kaiming).

    ``Var(w) = 2 / fan_in``

    Example:
        >>> round(float(HeNormal(seed=0)((200, 300)).std()), 2)
        0.1

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    _fixed = (2.0, "fan_in", "truncated_normal")


@registry.register_builtin
class HeUniform(_FixedScaling):
    """Uniform for layers followed by ReLU (Kaiming).

    ``w ~ U(-a, a)`` with ``a = √(6 / fan_in)``

    Example:
        >>> bool(abs(HeUniform(seed=0)((600, 10))).max() <= 0.1)
        True

    Source: He et al., *Delving Deep into Rectifiers*, 2015.
    """

    _fixed = (2.0, "fan_in", "uniform")


@registry.register_builtin
class LecunNormal(_FixedScaling):
    """Truncated normal with variance one over the inputs; goes with SELU.

    ``Var(w) = 1 / fan_in``

    Example:
        >>> round(float(LecunNormal(seed=0)((100, 300)).std()), 2)
        0.1

    Source: LeCun et al., *Efficient BackProp*, 1998.
    """

    _fixed = (1.0, "fan_in", "truncated_normal")


@registry.register_builtin
class LecunUniform(_FixedScaling):
    """Uniform with variance one over the inputs.

    ``w ~ U(-a, a)`` with ``a = √(3 / fan_in)``

    Example:
        >>> bool(abs(LecunUniform(seed=0)((300, 10))).max() <= 0.1)
        True

    Source: LeCun et al., *Efficient BackProp*, 1998.
    """

    _fixed = (1.0, "fan_in", "uniform")
