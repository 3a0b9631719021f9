"""Places for the boxes of a graph: in layers, with few crossings and straight arrows.

Source: Sugiyama, Tagawa, Toda, "Methods for visual understanding of hierarchical system
structures", 1981: layers by the longest path, orders by barycentres; then places that
lie as near as they can to those of the neighbours.
"""

from __future__ import annotations

import bisect
import dataclasses
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

Key = Any
Point = tuple[float, float]

_SWEEPS = 12  # over the layers, for their orders
_STEPS = 24  # over the layers, for the places
_MOST_LINKS = 200_000  # of one layer to the next, in a picture that a person can read
_BESIDE, _BELOW = 26.0, 26.0  # pixels between boxes, and between layers at least
_TRACK = 9.0  # pixels between two lines that run along a layer
_SNAP = 3.0  # pixels below which a line is straight
_ENTRY = 9.0  # pixels from a box's middle to where a line from the side enters


@dataclasses.dataclass
class NodePlace:
    """A box to place, and where it was placed.

    Attributes:
        layer: Its layer from the top; given for those that must be in the first or the
            last one (-1), else found.
        starts: For lines that begin in it, by their name: how far from the left; the
            middle by default.
        ends: The same for lines that end in it.
    """

    width: float
    height: float
    layer: int | None = None
    x: float = 0.0
    y: float = 0.0
    starts: dict[Key, float] = dataclasses.field(default_factory=dict)
    ends: dict[Key, float] = dataclasses.field(default_factory=dict)

    def start(self, name: Key) -> float:
        """Where a line leaves it, from its left."""
        return self.starts.get(name, self.width / 2)

    def end(self, name: Key) -> float:
        """Where a line enters it, from its left."""
        return self.ends.get(name, self.width / 2)


@dataclasses.dataclass(frozen=True)
class DiagramLink:
    """A line from one box to another one.

    Attributes:
        name: What ``starts`` and ``ends`` call it.
    """

    start: Key
    end: Key
    name: Key = None


@dataclasses.dataclass(eq=False)
class _Part:
    """A piece of a link between neighbouring layers, of boxes or of bends."""

    above: Key
    below: Key
    link: DiagramLink
    weight: float


class TooLargeError(Exception):
    """A graph whose picture nobody could read."""


def arrange(
    places: dict[Key, NodePlace], links: Sequence[DiagramLink]
) -> tuple[float, float, dict[DiagramLink, list[Point]]]:
    """Places boxes below one another, so that all links lead down.

    Returns:
        The width and the height of the picture, and the points of each line, whose
        pieces run down or along.
    """
    _find_layers(places, links)
    nodes, layers, parts = _split(places, links)
    _order(layers, parts)
    centers = _center(nodes, layers, parts)
    left = min((centers[k] - nodes[k].width / 2 for k in nodes), default=0.0)
    for key, place in nodes.items():
        place.x = centers[key] - left - place.width / 2
    height, points = _route(nodes, layers, parts, links)
    width = max((place.x + place.width for place in nodes.values()), default=0.0)
    xs = [x for line in points.values() for x, _ in line]
    return max([width, *xs]), height, points


# ----------------------------------------------------------------------- layers
def _find_layers(places: dict[Key, NodePlace], links: Sequence[DiagramLink]) -> None:
    above, below = defaultdict(list), defaultdict(list)
    for link in links:
        above[link.end].append(link.start)
        below[link.start].append(link.end)
    order = _sort(places, above, below)
    first = any(place.layer == 0 for place in places.values())
    fixed = {key: place.layer for key, place in places.items()}
    for key in order:
        if fixed[key] == 0:
            places[key].layer = 0
        else:
            floors = [places[k].layer or 0 for k in above[key]]
            places[key].layer = max((f + 1 for f in floors), default=int(first))
    last = max((place.layer or 0 for place in places.values()), default=0)
    for key in places:
        if fixed[key] == -1:
            places[key].layer = last
    for key in reversed(order):  # what begins late stands near to where it is needed
        if fixed[key] is None and not above[key] and below[key]:
            places[key].layer = min(places[k].layer or 0 for k in below[key]) - 1


def _sort(places: Iterable[Key], above: dict, below: dict) -> list[Key]:
    """The keys, each behind those above it."""
    missing = {key: len(above[key]) for key in places}
    ready = [key for key, count in missing.items() if not count]
    order = []
    while ready:
        key = ready.pop()
        order.append(key)
        for other in below[key]:
            missing[other] -= 1
            if not missing[other]:
                ready.append(other)
    return order


