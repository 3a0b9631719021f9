"""The open sizes of a model's inputs: a symbol for each that may differ from others.

A program that is traced with one symbol for two sizes takes them to be equal, and is
wrong where they are not. One of two symbols is right for any two sizes. So each open
size begins with a symbol of its own, and shares one only where the model cannot be
traced otherwise. A network that halves a size and doubles it again, and joins the two,
can be traced with a multiple of a symbol: ``4*d1``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations, islice
from typing import Any, NamedTuple, TypeVar

import jax

from exburn.core.symbolic_shapes import dim, evaluate_size, symbol, symbols_of
from exburn.errors import ShapeError

T = TypeVar("T")

# What sizes are multiples of where a network cannot be traced with others: in the order
# in which they are tried.
_FACTORS = (2, 4, 8, 16, 32, 64, 128, 3, 6, 12, 24, 48, 5, 10, 20, 7, 14, 28)
_SPLITS = 64  # how many ways to part equal sizes are tried at most
# A program asks for the value of a size: no other symbol has one.
_VALUES = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerIntegerConversionError,
)
#: What tracing raises where sizes do not fit together.
OF_SHAPES = (
    TypeError,
    ValueError,
    AssertionError,
    ArithmeticError,
    IndexError,
    jax.errors.InconclusiveDimensionOperation,
)


class SizePlace(NamedTuple):
    """Where an open size is: the axis of an input, by the input's number."""

    leaf: int
    axis: int


class SizeChoice(NamedTuple):
    """The symbols of the open sizes, in their order.

    Attributes:
        groups: The number of each one's symbol: 0 for the first, and so on.
        factors: What each symbol is multiplied by.
    """

    groups: tuple[int, ...]
    factors: tuple[int, ...]


def freest(
    attempt: Callable[[Any], T], specs: Any, names: Sequence[str], *, rows: bool
) -> T:
    """Traces for specs whose open sizes are as free as the trace allows.

    Args:
        attempt: Traces for specs, and raises what does not fit together.
        specs: Specs of the inputs; which symbols their open sizes have is no matter.
        names: A name for each input, of which those of symbols are made.
        rows: Whether the first axes are the rows, of which all inputs have as many.

    Returns:
        What ``attempt`` returned for the specs with the most symbols that it takes, and
        the least multiples of them.

    Raises:
        Exception: What the first attempt raised, where none of them succeeds.
    """
    search = _SizeSearch(attempt, specs, names, rows)
    if not search.places:
        return attempt(specs)
    return search.run()


