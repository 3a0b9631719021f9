"""Explanations as pictures: heat over images, bars of columns, coloured tokens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions
from rich.text import Text

from exburn.errors import printable
from exburn.visualization import page
from exburn.visualization.figures import draw_bars, new_figure

if TYPE_CHECKING:
    from exburn.insight.explanations.explanation import Explanation

_ROWS = 8  # that are drawn
_BARS = 20
_COLUMNS = 80  # letters of a line of tokens
_RED, _BLUE = "230,70,60", "70,120,230"
_OP = "Explanation.plot"


def draw(explanation: Explanation) -> Any:
    """A figure of an explanation's first rows, an input below the other."""
    names = list(explanation.arrays)
    rows = min(len(explanation.scores), _ROWS)
    kinds = {name: _kind(explanation, name) for name in names}
    if all(kind == "image" for kind in kinds.values()):
        return _draw_images(explanation, names, rows)
    height = sum(_height(explanation, name, kinds[name], rows) for name in names)
    figure = new_figure(_OP, 7, height)
    axes = np.atleast_1d(figure.subplots(len(names), 1))
    for panel, name in zip(axes, names, strict=True):
        if kinds[name] == "columns":
            _draw_columns(panel, explanation, name)
        elif kinds[name] == "tokens":
            _draw_tokens(panel, explanation, name, rows)
        else:
            _draw_grid(figure, panel, explanation, name, rows)
        if len(names) > 1:
            panel.set_title(name, loc="left")
    return figure


def _kind(explanation: Explanation, name: str) -> str:
    values, inputs = explanation.arrays[name], explanation.inputs[name]
    if inputs.ndim == 4 and values.ndim in (3, 4):
        return "image"
    if name in explanation.texts:
        return "tokens"
    is_table = values.ndim == 2 and values.shape == inputs.shape
    return "columns" if is_table and inputs.dtype.kind == "f" else "grid"


def _height(explanation: Explanation, name: str, kind: str, rows: int) -> float:
    if kind == "columns":
        return 1.2 + 0.28 * min(explanation.arrays[name].shape[1], _BARS)
    if kind == "tokens":
        return 0.8 + 0.24 * len(_token_lines(explanation, name, rows))
    return 1.2 + 0.4 * rows


def _draw_images(explanation: Explanation, names: list[str], rows: int) -> Any:
    figure = new_figure(_OP, 1.5 * rows + 0.8, 3.3 * len(names))
    axes = figure.subplots(2 * len(names), rows, squeeze=False)
    for number, name in enumerate(names):
        channel = _channel_axis(explanation.inputs[name])
        heats = explanation.arrays[name]
        if heats.ndim == 4:
            size = np.abs(heats).max(channel)
            signed = explanation.method not in ("saliency", "gradcam")
            heats = heats.sum(channel) if signed else size
        for row in range(rows):
            image = np.moveaxis(explanation.inputs[name][row], channel - 1, -1)
            above, below = axes[2 * number][row], axes[2 * number + 1][row]
            above.imshow(_pixels(image), cmap="gray")
            target, score = explanation.targets[row], explanation.scores[row]
            above.set_title(f"{target}: {score:.3g}", size=9)
            below.imshow(_pixels(image).mean(-1), cmap="gray", vmin=0, vmax=1)
            mark = _draw_heat(below, heats[row], image.shape[:2])
            for panel in (above, below):
                panel.set_axis_off()
        both = axes[2 * number : 2 * number + 2].ravel()
        figure.colorbar(mark, ax=list(both), ticks=[], shrink=0.5)
    figure.suptitle(
        f"{explanation.method.replace('_', ' ')}: target and score", size=10
    )
    return figure


def _channel_axis(images: np.ndarray) -> int:
    """The axis of the channels of images, of which there are few."""
    return 1 if images.shape[1] in (1, 3, 4) and images.shape[-1] > 4 else 3


def _pixels(image: np.ndarray) -> np.ndarray:
    """An image of floats from 0 to 1, with three channels or one."""
    image = image.astype(np.float32)
    low, high = image.min(), image.max()
    image = (image - low) / ((high - low) or 1.0)
    return image[..., :3] if image.shape[-1] >= 3 else image[..., :1]


def _draw_heat(axes: Any, heat: np.ndarray, size: tuple[int, int]) -> Any:
    """Draws heat over an image of this size, stretched where it is coarser."""
    bound = float(np.percentile(np.abs(heat), 99.5)) or float(np.abs(heat).max()) or 1.0
    signed = bool((heat < 0).any())
    height, width = size
    return axes.imshow(
        heat,
        cmap="RdBu_r" if signed else "inferno",
        vmin=-bound if signed else 0,
        vmax=bound,
        alpha=0.65,
        extent=(-0.5, width - 0.5, height - 0.5, -0.5),
        interpolation="bilinear" if heat.shape != size else "nearest",
    )


