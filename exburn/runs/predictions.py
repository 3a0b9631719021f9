"""A classifier's predictions at the end of a run: a confusion matrix, and examples."""

from __future__ import annotations

import base64
import dataclasses
import itertools
import math
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from exburn.callbacks.contract import Callback
from exburn.data import ArrayDataset, StreamDataset
from exburn.errors import ExBurnError, warn
from exburn.runs.directory import PREDICTIONS, RunDirectory
from exburn.runs.json_lines import plain
from exburn.visualization.predictions import confusion_matrix

_MOST_ROWS = 1000
_SECONDS, _SHARE = 2.0, 0.02  # at most, or a share of the training's own time
_MOST_CLASSES = 20  # of a matrix; of more classes the likeliest errors are listed
_MOST_LISTED = 15
_WRONG, _RIGHT = 8, 4  # examples
_PIXELS = 96  # of a picture's longer side
_MOST_TEXT, _MOST_VALUES = 300, 8


@dataclasses.dataclass(frozen=True)
class Classifier:
    """The way in which outputs tell a class.

    Attributes:
        binary: Whether one number tells it; else the largest of a row.
        logits: Whether outputs are no probabilities yet.
    """

    binary: bool
    logits: bool

    def probabilities(self, outputs: np.ndarray) -> np.ndarray:
        """[rows, classes] of what a model returns."""
        values = np.asarray(outputs, np.float64)
        if self.binary:
            one = values.reshape(-1)
            one = 1 / (1 + np.exp(-np.clip(one, -500, 500))) if self.logits else one
            return np.stack([1 - one, one], axis=1)
        if self.logits:
            values = np.exp(values - values.max(-1, keepdims=True))
            values /= values.sum(-1, keepdims=True)
        return values


class RunPredictions(Callback):
    """Predicts for some rows when the training ends, and keeps which were right.

    Args:
        rows: The data that it was validated on, or else trained on, as they were given.
        part: What these are: ``"validation"`` or ``"training"``.
        classifier: Tells how the outputs of the model, which is built by then, tell a
            class; ``None`` if they do not.
    """

    light = True

    def __init__(
        self,
        directory: RunDirectory,
        rows: ArrayDataset | StreamDataset,
        part: str,
        classifier: Callable[[], Classifier | None],
    ):
        self.directory, self.rows, self.part = directory, rows, part
        self.classifier = classifier
        self._began = time.perf_counter()

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        self._began = time.perf_counter()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        try:
            classifier = self.classifier()
        except ExBurnError:  # outputs of which nothing is known are no classes
            return
        if classifier is None:
            return
        room = max(_SECONDS, _SHARE * (time.perf_counter() - self._began))
        batch_size = (self.params or {}).get("batch_size") or 32
        try:
            parts = _batches(self.rows, batch_size)
            predictions = predictions_of(self.model, parts, classifier, room)
            if predictions is not None:
                names = getattr(self.rows, "class_names", None)
                predictions |= {"part": self.part, "names": names}
                self.directory.keep(PREDICTIONS, plain(predictions))
        except Exception as error:  # whoever watches a training does not end it
            text = f"the predictions of the run are not recorded: {error}"
            warn(text, RuntimeWarning)


def _batches(rows: ArrayDataset | StreamDataset, size: int) -> Iterator[tuple]:
    """Inputs and targets; of many rows some that are spread over all."""
    if isinstance(rows, StreamDataset):
        yield from rows.iterate(epoch=0)
        return
    count = min(rows.size, _MOST_ROWS)
    places = np.linspace(0, rows.size - 1, count).round().astype(int)
    for start in range(0, count, size):
        yield rows.take(places[start : start + size])


def predictions_of(
    model: Any, batches: Iterator[tuple], classifier: Classifier, seconds: float
) -> dict[str, Any] | None:
    """Predictions of a classifier; ``None`` if the targets are no classes.

    Args:
        seconds: When to stop, though there are further batches.
    """
    end = time.perf_counter() + seconds
    inputs, labels, shares = [], [], []
    for batch in batches:
        x, y = batch[:2]
        outputs = model.predict(x, batch_size=len(jax.tree.leaves(x)[0]), verbose=0)
        share = classifier.probabilities(outputs)
        label = _labels(y, share.shape)
        if label is None:
            return None
        inputs.append(x)
        labels.append(label)
        shares.append(share)
        if time.perf_counter() > end or sum(map(len, labels)) >= _MOST_ROWS:
            break
    if not labels:
        return None
    true, share = np.concatenate(labels), np.concatenate(shares)
    predicted = share.argmax(-1)
    chosen = _choose(true, predicted, share)
    return {
        "rows": len(true),
        "classes": share.shape[1],
        "correct": float((true == predicted).mean()),
        **_counts(true, predicted, share.shape[1]),
        "examples": [
            {
                "true": int(true[row]),
                "predicted": int(predicted[row]),
                "probability": float(share[row, predicted[row]]),
                **shown,
            }
            for row, shown in zip(chosen, _views(inputs, chosen), strict=True)
        ],
    }


