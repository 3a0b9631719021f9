"""Substitutes for the parts of a module while a copy of it runs.

Programs run a copy of a module that holds their arrays. Code reaches layers and weights
by attributes, which lead through the copy, and by other ways, which lead to the
originals: a function that closes over a layer, a bound method, a global name, an object
that is no module. In a block under a substitution an original that is called, read or
assigned stands for its part of the copy, so that no program holds a weight as a
constant.
"""

from __future__ import annotations

import contextvars
import itertools
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import Any

from exburn.core.making import making
from exburn.core.scoped import value_scope

_current: contextvars.ContextVar[Substitution | None] = contextvars.ContextVar(
    "exburn_substitution", default=None
)

_moments = itertools.count(1)


def moment(after: int = 0) -> int:
    """A number that grows: of when a part was made, or a pass began.

    Args:
        after: A number that it exceeds, as do those that follow: one that comes from
            another process.
    """
    global _moments
    if (number := next(_moments)) <= after:
        number = after + 1
        _moments = itertools.count(number + 1)
    return number


class Substitution:
    """Which modules and variables stand for which.

    Args:
        pairs: Originals and what stands for them. What stands for itself is the
            copy's own.
        meet: Called with a part that is neither an original nor the copy's own;
            returns what stands for it, or raises.
        note: Called with an original that code reached although the copy holds what
            stands for it.

    Attributes:
        outer: The substitution around this one: of a program that runs a copy of a
            layer of its copy.
    """

    def __init__(
        self,
        pairs: Iterable[tuple[Any, Any]] = (),
        *,
        meet: Callable[[Any], Any] | None = None,
        note: Callable[[Any], None] | None = None,
    ):
        self.meet, self._note = meet, note
        self.outer = _current.get()
        self._pairs: dict[int, tuple[Any, Any]] = {}  # by the original's id
        self._own: dict[int, Any] = {}
        self.add(pairs)

    def add(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Has more parts stand for others."""
        for original, copy in pairs:
            self._own[id(copy)] = copy
            if original is not copy:
                self._pairs.setdefault(id(original), (original, copy))

    def include(self, other: Substitution) -> None:
        """Has parts stand for others as another substitution does."""
        self._own |= other._own
        self._pairs = other._pairs | self._pairs

    def find(self, part: Any) -> Any:
        """What stands for a part; ``None`` if nothing is known of it."""
        if id(part) in self._own:
            return part
        if (pair := self._pairs.get(id(part))) is not None:
            return pair[1]
        if self.outer is None or (copy := self.outer.find(part)) is None:
            return None
        pair = self._pairs.get(id(copy))
        return copy if pair is None else pair[1]

    def stand_in(self, part: Any) -> Any:
        """What stands for a part that code reached, the part itself if nothing does."""
        if id(part) in self._own:
            return part
        copy, scope = self.find(part), self
        while scope is not None:
            if copy is None and scope.meet is not None:
                return scope.meet(part)
            if copy is not None and scope._note is not None:
                scope._note(part)
                break
            scope = scope.outer
        return part if copy is None else copy


def current() -> Substitution | None:
    """The innermost substitution under way, or ``None``."""
    return _current.get()


def stand_in(part: Any) -> Any:
    """What stands for a module or a variable here; mostly itself."""
    scope = _current.get()
    return part if scope is None else scope.stand_in(part)


def substituting(scope: Substitution | None) -> AbstractContextManager[Any]:
    """Has parts stand for others in the block."""
    return value_scope(_current, scope)


class CloneScope:
    """The layers of one clone, and copies of what they reach without holding it.

    Attributes:
        began_at: When the clone was begun; what is made later is its own.
        copies: The originals and their copies, by the originals' ids.
    """

    def __init__(self):
        self.began_at = moment()
        self.copies: dict[int, tuple[Any, Any]] = {}


def making_clone() -> AbstractContextManager[Any]:
    """Layers made in the block are a clone's, or a file's.

    What their code reaches and they do not hold they get copies of: the original is
    another model's, too, and keeps its weights.
    """
    return making.change(clone=CloneScope())


def clone_scope() -> CloneScope | None:
    """The clone that is being made, or ``None``."""
    return making.get().clone
