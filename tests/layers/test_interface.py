"""Names, arguments and errors of layers."""

import inspect
import json

import keras
import numpy as np
import pytest

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

X = np.random.default_rng(0).normal(size=(4, 6)).astype("float32")


# ------------------------------------------------------------------------ names
def test_functional_forms():
    two = [X, X + 1]
    for name in ("add", "subtract", "multiply", "average", "maximum", "minimum"):
        result = getattr(L, name)(two)
        np.testing.assert_array_equal(result, getattr(L, name.capitalize())()(two))
    assert L.concatenate(two, axis=0).shape == (8, 6)
    assert L.dot(two, axes=1, normalize=True).shape == (4, 1)
    symbol = L.add([L.Input(3), L.Input(3)])
    assert symbol.shape == (None, 3)


def test_serialize_and_deserialize():
    layer = L.deserialize(L.serialize(L.Dense(3, "relu", name="head")))
    assert (layer.units, layer.name) == (3, "head")

    class Odd(L.Dense):
        pass

    config = L.serialize(Odd(2))
    assert isinstance(L.deserialize(config, {"Odd": Odd}), Odd)


def test_image_data_format_is_the_default():
    from exburn.layers import layout

    assert layout.image_data_format() == "channels_last"
    layout.set_image_data_format("channels_first")
    try:
        assert L.MaxPooling2D()(np.ones((1, 3, 8, 8))).shape == (1, 3, 4, 4)
    finally:
        layout.set_image_data_format("channels_last")


# ----------------------------------------------------------------------- errors
BAD_ARGUMENTS = [
    (lambda: L.Dense(0), "units must be an integer ≥ 1"),
    (lambda: L.Dense(2.5), "units must be an integer"),
    (lambda: L.RepeatVector(0), "n must be an integer ≥ 1"),
    (lambda: L.MultiHeadAttention(2, 4, value_dim=0), "value_dim must be an integer"),
    (lambda: L.MultiHeadAttention(2, 4, rotary=True), "rotary must be a layer"),
    (lambda: L.Dense(3, kernel_size=2), "unknown argument 'kernel_size'"),
    (lambda: L.Conv2D(3, (1, 2, 3)), "kernel_size is an integer or 2 of them"),
    (lambda: L.Conv2D(3, 3, padding="causal"), "padding is one of valid, same"),
    (lambda: L.Conv2D(3, 3, groups=2), "groups=2 does not divide filters=3"),
    (lambda: L.Conv2D(3, 3, 2, dilation_rate=2), "exclude each other"),
    (lambda: L.Conv2DTranspose(3, 3, 2, output_padding=2), "smaller than strides"),
    (lambda: L.MaxPooling2D(0), "pool_size must be an integer ≥ 1"),
    (lambda: L.Flatten("last"), "data_format is one of"),
    (lambda: L.Dropout(1.5), "0 <= rate <= 1"),
    (lambda: L.Dropout(0.5, noise_shape=(0,)), "noise_shape"),
    (lambda: L.GaussianNoise(-1), "stddev must be a number ≥ 0"),
    (lambda: L.AlphaDropout(1), "0 <= rate < 1"),
    (lambda: L.ReLU(max_value=-1), "max_value is >= 0"),
    (lambda: L.LeakyReLU(None), "negative_slope"),
    (lambda: L.Permute((0, 1)), "dims holds 1 to 2"),
    (lambda: L.Reshape((-1, -1)), "one -1 at most"),
    (lambda: L.Dot(0), "not the batch's"),
    (lambda: L.EinsumDense("ab->b", 3), "not an equation"),
    (lambda: L.EinsumDense("ab,bc->ad", 3), "not an equation"),
    (lambda: L.EinsumDense("ab,bc->ac", 3, bias_axes="x"), "bias_axes"),
    (lambda: L.GroupNormalization(0), "groups must be an integer ≥ 1"),
    (lambda: L.BatchNormalization(renorm_clipping={"rmax": 1, "rmin": 2}), "rmin <="),
    (lambda: L.Wrapper(3), "a layer is needed"),
    (lambda: L.ModuleLayer(3), "an nnx.Module is needed"),
    (lambda: L.Lambda(3), "a function is needed"),
    (lambda: L.ZeroPadding2D((1, 2, 3)), "padding has 2 entries"),
    (lambda: L.UpSampling2D(interpolation="cubic"), "interpolation is one of"),
    (lambda: L.Add()(X), "a list of inputs is needed"),
    (lambda: L.Subtract()([X, X, X]), "two inputs are needed"),
    (lambda: L.SpectralNormalization(L.Flatten())(X), "neither a kernel"),
]


