"""Continuous values as bins."""

from __future__ import annotations

from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count
from exburn.core.registry import register_builtin
from exburn.data import check_finite
from exburn.errors import ArgumentError, NotBuiltError
from exburn.layers.contract.adapting import batches
from exburn.layers.contract.encoding import check_mode, encode, refuse_sparse
from exburn.module.layer import Layer
from exburn.module.layer_options import UntypedOptions


@register_builtin
class Discretization(Layer):
    """Replaces numbers by the number of the bin that they fall into.

    ``bin(x) = how many boundaries are <= x``

    Args:
        bin_boundaries: The boundaries, in ascending order; n of them make n + 1 bins.
        num_bins: Number of bins that ``adapt`` chooses so that each holds the same
            share of the data. One of the two is given.
        epsilon: Kept for Keras code; quantiles are exact here.
        output_mode: ``"int"``, or vectors over the bins: ``"one_hot"``,
            ``"multi_hot"``, ``"count"``.
        sparse: Must be false.
        dtype: Dtype of vectors over the bins; float32 by default.

    Shape:
        x: [batch, …] → [batch, …] int32 for ``int``, otherwise as in
        :class:`CategoryEncoding`

    Raises:
        ArgumentError: Neither or both of the first two arguments are given.
        NotBuiltError: There are no boundaries yet: call ``adapt``.

    Example:
        >>> import numpy as np
        >>> Discretization([0.0, 1.0])(np.array([[-0.5, 0.5, 2.0]])).tolist()
        [[0, 1, 2]]
        >>> layer = Discretization(num_bins=4)
        >>> layer.adapt(np.arange(1.0, 9.0))
        >>> layer.bin_boundaries
        (2.0, 4.0, 6.0)
    """

    built = True

    def __init__(
        self,
        bin_boundaries: Any = None,
        num_bins: int | None = None,
        epsilon: float = 0.01,
        output_mode: str | None = "int",
        sparse: bool = False,
        dtype: Any = None,
        name: str | None = None,
        **kwargs: Unpack[UntypedOptions],
    ):
        super().__init__(dtype=dtype, name=name, **kwargs)
        op = "Discretization"
        if (bin_boundaries is None) == (num_bins is None):
            raise ArgumentError(
                op,
                "one of bin_boundaries and num_bins is given",
                {"bin_boundaries": bin_boundaries, "num_bins": num_bins},
            )
        refuse_sparse(op, sparse)
        self.sparse = False
        self.output_mode = check_mode(
            op, output_mode, "int", "one_hot", "multi_hot", "count"
        )
        self.num_bins = None
        if num_bins is not None:
            self.num_bins = check_count(op, "num_bins", num_bins)
        self.epsilon = epsilon
        self.bin_boundaries = _check_boundaries(bin_boundaries)
        self._autocast = False  # which side of a boundary needs every digit

    def adapt(self, data: Any, steps: Any = None) -> None:
        """Chooses boundaries so that each bin holds the same share of the data.

        They are the exact quantiles, interpolated between neighbouring values. All
        values of a loader are held in memory meanwhile, 4 bytes each.

        Args:
            data: An array, a dataset, or an iterable of batches.
            steps: How many batches are read; all by default.

        Raises:
            ArgumentError: The layer was given its boundaries.
            DataError: The data is empty or not finite.
        """
        op = "Discretization.adapt"
        if self.num_bins is None:
            raise ArgumentError(
                op,
                "the layer was given its boundaries",
                hint="Discretization(num_bins=…) learns them.",
            )
        parts = []
        for batch in batches(op, data, steps):
            values = np.asarray(batch, np.float32).reshape(-1)
            check_finite((values,), ("data",), op=op)
            parts.append(values)
        values = np.concatenate(parts)
        shares = np.arange(1, self.num_bins) / self.num_bins
        cuts = np.quantile(values, shares, method="interpolated_inverted_cdf")
        self.bin_boundaries = tuple(cuts.astype(np.float32).tolist())

    def call(self, inputs):
        if self.bin_boundaries is None:
            raise NotBuiltError(
                self.name, "there are no boundaries yet", hint="Call layer.adapt(data)."
            )
        dtype = jnp.promote_types(inputs.dtype, jnp.float32)
        cuts = jnp.asarray(self.bin_boundaries, dtype)
        # compare_all: no loop, and boundaries are few
        bins = jnp.searchsorted(
            cuts, inputs.astype(dtype), side="right", method="compare_all"
        )
        depth = len(self.bin_boundaries) + 1
        return encode(
            jnp, bins.astype("int32"), self.output_mode, depth, self.compute_dtype
        )

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        boundaries = self.bin_boundaries
        config["bin_boundaries"] = None if boundaries is None else list(boundaries)
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None):
        config = dict(config)
        adapted = None
        if config.get("num_bins") is not None:
            adapted = config.pop("bin_boundaries", None)
        layer = super().from_config(config, custom_objects)
        if adapted is not None:
            layer.bin_boundaries = _check_boundaries(adapted)
        return layer


def _check_boundaries(boundaries: Any) -> tuple[float, ...] | None:
    if boundaries is None:
        return None
    values = tuple(float(b) for b in np.asarray(boundaries).reshape(-1))
    if any(b < a for a, b in zip(values, values[1:], strict=False)):
        raise ArgumentError(
            "Discretization", f"bin_boundaries ascend, received {boundaries!r}"
        )
    return values
