"""Losses of the log-probabilities that a language model gives the tokens of answers.

They are computed by ``fit`` and ``evaluate`` on packed rows, where the tokens' scores
need not be in memory, and where a second pass without adapters can be the reference.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.errors import ArgumentError
from exburn.losses.contract.base import Loss
from exburn.losses.contract.probabilities import label_log_likelihood
from exburn.losses.contract.shapes import check_labels
from exburn.losses.contract.targets import check_class_range


class TokenLikelihoods(NamedTuple):
    """Packed rows as such a loss sees them; all arrays are ``[rows, length]``.

    Attributes:
        likely: The log-probability of the next token at each place; 0 where it is not
            asked for.
        reference: The same by the reference; ``None`` for losses without one.
        segments: Which answer of its row a token is of, from 1 on; 0: of none.
        counted: 1.0 where the next token is a part of the answer, else 0.0.
        columns: What the targets have beside the tokens.
        entropy: The entropy of what the model expects at each place; ``None`` for
            losses that do not read it. It has no gradient.
    """

    likely: jax.Array
    reference: jax.Array | None
    segments: jax.Array
    counted: jax.Array
    columns: Mapping[str, Any]
    entropy: jax.Array | None = None


class LikelihoodResult(NamedTuple):
    """A loss of a batch, and what is told beside it.

    Attributes:
        loss: What is minimized: a scalar.
        weight: What it counts for in means over batches: a scalar.
        figures: Means over the batch, each with what it counts for, by name.
    """

    loss: jax.Array
    weight: jax.Array
    figures: dict[str, tuple[jax.Array, jax.Array]]


class LikelihoodLoss(Loss):
    """Base class of losses of log-probabilities: override `of_tokens`.

    Args:
        name: Name in logs.

    Attributes:
        figures: Names of what is told beside the loss, in logs and in a history.
        reads_reference: Whether the log-probabilities of a reference are needed.
        reads_prompts: Whether those of prompts are, too, not of answers alone.
        reads_entropy: Whether the entropy is.
        temperature: By which scores are divided before all this.
        labelled: Whether rows are single answers with labels, not pairs.
    """

    figures: ClassVar[tuple[str, ...]] = ()
    reads_reference: ClassVar[bool] = True
    reads_prompts: ClassVar[bool] = False
    reads_entropy: ClassVar[bool] = False
    temperature: float = 1.0
    labelled: ClassVar[bool] = False
    per_sample = True
    casts_targets = False
    options: ClassVar[tuple[str, ...]] = ()

    def __init__(self, name: str | None = None):
        super().__init__(name=name or registry.snake_case(type(self).__name__))

    def of_tokens(self, rows: TokenLikelihoods) -> LikelihoodResult:
        """The loss of a batch of packed rows."""
        raise NotImplementedError(f"{type(self).__name__} must override of_tokens().")

    def call(self, y_true: Any, y_pred: Any) -> jax.Array:
        """The negative log-likelihood of each token, which has the losses' shape."""
        return -label_log_likelihood(y_true, y_pred, True, -1)

    def __call__(self, y_true: Any, y_pred: Any, *args: Any, **kwargs: Any) -> Any:
        raise packed_only(self)

    def check_shapes(self, y_true: Any, y_pred: Any) -> None:
        check_labels(self.name, y_true, y_pred, -1)

    def check_targets(self, y_true: Any, y_pred: Any) -> None:
        check_class_range(self.name, y_true, y_pred.shape[-1])

    def get_config(self) -> dict[str, Any]:
        options = {option: getattr(self, option) for option in self.options}
        return {**options, "name": self.name}


def packed_only(loss: LikelihoodLoss) -> ArgumentError:
    """The error of a loss that is asked for something else than packed answers."""
    kind = type(loss).__name__
    return ArgumentError(
        kind,
        "it is a loss of answers' log-probabilities, which fit and evaluate compute "
        "from answers that are packed into rows",
        hint=f"model.compile(optimizer, loss=losses.{kind}()); model.fit(answers)",
    )


def answer_sums(values: jax.Array, segments: jax.Array, answers: int) -> jax.Array:
    """Sums over the tokens of each answer, ``[rows, answers]``.

    Each token is compared with each answer, which XLA does without an array of that
    size, in the same order at every call: additions by address have none on a GPU.

    Args:
        values: ``[rows, length]``.
        segments: As of `TokenLikelihoods`.
        answers: How many a row has at most.

    Example:
        >>> values, segments = jnp.array([[1.0, 2, 4, 8]]), jnp.array([[1, 1, 2, 0]])
        >>> answer_sums(values, segments, 2).tolist()
        [[3.0, 4.0]]
    """
    numbers = jnp.arange(1, answers + 1, dtype=segments.dtype)
    own = segments[:, None, :] == numbers[None, :, None]
    return jnp.sum(jnp.where(own, values[:, None, :], 0.0), axis=-1)


def has_next(segments: jax.Array) -> jax.Array:
    """The places of packed rows whose next token is of the same answer.

    Example:
        >>> has_next(jnp.array([[1, 1, 2, 2, 0, 0]])).tolist()
        [[True, False, True, False, False, False]]
    """
    after = jnp.pad(segments[:, 1:], ((0, 0), (0, 1)))
    return (segments > 0) & (segments == after)
