"""Names, arguments and configurations of layers, for all of them."""

import inspect
import json

import numpy as np
import pytest
from tests.golden import keras

import exburn
from exburn import layers as L

LEFT_OUT = {"lora_rank", "lora_alpha", "quantization_config"} | {
    *("gptq_unpacked_column_size", "sparse", "ragged", "input_tensor")
}


def parameters(cls):
    """Names and defaults of a constructor; equal sizes as one number."""

    def plain(value):
        while isinstance(value, tuple) and value and len({*value}) == 1:
            value = value[0]
        return value

    found = inspect.signature(cls.__init__).parameters.values()
    named = [p for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
    base = {"self", "name", "dtype", "activity_regularizer"} | LEFT_OUT
    return {p.name: plain(p.default) for p in named if p.name not in base}


MY_FAMILIES = ("activation", "convolution", "core", "merging", "normalization")
MY_FAMILIES += ("pooling", "regularization", "reshaping")

SETTLED = [
    *(("Conv1D", (4, 3)), ("Conv2D", (4, 3, 2)), ("Conv3D", (4, (1, 2, 3)))),
    *(("Conv2DTranspose", (4, 3)), ("DepthwiseConv2D", (5,)), ("ConvLSTM2D", (4, 3))),
    *(
        ("SeparableConv1D", (4, 3)),
        ("MaxPooling2D", (2,)),
        ("AveragePooling1D", (2, 1)),
    ),
    *(("AdaptiveMaxPooling2D", (2,)), ("GlobalAveragePooling2D", ())),
    *(("ZeroPadding1D", (1,)), ("ZeroPadding2D", ((1, 2),)), ("ZeroPadding3D", (1,))),
    *(("Cropping1D", ((1, 2),)), ("Cropping2D", (((1, 2), (3, 4)),))),
    *(("UpSampling1D", (3,)), ("UpSampling2D", (2,)), ("Flatten", ())),
]

SIZES = {"kernel_size", "strides", "dilation_rate", "padding", "data_format", "size"}
SIZES |= {"pool_size", "output_size", "cropping"}

DESCRIBED = [
    *(("Dense", (3,), {}), ("Conv2D", (2, 3), {}), ("SeparableConv1D", (2, 3), {})),
    ("Dense", (3, "swish"), {"kernel_initializer": "he_normal"}),
    ("Embedding", (9, 2), {"embeddings_regularizer": "l2"}),
    *(("BatchNormalization", (), {}), ("PReLU", (), {})),
    ("MultiHeadAttention", (2, 4), {"kernel_constraint": "max_norm"}),
    *(("LSTM", (3,), {}), ("GRU", (3,), {"activation": None}), ("SimpleRNN", (3,), {})),
    ("ConvLSTM2D", (3, 2), {"zero_output_for_mask": True}),
]


def test_serialize_and_deserialize():
    layer = L.deserialize(L.serialize(L.Dense(3, "relu", name="head")))
    assert (layer.units, layer.name) == (3, "head")

    class Odd(L.Dense):
        pass

    config = L.serialize(Odd(2))
    assert isinstance(L.deserialize(config, {"Odd": Odd}), Odd)


def test_image_data_format_is_the_default():
    from exburn import config
    from exburn.layers.contract import layout

    assert layout.image_data_format() == "channels_last"
    config.set_image_data_format("channels_first")
    try:
        assert L.MaxPooling2D()(np.ones((1, 3, 8, 8))).shape == (1, 3, 4, 4)
    finally:
        config.set_image_data_format("channels_last")


OWN = {"MixtureOfExperts", "ModuleLayer", "ODE", "RouterLosses"}


def test_public_names_are_classes_and_functions_of_keras():
    keras_layers = keras.layers
    ours = set(L.__all__)
    own = {"TernaryDense", "Mosaic"} | OWN  # the first two: of Keras 3.16
    assert own <= ours and exburn.layers is L
    assert all(not hasattr(keras_layers, name) for name in own)
    assert {"Dense", "Conv2D", "AvgPool2D", "concatenate"} <= ours


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in L.__all__
        if inspect.isclass(getattr(L, name))
        and getattr(L, name).__module__.split(".")[2:3]
        and getattr(L, name).__module__.split(".")[2] in MY_FAMILIES
        and name not in {"TernaryDense", "Mosaic"} | OWN
    ],
)
def test_arguments_and_defaults_are_those_of_keras(name):
    ours = parameters(getattr(L, name))
    theirs = parameters(getattr(keras.layers, name))
    if theirs.get("pool_size") is inspect.Parameter.empty:
        theirs["pool_size"] = 2
    assert ours == theirs


@pytest.mark.parametrize(("name", "arguments"), SETTLED)
def test_sizes_in_configurations_are_those_of_keras(name, arguments):
    ours, theirs = (getattr(m.layers, name)(*arguments) for m in (exburn, keras))
    config, expected = ours.get_config(), theirs.get_config()
    both = config.keys() & expected.keys() & SIZES
    assert both and {k: config[k] for k in both} == {k: expected[k] for k in both}
    again = type(ours).from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config


@pytest.mark.parametrize(("name", "arguments", "options"), DESCRIBED)
def test_objects_in_configurations_are_those_of_keras(name, arguments, options):
    ours, theirs = (
        getattr(m.layers, name)(*arguments, **options) for m in (exburn, keras)
    )
    config, expected = ours.get_config(), theirs.get_config()
    left_out = {"name", "dtype", "quantization_config", "activity_regularizer"}
    assert expected.keys() - config.keys() <= left_out
    for key in expected.keys() - left_out:
        theirs = expected[key]
        if isinstance(theirs, dict):
            theirs = {**theirs, "module": theirs["module"].replace("keras", "exburn")}
        assert config[key] == theirs, key
    again = type(ours).from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config


def test_names_in_configurations_are_read():
    config = {"units": 2, "activation": None, "kernel_initializer": "ones"}
    layer = L.Dense.from_config(config)
    assert layer(np.ones((1, 3))).tolist() == [[3.0, 3.0]]
    assert layer.get_config()["kernel_initializer"]["class_name"] == "Ones"


def test_the_arguments_of_a_users_own_constructor_stay_what_they_were():
    class Halving(L.Conv2D):
        def __init__(self, filters, strides=1, **kwargs):
            super().__init__(filters, 3, strides=2 * strides, **kwargs)

    layer = Halving.from_config(Halving(4).get_config())
    assert layer.get_config()["strides"] == 1 and layer.strides == (2, 2)
