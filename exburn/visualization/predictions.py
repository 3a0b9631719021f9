"""What a model predicts, drawn: a confusion matrix, and rows of texts and tables."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from exburn.core.symbolic_shapes import describe as describe_array
from exburn.data import frame_array, is_frame
from exburn.errors import ArgumentError, ShapeError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.visualization.figures import new_figure

_FEW = 24  # classes up to which each cell has its number
_RIGHT, _WRONG = "#2e7d32", "#c62828"


@api_boundary
def confusion_matrix(
    y_true: Any, y_pred: Any, classes: int | None = None
) -> np.ndarray:
    """How often each class (row) was taken for each class (column).

    Args:
        y_true, y_pred: [samples] integers, names, or a column of a table; or
            [samples, classes], whose largest entry counts. Names are in the order of
            the alphabet.
        classes: Number of classes; as many as there are by default.

    Returns:
        [classes, classes] int64.

    Raises:
        ShapeError: There are not as many predictions as labels.
        ArgumentError: A class is negative, not below ``classes``, or no whole number.

    Example:
        >>> confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [0.7, 0.3]]).tolist()
        [[1, 0], [1, 1]]
    """
    return _count(*_as_pair("confusion_matrix", y_true, y_pred), classes)[0]


def _as_pair(op: str, y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Labels and predictions as arrays; columns of tables are read."""
    true, pred = (
        frame_array(y, op=op, name=name) if is_frame(y) else np.asarray(y)
        for y, name in ((y_true, "y_true"), (y_pred, "y_pred"))
    )
    return true, pred


def _count(
    true: np.ndarray,
    pred: np.ndarray,
    classes: int | None = None,
    names: Sequence[str] | None = None,
) -> tuple[np.ndarray, list[str] | None]:
    """The matrix, and the names of the classes where those are strings."""
    op = "confusion_matrix"
    texts = [y.dtype.kind in "OSUT" for y in (true, pred)]
    words = None
    if any(texts):
        if not all(texts):
            raise ArgumentError(
                op,
                "labels and predictions must both be names, or both be numbers",
                {"y_true": describe_array(true), "y_pred": describe_array(pred)},
            )
        words = _sorted_names(op, true, pred, names)
        number = {name: i for i, name in enumerate(words)}
        true, pred = (
            np.array([number[str(v)] for v in y.reshape(-1)], np.int64)
            for y in (true, pred)
        )
        classes = len(words)
    shapes = {"y_true": true.shape, "y_pred": pred.shape}
    wide = [y.shape[-1] for y in (true, pred) if y.ndim > 1]
    true, pred = as_classes(true), as_classes(pred)
    if true.shape != pred.shape:
        raise ShapeError(
            op, "labels and predictions must be one class for each sample", shapes
        )
    if classes is None:
        most = max(true.max(initial=0), pred.max(initial=0)) + 1
        classes = int(max([*wide, most]))
    low, high = (
        (int(f([f(true), f(pred)])) for f in (np.min, np.max)) if true.size else (0, 0)
    )
    if low < 0 or high >= classes:
        raise ArgumentError(
            op,
            f"classes are from 0 to {classes - 1}, received {low if low < 0 else high}",
        )
    counts = np.bincount(true * classes + pred, minlength=classes**2)
    return counts.reshape(classes, classes), words


def _sorted_names(
    op: str, true: np.ndarray, pred: np.ndarray, names: Sequence[str] | None
) -> list[str]:
    """Names of all classes: in the order that is given, or in that of the alphabet."""
    seen = sorted({str(v) for y in (true, pred) for v in y.reshape(-1)})
    if names is None:
        return seen
    order = [str(name) for name in names]
    if unknown := [name for name in seen if name not in order]:
        raise unknown_name("class", unknown[0], order, op=op)
    return order


