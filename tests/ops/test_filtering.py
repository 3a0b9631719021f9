"""Tests of ``exburn.ops.filtering``, beside Keras' and on symbols."""

from tests.ops.cases import IMAGES, VOLUMES, case
from tests.ops.check import Cases

CASES = Cases(
    {
        "image.extract_patches": [
            case(IMAGES, 2),
            case(IMAGES, (3, 2), 1, 1, "same"),
            case(IMAGES, 2, 1, 2),
        ],
        "image.extract_patches_3d": [
            case(VOLUMES, 2),
            case(VOLUMES, (2, 3, 2), 1, 1, "same"),
        ],
        "image.gaussian_blur": [
            case(IMAGES, data_format="channels_last"),
            case(IMAGES[0], (5, 3), (2.0, 0.5), data_format="channels_last"),
        ],
        "image.sobel_edges": [case(IMAGES)],
    }
)


UNKNOWN_BATCH = ["image.extract_patches", "image.gaussian_blur", "image.sobel_edges"]
