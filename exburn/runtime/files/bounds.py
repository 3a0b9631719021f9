"""Bounds on the memory that a file may ask for: what its own length explains.

A file may stand for ``PACKED`` times its bytes, and ``ROOM`` bytes beyond that. The
bounds hold before anything is allocated, and for all that is made of a file together:
neither an array without content nor ten thousand names of one array fill the memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

ROOM = 64 << 20  # bytes that a file may ask for, however short it is
PACKED = 20  # bytes that a byte may stand for: of weights, seldom more than two
DAMAGED = "Take another copy of the file; this one is damaged or not to be trusted."
_ADDRESSES = 2**62  # bytes: NumPy's arrays are smaller, those without elements, too

Refuse = Callable[[str], Exception]  # makes the error of a reason


def is_shape(shape: Sequence[int], itemsize: int) -> bool:
    """Whether NumPy can have an array of this shape, elements or not.

    Example:
        >>> is_shape((2, 3), 4), is_shape((0, 2**62), 4), is_shape((-1,), 4)
        (True, False, False)
    """
    if any(size < 0 for size in shape):
        return False
    return math.prod(size or 1 for size in shape) * itemsize < _ADDRESSES


class Budget:
    """Bytes that may be made of a file.

    Args:
        limit: How many.
        refuse: Makes the error.
    """

    __slots__ = ("_left", "_refuse")

    def __init__(self, limit: int, refuse: Refuse):
        self._left, self._refuse = limit, refuse

    def spend(self, count: int) -> None:
        """Takes bytes before they are allocated.

        Raises:
            ModelFormatError: There are not as many left.
        """
        self._left -= count
        if self._left < 0:
            raise self._refuse("it asks for far more than its length explains")


class ArrayBudget:
    """Bytes that the arrays of a file may take together.

    Args:
        size: Bytes of the file.
        refuse: Makes the error.

    Example:
        >>> budget = ArrayBudget(1000, ValueError)
        >>> budget.add("kernel", 4000, stored=1000)
        >>> budget.add("bomb", 1 << 40, stored=1000)
        Traceback (most recent call last):
        ValueError: 'bomb' would take 1099511627776 bytes, of 0 in the file
    """

    def __init__(self, size: int, refuse: Refuse):
        self._stored, self._room, self._refuse = size, ROOM, refuse

    def add(self, name: str, length: int, stored: int) -> None:
        """Counts an array.

        Args:
            name: Its name, for errors.
            length: Bytes that it takes.
            stored: Bytes that it has in the file, as far as the file can be believed:
                all arrays together have at most the file's.

        Raises:
            ModelFormatError: The arrays take more than the file's bytes explain.
        """
        stored = min(stored, self._stored)
        self._stored -= stored
        self._room -= max(0, length - PACKED * stored)
        if self._room < 0:
            raise self._refuse(
                f"{name[:80]!r} would take {length} bytes, of {stored} in the file"
            )
