"""Python's garbage collector, put off while a process starts."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_started = False
_OF_PYTHON = 2_000  # frozen objects that an interpreter may begin with: 375 in 3.12


@contextlib.contextmanager
def starting() -> Iterator[None]:
    """Looks for no garbage in this block, unless a program has been compiled before.

    Imports and traces make hundreds of thousands of objects that stay. To go through
    them again and again took a fifth of an import, and a tenth of a first ``fit``.
    Later programs are traced as usual: until it is found, a model that was given up
    keeps memory of the device.
    """
    if _started or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        # What was made counts as old, which is looked through seldom. Objects that
        # someone else has frozen stay so.
        if not _is_frozen():
            gc.freeze()
            gc.unfreeze()


def has_started() -> None:
    """Notes that a program has been compiled."""
    global _started
    _started = True


@contextlib.contextmanager
def frozen_heap() -> Iterator[None]:
    """Looks for garbage in this block only among what is made in it."""
    if _is_frozen():
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _is_frozen() -> bool:
    """Whether someone has frozen the heap."""
    return gc.get_freeze_count() > _OF_PYTHON