def _split(
    places: dict[Key, NodePlace], links: Sequence[DiagramLink]
) -> tuple[dict[Key, NodePlace], list[list[Key]], list[_Part]]:
    """Bends where links cross layers, and the layers with them."""
    spans = sum(
        (places[k.end].layer or 0) - (places[k.start].layer or 0) for k in links
    )
    if spans > _MOST_LINKS:
        raise TooLargeError
    nodes: dict[Key, NodePlace] = dict(places)
    depth = 1 + max((place.layer or 0 for place in places.values()), default=-1)
    layers: list[list[Key]] = [[] for _ in range(depth)]
    for key, place in places.items():
        layers[place.layer or 0].append(key)
    parts = []
    for link in links:
        top, bottom = places[link.start].layer or 0, places[link.end].layer or 0
        chain: list[Key] = [link.start]
        for layer in range(top + 1, bottom):
            key = ("bend", link, layer)
            nodes[key] = NodePlace(2.0, 0.0, layer)
            layers[layer].append(key)
            chain.append(key)
        chain.append(link.end)
        for i, (a, b) in enumerate(zip(chain, chain[1:], strict=False)):
            inner = 0 < i < len(chain) - 2
            weight = 100.0 if inner else 2.0 if len(chain) > 2 else 1.0
            parts.append(_Part(a, b, link, weight))
    return nodes, layers, parts


# ----------------------------------------------------------------------- orders
def _order(layers: list[list[Key]], parts: list[_Part]) -> None:
    """Sorts the layers so that few parts cross."""
    above, below = defaultdict(list), defaultdict(list)
    for part in parts:
        above[part.below].append(part.above)
        below[part.above].append(part.below)
    best, fewest = [list(layer) for layer in layers], _crossings(layers, below)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for layer in layers[1:] if down else reversed(layers[:-1]):
            near = above if down else below
            at = {k: i for other in layers for i, k in enumerate(other)}
            center = {}
            for i, key in enumerate(layer):
                others = [at[k] for k in near[key]]
                center[key] = sum(others) / len(others) if others else i
            layer.sort(key=center.__getitem__)
        count = _crossings(layers, below)
        if count < fewest:
            best, fewest = [list(layer) for layer in layers], count
    for layer, order in zip(layers, best, strict=True):
        layer[:] = order


def _crossings(layers: list[list[Key]], below: dict) -> int:
    count = 0
    for upper, lower in zip(layers, layers[1:], strict=False):
        at = {key: i for i, key in enumerate(lower)}
        ends: list[int] = []
        for key in upper:
            targets = sorted(at[k] for k in below[key])
            count += sum(len(ends) - bisect.bisect_right(ends, t) for t in targets)
            for target in targets:
                bisect.insort(ends, target)
    return count


# ----------------------------------------------------------------------- places
def _center(
    nodes: dict[Key, NodePlace], layers: list[list[Key]], parts: list[_Part]
) -> dict[Key, float]:
    """The middles of boxes and bends: near to their neighbours, apart in a layer."""
    above, below = defaultdict(list), defaultdict(list)
    for part in parts:
        upper, lower = nodes[part.above], nodes[part.below]
        shift = upper.start(part.link.name) - upper.width / 2
        shift -= lower.end(part.link.name) - lower.width / 2
        above[part.below].append((part.above, shift, part.weight))
        below[part.above].append((part.below, -shift, part.weight))
    centers: dict[Key, float] = {}
    for layer in layers:
        _pack(layer, nodes, {key: 0.0 for key in layer}, {}, centers)
    for step in range(_STEPS):
        down = step % 2 == 0
        near = above if down else below
        for layer in layers if down else reversed(layers):
            wishes, weights = {}, {}
            for key in layer:
                # The last steps look both ways, so that no side bends all lines.
                others = near[key] if step < _STEPS - 4 else above[key] + below[key]
                weight = sum(w for _, _, w in others)
                weights[key] = weight or 0.1
                wishes[key] = (
                    sum((centers[k] + shift) * w for k, shift, w in others) / weight
                    if weight
                    else centers[key]
                )
            _pack(layer, nodes, wishes, weights, centers)
    return centers


