"""Image ops that compute where every pixel comes from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import ndimage

from exburn import random
from exburn.config import check_format
from exburn.core.annotations import Tensor
from exburn.core.checks import check_choice
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.ops.contract import op, tensor

_FILL_MODES = ("constant", "nearest", "wrap", "mirror", "reflect")
_ORDERS = {"nearest": 0, "bilinear": 1}
_METHODS = ("nearest", "bilinear", "bicubic", "lanczos3", "lanczos5")


@api_boundary
def on_batches(name: str, images, data_format, run: Callable) -> Any:
    """``run`` on ``[batch, height, width, channels]``, however the images are given."""
    first = check_format(name, data_format) == "channels_first"
    if images.ndim not in (3, 4):
        raise ShapeError(
            name, f"images have rank 3 (one) or 4 (several), received {images.shape}"
        )
    batch = images if images.ndim == 4 else images[None]
    out = run(jnp.moveaxis(batch, 1, -1) if first else batch)
    out = jnp.moveaxis(out, -1, 1) if first else out
    return out if images.ndim == 4 else out[0]


@api_boundary
def round_to(x, dtype):
    """Interpolated floats in the dtype of what was interpolated.

    Integers are rounded, and cut to what the dtype can hold; of bools, what any true
    one is part of is true.
    """
    if dtype == jnp.bool_:
        return x != 0
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        x = jnp.clip(jnp.round(x), limits.min, limits.max)
    return x.astype(dtype)


@op
def resize(
    images: Tensor,
    size: Sequence[int],
    interpolation: str = "bilinear",
    antialias: bool = False,
    crop_to_aspect_ratio: bool = False,
    pad_to_aspect_ratio: bool = False,
    fill_mode: str = "constant",
    fill_value: float = 0.0,
    data_format: str | None = None,
) -> jax.Array:
    """Images of another size.

    Args:
        images: One or several.
        size: Height and width.
        interpolation: ``"nearest"``, ``"bilinear"``, ``"bicubic"``, ``"lanczos3"`` or
            ``"lanczos5"``.
        antialias: Whether images that shrink are smoothed first.
        crop_to_aspect_ratio: Cuts out the middle that has the new proportions.
        pad_to_aspect_ratio: Adds borders that make the new proportions.
        fill_mode: ``"constant"``.
        fill_value: Value of the borders.

    Shape:
        images: [..., h, w, channels] → [..., *size, channels]

    Raises:
        ArgumentError: An argument is out of range.
        ShapeError: The images' rank is not 3 or 4.

    Example:
        >>> import numpy as np
        >>> resize(np.ones((4, 4, 3)), (2, 3)).shape
        (2, 3, 3)
    """
    name = "resize"
    interpolation = check_choice(name, "interpolation", interpolation, _METHODS)
    check_choice(name, "fill_mode", fill_mode, ("constant",))
    if crop_to_aspect_ratio and pad_to_aspect_ratio:
        raise ArgumentError(name, "an image is either cropped or padded, not both")
    if not isinstance(size, list | tuple) or len(size) != 2:
        raise ArgumentError(name, f"size is (height, width), received {size!r}")
    rows, columns = size

    def run(x):
        h, w = x.shape[1:3]
        if crop_to_aspect_ratio:
            high = max(min(h, int(w * rows / columns)), 1)
            wide = max(min(w, int(h * columns / rows)), 1)
            top, left = (h - high) // 2, (w - wide) // 2
            x = x[:, top : top + high, left : left + wide]
        elif pad_to_aspect_ratio:
            top = (max(h, int(w * rows / columns)) - h) // 2
            left = (max(w, int(h * columns / rows)) - w) // 2
            pads = [(0, 0), (top, top), (left, left), (0, 0)]
            x = jnp.pad(x, pads, constant_values=fill_value)
        shape = (x.shape[0], rows, columns, x.shape[3])
        return round_to(jax.image.resize(x, shape, interpolation, antialias), x.dtype)

    return on_batches(name, images, data_format, run)


@op
def scale_and_translate(
    images: Tensor,
    output_shape: Sequence[int],
    scale: Tensor,
    translation: Tensor,
    spatial_dims: Sequence[int],
    method: str,
    antialias: bool = True,
) -> jax.Array:
    """Images stretched and moved.

    Args:
        images: An array.
        output_shape: Shape of the result; ``None`` where an axis stays as it is.
        scale: A factor for each of ``spatial_dims``.
        translation: By how much each moves.
        spatial_dims: The axes of height, width …
        method: ``"linear"``, ``"bilinear"``, ``"cubic"``, ``"lanczos3"`` …
        antialias: Whether images that shrink are smoothed first.

    Example:
        >>> import numpy as np
        >>> x, factor = np.ones((2, 2)), np.array([2.0, 2.0])
        >>> scale_and_translate(x, (4, 4), factor, 0 * factor, (0, 1), "linear").shape
        (4, 4)
    """
    shape = tuple(
        own if size is None else size
        for own, size in zip(images.shape, output_shape, strict=True)
    )
    return jax.image.scale_and_translate(
        images, shape, spatial_dims, scale, translation, method, antialias
    )


@op
def map_coordinates(
    inputs: Tensor,
    coordinates: Tensor,
    order: int,
    fill_mode: str = "constant",
    fill_value: float = 0,
) -> jax.Array:
    """The values of an array at places between its elements.

    Args:
        inputs: An array.
        coordinates: Places, the first axis holds the coordinates.
        order: 0 (the nearest element) or 1 (linear interpolation).
        fill_mode: What is outside: ``"constant"``, ``"nearest"``, ``"wrap"``,
            ``"mirror"`` or ``"reflect"``.
        fill_value: The constant.

    Shape:
        inputs: [a, b, …]; coordinates: [rank, ...] → [...]

    Raises:
        ShapeError: There is not one coordinate an axis.
        ArgumentError: Another argument is out of range.

    Example:
        >>> map_coordinates([0.0, 10.0], [[0.5, 1.0]], 1).tolist()
        [5.0, 10.0]
    """
    fill_mode = check_choice("map_coordinates", "fill_mode", fill_mode, _FILL_MODES)
    if order not in (0, 1):
        raise ArgumentError("map_coordinates", f"order is one of 0, 1, not {order!r}")
    if coordinates.ndim < 2 or coordinates.shape[0] != inputs.ndim:
        raise ShapeError(
            "map_coordinates",
            "coordinates are [rank of inputs, …] and have rank 2 at least",
            {"inputs": inputs.shape, "coordinates": coordinates.shape},
        )
    return ndimage.map_coordinates(inputs, coordinates, order, fill_mode, fill_value)


@op
def affine_transform(
    images: Tensor,
    transform: Tensor,
    interpolation: str = "bilinear",
    fill_mode: str = "constant",
    fill_value: float = 0,
    data_format: str | None = None,
) -> jax.Array:
    """Images turned, stretched, sheared and moved.

    The pixel at ``(x, y)`` of the result comes from
    ``((a0 x + a1 y + a2) / k, (b0 x + b1 y + b2) / k)`` with ``k = c0 x + c1 y + 1``.

    Args:
        images: One or several.
        transform: ``a0, a1, a2, b0, b1, b2, c0, c1``, for all images or for each.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill_mode: What is outside, see :func:`map_coordinates`.
        fill_value: The constant.

    Shape:
        images: [..., h, w, channels]; transform: [8] or [batch, 8]
        → [..., h, w, channels]

    Raises:
        ShapeError: A shape does not fit.
        ArgumentError: Another argument is out of range.

    Example:
        >>> image = jnp.arange(3.0).reshape(1, 3, 1)
        >>> affine_transform(image, [1, 0, 1, 0, 1, 0, 0, 0]).ravel().tolist()
        [1.0, 2.0, 0.0]
    """
    name = "affine_transform"
    if transform.ndim not in (1, 2) or transform.shape[-1] != 8:
        raise ShapeError(
            name, f"transform is [8] or [batch, 8], received {transform.shape}"
        )

    def run(x):
        return _project(name, x, transform, interpolation, fill_mode, fill_value)

    return on_batches(name, images, data_format, run)


@op
def perspective_transform(
    images: Tensor,
    start_points: Tensor,
    end_points: Tensor,
    interpolation: str = "bilinear",
    fill_value: float = 0,
    data_format: str | None = None,
) -> jax.Array:
    """Images seen from elsewhere: four points go to four other points.

    Args:
        images: One or several.
        start_points: Four points ``(x, y)`` of the image.
        end_points: Where they go.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill_value: What is outside.

    Shape:
        images: [..., h, w, channels]; start_points, end_points: [4, 2] or [batch, 4, 2]
        → [..., h, w, channels]

    Raises:
        ShapeError: A shape does not fit.
        ArgumentError: Another argument is out of range.

    Example:
        >>> corners = [[0, 0], [2, 0], [0, 2], [2, 2]]
        >>> image = jnp.arange(9.0).reshape(3, 3, 1)
        >>> bool(jnp.allclose(perspective_transform(image, corners, corners), image))
        True
    """
    name = "perspective_transform"
    shapes = start_points.shape, end_points.shape
    if shapes[0] != shapes[1] or shapes[0][-2:] != (4, 2) or len(shapes[0]) > 3:
        raise ShapeError(
            name,
            "the points are [4, 2] or [batch, 4, 2]",
            {"start_points": shapes[0], "end_points": shapes[1]},
        )
    start, end = (p.astype(jnp.float32) for p in (start_points, end_points))
    x, y = end[..., 0], end[..., 1]
    one, none = jnp.ones_like(x), jnp.zeros_like(x)
    rows = [
        jnp.stack([*first, -to * x, -to * y], -1)
        for first, to in (
            ((x, y, one, none, none, none), start[..., 0]),
            ((none, none, none, x, y, one), start[..., 1]),
        )
    ]
    corners = jnp.concatenate([start[..., 0], start[..., 1]], -1)
    transform = jnp.linalg.solve(jnp.concatenate(rows, -2), corners[..., None])[..., 0]

    def run(images):
        return _project(name, images, transform, interpolation, "constant", fill_value)

    return on_batches(name, images, data_format, run)


def _project(name, images, transform, interpolation, fill_mode, fill_value):
    """Samples ``[batch, h, w, channels]`` where a projective transform leads."""
    y, x = jnp.mgrid[: images.shape[1], : images.shape[2]].astype(jnp.float32)
    dtype = jnp.promote_types(transform.dtype, jnp.float32)
    t = jnp.broadcast_to(transform.astype(dtype), (images.shape[0], 8))
    a0, a1, a2, b0, b1, b2, c0, c1 = (t[:, i, None, None] for i in range(8))
    k = c0 * x + c1 * y + 1
    return _sample(
        name,
        images,
        (b0 * x + b1 * y + b2) / k,
        (a0 * x + a1 * y + a2) / k,
        interpolation,
        fill_mode,
        fill_value,
    )


def _sample(name, images, y, x, interpolation, fill_mode, fill_value):
    """The images' values at ``(y, x)``, each ``[batch, h, w]``."""
    order = _ORDERS[check_choice(name, "interpolation", interpolation, _ORDERS)]
    fill_mode = check_choice(name, "fill_mode", fill_mode, _FILL_MODES)

    def plane(image, y, x):  # [h, w]
        return ndimage.map_coordinates(image, (y, x), order, fill_mode, fill_value)

    channels = jax.vmap(plane, (-1, None, None), -1)
    return jax.vmap(channels)(images, y, x)


