"""How much a private training may say of one row, and how much it has said."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, require, unknown_name

_ACCOUNTANTS = "rdp", "pld"
_NORMS = "auto", "ghost", "rows"
_LEAST_NOISE = 0.01  # times the clip
_MOST_NOISE = 1_000.0  # times the clip: a training learns nothing long before that
_REST = 1e-4  # of an epsilon: less is what the search for the noise has left over


@dataclasses.dataclass(frozen=True)
class Spending:
    """Steps that were taken with the same noise and the same chance of a row.

    Args:
        noise: Standard deviation of the noise, in multiples of the clip.
        rate: Probability with which a row is in a step's batch.
        steps: How many steps.

    Raises:
        ArgumentError: A number can never be one of a training.
    """

    noise: float
    rate: float
    steps: int

    def __post_init__(self) -> None:
        check_number("privacy", "noise", self.noise, open_low=True)
        check_number("privacy", "rate", self.rate, high=1)
        check_count("privacy", "steps", self.steps, least=0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Privacy:
    r"""What DP-SGD promises of each row, and how.

    A training is :math:`(\epsilon, \delta)`-private if for all data sets that differ in
    one row, and all sets :math:`S` of results,
    :math:`P(S) \le e^\epsilon P'(S) + \delta`. Each row's gradient is clipped, and
    noise that hides any one of them is added to their sum.

    Args:
        delta: Probability with which more may be said than epsilon allows; far less
            than one over the number of rows.
        epsilon: What all trainings together may say. The noise of a ``fit`` is chosen
            for its rows, batches and epochs, so that they end with it.
        noise: The noise itself, in the place of ``epsilon``: its standard deviation in
            multiples of the clip.
        clip: Largest L2 norm of the gradient of a row, over all weights together.
        accountant: ``"rdp"``: Rényi differential privacy; ``"pld"``: privacy loss
            distributions, which take longer and tell a smaller epsilon.
        norms: How the norms of rows' gradients are computed. ``"rows"``: from the
            gradients of each row. ``"ghost"``: without them, for all weights that a
            layer multiplies its input with, or looks up, and of which a row is a
            product by itself. ``"auto"``: without them where that takes less memory.
            ``model.privacy.norms`` tells which it is for each weight.
        spent: What was spent on these weights before.

    Raises:
        ArgumentError: A number can never work, or not just one of epsilon and noise is
            given.
        UnknownNameError: There is no such accountant, or no such way to norms.
        MissingDependencyError: ``dp-accounting`` is not installed.

    Example:
        >>> privacy = Privacy(epsilon=3, delta=1e-5)
        >>> noise = privacy.noise_for(rate=0.01, steps=1000)
        >>> round(noise, 2), round(privacy.epsilon_of([Spending(noise, 0.01, 1000)]), 2)
        (0.86, 3.0)

    Deep Learning with Differential Privacy (Abadi et al., 2016).
    """

    delta: float
    epsilon: float | None = None
    noise: float | None = None
    clip: float = 1.0
    accountant: str = "rdp"
    norms: str = "auto"
    spent: tuple[Spending, ...] = ()

    def __post_init__(self) -> None:
        for name in ("epsilon", "noise", "clip"):
            if (value := getattr(self, name)) is not None or name == "clip":
                value = check_number("Privacy", name, value, open_low=True)
                object.__setattr__(self, name, value)
        delta = check_number(
            "Privacy", "delta", self.delta, high=1, open_low=True, open_high=True
        )
        object.__setattr__(self, "delta", delta)
        if (self.epsilon is None) == (self.noise is None):
            raise ArgumentError(
                "Privacy",
                "either epsilon or noise is needed, received "
                f"epsilon={self.epsilon!r} and noise={self.noise!r}",
                hint="epsilon=3 chooses the noise; noise=1.1 has its epsilon told.",
            )
        if self.accountant not in _ACCOUNTANTS:
            raise unknown_name(
                "accountant", self.accountant, _ACCOUNTANTS, op="Privacy"
            )
        if self.norms not in _NORMS:
            raise unknown_name("norms", self.norms, _NORMS, op="Privacy")
        object.__setattr__(self, "spent", tuple(self.spent))
        _dp_accounting()

    def epsilon_of(self, spending: Sequence[Spending]) -> float:
        """The epsilon of steps at this delta; of none it is 0."""
        if not any(one.steps for one in spending):
            return 0.0
        accountant = self._new_accountant()
        with _quiet():
            accountant.compose(_event_of(spending))
            return float(accountant.get_epsilon(self.delta))

    def noise_for(
        self, rate: float, steps: int, before: Sequence[Spending] = ()
    ) -> float:
        """The noise with which further steps end with epsilon, or that was given.

        Args:
            before: What was spent before these steps.

        Raises:
            ArgumentError: No noise makes the steps private enough.
        """
        if self.noise is not None:
            return self.noise
        assert self.epsilon is not None
        already = self.epsilon_of(before)
        reason = f"epsilon={already:.4g} was spent before"
        if already < self.epsilon * (1 - _REST):
            noise = self._calibrate(rate, steps, before)
            if noise is not None:
                return noise
            reason = f"the noise would be more than {_MOST_NOISE:,.0f} times the clip"
        raise ArgumentError(
            "fit",
            f"epsilon={self.epsilon:g} cannot be reached in {steps} steps: {reason}",
            {"rate": rate, "delta": self.delta, "steps": steps},
            hint="A larger epsilon, fewer epochs, smaller batches, or more rows.",
        )

    def _calibrate(
        self, rate: float, steps: int, before: Sequence[Spending]
    ) -> float | None:
        """The least noise of further steps; ``None`` if it would be too much."""

        def epsilon(noise: float) -> float:
            return self.epsilon_of([*before, Spending(noise, rate, steps)])

        assert self.epsilon is not None
        if steps == 0:
            return _MOST_NOISE
        if epsilon(_MOST_NOISE) > self.epsilon:
            return None
        if epsilon(_LEAST_NOISE) <= self.epsilon:
            return _LEAST_NOISE
        dp = _dp_accounting()
        with _quiet():
            noise = dp.calibrate_dp_mechanism(
                self._new_accountant,
                lambda noise: _event_of([*before, Spending(noise, rate, steps)]),
                self.epsilon,
                self.delta,
                dp.ExplicitBracketInterval(_LEAST_NOISE, _MOST_NOISE),
                tol=1e-6,
            )
        return float(noise)

    def _new_accountant(self) -> Any:
        dp = _dp_accounting()
        if self.accountant == "rdp":
            return dp.rdp.RdpAccountant()
        return dp.pld.PLDAccountant()


def _event_of(spending: Sequence[Spending]) -> Any:
    """Steps as dp-accounting describes them; those that are alike are one event."""
    dp = _dp_accounting()
    steps: Counter[tuple[float, float]] = Counter()
    for one in spending:
        steps[one.noise, one.rate] += one.steps
    return dp.ComposedDpEvent(
        [
            dp.SelfComposedDpEvent(
                dp.PoissonSampledDpEvent(rate, dp.GaussianDpEvent(noise)), count
            )
            for (noise, rate), count in steps.items()
            if count
        ]
    )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Lets dp-accounting leave out orders that do not converge without a line each.

    Without them epsilon is only larger.
    """
    log = logging.getLogger("absl")
    before = log.level
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        log.setLevel(before)


def _dp_accounting() -> Any:
    reason = "private training needs dp-accounting"
    package: dict[str, Any] = {"extra": "privacy", "package": "dp-accounting"}
    require("dp_accounting.rdp", "Privacy", reason, **package)
    require("dp_accounting.pld", "Privacy", reason, **package)
    return require("dp_accounting", "Privacy", reason, **package)
