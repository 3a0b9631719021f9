"""Texts as sequences of numbers, or as counts of words."""

from __future__ import annotations

import string
from collections.abc import Callable, Sequence
from typing import Any, Unpack

import numpy as np

from exburn.core.checks import check_choice, check_count, check_optional
from exburn.core.registry import register_builtin
from exburn.core.symbolic_shapes import TEXT, public_shape, spec_of
from exburn.errors import ArgumentError, ShapeError
from exburn.layers.contract.adapting import batches
from exburn.layers.contract.encoding import check_mode, refuse_sparse
from exburn.layers.contract.host import HostLayer, string_array
from exburn.layers.preprocessing.string_lookup import StringLookup
from exburn.module.layer_options import UnnamedOptions

_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_STANDARDIZE = ("lower_and_strip_punctuation", "lower", "strip_punctuation")


@register_builtin
class TextVectorization(HostLayer):
    """Turns texts into sequences of word numbers, or into vectors over a vocabulary.

    Each text is standardized and split into words, the words are joined into n-grams,
    and these are numbered by a vocabulary that is given or learned by ``adapt``: 0 is
    padding, 1 unknown words.

    JAX has no strings, so the layer works on the host: on data, or in a model of
    ``Input(dtype="string")``, in front of the program. It takes a list or array of
    strings, also with a last axis of size 1, and returns a NumPy array.

    Args:
        max_tokens: Largest size of the vocabulary, special tokens included.
        standardize: ``"lower_and_strip_punctuation"``, ``"lower"``,
            ``"strip_punctuation"``, None, or a function of an array of strings.
        split: ``"whitespace"``, ``"character"``, None (a string is a word), or a
            function of an array of strings that returns a list of words for each.
        ngrams: With a number n, runs of 1 to n words; with a tuple, runs of these
            lengths.
        output_mode: ``"int"``: numbers in order; ``"multi_hot"``, ``"count"``,
            ``"tf_idf"``: a vector over the vocabulary, as in :class:`StringLookup`.
        output_sequence_length: Length that sequences are cut or padded to; the longest
            of the batch by default.
        pad_to_max_tokens: Whether vectors have ``max_tokens`` entries from the start.
        vocabulary: The words, or the path of a text file with one a line.
        idf_weights: In mode ``"tf_idf"``, the weight of each word.
        sparse, ragged: Must be false.
        encoding: Of bytes.

    Shape:
        x: [batch] or [batch, 1] of strings → [batch, time] int32 for ``int``,
        [batch, vocabulary] int32 otherwise, float32 for ``tf_idf``

    Raises:
        ArgumentError: An argument is out of range.
        GraphError: The layer is called in a program, see :class:`StringLookup`.
        NotBuiltError: There is no vocabulary yet.

    Example:
        >>> layer = TextVectorization(output_sequence_length=4)
        >>> layer.adapt(["The cat sat.", "The dog!"])
        >>> layer.get_vocabulary()
        ['', '[UNK]', 'the', 'sat', 'dog', 'cat']
        >>> layer(["the cat", "A dog sat; the dog"]).tolist()
        [[2, 5, 0, 0], [1, 4, 3, 2]]
    """

    def __init__(
        self,
        max_tokens: int | None = None,
        standardize: str | Callable[..., Any] | None = "lower_and_strip_punctuation",
        split: str | Callable[..., Any] | None = "whitespace",
        ngrams: int | Sequence[int] | None = None,
        output_mode: str | None = "int",
        output_sequence_length: int | None = None,
        pad_to_max_tokens: bool = False,
        vocabulary: Any = None,
        idf_weights: Any = None,
        sparse: bool = False,
        ragged: bool = False,
        encoding: str = "utf-8",
        name: str | None = None,
        **kwargs: Unpack[UnnamedOptions],
    ):
        for key in ("vocabulary_size", "has_input_vocabulary"):  # of Keras' configs
            kwargs.pop(key, None)
        super().__init__(name=name, **kwargs)
        op = "TextVectorization"
        self.standardize = _check(op, "standardize", standardize, _STANDARDIZE)
        self.split = _check(op, "split", split, ("whitespace", "character"))
        self.ngrams = _check_ngrams(op, ngrams)
        self.output_mode = check_mode(
            op, output_mode, "int", "multi_hot", "count", "tf_idf"
        )
        self.output_sequence_length = check_optional(
            check_count, op, "output_sequence_length", output_sequence_length
        )
        if self.output_sequence_length is not None and self.output_mode != "int":
            raise ArgumentError(op, 'output_sequence_length needs output_mode="int"')
        refuse_sparse(op, sparse)
        if ragged:
            raise ArgumentError(
                op, "outputs are padded with 0", hint="Leave ragged=True out."
            )
        self.encoding = encoding
        self.lookup = StringLookup(
            max_tokens=max_tokens,
            mask_token="",
            vocabulary=vocabulary,
            idf_weights=idf_weights,
            output_mode=self.output_mode,
            pad_to_max_tokens=pad_to_max_tokens,
            encoding=encoding,
        )

    # ------------------------------------------------------------------ vocabulary
    def get_vocabulary(self, include_special_tokens: bool = True) -> list[str]:
        """The words; each one's place is its number.

        Args:
            include_special_tokens: Whether padding and the unknown word come first.
        """
        return self.lookup.get_vocabulary(include_special_tokens)

    def vocabulary_size(self) -> int:
        """Number of words, the special ones included."""
        return self.lookup.vocabulary_size()

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Replaces the vocabulary; see :meth:`StringLookup.set_vocabulary`."""
        self.lookup.set_vocabulary(vocabulary, idf_weights)

    def adapt(self, data: Any, batch_size: Any = None, steps: Any = None) -> None:
        """Learns the vocabulary: the most frequent words first.

        Of equally frequent words, the last in alphabetical order comes first. A
        vocabulary that the layer has is replaced.

        Args:
            data: A list or array of texts, a dataset, or an iterable of batches.
            batch_size: Kept for Keras code.
            steps: How many batches are read; all by default.

        Raises:
            DataError: There is no data.
        """
        self.reset_state()
        for batch in batches("TextVectorization.adapt", data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the words of a batch of texts."""
        self.lookup._count(self._words(data)[0])

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        self.lookup.finalize_state()

    def reset_state(self) -> None:
        """Forgets what was counted."""
        self.lookup.reset_state()

    # ------------------------------------------------------------------ the layer
    def output_spec(self, inputs):
        self._check_rank(inputs.shape)
        rows = inputs.shape[:1]
        if self.output_mode == "int":
            return spec_of((*rows, self.output_sequence_length), "int32")
        return self.lookup.output_spec(spec_of((*rows, None), TEXT))

    def call(self, inputs):
        rows, single = self._words(inputs)
        lengths = [len(row) for row in rows]
        flat = self.lookup.numbers([word for row in rows for word in row])
        width = self.output_sequence_length
        if width is None:
            width = max(lengths, default=0)
        vector = self.output_mode != "int"
        numbers = np.full((len(rows), width), -1 if vector else 0, np.int32)
        start = 0
        for row, length in zip(numbers, lengths, strict=True):
            row[: min(length, width)] = flat[start : start + min(length, width)]
            start += length
        result = self.lookup.finish(numbers)
        return result[0] if single else result

    def _words(self, inputs: Any) -> tuple[list[list[str]], bool]:
        """The words of every text, and whether there was one text without a batch."""
        if self.split is None and _unequal(inputs):
            texts = [self._standardize_texts(self._texts(row)) for row in inputs]
            rows = [row.reshape(-1).tolist() for row in texts]
            return self._join_ngrams(rows), False
        texts = self._texts(inputs)
        single = texts.ndim == 0
        texts = self._standardize_texts(texts.reshape(1) if single else texts)
        if self.split is None:
            rows = texts.reshape(len(texts), -1).tolist()
            return self._join_ngrams(rows), single
        self._check_rank(texts.shape)
        texts = texts.reshape(texts.shape[:-1]) if texts.ndim > 1 else texts
        flat = texts.reshape(-1)
        if callable(self.split):
            rows = [_as_words(row) for row in self.split(flat.astype(str))]
        elif self.split == "whitespace":
            rows = [text.split() for text in flat]
        else:
            rows = [list(text) for text in flat]
        return self._join_ngrams(rows), single

    def _check_rank(self, shape: tuple) -> None:
        if self.split is not None and len(shape) > 1 and shape[-1] != 1:
            raise ShapeError(
                self.name,
                "texts have shape (batch,) or (batch, 1)",
                {"received": public_shape(shape)},
                hint="split=None takes rows of words.",
            )

    def _texts(self, inputs: Any) -> np.ndarray:
        return string_array("TextVectorization", inputs, self.encoding)

    def _standardize_texts(self, texts: np.ndarray) -> np.ndarray:
        how = self.standardize
        if how is None:
            return texts
        if callable(how):
            return self._texts(how(texts.astype(str)))
        flat = texts.reshape(-1).tolist()
        if how.startswith("lower"):
            flat = [text.lower() for text in flat]
        if how.endswith("punctuation"):
            flat = [text.translate(_NO_PUNCTUATION) for text in flat]
        result = np.empty(len(flat), object)
        result[:] = flat
        return result.reshape(texts.shape)

    def _join_ngrams(self, rows: list[list[str]]) -> list[list[str]]:
        if self.ngrams is None:
            return rows
        return [
            [
                " ".join(row[i : i + n])
                for n in self.ngrams
                for i in range(len(row) - n + 1)
            ]
            for row in rows
        ]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        inner = self.lookup.get_config()
        config["vocabulary"] = inner["vocabulary"]
        config["idf_weights"] = inner["idf_weights"]
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None):
        config = dict(config)
        if isinstance(config.get("vocabulary"), str):
            raise ArgumentError(
                cls.__name__, "a configuration holds the vocabulary, not a file's path"
            )
        if isinstance(config.get("ngrams"), list):
            config["ngrams"] = tuple(config["ngrams"])
        return super().from_config(config, custom_objects)


def _check(op: str, argument: str, value: Any, choices: tuple) -> str | Callable | None:
    if value is None or callable(value):
        return value
    return check_choice(op, argument, value, choices)


def _check_ngrams(op: str, ngrams: Any) -> tuple[int, ...] | None:
    if ngrams is None:
        return None
    if isinstance(ngrams, tuple):
        return tuple(check_count(op, "ngrams", n) for n in ngrams)
    return tuple(range(1, check_count(op, "ngrams", ngrams) + 1))


def _unequal(inputs: Any) -> bool:
    """Whether inputs are rows of words of different lengths."""
    rows = isinstance(inputs, list | tuple) and all(
        isinstance(row, list | tuple | np.ndarray) for row in inputs
    )
    return rows and len({len(row) for row in inputs}) > 1


def _as_words(row: Any) -> list[str]:
    words = row.tolist() if hasattr(row, "tolist") else list(row)
    return [word.decode() if isinstance(word, bytes) else str(word) for word in words]
