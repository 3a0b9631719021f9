"""Boxes, frames around them and arrows: as SVG, and as a picture by matplotlib."""

from __future__ import annotations

import dataclasses
import html
import io
from collections import defaultdict
from collections.abc import Hashable
from typing import Any

from rich.cells import cell_len

from exburn.core.printing import one_line, shorten
from exburn.errors import ArgumentError, require
from exburn.visualization import page
from exburn.visualization.layered import (
    DiagramLink,
    Key,
    NodePlace,
    Point,
    TooLargeError,
    arrange,
)
from exburn.visualization.svg import LIGHT

DIRECTIONS = ("TB", "BT", "LR", "RL")
LINES = {
    "ortho": "ortho",
    "curved": "curved",
    "spline": "curved",
    "true": "curved",
    "line": "line",
    "polyline": "line",
    "false": "line",
}
_TITLE, _LINE = 13, 11  # sizes of letters
_STEP = 0.64  # of a letter's size: the width of a letter, rounded up to pixels
_PAD, _EDGE, _HEAD = 9.0, 12.0, 22.0
_MOST_CELLS = 48  # of a text in a box
_MOST_PIXELS = 60_000  # of a side of a picture by matplotlib
_COLORS = {"input": "third", "weights": "first", "frame": "second", "plain": "muted"}
_RULES = """
# .node{fill:var(--raised);stroke:var(--grid)}# .frame{fill:none;stroke:var(--second)}
# .arrow{fill:none;stroke:var(--muted)}# .tip{fill:var(--muted)}
# .t{fill:var(--text)}# .m{fill:var(--muted)}# .second{fill:var(--second)}
# .bar-first{fill:var(--first)}# .bar-second{fill:var(--second)}
# .bar-third{fill:var(--third)}# .bar-muted{fill:var(--muted)}
"""
_FONT = 'ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace'
# Charts in the same notebook have letters of another font.
_LETTERS = f"# .exburn-diagram text{{font-family:{_FONT}}}"

# What matplotlib's own font has no letters for, where one of these is installed.
_FONTS = (
    "Noto Sans Mono CJK JP",
    "Noto Sans CJK JP",
    "WenQuanYi Micro Hei",
    "Hiragino Sans GB",
    "Microsoft YaHei",
    "Malgun Gothic",
    "Arial Unicode MS",
    "Noto Emoji",
    "Segoe UI Emoji",
)


@dataclasses.dataclass
class Box:
    """A box with a title and lines.

    Attributes:
        kind: ``"input"``, ``"weights"``, ``"frame"`` (it stands for what could be
            drawn as one) or ``"plain"``: its colour.
        frame: The key of the frame that it lies in; ``None`` outside of all.
    """

    title: str
    name: str = ""
    lines: tuple[tuple[str, str], ...] = ()
    kind: str = "plain"
    frame: Hashable = None


@dataclasses.dataclass
class Frame:
    """A frame around boxes."""

    title: str
    frame: Hashable = None


@dataclasses.dataclass
class Path:
    """A line that was laid out, with a tip or without."""

    points: list[Point]
    tip: bool


