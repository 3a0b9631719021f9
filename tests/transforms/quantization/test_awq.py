"""AWQ: the weights of large inputs get a finer grid."""

import pytest
from tests.transforms.quantization.calibrated import (
    config_on,
    errors_on,
    kernels,
    nearest,
)


@pytest.mark.long
def test_awq_errs_less_than_rounding_to_the_nearest(trained_on_images, images):
    small = trained_on_images.quantize(
        config=config_on(trained_on_images, images, "AWQConfig", group_size=-1)
    )
    others = kernels(small), nearest(trained_on_images, small)
    chosen, nearby = errors_on(images[0], trained_on_images, *others)
    assert chosen < 0.98 * nearby
