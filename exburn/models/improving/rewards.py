"""Functions that reward answers, and advantages of answers over others of a prompt."""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_number
from exburn.errors import ArgumentError, DataError, locate, printable
from exburn.losses.contract.base import function_name

_OP = "improve"
_SHOWN = 60  # characters of a text in an error
_SMALL = 1e-4  # beside a standard deviation, as in TRL
_MOST = 1e30  # of a reward: sums of many are finite in float32
SCALES = ("group", "batch", "none")


@dataclasses.dataclass(frozen=True)
class Reward:
    """A function that rewards answers.

    Attributes:
        name: Its name in logs.
        function: ``function(texts, **columns)`` gives a number for each text.
        weight: The factor of its numbers in the sum.
        columns: Names of the columns that it takes.
    """

    name: str
    function: Callable[..., Any]
    weight: float
    columns: tuple[str, ...]

    def of(
        self, texts: list[Any], columns: Mapping[str, list[Any]], places: Sequence[str]
    ) -> np.ndarray:
        """A number for each text.

        Args:
            columns: What the rows have beside, a value for each text.
            places: Where the rows are, for errors.

        Raises:
            DataError: It gives something else, or another number of them.
        """
        values = self._call(texts, columns, places)
        given = _as_list(values)
        if given is None or len(given) != len(texts):
            what = type(values).__name__ if given is None else f"{len(given)} values"
            raise self._error(
                f"gives {what} for {len(texts)} texts",
                {"first text": _excerpt(texts[0]), "of": places[0]},
            )
        for text, place, value in zip(texts, places, given, strict=True):
            if not _is_number(value, self.weight):
                what = printable(repr(value))[:_SHOWN]
                raise self._error(
                    f"gives {what} for an answer to {place}", {"text": _excerpt(text)}
                )
        return np.array([float(value) for value in given], np.float64)

    def _error(self, problem: str, details: dict[str, Any]) -> DataError:
        return DataError(
            _OP,
            f"a reward is one finite number a text: {self.name!r} {problem}",
            details,
            hint="It gets a list of texts, and returns as many numbers.",
        )

    def _call(self, texts: list[Any], columns: Mapping, places: Sequence[str]) -> Any:
        # Copies: a function that sorts them in place must not exchange others' texts.
        own = {name: [*columns[name]] for name in self.columns}
        try:
            return self.function([*texts], **own)
        except Exception as error:
            own = {name: columns[name] for name in self.columns}
            place = self._place_of_failure(texts, own, places)
            locate(error, f"in reward {self.name!r} of an answer to {place}")
            raise

    def _place_of_failure(
        self, texts: list[Any], own: Mapping, places: Sequence[str]
    ) -> str:
        """The place of the first row for which it raises alone, or all of them."""
        for at, place in enumerate(places):
            try:
                self.function([texts[at]], **{n: [v[at]] for n, v in own.items()})
            except Exception:
                return f"{place}, {_excerpt(texts[at])!r}"
        return f"{places[0]} to {places[-1]}, together"


def read_rewards(
    reward: Any, weights: Any, columns: Sequence[str]
) -> tuple[Reward, ...]:
    """The functions that a user gave as ``reward``.

    Args:
        reward: A function, or several.
        weights: A factor for each; ``None`` for 1.
        columns: Names of what all rows have.

    Raises:
        ArgumentError: One is no function of texts, or takes a column that rows lack.
    """
    functions = list(reward) if isinstance(reward, list | tuple) else [reward]
    if not functions:
        raise ArgumentError(_OP, "there is no reward function")
    factors = [1.0] * len(functions) if weights is None else _as_list(weights)
    if factors is None or len(factors) != len(functions):
        raise ArgumentError(
            _OP,
            f"reward_weights has a number for each of the {len(functions)} reward "
            f"functions, received {weights!r}",
        )
    names: list[str] = []
    rewards = []
    for function, weight in zip(functions, factors, strict=True):
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise ArgumentError(
                _OP,
                f"reward is a function of texts, or several, received {function!r}",
                hint="def reward(texts): return [float(len(text)) for text in texts]",
            )
        name = function_name(function)
        names.append(name)
        if (count := names.count(name)) > 1:
            name = f"{name}_{count}"
        weight = check_number(_OP, "reward_weights", weight, -math.inf)
        taken = _columns_of(function, name, columns)
        rewards.append(Reward(name, function, weight, taken))
    return tuple(rewards)


def _columns_of(function: Any, name: str, columns: Sequence[str]) -> tuple[str, ...]:
    """Names of the columns that a function takes behind the texts."""
    try:
        _, *further = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # builtins without a signature, or no parameter
        return ()
    taken = []
    for parameter in further:
        if parameter.kind is parameter.VAR_KEYWORD:
            return tuple(columns)
        if parameter.name in columns:
            taken.append(parameter.name)
        elif (
            parameter.default is parameter.empty
            and parameter.kind is not parameter.VAR_POSITIONAL
        ):
            raise ArgumentError(
                _OP,
                f"the reward {name!r} takes {parameter.name!r}, which is no column of "
                "all rows",
                {"columns": ", ".join(map(printable, columns))},
                hint="Its first argument are the texts of the answers; the others are "
                "columns of the rows of prompts, by their names.",
            )
    return tuple(taken)


def advantages(
    rewards: np.ndarray, group: int, scale: str
) -> tuple[np.ndarray, np.ndarray]:
    """Rewards as far as they are above those of the other answers to a prompt.

    Args:
        rewards: Of the answers; those of a prompt follow each other.
        group: Answers of a prompt.
        scale: What they are divided by: the standard deviation of a ``"group"``, of
            the whole ``"batch"``, or ``"none"``.

    Returns:
        The advantages, and for each group whether its rewards are all the same.

    Example:
        >>> values, alike = advantages(np.array([1.0, 3.0, 5.0, 5.0]), 2, "none")
        >>> values.tolist(), alike.tolist()
        ([-1.0, 1.0, 0.0, 0.0], [False, True])
    """
    groups = rewards.reshape(-1, group)
    centred = groups - groups.mean(1, keepdims=True)
    spread = groups.std(1, keepdims=True, ddof=1)
    alike = np.isclose(spread[:, 0], 0)
    if scale == "batch":
        spread = rewards.std(ddof=1)
    if scale != "none":
        centred = centred / (spread + _SMALL)
    return centred.reshape(-1), alike


def _as_list(values: Any) -> list[Any] | None:
    """The values of a list or an array of one axis; ``None`` for anything else."""
    if isinstance(values, list | tuple):
        return list(values)
    if getattr(values, "ndim", None) == 1:
        return np.asarray(values).tolist()
    return None


def _is_number(value: Any, weight: float) -> bool:
    """Whether it is a finite number, also as float32, and with its weight."""
    try:
        number = math.nan if isinstance(value, str | bytes) else float(value)
    except (TypeError, ValueError, OverflowError):
        return False
    return abs(number) <= _MOST and abs(number * weight) <= _MOST


def _excerpt(text: Any) -> str:
    shown = text if isinstance(text, str) else str(np.asarray(text).tolist())
    return printable(shown)[:_SHOWN]