def _draw_columns(axes: Any, explanation: Explanation, name: str) -> None:
    """Bars of a row's values; of several rows their mean size."""
    values = explanation.arrays[name]
    several = len(values) > 1
    lengths = np.abs(values).mean(0) if several else values[0]
    order = np.argsort(-np.abs(lengths), kind="stable")[:_BARS]
    columns = explanation.columns or [f"column {i}" for i in range(values.shape[1])]
    draw_bars(axes, [columns[i] for i in order], {name: [lengths[i] for i in order]})
    what = f"mean size over {len(values):,} rows" if several else "value"
    axes.set_xlabel(f"{explanation.method.replace('_', ' ')}: {what}")
    axes.axvline(0, color="0.4", linewidth=0.8)
    axes.grid(axis="x", alpha=0.3)
    axes.set_axisbelow(True)


def _draw_grid(
    figure: Any, axes: Any, explanation: Explanation, name: str, rows: int
) -> None:
    """A cell for each place of each row, with the token where there are few."""
    values, inputs = explanation.arrays[name][:rows], explanation.inputs[name][:rows]
    flat = values.reshape(rows, values.shape[1], -1).sum(-1)
    bound = float(np.abs(flat).max()) or 1.0
    low = -bound if (flat < 0).any() else 0
    cells = axes.imshow(
        flat,
        aspect="auto",
        vmin=low,
        vmax=bound,
        cmap="RdBu_r" if low else "Reds",
    )
    if flat.shape[1] <= 24 and inputs.shape == flat.shape:
        for (row, place), value in np.ndenumerate(inputs):
            shade = "white" if abs(flat[row, place]) > 0.6 * bound else "black"
            axes.text(place, row, f"{value:g}", ha="center", va="center", color=shade)
    axes.set_yticks(
        range(rows), [f"row {i}: {t}" for i, t in enumerate(explanation.targets)]
    )
    axes.set_xlabel(f"place; {explanation.method.replace('_', ' ')}")
    figure.colorbar(cells, ax=axes)


class ColouredTokens:
    """Tokens of a row in a terminal or a page: red for the score, blue against it."""

    def __init__(self, texts: Sequence[str], values: np.ndarray):
        self.texts, bound = texts, float(np.abs(values).max()) or 1.0
        self.shares = [float(value) / bound for value in values]

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[Text]:
        if console.color_system is None:
            return
        line = Text(overflow="fold")
        for text, share in zip(self.texts, self.shares, strict=True):
            line.append(_visible(text), f"#000000 on {_color(share)}")
        yield line

    def html(self) -> str:
        """The same as a paragraph of a page."""
        spans = [
            f'<span style="background:rgba({_RED if share > 0 else _BLUE},'
            f'{abs(share):.2f})">{page.text(_visible(text))}</span>'
            for text, share in zip(self.texts, self.shares, strict=True)
        ]
        return f'<p style="white-space:pre-wrap">{"".join(spans)}</p>'


def _visible(text: str) -> str:
    return printable(text).replace("\n", "↵")


def _color(share: float) -> str:
    """A share from -1 to 1 as a colour: blue, white, red."""
    color = [int(part) for part in (_RED if share > 0 else _BLUE).split(",")]
    mixed = [round(255 + (part - 255) * min(abs(share), 1)) for part in color]
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _token_lines(
    explanation: Explanation, name: str, rows: int
) -> list[list[tuple[str, float]]]:
    """Lines of tokens with their shares; an empty line stands before each row."""
    lines: list[list[tuple[str, float]]] = []
    for row in range(rows):
        tokens = ColouredTokens(
            explanation.texts[name][row], explanation.arrays[name][row]
        )
        lines += [[], []]
        width = 0
        for text, share in zip(tokens.texts, tokens.shares, strict=True):
            shown = _visible(text)[:_COLUMNS]
            if width + len(shown) > _COLUMNS:
                lines.append([])
                width = 0
            lines[-1].append((shown, share))
            width += len(shown)
    return lines


def _draw_tokens(axes: Any, explanation: Explanation, name: str, rows: int) -> None:
    """Tokens of each row on coloured ground, in lines of one width."""
    from matplotlib.patches import Rectangle

    lines, row = _token_lines(explanation, name, rows), 0
    for height, line in enumerate(lines):
        if not line and row < rows:
            title = f"row {row}: target {explanation.targets[row]}"
            title += f", score {explanation.scores[row]:.3g}"
            axes.text(0, height + 0.5, title, size=7, color="0.4", va="center")
            row += 1
        at = 0
        for text, share in line:
            box = (at, height), len(text), 0.9
            axes.add_patch(Rectangle(*box, color=_color(share), linewidth=0))
            for place, letter in enumerate(text):
                center = at + place + 0.5, height + 0.48
                style = {"family": "monospace", "size": 8, "ha": "center"}
                axes.text(*center, letter, va="center", **style)
            at += len(text)
    axes.set_xlim(0, _COLUMNS)
    axes.set_ylim(len(lines), 0)
    axes.set_axis_off()
    axes.set_title(explanation.method.replace("_", " "), loc="left", size=9)
