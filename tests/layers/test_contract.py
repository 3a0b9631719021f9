"""Every layer of these families keeps the contract of layers."""

from functools import partial

import jax.numpy as jnp
import numpy as np
import pytest
from tests.layers.check_layer import check_layer

from exburn import layers as L
from exburn.core import registry

rng = np.random.default_rng(0)
FLAT = rng.normal(size=(4, 6)).astype("float32")
SEQUENCE = rng.normal(size=(4, 8, 4)).astype("float32")
IMAGE = rng.normal(size=(4, 6, 8, 4)).astype("float32")
VOLUME = rng.normal(size=(4, 4, 5, 6, 2)).astype("float32")
TWO = [SEQUENCE, rng.normal(size=SEQUENCE.shape).astype("float32")]
TIME, PLACE = {"free": (1,)}, {"free": (1, 2)}

CASES = {
    "Dense": (L.Dense, (5, "tanh"), FLAT, {}),
    "Dense-time": (L.Dense, (5,), SEQUENCE, TIME),
    "EinsumDense": (
        L.EinsumDense,
        ("abc,cd->abd", (None, 3), None, "d"),
        SEQUENCE,
        TIME,
    ),
    "EinsumDense-dots": (L.EinsumDense, ("...x,xy->...y", 3), IMAGE, {}),
    "Identity": (L.Identity, (), FLAT, {}),
    "Rescaling": (L.Rescaling, (0.5, [1.0, 2.0, 0.0, 1.0]), IMAGE, {}),
    "Activation": (L.Activation, ("gelu",), FLAT, TIME),
    "ReLU": (L.ReLU, (1.5, 0.1, 0.2), FLAT, TIME),
    "LeakyReLU": (L.LeakyReLU, (), FLAT, TIME),
    "PReLU": (L.PReLU, (), SEQUENCE, {}),
    "PReLU-shared": (L.PReLU, ("ones", None, None, [1, 2]), IMAGE, PLACE),
    "ELU": (L.ELU, (), FLAT, TIME),
    "Softmax": (L.Softmax, (), FLAT, {}),
    "Softmax-axes": (L.Softmax, ([1, 2],), SEQUENCE, {}),
    "Conv1D": (L.Conv1D, (3, 3), SEQUENCE, TIME),
    "Conv1D-causal": (L.Conv1D, (3, 3, 1, "causal"), SEQUENCE, TIME),
    "Conv2D": (L.Conv2D, (6, 3, 2, "same", None, 1, 2, "relu"), IMAGE, PLACE),
    "Conv3D": (L.Conv3D, (3, 2), VOLUME, {}),
    "Conv1DTranspose": (L.Conv1DTranspose, (3, 3, 2, "same"), SEQUENCE, TIME),
    "Conv2DTranspose": (L.Conv2DTranspose, (3, 3, 2), IMAGE, PLACE),
    "Conv3DTranspose": (L.Conv3DTranspose, (3, 2, 2), VOLUME, {}),
    "DepthwiseConv1D": (L.DepthwiseConv1D, (3, 1, "same", 2), SEQUENCE, TIME),
    "DepthwiseConv2D": (L.DepthwiseConv2D, (3, 2, "same"), IMAGE, PLACE),
    "SeparableConv1D": (L.SeparableConv1D, (3, 3), SEQUENCE, TIME),
    "SeparableConv2D": (L.SeparableConv2D, (3, 3, 2, "same"), IMAGE, PLACE),
    "Max1": (L.MaxPooling1D, (), SEQUENCE, TIME),
    "Max2": (L.MaxPooling2D, (3, 2, "same"), IMAGE, PLACE),
    "Max3": (L.MaxPooling3D, (), VOLUME, {}),
    "Average1": (L.AveragePooling1D, (2,), SEQUENCE, TIME),
    "Average2": (L.AveragePooling2D, (3, 2, "same"), IMAGE, PLACE),
    "Average3": (L.AveragePooling3D, (2,), VOLUME, {}),
    "AdaptiveAverage1": (L.AdaptiveAveragePooling1D, (3,), SEQUENCE, {}),
    "AdaptiveAverage2": (L.AdaptiveAveragePooling2D, ((4, 3),), IMAGE, {}),
    "AdaptiveAverage3": (L.AdaptiveAveragePooling3D, (2,), VOLUME, {}),
    "AdaptiveMax1": (L.AdaptiveMaxPooling1D, (3,), SEQUENCE, {}),
    "AdaptiveMax2": (L.AdaptiveMaxPooling2D, ((4, 3),), IMAGE, {}),
    "AdaptiveMax3": (L.AdaptiveMaxPooling3D, (2,), VOLUME, {}),
    "GlobalAverage1": (L.GlobalAveragePooling1D, (), SEQUENCE, TIME),
    "GlobalAverage2": (L.GlobalAveragePooling2D, (), IMAGE, PLACE),
    "GlobalAverage3": (L.GlobalAveragePooling3D, (None, True), VOLUME, {}),
    "GlobalMax1": (L.GlobalMaxPooling1D, (), SEQUENCE, TIME),
    "GlobalMax2": (L.GlobalMaxPooling2D, (), IMAGE, PLACE),
    "GlobalMax3": (L.GlobalMaxPooling3D, (), VOLUME, {}),
    "BatchNormalization": (L.BatchNormalization, (), IMAGE, {"mixes_rows": True}),
    "BatchNormalization-renorm": (
        partial(L.BatchNormalization, renorm=True, renorm_clipping={"rmax": 3.0}),
        (1, 0.9),
        FLAT,
        {"mixes_rows": True},
    ),
    "LayerNormalization": (L.LayerNormalization, (), SEQUENCE, TIME),
    "LayerNormalization-axes": (L.LayerNormalization, ([1, 2],), SEQUENCE, {}),
    "RMSNormalization": (L.RMSNormalization, (), SEQUENCE, TIME),
    "GroupNormalization": (L.GroupNormalization, (2,), IMAGE, PLACE),
    "UnitNormalization": (L.UnitNormalization, (), SEQUENCE, TIME),
    "Dropout": (L.Dropout, (0.4,), FLAT, {"random": True, **TIME}),
    "Dropout-shared": (L.Dropout, (0.4, (None, 1, None)), SEQUENCE, {"random": True}),
    "SpatialDropout1D": (L.SpatialDropout1D, (0.4,), SEQUENCE, {"random": True}),
    "SpatialDropout2D": (L.SpatialDropout2D, (0.4,), IMAGE, {"random": True}),
    "SpatialDropout3D": (L.SpatialDropout3D, (0.4,), VOLUME, {"random": True}),
    "GaussianNoise": (L.GaussianNoise, (0.4,), FLAT, {"random": True}),
    "GaussianDropout": (L.GaussianDropout, (0.4, 7), FLAT, {"random": True}),
    "AlphaDropout": (L.AlphaDropout, (0.4,), FLAT, {"random": True}),
    "ActivityRegularization": (L.ActivityRegularization, (0.1, 0.2), FLAT, {}),
    "Flatten": (L.Flatten, (), IMAGE, PLACE),
    "Reshape": (L.Reshape, ((-1, 2),), SEQUENCE, TIME),
    "Permute": (L.Permute, ((2, 1),), SEQUENCE, TIME),
    "RepeatVector": (L.RepeatVector, (3,), FLAT, TIME),
    "ZeroPadding1D": (L.ZeroPadding1D, ((1, 2),), SEQUENCE, TIME),
    "ZeroPadding2D": (L.ZeroPadding2D, ((1, 2),), IMAGE, PLACE),
    "ZeroPadding3D": (L.ZeroPadding3D, (), VOLUME, {}),
    "Cropping1D": (L.Cropping1D, ((1, 2),), SEQUENCE, TIME),
    "Cropping2D": (L.Cropping2D, (((1, 0), (0, 2)),), IMAGE, PLACE),
    "Cropping3D": (L.Cropping3D, (), VOLUME, {}),
    "UpSampling1D": (L.UpSampling1D, (), SEQUENCE, TIME),
    "UpSampling2D": (L.UpSampling2D, ((2, 3),), IMAGE, PLACE),
    "UpSampling2D-bilinear": (L.UpSampling2D, (2, None, "bilinear"), IMAGE, {}),
    "UpSampling3D": (L.UpSampling3D, (), VOLUME, {}),
    "Add": (L.Add, (), TWO, TIME),
    "Subtract": (L.Subtract, (), TWO, TIME),
    "Multiply": (L.Multiply, (), TWO, TIME),
    "Average": (L.Average, (), TWO, TIME),
    "Maximum": (L.Maximum, (), TWO, TIME),
    "Minimum": (L.Minimum, (), TWO, TIME),
    "Add-ranks": (L.Add, (), [FLAT[:, :4], SEQUENCE], {}),
    "Concatenate": (L.Concatenate, (), TWO, TIME),
    "Concatenate-time": (L.Concatenate, (1,), TWO, TIME),
    "Dot": (L.Dot, (2, True), TWO, TIME),
    "SpectralNormalization": (
        lambda *a, **k: L.SpectralNormalization(L.Dense(3, dtype=k.get("dtype")), **k),
        (),
        FLAT,
        {},
    ),
    "Wrapper": (
        lambda *a, **k: L.Wrapper(L.Dense(3, dtype=k.get("dtype")), **k),
        (),
        FLAT,
        {},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_contract(name):
    cls, args, x, options = CASES[name]
    check_layer(partial(cls, *args), x, **options)


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
