"""How many steps go into one compiled chunk."""

from __future__ import annotations

import math

from exburn.flops import Cost

__all__ = ["balanced", "bucket", "chunk_steps", "power_of_two", "unrolled"]

# Wanted device time of one chunk: long against a dispatch (about 0.1 ms), short against
# a glance at the progress bar. Seconds.
_TARGET = 0.1
# (floor of a step, cost of one primitive, rate of contractions), in s, s and 1/s. Only
# the order of magnitude matters: chunks of 20 to 500 ms perform alike.
_GPU = (30e-6, 1.5e-6, 1e14)
_CPU = (20e-6, 0.5e-6, 3e10)
_MAX_STEPS = 2048
_SMALL = 64  # primitive operations of a forward pass


def chunk_steps(forward: Cost, platform: str, batch_bytes: int, resident: bool) -> int:
    """Steps of a training chunk, by an estimate of a step's time.

    XLA's CPU backend runs convolutions inside a loop 6.7 times slower than outside of
    it (measured, design §1): there a chunk is a single step.

    Args:
        forward: Cost of the forward pass of one batch.
        platform: ``"cpu"``, ``"gpu"`` …
        batch_bytes: Size of one batch; streamed chunks stay below 128 MiB.
        resident: Whether the data are on the device already.
    """
    if platform == "cpu" and forward.convolutions:
        return 1
    floor, per_equation, rate = _CPU if platform == "cpu" else _GPU
    seconds = max(floor, 3 * forward.equations * per_equation, 3 * forward.flops / rate)
    steps = max(1, min(_MAX_STEPS, round(_TARGET / seconds)))
    if not resident:
        steps = max(1, min(steps, (128 << 20) // max(batch_bytes, 1)))
    return steps


def unrolled(forward: Cost, platform: str) -> int:
    """Steps compiled into one turn of the chunk's loop.

    On a GPU four small steps in a row run 1.1 to 1.2 times as fast as one (design §1).
    A model of many operations gains nothing from it, and compiles four times as long.

    Example:
        >>> unrolled(Cost(equations=12), "gpu"), unrolled(Cost(equations=300), "gpu")
        (4, 1)
    """
    small = forward.equations <= _SMALL
    return 4 if small and platform != "cpu" else 1


def balanced(steps: int, most: int) -> int:
    """The length near ``most`` that cuts ``steps`` into equal chunks.

    A divisor from a quarter of ``most`` to twice as much is best: with empty steps at
    the end, every step would have to choose between the old state and the new one.
    Without a divisor, the rest is as small as it can be.

    Example:
        >>> balanced(1875, 64), balanced(1875, 2048)
        (75, 1875)
        >>> balanced(1871, 64)  # a prime: 30 chunks of 63, with 19 empty steps
        63
    """
    if steps <= most:
        return max(steps, 1)
    near = range(2 * most, most // 4, -1)
    exact = [k for k in near if steps % k == 0]
    if exact:
        return min(exact, key=lambda k: abs(k - most))
    return math.ceil(steps / math.ceil(steps / most))


def power_of_two(size: int) -> int:
    """The next power of two."""
    return 1 << max(size - 1, 0).bit_length()


def bucket(size: int) -> int:
    """The next size out of a few: powers of two up to 8, then four per octave.

    Example:
        >>> [bucket(n) for n in (1, 3, 8, 9, 33, 50)]
        [1, 4, 8, 10, 40, 56]
    """
    if size <= 8:
        return power_of_two(size)
    unit = 1 << (size.bit_length() - 3)
    return -(-size // unit) * unit
