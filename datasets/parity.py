"""The parity of a few bits: a task that no linear model solves."""

from __future__ import annotations

import numpy as np

from exburn.datasets.contract.generated import Split, check_samples
from exburn.datasets.prepare import generator, train_test
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

__all__ = ["generate", "load_data"]


@api_boundary
def generate(
    samples: int = 1000,
    *,
    bits: int = 8,
    relevant: int | None = None,
    seed: int | None = 0,
) -> tuple[np.ndarray, np.ndarray]:
    """Random bits, and whether the number of ones among the first few is odd.

    Args:
        samples: Number of rows.
        bits: Width of a row.
        relevant: How many of its first bits count; all by default.
        seed: Of the draw; None draws a new one each time.

    Shape: ``x: [samples, bits]`` float32, 0 or 1; ``y: [samples]`` int32, 0 or 1.

    Raises:
        ArgumentError: ``samples`` or ``bits`` below 1, or ``relevant`` beyond ``bits``.

    Example:
        >>> x, y = generate(100, seed=3)
        >>> x.shape, bool((y == x.sum(axis=1) % 2).all())
        ((100, 8), True)
    """
    check_samples("parity", samples, 1)
    relevant = bits if relevant is None else relevant
    if bits < 1 or not 1 <= relevant <= bits:
        raise ArgumentError(
            "parity",
            "bits must be at least 1, and relevant lie in 1 … bits",
            {"bits": bits, "relevant": relevant},
        )
    x = generator(seed, "parity").integers(0, 2, (samples, bits))
    y = x[:, :relevant].sum(axis=1) % 2
    return x.astype(np.float32), y.astype(np.int32)


@api_boundary
def load_data(
    samples: int = 1000,
    *,
    bits: int = 8,
    relevant: int | None = None,
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Split:
    """Generated rows, split into training and test rows.

    Args:
        samples: Number of rows, both parts together.
        bits: Width of a row.
        relevant: How many of its first bits count; all by default.
        test_split: Fraction held out.
        seed: Of the draw and of the split.

    Raises:
        ArgumentError: As for `generate`, or ``test_split`` outside [0, 1).

    Example:
        >>> (x_train, y_train), (x_test, y_test) = load_data(100)
        >>> len(x_train), len(x_test)
        (80, 20)
    """
    x, y = generate(samples, bits=bits, relevant=relevant, seed=seed)
    return train_test(x, y, test_split, seed, "parity.load_data")
