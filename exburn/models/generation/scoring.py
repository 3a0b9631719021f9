"""Log-likelihoods of given tokens, by the windows in which a model sees them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError
from exburn.models.generation.generate import (
    check_tokens,
    position_limit,
    prepare_generation,
)
from exburn.models.generation.prompts import prompt_size
from exburn.models.network import Network
from exburn.models.preparing import on_device
from exburn.runtime.kernels.head_loss import RowChunks, fits, head_cross_entropy
from exburn.training.module import SplitModule

_LENGTH = 2048  # tokens of a window, of models that have no limit
_DOUBT = 1e-3  # of a log-likelihood: what a causal model's rounding may make


@dataclasses.dataclass(frozen=True)
class TokenWindow:
    """Tokens that a model sees at once, of which it scores the last ones.

    Attributes:
        tokens: int32, at least two.
        scored: How many of the last ones, fewer than there are tokens.
    """

    tokens: np.ndarray
    scored: int


@dataclasses.dataclass(frozen=True)
class WindowScore:
    """Scores of a window's last tokens.

    Attributes:
        log_likelihoods: float32, one for each: its natural logarithm.
        greedy: Whether each is the likeliest token.
    """

    log_likelihoods: np.ndarray
    greedy: np.ndarray


def window_length(model: Network, length: Any, op: str) -> int:
    """Tokens of a window: as the user says, or as many as the model is made for.

    Args:
        length: What the user says; ``None`` for as many as there are positions for,
            else 2,048, within the context that the model's folder tells.
        op: The operation named in errors.

    Raises:
        ArgumentError: It is less than 2, or there are fewer positions.
    """
    limit = position_limit(model)
    if length is None:
        context = getattr(model, "context_length", None)
        length = limit or min(_LENGTH, context or _LENGTH)
    length = check_count(op, "length", length, 2)
    if limit is not None and length > limit:
        raise ArgumentError(
            op, f"the model has {limit} positions, length must not be {length}"
        )
    return length


def windows_of(tokens: np.ndarray, length: int, stride: int) -> Iterator[TokenWindow]:
    """Windows over a text, so that each token but the first is scored once.

    A window begins ``stride`` tokens behind the one before; its last tokens are new.

    Example:
        >>> windows = windows_of(np.arange(8), length=4, stride=3)
        >>> [(w.tokens.tolist(), w.scored) for w in windows]
        [([0, 1, 2, 3], 3), ([3, 4, 5, 6], 3), ([6, 7], 1)]
    """
    end = 1
    for begin in range(0, len(tokens), stride):
        last = min(begin + length, len(tokens))
        if last > end:
            yield TokenWindow(tokens[begin:last], last - end)
        end = last
        if end == len(tokens):
            return


def score_windows(
    model: Network, windows: Sequence[TokenWindow], batch_size: int, op: str
) -> list[WindowScore]:
    """The scores of windows, in their order; those of like lengths run together.

    Raises:
        ArgumentError: The model is not causal, or has fewer positions.
        DataError: The model has no such token.
    """
    results: list[WindowScore | None] = [None] * len(windows)
    if not windows:
        return []
    with on_device(model):
        trainer, programs, plan = prepare_generation(model, None)
        room = plan.length or plan.positions
        longest = max(len(window.tokens) for window in windows) - 1
        if room is not None and longest > room:
            raise ArgumentError(
                op, f"the model has {room} positions, a window needs {longest}"
            )
        rows = [window.tokens for window in windows]
        check_tokens(trainer, plan, rows, op)
        score = programs.further("score_tokens", lambda: make_score(plan.split))
        groups = trainer.holder.split.read()
        order = sorted(range(len(windows)), key=lambda i: -len(rows[i]))
        for start in range(0, len(order), batch_size):
            part = order[start : start + batch_size]
            width = prompt_size(len(rows[part[0]]) - 1)
            width = plan.length or min(width, room or width)
            ids, lengths = _fill([rows[i] for i in part], batch_size, width)
            likely, greedy = jax.device_get(score(groups, ids, lengths))
            if start == 0:
                _check_causal(score, groups, ids, lengths, likely, op)
            for row, i in enumerate(part):
                end = len(rows[i]) - 1
                place = slice(end - windows[i].scored, end)
                results[i] = WindowScore(likely[row, place], greedy[row, place])
    return [result for result in results if result is not None]


def make_score(split: SplitModule) -> Any:
    """The program: what each next token's log-likelihood is, and whether it leads.

    Many scores are made and read chunk by chunk, as those of a loss are.
    """

    def score(groups: Any, ids: Any, lengths: Any) -> tuple[jax.Array, jax.Array]:
        seen, following = ids[:, :-1], ids[:, 1:]
        key = jax.random.key(0)  # of layers that draw at inference
        with split.running(groups, training=False, key=key) as (call, ctx):
            ctx.text_lengths = lengths
            scores = jax.tree.leaves(call((seen,), {}))[0]
            head = ctx.head_of(scores)
        if head is not None and fits(head):
            factors, plan = jnp.ones(following.shape), RowChunks(first=True)
            rows, _ = head_cross_entropy(head, following, factors, plan=plan)
            return -rows.losses, rows.first
        scores = scores.astype(jnp.float32)
        of_tokens = jnp.take_along_axis(scores, following[..., None], -1)[..., 0]
        likely = of_tokens - jax.nn.logsumexp(scores, -1)
        return likely, jnp.argmax(scores, -1) == following

    return score


def _fill(
    rows: list[np.ndarray], count: int, width: int
) -> tuple[np.ndarray, np.ndarray]:
    """Rows of one width and number; what is behind a text changes nothing in it."""
    ids = np.zeros((count, width + 1), np.int32)
    lengths = np.ones(count, np.int32)
    for number, row in enumerate(rows):
        ids[number, : len(row)] = row
        lengths[number] = len(row) - 1
    return ids, lengths


def _check_causal(
    score: Any, groups: Any, ids: Any, lengths: Any, likely: Any, op: str
) -> None:
    """Raises if the scores of a token change with the tokens behind it."""
    half = int(lengths[0]) // 2
    if half < 1:
        return
    other = ids.copy()
    other[:, half + 1 :] = 0
    again = jax.device_get(score(groups, other, lengths))[0]
    before, after = likely[:, :half], again[:, :half]
    change = np.max(np.abs(after - before) / (1 + np.abs(before)))
    if change > _DOUBT:
        raise ArgumentError(
            op,
            "the model is not causal: the scores of a token change with those behind "
            "it",
            {"change": f"{float(change):.2g} of a log-likelihood"},
            hint="Attention needs use_causal_mask=True, convolutions padding='causal'.",
        )
