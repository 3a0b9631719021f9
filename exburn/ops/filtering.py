"""Image ops that compute every pixel from its neighbours."""

from __future__ import annotations

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from exburn.config import check_format
from exburn.core.annotations import Sizes, Tensor
from exburn.errors import ArgumentError, ShapeError
from exburn.errors.boundary import api_boundary
from exburn.ops.contract import op
from exburn.ops.convolution import check_padding, spread
from exburn.ops.warping import on_batches
from exburn.runtime.kernels.conv.dispatch import convolve


@api_boundary
def depthwise(x, kernel, padding: str = "SAME"):
    """``[batch, h, w, channels]``, each channel with one kernel ``[height, width]``."""
    kernel = jnp.broadcast_to(kernel[:, :, None, None], (*kernel.shape, 1, x.shape[-1]))
    return convolve(
        x,
        kernel.astype(x.dtype),
        (1, 1),
        padding,
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
        feature_group_count=x.shape[-1],
    )


@api_boundary
def gaussian(size: int, sigma) -> jnp.ndarray:
    """The values of a Gaussian around the middle; their sum is 1."""
    place = np.arange(size) - (size - 1) / 2
    values = jnp.exp(-0.5 * (place / sigma) ** 2)
    return values / values.sum()


@op
def gaussian_blur(
    images: Tensor,
    kernel_size: Sequence[int] = (3, 3),
    sigma: Sequence[float] = (1.0, 1.0),
    data_format: str | None = None,
) -> jax.Array:
    """Images smoothed by a Gaussian.

    Args:
        images: One or several.
        kernel_size: Width and height of the window.
        sigma: Deviation of the Gaussian in x and y.

    Shape:
        images: [..., h, w, channels] → [..., h, w, channels]

    Example:
        >>> gaussian_blur(jnp.ones((5, 5, 1)))[2, 2, 0].round(3).tolist()
        1.0
    """
    x = gaussian(kernel_size[0], sigma[0])
    y = gaussian(kernel_size[1], sigma[1])
    kernel = jnp.outer(y, x)
    return on_batches(
        "gaussian_blur", images, data_format, lambda b: depthwise(b, kernel)
    )


@op
def sobel_edges(images: Tensor, data_format: str | None = None) -> jax.Array:
    """How fast images change along y and x.

    Args:
        images: Several.

    Shape:
        images: [batch, h, w, channels] → [batch, h, w, channels, 2]

    Raises:
        ShapeError: The rank is not 4.

    Example:
        >>> sobel_edges(jnp.ones((1, 3, 3, 1)))[0, 1, 1, 0].tolist()
        [0.0, 0.0]
    """
    if images.ndim != 4:
        raise ShapeError("sobel_edges", f"images have rank 4, received {images.shape}")
    along_x = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    edges = [
        on_batches("sobel_edges", images, data_format, lambda b, k=k: depthwise(b, k))
        for k in (along_x.T, along_x)
    ]
    return jnp.stack(edges, -1)


