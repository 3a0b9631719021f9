"""What goes into networks for ImageNet, and what their 1,000 outputs are called."""

from __future__ import annotations

import json
import os
from typing import Any

import jax
import numpy as np

from exburn import config, ops
from exburn.applications.scaling import BLUE_GREEN_RED, DEVIATION, MEAN
from exburn.core.checks import check_choice, check_count
from exburn.errors import FileFormatError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.module.symbolic_tensor import Symbol
from exburn.utils.files import get_file

__all__ = ["decode_predictions", "preprocess_input"]

_MODES = ("caffe", "tf", "torch")
_FORMATS = ("channels_first", "channels_last")
_CLASSES = 1000
_INDEX = (
    "https://storage.googleapis.com/download.tensorflow.org/"
    "data/imagenet_class_index.json"
)
_INDEX_DIGEST = "c2c37ea517e94d9795004a39431a14cb"


@api_boundary
def preprocess_input(x: Any, data_format: str | None = None, mode: str = "caffe"):
    """Pixels from 0 to 255, brought to the range that a network was trained on.

    - ``"tf"``: x / 127.5 − 1
    - ``"torch"``: (x / 255 − mean) / deviation, of each channel in ImageNet
    - ``"caffe"``: red and blue change places, and each channel's mean goes to zero

    Args:
        x: RGB images, as an array or a symbol. It stays as it is.
        data_format: ``"channels_last"`` or ``"channels_first"``; by default
            ``exburn.config.image_data_format()``.
        mode: One of the three.

    Shape:
        x: [batch, height, width, 3] or [height, width, 3] → the same

    Raises:
        ArgumentError: The mode or the format is none of these.

    Example:
        >>> preprocess_input(np.full((1, 1, 3), 255, np.uint8), mode="tf").tolist()
        [[[1.0, 1.0, 1.0]]]

    Source: ``keras.applications.imagenet_utils.preprocess_input``.
    """
    op = "preprocess_input"
    check_choice(op, "mode", mode, _MODES)
    data_format = data_format or config.image_data_format()
    last = check_choice(op, "data_format", data_format, _FORMATS) == "channels_last"
    pixels: Any = x
    if not isinstance(x, jax.Array | Symbol):
        pixels = np.asarray(x)
        if not np.issubdtype(pixels.dtype, np.floating):
            pixels = pixels.astype(config.floatx())
    if mode == "tf":
        return pixels / 127.5 - 1.0

    def by_channel(values: tuple[float, ...]) -> np.ndarray:
        dtype = pixels.dtype if "float" in str(pixels.dtype) else config.floatx()
        return np.array(values, dtype).reshape(-1 if last else (-1, 1, 1))

    if mode == "torch":
        return (pixels / 255.0 - by_channel(MEAN)) / by_channel(DEVIATION)
    axis = -1 if last else -3
    flip = np.flip if isinstance(pixels, np.ndarray) else ops.flip
    return flip(pixels, axis=axis) - by_channel(BLUE_GREEN_RED)


@api_boundary
def decode_predictions(
    preds: Any, top: int = 5, *, class_index: Any = None
) -> list[list[tuple[str, str, Any]]]:
    """The likeliest classes of ImageNet for each image, the best first.

    The names are in a file of Keras', which is downloaded once.

    Args:
        preds: What a network for ImageNet predicted.
        top: How many classes are told of each image.
        class_index: That file, ``imagenet_class_index.json``, where it is there
            already: ``{"0": ["n01440764", "tench"], …}``.

    Shape:
        preds: [batch, 1000]

    Returns:
        For each image a list of (identifier in WordNet, name, score).

    Raises:
        ShapeError: ``preds`` has another shape.
        DataError: The file is not in the cache and cannot be downloaded.
        FileFormatError: It does not hold 1,000 classes.

    Example:
        >>> import pathlib, tempfile
        >>> names = {str(i): [f"n{i}", f"class {i}"] for i in range(1000)}
        >>> file = pathlib.Path(tempfile.mkdtemp(), "names.json")
        >>> _ = file.write_text(json.dumps(names))
        >>> [[(_, name, score)]] = decode_predictions(
        ...     np.eye(1000)[[7]], top=1, class_index=file
        ... )
        >>> name, float(score)
        ('class 7', 1.0)

    Source: ``keras.applications.imagenet_utils.decode_predictions``.
    """
    op = "decode_predictions"
    preds = np.asarray(preds)
    if preds.ndim != 2 or preds.shape[1] != _CLASSES:
        raise ShapeError(
            op,
            f"predictions must be [batch, {_CLASSES}], received {preds.shape}",
            hint="Only networks with all classes of ImageNet have these names.",
        )
    check_count(op, "top", top)
    names = _read_class_index(class_index)
    rankings = []
    for row in preds:
        best = row.argsort()[-top:][::-1]
        entries = [(*names[int(i)], row[i]) for i in best]
        rankings.append(sorted(entries, key=lambda entry: entry[2], reverse=True))
    return rankings


def _read_class_index(path: Any) -> list[tuple[str, str]]:
    if path is None:
        path = get_file(
            "imagenet_class_index.json",
            _INDEX,
            cache_subdir="models",
            file_hash=_INDEX_DIGEST,
        )
    try:
        with open(os.fspath(path), encoding="utf-8") as file:
            index = json.load(file)
        return [(str(a), str(b)) for a, b in (index[str(i)] for i in range(_CLASSES))]
    except (KeyError, TypeError, ValueError) as error:
        raise FileFormatError(
            "decode_predictions",
            f"the file must hold {_CLASSES} classes as "
            '{"0": ["n01440764", "tench"], …}',
            {"file": path, "cause": f"{type(error).__name__}: {error}"},
        ) from error
