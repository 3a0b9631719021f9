"""A dense layer of any shape, described by an Einstein sum."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Unpack

import jax.numpy as jnp

from exburn import activations, constraints, initializers, regularizers
from exburn.core.annotations import Identifier
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.adaptable import Adaptable, AdaptableLayerOptions
from exburn.layers.core.dense import Dense
from exburn.module.input_spec import InputSpec
from exburn.runtime.kernels.padded_matmul import wide_product


@register_builtin
class EinsumDense(Adaptable):
    """A dense layer whose product is an Einstein sum.

    ``y = activation(einsum(equation, x, kernel) + bias)``

    Args:
        equation: For example ``"ab,bc->ac"``, or ``"...x,xy->...y"`` for any rank.
        output_shape: Size, or sizes, of the output without the batch axis (and without
            what the dots stand for); None where the input's size stays.
        bias_axes: Letters of the output that the bias has; no bias if None.
        kernel_initializer: Initializer of the kernel.
        bias_initializer: Initializer of the bias.
        activity_regularizer: Function of the output, added to the loss.

    Shape:
        x, kernel → y as the equation says

    Raises:
        ArgumentError: The equation is not of that form, or ``output_shape`` or
            ``bias_axes`` do not fit it.
        ShapeError: The input does not fit the equation.

    Example:
        >>> import numpy as np
        >>> layer = EinsumDense("abc,cd->abd", output_shape=(None, 64), bias_axes="d")
        >>> layer(np.ones((2, 32, 128))).shape
        (2, 32, 64)
    """

    _described_by = (Dense,)
    kept_as = {"activation": activations.get}
    activation: Any
    bias: Any = None

    def __init__(
        self,
        equation: str,
        output_shape: int | Sequence[int | None],
        activation: Identifier = None,
        bias_axes: str | None = None,
        kernel_initializer: Identifier = "glorot_uniform",
        bias_initializer: Identifier = "zeros",
        kernel_regularizer: Identifier = None,
        bias_regularizer: Identifier = None,
        kernel_constraint: Identifier = None,
        bias_constraint: Identifier = None,
        **kwargs: Unpack[AdaptableLayerOptions],
    ):
        super().__init__(**kwargs)
        self.equation = equation.replace(" ", "")
        self._terms = _parse(self.equation)
        sizes = (output_shape,) if isinstance(output_shape, int) else output_shape
        self.partial_output_shape = tuple(sizes)
        self.activation = activation
        if bias_axes is not None and not bias_axes:
            raise ArgumentError(
                "EinsumDense",
                f"bias_axes names no axis, received {bias_axes!r}",
                hint="None is for no bias.",
            )
        self.bias_axes = bias_axes
        self.kernel_initializer = initializers.get(kernel_initializer)
        self.bias_initializer = initializers.get(bias_initializer)
        self.kernel_regularizer = regularizers.get(kernel_regularizer)
        self.bias_regularizer = regularizers.get(bias_regularizer)
        self.kernel_constraint = constraints.get(kernel_constraint)
        self.bias_constraint = constraints.get(bias_constraint)
        unknown = set(self.bias_axes or "") - set(self._terms[2])
        if unknown:
            raise ArgumentError(
                "EinsumDense", f"bias_axes={bias_axes!r} are no axes of the output"
            )

    def build(self, input_shape):
        into, kernel, out = self._terms
        sizes, hidden = self._sizes(input_shape)
        letters = into.replace(".", "")
        first = -len(letters) if into.startswith(".") else 0
        weight_axes = {*kernel, *(self.bias_axes or "")}  # sizes that the weights have
        axes = {i: sizes[c] for i, c in enumerate(letters, first) if c in weight_axes}
        self.input_spec = InputSpec(min_ndim=len(letters), axes=axes)
        self.kernel = self.add_weight(
            tuple(sizes[c] for c in kernel),
            self.kernel_initializer,
            name="kernel",
            regularizer=self.kernel_regularizer,
            constraint=self.kernel_constraint,
        )
        if self.bias_axes:
            letters = out.replace(".", "")
            letters = letters[min(letters.index(c) for c in self.bias_axes) :]
            shape = tuple(sizes[c] if c in self.bias_axes else 1 for c in letters)
            if out.endswith("..."):
                shape += (1,) * hidden
            self.bias = self.add_weight(
                shape,
                self.bias_initializer,
                name="bias",
                regularizer=self.bias_regularizer,
                constraint=self.bias_constraint,
            )
        self._adapt()

    def _sizes(self, input_shape) -> tuple[dict, int]:
        """The size of every letter, and the number of axes the dots stand for."""
        into, _, out = self._terms
        letters = into.replace(".", "")
        hidden = len(input_shape) - len(letters)
        if hidden < 0 or (hidden and "..." not in into):
            raise ShapeError(
                self.name,
                f"the input must have the axes {into!r} of {self.equation!r}, "
                f"received shape {input_shape}",
            )
        sizes_in_order = (
            input_shape[: len(letters)]
            if into.endswith("...")
            else input_shape[hidden:]
        )
        sizes = dict(zip(letters, sizes_in_order, strict=True))
        # the first axis is the batch's, unless the dots stand for it
        free = out.replace(".", "")
        if not (out.startswith("...") and hidden):
            free = free[1:]
        if len(free) != len(self.partial_output_shape):
            raise ShapeError(
                self.name,
                f"output_shape {self.partial_output_shape} must have one entry for "
                f"each of the axes {free!r} of {self.equation!r}",
            )
        for letter, size in zip(free, self.partial_output_shape, strict=True):
            if size is None:
                continue
            if sizes.get(letter) not in (None, size):
                raise ShapeError(
                    self.name,
                    f"output_shape says {letter}={size}, the input {sizes[letter]}",
                )
            sizes[letter] = size
        return sizes, hidden

    def call(self, inputs):
        y = self._product(self.cast(inputs), self.cast(self.kernel))
        if self.bias is not None:
            y = y + self.cast(self.bias)
        return self.activation(y)

    def _product(self, x, kernel):
        """The equation's product; as one of two matrices where it is one."""
        into, letters, out = self._terms
        size = _summed_axes(into, letters, out)
        if not size:
            return jnp.einsum(self.equation, x, kernel)
        before, columns = x.shape[: x.ndim - size], kernel.shape[size:]
        rows = x.reshape(*before, math.prod(kernel.shape[:size]))
        y = wide_product(rows, kernel.reshape(rows.shape[-1], -1))
        return y.reshape(*before, *columns)


