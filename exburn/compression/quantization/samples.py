"""Windows of tokens that weights are chosen on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, DataError, DTypeError


def token_windows(config: Any) -> np.ndarray:
    """The samples of a ``GPTQConfig`` or ``AWQConfig``: int32 ``[samples, 1, length]``.

    All tokens are joined, and repeated if they are too few. The windows do not overlap
    and lie evenly in what there is; pieces that are a window long stay whole.

    Raises:
        ArgumentError: There is no data, or no tokenizer for strings.
        DTypeError: The data is no iterable, or holds other things than strings and
            numbers.
        DataError: It is empty, or a number is not whole or beyond int32.

    Example:
        >>> from exburn.quantizers import GPTQConfig
        >>> pieces = [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 9, 9]]
        >>> told = GPTQConfig(pieces, None, num_samples=2, sequence_length=3)
        >>> token_windows(told)[:, 0].tolist()
        [[0, 1, 2], [9, 9, 9]]
    """
    op, dataset = type(config).__name__, config.dataset
    if dataset is None:
        raise ArgumentError(
            "quantize",
            f"{config.mode!r} chooses weights on data, received dataset=None",
            hint=f"{op}(dataset=[…], tokenizer=…).",
        )
    if isinstance(dataset, str | bytes) or not hasattr(dataset, "__iter__"):
        raise DTypeError(
            op,
            "dataset must be an iterable of strings or of arrays of token numbers, "
            f"received {type(dataset).__name__}",
        )
    pieces = [part for item in dataset for part in _pieces(item, config.tokenizer, op)]
    tokens = np.concatenate([np.zeros(0, np.int32), *pieces])
    if not tokens.size:
        raise DataError(op, "dataset holds no tokens")
    count, length = config.num_samples, config.sequence_length
    tokens = np.resize(tokens, max(tokens.size, count * length))  # repeats them
    places = np.linspace(0, tokens.size // length - 1, count).astype(np.int64)
    rows = tokens[: tokens.size // length * length].reshape(-1, length)
    return rows[places][:, None]  # [samples, 1, length]


def _pieces(item: Any, tokenizer: Any, op: str) -> Iterator[np.ndarray]:
    """The tokens of an entry: of each string in it, or its numbers."""
    try:
        values = np.asarray(item)
    except (TypeError, ValueError) as error:  # ragged
        raise DTypeError(
            op, f"dataset holds {type(item).__name__} that is no array: {error}"
        ) from error
    if values.dtype.kind not in "USO":
        yield _numbers(values, op)
        return
    for text in values.ravel().tolist():
        text = text.decode() if isinstance(text, bytes) else text
        if not isinstance(text, str):
            raise DTypeError(
                op,
                "dataset holds strings or arrays of token numbers, received "
                f"{type(text).__name__}",
            )
        yield _numbers(np.asarray(_tokenizer(tokenizer, op)(text)), op)


def _tokenizer(tokenizer: Any, op: str) -> Any:
    tokenize = getattr(tokenizer, "tokenize", tokenizer)
    if not callable(tokenize):
        raise ArgumentError(
            op,
            "dataset holds strings, which need a tokenizer; received "
            f"tokenizer={tokenizer!r}",
            hint="Give an object with tokenize(text), or a function.",
        )
    return tokenize


def _numbers(values: np.ndarray, op: str) -> np.ndarray:
    """Token numbers as int32 ``[n]``."""
    if values.dtype.kind not in "biuf" and values.size:
        raise DTypeError(op, f"tokens are whole numbers, received {values.dtype}")
    values = values.ravel()
    with np.errstate(invalid="ignore"):  # of NaN and what int64 cannot hold
        whole = values.astype(np.int64, copy=False)
        same = (whole == values) & (abs(whole) <= np.iinfo(np.int32).max)
    if not same.all():
        raise DataError(
            op,
            "tokens are whole numbers of 32 bits, received "
            f"{values[~same][0].item()!r}",
            hint="What begins with other inputs takes quantize('int4').",
        )
    return whole.astype(np.int32)
