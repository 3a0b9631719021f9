"""Known categories as vectors."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.errors import ArgumentError, DataError
from exburn.layers.contract.encoding import check_mode, encode, refuse_sparse
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.symbolic_tensor import has_symbol


@register_builtin
class CategoryEncoding(Layer):
    """Turns category numbers into vectors with one entry a category.

    Numbers out of range raise an error where they can be seen, and count nowhere inside
    a compiled program.

    Args:
        num_tokens: Number of categories: the largest number plus one.
        output_mode: ``"one_hot"``: a vector for each number. ``"multi_hot"``: one
            vector for the numbers of a row, with 1 for those that occur. ``"count"``:
            how often they occur.
        sparse: Must be false.

    Shape:
        x: [batch, n] of integers → [batch, num_tokens]; for ``one_hot`` with n > 1
        [batch, n, num_tokens]
        count_weights: like x; what each number adds to the count

    Raises:
        ArgumentError: An argument is out of range, or ``count_weights`` are given
            for another mode than ``"count"``.
        DataError: A number is negative, or ``num_tokens`` or more.

    Example:
        >>> CategoryEncoding(4, output_mode="count")([[0, 1], [3, 3]]).tolist()
        [[1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 0.0, 2.0]]
    """

    built = True

    num_tokens: Any

    def __init__(
        self,
        num_tokens: int | None = None,
        output_mode: str | None = "multi_hot",
        sparse: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        op = "CategoryEncoding"
        if num_tokens is None:
            raise ArgumentError(
                op,
                "num_tokens is needed",
                hint="IntegerLookup learns the categories from data.",
            )
        self.num_tokens = check_count(op, "num_tokens", num_tokens)
        self.output_mode = check_mode(op, output_mode, "one_hot", "multi_hot", "count")
        refuse_sparse(op, sparse)
        self.sparse = False
        self._autocast = False  # numbers that come as floats must stay exact

    @maps_datasets
    def __call__(self, inputs, count_weights=None, **kwargs):
        inputs = _as_array(inputs)
        if count_weights is not None:
            kwargs["count_weights"] = _as_array(count_weights)
        return super().__call__(inputs, **kwargs)

    def call(self, inputs, count_weights=None):
        if count_weights is not None and self.output_mode != "count":
            raise ArgumentError(
                self.name,
                f'count_weights need output_mode="count", not {self.output_mode!r}',
            )
        if not isinstance(inputs, Tracer):
            self._check(np.asarray(inputs))
        if jnp.issubdtype(inputs.dtype, jnp.floating) or inputs.dtype == bool:
            inputs = inputs.astype(jnp.int32)
        if count_weights is not None:
            count_weights = self.cast(count_weights)
        return encode(
            jnp,
            inputs,
            self.output_mode,
            self.num_tokens,
            self.compute_dtype,
            count_weights,
        )

    def _check(self, values: np.ndarray) -> None:
        wrong = (values < 0) | (values >= self.num_tokens)
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise DataError(
                self.name,
                f"numbers are in [0, {self.num_tokens})",
                {
                    "received": describe(values),
                    "first other value": f"{values[at]} at position {at}",
                },
            )


def _as_array(values):
    ready = hasattr(values, "dtype") or has_symbol(values)
    return values if ready else np.asarray(values)
