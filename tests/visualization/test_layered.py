"""Tests of ``exburn.visualization.layered``: nothing overlaps, and lines lead down."""

import random

import pytest

from exburn.visualization import layered
from exburn.visualization.layered import DiagramLink, NodePlace, TooLargeError, arrange


def chain(count):
    return [(i, i + 1) for i in range(count)]


def residual(blocks):
    lines = []
    for b in range(0, 3 * blocks, 3):
        lines += [(b, b + 1), (b + 1, b + 2), (b + 2, b + 3), (b, b + 3)]
    return lines


def dense(count):
    return [(i, j) for j in range(count) for i in range(j)]


def u_net(depth):
    down = chain(2 * depth)
    return down + [(i, 2 * depth - i) for i in range(depth)]


def chance(seed):
    rng = random.Random(seed)
    pairs = [(i, j) for j in range(14) for i in range(j) if rng.random() < 0.2]
    return pairs or [(0, 1)]


GRAPHS = {
    "one box": [],
    "a chain": chain(30),
    "residual": residual(4),
    "u-net": u_net(4),
    "dense": dense(7),
    "many inputs": [(i, 12) for i in range(12)],
    "many outputs": [(0, i) for i in range(1, 12)],
    "two parts": [(0, 1), (2, 3), (3, 4)],
    **{f"random {seed}": chance(seed) for seed in range(6)},
}


def laid_out(pairs):
    rng = random.Random(len(pairs))
    keys = {key for pair in pairs for key in pair} or {0}
    places = {
        k: NodePlace(rng.uniform(20, 200), rng.uniform(20, 80)) for k in sorted(keys)
    }
    links = [DiagramLink(a, b) for a, b in pairs]
    return places, links, *arrange(places, links)


@pytest.mark.parametrize("graph", GRAPHS)
def test_the_picture_can_be_read(graph):
    places, links, width, height, points = laid_out(GRAPHS[graph])
    boxes = list(places.values())
    for i, a in enumerate(boxes):
        assert a.x >= -0.01 and a.x + a.width <= width + 0.01 and a.y >= 0
        assert a.y + a.height <= height + 0.01
        for b in boxes[:i]:
            beside = a.x + a.width <= b.x + 0.01 or b.x + b.width <= a.x + 0.01
            below = a.y + a.height <= b.y or b.y + b.height <= a.y
            assert beside or below
    for link in links:
        line, start, end = points[link], places[link.start], places[link.end]
        assert line[0][1] == pytest.approx(start.y + start.height)
        assert line[-1][1] == pytest.approx(end.y)
        assert start.x <= line[0][0] <= start.x + start.width
        assert end.x <= line[-1][0] <= end.x + end.width
        for (x1, y1), (x2, y2) in zip(line, line[1:], strict=False):
            assert x1 == pytest.approx(x2, abs=0.01) or y1 == pytest.approx(y2)
            assert y2 >= y1 - 0.01
            for box in boxes:  # a skip connection passes beside the boxes
                inside = box.x < max(x1, x2) and min(x1, x2) < box.x + box.width
                crosses = box.y < max(y1, y2) - 0.1 and min(y1, y2) + 0.1 < (
                    box.y + box.height
                )
                assert not (inside and crosses)


@pytest.mark.parametrize(
    ("graph", "layers"),
    [
        ("a chain", 31),
        ("residual", 13),
        ("many inputs", 2),
        ("two parts", 3),
    ],
)
def test_the_longest_path_says_how_many_layers_there_are(graph, layers):
    places = laid_out(GRAPHS[graph])[0]
    assert 1 + max(place.layer for place in places.values()) == layers


def test_a_chain_is_straight_and_trees_do_not_cross():
    _, _, _, _, points = laid_out(GRAPHS["a chain"])
    assert {len(line) for line in points.values()} == {2}
    # Two chains whose boxes are given in turn, crossed at first.
    pairs = [("a", "d"), ("b", "c"), ("d", "e"), ("c", "f")]
    places = {key: NodePlace(50, 20) for key in "abcdef"}
    arrange(places, [DiagramLink(*pair) for pair in pairs])
    left = [key for key in "abcdef" if places[key].x < 40]
    assert sorted(left) in (["a", "d", "e"], ["b", "c", "f"])


def test_a_late_input_stands_near_to_where_it_is_needed():
    places, *_ = laid_out([*chain(6), (20, 6)])
    assert places[20].layer == 5


def test_what_no_one_could_read_is_refused(monkeypatch):
    monkeypatch.setattr(layered, "_MOST_LINKS", 50)
    with pytest.raises(TooLargeError):
        laid_out(dense(12))
