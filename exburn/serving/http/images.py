"""Images as files: PNG and JPEG, made into what a model takes."""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import io
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from exburn.errors import ArgumentError, ExBurnError
from exburn.errors.boundary import guard_methods
from exburn.layers.core.identity import Rescaling
from exburn.module.graph import Ref
from exburn.serving.http.failures import RequestFailure
from exburn.serving.http.tensor import Tensor
from exburn.utils.images import in_8_bits, pillow, resize

_MODES = {1: "grayscale", 3: "rgb", 4: "rgba"}
_MOST_PIXELS = 1 << 24  # 50 MB of a coloured one, however small its file is
_MOST_OF_REQUEST = 1 << 27  # pixels, which take a second or two
_FORMATS = ["PNG", "JPEG"]
# Each scan of a JPEG goes over all its pixels again. Programs write ten at most; there
# may also be a preview in the file.
_SCAN, _MOST_SCANS = b"\xff\xda", 50
_SPACES = dict.fromkeys(map(ord, " \t\r\n"))


@guard_methods
@dataclasses.dataclass(frozen=True)
class Images:
    """The conversion of image files that a client sends into numbers.

    They are decoded and resized as ``image_dataset_from_directory`` does: 0 … 255.

    Args:
        scale, offset: ``pixel * scale + offset`` is what the model gets.
        interpolation: Of the resizing: ``"bilinear"``, ``"nearest"``, ``"bicubic"`` …
        crop: Whether an image of other proportions is cropped, not distorted.

    Example:
        >>> Images(scale=1 / 255).scale < 1
        True
    """

    scale: float = 1.0
    offset: float = 0.0
    interpolation: str = "bilinear"
    crop: bool = False

    def check(self, name: str, shape: tuple[int, ...]) -> None:
        """Raises if an input cannot be an image.

        Raises:
            ArgumentError: Its shape is no image's.
            MissingDependencyError: Pillow is not installed.
        """
        fits = len(shape) == 4 and shape[3] in _MODES and -1 not in shape[1:]
        if not fits:
            raise ArgumentError(
                "Endpoint",
                f"the input {name!r} of shape {list(shape)} is no image",
                hint="An image is [rows, height, width, channels], of 1, 3 or 4.",
            )
        pillow("Endpoint")


def begins_with_rescaling(model: Any, index: int) -> bool:
    """Tells whether a model scales an input itself: then it takes pixels as they are.

    Other layers that work on images may come first.
    """
    graph, at = getattr(model, "graph", None), Ref(-1, index)
    while graph is not None:
        users = [i for i, node in enumerate(graph.nodes) if at in node.leaves]
        if len(users) != 1 or not isinstance(graph.nodes[users[0]].target, str):
            return False
        layer = model.nodes[graph.nodes[users[0]].target]
        if isinstance(layer, Rescaling):
            return True
        if not type(layer).__module__.startswith("exburn.layers.preprocessing."):
            return False
        at = Ref(users[0], 0)
    return False


def decode_base64(name: str, texts: np.ndarray) -> np.ndarray:
    """The files that base64 texts of JSON hold.

    Lines may be broken, and a text may be a URL of data, as browsers write files.
    """
    flat = texts.reshape(-1)
    for i, text in enumerate(flat):
        data = text
        if text[:5].lower() == "data:":
            kind, comma, data = text.partition(",")
            if not comma or not kind.lower().endswith(";base64"):
                message = f"input {name!r}: image {i} is a URL of data without ;base64,"
                raise RequestFailure(400, message)
        try:
            flat[i] = base64.b64decode(data.translate(_SPACES), validate=True)
        except (binascii.Error, ValueError):
            message = f"input {name!r}: image {i} is no base64"
            raise RequestFailure(400, message) from None
    return texts


def is_image(body: bytes) -> bool:
    """Tells whether bytes begin as PNG and JPEG files do.

    Example:
        >>> is_image(b"\\x89PNG and more"), is_image(b"0.5")
        (True, False)
    """
    return body.startswith((b"\x89PNG", b"\xff\xd8\xff"))


def decode_images(
    tensor: Tensor,
    files: np.ndarray,
    images: Images,
    reserve: Callable[[int], None],
    check: Callable[[], None] = lambda: None,
) -> np.ndarray:
    """The images in some files, as one array.

    Args:
        tensor: The input: [rows, height, width, channels].
        reserve: Takes the memory of the array, and of all pixels of the files, which
            may be much smaller.
        check: Called before each image; raises if the request is over.

    Raises:
        RequestFailure: A file is no PNG and no JPEG, is damaged, or too large, or all
            of them together are.
    """
    flat, shape = files.reshape(-1), tensor.shape
    row = math.prod(shape[1:]) * tensor.dtype.itemsize
    reserve(len(flat) * row + _measure(tensor.name, flat, check))
    array = np.empty((len(flat), *shape[1:]), tensor.dtype)
    for i, file in enumerate(flat):
        check()
        with _of_image(tensor.name, i):
            pixels = _decode(file, shape, images)
        if images.scale != 1 or images.offset:
            pixels = pixels * np.float32(images.scale) + np.float32(images.offset)
        array[i] = pixels.reshape(shape[1:])
    return array


def _measure(name: str, files: np.ndarray, check: Callable[[], None]) -> int:
    """Bytes that the decoding of some files takes: of all, and at once.

    All pixels count, though one image is decoded at a time: their time is what a
    request takes from others.
    """
    total = most = 0
    for i, file in enumerate(files):
        check()
        with _of_image(name, i):
            image = _open(file)
        pixels = image.width * image.height
        deep = image.mode[0] in "IF"
        total, most = total + pixels, max(most, pixels * (32 if deep else 16))
        if total > _MOST_OF_REQUEST:
            message = f"the images of a request may have {_MOST_OF_REQUEST:,} pixels"
            raise RequestFailure(413, f"input {name!r}: {message}")
    return 4 * total + most


@contextlib.contextmanager
def _of_image(name: str, index: int) -> Iterator[None]:
    try:
        yield
    except RequestFailure as failure:
        message = f"input {name!r}: image {index} {failure.message}"
        raise RequestFailure(failure.status, message) from None


def _open(file: bytes) -> Any:
    """The image of Pillow in a file, of which only the head is read."""
    image_module = pillow("Server")
    too_large = RequestFailure(413, f"has more than {_MOST_PIXELS:,} pixels")
    try:
        image = image_module.open(io.BytesIO(file), formats=_FORMATS)
    except (
        image_module.DecompressionBombError,
        image_module.DecompressionBombWarning,  # where warnings are errors
    ):
        raise too_large from None
    except Exception:  # Pillow raises what it likes
        raise RequestFailure(400, "is neither PNG nor JPEG") from None
    if image.width * image.height > _MOST_PIXELS:
        raise too_large
    if image.format == "JPEG" and file.count(_SCAN) > _MOST_SCANS:
        raise RequestFailure(413, f"has more than {_MOST_SCANS} scans")
    return image


def _decode(file: bytes, shape: tuple[int, ...], images: Images) -> np.ndarray:
    mode, size, image = _MODES[shape[3]], shape[1:3], _open(file)
    try:
        image = in_8_bits(image, "an image", mode)
        return np.asarray(resize(image, size, images.interpolation, crop=images.crop))
    except ExBurnError:
        raise
    except Exception:
        raise RequestFailure(400, "is damaged") from None
