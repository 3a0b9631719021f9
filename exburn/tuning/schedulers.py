"""Which lanes go on, and with what values: decisions on numbers alone."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count, check_number, check_rate
from exburn.errors import ArgumentError
from exburn.errors.boundary import guard_methods
from exburn.tuning.records import Trial, finite_scores, ranking
from exburn.tuning.space import Choice, Space

__all__ = [
    "PBT",
    "Halving",
    "Hyperband",
    "OfFolds",
    "Rung",
    "Scheduler",
    "lane_epochs",
]


@dataclasses.dataclass(frozen=True)
class Rung:
    """A stretch of a sweep: so many lanes train until so many epochs.

    Attributes:
        epochs: The epochs that a lane has behind it at the end of the stretch.
        groups: For each lane of the sweep, by its first position, with which lanes it
            is compared at the end; -1: with none, it goes on. ``None``: all with all.
    """

    epochs: int
    lanes: int
    groups: tuple[int, ...] | None = None


def lane_epochs(rungs: Sequence[Rung]) -> int:
    """The epochs that all lanes of a plan train together.

    Example:
        >>> lane_epochs(Halving(eta=3).plan(9, epochs=9))  # 9·1 + 3·2 + 1·6
        21
    """
    ends = [0, *(rung.epochs for rung in rungs)]
    return sum(
        rung.lanes * (rung.epochs - before)
        for rung, before in zip(rungs, ends, strict=False)
    )


class Scheduler:
    """What decides at each rung which lanes go on."""

    def plan(self, lanes: int, epochs: int) -> list[Rung]:
        """The rungs of a sweep, the last one at its last epoch.

        Args:
            lanes: How many lanes begin.
            epochs: How long the longest of them train.
        """
        raise NotImplementedError

    def keep(
        self,
        scores: Any,
        mode: str,
        rung: Rung | None = None,
        lanes: Any = None,
    ) -> np.ndarray:
        """The positions of the lanes that go on, in their order.

        Args:
            scores: [lanes] what is monitored; NaN of a lane that is frozen.
            mode: ``"min"`` or ``"max"``: which scores are better.
            rung: The rung of the plan that has ended.
            lanes: [lanes] at which position of the sweep's first lanes each was.
        """
        raise NotImplementedError


@guard_methods
@dataclasses.dataclass(frozen=True)
class Halving(Scheduler):
    """Successive halving: one lane in ``eta`` goes on, for ``eta`` times as long.

    With ``n`` lanes and ``R`` epochs there are ``s + 1`` rungs, at the epochs
    ``R η^-s, …, R η^-1, R``; at rung ``i`` there are ``⌊n η^-i⌋`` lanes. ``s`` is as
    large as ``n``, ``R`` and ``min_epochs`` allow.

    Args:
        eta: One in how many goes on, at least 2; 3 is usual.
        min_epochs: The least epochs before a lane may be stopped.

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> [(r.epochs, r.lanes) for r in Halving(eta=3).plan(81, epochs=27)]
        [(1, 81), (3, 27), (9, 9), (27, 3)]
        >>> Halving(eta=2).keep([0.3, 0.1, float("nan"), 0.2], "min").tolist()
        [1, 3]

    Source: Jamieson and Talwalkar, *Non-stochastic Best Arm Identification and
    Hyperparameter Optimization*, 2016.
    """

    eta: float = 3
    min_epochs: int = 1

    def __post_init__(self):
        check_number("Halving", "eta", self.eta, 2)
        check_count("Halving", "min_epochs", self.min_epochs)

    def plan(self, lanes: int, epochs: int) -> list[Rung]:
        lanes, epochs = _check_size("Halving", lanes, epochs)
        halvings = min(_log(lanes, self.eta), _log(epochs / self.min_epochs, self.eta))
        rungs = []
        for left in range(halvings, -1, -1):
            rungs.append(Rung(_share(epochs, self.eta, left), lanes))
            lanes = _survivors(lanes, self.eta)
        return rungs

    def keep(
        self, scores: Any, mode: str, rung: Rung | None = None, lanes: Any = None
    ) -> np.ndarray:
        return _best(scores, mode, _survivors(len(scores), self.eta))


@guard_methods
@dataclasses.dataclass(frozen=True)
class Hyperband(Scheduler):
    """Several successive halvings side by side, from daring to cautious.

    Bracket ``s`` is a halving whose first rung is at ``R η^-s`` epochs; of all lanes it
    gets a share in proportion to ``⌈(s_max + 1) η^s / (s + 1)⌉``. All rungs are at the
    same epochs, so that the brackets are one program. Lanes are dealt to them at
    random, since a grid's neighbours are alike.

    Args:
        eta: As in :class:`Halving`.
        min_epochs: As in :class:`Halving`.
        seed: Of how the lanes are dealt.

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> rungs = Hyperband(eta=3).plan(22, epochs=9)
        >>> [(rung.epochs, rung.lanes) for rung in rungs]
        [(1, 22), (3, 14), (9, 7)]

    Source: Li et al., *Hyperband: A Novel Bandit-Based Approach to Hyperparameter
    Optimization*, 2018.
    """

    eta: float = 3
    min_epochs: int = 1
    seed: int = 0

    def __post_init__(self):
        check_number("Hyperband", "eta", self.eta, 2)
        check_count("Hyperband", "min_epochs", self.min_epochs)
        check_count("Hyperband", "seed", self.seed, 0)

    def brackets(self, lanes: int, epochs: int) -> np.ndarray:
        """[lanes] The bracket of each lane: how many halvings it may go through."""
        lanes, epochs = _check_size("Hyperband", lanes, epochs)
        most = min(_log(epochs / self.min_epochs, self.eta), _log(lanes, self.eta))
        sizes = [
            math.ceil((most + 1) * self.eta**s / (s + 1)) for s in range(most, -1, -1)
        ]
        ends = np.cumsum(sizes) / sum(sizes) * lanes  # [brackets]
        places = np.searchsorted(ends, np.arange(lanes) + 0.5)  # [lanes]
        brackets = most - np.minimum(places, most)
        return np.random.default_rng(self.seed).permutation(brackets)

    def plan(self, lanes: int, epochs: int) -> list[Rung]:
        brackets = self.brackets(lanes, epochs)
        most = int(brackets.max())
        left = {s: int((brackets == s).sum()) for s in range(most + 1)}
        rungs = []
        for level in range(most, -1, -1):
            groups = np.where(brackets >= level, brackets, -1)  # [lanes]
            end = _share(epochs, self.eta, level)
            rungs.append(Rung(end, sum(left.values()), tuple(groups.tolist())))
            for s in range(level, most + 1):
                left[s] = _survivors(left[s], self.eta) if left[s] else 0
        return rungs

    def keep(
        self, scores: Any, mode: str, rung: Rung | None = None, lanes: Any = None
    ) -> np.ndarray:
        if rung is None or rung.groups is None or lanes is None:
            reason = "the rung of the plan and the lanes' positions are needed"
            raise ArgumentError("Hyperband.keep", reason)
        values = np.asarray(scores, np.float64)  # [lanes]
        groups = np.asarray(rung.groups)[np.asarray(lanes)]  # [lanes]
        mask = np.isfinite(values) & (groups < 0)
        for group in np.unique(groups[groups >= 0]):
            inside = np.flatnonzero(groups == group)
            best = _best(values[inside], mode, _survivors(len(inside), self.eta))
            mask[inside[best]] = True
        return np.flatnonzero(mask)


@guard_methods
@dataclasses.dataclass(frozen=True)
class PBT(Scheduler):
    """Population based training: now and then the worst copy the best, and explore.

    Every ``interval`` epochs each lane of the worst ``fraction``, NaN ones among them,
    takes weights, optimizer state and values of a lane that is drawn from the best
    ``fraction``. Then its values are explored: with probability ``resample`` a value is
    drawn anew, else it is multiplied by one of ``factors``; it stays in its domain.

    Args:
        interval: Epochs between two decisions.
        fraction: The share of lanes that copy, at most a half.
        factors: By what a value may be multiplied.
        resample: The probability that a value is drawn anew.
        explore: The paths that are explored; by default those whose values are floats,
            so that seeds and widths stay with the weights.

    Raises:
        ArgumentError: An argument is out of range.

    Example:
        >>> trials = [{"learning_rate": rate} for rate in (0.1, 0.2, 0.4, 0.8)]
        >>> rng = np.random.default_rng(0)
        >>> sources, new = PBT(fraction=0.25).exploit([3, 1, 2, 4], trials, rng)
        >>> sources.tolist(), round(new[3]["learning_rate"], 2)
        ([0, 1, 2, 1], 0.24)

    Source: Jaderberg et al., *Population Based Training of Neural Networks*, 2017.
    """

    interval: int = 1
    fraction: float = 0.2
    factors: tuple[float, ...] = (0.8, 1.2)
    resample: float = 0.25
    explore: tuple[str, ...] | None = None

    def __post_init__(self):
        check_count("PBT", "interval", self.interval)
        check_number("PBT", "fraction", self.fraction, 0, 0.5, open_low=True)
        check_rate("PBT", "resample", self.resample)
        factors = self.factors
        if not isinstance(factors, Sequence) or isinstance(factors, str) or not factors:
            raise ArgumentError(
                "PBT", f"factors must be a list of numbers, received {factors!r}"
            )
        for factor in factors:
            check_number("PBT", "a factor", factor, 0, open_low=True)
        object.__setattr__(self, "factors", tuple(factors))
        if self.explore is None:
            return
        if isinstance(self.explore, str):
            reason = f"explore must be a list of paths, received {self.explore!r}"
            raise ArgumentError("PBT", reason)
        object.__setattr__(self, "explore", tuple(self.explore))

    def plan(self, lanes: int, epochs: int) -> list[Rung]:
        lanes, epochs = _check_size("PBT", lanes, epochs)
        ends = [*range(self.interval, epochs, self.interval), epochs]
        return [Rung(end, lanes) for end in ends]

    def keep(
        self, scores: Any, mode: str, rung: Rung | None = None, lanes: Any = None
    ) -> np.ndarray:
        return np.arange(len(scores))

    def exploit(
        self,
        scores: Any,
        trials: Sequence[Trial],
        rng: np.random.Generator,
        mode: str = "min",
        space: Space | None = None,
    ) -> tuple[np.ndarray, list[Trial]]:
        """Which lane each goes on from, and with what values.

        Args:
            scores: [lanes] what is monitored; NaN of a lane that is frozen.
            trials: The lanes' values.
            rng: Where the draws come from.
            mode: ``"min"`` or ``"max"``: which scores are better.
            space: The domains, in which explored values stay and are drawn anew.

        Returns:
            [lanes] positions, a lane's own where it goes on as it is, and the values.
        """
        finite = np.isfinite(finite_scores(scores, mode))  # [lanes]
        order = ranking(scores, mode)
        sources, new = np.arange(len(trials)), [dict(trial) for trial in trials]
        count = max(1, int(len(trials) * self.fraction))
        best = [position for position in order[:count] if finite[position]]
        if not best or len(trials) < 2:
            return sources, new
        # Frozen lanes have nothing to go on with, however many they are.
        worst = [p for p in order[count:] if not finite[p]]
        worst += [p for p in order[-count:] if finite[p] and p not in best]
        for position in sorted(worst):
            sources[position] = rng.choice(best)
            source = trials[int(sources[position])]
            new[position] = self._explore(source, rng, space)
        return sources, new

    def _explore(
        self, trial: Trial, rng: np.random.Generator, space: Space | None
    ) -> Trial:
        """The values of a lane that goes on from one with these."""
        if space is None:
            return {p: self._move(p, value, None, rng) for p, value in trial.items()}

        def value_of(path: str, domain: Any) -> Any:
            if path not in trial:  # its condition holds only now
                return domain.draw(rng)
            return self._move(path, trial[path], domain, rng)

        return space.build(value_of)

    def _move(
        self, path: str, value: Any, domain: Any, rng: np.random.Generator
    ) -> Any:
        """A value near this one, or a new one; the value itself if it stays."""
        asked = (
            isinstance(value, float) if self.explore is None else path in self.explore
        )
        number = isinstance(value, float | int) and not isinstance(value, bool)
        if not asked or domain is None and not number:
            return value
        if domain is not None and rng.random() < self.resample:
            return domain.draw(rng)
        if isinstance(domain, Choice):  # one step along the list
            return _neighbour(domain, value, rng)
        moved = value * float(rng.choice(self.factors))
        moved = moved if domain is None else domain.nearest(moved)
        return round(moved) if isinstance(value, int) else moved


@dataclasses.dataclass(frozen=True)
class OfFolds(Scheduler):
    """A scheduler whose decisions are on trials: all folds of one go on, or none.

    A trial's score is the mean of its folds', and NaN if one of them is frozen.

    Args:
        folds: Lanes of a trial, which stand side by side.
    """

    scheduler: Scheduler
    folds: int

    def plan(self, lanes: int, epochs: int) -> list[Rung]:
        rungs = []
        for rung in self.scheduler.plan(lanes // self.folds, epochs):
            groups = rung.groups
            if groups is not None:
                groups = tuple(np.repeat(groups, self.folds).tolist())
            rungs.append(Rung(rung.epochs, rung.lanes * self.folds, groups))
        return rungs

    def keep(
        self, scores: Any, mode: str, rung: Rung | None = None, lanes: Any = None
    ) -> np.ndarray:
        if lanes is None:
            raise ArgumentError("OfFolds.keep", "the lanes' positions are needed")
        trials, means, members = self._by_trial(scores, lanes)
        if rung is not None and rung.groups is not None:
            rung = dataclasses.replace(rung, groups=rung.groups[:: self.folds])
        places = self.scheduler.keep(means, mode, rung, trials)
        return np.sort(np.concatenate([members[i] for i in places] or [[]])).astype(int)

    def _by_trial(
        self, scores: Any, lanes: Any
    ) -> tuple[np.ndarray, np.ndarray, list[np.ndarray]]:
        """Trials that have lanes here, the means of their scores, their positions."""
        values = np.asarray(scores, np.float64)  # [lanes]
        of = np.asarray(lanes) // self.folds  # [lanes]
        trials = np.unique(of)
        members = [np.flatnonzero(of == trial) for trial in trials]
        means = [
            values[own].mean() if len(own) == self.folds else math.nan
            for own in members
        ]
        return trials, np.asarray(means), members


def _neighbour(domain: Choice, value: Any, rng: np.random.Generator) -> Any:
    place = domain.values.index(value) + int(rng.choice([-1, 1]))
    return domain.values[min(max(place, 0), len(domain.values) - 1)]


def _best(scores: Any, mode: str, count: int) -> np.ndarray:
    """The positions of the best, in their order; never one that is not finite."""
    finite = np.isfinite(finite_scores(scores, mode))
    order = [position for position in ranking(scores, mode) if finite[position]]
    return np.sort(np.asarray(order[:count], np.int64))


def _survivors(lanes: int, eta: float) -> int:
    return max(1, math.floor(lanes / eta))


def _share(epochs: int, eta: float, level: int) -> int:
    """``R η^-level``, a whole number ≥ 1."""
    return max(1, round(epochs / eta**level))


def _log(value: float, eta: float) -> int:
    """⌊log_η value⌋, exact at powers, which logarithms miss; 0 below 1."""
    count = 0
    while value >= eta ** (count + 1) * (1 - 1e-12):
        count += 1
    return count


def _check_size(op: str, lanes: Any, epochs: Any) -> tuple[int, int]:
    return check_count(op, "lanes", lanes), check_count(op, "epochs", epochs)
