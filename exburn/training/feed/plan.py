"""How many steps go into one compiled chunk."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

from jax import default_backend

from exburn.runtime.cost_model import Cost
from exburn.training.placement import OneDevice

# Wanted device time of one chunk: long against a dispatch (about 0.1 ms), short against
# a glance at the progress bar. Seconds.
_TARGET = 0.1
# (floor of a step, cost of one primitive, rate of contractions), in s, s and 1/s. Only
# the order of magnitude matters: chunks of 20 to 500 ms perform alike.
_GPU = (30e-6, 1.5e-6, 1e14)
_CPU = (20e-6, 0.5e-6, 1e11)
# On a CPU a call of a program gets its temporary memory from the operating system page
# by page, and gives it back. A third of the time of a step of 60 ms with 77 MiB went
# there; eight steps in one call share it. They should not take longer than a second.
_CPU_STEPS, _CPU_LONGEST = 8, 1.0
_MAX_STEPS = 2048
# Bytes of a chunk that comes from the host: on an accelerator several are under way; on
# a CPU they should still be in its cache when their turn comes.
_STREAMED_BYTES, _CPU_STREAMED_BYTES = 32 << 20, 4 << 20
_CPU_STREAMED_MOST = 128 << 20  # for the sake of eight steps
# Bytes of a chunk's predictions: they go to the host while the device computes the next
# ones. An H200 predicted 540,000 rows/s of a transformer with 34 MB, 290,000 with 136.
_PREDICTED_BYTES = 32 << 20
_LOADER_STEPS = 256  # of a chunk from a loader, which may be slow: progress shows each
# An epoch from a loader begins with an empty pipeline. On an H200, with batches of
# 100 KB, filling it took 30 us for a step of the first chunk, and a chunk cost 0.4 ms:
# together least at the root of 13 times the epoch's steps.
_LOADER_FEWEST, _LOADER_FILLING = 64, 13
# Kernels of a forward pass, at most. With four steps of 52 a turn, an H200 took
# 1.15 times as long as for the plain scan; with steps of 12 to 18, 0.8 to 0.9 times.
_SMALL = 32
# Floating-point operations of a forward pass with convolutions, from which on starting
# a kernel is short against running it: with 6e8 a convnet's first epoch on an H200 took
# 2.2 instead of 3.9 s, later ones as long. With 1.6e8 an H100 took 1.15 times as long.
_LONG_CONVOLUTIONS = 3e8
# Seconds of an optimizer's pass over an element of a table of embeddings: eight numbers
# at 3 TB/s. XLA makes one pass of the updates of four steps, since each of them reads
# but a few rows: an H100 took 0.77 of the time for 8 columns of a table of 3 million
# elements (17 % of the step by this estimate), 0.51 for 26 tables of 16 million.
_TABLE = 32 / 3e12
_TABLE_SHARE, _TABLE_EQUATIONS = 0.08, 256
# Bytes that all operations of a joined step write, before XLA fuses most of them. An
# H200 takes 0.10 ms for 32 rows of a transformer of two blocks (200 MB), 0.23 for 128,
# 0.82 for 512. On a CPU, what is beyond its caches is slower than batch by batch.
_JOINED_BYTES, _CPU_JOINED_BYTES = 1 << 30, 16 << 20
_MOST_JOINED = 16
# Fewer batches are not worth a trace that makes sure of it, 20 to 40 ms.
_FEWEST_JOINED = 64


@dataclasses.dataclass(frozen=True)
class Decision:
    """One choice of the planner, as ``model.explain_plan()`` shows it."""

    choice: str
    taken: str
    reason: str
    switch: str


def decisions(
    feed: Any,
    forward: Cost | None,
    unroll: int,
    *,
    steps_asked: int | str,
    unroll_asked: int | str,
    join_asked: int | str,
    limit: int | None,
    eager: bool = False,
    validation_feed: Any = None,
    placement: OneDevice | None = None,
    exact_rows: bool = False,
    own: Cost | None = None,
) -> list[Decision]:
    """The choices behind a training run, in words.

    Args:
        forward: Cost of the forward pass of a batch; None if it was not counted.
        limit: Steps of a call that callbacks allow; None for any number.
        exact_rows: Whether a batch of fewer rows runs at its own size.
    """
    placement = placement or OneDevice()
    places = _devices(feed, placement, exact_rows) if placement.distribution else []
    places.append(_place("data", feed))
    if validation_feed is not None:
        places.append(_place("validation data", validation_feed))
    if limit is not None:
        why = "a callback wants to be called that often"
    elif steps_asked != "auto":
        why = "steps_per_execution was given"
    elif eager:
        why = "run_eagerly was given"
    elif own is not None:
        why = (
            f"the model's own train_step has {own.flops / 1e6:,.1f} MFLOP and "
            f"{own.equations} operations; a call should take about 0.1 s"
        )
    elif forward is None:
        why = "the model's own train_step cannot be estimated"
    elif feed.length == 1 and forward.convolutions and default_backend() == "cpu":
        why = "convolutions are slower in XLA's CPU loops"
    else:
        on_each = " on each device" if placement.parts > 1 else ""
        why = (
            f"a forward pass has {forward.flops / 1e6:,.1f} MFLOP{on_each} and "
            f"{forward.equations} operations; a call should take about 0.1 s, "
            "or on a CPU hold eight steps"
        )
        if not feed.resident:
            why += "; the data of a streamed one stay below some megabytes"
        if feed.samples is None:
            why += f", of loaders {_LOADER_STEPS} at most"
    steps = Decision(
        "steps per call", str(feed.length), why, "compile(steps_per_execution=n)"
    )
    if unroll_asked != "auto":
        why = "unroll was given"
    else:
        why = "small models on a GPU run faster so"
        why = why if unroll > 1 else "no gain is expected"
    turns = Decision(
        "unrolled steps", str(min(unroll, feed.length)), why, "compile(unroll=n)"
    )
    if validation_feed is None or validation_feed.samples is None:
        return [*places, steps, turns]
    return [
        *places,
        steps,
        turns,
        _merging_decision(validation_feed.joined, join_asked),
    ]


def _merging_decision(taken: int, asked: int | str) -> Decision:
    if asked in (1, taken):
        why = "join_batches was given"
    elif taken > 1:
        why = "a small step takes little longer for more rows, which nothing mixes"
    else:
        why = "no gain is expected, or the results would differ"
    switch = "compile(join_batches=n)"
    return Decision("validation batches at once", str(taken), why, switch)


def _devices(feed: Any, placement: OneDevice, exact_rows: bool) -> list[Decision]:
    distribution, rows = placement.distribution, feed.batch_size
    assert distribution is not None
    parts = distribution.num_model_replicas
    taken = f"{distribution.mesh.size}: {distribution}"
    if rows is None:  # of a loader
        why = f"each batch of the loader is filled up to a multiple of {parts} rows"
        return [Decision("devices", taken, why, "compile(mesh=…)")]
    width = placement.width(rows)
    if parts == 1 < (pieces := distribution.sequence_parts):
        why = f"positions of sequences are divided into {pieces} parts"
    elif parts == 1:
        why = "every device computes all rows of a batch"
    elif width == rows:
        why = f"a batch of {rows:,} rows is {parts} parts of {rows // parts:,}"
    elif exact_rows:
        why = f"{parts} devices cannot divide {rows:,} rows evenly: each runs them all"
    else:
        why = (
            f"a batch of {rows:,} rows is filled up to {width:,} with masked ones, "
            f"{parts} parts of {width // parts:,}"
        )
    rest = (feed.samples or 0) % rows
    if exact_rows and width == rows and rest % parts:
        why += f"; each device runs all of the last {rest:,}"
    return [Decision("devices", taken, why, "compile(mesh=…)")]


def as_it_ran(planned: list[Decision], feed: Any) -> list[Decision]:
    """The choices, with what the batches of a loader have made of them."""
    longest = getattr(feed, "longest", 0)
    if not 0 < longest < feed.length:
        return planned
    why = f"{feed.length} were planned, but batches of one shape are fewer in a row"
    return [
        dataclasses.replace(d, taken=str(longest), reason=why)
        if d.choice == "steps per call"
        else d
        for d in planned
    ]


def _place(choice: str, feed: Any) -> Decision:
    taken = "on the device" if feed.resident else "streamed by threads"
    arrays = feed.samples is not None
    switch = "fit(resident=True or False)" if arrays else "arrays instead of a loader"
    return Decision(choice, taken, feed.reason, switch)


def chunk_steps(
    forward: Cost,
    platform: str,
    batch_bytes: int,
    resident: bool,
    training: bool = True,
    fetched: bool = False,
) -> int:
    """Steps of a chunk, by an estimate of a step's time.

    XLA's CPU backend brings convolutions into the layout that its fast kernels need
    only outside of loops. Their gradients are many times slower in a loop (measured,
    design §1), and so are transposed ones: there a chunk is a single step.

    Args:
        forward: Cost of the forward pass of one batch on each device.
        batch_bytes: Size of a device's part of one batch; streamed chunks stay below a
            limit.
        resident: Whether the data are on the device already.
        training: Whether there are gradients: such a step takes three forward passes.
        fetched: Whether the outputs go to the host.
    """
    slow = forward.convolutions if training else forward.turned
    if platform == "cpu" and slow:
        return 1
    floor, per_equation, rate = _CPU if platform == "cpu" else _GPU
    once = max(forward.equations * per_equation, forward.flops / rate)
    seconds = max(floor, (3 if training else 1) * once)
    steps = max(1, min(_MAX_STEPS, round(_TARGET / seconds)))
    if platform == "cpu":
        steps = max(steps, min(_CPU_STEPS, round(_CPU_LONGEST / seconds)))
    if not resident:
        size = max(batch_bytes, 1)
        limit = _STREAMED_BYTES // size
        if platform == "cpu":
            few = min(_CPU_STEPS, _CPU_STREAMED_MOST // size)
            limit = max(_CPU_STREAMED_BYTES // size, few)
        steps = max(1, min(steps, limit))
    if fetched:
        steps = max(1, min(steps, int(_PREDICTED_BYTES / max(forward.outputs, 1))))
    return steps


def loader_steps(epoch: int | None) -> int:
    """Most steps of a chunk from a loader.

    Example:
        >>> loader_steps(None), loader_steps(15_000), loader_steps(1875)
        (256, 256, 156)
    """
    if epoch is None:
        return _LOADER_STEPS
    best = math.isqrt(_LOADER_FILLING * epoch)
    return min(max(best, _LOADER_FEWEST), _LOADER_STEPS)


def choose_unroll(forward: Cost, platform: str, training: bool = True) -> int:
    """Steps compiled into one turn of the chunk's loop.

    On a GPU four small steps in a row run 1.1 to 1.2 times as fast as one (design §1).
    A model of many operations gains nothing from it, and compiles four times as long;
    neither does one of long convolutions, which compiles up to twice as long. But where
    updates of tables of embeddings are much of a step, four of them are one.
    """
    if platform == "cpu":
        return 1
    long = bool(forward.convolutions) and forward.flops >= _LONG_CONVOLUTIONS
    small = forward.kernels <= _SMALL and not long
    if training and forward.equations <= _TABLE_EQUATIONS:
        _, per_equation, rate = _GPU
        rest = 3 * max(forward.equations * per_equation, forward.flops / rate)
        small = small or forward.tables * _TABLE > _TABLE_SHARE * rest
    return 4 if small else 1


def choose_merged_batches(forward: Cost, batches: int, platform: str) -> int:
    """Batches of ``evaluate`` or ``predict`` that run as one: a power of two.

    As many as make the fewest rows, with those that fill up the last step, and with
    one batch more for each step: about that is what a small step costs beside them.
    """
    if batches < _FEWEST_JOINED:
        return 1
    limit = _CPU_JOINED_BYTES if platform == "cpu" else _JOINED_BYTES
    most = min(limit // (4 * max(int(forward.elements), 1)), _MOST_JOINED)
    widths = [1 << n for n in range(_MOST_JOINED.bit_length())]

    def cost(width: int) -> int:
        return bucket(-(-batches // width)) * (width + 1)

    return min([w for w in widths if w <= max(most, 1)], key=lambda w: (cost(w), -w))


def balance_length(steps: int, most: int) -> int:
    """The length near ``most`` that cuts ``steps`` into equal chunks.

    A divisor from a quarter of ``most`` to twice as much is best: with empty steps at
    the end, every step would have to choose between the old state and the new one.
    Without a divisor, the empty steps are as few as they can be: each takes the time
    of a real one.
    """
    if steps <= most:
        return max(steps, 1)
    near = range(2 * most, most // 4, -1)
    return min(near, key=lambda k: (-steps % k, abs(k - most)))


@functools.cache  # a tenth of the time of a small predict
def choose_length(steps: int, most: int) -> int:
    """A length out of a few that cuts ``steps`` into chunks with few empty steps.

    Data of many sizes share programs so. An empty step takes the time of a real one, a
    further chunk that of the two-hundredth part of a planned one: 0.5 ms.

    Example:
        >>> [choose_length(n, most) for n, most in ((512, 222), (32, 5), (33, 2048))]
        [128, 4, 40]
    """
    longest = min(bucket(steps), most)
    lengths = {min(bucket(-(-longest * n // 32)), most) for n in range(4, 33)}

    def cost(length: int) -> float:
        return -(-steps // length) * (length + most / 200)

    return min(sorted(lengths, reverse=True), key=cost)


def fit_groups(steps: int, group: int) -> int:
    """Steps of a chunk near ``steps`` that holds whole groups of batches.

    Returns:
        A multiple of ``group``; 0 if steps run better one by one: where a chunk is to
        be a single step, or a group would be much longer than the planned chunk.

    Example:
        >>> fit_groups(64, 3), fit_groups(3, 8), fit_groups(1, 2), fit_groups(2, 100)
        (63, 8, 0, 0)
    """
    if steps == 1 or group > 8 * steps:
        return 0
    return max(steps // group, 1) * group


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
