"""Flipped bits in the files of every format that is ExBurn's own.

Keras has no part in it: each must be a typed error, or change nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from tests.fuzz.values import pick
from tests.saving.writers import WRITERS

TOLERANCE = 0.0
SEALED = [name for name, writer in WRITERS.items() if writer.sealed]


def draw(rng: np.random.Generator) -> dict:
    return {"writer": pick(rng, *SEALED), "seed": int(rng.integers(2**31))}


def render(spec: dict) -> str:
    return "\n".join(
        [
            "from tests.saving.writers import outcome_of_flip",
            f"wrong = outcome_of_flip({spec['writer']!r}, {spec['seed']})",
            "result = {'wrong': wrong or ''}",
        ]
    )


def simpler(spec: dict) -> Iterator[dict]:
    yield from ()


def judge(result: Any) -> str | None:
    """What is other than it was, or an error that is not typed."""
    if isinstance(result, Exception):
        return f"error: {type(result).__name__}: {str(result).splitlines()[0]}"
    (wrong,) = result.values()
    return f"value: {wrong}" if wrong else None