def _labels(y: Any, shape: tuple[int, ...]) -> np.ndarray | None:
    """The classes that targets name, if they name any."""
    if not isinstance(y, np.ndarray) or len(shape) != 2:
        return None
    if y.ndim == 2 and y.shape == shape and shape[1] > 1 and (y.sum(-1) == 1).all():
        return y.argmax(-1) if ((y == 0) | (y == 1)).all() else None
    flat = y.reshape(-1)
    if flat.shape != shape[:1] or flat.dtype.kind not in "biuf":
        return None
    whole = flat.astype(np.int64)
    fits = (whole == flat).all() and (whole >= 0).all() and (whole < shape[1]).all()
    return whole if fits else None


def _counts(true: np.ndarray, predicted: np.ndarray, classes: int) -> dict[str, Any]:
    """The matrix of few classes; of many the errors that occur most."""
    if classes <= _MOST_CLASSES:
        return {"matrix": confusion_matrix(true, predicted, classes).tolist()}
    wrong = true != predicted
    pairs = np.stack([true[wrong], predicted[wrong]], axis=1)
    distinct, counts = np.unique(pairs, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_MOST_LISTED]
    return {"errors": [[*distinct[i].tolist(), int(counts[i])] for i in order]}


def _choose(true: np.ndarray, predicted: np.ndarray, share: np.ndarray) -> list[int]:
    """Rows to show: errors that the model is sure of, and some that are right."""
    sure = share.max(-1)
    wrong = np.flatnonzero(true != predicted)
    wrong = wrong[np.argsort(-sure[wrong], kind="stable")][:_WRONG]
    right = np.flatnonzero(true == predicted)
    places = np.linspace(0, len(right) - 1, min(_RIGHT, len(right))).round()
    return [int(row) for row in (*wrong, *right[places.astype(int)])]


def _views(inputs: Sequence[Any], rows: Sequence[int]) -> list[dict[str, Any]]:
    """Views of some rows: a picture, a text, or a few values."""
    first = inputs[0]
    if isinstance(first, Mapping):
        columns = {str(n): _column([x[n] for x in inputs]) for n in first}
        return [_values({n: c[row] for n, c in columns.items()}) for row in rows]
    if not isinstance(first, np.ndarray):
        return [{} for _ in rows]
    array = np.concatenate(list(inputs))
    if array.dtype.kind in "OSU":
        texts = ["".join(map(str, np.ravel(array[row])))[:_MOST_TEXT] for row in rows]
        return [{"text": text} for text in texts]
    small = array.ndim == 3 and min(array.shape[1:]) >= 8
    if small or array.ndim == 4 and array.shape[-1] in (1, 3, 4):
        low, high = float(array.min()), float(array.max())
        return [{"picture": picture(array[row], low, high)} for row in rows]
    flat = array.reshape(len(array), -1)
    few = [flat[row][:_MOST_VALUES].tolist() for row in rows]
    return [{"values": row, "more": flat.shape[1] - len(row)} for row in few]


def _column(parts: Sequence[Any]) -> np.ndarray:
    return np.concatenate([np.asarray(part).reshape(len(part), -1) for part in parts])


def _values(values: Mapping[str, Any]) -> dict[str, Any]:
    few = itertools.islice(values.items(), _MOST_VALUES)
    columns = {name: np.ravel(value)[:_MOST_VALUES].tolist() for name, value in few}
    single = {n: v[0] if len(v) == 1 else v for n, v in columns.items()}
    return {"values": single, "more": max(len(values) - _MOST_VALUES, 0)}


def picture(pixels: np.ndarray, low: float, high: float) -> str:
    """A small picture as PNG in base64; ``low`` is black and ``high`` white.

    Example:
        >>> base64.b64decode(picture(np.eye(8), 0, 1))[1:4]
        b'PNG'
    """
    pixels = pixels[..., None] if pixels.ndim == 2 else pixels
    step = math.ceil(max(pixels.shape[:2]) / _PIXELS)
    values = (pixels[::step, ::step].astype(np.float64) - low) / ((high - low) or 1.0)
    data = np.ascontiguousarray(np.nan_to_num(values * 255).clip(0, 255), np.uint8)
    height, width, channels = data.shape
    kind = {1: 0, 3: 2, 4: 6}[channels]
    head = struct.pack(">IIBBBBB", width, height, 8, kind, 0, 0, 0)
    lines = b"".join(b"\0" + data[row].tobytes() for row in range(height))
    parts = ((b"IHDR", head), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    chunks = []
    for name, body in parts:
        size, check = len(body), zlib.crc32(name + body)
        chunks.append(struct.pack(">I", size) + name + body + struct.pack(">I", check))
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"".join(chunks)).decode()