@pytest.mark.parametrize(
    ("make", "text"), BAD_ARGUMENTS, ids=[t for _, t in BAD_ARGUMENTS]
)
def test_arguments_that_cannot_work(make, text):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)


IMAGE = np.ones((2, 4, 4, 3), "float32")
BAD_SHAPES = [
    (L.Conv2D(3, 5), IMAGE, "window is larger than the input"),
    (L.MaxPooling2D(5), IMAGE, "window is larger than the input"),
    (L.Conv2D(3, 3), X, "an input of rank 4"),
    (L.Conv2D(4, 3, groups=2), IMAGE, "does not divide the 3 input channels"),
    (L.Cropping2D(2), IMAGE, "leaves nothing of axis 1"),
    (L.Reshape((5, 5)), X, "6 entries a sample"),
    (L.Reshape((-1, 4)), X, "6 entries a sample"),
    (L.Add(), [X, X[:, :4]], "the inputs do not broadcast"),
    (L.Concatenate(1), [X, X[:2]], "may differ on axis 1 only"),
    (L.Dot(1), [X, X[:, :4]], "differ"),
    (L.GroupNormalization(4), X, "must divide the number of channels"),
    (L.EinsumDense("abc,cd->abd", (None, 3)), X, "must have the axes 'abc'"),
    (L.EinsumDense("ab,bc->ac", (3, 3)), X, "one entry for each"),
    (L.RepeatVector(3), IMAGE, "rank 2"),
]


@pytest.mark.parametrize(
    ("layer", "x", "text"), BAD_SHAPES, ids=[b[2] for b in BAD_SHAPES]
)
def test_shapes_that_do_not_fit(layer, x, text):
    with pytest.raises(ShapeError) as caught:
        layer(x)
    assert text in str(caught.value)
    assert any("in layer" in note for note in caught.value.__notes__)


def test_a_layer_keeps_to_the_size_it_was_built_for():
    layer = L.Dense(3)
    layer(X)
    with pytest.raises(ShapeError, match="size 6 on axis -1"):
        layer(X[:, :5])


def test_public_names_are_classes_and_functions_of_keras():
    keras_layers = keras.layers
    ours = set(L.__all__)
    own = {"Function", "ModuleLayer"}
    assert own <= ours and exburn.layers is L
    assert all(not hasattr(keras_layers, name) for name in own)
    assert {"Dense", "Conv2D", "AvgPool2D", "concatenate"} <= ours


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


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in L.__all__
        if inspect.isclass(getattr(L, name))
        and getattr(L, name).__module__.split(".")[2:3]
        and getattr(L, name).__module__.split(".")[2] in MY_FAMILIES
        and name not in ("Function", "ModuleLayer")
    ],
)
def test_arguments_and_defaults_are_those_of_keras(name):
    ours = parameters(getattr(L, name))
    theirs = parameters(getattr(keras.layers, name))
    if theirs.get("pool_size") is inspect.Parameter.empty:
        theirs["pool_size"] = 2
    assert ours == theirs


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


@pytest.mark.parametrize(("name", "arguments"), SETTLED)
def test_sizes_in_configurations_are_those_of_keras(name, arguments):
    ours, theirs = (getattr(m.layers, name)(*arguments) for m in (exburn, keras))
    config, expected = ours.get_config(), theirs.get_config()
    both = config.keys() & expected.keys() & SIZES
    assert both and {k: config[k] for k in both} == {k: expected[k] for k in both}
    again = type(ours).from_config(json.loads(json.dumps(config)))
    assert again.get_config() == config


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
