"""Words as numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

import numpy as np

from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import TEXT
from exburn.layers.contract.host import string_array
from exburn.layers.preprocessing.hashing import check_salt
from exburn.layers.preprocessing.index_lookup import IndexLookup
from exburn.module.layer_options import UnnamedOptions


@register_builtin
class StringLookup(IndexLookup):
    """Numbers strings by a vocabulary that is given, or learned by ``adapt``.

    JAX has no strings, so the layer works on the host: on data, or in a model of
    ``Input(dtype="string")``, in front of the program. It takes arrays or nested lists
    of strings and returns NumPy arrays.

    Args:
        max_tokens: Largest size of the vocabulary, special tokens included.
        num_oov_indices: How many numbers unknown strings share; with 0 they are errors.
            Of several, the hash of the string chooses (see :class:`Hashing`).
        mask_token: The string that means "nothing": number 0, and left out of vectors.
        oov_token: What unknown strings become with ``invert``.
        vocabulary: The strings, or the path of a text file with one a line.
        idf_weights: In mode ``"tf_idf"``, the weight of each string.
        invert: Whether numbers become strings.
        output_mode: ``"int"``: numbers; ``"one_hot"``, ``"multi_hot"``, ``"count"``:
            vectors over the vocabulary, as in :class:`CategoryEncoding`; ``"tf_idf"``:
            counts times ``log(1 + documents / (1 + documents with the string))``.
        pad_to_max_tokens: Whether vectors have ``max_tokens`` entries from the start.
        sparse: Must be false.
        encoding: Of bytes.
        salt: Key of the hash that chooses among several numbers for unknown strings.
        oov_method: ``"floormod"`` or ``"farmhash"``, which say how unknown integers are
            numbered: strings are hashed with either, as in Keras.

    Shape:
        x: [batch, …] of strings → [batch, …] int32 for ``int``; otherwise vectors as
        of :class:`CategoryEncoding`, int32, or float32 for ``tf_idf``

    Raises:
        ArgumentError: An argument is out of range.
        DataError: An unknown string and ``num_oov_indices=0``.
        GraphError: The layer is called in a program: in ``jax.jit``, or in the ``call``
            of another layer.
        NotBuiltError: There is no vocabulary yet.

    Example:
        >>> layer = StringLookup(vocabulary=["a", "b", "c"])
        >>> layer([["a", "c"], ["d", "b"]]).tolist()
        [[1, 3], [0, 2]]
        >>> layer.get_vocabulary()
        ['[UNK]', 'a', 'b', 'c']
        >>> back = StringLookup(vocabulary=layer.get_vocabulary(), invert=True)
        >>> back([[1, 3], [0, 2]]).tolist()
        [['a', 'c'], ['[UNK]', 'b']]
    """

    _token_dtype = TEXT

    def __init__(
        self,
        max_tokens: int | None = None,
        num_oov_indices: int = 1,
        mask_token: Any = None,
        oov_token: str | None = "[UNK]",
        vocabulary: Any = None,
        idf_weights: Any = None,
        invert: bool = False,
        output_mode: str | None = "int",
        pad_to_max_tokens: bool = False,
        sparse: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        salt: int | Sequence[int] | None = None,
        oov_method: str = "floormod",
        **kwargs: Unpack[UnnamedOptions],
    ):
        self.encoding = encoding
        salt = check_salt("StringLookup", salt)
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

    def _array(self, values: Any) -> np.ndarray:
        return string_array(type(self).__name__, values, self.encoding)

    def _tokens_of(self, numbers: Any) -> np.ndarray:
        return super()._tokens_of(numbers).astype(str)
