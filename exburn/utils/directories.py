"""Data sets of files: one folder a class."""

from __future__ import annotations

import os
import wave
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import numpy as np

from exburn.config import check_format, floatx
from exburn.core.printing import print_text
from exburn.errors import ArgumentError, DataError, FileFormatError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.runtime.files.ordinary import check_folder, check_ordinary
from exburn.utils.images import img_to_array, in_8_bits, open_image, resize
from exburn.utils.regrouping import stack
from exburn.utils.stream import ElementForm, Stream, fresh_seed

__all__ = [
    "audio_dataset_from_directory",
    "image_dataset_from_directory",
    "text_dataset_from_directory",
]

_IMAGES = (".bmp", ".gif", ".jpeg", ".jpg", ".png")


@api_boundary
def image_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: list[str] | None = None,
    color_mode: str = "rgb",
    batch_size: int | None = 32,
    image_size: tuple[int, int] = (256, 256),
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    interpolation: str = "bilinear",
    follow_links: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    data_format: str | None = None,
    format: str = "numpy",
    verbose: bool = True,
) -> Any:
    """Batches of the images in a folder.

    Args:
        directory: The folder; ``directory/cat/1.png`` is of class ``cat``.
        labels: ``"inferred"`` from the folders, ``None``, or an integer a file in the
            alphabetical order of their paths.
        label_mode: ``"int"``, ``"categorical"`` (one-hot), ``"binary"`` or ``None``.
        class_names: The folders to use, in the order of their numbers.
        color_mode: ``"rgb"``, ``"rgba"`` or ``"grayscale"``.
        batch_size: Images in a batch; ``None`` for single images.
        image_size: Height and width that they are resized to.
        shuffle: Whether every epoch has its own random order.
        seed: Of the order and the split.
        validation_split: Fraction of the files that is for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        interpolation: How they are resized, see :func:`load_img`.
        follow_links: Whether links to folders are followed.
        crop_to_aspect_ratio: Cuts out the middle instead of distorting.
        pad_to_aspect_ratio: Adds black borders instead of distorting.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        format: ``"grain"`` if the stream's ``map`` and ``filter`` hand on each batch as
            it is, ``f((x, y))``; else they call ``f(x, y)``, as with ``tf.data``.
        verbose: Whether to print what was found.

    Returns:
        A :class:`Stream` with ``class_names`` and ``file_paths``, or two of them.

    Shape:
        x: [batch, *image_size, channels], floats from 0 to 255; of 16-bit images the
        upper eight bits

    Raises:
        ArgumentError: Arguments that exclude each other, or are out of range.
        MissingFileError: There is no such folder.
        DataError: No image is in it.
        MissingDependencyError: Pillow is not installed.

    Example:
        >>> import pathlib, tempfile
        >>> import numpy as np
        >>> from exburn.utils import array_to_img
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for kind in ("cat", "dog"):
        ...     (folder / kind).mkdir()
        ...     array_to_img(np.zeros((8, 8, 3))).save(folder / kind / "1.png")
        >>> options = {"image_size": (4, 4), "verbose": False}
        >>> images = image_dataset_from_directory(folder, **options)
        >>> [x.shape for x, y in images], images.class_names
        ([(2, 4, 4, 3)], ['cat', 'dog'])
    """
    op = "image_dataset_from_directory"
    data_format = check_format(op, data_format)
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ArgumentError(op, "an image is either cropped or padded, not both")

    def read(path: str) -> np.ndarray:
        image = resize(
            in_8_bits(open_image(path, color_mode), path, color_mode),
            image_size,
            interpolation,
            crop=crop_to_aspect_ratio,
            pad=pad_to_aspect_ratio,
        )
        return img_to_array(image, data_format, floatx())

    return _dataset(
        op, read, _IMAGES, directory, labels, label_mode, class_names, batch_size,
        shuffle, seed, validation_split, subset, follow_links, verbose, format=format,
        form=_form_of_images(image_size, color_mode, data_format),
    )  # fmt: skip


