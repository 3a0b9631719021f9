"""What a sweep keeps of each lane: its values, its curves, how it ended, its score."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from exburn.core.checks import check_choice
from exburn.errors import FileFormatError
from exburn.errors.boundary import guard_methods
from exburn.saving.json_text import is_count

__all__ = ["LaneRecord", "Status", "Trial", "check_mode", "finite_scores", "ranking"]

Trial = dict[str, Any]  # path → value; what is not varied here has no entry
Status = Literal["running", "finished", "stopped", "nan"]
_LARGEST = 10**300  # of a whole number, which becomes a float


@guard_methods
@dataclasses.dataclass
class LaneRecord:
    """One lane of a sweep: a variant of the model, on one fold if there are several.

    Attributes:
        trial: The path of everything that was varied, and the lane's value of it.
        history: For every logged name its values, epoch by epoch, as of ``History``.
        epochs: How many epochs the lane was trained.
        status: ``"running"``; ``"finished"`` after all of its epochs, or by
            ``EarlyStopping``; ``"stopped"`` by the scheduler or a callback; ``"nan"``:
            frozen when it turned NaN.
        fold: The fold whose rows the lane is validated on; ``None`` without folds.
        score: The last value of what is monitored, or its value in the best epoch if
            ``EarlyStopping`` restores that one's weights; NaN if there is none. It is
            the value of the weights that the lane has in the end.

    Example:
        >>> lane = LaneRecord({"seed": 3, "learning_rate": 1e-3})
        >>> lane.log({"loss": 0.5, "val_loss": 0.7}, monitor="val_loss")
        >>> lane.epochs, lane.score
        (1, 0.7)
        >>> LaneRecord.from_config(lane.get_config()) == lane
        True
    """

    trial: Trial
    history: dict[str, list[float]] = dataclasses.field(default_factory=dict)
    epochs: int = 0
    status: Status = "running"
    fold: int | None = None
    score: float = math.nan

    def log(self, logs: dict[str, Any], monitor: str) -> None:
        """Adds what one epoch logged; the score is what is monitored, if it is there.

        Args:
            logs: Name → number.
            monitor: The name of what is monitored.
        """
        for name, value in logs.items():
            self.history.setdefault(name, []).append(float(value))
        self.epochs += 1
        if monitor in logs:
            self.score = float(logs[monitor])

    def get_config(self) -> dict[str, Any]:
        """The record as JSON knows it; values of other kinds as their ``repr``."""
        trial = {path: plain(value) for path, value in self.trial.items()}
        history = {name: [*values] for name, values in self.history.items()}
        return vars(self) | {"trial": trial, "history": history}

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> LaneRecord:
        """The record that ``get_config`` described.

        Raises:
            FileFormatError: It is no such description.
        """
        wrong = _wrong_entry(config)
        if wrong is not None:
            reason = "a record of a sweep does not have this in its place"
            raise FileFormatError("LaneRecord", reason, {"place": wrong})
        history = {
            name: [float(value) for value in values]
            for name, values in config["history"].items()
        }
        return cls(**config | {"history": history, "score": float(config["score"])})


def _wrong_entry(config: Any) -> str | None:
    """The first entry of a description that is not as in a record, or ``None``."""
    names = [field.name for field in dataclasses.fields(LaneRecord)]
    if not isinstance(config, dict) or {*config} != {*names}:
        return "entries"
    epochs, trial, history = config["epochs"], config["trial"], config["history"]
    status, fold = config["status"], config["fold"]
    right = {
        "epochs": is_count(epochs),
        "trial": isinstance(trial, dict) and all(map(_is_plain, trial.values())),
        "history": isinstance(history, dict)
        and all(_is_curve(values, epochs) for values in history.values()),
        "status": isinstance(status, str) and status in get_args(Status),
        "fold": fold is None or is_count(fold),
        "score": _is_real(config["score"]),
    }
    return next((name for name, holds in right.items() if not holds), None)


def _is_plain(value: Any) -> bool:
    """Tells whether ``plain`` returns such a value."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, str | bool) or _is_real(value)


def _is_real(value: Any) -> bool:
    if type(value) is int:
        return abs(value) < _LARGEST
    return isinstance(value, float)


def _is_curve(values: Any, epochs: Any) -> bool:
    """Tells whether these are the values of a logged name, at most one an epoch."""
    if not isinstance(values, list) or not is_count(epochs):
        return False
    return 0 < len(values) <= epochs and all(map(_is_real, values))


def plain(value: Any) -> Any:
    """A value of a trial as JSON knows it.

    Example:
        >>> plain(np.float64(0.5)), plain((1, np.int32(2))), plain(print)
        (0.5, [1, 2], '<built-in function print>')
    """
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value if isinstance(value, str | int | float | None) else repr(value)


def check_mode(op: str, mode: Any) -> str:
    """The direction in which a score is better: ``"min"`` or ``"max"``."""
    return check_choice(op, "mode", mode, ("min", "max"))


def finite_scores(scores: Any, mode: str) -> np.ndarray:
    """Scores of which the smallest is best; what is not finite is infinite.

    Args:
        scores: [lanes] numbers.

    Example:
        >>> finite_scores([0.5, float("nan"), 0.7], "max")
        array([-0.5,  inf, -0.7])
    """
    values = np.asarray(scores, np.float64)  # [lanes]
    values = -values if check_mode("scores", mode) == "max" else values
    return np.where(np.isfinite(values), values, np.inf)


def ranking(scores: Any, mode: str) -> np.ndarray:
    """Positions from the best score to the worst: equals in order, NaN at the end.

    Args:
        scores: [lanes] numbers.

    Example:
        >>> ranking([0.5, float("nan"), 0.7, 0.5], "min").tolist()
        [0, 3, 2, 1]
    """
    return np.argsort(finite_scores(scores, mode), kind="stable")


def describe(trial: Trial) -> str:
    """A trial on one line.

    Example:
        >>> describe({"seed": 3, "learning_rate": 0.0123456, "act": "relu"})
        'seed=3, learning_rate=0.01235, act=relu'
    """
    return ", ".join(
        f"{path}={value:.4g}" if isinstance(value, float) else f"{path}={value}"
        for path, value in trial.items()
    )


def best_of(records: Sequence[LaneRecord], mode: str) -> LaneRecord:
    """The record of the best score; the first one if none has any."""
    return records[int(ranking([r.score for r in records], mode)[0])]