def as_classes(y: Any) -> np.ndarray:
    """[samples] integers of labels, of probabilities for each class, or of one."""
    y = np.asarray(y)
    if y.ndim > 1 and y.shape[-1] > 1:
        return y.argmax(-1).reshape(-1)
    y = y.reshape(-1)
    if y.dtype.kind == "f" and _is_share(y):
        return (y > 0.5).astype(np.int64)
    strange = y != np.rint(y) if y.dtype.kind == "f" else np.zeros(len(y), bool)
    if strange.any():
        at = int(strange.argmax())
        raise ArgumentError(
            "confusion_matrix",
            "classes must be whole numbers, or probabilities of class 1",
            {"first other value": f"{y[at]} at row {at}"},
            hint="Of logits make probabilities: keras.ops.sigmoid(logits).",
        )
    return y.astype(np.int64)


def _is_share(y: np.ndarray) -> bool:
    """Whether floats are probabilities rather than the numbers of classes."""
    return bool(((y >= 0) & (y <= 1)).all())


@api_boundary
def plot_confusion_matrix(
    y_true: Any,
    y_pred: Any = None,
    labels: Sequence[str] | Mapping[int, str] | None = None,
    title: str = "",
) -> Any:
    """Draws a confusion matrix: shares of each true class as colours, counts as text.

    Args:
        y_true: [samples] classes: numbers, names, or a column of a table; or
            [samples, classes], whose largest entry counts. Alone a matrix,
            [classes, classes], whose rows are the true classes.
        y_pred: The same of the predictions, which may be what ``predict`` returns:
            probabilities of all classes, or of class 1. Beside a matrix the names of
            the classes.
        labels: Names of the classes. Where classes are names, their order; that of the
            alphabet by default.
        title: Stands above it.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ShapeError: The matrix is not square, or there are not as many predictions as
            labels.
        ArgumentError: There is no label for a class, or a class is no whole number.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> figure = plot_confusion_matrix([0, 1, 1], [[0.9, 0.1], [0.2, 0.8], [1, 0]])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['1', '0', '1', '1']
        >>> figure = plot_confusion_matrix(["cat", "dog"], ["cat", "cat"])
        >>> [text.get_text() for text in figure.axes[0].get_xticklabels()]
        ['cat', 'dog']
        >>> figure = plot_confusion_matrix([[8, 2], [1, 9]], ["cat", "dog"])
        >>> [text.get_text() for text in figure.axes[0].texts]
        ['8', '2', '1', '9']
    """
    op = "plot_confusion_matrix"
    if _are_names(y_pred) and np.ndim(y_true) == 2 and not is_frame(y_true):
        y_pred, labels = None, y_pred
    if y_pred is None:
        counts = np.asarray(y_true)
        square = counts.ndim == 2 and counts.shape[0] == counts.shape[1]
        if not square or not counts.size:
            raise ShapeError(
                op,
                f"a square matrix is drawn, received shape {counts.shape}",
                hint="Give predictions, too: plot_confusion_matrix(y_true, y_pred).",
            )
    else:
        true, pred = _as_pair(op, y_true, y_pred)
        if true.ndim > 1 and true.shape[-1] > 1 and not np.allclose(true.sum(-1), 1):
            raise ArgumentError(
                op,
                "y_true must be classes, one-hot or probabilities beside y_pred",
                {"y_true": describe_array(true)},
                hint="A matrix is drawn alone: plot_confusion_matrix(matrix, "
                "labels=[…]).",
            )
        names = None if isinstance(labels, Mapping) else labels
        size = None if labels is None else len(labels)
        counts, words = _count(true, pred, size, names)
        labels = labels if words is None else words
    size = len(counts)
    names = label_names(op, labels, size)
    inches = min(max(3.5, 0.45 * size + 2), 14)
    figure = new_figure(op, inches + 0.6, inches)
    axes = figure.add_subplot()
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    figure.colorbar(image, label="share of the true class", shrink=0.8)
    step = math.ceil(size / 40)
    places = list(range(0, size, step))
    long = max(len(name) for name in names) > 3
    turn = {"rotation": 45, "ha": "right", "rotation_mode": "anchor"} if long else {}
    axes.set_xticks(places, [names[p] for p in places], **turn)
    axes.set_yticks(places, [names[p] for p in places])
    axes.set_xlabel("predicted")
    axes.set_ylabel("true")
    correct = np.trace(counts) / max(counts.sum(), 1)
    axes.set_title(f"{title}  {correct:.1%} correct".strip(), loc="left", fontsize=10)
    if size <= _FEW:
        small = 9 if counts.max() < 1000 else 7
        for row in range(size):
            for column in range(size):
                dark = shares[row, column] > 0.5
                axes.text(
                    column,
                    row,
                    f"{counts[row, column]:,}",
                    ha="center",
                    va="center",
                    fontsize=small,
                    color="white" if dark else "black",
                    alpha=1.0 if counts[row, column] else 0.3,
                )
    return _as_written(figure)


