"""`PosteriorPredictor`: predictions as means over what the weights may be."""

from __future__ import annotations

import dataclasses
import math
import statistics
from typing import Any, ClassVar

import numpy as np

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError
from exburn.insight.uncertainty.outputs import OutputHead, check_finite_rows
from exburn.insight.uncertainty.prediction import Forecast, likely_classes
from exburn.insight.uncertainty.predictor import Predictor
from exburn.losses import MeanSquaredError
from exburn.losses.catalogue import as_loss
from exburn.models.network import Network
from exburn.models.output_kinds import loss_of_each

OP = "uncertainty"
_MOST_SAMPLES = 10_000


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class PosteriorPredictor(Predictor):
    """Predictions as means over a distribution of a model's weights.

    Of classes ``mean`` is their mean probability, and ``spread`` its standard deviation
    over the weights; sets are the fewest classes that reach the level. Of values
    ``spread`` is the standard deviation of an observation, of the weights and of the
    noise together; intervals are those of a normal distribution.

    Attributes:
        noise: The variance of observations of values around their mean; 0 of classes.
    """

    is_normal: ClassVar[bool] = True

    noise: float

    @property
    def has_spread(self) -> bool:
        return True

    def _of_outputs(self, outputs: Any, op: str) -> Forecast:
        """As of `Predictor`, by ``(mean, deviation)`` over the weights."""
        mean, deviation = (np.asarray(part, np.float64) for part in outputs)
        check_finite_rows(mean, "the output", op)
        if self.head.has_classes:
            return Forecast(mean, deviation)
        return Forecast(mean, np.sqrt(deviation**2 + self.noise))

    def _sets(self, forecast: Forecast, level: float) -> np.ndarray:
        if self.head.has_classes:
            return likely_classes(forecast.mean, level)
        assert forecast.spread is not None
        width = statistics.NormalDist().inv_cdf((1 + level) / 2) * forecast.spread
        return np.stack([forecast.mean - width, forecast.mean + width], -1)


def check_noise(noise: Any, head: OutputHead) -> float | None:
    """The variance of observations that was passed; ``None`` where it is to be found.

    Raises:
        ArgumentError: It is no positive number, or the output is classes.
    """
    if noise is None:
        return None
    if head.has_classes:
        raise ArgumentError(
            OP, f"noise is of values, and the output {head.name!r} is classes"
        )
    return check_number(OP, "noise", noise, 0, open_low=True)


def check_samples(op: str, samples: Any, least: int = 1) -> int:
    """A number of samples, also of a file, of which no one waits for too many.

    Raises:
        ArgumentError: It is out of range.
    """
    samples = check_count(op, "samples", samples, least)
    if samples > _MOST_SAMPLES:
        raise ArgumentError(
            op, f"samples must be at most {_MOST_SAMPLES:,}, received {samples:,}"
        )
    return samples


def require_gaussian(model: Network, head: OutputHead) -> None:
    """Raises ``ArgumentError`` if values were not fitted by their squared errors."""
    if head.has_classes:
        return
    loss = loss_of_each(model, head.count)[head.number]
    if not isinstance(as_loss(loss) if loss is not None else None, MeanSquaredError):
        raise ArgumentError(
            OP,
            f"values need the loss 'mse', whose errors are normal: that of the output "
            f"{head.name!r} is another",
            {"loss": loss},
            hint='method="conformal" gives intervals with any loss.',
        )


def noise_of(errors: np.ndarray, variance: np.ndarray) -> float:
    """The variance of observations that the weights do not explain.

    Args:
        errors: Of the means, ``[rows, …]``.
        variance: Of the means, by the weights.

    Example:
        >>> noise_of(np.array([2.0, -2.0]), np.array([1.0, 1.0]))
        3.0
    """
    left = float(np.mean(errors**2) - np.mean(variance))
    return max(left, 1e-6 * float(np.mean(errors**2)), math.ulp(0.0))
