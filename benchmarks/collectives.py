"""The time of collectives that no other kernel covers, from a trace of JAX."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

__all__ = ["exposed", "uncovered"]

Span = tuple[float, float]
_KIND = re.compile(r"nccl\w*?Kernel_?([A-Za-z]+)")


def exposed(folder: Path) -> dict[str, float] | None:
    """Seconds of a trace, the mean of its GPUs; None where it has no GPU's streams.

    Returns:
        ``span``, from the first kernel to the end of the last; ``busy``, while any
        kernel ran; ``collectives``, while one of NCCL's ran; ``exposed``, while nothing
        else did; and what each kind of collective took, waiting for its peers included.
    """
    from jax.profiler import ProfileData

    runs = []
    for file in folder.glob("**/*.xplane.pb"):
        for plane in ProfileData.from_file(str(file)).planes:
            if not plane.name.startswith("/device:GPU"):
                continue
            streams = [s for s in plane.lines if s.name.startswith("Stream")]
            kernels = [
                (event.name, (event.start_ns, event.start_ns + event.duration_ns))
                for stream in streams
                for event in stream.events
            ]
            if kernels:
                runs.append(_measure(kernels))
    names = dict.fromkeys(name for one in runs for name in one)
    return {n: sum(one[n] for one in runs) / len(runs) / 1e9 for n in names} or None


def _measure(kernels: Iterable[tuple[str, Span]]) -> dict[str, float]:
    kinds: dict[str, list[Span]] = defaultdict(list)
    others: list[Span] = []
    for name, span in kernels:
        if "nccl" in name.lower():
            match = _KIND.search(name)
            kinds[match[1] if match else "other"].append(span)
        else:
            others.append(span)
    collectives = [span for spans in kinds.values() for span in spans]
    both = merged([*others, *collectives])
    result = {
        "span": both[-1][1] - both[0][0],
        "busy": length(both),
        "collectives": length(merged(collectives)),
        "exposed": uncovered(collectives, others),
    }
    taken = {kind: length(merged(spans)) for kind, spans in kinds.items()}
    return defaultdict(float, result | taken)


def merged(spans: Iterable[Span]) -> list[Span]:
    """The union of intervals, as disjoint ones in order.

    Example:
        >>> merged([(4, 6), (0, 2), (1, 3)])
        [(0, 3), (4, 6)]
    """
    parts: list[Span] = []
    for begin, end in sorted(spans):
        if parts and begin <= parts[-1][1]:
            parts[-1] = parts[-1][0], max(end, parts[-1][1])
        else:
            parts.append((begin, end))
    return parts


def length(spans: Iterable[Span]) -> float:
    return sum(end - begin for begin, end in spans)


def uncovered(spans: Iterable[Span], cover: Iterable[Span]) -> float:
    """The length of intervals less what others cover of them.

    Example:
        >>> uncovered([(0, 4), (6, 8)], [(1, 2), (3, 7)])
        3
    """
    spans, cover = list(spans), list(cover)
    return length(merged([*spans, *cover])) - length(merged(cover))