class Diagram:
    """A graph of boxes, which draws itself in a notebook.

    Args:
        arrows: Pairs of keys of boxes.
        direction: ``"TB"`` (down), ``"BT"``, ``"LR"`` (right) or ``"RL"``.
        lines: ``"ortho"``, ``"curved"`` or ``"line"``.
    """

    def __init__(
        self,
        name: str,
        boxes: dict[Key, Box],
        frames: dict[Key, Frame],
        arrows: list[tuple[Key, Key]],
        direction: str = "TB",
        lines: str = "ortho",
    ):
        self.name, self.boxes, self.frames = name, boxes, frames
        self.arrows = list(dict.fromkeys(arrows))
        self.direction, self.lines = direction, lines
        self.places: dict[Key, NodePlace] = {}
        self.paths: list[Path] = []
        try:
            self.width, self.height = self._lay_out()
        except TooLargeError as error:
            raise ArgumentError(
                "plot_model",
                "the lines of this graph cross too many layers for a picture",
                {"boxes": len(boxes), "arrows": len(self.arrows)},
                hint="Draw a part (layer_range), or fold models (expand_nested=False).",
            ) from error

    def __repr__(self) -> str:
        parts = {"box": len(self.boxes), "arrow": len(self.arrows)}
        plurals = {"box": "boxes", "arrow": "arrows"}
        counts = [
            f"{n} {word if n == 1 else plurals[word]}" for word, n in parts.items()
        ]
        return one_line(f"<Diagram of {self.name}: {', '.join(counts)}>")

    def _repr_html_(self) -> str:
        drawn = self._svg(style=False)
        return page.fragment(
            f'<div style="overflow:auto">{drawn}</div>', rules=_RULES + _LETTERS
        )

    # ----------------------------------------------------------------- layout
    def _lay_out(self) -> tuple[float, float]:
        """Places everything, the inner frames first; returns width and height."""
        inside: dict[Key, list[Key]] = defaultdict(list)
        for key, box in self.boxes.items():
            inside[box.frame].append(("box", key))
        for key, frame in self.frames.items():
            inside[frame.frame].append(("frame", key))
        chains = {key: self._chain(box.frame) for key, box in self.boxes.items()}
        laid: dict[Key, _Laid] = {}
        for key in [*sorted(self.frames, key=self._depth, reverse=True), None]:
            laid[key] = self._lay_out_frame(key, inside[key], chains, laid)
        whole = laid[None]
        self._collect(None, _EDGE, _EDGE, laid)
        width, height = whole.width + 2 * _EDGE, whole.height + 2 * _EDGE
        if self.direction in ("BT", "RL"):
            self._flip(height)
        if self.direction in ("LR", "RL"):
            self._turn()
            width, height = height, width
        return width, height

    def _depth(self, frame: Key) -> int:
        return len(self._chain(frame))

    def _chain(self, frame: Key) -> list[Key]:
        """The frames around something, the outermost first."""
        chain = []
        while frame is not None:
            chain.append(frame)
            frame = self.frames[frame].frame
        return chain[::-1]

    def _size(self, key: Key) -> tuple[float, float]:
        """Width and height of a box, as its layout sees them."""
        rows = _rows(self.boxes[key])
        wide = max(cell_len(text) * size * _STEP for text, size, _ in rows)
        tall = sum(size + 5 for _, size, _ in rows)
        wide, tall = wide + 2 * _PAD + 5, tall + _PAD
        return (tall, wide) if self.direction in ("LR", "RL") else (wide, tall)

    def _lay_out_frame(
        self, frame: Key, children: list[Key], chains: dict, laid: dict[Key, _Laid]
    ) -> _Laid:
        places: dict[Key, NodePlace] = {}
        for child in children:
            kind, key = child
            if kind == "box":
                places[child] = NodePlace(*self._size(key))
            else:
                inner = laid[key]
                places[child] = NodePlace(
                    inner.width, inner.height, starts=inner.exits, ends=inner.entries
                )
        links: dict[DiagramLink, bool] = {}
        for start, end in self.arrows:
            first, last = (self._child(frame, key, chains) for key in (start, end))
            if first is None and last is None or first == last:
                continue
            if first is None:  # it comes in, and may go to several boxes
                first = ("in", start)
                places.setdefault(first, NodePlace(2.0, 0.0, 0))
            if last is None:
                last = ("out", start)
                places.setdefault(last, NodePlace(2.0, 0.0, -1))
            links[DiagramLink(first, last, start)] = last[0] == "box"
        width, height, lines = arrange(places, list(links))
        head = 0.0 if frame is None else _HEAD
        side = 0.0 if frame is None else _EDGE
        title = "" if frame is None else self.frames[frame].title
        least = cell_len(one_line(title)) * _LINE * _STEP + 2 * _PAD
        spare = max(least - width - 2 * side, 0.0) / 2
        for place in places.values():
            place.x, place.y = place.x + side + spare, place.y + head
        full = height + head + side, width + 2 * (side + spare)
        paths = []
        for link, points in lines.items():
            moved = [(x + side + spare, y + head) for x, y in points]
            if link.start[0] == "in":
                moved[0] = moved[0][0], 0.0
            if link.end[0] == "out":
                moved[-1] = moved[-1][0], full[0]
            paths.append(Path(moved, links[link]))
        ends = {k: p.x + 1.0 for k, p in places.items() if k[0] in ("in", "out")}
        return _Laid(
            full[1],
            full[0],
            {key: x for (kind, key), x in ends.items() if kind == "in"},
            {key: x for (kind, key), x in ends.items() if kind == "out"},
            places,
            paths,
        )

    def _child(self, frame: Key, key: Key, chains: dict) -> Key | None:
        """The child of a frame that a box is or lies in; None if it lies outside."""
        chain = chains[key]
        if frame is None:
            return ("frame", chain[0]) if chain else ("box", key)
        if frame not in chain:
            return None
        at = chain.index(frame) + 1
        return ("frame", chain[at]) if at < len(chain) else ("box", key)

    def _collect(
        self, frame: Key, left: float, top: float, laid: dict[Key, _Laid]
    ) -> None:
        """Moves a frame and what is in it to where they are in the picture."""
        for path in laid[frame].paths:
            points = [(x + left, y + top) for x, y in path.points]
            self.paths.append(Path(points, path.tip))
        for (kind, key), place in laid[frame].places.items():
            place.x, place.y = place.x + left, place.y + top
            if kind == "box":
                self.places[key] = place
            elif kind == "frame":
                self.places["frame", key] = place
                self._collect(key, place.x, place.y, laid)

    def _flip(self, height: float) -> None:
        for place in self.places.values():
            place.y = height - place.y - place.height
        for path in self.paths:
            path.points = [(x, height - y) for x, y in path.points]

    def _turn(self) -> None:
        for place in self.places.values():
            place.x, place.y = place.y, place.x
            place.width, place.height = place.height, place.width
        for path in self.paths:
            path.points = [(y, x) for x, y in path.points]

    # -------------------------------------------------------------------- SVG
    def to_svg(self) -> str:
        """The picture as a text that a file or a page may have, light or dark."""
        return self._svg(style=True)

    def _svg(self, style: bool) -> str:
        wide, tall = f"{self.width:.0f}", f"{self.height:.0f}"
        parts = [
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{wide}" height="{tall}" '
            f'viewBox="0 0 {wide} {tall}" role="img" class="exburn-diagram" '
            f"font-family='{_FONT}' aria-label=\"{page.text(self.name)}\">"
        ]
        if style:
            rules = page.theme(".exburn-diagram")
            rules += _RULES.replace("# ", ".exburn-diagram ").replace("\n", "")
            rules += ".exburn-diagram .ground{fill:var(--surface)}"
            parts.append(f"<style>{rules}</style>")
            parts.append(
                f'<rect class="ground" fill="{LIGHT["surface"]}" width="{wide}" '
                f'height="{tall}"/>'
            )
        for key, frame in self.frames.items():
            parts.append(self._frame(self.places["frame", key], frame))
        for path in self.paths:
            parts.append(self._arrow(path))
        for key, box in self.boxes.items():
            parts.append(self._box(self.places[key], box))
        return "".join([*parts, "</svg>"])

    def _frame(self, place: NodePlace, frame: Frame) -> str:
        color = LIGHT["second"]
        return (
            f'<rect class="frame" fill="none" stroke="{color}" stroke-dasharray="5 4" '
            f'x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="8"/>'
            + _text(place.x + _PAD, place.y + 15, frame.title, "second", _LINE, color)
        )

    def _box(self, place: NodePlace, box: Box) -> str:
        accent = _COLORS[box.kind]
        parts = [
            f"<g><title>{page.text(f'{box.title} {box.name}'.strip())}</title>"
            f'<rect class="node" fill="{LIGHT["raised"]}" stroke="{LIGHT["grid"]}" '
            f'x="{place.x:.1f}" y="{place.y:.1f}" width="{place.width:.1f}" '
            f'height="{place.height:.1f}" rx="5"/>'
            f'<rect class="bar-{accent}" fill="{LIGHT[accent]}" x="{place.x:.1f}" '
            f'y="{place.y:.1f}" width="4" height="{place.height:.1f}" rx="2"/>'
        ]
        y = place.y + _PAD / 2
        for text, size, kind in _rows(box):
            y += size + 5
            weight = 600 if kind == "t" and size == _TITLE else 400
            color = LIGHT["text" if kind == "t" else "muted"]
            parts.append(
                _text(place.x + _PAD + 5, y - 3, text, kind, size, color, weight)
            )
        return "".join([*parts, "</g>"])

    def _arrow(self, path: Path) -> str:
        color = LIGHT["muted"]
        drawn = "".join(
            name + " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
            for name, points in _segments(path, self.lines)
        )
        parts = [
            f'<path class="arrow" fill="none" stroke="{color}" stroke-width="1.3" '
            f'd="{drawn}"/>'
        ]
        if path.tip:
            tip = " ".join(f"{x:.1f},{y:.1f}" for x, y in _tip(path))
            parts.append(f'<polygon class="tip" fill="{color}" points="{tip}"/>')
        return "".join(parts)

    # ------------------------------------------------------------- matplotlib
    def to_picture(self, format: str, dpi: int = 200) -> bytes:
        """The picture in a format of matplotlib's, such as ``"png"`` or ``"pdf"``.

        Args:
            dpi: Dots per inch, of which the SVG has 96.
        """
        side = max(self.width, self.height) * dpi / 96
        if side > _MOST_PIXELS:
            raise ArgumentError(
                "plot_model",
                f"a picture may have {_MOST_PIXELS:,} pixels on a side, this one would "
                f"have {side:,.0f}",
                hint="Pass a smaller dpi, or write SVG, which has no pixels.",
            )
        reason = f"a picture as {format} is drawn by matplotlib, SVG needs nothing"
        op, extra = "plot_model", "plot"
        Figure = require("matplotlib.figure", op, reason, extra=extra).Figure
        patches = require("matplotlib.patches", op, reason, extra=extra)
        curve = require("matplotlib.path", op, reason, extra=extra).Path
        codes = {"M": [curve.MOVETO], "L": [curve.LINETO], "Q": [curve.CURVE3] * 2}
        codes["C"] = [curve.CURVE4] * 3
        figure = Figure(figsize=(self.width / 96, self.height / 96), dpi=dpi)
        axes = figure.add_axes((0, 0, 1, 1))
        axes.set_axis_off()
        axes.set_xlim(0, self.width)
        axes.set_ylim(self.height, 0)
        fonts = require("matplotlib.font_manager", op, reason, extra=extra)
        there = {font.name for font in fonts.fontManager.ttflist}
        family = ["DejaVu Sans Mono", *(name for name in _FONTS if name in there)]
        font = {"family": family, "parse_math": False}
        for key, frame in self.frames.items():
            place, color = self.places["frame", key], LIGHT["second"]
            axes.add_patch(_rounded_box(patches, place, 8, "none", color, "--"))
            axes.text(
                place.x + _PAD,
                place.y + 15,
                _printable_title(frame.title),
                color=color,
                fontsize=0.75 * _LINE,
                **font,
            )
        for path in self.paths:
            points, kinds = [], []
            for name, piece in _segments(path, self.lines):
                points += piece
                kinds += codes[name]
            line = curve(points, kinds)
            color = LIGHT["muted"]
            axes.add_patch(
                patches.PathPatch(line, facecolor="none", edgecolor=color, linewidth=1)
            )
            if path.tip:
                axes.add_patch(patches.Polygon(_tip(path), color=color, linewidth=0))
        for key, box in self.boxes.items():
            place, accent = self.places[key], LIGHT[_COLORS[box.kind]]
            axes.add_patch(
                _rounded_box(patches, place, 5, LIGHT["raised"], LIGHT["grid"])
            )
            axes.add_patch(
                patches.Rectangle(
                    (place.x, place.y), 4, place.height, color=accent, linewidth=0
                )
            )
            y = place.y + _PAD / 2
            for text, size, kind in _rows(box):
                y += size + 5
                axes.text(
                    place.x + _PAD + 5,
                    y - 3,
                    text,
                    color=LIGHT["text" if kind == "t" else "muted"],
                    fontsize=0.75 * size,
                    weight="bold" if size == _TITLE else "normal",
                    **font,
                )
        file = io.BytesIO()
        figure.savefig(file, format=format, dpi=dpi)
        return file.getvalue()


