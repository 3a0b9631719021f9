"""Tests of ``exburn.ops.image``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import IMAGES, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

CASES = Cases(
    {
        "image.crop_images": [
            case(IMAGES, 1, 2, target_height=3, target_width=4),
            case(IMAGES[0], 1, 2, 0, 3),
        ],
        "image.hsv_to_rgb": [case(IMAGES)],
        "image.pad_images": [
            case(IMAGES, 1, 2, target_height=9, target_width=11),
            case(IMAGES[0], 1, 2, 0, 3),
        ],
        "image.rgb_to_grayscale": [case(IMAGES)],
        "image.rgb_to_hsv": [case(IMAGES)],
    }
)


UNKNOWN_BATCH = ["image.crop_images", "image.pad_images", "image.rgb_to_hsv"]


REFUSALS = [
(lambda: ops.image.crop_images(ROWS[..., None], 1), errors.ArgumentError),
(lambda: ops.image.rgb_to_hsv(np.ones((2, 2, 3), int)), errors.ArgumentError),
]  # fmt: skip
