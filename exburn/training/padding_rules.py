"""What each layer makes of rows that are filled up to one length.

A layer of the catalogue either leaves filled-up positions out by a mask, computes each
position by itself, is given an input in which they do no harm, or is refused by name.
Layers that hold others, and those of users, are not in the table: what they call is
looked at by itself, and `padding_probe` tries the whole model.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp

from exburn import layers
from exburn.core.batch_independence import is_foreign
from exburn.errors import ShapeError
from exburn.layers.contract.pure import PureLayer
from exburn.layers.convolution.conv import Convolution
from exburn.layers.convolution.transposed import ConvTranspose
from exburn.layers.normalization import layer as normalization
from exburn.layers.pooling.window import Pooling
from exburn.module.layer import Layer
from exburn.module.traversal import children

_FLAT = "position by position it takes rows of features, [batch, time, features]"
_POINTWISE = (
    layers.Activation,
    layers.Dropout,
    layers.SpatialDropout1D,
    layers.GaussianDropout,
    layers.GaussianNoise,
    layers.AlphaDropout,
    layers.ReLU,
    layers.LeakyReLU,
    layers.ELU,
    layers.Identity,
    layers.Masking,
    layers.Embedding,
    layers.PositionEmbedding,
    layers.Rescaling,
)
ATTENTION = (layers.MultiHeadAttention, layers.GroupedQueryAttention)
"""Layers of attention that keep to the documents of packed rows."""
_ATTENTION = (*ATTENTION, layers.Attention, layers.AdditiveAttention)
_MASKED = (
    layers.RNN,
    layers.Bidirectional,
    layers.TimeDistributed,
    layers.GlobalAveragePooling1D,
    *_ATTENTION,
)


@dataclasses.dataclass(frozen=True)
class Window:
    """Windows along time: their reach in positions, their step, and where they begin.

    Attributes:
        whole: Whether a window lies within the row; else it begins before it.
    """

    reach: int
    step: int
    whole: bool

    def length(self, length: Any) -> Any:
        """How many windows a row of some length has."""
        if self.whole:
            return (length - self.reach) // self.step + 1
        return (length - 1) // self.step + 1

    def mask(self, mask: Any) -> Any:
        """Which windows are of real positions, for which of those are real."""
        return mask[:, self.reach - 1 if self.whole else 0 :: self.step]


@dataclasses.dataclass(frozen=True)
class Rule:
    """How a layer is called on filled-up rows.

    Attributes:
        fill: What filled-up positions of its input are set to, a function of the
            input; ``None`` if they may be anything.
        window: How positions of its output come of those of its input; ``None`` if
            each comes of one.
    """

    fill: Callable[[Any], Any] | None = None
    window: Window | None = None


_PLAIN = Rule()
_ZEROS = Rule(fill=jnp.zeros_like)


def rule_of(layer: Any, path: str, inside: Any, ndim: int) -> Rule:
    """The rule of a layer that is called on filled-up rows.

    Args:
        path: What errors call it.
        inside: The layer whose call it is a part of, if any.
        ndim: Axes of its input.

    Raises:
        ShapeError: It would mix real and filled-up positions.
    """
    if layer.is_model:
        return _PLAIN
    if getattr(layer, "stateful", False):
        raise _refuse(layer, path, "its state goes from row to row of batches in order")
    if layer.activity_regularizer is not None:
        raise _refuse(layer, path, "its activity_regularizer counts every position")
    if is_foreign(layer) or isinstance(layer, layers.Lambda | PureLayer):
        return _PLAIN
    if isinstance(inside, _ATTENTION):
        return _PLAIN  # a part of it, which computes each position
    if isinstance(layer, layers.RNN):
        backward = layer.go_backwards and layer.return_sequences
        if backward and not isinstance(inside, layers.Bidirectional):
            raise _refuse(layer, path, "go_backwards puts the filling before the row")
        return _PLAIN
    if isinstance(layer, _MASKED + _POINTWISE):
        return _PLAIN
    if isinstance(layer, layers.GlobalMaxPooling1D):
        return Rule(fill=_lowest)
    if isinstance(layer, Convolution | Pooling):
        return _windows(layer, path)
    if reason := _mixes(layer, ndim):
        raise _refuse(layer, path, reason)
    return _PLAIN


def check_packed_layer(layer: Any, path: str, ndim: int) -> None:
    """Raises if a layer would mix the documents of packed rows.

    Args:
        path: What errors call it.
        ndim: Axes of its input.

    Raises:
        ShapeError: It would.
    """
    if layer.is_model or isinstance(layer, ATTENTION):
        return
    if is_foreign(layer) or isinstance(layer, layers.Lambda | PureLayer):
        return  # which the whole model is tried for
    reason = _reason_against_packed(layer, ndim)
    if layer.activity_regularizer is not None:
        reason = "its activity_regularizer counts what fills rows up"
    if reason is not None:
        raise ShapeError(
            path,
            f"a {type(layer).__name__} cannot take packed rows: {reason}",
            hint="Give the model the documents one by one, as rows of unlike lengths.",
        )


def _reason_against_packed(layer: Any, ndim: int) -> str | None:
    """Why a layer would mix documents; ``None`` if it computes each token."""
    if isinstance(layer, layers.RNN | layers.Bidirectional):
        return "its state goes on from document to document"
    if isinstance(layer, Convolution | Pooling):
        return "its windows reach from document to document"
    if isinstance(layer, layers.GlobalAveragePooling1D | layers.GlobalMaxPooling1D):
        return "it pools over all documents of a row"
    if isinstance(layer, layers.BatchNormalization):
        return "its statistics would be those of what fills rows up, too"
    if isinstance(layer, layers.Attention | layers.AdditiveAttention):
        return "it knows of no documents"
    if isinstance(layer, layers.Softmax):
        return _of_axes(layer.axis, ndim)
    return None if isinstance(layer, _POINTWISE) else _mixes(layer, ndim)


def _lowest(x: Any) -> Any:
    low = -jnp.inf if jnp.issubdtype(x.dtype, jnp.floating) else jnp.iinfo(x.dtype).min
    return jnp.full_like(x, low)


def _windows(layer: Any, path: str) -> Rule:
    """The rule of a convolution or a pooling over windows of time."""
    if layer.rank != 1 or isinstance(layer, ConvTranspose):
        raise _refuse(layer, path, "it knows of no mask")
    if layer.data_format != "channels_last":
        raise _refuse(layer, path, "time must be its second axis: channels_last")
    (step,), pools = layer.strides, isinstance(layer, Pooling)
    size = layer.pool_size if pools else layer.kernel_size
    reach = (size[0] - 1) * getattr(layer, "dilation_rate", (1,))[0] + 1
    fill = None if pools else jnp.zeros_like
    if layer.padding == "valid":
        return Rule(fill, Window(reach, step, whole=True))
    if layer.padding == "causal":
        return Rule(fill, Window(reach, step, whole=False))
    if step > 1:
        hint = "where its windows begin depends on the length: padding='valid'"
        raise _refuse(layer, path, hint)
    if not pools:
        return _ZEROS
    if isinstance(layer, layers.MaxPooling1D):
        return Rule(fill=_lowest)
    raise _refuse(layer, path, "its windows at the edge are of fewer positions")


def _mixes(layer: Any, ndim: int) -> str | None:
    """Why a layer would mix positions; ``None`` if it does not."""
    if isinstance(layer, layers.Dense | layers.TernaryDense):
        return None if ndim > 2 else _FLAT
    if isinstance(layer, layers.EinsumDense):
        return None if _keeps_time(layer.equation) else "its equation sums over time"
    if isinstance(layer, layers.Softmax | layers.BatchNormalization):
        return _of_axes(layer.axis, ndim, masked=isinstance(layer, layers.Softmax))
    if isinstance(layer, normalization.GroupNormalization):
        return "its groups span all positions"
    if isinstance(layer, normalization.LayerNormalization | layers.RMSNormalization):
        return _of_axes(layer.axis, ndim)
    if isinstance(layer, layers.UnitNormalization | layers.Normalization):
        return _of_axes(layer.axis, ndim)
    if isinstance(layer, layers.Concatenate):
        joins = layer.axis % ndim == 1
        return "it would put rows behind the filling of others" if joins else None
    if isinstance(layer, layers.PReLU) and 1 not in (layer.shared_axes or ()):
        return "it has a slope for each position: shared_axes=[1]"
    if isinstance(layer, layers.Dot | layers.ODE):
        return "it knows of no mask"
    if layer.supports_masking and not isinstance(layer, layers.ActivityRegularization):
        return None  # of one position each: sums, products
    if isinstance(layer, layers.Reshape) and ndim > 2:
        return None  # where time stays its second axis, which is looked at afterwards
    holds_layers = any(isinstance(part, Layer) for _, part in children(layer))
    return None if holds_layers else "it knows of no mask"


def _of_axes(axis: Any, ndim: int, masked: bool = False) -> str | None:
    axes = axis if isinstance(axis, list | tuple) else (axis,)
    if 1 in {a % ndim for a in axes if a is not None} and not masked:
        return "its axis is that of time"
    return None


def _keeps_time(equation: str) -> bool:
    """Whether an equation leaves the second axis of its input where it is."""
    inputs, _, output = equation.replace(" ", "").partition("->")
    x, kernel = inputs.split(",")
    if len(x) < 2 or x.startswith("...") and len(x) < 5:
        return False
    if x.startswith("..."):
        return output.startswith("...")
    return output[1:2] == x[1] and x[1] not in kernel


def _refuse(layer: Any, path: str, reason: str) -> ShapeError:
    return ShapeError(
        path,
        f"a {type(layer).__name__} cannot take rows of unlike lengths: {reason}",
        hint="Pool over time before it, or fill the rows up to one length yourself: "
        "exburn.utils.pad_sequences(rows, padding='post').",
    )


def check_reshaped(layer: Any, path: str, stays: bool) -> None:
    """Raises if a layer that must keep the axis of time has moved it."""
    if isinstance(layer, layers.Reshape) and not stays:
        raise _refuse(layer, path, "time must stay its second axis")