@dataclasses.dataclass
class _Laid:
    """A frame that was laid out: its size, the places on its border, what is in it."""

    width: float
    height: float
    entries: dict[Key, float]
    exits: dict[Key, float]
    places: dict[Key, NodePlace]
    paths: list[Path]


def _printable_title(text: str) -> str:
    return shorten(one_line(text), _MOST_CELLS)


def _rows(box: Box) -> list[tuple[str, int, str]]:
    """The texts in a box: each with its size, and ``"t"`` or ``"m"``, its tone."""
    rows = [(_printable_title(box.title), _TITLE, "t")]
    if box.name:
        rows.append((_printable_title(box.name), _LINE, "m"))
    for label, value in box.lines:
        rows.append(
            (_printable_title(f"{label}: {value}" if label else value), _LINE, "t")
        )
    return rows


def _text(
    x: float,
    y: float,
    text: str,
    kind: str,
    size: int,
    color: str,
    weight: int = 400,
) -> str:
    return (
        f'<text class="{kind}" fill="{color}" x="{x:.1f}" y="{y:.1f}" '
        f'font-size="{size}" font-weight="{weight}" xml:space="preserve">'
        f"{html.escape(_printable_title(text))}</text>"
    )


def _rounded_box(
    patches: Any, place: NodePlace, radius: float, face: str, edge: str, line: str = "-"
) -> Any:
    return patches.FancyBboxPatch(
        (place.x + radius, place.y + radius),
        place.width - 2 * radius,
        place.height - 2 * radius,
        boxstyle=patches.BoxStyle("Round", pad=radius),
        facecolor=face,
        edgecolor=edge,
        linestyle=line,
        linewidth=1,
    )


