"""Images as arrays, from and to files."""

from __future__ import annotations

from typing import Any

import numpy as np

from exburn.errors import ShapeError
from exburn.errors.boundary import api_boundary
from exburn.ops.image import resize
from exburn.utils import array_to_img as array_to_img
from exburn.utils import img_to_array as img_to_array
from exburn.utils import load_img as load_img
from exburn.utils import save_img as save_img


@api_boundary
def smart_resize(
    x: Any,
    size: tuple[int, int],
    interpolation: str = "bilinear",
    data_format: str = "channels_last",
) -> Any:
    """Resizes images without distorting them: the middle is cut out first.

    Args:
        x: ``[height, width, channels]``, or a batch of such images.
        size: Height and width of the result.
        interpolation: ``"bilinear"``, ``"nearest"``, ``"bicubic"`` …
        data_format: ``"channels_last"`` or ``"channels_first"``.

    Returns:
        A NumPy array for one, else an array of JAX.

    Raises:
        ShapeError: ``x`` has another rank.

    Example:
        >>> smart_resize(np.ones((20, 40, 3)), (8, 8)).shape
        (8, 8, 3)
    """
    if np.ndim(x) not in (3, 4):
        raise ShapeError(
            "smart_resize",
            "an image of rank 3, or a batch of them, is needed, received shape "
            f"{np.shape(x)}",
        )
    resized = resize(
        x, size, interpolation, crop_to_aspect_ratio=True, data_format=data_format
    )
    return np.array(resized) if isinstance(x, np.ndarray) else resized
