"""Sparse integers, such as identifiers, as numbers from 0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import jax.numpy as jnp
import numpy as np
from jax.core import Tracer

from exburn.core.checks import check_choice
from exburn.core.registry import register_builtin
from exburn.core.tensorflow_graphs import maps_datasets
from exburn.errors import ArgumentError, DTypeError
from exburn.layers.contract.encoding import encode
from exburn.layers.contract.host import integer_array, is_traced
from exburn.layers.preprocessing.hashing import check_salt
from exburn.layers.preprocessing.index_lookup import IndexLookup
from exburn.module.layer import Layer
from exburn.module.layer_options import UnnamedOptions


@register_builtin
class IntegerLookup(IndexLookup):
    """Numbers integers by a vocabulary that is given, or learned by ``adapt``.

    On data the layer works on the host and returns NumPy arrays, for integers of 64
    bits. In a model the vocabulary is a constant of the compiled program. A lookup that
    a program cannot do runs on the host in front of it: of integers beyond 32 bits,
    with ``num_oov_indices=0``, or by ``"farmhash"``.

    Args:
        max_tokens: Largest size of the vocabulary, special tokens included.
        num_oov_indices: How many numbers unknown integers share; 0 makes them errors.
        mask_token: The integer that means "nothing": number 0, and left out of vectors.
        oov_token: What unknown numbers become with ``invert``.
        vocabulary: The integers, or the path of a text file with one a line.
        vocabulary_dtype: ``"int64"``.
        idf_weights: In mode ``"tf_idf"``, the weight of each integer.
        invert: Whether numbers become the vocabulary's integers again.
        output_mode: As in :class:`StringLookup`.
        sparse: Must be false.
        pad_to_max_tokens: Whether vectors have ``max_tokens`` entries from the start.
        oov_method: What chooses among several numbers for unknown integers:
            ``"floormod"``, the remainder, or ``"farmhash"``, see :class:`Hashing`.
        salt: Key of the hash; needs ``oov_method="farmhash"``.

    Shape:
        x: [batch, …] of integers → [batch, …] for ``int``; otherwise vectors as
        of :class:`CategoryEncoding`, int32, or float32 for ``tf_idf``

    Raises:
        ArgumentError: An argument is out of range.
        DataError: An unknown integer and ``num_oov_indices=0``.
        NotBuiltError: There is no vocabulary yet.

    Example:
        >>> layer = IntegerLookup(vocabulary=[12, 36, 1138])
        >>> layer([[12, 1138], [36, 7]]).tolist()
        [[1, 3], [2, 0]]
    """

    _token_dtype = "int32"

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: Any = None,
        oov_token: Any = -1,
        vocabulary: Any = None,
        vocabulary_dtype: str = "int64",
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str | None = "int",
        sparse: bool = False,
        pad_to_max_tokens: bool = False,
        oov_method: str = "floormod",
        salt: int | Sequence[int] | None = None,
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ):
        op = "IntegerLookup"
        check_choice(op, "vocabulary_dtype", vocabulary_dtype, ("int64",))
        if salt is not None and oov_method != "farmhash":
            raise ArgumentError(op, 'salt needs oov_method="farmhash"')
        salt = check_salt(op, salt)
        super().__init__(
            max_tokens=max_tokens,
            num_oov_indices=num_oov_indices,
            mask_token=mask_token,
            oov_token=oov_token,
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            invert=invert,
            output_mode=output_mode,
            sparse=sparse,
            pad_to_max_tokens=pad_to_max_tokens,
            salt=salt,
            oov_method=oov_method,
            name=name,
            **kwargs,
        )
        self._autocast = False

    def _array(self, values: Any) -> np.ndarray:
        if isinstance(values, list) and values and isinstance(values[0], str):
            values = [int(line) for line in values if line]  # a vocabulary file
        return integer_array("IntegerLookup", values)

    def _unknown_bins(self, tokens: list) -> np.ndarray:
        if self.oov_method == "farmhash":
            return super()._unknown_bins(tokens)
        return np.mod(tokens, self.num_oov_indices)

    @property
    def on_host(self) -> bool:
        """Whether a program cannot do what it does: it runs in front of that."""
        if self.invert:
            return False
        vocabulary = self._vocabulary.value
        wide = vocabulary is not None and not _fits_32_bits(vocabulary.tokens)
        hashed = self.num_oov_indices > 1 and self.oov_method == "farmhash"
        return wide or hashed or self.num_oov_indices == 0

    @maps_datasets
    def __call__(self, inputs, training=None, mask=None):
        if is_traced(inputs) and not self.on_host:  # inside a model
            return Layer.__call__(self, inputs)
        return super().__call__(inputs)

    def _call_symbols(self, args, kwargs):
        if self.on_host:
            return super()._call_symbols(args, kwargs)
        return Layer._call_symbols(self, args, kwargs)

    def call(self, inputs):
        if not isinstance(inputs, Tracer):
            return super().call(inputs)
        inputs = inputs.astype(jnp.int32)
        if self.invert:
            return self._tokens_inside(inputs)
        numbers = self._numbers_inside(inputs)
        if self.output_mode == "int":
            return numbers
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        vectors = encode(jnp, numbers, mode, self.depth, self._vector_dtype)
        if self.output_mode == "tf_idf":
            idf = np.zeros(self.depth, np.float32)
            idf[: self.vocabulary_size()] = self._require_vocabulary().idf
            vectors = vectors * self.cast(idf)
        return vectors

    def _numbers_inside(self, inputs):
        """The numbers inside a compiled program: a search in the sorted vocabulary."""
        tokens = self._table(self._require_vocabulary().tokens)
        order = np.argsort(tokens)
        places = jnp.searchsorted(jnp.asarray(tokens[order]), inputs)
        places = jnp.minimum(places, len(tokens) - 1)
        listed = jnp.asarray(tokens[order])[places] == inputs
        numbers = jnp.asarray(order.astype(np.int32) + self._first_token)[places]
        unknown = jnp.int32(self._first_oov)
        if self.num_oov_indices > 1:
            unknown = unknown + inputs % self.num_oov_indices
        numbers = jnp.where(listed, numbers, unknown)
        if self.mask_token is not None:
            nothing = 0 if self.output_mode == "int" else -1
            numbers = jnp.where(inputs == self.mask_token, nothing, numbers)
        return numbers

    def _tokens_inside(self, numbers):
        listed = self._special() + self._require_vocabulary().tokens
        table = jnp.asarray(self._table([*listed, self.oov_token]))
        inside = (numbers >= 0) & (numbers < len(listed))
        return table[jnp.where(inside, numbers, len(listed))]

    def _table(self, tokens: list) -> np.ndarray:
        if not _fits_32_bits(tokens):
            raise DTypeError(
                self.name,
                "in a program the integers must fit 32 bits",
                {"range": f"{min(tokens)} … {max(tokens)}"},
                hint="Map the data before fit and predict: x = layer(x).",
            )
        return np.asarray(tokens, np.int32)


def _fits_32_bits(tokens: list) -> bool:
    return not tokens or -(2**31) <= min(tokens) <= max(tokens) < 2**31
