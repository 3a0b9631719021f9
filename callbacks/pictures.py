"""Pictures of what a model predicts, written while it trains."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from exburn.callbacks.contract import Callback
from exburn.callbacks.contract.every import Every, check_every
from exburn.core.checks import check_count
from exburn.errors import CallbackError, require
from exburn.visualization import predictions

Labels = Sequence[str] | Mapping[int, str]


class _Pictures(Callback):
    """Writes a picture at the end of the epochs, or after the steps, that are due."""

    stem = "picture"

    def __init__(
        self,
        x: Any,
        y: Any,
        folder: str | os.PathLike[str],
        every: int | str | Every | None,
    ):
        op = type(self).__name__
        require("matplotlib.figure", op, "drawing needs matplotlib", extra="plot")
        self.x, self.y = x, y
        _check_counts(op, x=x, y=y)
        self.folder = Path(folder)
        self.every = check_every(op, every, "epochs", "steps", "chunks", "seconds")
        if self.every is not None and self.every.unit != "epochs":
            self.on_train_batch_end = self._after_batch
            self.on_epoch_end = self._nothing
        self.last_path: Path | None = None
        self._epoch = 0

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        if not self.writes:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise CallbackError(
                type(self).__name__,
                "the folder of the pictures cannot be made",
                {"folder": self.folder, "cause": error},
                hint="Name a folder that may be written to.",
            ) from error

    def on_epoch_begin(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._epoch = epoch

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        self._write(f"epoch_{epoch + 1:04d}", f"Epoch {epoch + 1}")

    def _nothing(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        """Pictures of steps are written after these alone."""

    def _after_batch(self, batch: int, logs: dict[str, Any] | None = None) -> None:
        epoch, step = self._epoch + 1, batch + 1
        name = f"epoch_{epoch:04d}_step_{step:06d}"
        self._write(name, f"Epoch {epoch}, step {step}")

    def _write(self, name: str, title: str) -> None:
        outputs = self.model.predict(self.x, verbose=0)
        if isinstance(outputs, dict | list | tuple):
            raise CallbackError(
                type(self).__name__,
                "the model must have one output, whose predictions are drawn",
                {"outputs": len(outputs)},
            )
        if not self.writes:
            return
        figure = self._draw(np.asarray(outputs), title)
        path = self.folder / f"{self.stem}_{name}.png"
        beside = path.with_suffix(".part")
        figure.savefig(beside, format="png", dpi=110)
        os.replace(beside, path)
        self.last_path = path

    def _draw(self, outputs: np.ndarray, title: str) -> Any:
        raise NotImplementedError


class ConfusionMatrix(_Pictures):
    """Writes a confusion matrix of held-out data as a picture, epoch by epoch.

    Args:
        x: Inputs, as of ``predict``.
        y: Their classes: integers, or one-hot rows.
        folder: Where ``confusion_epoch_0001.png`` … are written; it is made if needed.
        labels: Names of the classes.
        every: When: a number of epochs, or an ``Every``, also of steps or seconds.

    Attributes:
        matrix: The last one, ``[classes, classes]``; rows are the true classes.
        last_path: The file written last.

    Raises:
        CallbackError: The model has several outputs, ``y`` are no classes or not as
            many as ``x``, or the folder cannot be made.
        ArgumentError: A class has no label.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> (x, y), (x_test, y_test) = exburn.datasets.iris.load_data()
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("adam", "cross_entropy")
        >>> matrix = ConfusionMatrix(x_test, y_test, tempfile.mkdtemp())
        >>> _ = model.fit(x, y, verbose=0, callbacks=[matrix])
        >>> matrix.last_path.name, int(matrix.matrix.sum()) == len(x_test)
        ('confusion_epoch_0001.png', True)
    """

    stem = "confusion"

    def __init__(
        self,
        x: Any,
        y: Any,
        folder: str | os.PathLike[str] = "pictures",
        labels: Labels | None = None,
        *,
        every: int | str | Every | None = None,
    ):
        super().__init__(x, y, folder, every)
        if not _are_classes(y):
            raise CallbackError(
                "ConfusionMatrix",
                "y must be classes: whole numbers from 0 on, or one-hot rows",
                {"y": np.asarray(y).reshape(-1)[:3].tolist()},
                hint="PredictionGallery draws numbers, too.",
            )
        self.labels = labels
        self.matrix: np.ndarray | None = None

    def _draw(self, outputs: np.ndarray, title: str) -> Any:
        classes = None if self.labels is None else len(self.labels)
        chosen = _chosen(outputs)
        self.matrix = predictions.confusion_matrix(self.y, chosen, classes)
        return predictions.plot_confusion_matrix(
            self.matrix, labels=self.labels, title=title
        )


class PredictionGallery(_Pictures):
    """Writes samples with their predictions as a picture, epoch by epoch.

    Images are drawn in a grid, texts and rows of a table in lines: in green where the
    prediction is right, else in red. Numbers are given with four digits.

    Args:
        x: Some inputs, as of ``predict``; those of the gallery.
        y: What is true of them; may be left out.
        folder: Where ``predictions_epoch_0001.png`` … are written.
        labels: Names of the classes; without them and with one output, a number is
            predicted.
        kind: ``"images"``, ``"text"``, ``"table"``, or ``"auto"``: by the shape.
        shown: What to draw in the place of the inputs, such as the texts of which they
            are the tokens, or images before they were scaled.
        names: Of the columns of a table.
        most: How many samples at most.
        every: When: a number of epochs, or an ``Every``, also of steps or seconds.

    Attributes:
        last_path: The file written last.

    Raises:
        CallbackError: The kind is none of these, the model has several outputs, what
            is shown is no array or not as much as ``x`` and ``y``, or the folder cannot
            be made.
        MissingDependencyError: matplotlib is not installed.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> (x, y), (x_test, y_test) = exburn.datasets.iris.load_data()
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("adam", "cross_entropy")
        >>> names = ["setosa", "versicolor", "virginica"]
        >>> gallery = PredictionGallery(x_test, y_test, tempfile.mkdtemp(), names)
        >>> _ = model.fit(x, y, epochs=2, verbose=0, callbacks=[gallery])
        >>> gallery.last_path.name
        'predictions_epoch_0002.png'
    """

    stem = "predictions"

    def __init__(
        self,
        x: Any,
        y: Any = None,
        folder: str | os.PathLike[str] = "pictures",
        labels: Labels | None = None,
        *,
        kind: str = "auto",
        shown: Any = None,
        names: Sequence[str] | None = None,
        most: int = 24,
        every: int | str | Every | None = None,
    ):
        if kind not in ("auto", "images", "text", "table"):
            raise CallbackError(
                "PredictionGallery",
                f"kind is 'images', 'text', 'table' or 'auto', received {kind!r}",
            )
        most = check_count("PredictionGallery", "most", most, error=CallbackError)
        cut = None if y is None else np.asarray(y)[:most]
        super().__init__(_rows(x, most), cut, folder, every)
        shown = self.x if shown is None else _rows(shown, most)
        if _are_several(shown):
            raise CallbackError(
                "PredictionGallery",
                "what is drawn must be one array",
                {"received": f"a {type(shown).__name__} of several"},
                hint="Pass shown=, an image, a text or a row for each sample.",
            )
        _check_counts("PredictionGallery", x=self.x, y=self.y, shown=shown)
        self.labels, self.names = labels, names
        if names is None and hasattr(shown, "columns"):
            self.names = [str(name) for name in shown.columns]
        self.shown = np.asarray(shown)
        self.kind = _kind_of(self.shown) if kind == "auto" else kind
        channels = self.shown.shape[3:]
        if self.kind == "images" and channels not in ((), (1,), (3,), (4,)):
            raise CallbackError(
                "PredictionGallery",
                "images are [samples, height, width, channels], of 1, 3 or 4 channels",
                {"received": self.shown.shape},
                hint="Pass what is to be drawn: shown=x[..., :3].",
            )

    def _draw(self, outputs: np.ndarray, title: str) -> Any:
        predicted, true = self._texts(outputs), None
        if self.y is not None:
            true = self._texts(self.y)
        arrays = self.shown, true, predicted
        if self.kind == "images":
            return predictions.plot_prediction_images(*arrays, title=title)
        judged = self.labels is not None or outputs.size > len(outputs)
        return predictions.plot_prediction_table(*arrays, self.names, title, judged)

    def _texts(self, values: Any) -> list[str]:
        """Names of classes; numbers, where there are none."""
        values = np.asarray(values)
        whole = values.dtype.kind in "iu"
        if values.ndim > 1 and values.shape[-1] > 1:
            classes = values.argmax(-1)
        elif self.labels is not None or whole:
            classes = values.reshape(-1) if whole else _chosen(values)
        else:
            return [f"{value:.4g}" for value in values.reshape(-1)]
        if self.labels is None:
            return [str(int(number)) for number in classes]
        labels = self.labels
        names = labels if isinstance(labels, Mapping) else dict(enumerate(labels))
        return [str(names.get(int(number), int(number))) for number in classes]


def _are_several(values: Any) -> bool:
    """Tells arrays of several inputs from one array, or a list of texts."""
    if isinstance(values, Mapping):
        return True
    return isinstance(values, tuple | list) and bool(values) and np.ndim(values[0]) > 0


def _check_counts(op: str, **parts: Any) -> None:
    """Refuses what has no sample, or has not as many as the first part."""
    counts: dict[str, int] = {}
    for name, values in parts.items():
        if isinstance(values, Mapping):
            values = next(iter(values.values()), [])
        elif _are_several(values) and name == "x":
            values = values[0]
        if values is not None and hasattr(values, "__len__"):
            shape = getattr(values, "shape", None)
            counts[name] = int(shape[0]) if shape else len(values)
    # How many samples a loader has, nobody knows.
    totals = {
        name: n for name, n in counts.items() if name != "x" or _is_data(parts["x"])
    }
    if len(set(totals.values())) > 1 or 0 in totals.values():
        raise CallbackError(
            op,
            "samples are needed, as many of each part",
            {name: f"{count} samples" for name, count in totals.items()},
            hint="The first axis counts the samples in every array.",
        )


def _is_data(x: Any) -> bool:
    return hasattr(x, "shape") or isinstance(x, Mapping | tuple | list)


def _are_classes(y: Any) -> bool:
    """Tells class numbers and one-hot rows from other numbers."""
    values = np.asarray(y)
    if values.dtype.kind not in "biuf":
        return False
    if values.ndim > 1 and values.shape[-1] > 1:
        return True
    return bool(((values >= 0) & (values == np.floor(values))).all())


def _chosen(outputs: np.ndarray) -> np.ndarray:
    """Classes of outputs; of one number for each sample, a logit or a probability."""
    if outputs.ndim > 1 and outputs.shape[-1] > 1:
        return outputs.argmax(-1)
    flat = outputs.reshape(-1)
    shares = ((flat >= 0) & (flat <= 1)).all()
    return (flat > (0.5 if shares else 0.0)).astype(np.int64)


def _rows(values: Any, most: int) -> Any:
    if isinstance(values, dict):
        return {name: value[:most] for name, value in values.items()}
    if _are_several(values):
        return type(values)(value[:most] for value in values)
    return values[:most]


def _kind_of(values: Any) -> str:
    array = np.asarray(values)
    if array.dtype.kind in "US" or (array.dtype.kind == "O" and array.ndim == 1):
        return "text"
    return "images" if array.ndim >= 3 else "table"
