"""Layers against Keras' of the same weights: outputs, gradients and states."""

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import nnx

from exburn import layers as L
from exburn.core import forward_context


def data(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def score(y):
    """A scalar in which every entry of the output has its own weight."""
    return jnp.sum(y * jnp.cos(jnp.arange(y.size)).reshape(y.shape))


def run(layer, x, training=False, **kwargs):
    """Outputs, gradients of weights and inputs, and the other weights afterwards."""
    graph, state = nnx.split(layer)
    learned = {w.name: w.get_value() for w in layer.trainable_weights}

    def loss(learned, x):
        module = nnx.merge(graph, state, copy=True)
        weights = {w.name: w for w in module.weights}
        for name, value in learned.items():
            weights[name].set_raw_value(value)
        with forward_context.forward(forward_context.Context(training=training)):
            y = module(x, **kwargs)
        others = {w.name: w.get_value() for w in module.non_trainable_weights}
        return score(y), (y, others)

    program = jax.jit(jax.grad(loss, (0, 1), has_aux=True))
    (grads, into), (y, others) = program(learned, x)
    after = [others[w.name] for w in layer.non_trainable_weights]
    return y, [grads[name] for name in learned], into, after


def run_peer(layer, x, training=None, **kwargs):
    """The same of Keras' layer."""
    learned = [v.value for v in layer.trainable_variables]
    others = [v.value for v in layer.non_trainable_variables]
    if training is not None:
        kwargs["training"] = training

    def loss(learned, x):
        y, after = layer.stateless_call(learned, others, x, **kwargs)
        return score(y), (y, after)

    (grads, into), (y, after) = jax.jit(jax.grad(loss, (0, 1), has_aux=True))(
        learned, x
    )
    return y, grads, into, after


def compare(ours, theirs):
    for a, b, tolerance in zip(ours, theirs, (1e-5, 1e-4, 1e-4, 1e-5), strict=True):
        a, b = jax.tree.leaves(a), jax.tree.leaves(b)
        assert [v.shape for v in a] == [v.shape for v in b]
        for x, y in zip(a, b, strict=True):
            assert np.isfinite(y).all()
            np.testing.assert_allclose(x, y, rtol=tolerance, atol=tolerance)


FLAT = data(4, 6)
SEQUENCE = data(2, 9, 4)
IMAGE = data(2, 7, 8, 4)
VOLUME = data(2, 5, 6, 5, 2)
FIRST = {"data_format": "channels_first"}
A, B, C = data(3, 4, 5), data(3, 4, 5, seed=1), data(3, 4, 5, seed=2)

CASES = [
    ("Dense", {"units": 3}, FLAT),
    ("Dense", {"units": 3, "activation": "gelu", "use_bias": False}, SEQUENCE),
    ("EinsumDense", {"equation": "ab,bc->ac", "output_shape": 3}, FLAT),
    (
        "EinsumDense",
        {
            "equation": "abc,cde->abde",
            "output_shape": (None, 2, 3),
            "bias_axes": "de",
            "activation": "tanh",
        },
        SEQUENCE,
    ),
    (
        "EinsumDense",
        {"equation": "...x,xy->...y", "output_shape": 3, "bias_axes": "y"},
        IMAGE,
    ),
    (
        "EinsumDense",
        {"equation": "ab...,bc->ac...", "output_shape": 3, "bias_axes": "c"},
        IMAGE,
    ),
    (
        "EinsumDense",
        {"equation": "abc,cb->abc", "output_shape": (9, 4), "bias_axes": "b"},
        SEQUENCE,
    ),
    ("Rescaling", {"scale": 0.1, "offset": -2.0}, FLAT),
    ("ReLU", {}, FLAT),
    ("ReLU", {"max_value": 1.0, "threshold": 0.3, "negative_slope": 0.2}, FLAT),
    ("ReLU", {"max_value": 6, "negative_slope": 0.1}, FLAT * 5),
    ("LeakyReLU", {}, FLAT),
    ("LeakyReLU", {"negative_slope": 0.05}, FLAT),
    ("PReLU", {}, SEQUENCE),
    ("PReLU", {"shared_axes": [1, 2]}, IMAGE),
    ("ELU", {"alpha": 0.7}, FLAT),
    ("Softmax", {}, SEQUENCE),
    ("Softmax", {"axis": [1, 2]}, IMAGE),
    ("Activation", {"activation": "swish"}, FLAT),
    ("Conv1D", {"filters": 3, "kernel_size": 4, "padding": "causal"}, SEQUENCE),
    ("Conv1D", {"filters": 3, "kernel_size": 3, "dilation_rate": 2}, SEQUENCE),
    (
        "Conv1D",
        {"filters": 4, "kernel_size": 3, "padding": "causal", "dilation_rate": 3}
        | {"groups": 2, "activation": "relu"},
        SEQUENCE,
    ),
    ("Conv2D", {"filters": 3, "kernel_size": 3, "activation": "tanh"}, IMAGE),
    (
        "Conv2D",
        {"filters": 4, "kernel_size": (3, 2), "strides": (2, 1), "padding": "same"}
        | {"groups": 2, "use_bias": False},
        IMAGE,
    ),
    (
        "Conv2D",
        {"filters": 3, "kernel_size": 3, "dilation_rate": 2, "padding": "same"},
        IMAGE,
    ),
    ("Conv3D", {"filters": 3, "kernel_size": 2, "strides": 2}, VOLUME),
    ("Conv3D", {"filters": 2, "kernel_size": 3, "padding": "same"}, VOLUME),
    ("Conv1DTranspose", {"filters": 3, "kernel_size": 2, "strides": 3}, SEQUENCE),
    (
        "Conv1DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "output_padding": 1},
        SEQUENCE,
    ),
    (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": 3, "strides": 2, "padding": "same"},
        IMAGE,
    ),
    (
        "Conv2DTranspose",
        {"filters": 3, "kernel_size": (4, 5), "strides": (2, 3), "padding": "same"}
        | {"output_padding": (0, 1), "activation": "relu"},
        IMAGE,
    ),
    ("Conv2DTranspose", {"filters": 3, "kernel_size": 3, "dilation_rate": 2}, IMAGE),
    ("Conv3DTranspose", {"filters": 3, "kernel_size": 3, "strides": 2}, VOLUME),
    ("DepthwiseConv1D", {"kernel_size": 3, "depth_multiplier": 2}, SEQUENCE),
    (
        "DepthwiseConv2D",
        {"kernel_size": 3, "strides": 2, "padding": "same", "depth_multiplier": 2},
        IMAGE,
    ),
    ("DepthwiseConv2D", {"kernel_size": 3, "dilation_rate": 2}, IMAGE),
    ("SeparableConv1D", {"filters": 3, "kernel_size": 3, "padding": "same"}, SEQUENCE),
    (
        "SeparableConv2D",
        {"filters": 5, "kernel_size": 3, "strides": 2, "depth_multiplier": 2}
        | {"activation": "relu"},
        IMAGE,
    ),
    ("MaxPooling1D", {"pool_size": 3, "strides": 2}, SEQUENCE),
    ("MaxPooling2D", {}, IMAGE),
    ("MaxPooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}, IMAGE),
    ("MaxPooling2D", {"pool_size": (2, 1), "padding": "same"} | FIRST, IMAGE),
    ("MaxPooling3D", {"pool_size": (2, 3, 1), "padding": "same"}, VOLUME),
    ("AveragePooling1D", {"pool_size": 2}, SEQUENCE),
    ("AveragePooling2D", {"pool_size": 3, "strides": 2, "padding": "same"}, IMAGE),
    ("AveragePooling2D", {"pool_size": (2, 3), "padding": "same"} | FIRST, IMAGE),
    ("AveragePooling3D", {"pool_size": 2, "padding": "same"}, VOLUME),
    ("AdaptiveAveragePooling1D", {"output_size": 4}, SEQUENCE),
    ("AdaptiveAveragePooling2D", {"output_size": (3, 5)}, IMAGE),
    ("AdaptiveMaxPooling2D", {"output_size": (3, 5)} | FIRST, IMAGE),
    ("AdaptiveMaxPooling3D", {"output_size": 2}, VOLUME),
    ("GlobalAveragePooling1D", {}, SEQUENCE),
    ("GlobalAveragePooling2D", {"keepdims": True}, IMAGE),
    ("GlobalMaxPooling1D", {} | FIRST, SEQUENCE),
    ("GlobalMaxPooling3D", {"keepdims": True} | FIRST, VOLUME),
    ("LayerNormalization", {}, SEQUENCE),
    ("LayerNormalization", {"axis": [1, 2], "epsilon": 0.1, "center": False}, IMAGE),
    ("LayerNormalization", {"axis": 1, "scale": False}, SEQUENCE),
    ("RMSNormalization", {}, SEQUENCE),
    ("RMSNormalization", {"axis": [1, 2], "epsilon": 0.1}, SEQUENCE),
    ("GroupNormalization", {"groups": 2}, IMAGE),
    ("GroupNormalization", {"groups": -1, "axis": 1, "epsilon": 0.1}, IMAGE),
    ("UnitNormalization", {}, SEQUENCE),
    ("UnitNormalization", {"axis": [1, 2]}, IMAGE),
    ("Flatten", {}, IMAGE),
    ("Flatten", {} | FIRST, IMAGE),
    ("Reshape", {"target_shape": (-1, 6)}, SEQUENCE),
    ("Permute", {"dims": (3, 1, 2)}, IMAGE),
    ("RepeatVector", {"n": 3}, FLAT),
    ("ZeroPadding1D", {"padding": (2, 1)}, SEQUENCE),
    ("ZeroPadding2D", {"padding": ((1, 2), (0, 3))} | FIRST, IMAGE),
    ("ZeroPadding3D", {"padding": 2}, VOLUME),
    ("Cropping1D", {"cropping": (2, 1)}, SEQUENCE),
    ("Cropping2D", {"cropping": ((1, 2), (0, 3))}, IMAGE),
    ("Cropping3D", {"cropping": (1, 2, 0)}, VOLUME),
    ("UpSampling1D", {"size": 3}, SEQUENCE),
    ("UpSampling2D", {"size": (2, 3)} | FIRST, IMAGE),
    ("UpSampling2D", {"size": (2, 3), "interpolation": "bilinear"}, IMAGE),
    ("UpSampling2D", {"size": 2, "interpolation": "bicubic"}, IMAGE),
    ("UpSampling3D", {"size": (1, 2, 3)}, VOLUME),
    ("Add", {}, [A, B, C]),
    ("Add", {}, [A[:, 0], A]),
    ("Subtract", {}, [A, B[:, :1]]),
    ("Multiply", {}, [A, B, C]),
    ("Average", {}, [A, B, C]),
    ("Maximum", {}, [A, B, C]),
    ("Minimum", {}, [A, B, C]),
    ("Concatenate", {}, [A, B, C]),
    ("Concatenate", {"axis": 1}, [A, B[:, :2]]),
    ("Dot", {"axes": 1}, [A[:, 0], B[:, 0]]),
    ("Dot", {"axes": (2, 1)}, [A, data(3, 5, 2)]),
    ("Dot", {"axes": -1, "normalize": True}, [A, B]),
    ("Dot", {"axes": (1, 2)}, [A[:, 0], A]),
    ("LayerNormalization", {"axis": [1, 2], "rms_scaling": True}, SEQUENCE + 3),
]


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)]
)
def test_same_as_keras(name, options, x):
    layer, peer = getattr(L, name)(**options), getattr(keras.layers, name)(**options)
    peer.build(jax.tree.map(lambda v: v.shape, x))
    shape = jax.tree.map(lambda v: (None, *v.shape[1:]), x)
    inferred = layer.compute_output_shape(shape)
    if name != "EinsumDense":  # Keras 3.15 mixes up the axes that the dots stand for
        assert inferred == tuple(peer.compute_output_shape(shape))
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=w.shape).astype("float32") * 0.4 for w in peer.weights]
    peer.set_weights(weights)
    layer.set_weights(weights)
    assert [w.name for w in layer.weights] == [w.name for w in peer.weights]
    compare(run(layer, x), run_peer(peer, x))


