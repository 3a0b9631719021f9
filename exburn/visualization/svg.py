"""Panels of curves as SVG, which pages and notebooks show without any library."""

from __future__ import annotations

import html

from rich.cells import cell_len

from exburn.core.printing import shorten
from exburn.errors import printable
from exburn.visualization.curves import Panel, PlotAxis, number_text, thin

_MOST_POINTS = 400  # of a curve: more than a panel has pixels to tell apart
_MARKED = 12  # points up to which each has a dot
_LEFT, _RIGHT, _TOP, _BOTTOM = 54, 14, 30, 34
_INSET = 6  # between the axes and the outermost points
_LETTER, _TITLE = 6.2, 7.4  # the width of a character of the legend, and of a title

# Colours by class, so that a page may say others for a dark screen.
LIGHT = {
    "surface": "#ffffff",
    "raised": "#f6f7f9",
    "text": "#1c2430",
    "muted": "#5d6776",
    "grid": "#e3e6eb",
    "first": "#1f6fd1",
    "second": "#c2570c",
    "third": "#1a8a5a",
    "bad": "#b42318",
    "good": "#1a7f4b",
}
DARK = {
    "surface": "#12161c",
    "raised": "#1a2029",
    "text": "#e7ebf0",
    "muted": "#9aa5b4",
    "grid": "#2c3440",
    "first": "#6aa9f7",
    "second": "#f0924f",
    "third": "#57c794",
    "bad": "#ff8f85",
    "good": "#63cf94",
}
_RULES = """
# .bg{fill:var(--surface)}# .t{fill:var(--text)}# .m{fill:var(--muted)}
# .g{stroke:var(--grid);stroke-width:1}
# .a{stroke:var(--muted);stroke-width:1}
# .l{fill:none;stroke-width:1.8;stroke-linejoin:round}
# .s0{stroke:var(--first)}# .s1{stroke:var(--second)}# .s2{stroke:var(--third)}
# .f0{fill:var(--first)}# .f1{fill:var(--second)}# .f2{fill:var(--third)}
# .b{fill:none;stroke-width:1.6}
# text{font-family:system-ui,-apple-system,"Segoe UI",Roboto,sans-serif}
"""
_COLORS = ("first", "second", "third")


def svg_style(scope: str) -> str:
    """Rules of CSS for what is drawn within an element.

    Args:
        scope: Its selector: a page of others is not to be coloured.
    """
    return _RULES.replace("# ", f"{scope} ").replace("\n", "")


def variables(colors: dict[str, str]) -> str:
    """The colours as variables of CSS."""
    return ";".join(f"--{name}:{value}" for name, value in colors.items())


