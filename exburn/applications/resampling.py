"""Images in other sizes, pixel for pixel as Pillow makes them.

Each pixel of the result is a weighted mean of those under a filter, which is as wide as
a pixel of the result where the image gets smaller. Rows and columns are resized one
after another. Whole numbers are rounded to whole numbers in between and at the end, as
Pillow does with images of 8 bits.

Source: Turkowski, *Filters for Common Resampling Tasks*, 1990; Pillow's Resample.c.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

__all__ = ["FILTERS", "resample"]

_BITS = 22  # of the fraction of Pillow's weights for 8 bits
_BLOCK = 1 << 18  # numbers that are resized at once, which a cache holds


def _triangle(x: np.ndarray) -> np.ndarray:
    return np.maximum(1 - np.abs(x), 0)


def _cubic(x: np.ndarray) -> np.ndarray:
    x, a = np.abs(x), -0.5
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = (((x - 5) * x + 8) * x - 4) * a
    return np.where(x < 1, near, np.where(x < 2, far, 0.0))


def _lanczos(x: np.ndarray) -> np.ndarray:
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)


def _hamming(x: np.ndarray) -> np.ndarray:
    x = np.abs(x)
    window = 0.54 + 0.46 * np.cos(np.pi * x)
    return np.where(x < 1, np.sinc(x) * window, 0.0)


def _box(x: np.ndarray) -> np.ndarray:
    return ((x > -0.5) & (x <= 0.5)).astype(float)


#: Filters by name, and how far they reach to each side; "nearest" has none.
FILTERS: dict[str, tuple[Callable[[np.ndarray], np.ndarray] | None, float]] = {
    "nearest": (None, 0.0),
    "lanczos": (_lanczos, 3.0),
    "bilinear": (_triangle, 1.0),
    "bicubic": (_cubic, 2.0),
    "box": (_box, 0.5),
    "hamming": (_hamming, 1.0),
}


def resample(pixels: np.ndarray, sides: Sequence[int], kind: str) -> np.ndarray:
    """An image in another size, in float32.

    Args:
        pixels: Numbers; if all are whole and from 0 to 255, so are those of the result.
        sides: Its height and width.
        kind: One of ``FILTERS``.

    Shape:
        pixels: [height, width, channels] → [*sides, channels]

    Example:
        >>> image = np.array([[[0.0], [100.0]]])
        >>> resample(image, (1, 4), "bilinear").ravel().tolist()
        [0.0, 25.0, 75.0, 100.0]
    """
    height, width = sides
    if kind == "nearest":
        rows, columns = (
            _nearest(n, side) for n, side in zip(pixels.shape, sides, strict=False)
        )
        return pixels[rows][:, columns].astype("float32")
    bytes_alone = pixels.dtype in (np.uint8, np.bool_) or bool(
        ((pixels >= 0) & (pixels <= 255)).all() and (np.floor(pixels) == pixels).all()
    )
    lost = pixels.shape[0] - height
    axes = [1, 0]
    if lost > 0 and lost > 2 * (pixels.shape[1] - width):  # the order of Pillow 13
        axes = [0, 1]
    for axis in axes:
        if sides[axis] != pixels.shape[axis]:
            lines = np.ascontiguousarray(pixels.swapaxes(0, axis))
            resized = _resize(lines, sides[axis], kind, bytes_alone)
            pixels = resized.swapaxes(0, axis)
    return pixels.astype("float32")


def _resize(pixels: np.ndarray, side: int, kind: str, bytes_alone: bool) -> np.ndarray:
    """The first axis in another length, in float64.

    Args:
        pixels: [length, …].
        side: The length.
        kind: The filter.
        bytes_alone: Whether there are only whole numbers of 8 bits.
    """
    lines = pixels.reshape(len(pixels), -1)
    resized = np.empty((side, lines.shape[1]))
    filters = list(_weights(len(pixels), side, kind))
    if bytes_alone:  # sums below 2 ** 53 are exact in float64
        filters = [
            (start, np.trunc(weights * (1 << _BITS) + np.copysign(0.5, weights)))
            for start, weights in filters
        ]
    step = max(_BLOCK // len(lines), 1)
    for left in range(0, lines.shape[1], step):
        block = lines[:, left : left + step].astype("float64")
        for place, (start, weights) in enumerate(filters):
            part = block[start : start + len(weights)]
            resized[place, left : left + step] = weights @ part
    if bytes_alone:
        resized = np.floor((resized + (1 << (_BITS - 1))) / (1 << _BITS))
        np.clip(resized, 0, 255, out=resized)
    return resized.reshape(side, *pixels.shape[1:])


def _weights(length: int, side: int, kind: str) -> list[tuple[int, np.ndarray]]:
    """The first pixel under the filter, and the weights from it, for each new pixel."""
    function, reach = FILTERS[kind]
    assert function is not None  # "nearest" does not come here
    scale = length / side
    width = max(scale, 1.0)
    windows = []
    for place in range(side):
        center = (place + 0.5) * scale
        start = max(int(center - reach * width + 0.5), 0)
        end = min(int(center + reach * width + 0.5), length)
        places = np.arange(start, end) - center + 0.5
        weights = function(places / width)
        windows.append((start, weights / weights.sum()))
    return windows


def _nearest(length: int, side: int) -> np.ndarray:
    """The pixel under the middle of each new one."""
    scale = length / side
    # Pillow adds the steps up, whose rounding decides where a middle lies on an edge.
    middles = np.add.accumulate(
        np.concatenate([[scale * 0.5], np.full(side - 1, scale)])
    )
    return np.minimum(middles.astype(int), length - 1)
