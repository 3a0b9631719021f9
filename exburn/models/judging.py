"""How well a model predicts texts: perplexity by windows that overlap."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, DataError
from exburn.models.generation.scoring import score_windows, window_length, windows_of
from exburn.models.network import Network
from exburn.models.report import Figures

_OP = "evaluate_text"


@dataclasses.dataclass(frozen=True, repr=False)
class TextScore(Figures):
    """How well texts are predicted; a mapping of these names, too.

    A text's first token has nothing in front of it, so it is not scored, and neither
    are its characters counted; a token that the tokenizer puts in front of texts makes
    the first one of the text itself a scored one.

    Attributes:
        nats: The negative logarithm of the texts' probability.
        tokens, bytes, words: What was scored: tokens, bytes in UTF-8, and words, which
            are what white space divides. Of token numbers only the first is known.
        greedy: Tokens that the model thinks the likeliest.
        losses: For each text its loss per token; NaN if it has no scored token.
    """

    nats: float
    tokens: int
    bytes: int | None
    words: int | None
    greedy: int
    losses: tuple[float, ...]

    @property
    def loss(self) -> float:
        """Nats per token."""
        return self.nats / self.tokens

    @property
    def perplexity(self) -> float:
        """``exp(loss)``."""
        return math.exp(self.loss)

    @property
    def accuracy(self) -> float:
        """The share of tokens that the model thinks the likeliest."""
        return self.greedy / self.tokens

    @property
    def bits_per_byte(self) -> float | None:
        """Bits that the model needs for a byte of text."""
        return None if not self.bytes else self.nats / self.bytes / math.log(2)

    @property
    def byte_perplexity(self) -> float | None:
        """``exp(nats / bytes)``."""
        return None if not self.bytes else math.exp(self.nats / self.bytes)

    @property
    def word_perplexity(self) -> float | None:
        """``exp(nats / words)``, infinite where that is no float."""
        if not self.words:
            return None
        each = self.nats / self.words
        return math.exp(each) if each < 709 else math.inf

    def _lines(self) -> tuple[str, dict[str, str]]:
        lines = {
            "Loss": f"{self.loss:.4f} per token",
            "Perplexity": f"{self.perplexity:.4g} per token",
            "Accuracy": f"{self.accuracy:.4f}",
        }
        if self.bytes:
            lines["Bits per byte"] = f"{self.bits_per_byte:.4f}"
            lines["Perplexity by bytes"] = f"{self.byte_perplexity:.4g}"
            lines["Perplexity by words"] = f"{self.word_perplexity:.4g}"
        return f"{len(self.losses):,} texts, {self.tokens:,} tokens", lines


def evaluate_text(
    self: Network,
    texts: Any,
    *,
    stride: int | None = None,
    length: int | None = None,
    batch_size: int = 8,
) -> TextScore:
    """How well the model predicts texts: perplexity by token, byte and word.

    Texts longer than ``length`` are seen in windows that begin ``stride`` tokens
    apart, and each token is scored once, in the window in which most is in front of
    it. A smaller stride gives tokens more context, and costs more windows. Each text
    is by itself: none is in front of another.

    Args:
        texts: A text, or several, if the model has a ``tokenizer``; or token numbers,
            ``[time]`` each.
        stride: Tokens between the beginnings of windows, less than ``length``; half of
            it by default.
        length: Tokens of a window; by default those that the model has positions for,
            or 2,048, within the context that its folder tells.
        batch_size: Windows that run together.

    Returns:
        A ``TextScore``, which prints as a table.

    Raises:
        ArgumentError: An argument does not fit, or the model is not causal.
        DataError: No text has a token that could be scored, or the model has no such
            token.
        MissingDependencyError: Texts need the package ``tokenizers``.

    Example:
        >>> import numpy as np
        >>> from exburn.applications import GPT2
        >>> model = GPT2(vocabulary_size=9, layers=1, width=8, heads=2, positions=8)
        >>> score = model.evaluate_text([np.arange(9), np.arange(3)], stride=4)
        >>> score.tokens, round(score.perplexity)
        (10, 9)

    Source: Hugging Face, *Perplexity of fixed-length models* (the windows).
    """
    batch_size = check_count(_OP, "batch_size", batch_size)
    length, stride = _sizes(self, length, stride)
    rows, sizes = _read(self, texts)
    windows = [list(windows_of(row, length, stride)) for row in rows]
    flat = [window for of_text in windows for window in of_text]
    if not flat:
        raise DataError(
            _OP,
            "no text has two tokens, of which the second could be scored",
            {"texts": len(rows)},
            hint="Pass longer texts.",
        )
    scores = iter(score_windows(self, flat, batch_size, _OP))
    losses, nats, greedy = [], 0.0, 0
    for of_text in windows:
        parts = [next(scores) for _ in of_text]
        lost = -sum(float(p.log_likelihoods.sum(dtype=np.float64)) for p in parts)
        count = sum(window.scored for window in of_text)
        losses.append(lost / count if count else math.nan)
        nats += lost
        greedy += sum(int(part.greedy.sum()) for part in parts)
    tokens = sum(window.scored for window in flat)
    bytes_, words = map(sum, zip(*sizes, strict=True)) if sizes else (None, None)
    return TextScore(nats, tokens, bytes_, words, greedy, tuple(losses))


def _sizes(model: Network, length: Any, stride: Any) -> tuple[int, int]:
    length = window_length(model, length, _OP)
    stride = length // 2 if stride is None else check_count(_OP, "stride", stride)
    if stride >= length:
        raise ArgumentError(
            _OP,
            "stride must be less than length: the first token of a window has nothing "
            "in front of it, and is scored in the window before",
            {"stride": stride, "length": length},
        )
    return length, stride


def _read(model: Network, texts: Any) -> tuple[list[np.ndarray], list[tuple[int, int]]]:
    """Token numbers of texts, and the bytes and words of what is scored of each."""
    one = isinstance(texts, str) or (hasattr(texts, "ndim") and texts.ndim == 1)
    items: Sequence[Any] = [texts] if one else list(texts)
    if not items:
        raise DataError(_OP, "there are no texts")
    if not any(isinstance(item, str) for item in items):
        rows = [np.asarray(item) for item in items]
        for number, row in enumerate(rows):
            if row.ndim != 1 or row.dtype.kind not in "iu":
                raise ArgumentError(
                    _OP,
                    "texts are strings, or integers [time] each, received "
                    f"{row.dtype} {row.shape} as number {number}",
                )
        return [row.astype(np.int32) for row in rows], []
    if model.tokenizer is None:
        raise ArgumentError(
            _OP,
            "the model has no tokenizer, which turns texts into token numbers",
            hint="model.tokenizer = exburn.text.Tokenizer.load(path), or pass numbers.",
        )
    pairs = model.tokenizer.encode_with_offsets(items, special=True)
    sizes = []
    for text, (_, places) in zip(items, pairs, strict=True):
        rest = text[int(places[0, 1]) if len(places) else 0 :]
        sizes.append((len(rest.encode()), len(rest.split())))
    return [tokens for tokens, _ in pairs], sizes
