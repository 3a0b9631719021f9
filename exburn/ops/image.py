"""Ops on images: colours and borders here, the geometry in the modules beside."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.config import check_format
from exburn.core.annotations import Tensor
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op
from exburn.ops.filtering import extract_patches as extract_patches
from exburn.ops.filtering import extract_patches_3d as extract_patches_3d
from exburn.ops.filtering import gaussian_blur as gaussian_blur
from exburn.ops.filtering import reconstruct_patches as reconstruct_patches
from exburn.ops.filtering import sobel_edges as sobel_edges
from exburn.ops.similarity import ssim as ssim
from exburn.ops.warping import affine_transform as affine_transform
from exburn.ops.warping import elastic_transform as elastic_transform
from exburn.ops.warping import map_coordinates as map_coordinates
from exburn.ops.warping import perspective_transform as perspective_transform
from exburn.ops.warping import resize as resize
from exburn.ops.warping import scale_and_translate as scale_and_translate


def _axes(name: str, images, data_format) -> tuple[int, int, int]:
    """The axes of height, width and channels."""
    if images.ndim not in (3, 4):
        raise ShapeError(
            name, f"images have rank 3 (one) or 4 (several), received {images.shape}"
        )
    first = check_format(name, data_format) == "channels_first"
    return (-2, -1, -3) if first else (-3, -2, -1)


def _colours(name: str, images, data_format):
    """The three colour planes, and the axis they lie along."""
    axis = _axes(name, images, data_format)[2]
    if images.shape[axis] != 3:
        raise ShapeError(name, f"images have 3 channels, received {images.shape}")
    return [jnp.squeeze(p, axis) for p in jnp.split(images, 3, axis)], axis


@op
def rgb_to_grayscale(images: Tensor, data_format: str | None = None) -> jax.Array:
    """The brightness of coloured images, as the eye weighs the colours.

    Args:
        images: One or several, in RGB.

    Shape:
        images: [..., h, w, 3] → [..., h, w, 1]

    Example:
        >>> rgb_to_grayscale([[[1.0, 1.0, 1.0]]]).round(2).tolist()
        [[[1.0]]]
    """
    (r, g, b), axis = _colours("rgb_to_grayscale", images, data_format)
    gray = 0.2989 * r + 0.5870 * g + 0.1140 * b
    return jnp.expand_dims(gray, axis).astype(images.dtype)


@op
def rgb_to_hsv(images: Tensor, data_format: str | None = None) -> jax.Array:
    """Hue, saturation and value of coloured images, all from 0 to 1.

    Args:
        images: One or several, in RGB from 0 to 1.

    Shape:
        images: [..., h, w, 3] → [..., h, w, 3]

    Raises:
        ArgumentError: The images are no floats.

    Example:
        >>> rgb_to_hsv([[[1.0, 0.5, 0.5]]]).tolist()
        [[[0.0, 0.5, 1.0]]]
    """
    _check_float("rgb_to_hsv", images)
    (r, g, b), axis = _colours("rgb_to_hsv", images, data_format)
    high = jnp.maximum(jnp.maximum(r, g), b)
    span = high - jnp.minimum(jnp.minimum(r, g), b)
    safe = jnp.where(span > 0, span, 1)
    hue = jnp.select(
        [r == high, g == high],
        [(g - b) / safe, (b - r) / safe + 2],
        (r - g) / safe + 4,
    )
    hue = jnp.where(span > 0, hue / 6 + (hue < 0), 0)
    saturation = jnp.where(high > 0, span / jnp.where(high > 0, high, 1), 0)
    return jnp.stack([hue, saturation, high], axis).astype(images.dtype)


@op
def hsv_to_rgb(images: Tensor, data_format: str | None = None) -> jax.Array:
    """The inverse of :func:`rgb_to_hsv`.

    Args:
        images: One or several, in HSV from 0 to 1.

    Shape:
        images: [..., h, w, 3] → [..., h, w, 3]

    Raises:
        ArgumentError: The images are no floats.

    Example:
        >>> hsv_to_rgb([[[0.0, 1.0, 0.5]]]).tolist()
        [[[0.5, 0.0, 0.0]]]
    """
    _check_float("hsv_to_rgb", images)
    (hue, saturation, value), axis = _colours("hsv_to_rgb", images, data_format)
    planes = []
    for turn in (5, 3, 1):
        k = turn + 6 * hue
        k = k - 6 * jnp.floor(k / 6)  # % is a function call for each pixel on a CPU
        dip = jnp.clip(jnp.minimum(k, 4 - k), 0, 1)
        planes.append(value * (1 - saturation * dip))
    return jnp.stack(planes, axis).astype(images.dtype)


def _check_float(name: str, images) -> None:
    if not jnp.issubdtype(images.dtype, jnp.floating):
        raise ArgumentError(
            name, f"images are floats from 0 to 1, received {images.dtype}"
        )


@op
def pad_images(
    images: Tensor,
    top_padding: int | None = None,
    left_padding: int | None = None,
    bottom_padding: int | None = None,
    right_padding: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Images with zeros around them.

    Of ``top_padding``, ``bottom_padding`` and ``target_height`` two are given, and so
    for the width.

    Args:
        images: One or several.
        top_padding, left_padding, bottom_padding, right_padding: Rows or columns.
        target_height, target_width: Size of the result.

    Raises:
        ArgumentError: Not two of three are given, or a padding is negative.

    Example:
        >>> pad_images(jnp.ones((2, 2, 1)), 1, 0, target_height=5, target_width=2).shape
        (5, 2, 1)
    """
    name = "pad_images"
    pads = [(0, 0)] * images.ndim
    sides = (
        (top_padding, bottom_padding, target_height),
        (left_padding, right_padding, target_width),
    )
    for axis, pad in zip(_axes(name, images, data_format), sides, strict=False):
        pads[axis] = _two_of_three(name, pad, images.shape[axis], 1)
    return jnp.pad(images, pads)


