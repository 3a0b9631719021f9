"""What the time of a step on several devices is made of: compute, traffic, latency.

A step computes ``F`` operations on each device at a rate ``R``, and its collectives
move ``B`` bytes from each device over a link of ``W`` bytes a second, in ``h`` hops::

    compute = F / R        traffic = B / W        latency = Σ (start + h · hop)
    step = compute + traffic + latency - covered · min(compute, traffic + latency)

How much of the traffic computation covers is an assumption: none of it and all of it
are the bounds. On a ring of n devices, of an array of b bytes:

===============================  ==================  =========
collective                       B                   h
===============================  ==================  =========
all-reduce                       2 b (n - 1) / n     2 (n - 1)
all-gather, reduce-scatter       b (n - 1) / n       n - 1
all-to-all                       b (n - 1) / n       n - 1
collective-permute               b                   1
===============================  ==================  =========

Source: Patarasuk & Yuan, *Bandwidth optimal all-reduce algorithms for clusters of
workstations*, 2009, https://doi.org/10.1016/j.jpdc.2008.09.002
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from exburn.core.checks import check_number
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

__all__ = [
    "Collective",
    "Link",
    "StepTime",
    "data_parallel",
    "estimate",
    "fsdp",
    "get_link",
    "read_collectives",
    "tensor_parallel",
]

# Seconds before the first byte moves: NCCL's own figure for a ring (src/graph/tuning.cc
# of NCCL 2.12, ``baseLat``); those of a hop are its ``hwLat`` for NVLink, PCI, network.
_START = 8.4e-6
_WIDTHS = {"pred": 1, "bf16": 2, "c64": 8, "c128": 16}  # bytes; else in the name
_PARTS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}


@dataclasses.dataclass(frozen=True)
class Link:
    """How quickly a device reaches the next one.

    Args:
        bandwidth: Bytes a second that leave a device, in one direction; what is
            reached, not the data sheet's.
        hop: Seconds from one device to the next.
        start: Seconds until a collective begins.

    Raises:
        ArgumentError: A number is negative, or the bandwidth is 0.

    Example:
        >>> Link(50e9).bandwidth
        50000000000.0
    """

    bandwidth: float
    hop: float = 9.6e-6
    start: float = _START

    def __post_init__(self):
        check_number("Link", "bandwidth", self.bandwidth, open_low=True)
        check_number("Link", "hop", self.hop)
        check_number("Link", "start", self.start)


#: What links reach. NVLink 4 of an H100 has 450 GB/s in one direction (NVIDIA H100 data
#: sheet), of which a ring of two moves about 330; PCIe 5.0 x16 has 63 (PCI-SIG);
#: InfiniBand NDR 400 Gbit/s; Ethernet 25 and 100 Gbit/s; the internet 1 Gbit/s, and
#: 50 ms from one site to the next. Latencies as NCCL reckons with them.
LINKS: dict[str, Link] = {
    "nvlink": Link(330e9, hop=3.4e-6),
    "pcie": Link(50e9, hop=5.7e-6),
    "infiniband": Link(48e9, hop=9.6e-6),
    "ethernet-100": Link(12e9, hop=30e-6),
    "ethernet": Link(3e9, hop=30e-6),
    "internet": Link(0.12e9, hop=50e-3),
}


@api_boundary
def get_link(link: Any, op: str = "plan") -> Link:
    """The link by its name in ``LINKS``, or by its bytes a second, or as it is.

    Args:
        link: A name, a number of bytes a second, or a `Link`.
        op: The operation that asks, for errors.

    Raises:
        ArgumentError: It is none.

    Example:
        >>> get_link("pcie").hop, get_link(100e9).bandwidth
        (5.7e-06, 100000000000.0)
    """
    if isinstance(link, Link):
        return link
    if isinstance(link, str) and link in LINKS:
        return LINKS[link]
    if isinstance(link, int | float) and not isinstance(link, bool):
        return Link(float(link))
    names = ", ".join(map(repr, LINKS))
    raise ArgumentError(
        op, f"link must be a Link, bytes a second or one of {names}, received {link!r}"
    )


@dataclasses.dataclass(frozen=True)
class Collective:
    """One operation among devices.

    Args:
        kind: ``"all-reduce"``, ``"all-gather"``, ``"reduce-scatter"``,
            ``"all-to-all"`` or ``"collective-permute"``.
        nbytes: Bytes of the whole array: what is summed, or what is gathered.
        devices: Devices that take part.

    Example:
        >>> one = Collective("all-reduce", 1_000_000, 4)
        >>> one.traffic, one.hops
        (1500000.0, 6)
        >>> one.seconds(Link(1e9, hop=0, start=0))
        0.0015
    """

    kind: str
    nbytes: int
    devices: int

    @property
    def traffic(self) -> float:
        """Bytes that leave each device."""
        if self.devices == 1:
            return 0.0
        if self.kind == "collective-permute":
            return float(self.nbytes)
        return _PARTS[self.kind] * self.nbytes * (self.devices - 1) / self.devices

    @property
    def hops(self) -> int:
        """Steps from one device to the next."""
        if self.kind == "collective-permute":
            return int(self.devices > 1)
        return _PARTS[self.kind] * (self.devices - 1)

    def latency(self, link: Link) -> float:
        """Seconds in which no byte moves."""
        return link.start + self.hops * link.hop if self.devices > 1 else 0.0

    def seconds(self, link: Link) -> float:
        """Seconds that it takes alone."""
        return self.traffic / link.bandwidth + self.latency(link)


@dataclasses.dataclass(frozen=True)
class StepTime:
    """The parts of a step's time, in seconds.

    Args:
        compute: Seconds that a device computes.
        bandwidth: Seconds that bytes take.
        latency: Seconds in which collectives begin and hop.
        covered: Share of the two that runs beside computation, an assumption.

    Example:
        >>> time = StepTime(compute=0.030, bandwidth=0.020, latency=0.0)
        >>> time.seconds, time.best
        (0.05, 0.03)
        >>> round(time.efficiency, 2)
        0.6
    """

    compute: float
    bandwidth: float
    latency: float
    covered: float = 0.0

    @property
    def communication(self) -> float:
        """Seconds of all collectives."""
        return self.bandwidth + self.latency

    @property
    def seconds(self) -> float:
        """The step, with the assumed share of communication covered."""
        hidden = self.covered * min(self.compute, self.communication)
        return self.compute + self.communication - hidden

    @property
    def best(self) -> float:
        """The step if all is covered that can be."""
        return max(self.compute, self.communication)

    @property
    def efficiency(self) -> float:
        """Share of the step in which a device computes."""
        return self.compute / self.seconds if self.seconds else 1.0


@api_boundary
def estimate(
    flops: float,
    rate: float,
    collectives: Iterable[Collective],
    link: Any = "nvlink",
    covered: float = 0.0,
) -> StepTime:
    """The time of a step.

    Args:
        flops: Floating-point operations of a device.
        rate: Operations a second that the device reaches.
        collectives: What the step sends; those of ``data_parallel``, ``fsdp`` or
            ``tensor_parallel``, or ``read_collectives`` of a compiled program.
        link: A ``Link``, its name in ``LINKS``, or its bytes a second.
        covered: Share of communication that computation covers, from 0 to 1.

    Raises:
        ArgumentError: A number is out of range.

    Example:
        GPT-2 of 124 million parameters, 16,384 tokens on each of 16 devices, gradients
        in float32 over InfiniBand:

        >>> from exburn.distribution import step_time as times
        >>> gradients = times.data_parallel(4 * 124e6, devices=16)
        >>> time = times.estimate(6 * 124e6 * 16_384, 4e14, gradients, "infiniband")
        >>> f"{1e3 * time.compute:.0f} + {1e3 * time.communication:.0f} ms"
        '30 + 20 ms'
    """
    check_number("estimate", "flops", flops)
    check_number("estimate", "rate", rate, open_low=True)
    check_number("estimate", "covered", covered, high=1)
    link, collectives = get_link(link, "estimate"), list(collectives)
    return StepTime(
        compute=flops / rate,
        bandwidth=sum(one.traffic for one in collectives) / link.bandwidth,
        latency=sum(one.latency(link) for one in collectives),
        covered=covered,
    )


@api_boundary
def data_parallel(nbytes: float, devices: int) -> list[Collective]:
    """The sum of all gradients.

    Args:
        nbytes: Bytes of the gradients.
        devices: Parts that the batch is divided into.

    Example:
        >>> data_parallel(1000, 2)[0].traffic
        1000.0
    """
    return [Collective("all-reduce", int(nbytes), devices)]


@api_boundary
def fsdp(layers: Sequence[float], devices: int) -> list[Collective]:
    """Each layer's weights gathered twice, and its gradients summed into parts.

    Args:
        layers: Bytes of the weights of each layer.
        devices: Parts that batch and weights are divided into.

    Example:
        >>> sum(one.traffic for one in fsdp([600, 400], 2))
        1500.0
    """
    kinds = ("all-gather", "all-gather", "reduce-scatter")
    return [Collective(kind, int(b), devices) for b in layers for kind in kinds]


@api_boundary
def tensor_parallel(nbytes: float, pairs: int, devices: int) -> list[Collective]:
    """For each pair of layers one sum of activations forward, and one backward.

    Args:
        nbytes: Bytes of the activations behind a pair, for the rows of a device.
        pairs: Pairs of layers: two in each block of a transformer.
        devices: Parts that features are divided into.

    Example:
        >>> sum(one.traffic for one in tensor_parallel(1000, 2, 4))
        6000.0
    """
    return [Collective("all-reduce", int(nbytes), devices)] * (2 * pairs)


_LINE = re.compile(
    r"= (?P<result>.*?) (?P<kind>all-reduce|all-gather|reduce-scatter|all-to-all|"
    r"collective-permute)(?P<start>-start)?\((?P<rest>.*)$"
)
_ARRAY = re.compile(r"\b([a-z]+[0-9a-z]*)\[([0-9,]*)\]")


@api_boundary
def read_collectives(hlo: str) -> Iterator[Collective]:
    """The collectives in the text of a compiled program, each once.

    Those in a loop count once, too: XLA does not say how often it turns.

    Args:
        hlo: ``compiled.as_text()``.

    Example:
        >>> line = "%a = f32[8,4]{1,0} all-gather(%b), replica_groups=[2,4]<=[8], …"
        >>> list(read_collectives(line))
        [Collective(kind='all-gather', nbytes=128, devices=4)]
    """
    for line in hlo.splitlines():
        if (match := _LINE.search(line)) is None:
            continue
        kind = match["kind"]
        sizes = [_nbytes(*array) for array in _ARRAY.findall(match["result"])]
        if match["start"] and kind in ("all-gather", "collective-permute"):
            half = sizes[: len(sizes) // 2 * 2]
            sizes = half[len(half) // 2 :]  # behind the operands
        devices = _group_size(match["rest"])
        total = sum(sizes)
        if kind == "reduce-scatter":  # the result is a part
            total *= devices
        yield Collective(kind, total, devices)


def _nbytes(dtype: str, shape: str) -> int:
    digits = re.search(r"\d+", dtype)
    width = _WIDTHS.get(dtype)
    if width is None:
        width = max(int(digits.group()) // 8, 1) if digits else 0  # of a token: none
    return width * math.prod(int(n) for n in shape.split(",") if n)


def _group_size(text: str) -> int:
    """Devices of a group, which is axes of a mesh, a part of a grid, or a list."""
    if match := re.search(r"replica_groups=mesh\[(.*?)\]\s*\{(.*?)\}", text):
        sizes = dict(re.findall(r"'(\w+)'=(\d+)", match[1]))
        axes = re.findall(r"'(\w+)'(?::\(\d+\)(\d+))?", match[2])
        return math.prod(int(part or sizes[name]) for name, part in axes)
    if match := re.search(r"replica_groups=\[(\d+),(\d+)\]", text):
        return int(match[2])
    if match := re.search(r"replica_groups=\{\{([\d,]*)\}", text):
        return len(match[1].split(","))
    if match := re.search(r"source_target_pairs=\{(.*?)\}\}", text):
        return len(np.unique(re.findall(r"\d+", match[1])))
    return 1
