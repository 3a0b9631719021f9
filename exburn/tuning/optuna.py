"""A study of Optuna as the sampler of a sweep: asked for many trials at once."""

from __future__ import annotations

import collections
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_count
from exburn.errors import ArgumentError, require
from exburn.errors.boundary import guard_methods
from exburn.training.checkpoint.provenance import Provenance, differ_error
from exburn.tuning.records import LaneRecord, Trial
from exburn.tuning.space import Choice, Interval, Space

__all__ = ["StudySampler", "is_study"]

_ATTRIBUTE = "exburn provenance"  # of a study
_PLAIN = (bool, int, float, str, type(None))  # what a categorical of Optuna may hold


@guard_methods
class StudySampler:
    """A study that a sweep asks for trials, and tells at every rung what they reached.

    A trial's score is reported at its epochs. In the end a trial that trained to the
    last epoch is complete, one that was stopped is pruned, one that turned NaN failed;
    with folds its score is their mean. What is stopped is decided by ``halving=``, not
    by the study's pruner.

    Args:
        study: What ``optuna.create_study`` returns. Its sampler chooses many trials
            before any has a score: ``TPESampler(constant_liar=True)`` spreads them.
        trials: How many trials are asked for in all.

    Raises:
        ArgumentError: It is no study of one objective, or ``trials < 1``.
        MissingDependencyError: Optuna is not installed.

    Example:
        >>> import optuna
        >>> from exburn.tuning.space import log_uniform
        >>> optuna.logging.set_verbosity(optuna.logging.WARNING)
        >>> study = optuna.create_study()
        >>> over = {"learning_rate": log_uniform(1e-4, 1e-1)}
        >>> space = Space.of(over, StudySampler(study, trials=6))
        >>> len(space.ask(4)), len(space.ask(4))
        (4, 2)

    Reference:
        Akiba et al., *Optuna: A Next-generation Hyperparameter Optimization Framework*,
        2019.
    """

    def __init__(self, study: Any, trials: int = 64):
        if not is_study(study):
            raise ArgumentError(
                "StudySampler",
                f"study must be what optuna.create_study() returns, received {study!r}",
            )
        if len(study.directions) != 1:
            reason = (
                f"the study has {len(study.directions)} objectives, a sweep has one"
            )
            raise ArgumentError("StudySampler", reason)
        self.study = study
        self.trials = check_count("StudySampler", "trials", trials)
        self._asked: dict[int, Any] = {}  # number → a trial that has not ended
        self._count = 0

    def check_mode(self, mode: str) -> None:
        """Checks that the study seeks what the sweep seeks.

        Raises:
            ArgumentError: It does not.
        """
        direction = self.study.direction.name.lower()
        if not direction.startswith(mode):
            raise ArgumentError(
                "sweep",
                f"the study must {mode}imize what is monitored, its direction is "
                f"{direction}",
                hint=f'optuna.create_study(direction="{mode}imize").',
            )

    def compare(self, provenance: Provenance) -> None:
        """Notes in the study what its scores depend on, or compares what is noted.

        Args:
            provenance: That of the sweep.

        Raises:
            CheckpointError: The study has scores of another sweep.
        """
        if (noted := self.study.user_attrs.get(_ATTRIBUTE)) is None:
            self.study.set_user_attr(_ATTRIBUTE, provenance.entries())
        elif differences := provenance.differences_from(noted):
            raise differ_error(
                "sweep",
                "the study has the scores of another sweep",
                differences,
                self.study.study_name,
                "Give each sweep a study of its own: scores of other data, or another "
                "model, are no measure.",
            )

    def ask(self, space: Space, n: int) -> list[Trial]:
        """The next trials, fewer at the end.

        Args:
            space: The domains.
            n: How many.
        """
        left = min(n, self.trials - self._count)
        trials = []
        for _ in range(left):
            asked = self.study.ask()
            trial = space.build(lambda path, of, t=asked: _suggest(t, path, of))
            self._asked[asked.number] = asked
            asked.set_user_attr("exburn", repr(_key(trial)))
            trials.append(trial)
        self._count += len(trials)
        return trials

    def tell(self, records: Sequence[LaneRecord]) -> None:
        """Reports scores; ends the trials whose lanes have ended.

        Args:
            records: Those of the lanes that this study was asked for.
        """
        state = _optuna("optuna.trial").TrialState
        for frozen, lanes in self._match(records):
            asked = self._asked.get(frozen.number)
            if asked is None:  # of another process, whose sweep goes on here
                asked = _optuna("optuna.trial").Trial(self.study, frozen._trial_id)
            score = float(np.mean([lane.score for lane in lanes]))
            ways = {lane.status for lane in lanes}
            epochs = max(lane.epochs for lane in lanes)
            if math.isfinite(score) and epochs not in frozen.intermediate_values:
                asked.report(score, epochs)
            if "running" in ways:
                continue
            if "nan" in ways or not math.isfinite(score):
                self.study.tell(asked, state=state.FAIL)
            elif "stopped" in ways:
                self.study.tell(asked, state=state.PRUNED)
            else:
                self.study.tell(asked, score)
            self._asked.pop(asked.number, None)

    def _match(
        self, records: Sequence[LaneRecord]
    ) -> list[tuple[Any, list[LaneRecord]]]:
        """Trials of the study that have not ended, with the lanes of each.

        The n-th lane of the same values, in a fold, is of the n-th trial with them.
        """
        waiting: dict[str, list[Any]] = collections.defaultdict(list)
        for trial in self._running():
            waiting[trial.user_attrs.get("exburn", "")].append(trial)
        seen: dict[Any, int] = collections.Counter()
        lanes: dict[int, list[LaneRecord]] = collections.defaultdict(list)
        for record in records:
            key = repr(_key(record.trial))
            place = seen[key, record.fold]
            seen[key, record.fold] += 1
            if place < len(waiting[key]):
                lanes[waiting[key][place].number].append(record)
        trials = [trial for several in waiting.values() for trial in several]
        pairs = [(trial, lanes[trial.number]) for trial in trials]
        return [(trial, own) for trial, own in pairs if own]

    def _running(self) -> list[Any]:
        states = (_optuna("optuna.trial").TrialState.RUNNING,)
        trials = self.study.get_trials(deepcopy=False, states=states)
        return sorted(trials, key=lambda trial: trial.number)


def is_study(value: Any) -> bool:
    """Whether it is a study of Optuna, which need not be imported to know."""
    names = ("ask", "tell", "directions", "study_name", "get_trials")
    return all(hasattr(value, name) for name in names)


def _suggest(asked: Any, path: str, domain: Any) -> Any:
    """The value that a trial of the study gives a path."""
    if isinstance(domain, Interval) and domain.whole:
        low, high = int(domain.low), int(domain.high)
        return asked.suggest_int(path, low, high, log=domain.log)
    if isinstance(domain, Interval):
        return asked.suggest_float(path, domain.low, domain.high, log=domain.log)
    assert isinstance(domain, Choice)
    if all(isinstance(value, _PLAIN) for value in domain.values):
        return asked.suggest_categorical(path, domain.values)
    places = range(len(domain.values))
    return domain.values[asked.suggest_categorical(path, list(places))]


def _key(trial: Trial) -> list[tuple[str, str]]:
    return sorted((path, repr(value)) for path, value in trial.items())


def _optuna(module: str) -> Any:
    reason = "a study is told its scores by Optuna"
    return require(module, "sweep", reason, extra="optuna")