@api_boundary
def text_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: list[str] | None = None,
    batch_size: int | None = 32,
    max_length: int | None = None,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "numpy",
    verbose: bool = True,
) -> Any:
    """Batches of the texts (``.txt``) in a folder, as arrays of strings.

    Args:
        directory: The folder; ``directory/positive/1.txt`` is of class ``positive``.
        labels: ``"inferred"`` from the folders, ``None``, or an integer a file in the
            alphabetical order of their paths.
        label_mode: ``"int"``, ``"categorical"`` (one-hot), ``"binary"`` or ``None``.
        class_names: The folders to use, in the order of their numbers.
        batch_size: Files in a batch; ``None`` for single ones.
        max_length: Characters after which a text is cut off.
        shuffle: Whether every epoch has its own random order.
        seed: Of the order and the split.
        validation_split: Fraction of the files that is for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        follow_links: Whether links to folders are followed.
        format: ``"grain"`` if ``map`` and ``filter`` hand on each batch as it is,
            ``f((x, y))``; else they call ``f(x, y)``.
        verbose: Whether to print what was found.

    Returns:
        A :class:`Stream` with ``class_names`` and ``file_paths``, or two of them. A
        ``TextVectorization`` layer turns it into numbers: ``texts.map(…)``.

    Raises:
        ArgumentError: Arguments that exclude each other, or are out of range.
        MissingFileError: There is no such folder.
        DataError: No text is in it.

    Example:
        >>> import pathlib, tempfile
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for kind in ("bad", "good"):
        ...     (folder / kind).mkdir()
        ...     _ = (folder / kind / "1.txt").write_text(f"a {kind} film")
        >>> texts = text_dataset_from_directory(folder, shuffle=False, verbose=False)
        >>> [(x.tolist(), y.tolist()) for x, y in texts]
        [(['a bad film', 'a good film'], [0, 1])]
    """

    def read(path: str) -> np.ndarray:
        check_ordinary(path, "text_dataset_from_directory")
        with open(path, encoding="utf-8") as file:
            return np.array(file.read(max_length), dtype=object)

    return _dataset(
        "text_dataset_from_directory", read, (".txt",), directory, labels, label_mode,
        class_names, batch_size, shuffle, seed, validation_split, subset, follow_links,
        verbose, format=format, form=ElementForm((), object),
    )  # fmt: skip


@api_boundary
def audio_dataset_from_directory(
    directory: Any,
    labels: Any = "inferred",
    label_mode: str | None = "int",
    class_names: list[str] | None = None,
    batch_size: int | None = 32,
    sampling_rate: int | None = None,
    output_sequence_length: int | None = None,
    ragged: bool = False,
    shuffle: bool = True,
    seed: int | None = None,
    validation_split: float | None = None,
    subset: str | None = None,
    follow_links: bool = False,
    format: str = "numpy",
    verbose: bool = True,
) -> Any:
    """Batches of the recordings (``.wav``) in a folder.

    Args:
        directory: The folder; ``directory/yes/1.wav`` is of class ``yes``.
        labels: ``"inferred"`` from the folders, ``None``, or an integer a file in the
            alphabetical order of their paths.
        label_mode: ``"int"``, ``"categorical"`` (one-hot), ``"binary"`` or ``None``.
        class_names: The folders to use, in the order of their numbers.
        batch_size: Files in a batch; ``None`` for single ones.
        sampling_rate: Samples a second that the files must have, if given.
        output_sequence_length: Samples that each is cut or padded to; without it the
            longest of a batch decides.
        ragged: Must be false.
        shuffle: Whether every epoch has its own random order.
        seed: Of the order and the split.
        validation_split: Fraction of the files that is for validation.
        subset: ``"training"``, ``"validation"`` or ``"both"``.
        follow_links: Whether links to folders are followed.
        format: ``"grain"`` if the stream's ``map`` and ``filter`` hand on each batch as
            it is, ``f((x, y))``; else they call ``f(x, y)``, as with ``tf.data``.
        verbose: Whether to print what was found.

    Returns:
        A :class:`Stream` with ``class_names`` and ``file_paths``, or two of them.

    Shape:
        x: [batch, samples, channels], floats from -1 to 1

    Raises:
        ArgumentError: Arguments that exclude each other, or are out of range.
        MissingFileError: There is no such folder.
        DataError: No recording is in it.
        FileFormatError: A file is no WAV of whole numbers, or has another rate.

    Example:
        >>> import pathlib, tempfile, wave
        >>> folder = pathlib.Path(tempfile.mkdtemp())
        >>> for kind in ("no", "yes"):
        ...     (folder / kind).mkdir()
        ...     with wave.open(str(folder / kind / "1.wav"), "wb") as file:
        ...         file.setparams((1, 2, 16000, 0, "NONE", ""))
        ...         file.writeframes(bytes(320))
        >>> sounds = audio_dataset_from_directory(folder, verbose=False)
        >>> [x.shape for x, y in sounds]
        [(2, 160, 1)]
    """
    op = "audio_dataset_from_directory"
    if ragged:
        raise ArgumentError(op, "ExBurn has no ragged arrays: shorter ones are padded")

    def read(path: str) -> np.ndarray:
        x = _wave(op, path, sampling_rate)
        return x if output_sequence_length is None else _fit(x, output_sequence_length)

    def join(rows: list[Any]) -> Any:
        sounds = [row[0] if isinstance(row, tuple) else row for row in rows]
        length = max(map(len, sounds))
        sounds = [_fit(sound, length) for sound in sounds]
        if not isinstance(rows[0], tuple):
            return stack(sounds)
        return stack(sounds), stack([row[1] for row in rows])

    return _dataset(
        op, read, (".wav",), directory, labels, label_mode, class_names, batch_size,
        shuffle, seed, validation_split, subset, follow_links, verbose, join,
        format=format, form=ElementForm((output_sequence_length, None), np.float32),
    )  # fmt: skip


