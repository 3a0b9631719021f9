"""Images between files, Pillow and arrays."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import numpy as np

from exburn.config import check_format, floatx
from exburn.errors import FileFormatError, ShapeError, require, unknown_name, warn
from exburn.errors.boundary import api_boundary
from exburn.runtime.files.atomic import write_atomically
from exburn.runtime.files.ordinary import check_ordinary

_MODES = {"grayscale": "L", "rgb": "RGB", "rgba": "RGBA"}
_DEEP = ("I;16", "I;16B", "I;16L", "I;16N", "I", "F")  # greys of more than 8 bits
_FILTERS = {
    "nearest": "NEAREST",
    "bilinear": "BILINEAR",
    "bicubic": "BICUBIC",
    "hamming": "HAMMING",
    "box": "BOX",
    "area": "BOX",
    "lanczos": "LANCZOS",
    "lanczos3": "LANCZOS",
    "lanczos5": "LANCZOS",
    "gaussian": "BICUBIC",
    "mitchellcubic": "BICUBIC",
}


@api_boundary
def pillow(op: str) -> Any:
    """The module ``PIL.Image``."""
    return require("PIL.Image", op, "images need Pillow", package="pillow")


@api_boundary
def load_img(
    path: Any,
    color_mode: str = "rgb",
    target_size: Any = None,
    interpolation: str = "nearest",
    keep_aspect_ratio: bool = False,
) -> Any:
    """The image in a file, as Pillow's.

    16-bit images become 8-bit ones, by their upper eight bits, unless ``color_mode`` is
    ``"grayscale"``: that keeps all bits of one channel, and 32-bit integers and floats
    as they are. In colour the latter are cut to 0 … 255, with a warning if that loses
    something: they have no range of their own to scale from.

    Args:
        path: A path, an open file, or ``io.BytesIO``.
        color_mode: ``"rgb"``, ``"rgba"`` or ``"grayscale"``.
        target_size: Height and width that it is resized to.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"box"``,
            ``"hamming"`` or ``"lanczos"``.
        keep_aspect_ratio: Whether it is cropped in the middle, not distorted.

    Raises:
        MissingDependencyError: Pillow is not installed.
        UnknownNameError: An unknown mode or interpolation.
        FileFormatError: The image has more pixels than Pillow takes, 179 million.

    Warns:
        UserWarning: Values of a 32-bit image are cut off or rounded.

    Example:
        >>> import io
        >>> file = io.BytesIO()
        >>> save_img(file, np.zeros((4, 6, 3)), file_format="png")
        >>> load_img(file, target_size=(2, 3)).size
        (3, 2)
    """
    image = open_image(path, color_mode)
    if image.mode in _DEEP and color_mode == "grayscale":
        image = image.copy()
    else:
        image = in_8_bits(image, path, color_mode)
    if target_size is None:
        return image
    return resize(image, target_size, interpolation, crop=keep_aspect_ratio)


@api_boundary
def open_image(path: Any, color_mode: str) -> Any:
    """The image in a file, whatever its mode.

    Raises:
        UnknownNameError: ``color_mode`` is none.
        FileFormatError: The image has more pixels than Pillow takes, 179 million.
    """
    if color_mode not in _MODES:
        raise unknown_name("color_mode", color_mode, _MODES, op="load_img")
    package = pillow("load_img")
    if not isinstance(path, io.IOBase):
        check_ordinary(path, "load_img")
        path = os.fspath(path)
    try:
        return package.open(path)
    except package.DecompressionBombError as error:
        raise FileFormatError(
            "load_img",
            "the image has more pixels than its file is trusted with",
            {"cause": error},
            hint="PIL.Image.MAX_IMAGE_PIXELS sets how many half of that are.",
        ) from error


@api_boundary
def in_8_bits(image: Any, path: Any, color_mode: str) -> Any:
    """The image with channels of eight bits; Pillow would cut off deeper ones at 255.

    Args:
        image: An image of Pillow, of any mode.
        path: Named in the warning.
        color_mode: As of :func:`load_img`.
    """
    mode = _MODES[color_mode]
    if image.mode not in _DEEP:
        return image.convert(mode)
    values = np.asarray(image)
    # Pillow reads 16-bit PNG files as 32-bit integers in some versions.
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format == "PNG"):
        upper = (values.astype(np.int64) >> 8).clip(0, 255).astype(np.uint8)
        return pillow("load_img").fromarray(upper).convert(mode)
    if np.any(values != values.astype(np.float64).round().clip(0, 255)):
        warn(
            f"load_img: {path} holds values from {values.min()} to {values.max()}, of "
            f"which an image of 8 bits keeps whole numbers from 0 to 255. "
            f"color_mode='grayscale' keeps them as they are: scale them afterwards."
        )
    return image.convert(mode)


@api_boundary
def resize(
    image: Any, size: Any, interpolation: str, *, crop: bool = False, pad: bool = False
) -> Any:
    """A Pillow image of another size; cropped or padded to its proportions first."""
    if interpolation not in _FILTERS:
        raise unknown_name("interpolation", interpolation, _FILTERS, op="load_img")
    kind = getattr(pillow("load_img").Resampling, _FILTERS[interpolation])
    height, width = size
    box = None
    if crop or pad:
        w, h = image.size
        wide, high = h * width / height, w * height / width
        if crop:
            wide, high = min(w, int(wide)), min(h, int(high))
        else:
            wide, high = max(w, int(wide)), max(h, int(high))
        left, top = (w - wide) // 2, (h - high) // 2
        if pad:  # Pillow fills what is outside with zeros
            image = image.crop((left, top, left + wide, top + high))
        else:
            box = (left, top, left + wide, top + high)
    return image.resize((width, height), kind, box)


@api_boundary
def img_to_array(
    img: Any, data_format: str | None = None, dtype: Any = None
) -> np.ndarray:
    """An image of Pillow as an array, with an axis for the channels.

    Args:
        img: The image.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        dtype: ``config.floatx()`` by default.

    Shape:
        → [height, width, channels]

    Raises:
        UnknownNameError: There is no such ``data_format``.
        ShapeError: It is no image of one, three or four channels.

    Example:
        >>> img_to_array(array_to_img(np.ones((2, 3, 1)))).shape
        (2, 3, 1)
    """
    first = check_format("img_to_array", data_format) == "channels_first"
    x = np.asarray(img).astype(floatx() if dtype is None else dtype)
    if x.ndim == 2:
        x = x[..., None]
    if x.ndim != 3:
        raise ShapeError("img_to_array", f"an image has rank 2 or 3, not {x.ndim}")
    return np.moveaxis(x, -1, 0) if first else x


@api_boundary
def array_to_img(
    x: Any, data_format: str | None = None, scale: bool = True, dtype: Any = None
) -> Any:
    """An array as an image of Pillow.

    Args:
        x: The array.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        scale: Whether the values are stretched to 0 … 255.
        dtype: What the array is cast to before.

    Shape:
        x: [height, width, channels] with 1, 3 or 4 channels

    Raises:
        MissingDependencyError: Pillow is not installed.
        ShapeError: Another rank or number of channels.

    Example:
        >>> array_to_img(np.zeros((2, 3, 3))).size
        (3, 2)
    """
    image = pillow("array_to_img")
    first = check_format("array_to_img", data_format) == "channels_first"
    x = np.asarray(x).astype(floatx() if dtype is None else dtype)
    x = np.moveaxis(x, 0, -1) if first and x.ndim == 3 else x
    if x.ndim != 3 or x.shape[-1] not in (1, 3, 4):
        raise ShapeError(
            "array_to_img",
            f"an image is [height, width, 1, 3 or 4 channels], received {x.shape}",
        )
    if scale:
        x = x - x.min()
        top = x.max()
        x = x / (top if top else 1) * 255
    if x.shape[-1] > 1:
        return image.fromarray(x.astype("uint8"))
    plane = x[..., 0]
    deep = plane.max(initial=0) > 255
    return image.fromarray(plane.astype("int32" if deep else "uint8"))


@api_boundary
def save_img(
    path: Any,
    x: Any,
    data_format: str | None = None,
    file_format: str | None = None,
    scale: bool = True,
    **kwargs: Any,
) -> None:
    """Writes an array as an image file.

    Args:
        path: Path or open file.
        x: The array, see :func:`array_to_img`.
        data_format: ``"channels_last"`` or ``"channels_first"``.
        file_format: Pillow's name of the format; the path's suffix by default.
        scale: Whether the values are stretched to 0 … 255.
        **kwargs: Options of Pillow's ``save``.

    Raises:
        UnknownNameError: The path's suffix is of no image format.
        SaveError: The file cannot be written.

    Warns:
        UserWarning: JPEG has no fourth channel, it is left out.

    Example:
        >>> import io
        >>> save_img(io.BytesIO(), np.zeros((4, 6, 3)), file_format="png")
    """
    image = array_to_img(x, data_format, scale)
    suffix = (file_format or os.path.splitext(str(path))[1].lstrip(".")).lower()
    if image.mode == "RGBA" and suffix in ("jpg", "jpeg"):
        warn("save_img: JPEG files have no transparency, it is left out")
        image = image.convert("RGB")
    kind = "jpeg" if file_format == "jpg" else file_format
    if hasattr(path, "write"):
        image.save(path, format=kind, **kwargs)
        return
    if kind is None:
        extensions = pillow("save_img").registered_extensions()
        kind = extensions.get(f".{suffix}")
        if kind is None:
            raise unknown_name("file format", suffix, extensions, op="save_img")
    write_atomically(
        Path(path), lambda file: image.save(file, format=kind, **kwargs), op="save_img"
    )