def _summed_axes(into: str, kernel: str, out: str) -> int:
    """Axes that are summed over, if last in the input and first in the kernel; or 0."""
    size = next((n for n, c in enumerate(kernel) if c not in into), len(kernel))
    shared, free = into.removesuffix(kernel[:size]), kernel[size:]
    return size if shared + kernel[:size] == into and out == shared + free else 0


def _parse(equation: str) -> tuple[str, str, str]:
    """The terms of input, kernel and output."""
    inputs, arrow, out = equation.partition("->")
    into, comma, kernel = inputs.partition(",")
    letters = [t.replace("...", "") for t in (into, kernel, out)]
    dots = {(t.startswith("..."), t.endswith("...")) for t in (into, out)}
    if (
        not (arrow and comma)
        or not all(t.isalpha() and len(set(t)) == len(t) for t in letters)
        or "." in kernel
        or dots not in ({(False, False)}, {(True, False)}, {(False, True)})
        or set(letters[1]) - set(letters[0]) - set(letters[2])
        or set(letters[2]) - set(letters[0]) - set(letters[1])
    ):
        raise ArgumentError(
            "EinsumDense",
            f"not an equation of an input and a kernel: {equation!r}",
            hint='For example "ab,bc->ac", "...x,xy->...y" or "ab...,bc->ac...".',
        )
    return into, kernel, out