@api_boundary
def elastic_transform(
    images: Tensor,
    alpha: float = 20.0,
    sigma: float = 5.0,
    interpolation: str = "bilinear",
    fill_mode: str = "reflect",
    fill_value: float = 0.0,
    seed: int | random.SeedGenerator | None = None,
    data_format: str | None = None,
) -> jax.Array:
    """Images distorted by a smooth random field.

    Args:
        images: One or several.
        alpha: How far pixels move.
        sigma: How smooth the field is: the deviation of the Gaussian that blurs it.
        interpolation: ``"nearest"`` or ``"bilinear"``.
        fill_mode: What is outside, see :func:`map_coordinates`.
        fill_value: The constant.
        seed: As in ``exburn.random``.
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Shape:
        images: [..., h, w, channels] → [..., h, w, channels]

    Example:
        >>> elastic_transform(jnp.ones((8, 8, 3)), seed=1).shape
        (8, 8, 3)

    Source: Simard et al., *Best Practices for Convolutional Neural Networks Applied to
    Visual Document Analysis*, 2003.
    """
    key = random.draw_key(seed)
    images = tensor(images)

    def run(x):
        from exburn.ops.filtering import gaussian_blur

        width = int(6 * sigma) | 1
        noise = sigma * jax.random.normal(key, (*x.shape[:3], 2), jnp.float32)
        field = alpha * gaussian_blur(
            noise, (width, width), (sigma, sigma), data_format="channels_last"
        )
        y, x_ = jnp.mgrid[: x.shape[1], : x.shape[2]].astype(jnp.float32)
        out = _sample(
            "elastic_transform",
            x,
            y + field[..., 0],
            x_ + field[..., 1],
            interpolation,
            fill_mode,
            fill_value,
        )
        return out.astype(x.dtype)

    return on_batches("elastic_transform", images, data_format, run)