def draw_panel(
    panel: Panel,
    *,
    width: int = 380,
    height: int = 230,
    left: float = 0,
    top: float = 0,
    x_title: str = "epoch",
) -> str:
    """One panel as a group of SVG: title, legend, axes, curves.

    Args:
        x_title: What the horizontal axis counts.
    """
    curves = [(c.name, thin(c.points, _MOST_POINTS)) for c in panel.curves]
    xs = PlotAxis((x for _, points in curves for x, _ in points), logarithmic=False)
    ys = PlotAxis(y for _, points in curves for _, y in points)
    inner, tall = width - _LEFT - _RIGHT, height - _TOP - _BOTTOM

    def x_at(x: float) -> float:
        return _LEFT + _INSET + (inner - 2 * _INSET) * xs.place(x)

    def y_at(y: float) -> float:
        return _TOP + _INSET + (tall - 2 * _INSET) * (1 - ys.place(y))

    parts = [f'<g transform="translate({left:g},{top:g})">']
    title = panel.title + (" (logarithmic)" if ys.logarithmic else "")
    names = [name for name, _ in curves if name] if len(curves) > 1 else []
    legend = sum(8 + _LETTER * cell_len(name) for name in names)
    # A long title has the line to itself; the legend is below the curves then.
    beside = _TITLE * cell_len(title) + legend <= inner
    title = shorten(title, int((inner - legend * beside) / _TITLE))
    parts.append(_text(_LEFT, 16, title, "t", size=13, weight=600))
    floor, right = height - _BOTTOM, width - _RIGHT
    for value in ys.ticks(4):
        y = y_at(value)
        parts.append(_line("g", _LEFT, right, y, y))
        parts.append(_line("a", _LEFT - 4, _LEFT, y, y))
        parts.append(_text(_LEFT - 7, y + 3.5, number_text(value), "m", anchor="end"))
    for value in xs.ticks(5, whole=x_title == "epoch"):
        text, x = number_text(value), x_at(value)
        parts.append(_line("a", x, x, floor, floor + 4))
        parts.append(_text(x, floor + 16, text, "m", anchor="middle"))
    parts.append(_line("a", _LEFT, right, floor, floor))
    parts.append(_line("a", _LEFT, _LEFT, _TOP, floor))
    parts.append(_text(right, height - 3, x_title, "m", anchor="end", size=10))
    place = float(right) if beside else _LEFT + legend - 8
    for number, (name, points) in reversed(list(enumerate(curves))):
        kind = number % 3
        path = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in points)
        color = f'fill="none" stroke="{LIGHT[_COLORS[kind]]}"'  # without a style
        parts.append(f'<polyline class="l s{kind}" {color} points="{path}"/>')
        if len(points) <= _MARKED:
            parts += [
                f'<circle class="f{kind}" fill="{LIGHT[_COLORS[kind]]}" '
                f'cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="2.6">'
                f"<title>{_escape(name)}: {number_text(y)}</title></circle>"
                for x, y in points
            ]
        if (best := panel.curves[number].best) is not None:
            parts.append(
                f'<circle class="b s{kind}" {color} cx="{x_at(best[0]):.1f}" '
                f'cy="{y_at(best[1]):.1f}" r="4.5"><title>best {_escape(name)}: '
                f"{number_text(best[1])}, {x_title} {number_text(best[0])}</title>"
                "</circle>"
            )
        if len(curves) > 1 and name:
            line = 16 if beside else height - 3
            parts.append(_text(place, line, name, f"f{kind}", anchor="end"))
            place -= 8 + _LETTER * cell_len(name)
    return "".join([*parts, "</g>"])


def _escape(text: str) -> str:
    return html.escape(printable(text))


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> str:
    color = LIGHT["grid" if kind == "g" else "muted"]
    return (
        f'<line class="{kind}" stroke="{color}" x1="{x1:.1f}" x2="{x2:.1f}" '
        f'y1="{y1:.1f}" y2="{y2:.1f}"/>'
    )


def _text(
    x: float,
    y: float,
    text: str,
    kind: str,
    *,
    anchor: str = "start",
    size: float = 11,
    weight: int = 400,
) -> str:
    return (
        f'<text class="{kind}" fill="currentColor" x="{x:.1f}" y="{y:.1f}" '
        f'font-size="{size:g}" font-weight="{weight}" text-anchor="{anchor}">'
        f"{_escape(text)}</text>"
    )


def draw_page(
    lines: list[str], panels: list[Panel], *, columns: int = 2, width: int = 380
) -> str:
    """A picture of its own: lines of text, and panels in rows below them.

    It has a background, since a page that shows it may be dark or light.
    """
    height, gap, line = 230, 8, 18
    columns = max(min(columns, len(panels)), 1)
    rows = -(-len(panels) // columns)
    head = 12 + line * len(lines)
    wide = max(columns * (width + gap) + gap, 640)
    tall = head + rows * (height + gap) + gap
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="exburn-page" width="{wide}" '
        f'height="{tall}" viewBox="0 0 {wide} {tall}" role="img">',
        f"<style>.exburn-page{{{variables(LIGHT)}}}{svg_style('.exburn-page')}</style>",
        f'<rect class="bg" width="{wide}" height="{tall}" rx="6"/>',
    ]
    for number, text in enumerate(lines):
        weight, kind = (600, "t") if not number else (400, "m")
        y = 22 + number * line
        parts.append(_text(14, y, text, kind, size=13, weight=weight))
    for number, panel in enumerate(panels):
        row, column = divmod(number, columns)
        left, top = gap + column * (width + gap), head + row * (height + gap)
        parts.append(draw_panel(panel, width=width, height=height, left=left, top=top))
    return "".join([*parts, "</svg>"])
