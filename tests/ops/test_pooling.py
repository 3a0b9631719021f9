"""Tests of ``exburn.ops.pooling``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import IMAGES, SEQUENCE, VOLUMES, Draws, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "max_pool": [
            case(IMAGES, 2, 2),
            case(IMAGES, (3, 2), 1, "same"),
            case(VOLUMES, 2, 2),
            case(SEQUENCE, 3, 2, "same"),
            case(IMAGES, 2, 2, data_format="channels_first"),
        ],
        "average_pool": [
            case(IMAGES, 2, 2),
            case(IMAGES, (3, 2), 1, "same"),
            case(VOLUMES, 2, 2),
            case(SEQUENCE, 3, 2, "same"),
        ],
        "adaptive_average_pool": [
            case(IMAGES, 4),
            case(SEQUENCE, 2),
            case(VOLUMES, 3),
            case(ints(2, 5, 3), 2),
        ],
        "adaptive_max_pool": [case(IMAGES, (4, 3)), case(SEQUENCE, 2)],
    }
)


UNKNOWN_BATCH = (
    "max_pool average_pool adaptive_average_pool adaptive_max_pool"
).split()


def test_pools_step_by_their_size():
    image = np.arange(16.0, dtype="float32").reshape(1, 4, 4, 1)
    assert ops.max_pool(image, 2).ravel().tolist() == [5, 7, 13, 15]
    assert ops.average_pool(image, (2, 4)).ravel().tolist() == [3.5, 11.5]


REFUSALS = [
(lambda: ops.max_pool(ROWS, 2), errors.ShapeError),
(lambda: ops.max_pool(ROWS[..., None], 2, padding="causal"), errors.ArgumentError),
]  # fmt: skip


@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "float16", "bfloat16"])
def test_means_of_narrow_numbers_do_not_overflow(dtype, padding):
    largest = {"bool": 1, "float16": 60000, "bfloat16": 201}.get(dtype, 127)
    images = np.full((1, 8, 8, 2), largest, ops.convert_to_tensor([], dtype).dtype)
    means = np.asarray(ops.average_pool(images, 4, padding=padding))
    narrow = dtype if "float" in dtype else "float32"
    assert means.dtype == narrow
    np.testing.assert_array_equal(means, np.full((1, 2, 2, 2), largest, means.dtype))