def _form_of_images(
    size: tuple[int, int], color_mode: str, data_format: str
) -> ElementForm:
    channels = {"grayscale": 1, "rgb": 3, "rgba": 4}.get(color_mode)
    first = data_format == "channels_first"
    shape = (channels, *size) if first else (*size, channels)
    return ElementForm(shape, np.dtype(floatx()))


def _fit(x: np.ndarray, length: int) -> np.ndarray:
    x = x[:length]
    return np.pad(x, ((0, length - len(x)), (0, 0)))


def _wave(op: str, path: str, rate: int | None) -> np.ndarray:
    """The samples of a WAV file, ``[time, channels]`` from -1 to 1."""
    check_ordinary(path, op)
    try:
        with wave.open(path, "rb") as file:
            width, channels = file.getsampwidth(), file.getnchannels()
            file_rate, raw = file.getframerate(), file.readframes(file.getnframes())
    except (wave.Error, EOFError) as error:
        raise FileFormatError(
            op, "not a WAV file of whole numbers", {"file": path, "cause": error}
        ) from error
    if rate is not None and rate != file_rate:
        raise FileFormatError(
            op,
            f"a rate of {rate} is asked for, the file has {file_rate}",
            {"file": path},
            hint="Resample the files first.",
        )
    octets = np.frombuffer(raw, np.uint8).reshape(-1, width)
    if width == 1:  # without a sign
        numbers = octets[:, 0].astype(np.int64) - 128
    else:
        wide = np.zeros((len(octets), 4), np.uint8)
        wide[:, 4 - width :] = octets
        numbers = wide.view("<i4")[:, 0].astype(np.int64) >> (8 * (4 - width))
    scale = 2.0 ** (8 * width - 1)
    return (numbers / scale).astype(np.float32).reshape(-1, channels)


# --- what they share --------------------------------------------------------------


def _dataset(
    op: str,
    read: Callable[[str], np.ndarray],
    suffixes: tuple[str, ...],
    directory: Any,
    labels: Any,
    label_mode: str | None,
    class_names: list[str] | None,
    batch_size: int | None,
    shuffle: bool,
    seed: int | None,
    validation_split: float | None,
    subset: str | None,
    follow_links: bool,
    verbose: bool,
    join: Callable = stack,
    format: str = "numpy",
    *,
    form: ElementForm,
) -> Any:
    _check(op, labels, label_mode, class_names, validation_split, subset, shuffle, seed)
    seed = fresh_seed() if seed is None else seed
    paths, numbers, names = _index(
        op, directory, labels, class_names, suffixes, follow_links
    )
    if verbose:
        of = "" if names is None else f" belonging to {len(names)} classes"
        print_text(f"Found {len(paths)} files{of}.")
    if shuffle:  # the same split as Keras' for the same seed
        order = np.arange(len(paths))
        np.random.RandomState(seed).shuffle(order)
        paths = [paths[i] for i in order]
        numbers = None if numbers is None else numbers[order]
    if label_mode is None:
        numbers = None
    elif label_mode == "binary" and numbers is not None and len(names or ()) != 2:
        raise ArgumentError(
            op, f"label_mode='binary' needs 2 classes, found {len(names or ())}"
        )
    targets = _targets(numbers, label_mode, len(names or ()))

    def make(part: slice, kind: str = "") -> Stream:
        chosen = paths[part]
        if kind and verbose:
            print_text(f"Using {len(chosen)} files for {kind}.")
        own = None if targets is None else targets[part]
        return _stream(
            op, read, chosen, own, batch_size, shuffle, seed, names, join, format, form
        )

    if not validation_split:
        return make(slice(None))
    validation = int(validation_split * len(paths))
    if not validation:
        raise ArgumentError(
            op, f"validation_split={validation_split} of {len(paths)} files is none"
        )
    parts = {
        "training": slice(None, -validation),
        "validation": slice(-validation, None),
    }
    if subset == "both":
        return tuple(make(part, kind) for kind, part in parts.items())
    assert subset is not None
    return make(parts[subset], subset)


