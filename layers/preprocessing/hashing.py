"""Categories without a vocabulary: the hash of a value is its number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from exburn.core.checks import check_count, check_unicode
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import describe
from exburn.data import frame_array, is_frame
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.encoding import (
    check_mode,
    encode,
    encoded_spec,
    refuse_sparse,
)
from exburn.layers.contract.fingerprint import combine, fingerprint, siphash
from exburn.layers.contract.host import HostLayer, integer_array, string_array
from exburn.module.layer_options import LayerOptions, UntypedOptions


@register_builtin
class Hashing(HostLayer):
    """Puts strings or integers into bins by their hash.

    The hash is FarmHash's 64-bit fingerprint of the UTF-8 text (integers: of their
    decimal digits), or SipHash-2-4 where a ``salt`` is given: the functions Keras uses
    through TensorFlow, so bins agree with Keras'. The layer works on the host, in a
    model in front of the program.

    Args:
        num_bins: Number of bins, with the one for ``mask_value``.
        mask_value: The value that goes to bin 0, alone; none by default.
        salt: One integer, or two: the key of SipHash.
        output_mode: ``"int"`` gives the bins' numbers, ``"one_hot"``, ``"multi_hot"``
            and ``"count"`` vectors over the bins.
        sparse: Must be false.

    Shape:
        x: [batch, …] of strings or integers → [batch, …] for ``int``, otherwise as in
        :class:`CategoryEncoding`

    Raises:
        ArgumentError: An argument is out of range.
        GraphError: The layer is called in a program, see :class:`StringLookup`.

    Example:
        >>> Hashing(num_bins=3)([["A"], ["B"], ["C"]]).tolist()
        [[1], [0], [1]]

    Source: Weinberger et al., *Feature Hashing for Large Scale Multitask Learning*,
    2009.
    """

    def __init__(
        self,
        num_bins: int,
        mask_value: Any = None,
        salt: int | Sequence[int] | None = None,
        output_mode: str | None = "int",
        sparse: bool = False,
        **kwargs: Unpack[LayerOptions],
    ):
        self.output_mode = check_mode(
            "Hashing", output_mode, "int", "one_hot", "multi_hot", "count"
        )
        super().__init__(**_with_dtype(kwargs, self.output_mode))
        refuse_sparse("Hashing", sparse)
        self.num_bins = check_count("Hashing", "num_bins", num_bins)
        self.mask_value = mask_value
        self.salt = check_salt("Hashing", salt)

    def output_spec(self, inputs):
        return encoded_spec(inputs, self.output_mode, self.num_bins, self.compute_dtype)

    def call(self, inputs):
        values = as_values("Hashing", inputs)
        masked = None
        bins = self.num_bins
        if self.mask_value is not None and bins > 1:
            masked, bins = values == self.mask_value, bins - 1
        indices = hash_bins(values, bins, self.salt)
        if masked is not None:
            indices = np.where(masked, 0, indices + 1)
        dtype = self.compute_dtype
        indices = indices.astype(dtype if self.output_mode == "int" else "int32")
        return encode(np, indices, self.output_mode, self.num_bins, dtype)


@register_builtin
class HashedCrossing(HostLayer):
    """Puts combinations of two or more features into bins by their hash.

    Bins agree with Keras'. The layer works on the host, in a model in front of the
    program.

    Args:
        num_bins: Number of bins.
        output_mode: ``"int"`` or ``"one_hot"``.
        sparse: Must be false.
        dtype: Dtype of vectors over the bins; float32 by default.

    Shape:
        a list of x: [], [batch] or [batch, 1] → the same for ``int``;
        [batch, num_bins] for ``one_hot``

    Raises:
        ShapeError: There are fewer than two features, or their shapes differ.
        GraphError: The layer is called in a program, see :class:`StringLookup`.

    Example:
        >>> import numpy as np
        >>> features = np.array(["A", "B"]), np.array([101, 101])
        >>> HashedCrossing(num_bins=5)(features).tolist()
        [1, 4]
    """

    def __init__(
        self,
        num_bins: int,
        output_mode: str | None = "int",
        sparse: bool = False,
        name: str | None = None,
        dtype: Any = None,
        **kwargs: Unpack[UntypedOptions],
    ):
        self.output_mode = check_mode("HashedCrossing", output_mode, "int", "one_hot")
        options = _with_dtype({"dtype": dtype, **kwargs}, self.output_mode)
        super().__init__(name=name, **options)
        refuse_sparse("HashedCrossing", sparse)
        self.num_bins = check_count("HashedCrossing", "num_bins", num_bins)

    def output_spec(self, inputs):
        self._check(inputs)
        return encoded_spec(
            inputs[0], self.output_mode, self.num_bins, self.compute_dtype
        )

    def _check(self, features: Any) -> None:
        if not isinstance(features, list | tuple) or len(features) < 2:
            raise ShapeError(self.name, "two features or more are needed, in a list")
        shape = features[0].shape
        fits = len(shape) < 2 or (len(shape) == 2 and shape[1] == 1)
        if not fits or any(x.shape != shape for x in features):
            raise ShapeError(
                self.name,
                "features have one shape: (), (batch,) or (batch, 1)",
                {"received": ", ".join(describe(x) for x in features)},
            )

    def call(self, inputs):
        if isinstance(inputs, list | tuple):
            inputs = [as_values("HashedCrossing", x) for x in inputs]
        self._check(features := inputs)
        shape = features[0].shape
        columns = [x.reshape(-1).tolist() for x in features]
        bins = [self._bin(row) for row in zip(*columns, strict=True)]
        dtype = self.compute_dtype
        indices = np.array(bins, dtype if self.output_mode == "int" else "int32")
        indices = indices.reshape(shape)
        return encode(np, indices, self.output_mode, self.num_bins, dtype)

    def _bin(self, row: tuple) -> int:
        result = 0xDECAFCAFFE  # where TensorFlow starts
        for value in row:
            if isinstance(value, int):
                result = combine(result, value % 2**64)
            else:
                data = check_unicode("HashedCrossing", value).encode()
                result = combine(result, fingerprint(data))
        return result % self.num_bins


def _with_dtype(kwargs: Any, output_mode: str) -> dict[str, Any]:
    """Bins are integers unless they become vectors."""
    if kwargs.get("dtype") is None and output_mode == "int":
        kwargs = {**kwargs, "dtype": "int32"}
    return kwargs


def check_salt(op: str, salt: Any) -> tuple[int, int] | None:
    """The two halves of SipHash's key."""
    if salt is None:
        return None
    pair = (salt, salt) if isinstance(salt, int) else salt
    if not isinstance(pair, list | tuple) or len(pair) != 2:
        raise ArgumentError(op, f"salt is one integer or two, received {salt!r}")
    return int(pair[0]), int(pair[1])


def as_values(op: str, inputs: Any) -> np.ndarray:
    """Integers as int64 (floats are cut), everything else as strings."""
    if is_frame(inputs):
        inputs = frame_array(inputs, op=op, name="inputs")
    array = np.asarray(inputs)
    if array.dtype.kind == "f":
        return array.astype(np.int64)
    if array.dtype.kind in "iub":
        return integer_array(op, array)
    return string_array(op, array)


def hash_bins(values: np.ndarray, bins: int, salt: tuple[int, int] | None):
    """The bin of every value, int64; each distinct value is hashed once."""
    of: Callable[[bytes], int] = (
        fingerprint if salt is None else lambda data: siphash(data, salt)
    )
    bin_of: dict[Any, int] = {}
    flat = values.reshape(-1).tolist()
    for value in set(flat):
        bin_of[value] = of(check_unicode("Hashing", str(value)).encode()) % bins
    numbers = np.fromiter((bin_of[v] for v in flat), np.int64, len(flat))
    return numbers.reshape(values.shape)
