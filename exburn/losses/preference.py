"""Losses of preferences: answers that are better than others, or good by themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.nn import log_sigmoid, sigmoid

from exburn.core.checks import check_choice, check_number
from exburn.errors import ArgumentError
from exburn.losses.contract.likelihood import (
    LikelihoodLoss,
    LikelihoodResult,
    TokenLikelihoods,
    answer_sums,
    has_next,
)

__all__ = ["DPO", "IPO", "KTO", "ORPO"]


class _Answers(NamedTuple):
    """Both answers of each pair of a batch; arrays are ``[rows, pairs, 2]``.

    Attributes:
        likely: Log-probabilities of the answers.
        ratios: The same less those of the reference; of no reference the same.
        lengths: Counted tokens of the answers, at least 1.
        present: ``[rows, pairs]``: 1.0 where there is a pair.
        pairs: How many there are, at least 1.
    """

    likely: jax.Array
    ratios: jax.Array
    lengths: jax.Array
    present: jax.Array
    pairs: jax.Array

    @classmethod
    def of(cls, rows: TokenLikelihoods) -> _Answers:
        """The sums over the tokens of packed rows."""
        places = rows.columns["labels"].shape[1]

        def sums(values: Any) -> jax.Array:
            answers = answer_sums(values * rows.counted, rows.segments, 2 * places)
            return answers.reshape(-1, places, 2)

        likely = sums(rows.likely)
        reference = 0.0 if rows.reference is None else sums(rows.reference)
        lengths = sums(jnp.ones_like(rows.counted))
        present = (lengths.min(-1) > 0).astype(jnp.float32)
        pairs = jnp.maximum(present.sum(), 1)
        return cls(likely, likely - reference, jnp.maximum(lengths, 1), present, pairs)

    def mean(self, values: jax.Array, of: Any = 1.0) -> tuple[jax.Array, jax.Array]:
        """The mean of a value of each pair, and of how many pairs it is.

        Args:
            of: ``[rows, pairs]``: which pairs count.
        """
        counts = self.present * of
        count = counts.sum()
        total = jnp.where(counts > 0, values * counts, 0).sum()
        return total / jnp.maximum(count, 1), count

    def figures(self, beta: Any, scores: jax.Array, likely: jax.Array) -> Any:
        """Rewards of both answers, ``beta * scores``, and their log-probabilities."""
        rewards, likely = jax.lax.stop_gradient((beta * scores, likely))
        margins = rewards[..., 0] - rewards[..., 1]
        values = {
            "rewards/chosen": rewards[..., 0],
            "rewards/rejected": rewards[..., 1],
            "rewards/margins": margins,
            "rewards/accuracies": (margins > 0).astype(jnp.float32),
            "logps/chosen": likely[..., 0],
            "logps/rejected": likely[..., 1],
        }
        return {name: self.mean(value) for name, value in values.items()}


_FIGURES = (
    *("rewards/chosen", "rewards/rejected", "rewards/margins"),
    *("rewards/accuracies", "logps/chosen", "logps/rejected"),
)


class _PairLoss(LikelihoodLoss):
    """A loss of pairs of answers, of which each has a value."""

    figures = _FIGURES
    beta: float

    def values(self, answers: _Answers) -> jax.Array:
        """The loss of each pair."""
        raise NotImplementedError

    def of_tokens(self, rows: TokenLikelihoods) -> LikelihoodResult:
        answers = _Answers.of(rows)
        loss, weight = answers.mean(self.values(answers))
        figures = answers.figures(self.beta, answers.ratios, answers.likely)
        return LikelihoodResult(loss, weight, figures)


def _sigmoid(z: Any, chosen: Any, rejected: Any, beta: Any, smoothing: Any) -> Any:
    return -(1 - smoothing) * log_sigmoid(z) - smoothing * log_sigmoid(-z)


def _robust(z: Any, chosen: Any, rejected: Any, beta: Any, smoothing: Any) -> Any:
    clean, flipped = (1 - smoothing) * log_sigmoid(z), smoothing * log_sigmoid(-z)
    return (flipped - clean) / (1 - 2 * smoothing)


def _exo_pair(z: Any, chosen: Any, rejected: Any, beta: Any, smoothing: Any) -> Any:
    first = sigmoid(z) * (log_sigmoid(z) - jnp.log1p(-smoothing))
    return first + sigmoid(-z) * (log_sigmoid(-z) - jnp.log(smoothing))


def _nca_pair(z: Any, chosen: Any, rejected: Any, beta: Any, smoothing: Any) -> Any:
    one, other = beta * chosen, beta * rejected
    return -log_sigmoid(one) - (log_sigmoid(-one) + log_sigmoid(-other)) / 2


_FORMULAS: dict[str, Callable[..., Any]] = {
    "sigmoid": _sigmoid,
    "robust": _robust,
    "exo_pair": _exo_pair,
    "nca_pair": _nca_pair,
    "hinge": lambda z, *_: jax.nn.relu(1 - z),
    "bco_pair": lambda z, c, r, b, _: -log_sigmoid(b * c) - log_sigmoid(-b * r),
    "sppo_hard": lambda z, c, r, b, _: (c - 0.5 / b) ** 2 + (r + 0.5 / b) ** 2,
    "apo_zero": lambda z, c, r, b, _: 1 - sigmoid(b * c) + sigmoid(b * r),
    "apo_down": lambda z, c, r, b, _: sigmoid(b * c) + 1 - sigmoid(z),
}
_SMOOTHED = "sigmoid", "robust", "exo_pair"


class DPO(_PairLoss):
    """Direct preference optimization: the chosen answer is to become likelier than the
    rejected one, by more than the reference has it.

    ``-log sigmoid(beta * (log(p / p_ref)(chosen) - log(p / p_ref)(rejected)))``, the
    mean over pairs. The reference is the model without its adapter, or what ``fit`` is
    given as ``reference``. ``History`` tells the rewards ``beta * log(p / p_ref)`` of
    both answers, their margins, and how often the chosen one has the higher reward.

    Args:
        beta: How strongly the model is held to the reference.
        loss_type: ``"sigmoid"``, ``"hinge"``, ``"robust"``, ``"exo_pair"``,
            ``"nca_pair"``, ``"bco_pair"``, ``"sppo_hard"``, ``"apo_zero"`` or
            ``"apo_down"``: the function of the ratios, as in trl.
        label_smoothing: The share of pairs whose answers are taken for exchanged, of
            ``"sigmoid"`` (conservative DPO), ``"robust"`` and ``"exo_pair"``.

    Raises:
        ArgumentError: A number is out of range, or nothing reads it; or an unknown
            ``loss_type``.

    Example:
        >>> DPO(beta=0.2)
        DPO(beta=0.2, loss_type='sigmoid', label_smoothing=0.0, name='dpo')

    Source: Rafailov et al., *Direct Preference Optimization*, 2023.
    """

    options = "beta", "loss_type", "label_smoothing"

    def __init__(
        self,
        beta: float = 0.1,
        loss_type: str = "sigmoid",
        label_smoothing: float = 0.0,
        name: str | None = "dpo",
    ):
        super().__init__(name)
        self.beta = check_number("DPO", "beta", beta, open_low=True)
        if loss_type == "ipo":
            raise ArgumentError(
                "DPO", "the loss 'ipo' is a class of its own", hint="losses.IPO(beta)"
            )
        if not isinstance(loss_type, str):
            raise ArgumentError(
                "DPO",
                f"loss_type is one name, received {loss_type!r}",
                hint="Sums of several, such as RPO's, are left out.",
            )
        self.loss_type = check_choice("DPO", "loss_type", loss_type, _FORMULAS)
        options: dict[str, Any] = {"low": 0, "high": 0.5, "open_high": True}
        smoothing = check_number("DPO", "label_smoothing", label_smoothing, **options)
        if smoothing and loss_type not in _SMOOTHED:
            raise ArgumentError(
                "DPO", f"label_smoothing is not read by loss_type={loss_type!r}"
            )
        if not smoothing and loss_type == "exo_pair":
            raise ArgumentError(
                "DPO",
                "loss_type='exo_pair' needs a label_smoothing above 0",
                hint="label_smoothing=1e-3 is that of its paper.",
            )
        self.label_smoothing = smoothing

    def values(self, answers: _Answers) -> jax.Array:
        chosen, rejected = answers.ratios[..., 0], answers.ratios[..., 1]
        z, formula = self.beta * (chosen - rejected), _FORMULAS[self.loss_type]
        return formula(z, chosen, rejected, self.beta, self.label_smoothing)


class IPO(_PairLoss):
    """Identity preference optimization: the margin of the ratios is to be a number.

    ``(margin - 1 / (2 * beta))²``, the mean over pairs, where the margin is of the
    log-ratios by token of both answers, as its authors compute it. For the rest as
    :class:`DPO`.

    Args:
        beta: How strongly the model is held to the reference.

    Raises:
        ArgumentError: It is not above 0.

    Example:
        >>> IPO().beta
        0.1

    Source: Azar et al., *A General Theoretical Paradigm to Understand Learning from
    Human Preferences*, 2023.
    """

    options = ("beta",)

    def __init__(self, beta: float = 0.1, name: str | None = "ipo"):
        super().__init__(name)
        self.beta = check_number("IPO", "beta", beta, open_low=True)

    def values(self, answers: _Answers) -> jax.Array:
        by_token = answers.ratios / answers.lengths
        return (by_token[..., 0] - by_token[..., 1] - 1 / (2 * self.beta)) ** 2


class ORPO(LikelihoodLoss):
    """Odds ratio preference optimization: learns the chosen answer, and raises its
    odds over those of the rejected one; there is no reference.

    The cross-entropy of the chosen text with its prompt, the mean over tokens, less
    ``beta * log sigmoid(log odds(chosen) - log odds(rejected))``, the mean over pairs,
    with odds of the mean log-probability by token.

    Args:
        beta: Weight of the odds ratio.

    Raises:
        ArgumentError: It is not above 0.

    Example:
        >>> ORPO(beta=0.2)
        ORPO(beta=0.2, name='orpo')

    Source: Hong et al., *ORPO: Monolithic Preference Optimization without Reference
    Model*, 2024.
    """

    figures = (*_FIGURES, "nll_loss", "log_odds_ratio", "log_odds_chosen")
    options = ("beta",)
    reads_reference, reads_prompts = False, True

    def __init__(self, beta: float = 0.1, name: str | None = "orpo"):
        super().__init__(name)
        self.beta = check_number("ORPO", "beta", beta, open_low=True)

    def of_tokens(self, rows: TokenLikelihoods) -> LikelihoodResult:
        answers = _Answers.of(rows)
        by_token = answers.likely / answers.lengths
        # A pair that is not there has no odds: its logarithm of 0 would give NaN.
        by_token = jnp.where(answers.present[..., None] > 0, by_token, -1.0)
        by_token = jnp.minimum(by_token, -1e-7)  # nor has a certain one
        odds = by_token - jnp.log(-jnp.expm1(by_token))
        log_odds = odds[..., 0] - odds[..., 1]
        ratio, weight = answers.mean(log_sigmoid(log_odds))
        learnt = (rows.segments % 2 == 1) & has_next(rows.segments)
        tokens = learnt.sum(dtype=jnp.float32)
        mean = -jnp.where(learnt, rows.likely, 0).sum() / jnp.maximum(tokens, 1)
        figures = answers.figures(self.beta, by_token, by_token) | {
            "nll_loss": (jax.lax.stop_gradient(mean), tokens),
            "log_odds_ratio": (jax.lax.stop_gradient(ratio), weight),
            "log_odds_chosen": answers.mean(jax.lax.stop_gradient(log_odds)),
        }
        return LikelihoodResult(mean - self.beta * ratio, weight, figures)


class KTO(LikelihoodLoss):
    """Kahneman-Tversky optimization: single answers, each of which is good or bad.

    ``w * (1 - sigmoid(beta * (r - z)))`` of good answers and
    ``w * (1 - sigmoid(beta * (z - r)))`` of bad ones, the mean over answers, where r is
    ``log(p / p_ref)`` of the answer and z the mean of the same over answers to other
    prompts, at least 0, which has no gradient: each prompt is packed beside the answer
    of the row before it.

    Args:
        beta: How strongly the model is held to the reference.
        desirable_weight: The weight w of good answers.
        undesirable_weight: That of bad ones.

    Raises:
        ArgumentError: A number is out of range.

    Example:
        >>> KTO(desirable_weight=2.0).figures[:2]
        ('rewards/chosen', 'rewards/rejected')

    Source: Ethayarajh et al., *KTO: Model Alignment as Prospect Theoretic
    Optimization*, 2024.
    """

    figures = (
        *("rewards/chosen", "rewards/rejected", "rewards/margins"),
        *("logps/chosen", "logps/rejected", "kl"),
    )
    options = "beta", "desirable_weight", "undesirable_weight"
    labelled = True

    def __init__(
        self,
        beta: float = 0.1,
        desirable_weight: float = 1.0,
        undesirable_weight: float = 1.0,
        name: str | None = "kto",
    ):
        super().__init__(name)
        self.beta = check_number("KTO", "beta", beta, open_low=True)
        self.desirable_weight, self.undesirable_weight = (
            check_number("KTO", option, value, low=0)
            for option, value in (
                ("desirable_weight", desirable_weight),
                ("undesirable_weight", undesirable_weight),
            )
        )

    def of_tokens(self, rows: TokenLikelihoods) -> LikelihoodResult:
        answers = _Answers.of(rows)
        good = (rows.columns["labels"] > 0).astype(jnp.float32)
        ratio, likely = answers.ratios[..., 0], answers.likely[..., 0]
        distance, weight = answers.mean(answers.ratios[..., 1])
        distance = jax.lax.stop_gradient(jnp.maximum(distance, 0))
        gain = jnp.where(good > 0, ratio - distance, distance - ratio)
        factor = jnp.where(good > 0, self.desirable_weight, self.undesirable_weight)
        loss, _ = answers.mean(factor * (1 - sigmoid(self.beta * gain)))
        ratio, likely = jax.lax.stop_gradient((self.beta * ratio, likely))
        chosen, rejected = answers.mean(ratio, good), answers.mean(ratio, 1 - good)
        both = jnp.where((chosen[1] > 0) & (rejected[1] > 0), weight, 0.0)
        figures = {
            "rewards/chosen": chosen,
            "rewards/rejected": rejected,
            "rewards/margins": (chosen[0] - rejected[0], both),
            "logps/chosen": answers.mean(likely, good),
            "logps/rejected": answers.mean(likely, 1 - good),
            "kl": (distance, weight),
        }
        return LikelihoodResult(loss, weight, figures)
