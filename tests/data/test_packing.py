"""A batch as one object, beside Keras."""

import pytest

from exburn.data.packing import pack_x_y_sample_weight, unpack_x_y_sample_weight
from exburn.errors import DataError


@pytest.mark.parametrize(
    ("parts", "packed"),
    [  # of Keras 3.15
        ((1,), 1),
        (([1, 2],), ([1, 2],)),
        (((1, 2),), ((1, 2),)),
        ((1, 2), (1, 2)),
        ((1, 2, 3), (1, 2, 3)),
        ((1, None, 3), (1, None, 3)),
    ],
)
def test_what_is_packed_comes_out_again(parts, packed):
    assert pack_x_y_sample_weight(*parts) == packed
    assert unpack_x_y_sample_weight(packed) == (*parts, None, None)[:3]


def test_four_parts_are_no_batch():
    with pytest.raises(DataError, match="not 4 parts"):
        unpack_x_y_sample_weight((1, 2, 3, 4))
    with pytest.raises(DataError, match="not 0 parts"):
        unpack_x_y_sample_weight(())
