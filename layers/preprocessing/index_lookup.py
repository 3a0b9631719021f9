"""The base of layers that number the words of a vocabulary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Unpack

import numpy as np

from exburn.core.checks import check_choice, check_count
from exburn.core.symbolic_shapes import spec_of
from exburn.errors import ArgumentError, DataError, NotBuiltError
from exburn.layers.contract.adapting import batches
from exburn.layers.contract.encoding import (
    check_mode,
    encode,
    encoded_spec,
    refuse_sparse,
)
from exburn.layers.contract.host import HostLayer
from exburn.layers.preprocessing.hashing import hash_bins
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import Static
from exburn.runtime.files.ordinary import read_text

MODES = ("int", "one_hot", "multi_hot", "count", "tf_idf")


_MOST_BYTES = 1 << 30  # of a file of tokens, one a line


class _Vocabulary:
    """Tokens without the special ones, their numbers, and their weights."""

    def __init__(self, tokens: list, start: int, idf: np.ndarray | None):
        self.tokens, self.idf = tokens, idf
        self.numbers = {token: i for i, token in enumerate(tokens, start)}


class _Counts:
    """What ``adapt`` has seen so far."""

    def __init__(self):
        self.tokens: Counter = Counter()
        self.documents: Counter = Counter()
        self.number_of_documents = 0


class IndexLookup(HostLayer):
    """Numbers tokens by a vocabulary that is given, or learned by ``adapt``.

    The numbers begin with 0 for the mask token (in mode ``"int"``, if there is one);
    then come those for unknown tokens, then the vocabulary.

    Subclasses say what a token is: ``_array`` makes an array of tokens, of the dtype
    ``_token_dtype``.
    """

    _token_dtype: str

    def __init__(
        self,
        max_tokens: int | None,
        num_oov_indices: Any,
        mask_token: Any,
        oov_token: Any,
        vocabulary: Any,
        idf_weights: Any,
        invert: bool,
        output_mode: str | None,
        sparse: bool,
        pad_to_max_tokens: bool,
        salt: tuple[int, int] | None = None,
        oov_method: str = "floormod",
        **kwargs: Unpack[LayerOptions],
    ):
        for key in ("vocabulary_size", "has_input_vocabulary"):  # of Keras' configs
            kwargs.pop(key, None)
        super().__init__(**kwargs)
        op = self._op = type(self).__name__
        self.oov_method = check_choice(
            op, "oov_method", oov_method, ("floormod", "farmhash")
        )
        self.max_tokens = (
            None if max_tokens is None else check_count(op, "max_tokens", max_tokens, 2)
        )
        self.num_oov_indices = check_count(op, "num_oov_indices", num_oov_indices, 0)
        self.mask_token, self.oov_token = mask_token, oov_token
        self.output_mode = check_mode(op, output_mode, *MODES)
        self.invert = bool(invert)
        self.salt = salt
        self.pad_to_max_tokens = bool(pad_to_max_tokens)
        refuse_sparse(op, sparse)
        if self.pad_to_max_tokens and self.max_tokens is None:
            raise ArgumentError(op, "pad_to_max_tokens=True needs max_tokens")
        if self.invert and self.output_mode != "int":
            raise ArgumentError(op, 'invert=True needs output_mode="int"')
        if idf_weights is not None and self.output_mode != "tf_idf":
            raise ArgumentError(op, 'idf_weights need output_mode="tf_idf"')
        masked = self.mask_token is not None and self.output_mode == "int"
        self._first_oov = int(masked)
        self._first_token = self._first_oov + self.num_oov_indices
        self._vocabulary = Static(None)
        self._counts = Static(_Counts())
        if vocabulary is not None:
            self.set_vocabulary(vocabulary, idf_weights)

    def _array(self, values: Any) -> np.ndarray:
        raise NotImplementedError

    # ------------------------------------------------------------------ vocabulary
    def get_vocabulary(self, include_special_tokens: bool = True) -> list:
        """The tokens; each one's place is its number.

        Args:
            include_special_tokens: Whether the mask and unknown tokens come first.
        """
        vocabulary = self._vocabulary.value
        tokens = [] if vocabulary is None else list(vocabulary.tokens)
        return self._special() + tokens if include_special_tokens else tokens

    def vocabulary_size(self) -> int:
        """Number of tokens, the special ones included."""
        vocabulary = self._vocabulary.value
        return self._first_token + (0 if vocabulary is None else len(vocabulary.tokens))

    def _special(self) -> list:
        mask = [self.mask_token] * self._first_oov
        return mask + [self.oov_token] * self.num_oov_indices

    def set_vocabulary(self, vocabulary: Any, idf_weights: Any = None) -> None:
        """Replaces the vocabulary.

        Args:
            vocabulary: The tokens, with or without the special ones at the start; or
                the path of a text file with one token a line.
            idf_weights: In mode ``"tf_idf"``, the weight of each token.

        Raises:
            ArgumentError: A token occurs twice or is a special one, or there are more
                than ``max_tokens``.
        """
        op = self._op
        if isinstance(vocabulary, str | Path):
            vocabulary = read_text(vocabulary, op, _MOST_BYTES).splitlines()
        tokens = self._array(vocabulary).reshape(-1).tolist()
        if not tokens:
            raise ArgumentError(op, "the vocabulary is empty")
        special = self._special()
        listed = len(special) if tokens[: len(special)] == special else 0
        tokens = tokens[listed:]
        self._check_tokens(tokens)
        idf = None
        if self.output_mode == "tf_idf":
            if idf_weights is None:
                raise ArgumentError(op, 'output_mode="tf_idf" needs idf_weights')
            idf = np.asarray(idf_weights, np.float32)
            if idf.shape != (listed + len(tokens),):
                raise ArgumentError(
                    op,
                    "there is one of idf_weights for each token",
                    {"tokens": listed + len(tokens), "idf_weights": idf.shape},
                )
            if not listed:
                idf = self._with_special(idf)
        elif idf_weights is not None:
            raise ArgumentError(op, 'idf_weights need output_mode="tf_idf"')
        self._vocabulary = Static(_Vocabulary(tokens, self._first_token, idf))

    def _check_tokens(self, tokens: list) -> None:
        repeated = [t for t, n in Counter(tokens).items() if n > 1]
        if repeated:
            raise ArgumentError(
                self._op,
                "a vocabulary holds every token once",
                {"repeated": ", ".join(map(repr, repeated[:5]))},
            )
        wrong = [t for t in (self.mask_token,) if t is not None and t in tokens]
        if self.invert and self.oov_token in tokens:
            wrong.append(self.oov_token)
        if wrong:
            raise ArgumentError(
                self._op,
                f"{wrong[0]!r} is a special token and cannot be at another place",
                {"special tokens": self._special()},
                hint="Leave the special tokens out, or put all of them first.",
            )
        if self.max_tokens is not None:
            room = self.max_tokens - self._first_token
            if len(tokens) > room:
                raise ArgumentError(
                    self._op,
                    f"max_tokens={self.max_tokens} leaves room for {max(room, 0)} "
                    f"tokens, received {len(tokens)}",
                )

    def _with_special(self, idf: np.ndarray) -> np.ndarray:
        """Unknown tokens weigh as much as the others on average."""
        mean = idf.mean() if idf.size else 0
        return np.concatenate(
            [np.full(self._first_token, mean, np.float32), idf.astype(np.float32)]
        )

    # ------------------------------------------------------------------ adapt
    def adapt(self, data: Any, steps: Any = None) -> None:
        """Learns the vocabulary: the most frequent tokens first.

        Of equally frequent tokens, the last in alphabetical order comes first. A
        vocabulary that the layer has is replaced.

        Args:
            data: An array or list of tokens, a dataset, or an iterable of batches.
            steps: How many batches are read; all by default.

        Raises:
            DataError: There is no data.
        """
        self.reset_state()
        for batch in batches(f"{self._op}.adapt", data, steps):
            self.update_state(batch)
        self.finalize_state()

    def update_state(self, data: Any) -> None:
        """Counts the tokens of a batch; each row is a document."""
        array = self._array(data)
        rows = array.reshape(len(array), -1) if array.ndim else array.reshape(1, 1)
        self._count(rows.tolist())

    def _count(self, rows: Iterable[list]) -> None:
        counts = self._counts.value
        for row in rows:
            counts.tokens.update(row)
            if self.output_mode == "tf_idf":
                counts.documents.update(set(row))
                counts.number_of_documents += 1

    def finalize_state(self) -> None:
        """Makes the vocabulary of what was counted."""
        counts = self._counts.value
        for special in (self.mask_token, self.oov_token):
            counts.tokens.pop(special, None)
        if not counts.tokens:
            return
        ranked = sorted(
            counts.tokens.items(), key=lambda pair: pair[::-1], reverse=True
        )
        tokens = [token for token, _ in ranked]
        if self.max_tokens is not None:
            tokens = tokens[: max(self.max_tokens - self._first_token, 0)]
        idf = None
        if self.output_mode == "tf_idf":
            seen = np.array([counts.documents[t] for t in tokens], np.float64)
            idf = np.log(1 + counts.number_of_documents / (1 + seen))
            idf = self._with_special(idf)
        self._vocabulary = Static(_Vocabulary(tokens, self._first_token, idf))
        self.reset_state()

    def reset_state(self) -> None:
        """Forgets what was counted."""
        self._counts = Static(_Counts())

    # ------------------------------------------------------------------ the layer
    def output_spec(self, inputs):
        if self.invert:
            return spec_of(inputs.shape, self._token_dtype)
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        if mode == "int":
            return encoded_spec(inputs, mode, 0, "int32")
        if self.max_tokens is None or not self.pad_to_max_tokens:
            self._require_vocabulary()  # it says how long the vectors are
        return encoded_spec(inputs, mode, self.depth, self._vector_dtype)

    @property
    def _vector_dtype(self) -> str:
        """Dtype of vectors: that of counts, but for those with weights."""
        return "float32" if self.output_mode == "tf_idf" else "int32"

    def call(self, inputs):
        if self.invert:
            return self._tokens_of(inputs)
        array = self._array(inputs)
        numbers = self.numbers(array.reshape(-1).tolist())
        return self.finish(np.array(numbers, np.int32).reshape(array.shape))

    def numbers(self, tokens: list) -> list[int]:
        """The number of each token; -1 for what is left out of vectors."""
        number_of = self._require_vocabulary().numbers
        unknown = self._first_oov if self.num_oov_indices == 1 else -1
        numbers = [number_of.get(token, unknown) for token in tokens]
        if self.num_oov_indices != 1:
            places = [i for i, n in enumerate(numbers) if n < 0]
            self._place_unknown(tokens, numbers, places)
        if self.mask_token is not None and self.mask_token in tokens:
            mask = 0 if self.output_mode == "int" else -1
            numbers = [
                mask if token == self.mask_token else n
                for token, n in zip(tokens, numbers, strict=True)
            ]
        return numbers

    def _require_vocabulary(self) -> _Vocabulary:
        if self._vocabulary.value is None:
            raise NotBuiltError(
                self.name,
                "the layer has no vocabulary yet",
                hint="Call layer.adapt(data), or pass vocabulary=[…].",
            )
        return self._vocabulary.value

    def _place_unknown(
        self, tokens: list, numbers: list[int], places: list[int]
    ) -> None:
        """Gives unknown tokens one of several numbers, or refuses them."""
        places = [i for i in places if tokens[i] != self.mask_token]
        if not places:
            return
        strangers = [tokens[i] for i in places]
        if self.num_oov_indices == 0:
            raise DataError(
                self.name,
                "num_oov_indices=0 allows only tokens of the vocabulary",
                {"first other": ", ".join(map(repr, strangers[:5]))},
                hint="num_oov_indices=1 gives unknown tokens a number.",
            )
        bins = self._unknown_bins(strangers)
        for i, number in zip(places, bins, strict=True):
            numbers[i] = self._first_oov + int(number)

    def _unknown_bins(self, tokens: list) -> np.ndarray:
        array = np.empty(len(tokens), object)
        array[:] = tokens
        return hash_bins(array, self.num_oov_indices, self.salt)

    @property
    def depth(self) -> int:
        """Number of entries of a vector over the vocabulary."""
        if self.pad_to_max_tokens and self.max_tokens is not None:
            return self.max_tokens
        return self.vocabulary_size()

    def finish(self, numbers: np.ndarray):
        """The numbers in the output mode."""
        if self.output_mode == "int":
            return numbers
        mode = "count" if self.output_mode == "tf_idf" else self.output_mode
        vectors = encode(np, numbers, mode, self.depth, self._vector_dtype)
        if self.output_mode == "tf_idf":
            vectors[..., : self.vocabulary_size()] *= self._require_vocabulary().idf
        return vectors

    def _tokens_of(self, numbers: Any) -> np.ndarray:
        """The way back: the token of every number."""
        numbers = np.asarray(numbers).astype(np.int64)
        vocabulary = self._require_vocabulary()
        listed = self._special() + vocabulary.tokens + [self.oov_token]
        table = self._array(listed)
        inside = (numbers >= 0) & (numbers < len(listed) - 1)
        return table[np.where(inside, numbers, len(listed) - 1)]

    def get_config(self) -> dict[str, Any]:
        config = super().get_config()
        vocabulary, first = self._vocabulary.value, self._first_token
        config["oov_method"] = self.oov_method
        config["vocabulary"] = None if vocabulary is None else self.get_vocabulary()
        idf = None if vocabulary is None else vocabulary.idf
        if vocabulary is not None and self._follow(
            vocabulary
        ):  # they are not the vocabulary's
            config["vocabulary"] = list(vocabulary.tokens)
            idf = None if idf is None else idf[first:]
        if idf is not None:
            config["idf_weights"] = idf.tolist()
        return config

    def _follow(self, vocabulary: _Vocabulary) -> bool:
        """Tells whether special tokens, and their weights, follow from the others."""
        special, idf = self._special(), vocabulary.idf
        if (
            vocabulary.tokens[: len(special)] == special
        ):  # they would be taken for these
            return not special
        if idf is None:
            return True
        return np.array_equal(self._with_special(idf[self._first_token :]), idf)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None):
        if isinstance(config.get("vocabulary"), str):
            raise ArgumentError(
                cls.__name__, "a configuration holds the vocabulary, not a file's path"
            )
        return super().from_config(config, custom_objects)