NORMS = [
    ({}, IMAGE, None),
    ({"axis": 1, "momentum": 0.8, "epsilon": 0.1}, IMAGE, None),
    ({"center": False, "scale": False}, FLAT, None),
    ({"momentum": 0.5}, SEQUENCE, np.arange(18).reshape(2, 9) % 4 != 0),
    ({"renorm": True}, FLAT, None),
    (
        {"renorm": True, "renorm_clipping": {"rmin": 0.9, "rmax": 1.1, "dmax": 0.2}}
        | {"renorm_momentum": 0.7, "momentum": 0.6},
        IMAGE,
        None,
    ),
]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(("options", "x", "mask"), NORMS)
def test_batch_normalization(options, x, mask, training):
    layer, peer = (
        L.BatchNormalization(**options),
        keras.layers.BatchNormalization(**options),
    )
    peer.build(x.shape)
    layer(x)
    rng = np.random.default_rng(0)
    weights = [rng.uniform(0.5, 2, w.shape).astype("float32") for w in peer.weights]
    layer.set_weights(weights)
    peer.set_weights(weights)
    assert [w.name for w in layer.weights] == [w.name for w in peer.weights]
    kwargs = {} if mask is None else {"mask": mask}
    ours = run(layer, x, training, **kwargs)
    compare(ours, run_peer(peer, x, training, **kwargs))
    start = layer.non_trainable_weights
    changed = [np.any(a != w) for a, w in zip(ours[3], start, strict=True)]
    assert all(changed) if training else not any(changed)