@api_boundary
def plot_prediction_images(
    images: Any, y_true: Any, y_pred: Any, columns: int = 6, title: str = ""
) -> Any:
    """Draws images with what is true and what a model says: green if right, else red.

    Args:
        images: [samples, height, width] or with one or three channels last.
        y_true, y_pred: A text for each image; ``y_true`` may be None.
        columns: Images in a row.
        title: Stands above them.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ShapeError: The images are no batch, or not as many as texts.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> figure = plot_prediction_images(np.zeros((2, 8, 8)), ["a", "b"], ["a", "c"])
        >>> [axes.get_title() for axes in figure.axes]
        ['a', 'c (b)']
    """
    op = "plot_prediction_images"
    pixels = np.asarray(images)
    if pixels.ndim == 3:
        pixels = pixels[..., None]
    if pixels.ndim != 4 or pixels.shape[-1] not in (1, 3, 4) or not len(pixels):
        raise ShapeError(
            op,
            f"images are [samples, height, width, channels], received {pixels.shape}",
            hint="There are 1, 3 or 4 channels: choose some, images[..., :3].",
        )
    _check_texts(op, len(pixels), y_true, y_pred)
    columns = min(columns, len(pixels))
    rows = math.ceil(len(pixels) / columns)
    figure = new_figure(op, 1.5 * columns, 1.75 * rows + (0.3 if title else 0))
    if title:
        figure.suptitle(title, x=0.01, ha="left", fontsize=10)
    low, high = float(pixels.min()), float(pixels.max())
    shown = (pixels.astype(np.float64) - low) / ((high - low) or 1.0)
    for at, image in enumerate(shown):
        axes = figure.add_subplot(rows, columns, at + 1)
        gray = image.shape[-1] == 1
        axes.imshow(image[..., 0] if gray else image, cmap="gray" if gray else None)
        axes.set_xticks([])
        axes.set_yticks([])
        text, color = _verdict(y_true, y_pred, at)
        axes.set_title(_short(text, 22), fontsize=9, color=color)
        for edge in axes.spines.values():
            edge.set_color(color)
            edge.set_linewidth(1.5)
    return _as_written(figure)


