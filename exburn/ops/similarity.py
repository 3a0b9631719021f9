"""How alike two images are."""

from __future__ import annotations

import jax
import jax.numpy as jnp

from exburn.core.annotations import Tensor
from exburn.errors import ArgumentError, ShapeError
from exburn.ops.contract import op
from exburn.ops.filtering import depthwise, gaussian
from exburn.ops.warping import on_batches


def _check(name: str, a, b) -> None:
    if a.shape != b.shape:
        raise ShapeError(name, f"the images' shapes differ: {a.shape}, {b.shape}")


@op
def psnr(x1: Tensor, x2: Tensor, max_val: float) -> jax.Array:
    """Peak signal-to-noise ratio, ``10 log10(max_val² / mean((x1 - x2)²))``.

    Args:
        x1, x2: Images of the same shape.
        max_val: The largest value that they can have.

    Shape:
        x1, x2: [...] → scalar

    Raises:
        ShapeError: The shapes differ.

    Example:
        >>> float(psnr([1.0], [0.0], 10.0))
        20.0
    """
    _check("psnr", x1, x2)
    error = jnp.square(x1 - x2).mean()
    return 20 * jnp.log10(jnp.asarray(max_val, x2.dtype)) - 10 * jnp.log10(error)


@op
def ssim(
    image1: Tensor,
    image2: Tensor,
    max_val: float = 1.0,
    filter_size: int = 11,
    filter_sigma: float = 1.5,
    k1: float = 0.01,
    k2: float = 0.03,
    data_format: str | None = None,
) -> jax.Array:
    """Structural similarity: 1 for equal images.

    Args:
        image1, image2: One or several images of the same shape.
        max_val: The largest value that they can have.
        filter_size: Size of the Gaussian window, odd.
        filter_sigma: Its deviation.
        k1, k2: Keep the quotients finite.

    Shape:
        image1, image2: [batch, h, w, channels] → [batch]; [h, w, channels] → scalar

    Raises:
        ShapeError: The shapes differ.
        ArgumentError: ``filter_size`` is even.

    Example:
        >>> image = jnp.ones((16, 16, 1))
        >>> float(ssim(image, image))
        1.0

    Source: Wang et al., *Image Quality Assessment: From Error Visibility to Structural
    Similarity*, 2004.
    """
    _check("ssim", image1, image2)
    if filter_size < 1 or filter_size % 2 == 0:
        raise ArgumentError("ssim", f"filter_size is odd, received {filter_size}")
    window = gaussian(filter_size, filter_sigma)
    kernel = jnp.outer(window, window)
    c1, c2 = (k1 * max_val) ** 2, (k2 * max_val) ** 2

    def run(both):
        a, b = jnp.split(both, 2, axis=-1)
        blur = lambda x: depthwise(x, kernel, "VALID")  # noqa: E731
        m1, m2 = blur(a), blur(b)
        v1, v2 = blur(a * a) - m1 * m1, blur(b * b) - m2 * m2
        covariance = blur(a * b) - m1 * m2
        above = (2 * m1 * m2 + c1) * (2 * covariance + c2)
        below = (m1 * m1 + m2 * m2 + c1) * (v1 + v2 + c2)
        mean = (above / below).mean((1, 2, 3))
        return mean[:, None, None, None]  # the form of images, for on_batches

    channels = image1.ndim - (3 if data_format == "channels_first" else 1)
    both = jnp.concatenate([image1, image2], channels)
    both = both if jnp.issubdtype(both.dtype, jnp.floating) else both * 1.0
    out = on_batches("ssim", both, data_format, run)
    return out.reshape(out.shape[: image1.ndim - 3])
