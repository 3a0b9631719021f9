"""Trainings that go on from a folder, with one thing or two that are not as they were.

Keras has no part in it: each must be refused by an error that names what has changed,
or end as the training that was begun would.
"""

from __future__ import annotations

import functools
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from tests.fuzz.values import pick
from tests.training.checkpoint.changes import CHANGES, Training
from tests.training.checkpoint.resumable import KINDS

from exburn.errors import CheckpointError

TOLERANCE = 0.0


def draw(rng: np.random.Generator) -> dict:
    kind = pick(rng, *KINDS)
    known = [name for name in CHANGES if name not in KINDS[kind].lacks]
    count = pick(rng, 1, 1, 2)
    chosen = rng.choice(len(known), size=count, replace=False)
    spec = {"kind": kind, "changes": sorted(known[i] for i in chosen)}
    return spec | {"places": [int(n) for n in rng.integers(0, 24, 2)]}


def render(spec: dict) -> str:
    given = f"{spec['kind']!r}, {spec['changes']!r}, {spec['places']!r}"
    return "\n".join(
        [
            "from tests.fuzz.changes import outcome",
            f"wrong = outcome({given})",
            "result = {'wrong': wrong}",
        ]
    )


def simpler(spec: dict) -> Iterator[dict]:
    """One change alone."""
    if len(spec["changes"]) > 1:
        for change in spec["changes"]:
            yield spec | {"changes": [change]}


def judge(result: Any) -> str | None:
    """A change that was not noticed, or another error."""
    if isinstance(result, Exception):
        return f"error: {type(result).__name__}: {str(result).splitlines()[0]}"
    (wrong,) = result.values()
    return f"value: {wrong}" if wrong else None


@functools.cache
def _begun(kind: str) -> Any:
    """Something that has begun a training in a folder of its own."""
    kept = KINDS[kind](Path(tempfile.mkdtemp()))
    kept.begin(Training())
    return kept


def outcome(kind: str, changes: list[str], places: list[int]) -> str:
    """What is wrong where a training goes on with changes; empty if nothing is.

    Args:
        kind: A name of ``KINDS``.
        changes: Names of ``CHANGES``.
        places: Of a number of the data, and of a target, that are changed where one is.
    """
    kept, training = _begun(kind), Training()
    for change in changes:
        CHANGES[change][0](training)
        if change == "a number of the data":
            training.x[places[0] % len(training.x), 1] += 1e-3
        if change == "a target":
            rows = len(training.y)
            place = (8 + places[1] % (rows - 1)) % rows  # not the one that is changed
            training.y[place] = 1 - training.y[place]
    named = [change for change in changes if change not in kept.ignores]
    with warnings.catch_warnings(action="ignore"):
        if not named:
            kept.compare(training)
            return ""
        try:
            kept.again(training)
        except CheckpointError as error:
            text = str(error)
        else:
            return f"{kind} went on in spite of {', '.join(named)}"
    # One change may be a part of another, whose error then stands for both.
    if any(re.search(CHANGES[change][1], text) for change in named):
        return ""
    return f"{kind} does not name {', '.join(named)}: {text.splitlines()[1]}"
