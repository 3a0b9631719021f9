"""Which variants a sweep trains: values by path, and how trials are made of them."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from exburn.core.checks import check_count, check_number
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.tuning.records import LaneRecord, Trial

__all__ = [
    "Choice",
    "Condition",
    "Domain",
    "GridSampler",
    "Interval",
    "RandomSearch",
    "TrialSampler",
    "Space",
    "choice",
    "grid",
    "integers",
    "log_uniform",
    "random",
    "uniform",
    "when",
]

MOST_TRIALS = 1_000_000  # a grid of more is a slip: it would fill the host's memory


class Domain(Protocol):
    """The values that one path may have."""

    def points(self, path: str) -> list[Any]:
        """The values that a grid takes of it; the path is for errors."""
        ...

    def draw(self, rng: np.random.Generator) -> Any:
        """One value at random."""
        ...

    def nearest(self, value: Any) -> Any:
        """The closest value that is in it."""
        ...


@dataclasses.dataclass(frozen=True)
class Choice:
    """One of several values of any kind; see :func:`choice`."""

    values: tuple[Any, ...]

    def points(self, path: str) -> list[Any]:
        return list(self.values)

    def draw(self, rng: np.random.Generator) -> Any:
        return self.values[rng.integers(len(self.values))]

    def nearest(self, value: Any) -> Any:
        if not all(_is_number(item) for item in self.values):
            return value
        return min(self.values, key=lambda item: abs(item - value))


@dataclasses.dataclass(frozen=True)
class Interval:
    """Numbers from ``low`` to ``high``; see :func:`uniform`."""

    low: float
    high: float
    n: int | None = None
    log: bool = False
    whole: bool = False

    def points(self, path: str) -> list[Any]:
        if self.n is None and self.whole:
            every = range(int(self.low), int(self.high) + 1)
            return list(_as_choice("grid", f"the values of {path!r}", every).values)
        if self.n is None:
            name = "log_uniform" if self.log else "uniform"
            raise ArgumentError(
                "grid",
                f"{path!r} has no number of values, and a grid takes only so many",
                {"received": f"{name}({self.low:g}, {self.high:g})"},
                hint=f"{name}({self.low:g}, {self.high:g}, 8), or sampler=random(64).",
            )
        space = np.geomspace if self.log else np.linspace
        if self.n == 1:  # the middle
            return [self._value(space(self.low, self.high, 3)[1])]
        values = [self._value(v) for v in space(self.low, self.high, self.n)]
        return list(dict.fromkeys(values))

    def draw(self, rng: np.random.Generator) -> Any:
        if self.whole and not self.log:
            return int(rng.integers(int(self.low), int(self.high), endpoint=True))
        if self.log:
            return self._value(math.exp(rng.uniform(*self._logs())))
        return self._value(rng.uniform(self.low, self.high))

    def nearest(self, value: Any) -> Any:
        return self._value(value)

    def _value(self, value: float) -> Any:
        """The number, within the bounds: powers and roots may round past them."""
        value = min(max(float(value), self.low), self.high)
        return int(round(value)) if self.whole else value

    def _logs(self) -> tuple[float, float]:
        return math.log(self.low), math.log(self.high)


@dataclasses.dataclass(frozen=True)
class Condition:
    """Values of a path that exists where another one has some value; see ``when``."""

    path: str
    values: tuple[Any, ...] | Callable[[Any], Any]
    then: Any  # a Domain

    def holds(self, trial: Trial) -> bool:
        """Whether the path exists in this trial."""
        if self.path not in trial:
            return False
        value = trial[self.path]
        if callable(self.values):
            return bool(self.values(value))
        return any(_equal(value, other) for other in self.values)

    def points(self, path: str) -> list[Any]:
        return self.then.points(path)

    def draw(self, rng: np.random.Generator) -> Any:
        return self.then.draw(rng)

    def nearest(self, value: Any) -> Any:
        return self.then.nearest(value)


@api_boundary
def uniform(low: float, high: float, n: int | None = None) -> Interval:
    """Numbers between two bounds, all equally likely.

    Args:
        low, high: The bounds, both of them possible.
        n: How many values a grid takes: evenly spaced, both bounds among them.

    Raises:
        ArgumentError: A bound is no number, ``low`` is not below ``high``, or ``n`` is
            below 1.

    Example:
        >>> uniform(0.0, 0.5, 3).points("dropout/rate")
        [0.0, 0.25, 0.5]
    """
    return _interval("uniform", low, high, n)


@api_boundary
def log_uniform(low: float, high: float, n: int | None = None) -> Interval:
    """Positive numbers between two bounds whose logarithms are equally likely.

    Args:
        low, high: The bounds, both of them possible.
        n: How many values a grid takes, each the same multiple of the one before.

    Raises:
        ArgumentError: As :func:`uniform`, or a bound is not positive.

    Example:
        >>> [f"{value:g}" for value in log_uniform(1e-4, 1e-1, 4).points("rate")]
        ['0.0001', '0.001', '0.01', '0.1']
    """
    return _interval("log_uniform", low, high, n, log=True)


@api_boundary
def integers(
    low: int, high: int, n: int | None = None, *, log: bool = False
) -> Interval:
    """Whole numbers from ``low`` to ``high``, both of them possible.

    Args:
        low, high: The bounds.
        n: How many values a grid takes; all of them by default.
        log: Whether their logarithms are equally likely, and evenly spaced.

    Raises:
        ArgumentError: As :func:`uniform`, or a bound is not whole.

    Example:
        >>> integers(1, 4).points("depth"), integers(8, 128, 5, log=True).points("w")
        ([1, 2, 3, 4], [8, 16, 32, 64, 128])
    """
    for name, bound in (("low", low), ("high", high)):
        if not _is_number(bound) or int(bound) != bound:
            reason = f"{name} must be a whole number, received {bound!r}"
            raise ArgumentError("integers", reason)
    return _interval("integers", low, high, n, log=log, whole=True)


@api_boundary
def choice(values: Any) -> Choice:
    """One of several values, all equally likely; a plain list in ``over`` is one, too.

    Args:
        values: A list, tuple, range, set or an array of one axis.

    Raises:
        ArgumentError: There are none, or it is something else.

    Example:
        >>> choice([32, 64]).points("hidden/units")
        [32, 64]
    """
    return _as_choice("choice", "values", values)


@api_boundary
def when(path: str, values: Any, then: Any) -> Condition:
    """Values of a path that exists only in trials where another has some value.

    Several conditions stand one in the other: ``when("a", 1, when("b", 2, [3, 4]))``.

    Args:
        path: The other path.
        values: Its value, several in a list, or a function that says of one whether
            the condition holds.
        then: What ``over`` takes: a list, an interval, or another condition.

    Raises:
        ArgumentError: The path is no text, or there are no values.

    Example:
        >>> seeds = when("drop/rate", 0.5, [1, 2])
        >>> Space.of({"drop/rate": [0.0, 0.5], "drop/seed": seeds}).trials()[:2]
        [{'drop/rate': 0.0}, {'drop/rate': 0.5, 'drop/seed': 1}]
    """
    if not callable(values):
        several = isinstance(values, (list, tuple, range, set, np.ndarray))
        values = _as_choice("when", "values", values if several else [values]).values
    return Condition(_check_path("when", path), values, _as_domain("when", path, then))


@dataclasses.dataclass(frozen=True)
class RandomSearch:
    """Draws trials independently of each other; see :func:`random`."""

    n: int
    each: tuple[str, ...] = ()


class TrialSampler(Protocol):
    """What asks for trials and is told their scores, such as a study of Optuna."""

    def ask(self, space: Space, n: int) -> list[Trial]:
        """The next ``n`` trials."""
        ...

    def tell(self, records: Sequence[LaneRecord]) -> None:
        """Takes what the lanes have reached, at every rung and at the end."""
        ...


@dataclasses.dataclass(frozen=True)
class GridSampler:
    """Tries all combinations; see :func:`grid`."""


@api_boundary
def grid() -> GridSampler:
    """The sampler of all combinations; the last path of ``over`` changes fastest.

    Example:
        >>> Space.of({"seed": range(2), "units": [8, 16]}, grid()).trials()[1]
        {'seed': 0, 'units': 16}
    """
    return GridSampler()


@api_boundary
def random(n: int, *, each: Sequence[str] = ()) -> RandomSearch:
    """The sampler of ``n`` combinations at random.

    Args:
        n: How many.
        each: Paths whose values are not drawn: each draw of the others is tried with
            all of them. With ``each=["seed"]`` every combination has all seeds, so that
            its score has a confidence interval.

    Raises:
        ArgumentError: ``n < 1``, or ``each`` holds no paths.

    Example:
        >>> over = {"seed": range(2), "learning_rate": log_uniform(1e-4, 1e-1)}
        >>> trials = Space.of(over, random(3, each=["seed"])).trials()
        >>> len(trials), trials[0]["learning_rate"] == trials[1]["learning_rate"]
        (6, True)

    Source: Bergstra and Bengio, *Random Search for Hyper-Parameter Optimization*, 2012.
    """
    if isinstance(each, str):
        raise ArgumentError(
            "random", f"each must be a list of paths, received {each!r}"
        )
    paths = tuple(_check_path("random", path) for path in each)
    return RandomSearch(check_count("random", "n", n), paths)


class Space:
    """The values of every path, and the sampler that makes trials of them.

    Attributes:
        domains: Path → its domain, in the order of ``over``.
        sampler: A :class:`GridSampler`, a :class:`RandomSearch`, or what is asked.
    """

    def __init__(self, domains: dict[str, Any], sampler: Any, seed: int):
        self.domains, self.sampler = domains, sampler
        self._order = _parents_first(domains)
        self._rng = np.random.default_rng(seed)
        self._waiting: Iterator[Trial] | None = None

    @classmethod
    def of(
        cls, over: Any, sampler: Any = None, seed: int = 0, mode: str | None = None
    ) -> Space:
        """The space of what a sweep is given, checked.

        Args:
            over: Path → values: a list, a range, an array of one axis, one of
                :func:`uniform`, :func:`log_uniform`, :func:`integers`,
                :func:`choice`, or :func:`when`.
            sampler: :func:`grid` or ``None``; :func:`random`; a study of Optuna; or
                anything with ``ask`` and ``tell`` as :class:`TrialSampler`.
            mode: ``"min"`` or ``"max"``, where a study must seek the same.
        """
        if not isinstance(over, Mapping):
            raise ArgumentError(
                "sweep", f"over must be a dict of paths, received {over!r}", hint=_HINT
            )
        if not over:
            reason = "over must name at least one path, received an empty dict"
            raise ArgumentError("sweep", reason, hint=_HINT)
        domains = {
            _check_path("sweep", path): _as_domain("sweep", path, values)
            for path, values in over.items()
        }
        for domain in domains.values():
            for condition in _conditions(domain):
                if condition.path not in domains:
                    raise unknown_name(
                        "path of a condition", condition.path, domains, op="sweep"
                    )
        sampler = _as_sampler(sampler, domains)
        if mode is not None and hasattr(sampler, "check_mode"):
            sampler.check_mode(mode)
        return cls(domains, sampler, seed)

    @property
    def asks(self) -> bool:
        """Whether trials depend on scores, so that they are asked for in rounds."""
        return not isinstance(self.sampler, GridSampler | RandomSearch)

    def trials(self) -> list[Trial]:
        """All trials of a grid, or as many as ``random`` was told."""
        if self.asks:
            raise ArgumentError(
                "sweep",
                f"{type(self.sampler).__name__} has no end: say how many trials",
                hint="tuning.StudySampler(study, trials=64).",
            )
        trials = list(itertools.islice(self._all(), MOST_TRIALS + 1))
        if len(trials) > MOST_TRIALS:
            reason = f"the grid has more than {MOST_TRIALS:,} trials"
            raise ArgumentError("sweep", reason, hint="sampler=tuning.random(256).")
        return trials

    def ask(self, n: int) -> list[Trial]:
        """The next trials, of a study or of ``trials``; fewer at its end."""
        n = check_count("ask", "n", n)
        if self.asks:
            return self.sampler.ask(self, n)
        if self._waiting is None:
            self._waiting = self._all()
        return list(itertools.islice(self._waiting, n))

    def tell(self, records: Sequence[LaneRecord]) -> None:
        """Tells a study what its trials have reached; other samplers need nothing.

        Args:
            records: Those of the lanes: ``"running"`` ones at a rung, all at the end.
        """
        if self.asks:
            self.sampler.tell(records)

    def _all(self) -> Iterator[Trial]:
        if not isinstance(self.sampler, RandomSearch):
            yield from self._combinations({}, self._order)
            return
        for _ in range(self.sampler.n):
            yield from self._combinations({}, self._order, drawn=True)

    def _combinations(
        self, trial: Trial, paths: Sequence[str], drawn: bool = False
    ) -> Iterator[Trial]:
        """The trials that begin so; of the other paths all values, or one drawn."""
        if drawn:
            trial = self.draw(self._rng, but=self.sampler.each)
            paths = self.sampler.each
        if not paths:
            yield {path: trial[path] for path in self.domains if path in trial}
            return
        path, *rest = paths
        domain = self.domains[path]
        if any(not condition.holds(trial) for condition in _conditions(domain)):
            yield from self._combinations(trial, rest)
            return
        for value in domain.points(path):
            yield from self._combinations({**trial, path: value}, rest)

    def draw(self, rng: np.random.Generator, but: Sequence[str] = ()) -> Trial:
        """One trial at random.

        Args:
            but: Paths that get no value; conditions on them do not hold.
        """
        return self.build(lambda path, domain: domain.draw(rng), but)

    def build(
        self, value_of: Callable[[str, Any], Any], but: Sequence[str] = ()
    ) -> Trial:
        """One trial, path by path, of those that exist in it.

        Args:
            value_of: Path and domain → value; the domain is what stands within
                conditions, a :class:`Choice` or an :class:`Interval`.
        """
        trial: Trial = {}
        for path in self._order:
            domain = self.domains[path]
            conditions = _conditions(domain)
            if path not in but and all(c.holds(trial) for c in conditions):
                inner = conditions[-1].then if conditions else domain
                trial[path] = value_of(path, inner)
        return {path: trial[path] for path in self.domains if path in trial}

    def __repr__(self) -> str:
        return f"Space({', '.join(self.domains)})"


_HINT = 'over={"seed": range(8), "learning_rate": exburn.log_uniform(1e-4, 1e-1, 8)}.'


def _interval(op: str, low: Any, high: Any, n: Any, **kind: bool) -> Interval:
    positive = kind.get("log", False)
    low = check_number(op, "low", low, 0 if positive else -math.inf, open_low=positive)
    high = check_number(op, "high", high, -math.inf)
    if not low < high:
        raise ArgumentError(
            op, f"low must be below high, received {low:g} and {high:g}"
        )
    count = None if n is None else check_count(op, "n", n)
    return Interval(low, high, count, **kind)


def _as_choice(op: str, name: str, values: Any) -> Choice:
    if isinstance(values, np.ndarray) and values.ndim == 1:
        values = values.tolist()
    if isinstance(values, (set, frozenset)):  # in the same order in every process
        values = sorted(values, key=lambda value: (str(type(value)), str(value)))
    if not isinstance(values, (list, tuple, range)):
        raise ArgumentError(
            op,
            f"{name} must be a list, a range or a domain, received {values!r}",
            hint="A single value goes into a list, or into the model itself.",
        )
    if not len(values):
        raise ArgumentError(op, f"{name} must have at least one value, received none")
    if len(values) > MOST_TRIALS:
        reason = f"{name} must be at most {MOST_TRIALS:,}, received {len(values):,}"
        raise ArgumentError(op, reason, hint="tuning.integers(low, high), drawn from.")
    return Choice(tuple(values))


def _as_domain(op: str, path: Any, values: Any) -> Any:
    if isinstance(values, Choice | Interval | Condition):
        return values
    return _as_choice(op, f"the values of {path!r}", values)


def _as_sampler(sampler: Any, domains: dict[str, Any]) -> Any:
    if sampler is None or isinstance(sampler, GridSampler):
        return GridSampler()
    if isinstance(sampler, RandomSearch):
        for path in sampler.each:
            if path not in domains:
                raise unknown_name("path in each=", path, domains, op="random")
        for path, domain in domains.items():
            for condition in _conditions(domain):
                if condition.path in sampler.each and path not in sampler.each:
                    raise ArgumentError(
                        "random",
                        f"{path!r} depends on {condition.path!r}, which is in each=",
                        hint=f"Name {path!r} in each=, too.",
                    )
        ordered = _parents_first({path: domains[path] for path in sampler.each})
        return dataclasses.replace(sampler, each=tuple(ordered))
    if not all(callable(getattr(sampler, name, None)) for name in ("ask", "tell")):
        raise ArgumentError(
            "sweep",
            f"sampler must be grid(), random(n) or a study, received {sampler!r}",
        )
    from exburn.tuning.optuna import StudySampler, is_study

    return StudySampler(sampler) if is_study(sampler) else sampler


def _conditions(domain: Any) -> list[Condition]:
    """The conditions that stand around a domain."""
    conditions = []
    while isinstance(domain, Condition):
        conditions.append(domain)
        domain = domain.then
    return conditions


def _parents_first(domains: dict[str, Any]) -> list[str]:
    """The paths in an order in which each stands after those it depends on."""
    order: list[str] = []
    left = list(domains)
    while left:
        ready = [
            path
            for path in left
            if not {c.path for c in _conditions(domains[path])} & {*left}
        ]
        if not ready:
            raise ArgumentError(
                "sweep", "conditions depend on each other", {"paths": ", ".join(left)}
            )
        order += ready[:1]
        left.remove(ready[0])
    return order


def _check_path(op: str, path: Any) -> str:
    if not isinstance(path, str) or not path.strip():
        raise ArgumentError(op, f"a path must be text, received {path!r}", hint=_HINT)
    return path


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float | np.number) and not isinstance(value, bool)


def _equal(one: Any, other: Any) -> bool:
    """Whether two values are the same; 1 is not True."""
    same_kind = isinstance(one, bool) == isinstance(other, bool)
    return same_kind and bool(np.all(one == other))