class _SizeSearch:
    def __init__(self, attempt: Callable, specs: Any, names: Sequence[str], rows: bool):
        self.attempt, self.specs, self.names = attempt, specs, names
        self.places = [
            SizePlace(leaf, axis)
            for leaf, spec in enumerate(jax.tree.leaves(specs))
            for axis, size in enumerate(spec.shape)
            if not isinstance(size, int) and not (rows and axis == 0)
        ]
        self._known: dict[SizeChoice, bool] = {}
        self._first: Exception | None = None
        self._best: Any = None

    def run(self) -> Any:
        count = len(self.places)
        axes = [place.axis for place in self.places]
        by_axis = tuple(axes.index(axis) for axis in axes)
        distinct, equal = tuple(range(count)), (0,) * count
        for groups in (distinct, by_axis, equal):
            if self._fits(choice := _choice(groups)):
                self._part(choice)
                return self._best
        for factor in _FACTORS:
            if not self._fits(choice := _choice(equal, factor)):
                continue
            for groups in (distinct, by_axis):
                if self._fits(freer := _choice(groups, factor)):
                    choice = freer
                    break
            self._lower(self._part(choice))
            return self._best
        assert self._first is not None
        raise self._first

    def _fits(self, choice: SizeChoice) -> bool:
        """Whether the model can be traced so; the last that can be is kept."""
        if choice not in self._known:
            try:
                self._best = self.attempt(self._with(choice))
            except OF_SHAPES as error:
                self._first = self._first or error
                if isinstance(error, _VALUES):
                    raise self._first from None
                self._known[choice] = False
            else:
                self._known[choice] = True
        return self._known[choice]

    def _part(self, choice: SizeChoice) -> SizeChoice:
        """The choice with its groups parted as far as the model can be traced so."""
        for group in range(max(choice.groups) + 1):
            members = [i for i, g in enumerate(choice.groups) if g == group]
            for some in islice(_parts(members), _SPLITS):
                parted = [
                    len(self.places) if i in some else g
                    for i, g in enumerate(choice.groups)
                ]
                freer = _choice(parted, max(choice.factors))
                if self._fits(freer):
                    return self._part(freer)
        return choice

    def _lower(self, choice: SizeChoice) -> SizeChoice:
        """The choice with the least factors that the model can be traced with."""
        for number, factor in enumerate(choice.factors):
            for less in (n for n in range(1, factor) if factor % n == 0):
                factors = list(choice.factors)
                factors[number] = less
                lower = SizeChoice(choice.groups, tuple(factors))
                if self._fits(lower):
                    choice = lower
                    break
        return choice

    def _with(self, choice: SizeChoice) -> Any:
        symbols = self._symbols(choice)
        sizes = {
            place: choice.factors[group] * symbols[group]
            for place, group in zip(self.places, choice.groups, strict=True)
        }
        leaves, tree = jax.tree.flatten(self.specs)
        return tree.unflatten(
            jax.ShapeDtypeStruct(
                tuple(
                    sizes.get(SizePlace(number, axis), size)
                    for axis, size in enumerate(leaf.shape)
                ),
                leaf.dtype,
            )
            for number, leaf in enumerate(leaves)
        )

    def _symbols(self, choice: SizeChoice) -> list[Any]:
        """A symbol for each group: ``d1`` where it is all of that axis."""
        firsts = [choice.groups.index(g) for g in range(max(choice.groups) + 1)]
        axes = [self.places[place].axis for place in firsts]
        symbols: list[Any] = []
        for place in firsts:
            leaf, axis = self.places[place]
            if axes.count(axis) == 1:
                symbols.append(dim(axis))
                continue
            owner = re.sub("[^0-9A-Za-z_]", "_", self.names[leaf])
            owner = owner if owner[:1].isidentifier() else f"input_{owner}"
            size = symbol(f"{owner}_{dim(axis)}")
            while any(size == other for other in symbols):
                size = symbol(f"{size}_")
            symbols.append(size)
        return symbols


def _choice(groups: Sequence[int], factor: int = 1) -> SizeChoice:
    """The choice with its groups numbered in their order, and one factor for all."""
    numbers = {group: n for n, group in enumerate(dict.fromkeys(groups))}
    return SizeChoice(tuple(numbers[g] for g in groups), (factor,) * len(numbers))


def _parts(members: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """The ways to take some of the members, and not the first, from the others."""
    others = members[1:]
    for count in range(1, len(members)):
        yield from combinations(others, count)


def solve_sizes(op: str, shapes: Sequence[tuple], received: Sequence[tuple]) -> dict:
    """The values of the symbols in shapes, by what was received.

    Args:
        shapes: Shapes whose open sizes are symbols or multiples of them, or the text
            of these.
        received: The shapes of arrays, of the same ranks.

    Raises:
        ShapeError: A size is no such multiple, or two sizes that must be equal are not.
    """
    values: dict[str, int] = {}
    for shape, sizes in zip(shapes, received, strict=True):
        for expected_size, size in zip(shape, sizes, strict=True):
            (name, *others) = symbols_of(expected_size) or ("", "")
            if not name or others:
                continue
            factor = evaluate_size(expected_size, {name: 1})
            about = {
                "input": f"({', '.join(map(str, shape))})",
                "received": f"({', '.join(map(str, sizes))})",
            }
            if size % factor:
                reason = f"a size must be a multiple of {factor}, received {size}"
                raise ShapeError(op, reason, about)
            if values.setdefault(name, size // factor) != size // factor:
                raise ShapeError(
                    op,
                    f"the sizes {name} must be equal, received "
                    f"{values[name] * factor} and {size}",
                    about,
                )
    return values