@op
def extract_patches(
    images: Tensor,
    size: Sizes,
    strides: Sizes | None = None,
    dilation_rate: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """The windows of images, each as one vector.

    Args:
        images: One or several.
        size: Height and width of a window, or one number for both. With three
            numbers, windows of volumes.
        strides: Distance of the windows; their size by default.
        dilation_rate: Distance of a window's taps.
        padding: ``"valid"`` or ``"same"``.

    Shape:
        images: [..., h, w, c] → [..., rows, columns, height * width * c]

    Raises:
        ShapeError: The rank does not fit.
        ArgumentError: Another argument is out of range.

    Example:
        >>> extract_patches(jnp.ones((1, 6, 6, 3)), 2).shape
        (1, 3, 3, 12)
    """
    rank = len(size) if isinstance(size, list | tuple) else 2
    return _patches(
        "extract_patches",
        rank,
        images,
        size,
        strides,
        dilation_rate,
        padding,
        data_format,
    )


@op
def extract_patches_3d(
    volumes: Tensor,
    size: Sizes,
    strides: Sizes | None = None,
    dilation_rate: Sizes = 1,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """The windows of volumes, each as one vector.

    Args:
        volumes: One or several.
        size, strides, dilation_rate, padding, data_format: As in
            :func:`extract_patches`.

    Shape:
        volumes: [..., d, h, w, c] → [..., *windows, depth * height * width * c]

    Example:
        >>> extract_patches_3d(jnp.ones((1, 4, 4, 4, 1)), 2).shape
        (1, 2, 2, 2, 8)
    """
    return _patches(
        "extract_patches_3d",
        3,
        volumes,
        size,
        strides,
        dilation_rate,
        padding,
        data_format,
    )


@op
def reconstruct_patches(
    patches: Tensor,
    size: Sizes,
    output_size: Sizes | None = None,
    strides: Sizes | None = None,
    padding: str = "valid",
    data_format: str | None = None,
) -> jax.Array:
    """Images from their windows, which lie side by side.

    The inverse of :func:`extract_patches` whose ``strides`` are the ``size``.

    Args:
        patches: The windows of one image or several, each as one vector.
        size: Height and width of a window, or one number for both. With three
            numbers, windows of volumes.
        output_size: Height and width of the images. By default, that of the windows
            together; with ``padding="same"`` it must be given.
        strides: Must be ``size``, which is the default.
        padding: ``"valid"`` or ``"same"``, as the windows were taken.

    Shape:
        patches: [..., rows, columns, height * width * c] → [..., h, w, c]

    Raises:
        ShapeError: The rank does not fit, a vector is no whole number of pixels, or
            the images have another size than the windows.
        ArgumentError: Another argument is out of range.

    Example:
        >>> images = jnp.arange(36.0).reshape(1, 6, 6, 1)
        >>> again = reconstruct_patches(extract_patches(images, 3), 3)
        >>> bool((again == images).all())
        True
    """
    op = "reconstruct_patches"
    rank = len(size) if isinstance(size, list | tuple) else 2
    if rank not in (2, 3):
        raise ArgumentError(op, f"size has 2 or 3 numbers, received {size!r}")
    if patches.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            op,
            f"windows have rank {rank + 1} (of one image) or {rank + 2} (of several)",
            {"received": patches.shape},
        )
    size = spread(op, "size", size, rank)
    strides = spread(op, "strides", size if strides is None else strides, rank)
    if strides != size:
        raise ArgumentError(
            op,
            "the windows must lie side by side",
            {"size": size, "strides": strides},
            hint="Leave strides out; of windows that overlap there is no one image.",
        )
    same = check_padding(op, padding) == "same"
    first = check_format(op, data_format) == "channels_first"
    x = patches if patches.ndim == rank + 2 else patches[None]
    x = jnp.moveaxis(x, 1, -1) if first else x
    batch, *counts, length = x.shape
    if length % math.prod(size):
        raise ShapeError(
            op,
            f"a window of {math.prod(size)} pixels has a multiple of as many numbers, "
            f"received {length}",
        )
    covered = [n * k for n, k in zip(counts, size, strict=True)]
    whole = _size_of_whole(op, output_size, covered, size, same)
    order = [axis for i in range(1, rank + 1) for axis in (i, i + rank)]
    x = x.reshape(batch, *counts, *size, length // math.prod(size))
    x = x.transpose(0, *order, 2 * rank + 1)
    x = x.reshape(batch, *covered, x.shape[-1])
    for axis, (n, m) in enumerate(zip(covered, whole, strict=True), 1):
        if n is not m:  # n may be open
            x = jnp.take(x, (n - m) // 2 + np.arange(m), axis, mode="clip")
    x = jnp.moveaxis(x, -1, 1) if first else x
    return x if patches.ndim == rank + 2 else x[0]


def _size_of_whole(op, output_size, covered, size, same):
    """The sizes of images whose windows cover so many pixels, checked."""
    if output_size is None:
        if same:
            raise ArgumentError(
                op,
                "with padding='same' images of several sizes have these windows",
                hint="Give output_size=(height, width) of the images.",
            )
        return covered
    whole = spread(op, "output_size", output_size, len(size))
    slack = size if same else [1] * len(size)  # what padding may have added, and 1
    rows = zip(whole, covered, slack, strict=True)
    if not all(n - k < m <= n for m, n, k in rows if isinstance(n, int)):
        raise ShapeError(
            op,
            "the windows do not belong to images of output_size",
            {"output_size": tuple(whole), "covered": tuple(covered), "window": size},
        )
    return whole


def _patches(name, rank, images, size, strides, dilation_rate, padding, data_format):
    if rank not in (2, 3):
        raise ArgumentError(name, f"size has 2 or 3 numbers, received {size!r}")
    if images.ndim not in (rank + 1, rank + 2):
        raise ShapeError(
            name,
            f"images have rank {rank + 1} (one) or {rank + 2} (several)",
            {"received": images.shape},
        )
    first = check_format(name, data_format) == "channels_first"
    size = spread(name, "size", size, rank)
    strides = spread(name, "strides", size if strides is None else strides, rank)
    dilation = spread(name, "dilation_rate", dilation_rate, rank)
    same = check_padding(name, padding) == "same"
    x = images if images.ndim == rank + 2 else images[None]
    x = jnp.moveaxis(x, 1, -1) if first else x
    for i, (k, s, d) in enumerate(zip(size, strides, dilation, strict=True)):
        axis = 1 + 2 * i  # each axis becomes two: windows, taps
        n, span = x.shape[axis], (k - 1) * d + 1
        count = -(-n // s) if same else (n - span) // s + 1
        if same:
            missing = max((count - 1) * s + span - n, 0)
            pads = [(0, 0)] * x.ndim
            pads[axis] = (missing // 2, missing - missing // 2)
            x = jnp.pad(x, pads)
        taps = jnp.arange(count)[:, None] * s + np.arange(k) * d
        x = jnp.take(x, taps, axis, mode="clip")
    windows, taps = range(1, 2 * rank, 2), range(2, 2 * rank + 1, 2)
    x = x.transpose(0, *windows, *taps, 2 * rank + 1)
    x = x.reshape(*x.shape[: rank + 1], int(np.prod(size)) * x.shape[-1])
    x = jnp.moveaxis(x, -1, 1) if first else x
    return x if images.ndim == rank + 2 else x[0]