def test_frozen_batch_normalization_is_in_inference_mode():
    options = {"momentum": 0.5, "trainable": False}
    layer, peer = (
        L.BatchNormalization(**options),
        keras.layers.BatchNormalization(**options),
    )
    np.testing.assert_allclose(layer(IMAGE, training=True), peer(IMAGE, training=True))
    assert layer.trainable_weights == []
    np.testing.assert_array_equal(layer.moving_mean.numpy(), 0)


def test_spectral_normalization():
    options = {"kernel_size": 3, "filters": 5}
    layer = L.SpectralNormalization(L.Conv2D(**options), 2)
    peer = keras.layers.SpectralNormalization(keras.layers.Conv2D(**options), 2)
    peer.build(IMAGE.shape)
    layer(IMAGE)
    ours = {w.name: w for w in layer.weights}
    for w in peer.weights:
        value = data(*w.shape)
        w.assign(value)
        ours[w.name].assign(value)
    compare(run(layer, IMAGE, True), run_peer(peer, IMAGE, True))


@pytest.mark.parametrize("options", [{}, {"keepdims": True}, FIRST])
def test_masked_average(options):
    mask = np.arange(18).reshape(2, 9) % 3 != 0
    x = np.swapaxes(SEQUENCE, 1, 2) if options is FIRST else SEQUENCE
    layer = L.GlobalAveragePooling1D(**options)
    peer = keras.layers.GlobalAveragePooling1D(**options)
    layer(x)
    compare(run(layer, x, mask=mask), run_peer(peer, x, mask=mask))


@pytest.mark.parametrize("axis", [-1, [1, 2]])
def test_masked_softmax(axis):
    mask = np.arange(72).reshape(2, 9, 4) % 5 != 0
    mask[0, 0] = False
    layer, peer = L.Softmax(axis), keras.layers.Softmax(axis)
    layer(SEQUENCE)
    compare(run(layer, SEQUENCE, mask=mask), run_peer(peer, SEQUENCE, mask=mask))