def _stream(
    op, read, paths, targets, batch_size, shuffle, seed, names, join, format, form
) -> Stream:
    def make(epoch: int) -> Iterator:
        order = np.arange(len(paths))
        if shuffle:
            order = np.random.default_rng((seed, epoch)).permutation(order)
        with ThreadPoolExecutor(min(8, os.cpu_count() or 1)) as pool:
            size = batch_size or 1
            for at in range(0, len(order), size):
                rows = order[at : at + size]
                elements = list(pool.map(lambda i: read(paths[i]), rows))
                if targets is not None:
                    elements = [
                        (x, targets[i]) for x, i in zip(elements, rows, strict=True)
                    ]
                if batch_size is None:
                    yield elements[0]
                else:
                    yield join(elements)

    if targets is not None:
        form = form, ElementForm(targets.shape[1:], targets.dtype)
    return Stream(
        make,
        -(-len(paths) // (batch_size or 1)),
        batch_size=batch_size,
        name=op.removesuffix("_from_directory").replace("_", " "),
        class_names=names,
        file_paths=list(paths),
        format=format,
        form=form if batch_size is None else jax.tree.map(ElementForm.batch, form),
    )


def _check(
    op, labels, label_mode, class_names, validation_split, subset, shuffle, seed
) -> None:
    modes = ("int", "categorical", "binary", None)
    if label_mode not in modes:
        raise unknown_name("label_mode", label_mode, map(str, modes), op=op)
    if isinstance(labels, str) and labels != "inferred":
        raise ArgumentError(op, f"labels is 'inferred', None or a list, not {labels!r}")
    if labels != "inferred" and class_names is not None:
        raise ArgumentError(op, "class_names needs labels='inferred'")
    if validation_split is not None and not 0 < validation_split < 1:
        raise ArgumentError(
            op, f"validation_split is between 0 and 1, received {validation_split}"
        )
    if (validation_split is None) != (subset is None):
        raise ArgumentError(op, "validation_split and subset are given together")
    if subset not in ("training", "validation", "both", None):
        raise unknown_name("subset", subset, ["training", "validation", "both"], op=op)
    if validation_split and shuffle and seed is None:
        raise ArgumentError(
            op,
            "a split of shuffled files needs a seed, or the parts would overlap",
            hint="Pass seed=0 to both calls, or shuffle=False.",
        )


def _index(op, directory, labels, class_names, suffixes, follow_links):
    """Paths in alphabetical order, their classes' numbers, and the classes' names."""
    directory = str(check_folder(directory, op))
    inferred = isinstance(labels, str)
    folders = [""]
    if inferred:
        folders = sorted(
            entry.name
            for entry in os.scandir(directory)
            if entry.is_dir() and not entry.name.startswith(".")
        )
        if class_names is not None:
            if not set(class_names) <= set(folders):
                raise ArgumentError(
                    op,
                    "class_names must be names of folders",
                    {"class_names": class_names, "folders": folders},
                )
            folders = list(class_names)
    paths, numbers = [], []
    for number, folder in enumerate(folders):
        files = _files(os.path.join(directory, folder), suffixes, follow_links)
        paths += files
        numbers += [number] * len(files)
    if not paths:
        raise DataError(
            op,
            f"the folder holds no files {', '.join(suffixes)}",
            {"directory": directory, "classes": folders if inferred else "not used"},
        )
    if inferred:
        return paths, np.array(numbers, np.int32), folders
    if labels is None:
        return paths, None, None
    if len(labels) != len(paths):
        raise DataError(op, f"{len(labels)} labels for {len(paths)} files")
    return paths, np.asarray(labels), [str(v) for v in sorted(set(labels))]


def _files(folder: str, suffixes: tuple[str, ...], follow_links: bool) -> list[str]:
    walk = sorted(os.walk(folder, followlinks=follow_links))
    return [
        os.path.join(root, name)
        for root, _, names in walk
        for name in sorted(names)
        if name.lower().endswith(suffixes)
    ]


def _targets(numbers, label_mode: str | None, classes: int):
    if numbers is None:
        return None
    if label_mode == "categorical":
        return np.eye(classes, dtype=np.float32)[numbers]
    if label_mode == "binary":
        return numbers.astype(np.float32)[:, None]
    return numbers.astype(np.int32)
