"""Images and texts of your own, one folder a class, loaded into memory.

``exburn.utils.image_dataset_from_directory`` and its kin read them batch by batch, for
folders that do not fit.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from exburn.datasets.contract.generated import Split
from exburn.datasets.prepare import train_test
from exburn.errors import ArgumentError, DataError, require
from exburn.errors.boundary import api_boundary
from exburn.runtime.files.ordinary import check_folder, check_ordinary, read_whole

__all__ = ["image_folder", "text_folder"]

_MOST_TEXT = 1 << 30  # bytes of a text
_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp")
_MODES = {1: "L", 3: "RGB", 4: "RGBA"}

Folder = tuple[Any, Any, tuple[str, ...]]


@api_boundary
def image_folder(
    path: str | os.PathLike[str],
    *,
    image_size: tuple[int, int] = (256, 256),
    channels: int = 3,
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Folder:
    """The images below a folder: ``path/cat/1.png`` is of class ``cat``.

    Args:
        path: The folder.
        image_size: Height and width that they are resized to, bilinearly.
        channels: 1 (grey), 3 (RGB) or 4 (RGBA).
        test_split: Fraction of the images held out.
        seed: Of the split and the order.

    Returns:
        ``(x_train, y_train), (x_test, y_test), class_names``.

    Shape: ``x: [n, *image_size, channels]`` uint8, ``y: [n]`` int32; classes are
        numbered in alphabetical order.

    Raises:
        MissingDependencyError: Pillow is not installed.
        MissingFileError: There is no such folder.
        DataError: No image is in it, or a file is no image.
        ArgumentError: ``image_size``, ``channels`` or ``test_split`` can never work.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from exburn.utils import array_to_img
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for kind in ("cat", "dog"):
        ...     (folder / kind).mkdir()
        ...     array_to_img(np.zeros((8, 8, 3))).save(folder / kind / "1.png")
        >>> train, test, names = image_folder(folder, image_size=(4, 4), test_split=0.5)
        >>> train[0].shape, names
        ((1, 4, 4, 3), ('cat', 'dog'))
    """
    if channels not in _MODES:
        raise ArgumentError(
            "image_folder", f"channels must be 1, 3 or 4, received {channels!r}"
        )
    try:
        height, width = (operator.index(size) for size in image_size)
    except (TypeError, ValueError):
        height = width = 0
    if height < 1 or width < 1:
        raise ArgumentError(
            "image_folder",
            f"image_size must be (height, width) in pixels, received {image_size!r}",
        )
    reason = "reading images needs Pillow"
    pillow = require("PIL.Image", "image_folder", reason, package="pillow")

    def read(file: Path) -> np.ndarray:
        try:
            check_ordinary(file, "image_folder")
            with pillow.open(file) as image:
                image = image.convert(_MODES[channels])
                image = image.resize((width, height), pillow.Resampling.BILINEAR)
        except (
            OSError,
            SyntaxError,
            ValueError,
            pillow.DecompressionBombError,
        ) as error:
            raise DataError(
                "image_folder", f"{file} is no image", {"cause": error}
            ) from error
        array = np.asarray(image, np.uint8)
        return array[..., None] if channels == 1 else array

    return _load("image_folder", path, _IMAGES, read, np.stack, test_split, seed)


@api_boundary
def text_folder(
    path: str | os.PathLike[str],
    *,
    encoding: str = "utf-8",
    test_split: float = 0.2,
    seed: int | None = 0,
) -> Folder:
    """The texts below a folder: ``path/positive/1.txt`` is of class ``positive``.

    Args:
        path: The folder.
        encoding: Of the files.
        test_split: Fraction of the texts held out.
        seed: Of the split and the order.

    Returns:
        ``(x_train, y_train), (x_test, y_test), class_names``, with the texts as arrays
        of strings, for ``layers.TextVectorization``.

    Shape: ``x: [n]`` strings, ``y: [n]`` int32; classes are numbered in alphabetical
        order.

    Raises:
        MissingFileError: There is no such folder.
        DataError: No ``.txt`` file is in it, or one has another encoding.
        ArgumentError: ``test_split`` can never work.

    Example:
        >>> import tempfile
        >>> root = Path(tempfile.mkdtemp())
        >>> for name, text in ("good", "fine"), ("bad", "dull"):
        ...     (root / name).mkdir()
        ...     _ = (root / name / "1.txt").write_text(text)
        >>> (x, y), _, names = text_folder(root, test_split=0)
        >>> sorted(zip(x.tolist(), y.tolist())), names
        ([('dull', 0), ('fine', 1)], ('bad', 'good'))
    """

    def read(file: Path) -> str:
        try:
            return read_whole(file, "text_folder", _MOST_TEXT).decode(encoding)
        except (LookupError, OSError, UnicodeDecodeError) as error:
            raise DataError(
                "text_folder",
                f"{file} cannot be read as {encoding}",
                {"cause": error},
                hint="Pass its encoding, such as encoding='latin-1'.",
            ) from error

    def join(texts: list[str]) -> np.ndarray:
        # NumPy's strings would all take as much memory as the longest of them.
        return np.array(texts, object)

    return _load("text_folder", path, (".txt",), read, join, test_split, seed)


def _load(
    op: str,
    path: str | os.PathLike[str],
    suffixes: tuple[str, ...],
    read: Callable[[Path], Any],
    join: Callable[[list[Any]], np.ndarray],
    test_split: float,
    seed: int | None,
) -> Folder:
    root = check_folder(path, op)
    names = sorted(p.name for p in root.iterdir() if p.is_dir() and p.name[0] != ".")
    files, labels = [], []
    for number, name in enumerate(names):
        named = (p for p in (root / name).rglob("*") if p.suffix.lower() in suffixes)
        # Not what only has such a name; a link to nothing is told when it is read.
        paths = sorted(p for p in named if p.is_file() or not p.exists())
        files += paths
        labels += [number] * len(paths)
    if not files:
        raise DataError(
            op,
            f"the folder's folders hold no files {', '.join(suffixes)}",
            {"path": root, "classes": ", ".join(names) or "none"},
            hint="One folder for each class: path/cat/1.png, path/dog/1.png.",
        )
    data = join([read(file) for file in files])
    parts: Split = train_test(data, np.array(labels, np.int32), test_split, seed, op)
    return parts[0], parts[1], tuple(names)
