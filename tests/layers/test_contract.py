"""The contract of layers notices what breaks it; channels may come first."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT, IMAGE

from exburn import layers as L
from exburn.core import registry


class MixesRows(L.Layer):
    def call(self, x):
        return x - x.mean(0)


class CountsInInference(L.Layer):
    def build(self, input_shape):
        self.count = self.add_weight((), "zeros", trainable=False)

    def call(self, x):
        self.count.assign_add(1.0)
        return x + 1


class StaysInFloat32(L.Layer):
    def call(self, x):
        return x.astype("float32")


class ForgetsAnArgument(L.Layer):
    def __init__(self, scale, **options):
        super().__init__(**options)
        self.scale = scale

    def call(self, x):
        return x * self.scale

    def get_config(self):
        return {"scale": 1.0}


class DividesByZero(L.Layer):
    def call(self, x):
        return jnp.sqrt(jnp.maximum(x, 0))


class HoldsASizeBack(L.Layer):
    def call(self, x):
        return x.reshape(4, -1) if x.shape[0] == 4 else x[:, :3]


@pytest.mark.parametrize(
    "cls",
    [
        partial(L.Conv2D, 3, 3),
        partial(L.Conv2DTranspose, 3, 3, 2),
        partial(L.DepthwiseConv2D, 3),
        partial(L.SeparableConv2D, 3, 3),
        partial(L.MaxPooling2D),
        partial(L.AveragePooling2D, padding="same"),
        partial(L.AdaptiveAveragePooling2D, 3),
        partial(L.AdaptiveMaxPooling2D, 3),
        partial(L.GlobalAveragePooling2D),
        partial(L.GlobalMaxPooling2D, keepdims=True),
        partial(L.ZeroPadding2D),
        partial(L.Cropping2D, 1),
        partial(L.UpSampling2D, (2, 3)),
        partial(L.UpSampling2D, 2, interpolation="bilinear"),
        partial(L.SpatialDropout2D, 0.0),
    ],
    ids=lambda cls: cls.func.__name__,
)
def test_channels_first_is_channels_last_with_moved_axes(cls):
    last, first = cls(data_format="channels_last"), cls(data_format="channels_first")
    expected = last(IMAGE)
    moved = np.moveaxis(IMAGE, -1, 1)
    first(moved)
    first.set_weights(last.get_weights())
    result = first(moved)
    if result.ndim == 4:
        result = np.moveaxis(result, 1, -1)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "make",
    [
        MixesRows,
        CountsInInference,
        StaysInFloat32,
        partial(ForgetsAnArgument, 2.0),
        DividesByZero,
        HoldsASizeBack,
    ],
    ids=lambda make: getattr(make, "__name__", "ForgetsAnArgument"),
)
def test_the_contract_notices(make):
    known = registry.custom_objects({type(make()).__name__: type(make())})
    with known, pytest.raises(AssertionError):
        check_layer(make, FLAT)
