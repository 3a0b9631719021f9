"""Runs of equal blocks in a traced program."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from jax.extend.core import Literal

from exburn.runtime.blocks.forms import Forms, literal_form
from exburn.runtime.cost_model import inner_programs

LEAST_BLOCKS = 4
_LEAST_SAVED = 12  # equations
_NEIGHBOURS = 3  # of the places where a form occurs, whose distances may be a period

Place = tuple[int, int]  # an equation of a block, and one of its operands or results


@dataclasses.dataclass
class Carried:
    """A result of a block that the next block reads.

    Attributes:
        first: The variable that the first block reads instead.
        operands: Where a block reads it.
    """

    first: Any
    operands: list[Place]


@dataclasses.dataclass
class Stacked:
    """What differs from block to block.

    Attributes:
        values: A variable or literal for each block.
        operands: Where a block reads it.
    """

    values: list[Any]
    operands: list[Place]


@dataclasses.dataclass(frozen=True)
class BlockRun:
    """Blocks in a row that are equal but for what they read.

    Attributes:
        start: The first equation of the first block.
        length: Equations of a block.
        operations: The same, with those of the programs in them.
        blocks: Number of blocks.
        carried: What each block hands on to the next, by its place among the results.
        stacked: What differs from block to block.
    """

    start: int
    length: int
    operations: int
    blocks: int
    carried: dict[Place, Carried]
    stacked: list[Stacked]

    @property
    def stop(self) -> int:
        """The first equation behind the blocks."""
        return self.start + self.length * self.blocks

    @property
    def gain(self) -> int:
        """Operations that the program has less, if its blocks are a loop."""
        return self.operations * (self.blocks - 1)


def find_runs(
    code: Any,
    differentiable: bool = True,
    pays: Callable[[Any, BlockRun], bool] = lambda code, run: True,
) -> list[BlockRun]:
    """The runs of equal blocks in a program, from its beginning to its end.

    Args:
        code: A jaxpr.
        differentiable: Whether the gradients of equal blocks shall be equal, too.
        pays: Whether a run of the program is wanted.

    Example:
        >>> import jax, jax.numpy as jnp
        >>> def deep(x, weights):
        ...     for w in weights:
        ...         x = jnp.tanh(x @ w)
        ...     return x
        >>> code = jax.make_jaxpr(deep)(jnp.ones((2, 3)), [jnp.ones((3, 3))] * 8).jaxpr
        >>> [(run.start, run.length, run.blocks) for run in find_runs(code)]
        [(0, 2, 8)]
    """
    numbers = _number_equations(code.eqns, differentiable)
    search = _Search(code, numbers, pays)
    return list(search.between(0, len(numbers)))


def _number_equations(equations: list[Any], differentiable: bool) -> np.ndarray:
    """The forms of equations; gradients count for those that occur in enough blocks.

    To trace the gradient of each function that has a rule for it takes milliseconds.
    """
    plain = Forms(differentiable=False)
    numbers = np.array([plain.of_equation(e) for e in equations], int)
    if not differentiable or not len(numbers):
        return numbers
    often = np.bincount(numbers)[numbers] >= LEAST_BLOCKS
    exact, kinds = Forms(), dict[tuple, int]()
    forms = [
        (number, exact.of_equation(equation) if again else None)
        for number, equation, again in zip(numbers, equations, often, strict=True)
    ]
    return np.array([kinds.setdefault(form, len(kinds)) for form in forms], int)


class _Search:
    """The search for runs in one program."""

    def __init__(
        self, code: Any, forms: np.ndarray, pays: Callable[[Any, BlockRun], bool]
    ):
        self._code, self._equations, self._forms = code, code.eqns, forms
        self._pays = pays
        places = {
            variable: (number, output)
            for number, equation in enumerate(code.eqns)
            for output, variable in enumerate(equation.outvars)
        }
        self._reads: list[list[Place | None]] = [
            [None if isinstance(v, Literal) else places.get(v) for v in equation.invars]
            for equation in code.eqns
        ]
        self._last_reads = np.arange(len(forms))
        for number, reads in enumerate(self._reads):
            for place in reads:
                if place is not None:
                    self._last_reads[place[0]] = number
        self._sizes = np.array(
            [sum(math.prod(v.aval.shape) for v in e.outvars) for e in code.eqns]
        )
        operations = np.array([_count(equation) for equation in code.eqns])
        self._operations = np.concatenate(([0], operations.cumsum()))

    def between(self, start: int, stop: int) -> Iterator[BlockRun]:
        """Runs among some equations: the one that saves most, and those beside it."""
        best: BlockRun | None = None
        for low, high, period in self._stretches(start, stop):
            saved = 0 if best is None else best.gain
            most = self._operations[high] - self._operations[low + period]
            if most <= max(saved, _LEAST_SAVED - 1):
                break
            run = self._run_in(low, high, period)
            if run is not None and run.gain > saved:
                best = run
        if best is not None:
            yield from self.between(start, best.start)
            if self._pays(self._code, best):
                yield best
            yield from self.between(best.stop, stop)

    def _stretches(self, start: int, stop: int) -> list[tuple[int, int, int]]:
        """Where forms repeat: beginning, end and period, those that save most first."""
        forms, stretches = self._forms[start:stop], []
        for period in _distances(forms):
            same = forms[period:] == forms[:-period]
            edges = np.flatnonzero(np.diff(np.concatenate(([0], same, [0]))))
            for low, high in edges.reshape(-1, 2):
                if high - low >= (LEAST_BLOCKS - 1) * period:
                    end = start + int(high) + period
                    stretches.append((start + int(low), end, period))
        count = self._operations
        return sorted(stretches, key=lambda s: (count[s[0] + s[2]] - count[s[1]], s[2]))

    def _run_in(self, low: int, high: int, period: int) -> BlockRun | None:
        """The longest run in a stretch, cut where the least is handed on."""
        cuts = range(low, low + period)
        cut = min(cuts, key=lambda cut: (self._width(low, cut + period), cut))
        best: BlockRun | None = None
        blocks = (high - cut) // period
        while blocks >= max(LEAST_BLOCKS, best.blocks + 1 if best else 0):
            run = self._run_from(cut, blocks, period)
            if run is not None and (best is None or run.blocks > best.blocks):
                best = run
            ahead = 1 if run is None else run.blocks
            cut, blocks = cut + ahead * period, blocks - ahead
        return best

    def _width(self, low: int, cut: int) -> int:
        """Elements that a stretch computes before a cut and that are read behind it."""
        return int(self._sizes[low:cut][self._last_reads[low:cut] >= cut].sum())

    def _run_from(self, start: int, most: int, period: int) -> BlockRun | None:
        """The run that begins at an equation, of as many blocks as are joined alike."""

        def joints(block: int) -> list[list[Any]]:
            return [self._sources(start, block, period, i) for i in range(period)]

        pattern, blocks = joints(1), 2
        if any(source is None for sources in pattern for source in sources):
            return None
        while blocks < most and joints(blocks) == pattern:
            blocks += 1
        if blocks < LEAST_BLOCKS:
            return None
        operations = self._operations[start + period] - self._operations[start]
        run = BlockRun(start, period, int(operations), blocks, {}, [])
        columns: dict[tuple, Stacked] = {}
        for i, (first, sources) in enumerate(zip(joints(0), pattern, strict=True)):
            for operand, source in enumerate(sources):
                column = self._column(run, i, operand)
                if source[0] == "last":
                    carried = Carried(column[0], [])
                    carried = run.carried.setdefault(source[1], carried)
                    carried.operands.append((i, operand))
                    before = first[operand]
                    if before != ("outside",) or carried.first is not column[0]:
                        return None
                elif first[operand] != source:
                    return None
                elif source[0] != "own":
                    key = tuple(map(_identity, column))
                    if len(set(key)) > 1:
                        stacked = columns.setdefault(key, Stacked(column, []))
                        stacked.operands.append((i, operand))
        run.stacked.extend(columns.values())
        return run if self._hands_on(run) else None

    def _sources(self, start: int, block: int, period: int, number: int) -> list[Any]:
        """Where the operands of an equation come from, seen from its block.

        Returns:
            For each ``("own", place)`` of the same block, ``("last", place)`` of the
            one before, ``("outside",)``, ``("literal",)``, or ``None``: of a block
            before that one.
        """
        begin = start + block * period
        equation, reads = self._equations[begin + number], self._reads[begin + number]
        sources: list[Any] = []
        for operand, place in zip(equation.invars, reads, strict=True):
            if isinstance(operand, Literal):
                sources.append(("literal",))
            elif place is None or place[0] < start:
                sources.append(("outside",))
            elif place[0] >= begin:
                sources.append(("own", (place[0] - begin, place[1])))
            elif place[0] >= begin - period:
                sources.append(("last", (place[0] - begin + period, place[1])))
            else:
                sources.append(None)
        return sources

    def _column(self, run: BlockRun, number: int, operand: int) -> list[Any]:
        """An operand of each block."""
        rows = range(run.start + number, run.stop, run.length)
        return [self._equations[row].invars[operand] for row in rows]

    def _hands_on(self, run: BlockRun) -> bool:
        """Whether what a block hands on is like what the first one begins with."""
        block = self._equations[run.start : run.start + run.length]
        return all(
            _spec(block[i].outvars[output]) == _spec(carried.first)
            for (i, output), carried in run.carried.items()
        )


def _distances(forms: np.ndarray) -> list[int]:
    """Numbers of equations after which forms occur again, as they do several times."""
    order = np.argsort(forms, kind="stable")
    distances: set[int] = set()
    for neighbour in range(1, _NEIGHBOURS + 1):
        one, other = order[:-neighbour], order[neighbour:]
        gaps = (other - one)[forms[one] == forms[other]]
        values, counts = np.unique(gaps, return_counts=True)
        distances.update(values[counts >= LEAST_BLOCKS - 1].tolist())
    return sorted(distances)


def _count(equation: Any) -> int:
    """An equation, and those of the programs in it."""
    inner = inner_programs(equation.params)
    return 1 + sum(_count(one) for p in inner for one in getattr(p, "jaxpr", p).eqns)


def _identity(operand: Any) -> Any:
    """What is equal for operands that are the same value."""
    return literal_form(operand) if isinstance(operand, Literal) else operand


def _spec(variable: Any) -> tuple[Any, Any]:
    return variable.aval.shape, variable.aval.dtype