@api_boundary
def plot_prediction_table(
    rows: Any,
    y_true: Any,
    y_pred: Any,
    names: Sequence[str] | None = None,
    title: str = "",
    judged: bool = True,
) -> Any:
    """Draws rows of a table, or texts, with what is true and what a model says.

    Args:
        rows: [samples, columns] of numbers or texts; or texts, one for each sample.
        y_true, y_pred: A text for each row; ``y_true`` may be None.
        names: Of the columns.
        title: Stands above them.
        judged: Whether what is right is green, and what is not red; numbers are not.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ShapeError: There are not as many texts as rows, or names as columns.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> texts = ["good film", "dull"]
        >>> figure = plot_prediction_table(texts, ["+", "-"], ["+", "+"])
        >>> cells = figure.axes[0].tables[0].get_celld()
        >>> cells[2, 0].get_text().get_text(), cells[2, 2].get_text().get_text()
        ('dull', '+')
    """
    op = "plot_prediction_table"
    cells = [[_cell(value) for value in np.atleast_1d(row)] for row in rows]
    _check_texts(op, len(cells), y_true, y_pred)
    width = max(len(row) for row in cells)
    if names is None:
        names = [str(number) for number in range(width)]
        if width == 1 and np.asarray(rows).dtype.kind in "USO":
            names = ["text"]
    if len(names) != width:
        raise ShapeError(op, f"there are {width} columns, and {len(names)} names")
    texts = width == 1
    if texts:
        cells = [["\n".join(textwrap.wrap(row[0], 70)[:4]) or " "] for row in cells]
    shown = [*names, *(["true"] if y_true is not None else []), "predicted"]
    body, colors = [], []
    for at, row in enumerate(cells):
        color = _verdict(y_true, y_pred, at)[1] if judged else "black"
        true = [] if y_true is None else [_short(y_true[at], 22)]
        body.append([*row, *true, _short(y_pred[at], 22)])
        colors.append(color)
    lines = [1 + max(cell.count("\n") for cell in row) for row in body]
    height = 0.28 * (sum(lines) + 1.4) + (0.3 if title else 0)
    spans = [
        max(len(line) for r in [shown, *body] for line in r[c].split("\n"))
        for c in range(len(shown))
    ]
    figure = new_figure(op, max(4.0, 0.085 * (sum(spans) + 2 * len(spans))), height)
    axes = figure.add_subplot()
    axes.axis("off")
    if title:
        axes.set_title(title, loc="left", fontsize=10)
    table = axes.table(
        cellText=body,
        colLabels=shown,
        cellLoc="left",
        colWidths=[span / sum(spans) for span in spans],
        bbox=[0, 0, 1, 1],
    )
    table.auto_set_font_size(False)
    table.set_fontsize(8)
    for (row, column), cell in table.get_celld().items():
        cell.set_linewidth(0.4)
        cell.set_height((1.4 if row == 0 else lines[row - 1]) / (sum(lines) + 1.4))
        if row == 0:
            cell.set_text_props(weight="bold")
        elif column == len(shown) - 1:
            cell.set_text_props(color=colors[row - 1], weight="bold")
    return _as_written(figure)


def _are_names(values: Any) -> bool:
    """Tells whether these are names of classes, as a list or by their numbers."""
    if isinstance(values, Mapping):
        return True
    listed = isinstance(values, list | tuple) and bool(values)
    return listed and all(isinstance(name, str) for name in values)


def label_names(
    op: str, labels: Sequence[str] | Mapping[int, str] | None, size: int
) -> list[str]:
    """A name for each class."""
    if labels is None:
        return [str(number) for number in range(size)]
    names = labels if isinstance(labels, Mapping) else dict(enumerate(labels))
    if missing := [number for number in range(size) if number not in names]:
        raise ArgumentError(
            op, f"there are {size} classes, and no label for {missing[0]}"
        )
    return [str(names[number]) for number in range(size)]


def _check_texts(op: str, count: int, y_true: Any, y_pred: Any) -> None:
    for name, texts in (("y_true", y_true), ("y_pred", y_pred)):
        if texts is not None and len(texts) != count:
            raise ShapeError(
                op, f"there are {count} samples, and {len(texts)} texts in {name}"
            )


def _verdict(y_true: Any, y_pred: Any, at: int) -> tuple[str, str]:
    """The text of a sample, and its colour."""
    if y_true is None:
        return str(y_pred[at]), "black"
    if str(y_true[at]) == str(y_pred[at]):
        return str(y_pred[at]), _RIGHT
    return f"{y_pred[at]} ({y_true[at]})", _WRONG


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return str(value)


def _short(text: Any, most: int) -> str:
    text = str(text)
    return text if len(text) <= most else text[: most - 1] + "…"


def _as_written(figure: Any) -> Any:
    """The figure, in whose texts a dollar begins no formula."""
    from matplotlib.text import Text

    for text in figure.findobj(Text):
        text.set_parse_math(False)
    return figure
