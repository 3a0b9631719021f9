"""Tests of ``exburn.visualization.diagram``."""

from xml.etree import ElementTree

import pytest
from tests.visualization.html_pages import Page

from exburn.errors import ArgumentError
from exburn.visualization import layered
from exburn.visualization.diagram import DIRECTIONS, Box, Diagram, Frame

EVIL = '<script>alert(1)</script>&"\x1b[2J\n'


def nested(direction="TB", lines="ortho"):
    """A frame in a frame, fed by two boxes, of which one goes around it."""
    frames = {"f": Frame("outer"), "g": Frame("inner", "f")}
    boxes = {
        "a": Box("Input", "a", (), "input"),
        "b": Box("Input", "b", (), "input"),
        "c": Box("Dense", "c", (("output", "(None, 3)"),), "weights", "f"),
        "d": Box("Dense", "d", (), "weights", "g"),
        "e": Box("Dense", "e", (), "weights", "g"),
        "h": Box("Add", "h"),
    }
    arrows = [*"ac cd de eh bd bh ah".split()]
    pairs = [(a, b) for a, b in arrows]
    return Diagram("model", boxes, frames, pairs, direction, lines)


def inside(inner, outer):
    return (
        outer.x <= inner.x
        and outer.y <= inner.y
        and inner.x + inner.width <= outer.x + outer.width
        and inner.y + inner.height <= outer.y + outer.height
    )


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_frames_hold_their_boxes_in_every_direction(direction):
    drawn = nested(direction)
    places = drawn.places
    assert inside(places["frame", "g"], places["frame", "f"])
    for key, box in drawn.boxes.items():
        for frame in ("f", "g"):
            expected = box.frame == frame or (box.frame == "g" and frame == "f")
            assert inside(places[key], places["frame", frame]) == expected
    axis = "y" if direction in ("TB", "BT") else "x"
    forward = direction in ("TB", "LR")
    for start, end in drawn.arrows:
        a, b = getattr(places[start], axis), getattr(places[end], axis)
        assert (a < b) == forward
    tips = [path.points[-1] for path in drawn.paths if path.tip]
    assert len(tips) == len(drawn.arrows)
    for x, y in tips:
        assert any(
            p.x - 0.1 <= x <= p.x + p.width + 0.1
            and p.y - 0.1 <= y <= p.y + p.height + 0.1
            for key, p in places.items()
            if key in drawn.boxes
        )


@pytest.mark.parametrize("lines", ["ortho", "curved", "line"])
@pytest.mark.parametrize("direction", ["TB", "LR"])
def test_arrows_run_as_asked_for_and_go_on_at_a_border(lines, direction):
    drawn = nested(direction, lines)
    paths = [
        element.get("d")
        for element in ElementTree.fromstring(drawn.to_svg()).iter(
            "{http://www.w3.org/2000/svg}path"
        )
    ]
    letters = {letter for path in paths for letter in path if letter.isalpha()}
    assert (
        letters - {"M", "L"} == {"ortho": {"Q"}, "curved": {"C"}, "line": set()}[lines]
    )
    # What enters a frame goes on inside, from the same point.
    begins = {path.points[0] for path in drawn.paths}
    for path in drawn.paths:
        if not path.tip:
            x, y = path.points[-1]
            assert any(abs(x - a) < 0.01 and abs(y - b) < 0.01 for a, b in begins)


def test_names_are_no_markup():
    boxes = {"a": Box(EVIL, EVIL, ((EVIL, EVIL),), frame="f"), "b": Box("b")}
    drawn = Diagram(EVIL, boxes, {"f": Frame(EVIL)}, [("a", "b")])
    root = ElementTree.fromstring(drawn.to_svg())
    assert not list(root.iter("{http://www.w3.org/2000/svg}script"))
    assert "\x1b" not in drawn.to_svg() and "\n" not in repr(drawn)
    assert "script" not in Page(drawn._repr_html_()).check().names


def test_a_picture_is_light_or_dark_as_its_page_is():
    svg = nested().to_svg()
    assert "@media(prefers-color-scheme:dark){.exburn-diagram{" in svg
    # Renderers without variables have colours, too.
    root = ElementTree.fromstring(svg)
    for element in root.iter("{http://www.w3.org/2000/svg}rect"):
        assert element.get("fill") == "none" or element.get("fill").startswith("#")


def test_the_letters_have_room():
    box = Box("Dense", "a" * 100, (("output", "(None, 3)"),))
    drawn = Diagram("m", {"a": box}, {}, [])
    assert drawn.places["a"].width > 48 * 11 * 0.6
    assert f">{'a' * 24}…" in drawn.to_svg()


def test_a_graph_that_no_one_could_read(monkeypatch):
    monkeypatch.setattr(layered, "_MOST_LINKS", 3)
    with pytest.raises(ArgumentError, match="layer_range"):
        nested()