@op
def crop_images(
    images: Tensor,
    top_cropping: int | None = None,
    left_cropping: int | None = None,
    bottom_cropping: int | None = None,
    right_cropping: int | None = None,
    target_height: int | None = None,
    target_width: int | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Images without their borders.

    Of ``top_cropping``, ``bottom_cropping`` and ``target_height`` two are given, and so
    for the width.

    Args:
        images: One or several.
        top_cropping, left_cropping, bottom_cropping, right_cropping: Rows or columns.
        target_height, target_width: Size of the result.

    Raises:
        ArgumentError: Not two of three are given, or nothing would be left.

    Example:
        >>> image = jnp.ones((5, 5, 1))
        >>> crop_images(image, 1, 2, target_height=3, target_width=2).shape
        (3, 2, 1)
    """
    name = "crop_images"
    keep = [slice(None)] * images.ndim
    sides = (
        (top_cropping, bottom_cropping, target_height),
        (left_cropping, right_cropping, target_width),
    )
    for axis, cut in zip(_axes(name, images, data_format), sides, strict=False):
        size = images.shape[axis]
        before, after = _two_of_three(name, cut, size, -1)
        keep[axis] = slice(before, size - after)
    return images[tuple(keep)]


def _two_of_three(name: str, sides, size: int, sign: int) -> tuple[int, int]:
    """How much is added (or, with sign -1, taken away) before and after."""
    before, after, target = sides
    if sum(value is not None for value in sides) != 2:
        raise ArgumentError(
            name, f"two of (before, after, target) are given, received {sides}"
        )
    if target is not None:
        change = sign * (target - size)
        before = change - after if before is None else before
        after = change - before
    if before < 0 or after < 0 or (sign < 0 and before + after >= size):
        raise ArgumentError(
            name,
            f"{before} before and {after} after do not fit an image of size {size}",
        )
    return before, after
