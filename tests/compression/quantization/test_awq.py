"""AWQ: the weights of large inputs get a finer grid."""

import numpy as np
import pytest
from tests.compression.quantization.calibrated import (
    config_on,
    errors_on,
    kernels,
    nearest,
)

from exburn.compression.quantization.awq import round_by_awq
from exburn.compression.quantization.scheme import Scheme

RNG = np.random.default_rng(0)


def read_error(scheme, weight, x, sample):
    """The mean square of the outputs' errors on some inputs."""
    parts = round_by_awq(weight, scheme, np.abs(x).mean(0), sample)
    return np.square(x @ (np.asarray(scheme.decode(*parts)) - weight)).mean()


@pytest.mark.parametrize("group_size", [-1, 8, 27])  # 27 does not divide 40
def test_cutting_large_weights_brings_outputs_nearer(group_size):
    weight = RNG.normal(size=(40, 70)).astype("float32")
    x = RNG.normal(size=(200, 40)).astype("float32")
    scheme = Scheme("int4", (40, 70), (0,), group_size, method="awq")
    cut, whole = (read_error(scheme, weight, x, given) for given in (x, None))
    assert cut < whole or group_size == 27  # whose blocks have one bound together
    empty = read_error(scheme, weight, x, x[:0])  # of a layer that was not called
    assert empty == whole


def test_a_model_cuts_unless_it_is_told_not_to(trained_on_images, images):
    errors = []
    for cuts in (True, False):
        config = config_on(trained_on_images, images, "AWQConfig", apply_clip=cuts)
        small = trained_on_images.quantize(config=config)
        errors.append(errors_on(images[0], trained_on_images, kernels(small))[0])
    assert errors[0] < errors[1]


def test_awq_errs_less_than_rounding_to_the_nearest(trained_on_images, images):
    small = trained_on_images.quantize(
        config=config_on(trained_on_images, images, "AWQConfig", group_size=-1)
    )
    others = kernels(small), nearest(trained_on_images, small)
    chosen, nearby = errors_on(images[0], trained_on_images, *others)
    assert chosen < 0.98 * nearby