def _segments(path: Path, lines: str) -> list[tuple[str, list[Point]]]:
    """The pieces of a line: ``M`` and ``L``, ``Q`` and ``C`` with their points."""
    points = _straight(path.points)
    pieces = [("M", points[:1])]
    if lines != "ortho":
        # Without the corners next to the ends, a run along a layer is a slope.
        points = [points[0], *points[2:-2], points[-1]]
    upright = path.points[0][0] == path.points[1][0]
    for i in range(1, len(points)):
        before, here = points[i - 1], points[i]
        straight = before[0] == here[0] or before[1] == here[1]
        if lines == "curved" and not straight:
            middle = (before[0] + here[0]) / 2, (before[1] + here[1]) / 2
            first = (before[0], middle[1]) if upright else (middle[0], before[1])
            second = (here[0], middle[1]) if upright else (middle[0], here[1])
            pieces.append(("C", [first, second, here]))
        elif lines == "ortho" and i + 1 < len(points):
            after = points[i + 1]
            radius = min(6.0, _distance(before, here) / 2, _distance(here, after) / 2)
            pieces.append(("L", [_toward(here, before, radius)]))
            pieces.append(("Q", [here, _toward(here, after, radius)]))
        else:
            pieces.append(("L", [here]))
    return pieces


def _straight(points: list[Point]) -> list[Point]:
    """The points at which a line turns, with its ends."""
    corners = points[:1]
    for i, point in enumerate(points[1:], 1):
        following = points[i + 1] if i + 1 < len(points) else None
        before = corners[-1]
        if following is not None and (
            before[0] == point[0] == following[0]
            or before[1] == point[1] == following[1]
            or point == before
        ):
            continue
        corners.append(point)
    return corners


def _distance(a: Point, b: Point) -> float:
    return max(abs(a[0] - b[0]), abs(a[1] - b[1]))


def _toward(start: Point, end: Point, length: float) -> Point:
    whole = _distance(start, end) or 1.0
    share = length / whole
    return start[0] + (end[0] - start[0]) * share, start[1] + (
        end[1] - start[1]
    ) * share


def _tip(path: Path) -> list[Point]:
    """The corners of an arrow's head."""
    (x, y), (fx, fy) = path.points[-1], path.points[-2]
    dx, dy = (x > fx) - (x < fx), (y > fy) - (y < fy)
    if dx and dy:
        dx = 0
    back = x - 7 * dx, y - 7 * dy
    return [
        (x, y),
        (back[0] + 3.5 * dy, back[1] + 3.5 * dx),
        (back[0] - 3.5 * dy, back[1] - 3.5 * dx),
    ]
