"""GPTQ: weights that are rounded so that errors make up for each other."""

import pytest
from tests.compression.quantization.calibrated import (
    config,
    config_on,
    embedded,
    errors_on,
    kernels,
    nearest,
)

from exburn import errors


@pytest.mark.parametrize(
    "options, share",
    [
        ({}, 0.3),
        ({"activation_order": True, "group_size": 24}, 0.3),
        ({"weight_bits": 2}, 0.3),
        ({"weight_bits": 3, "group_size": -1}, 0.3),
        ({"symmetric": True}, 0.3),
        ({"per_channel": False}, 0.4),
        ({"weight_bits": 8, "group_size": 5}, 0.2),
    ],
)
def test_gptq_errs_less_than_rounding_to_the_nearest(
    trained_on_images, images, options, share
):
    small = trained_on_images.quantize(
        "gptq", config=config_on(trained_on_images, images, **options)
    )
    for x in (images[0][:300], images[2]):  # seen, and not
        chosen, nearby = errors_on(
            x, trained_on_images, kernels(small), nearest(trained_on_images, small)
        )
        assert chosen < share * nearby


def test_inputs_that_depend_on_each_other_need_damping():
    model = embedded()
    model.quantize(config=config(model))
    with pytest.raises(errors.ArgumentError, match="depend on each other"):
        model.quantize(config=config(model, hessian_damping=0))
