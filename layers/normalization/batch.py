"""Batch normalization."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.core import Tracer

from exburn import initializers
from exburn.core import forward_context, quick_trace
from exburn.core.annotations import Identifier
from exburn.core.checks import check_integer, check_number
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.normalization.layer import LayerNormalization, ScaledNormalization
from exburn.module.input_spec import InputSpec
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import Weight
from exburn.runtime.cached_trace import traced_once
from exburn.runtime.sharding.current import row_parts, to_all


@register_builtin
class BatchNormalization(ScaledNormalization):
    """Normalizes every channel by its mean and variance over the batch.

    ``y = (x - mean) / sqrt(variance + epsilon) * gamma + beta``

    In training these are the statistics of the batch, without its padding rows and
    masked steps, and the moving ones follow them: ``m ← momentum * m + (1 - momentum) *
    mean``. In inference, and while the layer is frozen (``trainable=False``), they are
    the moving ones. In a program over several devices the statistics are always those
    of the whole batch.

    Args:
        axis: The axis of the channels.
        momentum: Momentum of the moving statistics.
        moving_mean_initializer: Initializer of the moving mean.
        moving_variance_initializer: Initializer of the moving variance.
        renorm: Whether to correct training by the moving statistics.
        renorm_clipping: Bounds ``rmin``, ``rmax`` and ``dmax`` of that correction.
        renorm_momentum: Momentum of the statistics that the correction uses.
        synchronized: Accepted for Keras code; statistics are synchronized anyway.

    Shape:
        x: [batch, …, channels] → the same; mask: the first axes of x

    Raises:
        ArgumentError: ``renorm_clipping`` has unknown or contradictory entries.
        ShapeError: The size of the channel axis is unknown or changes.

    Example:
        >>> import numpy as np
        >>> layer = BatchNormalization(momentum=0.5)
        >>> x = np.array([[1.0], [3.0]])
        >>> np.round(layer(x, training=True), 2).tolist()
        [[-1.0], [1.0]]
        >>> layer.moving_mean.numpy().tolist()
        [1.0]

    Source: Ioffe & Szegedy, *Batch Normalization*, 2015; Ioffe, *Batch
    Renormalization*, 2017.
    """

    _described_by = (LayerNormalization,)
    supports_masking = True
    moving_mean: Weight
    moving_variance: Weight
    moving_stddev: Weight
    renorm_mean: Weight
    renorm_stddev: Weight

    def __init__(
        self,
        axis: int | Sequence[int] = -1,
        momentum: float = 0.99,
        epsilon: float = 1e-3,
        center: bool = True,
        scale: bool = True,
        beta_initializer: Identifier = "zeros",
        gamma_initializer: Identifier = "ones",
        moving_mean_initializer: Identifier = "zeros",
        moving_variance_initializer: Identifier = "ones",
        beta_regularizer: Identifier = None,
        gamma_regularizer: Identifier = None,
        beta_constraint: Identifier = None,
        gamma_constraint: Identifier = None,
        renorm: bool = False,
        renorm_clipping: Any = None,
        renorm_momentum: float = 0.99,
        synchronized: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        op = "BatchNormalization"
        axis = check_integer(op, "axis", axis)
        super().__init__(
            axis=axis,
            epsilon=epsilon,
            center=center,
            scale=scale,
            beta_initializer=beta_initializer,
            gamma_initializer=gamma_initializer,
            beta_regularizer=beta_regularizer,
            gamma_regularizer=gamma_regularizer,
            beta_constraint=beta_constraint,
            gamma_constraint=gamma_constraint,
            **kwargs,
        )
        self.axis: int = axis
        self.momentum = check_number(op, "momentum", momentum, high=1.0)
        self.moving_mean_initializer = initializers.get(moving_mean_initializer)
        self.moving_variance_initializer = initializers.get(moving_variance_initializer)
        self.renorm = bool(renorm)
        self.renorm_momentum = check_number(
            op, "renorm_momentum", renorm_momentum, high=1.0
        )
        self.synchronized = bool(synchronized)
        self.renorm_clipping = renorm_clipping
        self._clipping = _check_clipping(renorm_clipping or {})

    def build(self, input_shape):
        if not -len(input_shape) <= self.axis < len(input_shape):
            raise ShapeError(
                self.name,
                f"axis={self.axis} must be an axis of the input, received shape "
                f"{input_shape}",
                hint="Use axis=-1 for channels in the last axis.",
            )
        axis, shape = self.axis, (input_shape[self.axis],)
        self._add_scale(shape)
        variance = self.moving_variance_initializer

        def deviation(shape, dtype):
            return np.sqrt(variance(shape, dtype))

        statistics = {
            "moving_mean": self.moving_mean_initializer,
            "moving_variance": variance,
        }
        if self.renorm:
            statistics["moving_stddev"] = deviation
            statistics["renorm_mean"] = self.moving_mean_initializer
            statistics["renorm_stddev"] = deviation
        for name, initializer in statistics.items():
            # half precision would swallow the small steps of a moving average
            buffer = self.add_weight(
                shape, initializer, "float32", trainable=False, name=name
            )
            setattr(self, name, buffer)
        self.input_spec = InputSpec(ndim=len(input_shape), axes={axis: shape[0]})

    def call(self, inputs, training=False, mask=None):
        x = inputs.astype(jnp.float32)
        channel = self.axis % x.ndim
        one, zero = np.float32(1), np.float32(0)
        gamma = one if self.gamma is None else self.cast(self.gamma, jnp.float32)
        beta = zero if self.beta is None else self.cast(self.beta, jnp.float32)
        if training and self.trainable:
            rows, steps = self._rows(x), self._steps(x, mask)
            running = None
            if self.renorm:
                running = self.renorm_mean.get_value(), self.renorm_stddev.get_value()
            y, mean, variance, share = _normalize(
                *(x, rows, steps, gamma, beta, running),
                *(channel, self.epsilon, self._clipping),
            )
            self._follow(mean, variance, share)
        else:
            mean = self.moving_mean.get_value()
            variance = self.moving_variance.get_value()
            y = _scale(x, mean, variance, gamma, beta, channel, self.epsilon)
        return self.cast(y)

    def _rows(self, x):
        """Which rows are no padding, as booleans that broadcast to ``x``."""
        ctx = forward_context.current()
        rows = None if ctx is None else ctx.row_mask
        if rows is None or rows.shape[0] != x.shape[0]:  # constants of another size
            return None
        return rows.astype(bool).reshape((-1,) + (1,) * (x.ndim - 1))

    def _steps(self, x, mask):
        """Which steps a mask keeps, as booleans that broadcast to ``x``; None: all."""
        if mask is None:
            return None
        mask = jnp.asarray(mask, bool)
        sizes = zip(mask.shape, x.shape, strict=False)
        if mask.ndim >= x.ndim or any(m != 1 and m != n for m, n in sizes):
            raise ShapeError(
                self.name,
                "the mask's shape must be that of the input's first axes, or 1",
                {"mask": describe(mask), "input": describe(x)},
            )
        return mask.reshape(mask.shape + (1,) * (x.ndim - mask.ndim))

    def _follow(self, mean, variance, share) -> None:
        """Moves the moving statistics, unless nothing in the batch counts."""

        def move(buffer, value, momentum):
            old = buffer.get_value()
            old_share, added = momentum, 1 - momentum
            if not isinstance(momentum, Tracer):  # of a program's arguments
                old_share, added = np.float32(old_share), np.float32(added)
            new = lax.add(lax.mul(old, old_share), lax.mul(value, added))
            buffer.assign(new if share is None else jnp.where(share > 0, new, old))

        move(self.moving_mean, mean, self.momentum)
        if not self.renorm:
            move(self.moving_variance, variance, self.momentum)
            return
        stddev = jnp.sqrt(variance + self.epsilon)
        move(self.renorm_mean, mean, self.renorm_momentum)
        move(self.renorm_stddev, stddev, self.renorm_momentum)
        move(self.moving_stddev, stddev, self.momentum)
        moving = self.moving_stddev.get_value()
        self.moving_variance.assign(jax.nn.relu(moving * moving - self.epsilon))


# In lax, which is traced in a third of the time: there are 53 in a ResNet-50.
@traced_once("channel", "epsilon", "clipping")
def _normalize(x, rows, steps, gamma, beta, renorm, channel, epsilon, clipping):
    """The batch by its own statistics.

    One pass over it needs E[x²] - E[x]², which is exact only if the mean is near zero.
    So the first entry of each channel is taken off before.

    Args:
        rows: Which rows are no padding, as booleans that broadcast to ``x``; or None.
            Whatever the padding holds, it is not computed with: it is zero from the
            first pass over the batch on.
        steps: Which entries a mask keeps. The others have outputs, too.

    Returns:
        The output; mean and variance of the kept entries, without gradients; their
        share of all, None if all are kept.
    """
    keep = rows if steps is None else steps if rows is None else steps & rows
    if keep is None and _has_parts(x, channel):
        share = None
        near, mean, variance = _statistics_of_parts(x, channel)
        x = lax.sub(x, near)
    else:
        near = lax.stop_gradient(_first(x, channel))
        if keep is not None:  # cut first: XLA's CPU backend computes what others cut
            near = jnp.where(_first(keep, channel), near, 0)
        x = lax.sub(x, near)
        if rows is not None:
            x = jnp.where(rows, x, 0)
        entries = x if keep is None or steps is None else jnp.where(keep, x, 0)
        mean, square, share = _moments(entries, keep, channel)
        # relu, not maximum, whose gradient asks for ties: 15 kernels of a ResNet-50.
        variance = quick_trace.relu(lax.sub(square, lax.square(mean)))
    seen = lax.stop_gradient((lax.add(mean, lax.reshape(near, mean.shape)), variance))
    if renorm is not None:
        r, d = _correction(seen, renorm, epsilon, clipping)
        gamma, beta = r * gamma, d * gamma + beta
    return _affine(x, mean, variance, gamma, beta, channel, epsilon), *seen, share


def _moments(entries, keep, channel):
    """Means of the kept entries and of their squares; their share of all, or None.

    Args:
        entries: The entries, zeros where they are not kept.
    """
    mean, square = _mean(entries, channel), _mean(lax.square(entries), channel)
    if keep is None:
        return mean, square, None
    axes = tuple(a for a in range(entries.ndim) if a != channel)
    share = jnp.mean(keep, axes, jnp.float32)  # [1], or [channels]
    some = jnp.where(share > 0, share, 1)
    return mean / some, square / some, share


def _has_parts(x, channel):
    """Whether devices divide the batch into equal parts."""
    parts, rows = row_parts(), x.shape[0]
    return parts > 1 and channel > 0 and isinstance(rows, int) and rows % parts == 0


def _statistics_of_parts(x, channel):
    """Statistics of a batch that devices divide, by one message between them.

    As on one device, each would have to know the batch's first entry before it sums
    anything, which is a second message. Here each takes off the first of its own part.

    Returns:
        The batch's first entry of each channel, without a gradient, in a shape that
        broadcasts to ``x``; mean and variance of what is left without it.

    Source: Chan et al., *Updating Formulae and a Pairwise Algorithm for Computing
    Sample Variances*, 1979.
    """
    parts, channels = row_parts(), x.shape[channel]
    apart = lax.reshape(x, (parts, x.shape[0] // parts, *x.shape[1:]))
    axes = tuple(a for a in range(1, apart.ndim) if a != channel + 1)
    sizes = [1 if a in axes else n for a, n in enumerate(apart.shape)]
    near = lax.stop_gradient(lax.slice(apart, [0] * apart.ndim, sizes))
    apart = apart - near
    mean = apart.mean(axes)
    own = jnp.stack(  # [parts, 3, channels]
        [near.reshape(parts, channels), mean, (apart * apart).mean(axes) - mean * mean],
        axis=1,
    )
    near, means, variances = jnp.unstack(to_all(own), axis=1)
    means = means + (near - near[:1])
    mean = means.mean(0)
    variance = quick_trace.relu((variances + jnp.square(means - mean)).mean(0))
    return lax.reshape(near[0], _alone(x, channel)), mean, variance


@traced_once("channel", "epsilon")
def _scale(x, mean, variance, gamma, beta, channel, epsilon):
    return _affine(x, mean, variance, gamma, beta, channel, epsilon)


def _affine(x, mean, variance, gamma, beta, channel, epsilon):
    factor = lax.mul(lax.rsqrt(lax.add(variance, np.float32(epsilon))), gamma)
    # One product and one sum for each entry: (x - mean) * factor + beta makes XLA's CPU
    # backend pass over the batch more often for the gradient.
    offset = lax.sub(beta, lax.mul(mean, factor))
    sizes = _alone(x, channel)
    return lax.add(lax.mul(x, lax.reshape(factor, sizes)), lax.reshape(offset, sizes))


def _correction(seen, running, epsilon, clipping):
    """The factor and offset that renorm corrects normalized values by."""
    (mean, variance), (renorm_mean, renorm_stddev) = seen, running
    rmin, rmax, dmax = clipping
    stddev = jnp.maximum(renorm_stddev, math.sqrt(epsilon))
    r = jnp.clip(jnp.sqrt(variance + epsilon) / stddev, rmin, rmax)
    d = (mean - renorm_mean) / stddev
    return r, d if dmax is None else jnp.clip(d, -dmax, dmax)


def _mean(x, channel):
    """The mean of each channel."""
    axes = tuple(a for a in range(x.ndim) if a != channel)
    size = math.prod(x.shape[a] for a in axes)
    return lax.div(lax.reduce_sum(x, axes), lax.convert_element_type(size, x.dtype))


def _first(x, channel):
    """The first entry of each channel, in a shape that broadcasts as ``x`` does."""
    return lax.slice(x, [0] * x.ndim, _alone(x, channel))


def _alone(x, channel):
    """The shape in which a vector of the channels broadcasts to ``x``."""
    return [size if a == channel else 1 for a, size in enumerate(x.shape)]


def _check_clipping(bounds: dict) -> tuple:
    unknown = set(bounds) - {"rmin", "rmax", "dmax"}
    rmin, rmax, dmax = (bounds.get(k) for k in ("rmin", "rmax", "dmax"))
    crossed = rmin is not None and rmax is not None and rmax < rmin
    if unknown or crossed or (dmax is not None and dmax < 0):
        raise ArgumentError(
            "BatchNormalization",
            "renorm_clipping holds rmin <= rmax and dmax >= 0, all optional",
            {"received": bounds},
        )
    return rmin, rmax, dmax