def _pack(
    layer: list[Key],
    nodes: dict[Key, NodePlace],
    wishes: dict[Key, float],
    weights: dict[Key, float],
    centers: dict[Key, float],
) -> None:
    """The middles nearest to the wishes, by least squares, that keep order and gaps.

    Neighbours that would come too near move as a block (pool adjacent violators).
    """
    offsets, offset, before = [], 0.0, 0.0
    for i, key in enumerate(layer):
        half = nodes[key].width / 2
        offset += before + half + _BESIDE if i else 0.0
        before = half
        offsets.append(offset)
    blocks: list[list[float]] = []  # of each the wish, the weight, and how many
    for key, place in zip(layer, offsets, strict=True):
        blocks.append([wishes[key] - place, weights.get(key, 1.0), 1])
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            wish, weight, count = blocks.pop()
            last = blocks[-1]
            last[0] = (last[0] * last[1] + wish * weight) / (last[1] + weight)
            last[1], last[2] = last[1] + weight, last[2] + count
    starts = [wish for wish, _, count in blocks for _ in range(int(count))]
    for key, start, place in zip(layer, starts, offsets, strict=True):
        centers[key] = start + place


# ----------------------------------------------------------------------- routes
def _route(
    nodes: dict[Key, NodePlace],
    layers: list[list[Key]],
    parts: list[_Part],
    links: Sequence[DiagramLink],
) -> tuple[float, dict[DiagramLink, list[Point]]]:
    """Sets the tops of the layers, and leads the lines between and through them."""
    gaps: dict[int, list[_Part]] = defaultdict(list)
    for part in parts:
        gaps[nodes[part.above].layer or 0].append(part)
    points: dict[DiagramLink, list[Point]] = {link: [] for link in links}
    top = 0.0
    for number, layer in enumerate(layers):
        tall = max((nodes[key].height for key in layer), default=0.0)
        for key in layer:
            nodes[key].y = top + (tall - nodes[key].height) / 2
            if isinstance(key, tuple) and key and key[0] == "bend":
                nodes[key].y, nodes[key].height = top, tall
        top += tall
        if number + 1 == len(layers):
            break
        runs = _runs(nodes, gaps[number])
        tracks = _tracks(runs)
        high = _BELOW + _TRACK * max(0, max(tracks.values(), default=0))
        for part, (x1, x2) in runs.items():
            upper = nodes[part.above]
            line = points[part.link]
            if not line:
                line.append((x1, upper.y + upper.height))
            if x1 != x2:
                y = top + _BELOW / 2 + _TRACK * tracks[part]
                line += [(x1, y), (x2, y)]
            # Down to the box; into the layer, where it only passes.
            line.append((x2, top + high))
        top += high
    for link, line in points.items():
        target = nodes[link.end]
        if line:
            line[-1] = (line[-1][0], target.y)
    return top, points


def _runs(
    nodes: dict[Key, NodePlace], parts: list[_Part]
) -> dict[_Part, tuple[float, float]]:
    """Where each part leaves the layer above, and where it enters the one below."""
    runs = {}
    for part in parts:
        upper, lower = nodes[part.above], nodes[part.below]
        x1 = upper.x + upper.start(part.link.name)
        x2 = lower.x + lower.end(part.link.name)
        if abs(x2 - x1) < _SNAP:
            if isinstance(part.below, tuple):  # a bend goes where the line is
                lower.x += x1 - x2
            x2 = x1
        elif lower.width > 4 * _ENTRY and part.link.name not in lower.ends:
            # From the side: not on the line of what leaves the box above.
            x2 += min(max(x1 - x2, -_ENTRY), _ENTRY)
        runs[part] = x1, x2
    return runs


def _tracks(runs: dict[_Part, tuple[float, float]]) -> dict[_Part, int]:
    """The height of each run along the layer, so that no two lie on each other."""
    groups: dict[Key, list[_Part]] = defaultdict(list)
    for part, (x1, x2) in runs.items():
        if x1 != x2:
            groups[part.above].append(part)

    def rank(key: Key) -> tuple[bool, float]:
        x1 = runs[groups[key][0]][0]
        right = sum(runs[part][1] - x1 for part in groups[key]) > 0
        return right, -x1 if right else x1

    taken: list[list[tuple[float, float]]] = []
    tracks = {}
    for key in sorted(groups, key=rank):
        xs = [x for part in groups[key] for x in runs[part]]
        low, high = min(xs) - 3, max(xs) + 3
        number = next(
            (i for i, t in enumerate(taken) if all(b < low or high < a for a, b in t)),
            len(taken),
        )
        if number == len(taken):
            taken.append([])
        taken[number].append((low, high))
        tracks |= dict.fromkeys(groups[key], number)
    return tracks
