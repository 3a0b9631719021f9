"""The layers whose export is tried, each as a small model.

`CASES` has for each name a function that makes the model. Inputs are drawn by `draw`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import exburn
from exburn import layers as L
from exburn import ops

FLAT, SEQUENCE, IMAGE, VOLUME = (6,), (8, 4), (6, 8, 4), (4, 5, 6, 2)
RGB = (12, 10, 3)
IDS = ((7,), "int32")

CASES: dict[str, Callable[[], exburn.Model]] = {}


def case(name: str, shape: Any, layer: Callable[[], Any]) -> None:
    """Adds the model of one layer, which is made when it is needed.

    Args:
        name: Its name.
        shape: Of the input, without rows; with a dtype; or a list of them.
        layer: Makes the layer, or a function of symbols.
    """

    def make() -> exburn.Model:
        shapes = shape if isinstance(shape, list) else [shape]
        inputs = [_input(entry) for entry in shapes]
        call = layer()
        given = inputs if isinstance(shape, list) else inputs[0]
        return exburn.Model(given, call(given))

    assert name not in CASES, name
    CASES[name] = make


def _input(entry: Any) -> Any:
    if len(entry) == 2 and isinstance(entry[1], str):
        return exburn.Input(entry[0], dtype=entry[1])
    return exburn.Input(entry)


def draw(model: exburn.Model, rows: int, seed: int = 0) -> Any:
    """Random inputs of a model; unknown sizes are 5."""
    rng = np.random.default_rng(seed)

    def one(spec: Any) -> np.ndarray:
        shape = [rows, *(n if isinstance(n, int) else 5 for n in spec.shape[1:])]
        kind = jnp.dtype(spec.dtype)
        if kind.kind in "iu":
            return rng.integers(0, 5, shape).astype(kind)
        if kind.kind == "b":
            return rng.integers(0, 2, shape).astype(bool)
        return rng.standard_normal(shape).astype(np.float32)

    return jax.tree.map(one, model.program_inputs)


def randomize(model: exburn.Model) -> exburn.Model:
    """The model with weights that are neither zeros nor ones."""
    rng = np.random.default_rng(1)
    for weight in model.weights:
        value = np.asarray(weight.numpy())
        if value.dtype.kind == "f":
            noise = rng.uniform(0.2, 0.9, value.shape).astype(value.dtype)
            at_rest = np.ptp(value) == 0 if value.size else False
            weight.assign(noise if at_rest else value)
    return model


# ------------------------------------------------------------------ core
case("dense", FLAT, lambda: L.Dense(5, "relu"))
case("dense of sequences", SEQUENCE, lambda: L.Dense(5))
case(
    "einsum dense",
    SEQUENCE,
    lambda: L.EinsumDense("abc,cd->abd", (None, 5), bias_axes="d"),
)
case("einsum dense heads", SEQUENCE, lambda: L.EinsumDense("abc,cde->adbe", (2, 8, 3)))
case("embedding", IDS, lambda: L.Embedding(10, 4))
case(
    "embedding and mask",
    IDS,
    lambda: lambda x: L.LSTM(3)(L.Embedding(10, 4, mask_zero=True)(x)),
)
case("reversible embedding", IDS, lambda: _tied)
case("identity", FLAT, L.Identity)
case("rescaling", FLAT, lambda: L.Rescaling(2.0, 1.0))
case("masking", SEQUENCE, lambda: lambda x: L.GRU(3)(L.Masking()(ops.relu(x))))
case(
    "lambda",
    FLAT,
    lambda: L.Lambda(lambda x: jnp.sort(x, -1) + x.sum(-1, keepdims=True)),
)

for name in (
    "elu selu softplus softsign relu relu6 leaky_relu gelu silu mish tanh sigmoid "
    "hard_sigmoid hard_silu hard_tanh exponential linear softmax log_softmax celu glu "
    "soft_shrink hard_shrink squareplus tanh_shrink log_sigmoid sparse_plus "
    "sparse_sigmoid sparsemax"
).split():
    case(f"activation {name}", FLAT, lambda name=name: L.Activation(name))
case("gelu exact", FLAT, lambda: lambda x: ops.gelu(x, approximate=False))
case("prelu", IMAGE, lambda: L.PReLU(shared_axes=(1, 2)))
case("softmax of axes", IMAGE, lambda: L.Softmax(axis=(1, 2)))

# ------------------------------------------------------------------ convolutions
for padding in ("valid", "same", "causal"):
    case(
        f"conv1d {padding}",
        SEQUENCE,
        lambda padding=padding: L.Conv1D(3, 3, padding=padding),
    )
for padding in ("valid", "same"):
    case(
        f"conv2d {padding}",
        IMAGE,
        lambda p=padding: L.Conv2D(3, (3, 2), strides=2, padding=p),
    )
    case(
        f"depthwise {padding}",
        IMAGE,
        lambda p=padding: L.DepthwiseConv2D(3, padding=p, depth_multiplier=2),
    )
    case(
        f"separable {padding}",
        IMAGE,
        lambda p=padding: L.SeparableConv2D(5, 3, padding=p),
    )
    for strides in (1, 2, 3):
        case(
            f"conv2d transpose {padding} {strides}",
            IMAGE,
            lambda p=padding, s=strides: L.Conv2DTranspose(3, 3, strides=s, padding=p),
        )
    case(
        f"conv1d transpose {padding}",
        SEQUENCE,
        lambda p=padding: L.Conv1DTranspose(3, 2, strides=3, padding=p),
    )
    case(
        f"conv3d transpose {padding}",
        VOLUME,
        lambda p=padding: L.Conv3DTranspose(3, 2, strides=2, padding=p),
    )
case(
    "conv2d transpose output padding",
    IMAGE,
    lambda: L.Conv2DTranspose(3, 3, 2, output_padding=1),
)
case(
    "conv2d transpose dilated", IMAGE, lambda: L.Conv2DTranspose(3, 3, dilation_rate=2)
)
case("conv2d dilated", IMAGE, lambda: L.Conv2D(3, 2, dilation_rate=2, padding="same"))
case("conv2d groups", IMAGE, lambda: L.Conv2D(6, 3, groups=2))
case(
    "conv2d channels first",
    (4, 6, 8),
    lambda: L.Conv2D(3, 3, data_format="channels_first"),
)
case("conv3d", VOLUME, lambda: L.Conv3D(3, 2))
case("depthwise1d", SEQUENCE, lambda: L.DepthwiseConv1D(3))
case("separable1d", SEQUENCE, lambda: L.SeparableConv1D(5, 3))

# ------------------------------------------------------------------ pooling
for kind in ("Max", "Average"):
    for padding in ("valid", "same"):
        case(
            f"{kind} 1d {padding}",
            SEQUENCE,
            lambda k=kind, p=padding: getattr(L, f"{k}Pooling1D")(3, 2, padding=p),
        )
        case(
            f"{kind} 2d {padding}",
            IMAGE,
            lambda k=kind, p=padding: getattr(L, f"{k}Pooling2D")((2, 3), padding=p),
        )
    case(f"{kind} 3d", VOLUME, lambda k=kind: getattr(L, f"{k}Pooling3D")(2))
    case(
        f"{kind} 2d first",
        (4, 6, 8),
        lambda k=kind: getattr(L, f"{k}Pooling2D")(2, data_format="channels_first"),
    )
    case(f"Global{kind}", IMAGE, lambda k=kind: getattr(L, f"Global{k}Pooling2D")())
    case(
        f"Adaptive{kind}",
        IMAGE,
        lambda k=kind: getattr(L, f"Adaptive{k}Pooling2D")((3, 5)),
    )

# ------------------------------------------------------------------ normalization
case("batch normalization", IMAGE, L.BatchNormalization)
case("layer normalization", SEQUENCE, L.LayerNormalization)
case("layer normalization of axes", IMAGE, lambda: L.LayerNormalization(axis=(1, 2)))
case("group normalization", IMAGE, lambda: L.GroupNormalization(2))
case("rms normalization", SEQUENCE, L.RMSNormalization)
case("unit normalization", FLAT, L.UnitNormalization)
case("spectral normalization", FLAT, lambda: L.SpectralNormalization(L.Dense(3)))

# ------------------------------------------------------------------ recurrence
for kind in ("SimpleRNN", "LSTM", "GRU"):
    case(f"{kind}", SEQUENCE, lambda k=kind: getattr(L, k)(3))
    case(
        f"{kind} sequences back",
        SEQUENCE,
        lambda k=kind: getattr(L, k)(3, return_sequences=True, go_backwards=True),
    )
case("lstm of any length", (None, 4), lambda: L.LSTM(3, return_sequences=True))
case("gru states", SEQUENCE, lambda: L.GRU(3, return_state=True))
case("gru reset before", SEQUENCE, lambda: L.GRU(3, reset_after=False, unroll=True))
case(
    "bidirectional", SEQUENCE, lambda: L.Bidirectional(L.LSTM(3, return_sequences=True))
)
case("stacked cells", SEQUENCE, lambda: L.RNN([L.LSTMCell(3), L.GRUCell(2)]))
case("conv lstm", (3, 5, 6, 2), lambda: L.ConvLSTM2D(2, 3, padding="same"))
case("time distributed", (5, 6, 7, 2), lambda: L.TimeDistributed(L.Conv2D(3, 2)))

# ------------------------------------------------------------------ attention
case("attention", [SEQUENCE, SEQUENCE], L.Attention)
case("additive attention", [SEQUENCE, SEQUENCE], L.AdditiveAttention)
case(
    "multi head attention",
    [SEQUENCE, (5, 4)],
    lambda: lambda x: L.MultiHeadAttention(2, 3)(*x),
)
case(
    "causal attention",
    SEQUENCE,
    lambda: lambda x: L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True),
)
case("masked attention", IDS, lambda: _masked_attention)
case(
    "grouped query attention",
    SEQUENCE,
    lambda: lambda x: L.GroupedQueryAttention(4, 4, 2)(x, x),
)
case("rotary embedding", (8, 2, 4), L.RotaryEmbedding)
case(
    "attention of any length",
    (None, 4),
    lambda: lambda x: L.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True),
)

# ------------------------------------------------------------------ merging, shapes
for name in (
    "Add",
    "Subtract",
    "Multiply",
    "Average",
    "Maximum",
    "Minimum",
    "Concatenate",
):
    case(name, [SEQUENCE, SEQUENCE], lambda name=name: getattr(L, name)())
case("dot", [SEQUENCE, SEQUENCE], lambda: L.Dot(axes=(2, 2), normalize=True))
case("add and broadcast", [SEQUENCE, (1, 4)], L.Add)
case("flatten", IMAGE, L.Flatten)
case("reshape", IMAGE, lambda: L.Reshape((-1, 8)))
case("permute", IMAGE, lambda: L.Permute((3, 1, 2)))
case("repeat vector", FLAT, lambda: L.RepeatVector(3))
case("cropping", IMAGE, lambda: L.Cropping2D(((1, 2), (0, 1))))
case("zero padding", IMAGE, lambda: L.ZeroPadding2D(((1, 2), (0, 3))))
case("up sampling nearest", IMAGE, lambda: L.UpSampling2D((2, 3)))
for how in ("bilinear", "bicubic", "lanczos5"):
    case(
        f"up sampling {how}",
        IMAGE,
        lambda how=how: L.UpSampling2D(2, interpolation=how),
    )
case("up sampling 1d", SEQUENCE, lambda: L.UpSampling1D(2))
case("up sampling 3d", VOLUME, lambda: L.UpSampling3D(2))

# ------------------------------------------------------------------ without effect
case("dropout", FLAT, lambda: L.Dropout(0.5))
case("gaussian noise", FLAT, lambda: L.GaussianNoise(0.5))
case("alpha dropout", FLAT, lambda: L.AlphaDropout(0.5))
case("spatial dropout", IMAGE, lambda: L.SpatialDropout2D(0.5))
case("activity regularization", FLAT, lambda: L.ActivityRegularization(0.1))
for name in ("RandomFlip", "RandomRotation", "RandomZoom", "RandomContrast"):
    case(
        name,
        RGB,
        lambda name=name: getattr(L, name)(*([] if name == "RandomFlip" else [0.2])),
    )

# ------------------------------------------------------------------ preprocessing
case("normalization", FLAT, lambda: L.Normalization(mean=[1.0] * 6, variance=[2.0] * 6))
for how in ("nearest", "bilinear", "bicubic"):
    case(f"resizing {how}", RGB, lambda how=how: L.Resizing(7, 15, interpolation=how))
case("resizing crop", RGB, lambda: L.Resizing(7, 7, crop_to_aspect_ratio=True))
case("center crop", RGB, lambda: L.CenterCrop(5, 6))
for mode in ("multi_hot", "one_hot", "count"):
    shape = ((1,), "int32") if mode == "one_hot" else IDS
    case(
        f"category {mode}",
        shape,
        lambda mode=mode: L.CategoryEncoding(6, output_mode=mode),
    )
case("discretization", FLAT, lambda: L.Discretization(bin_boundaries=[-1.0, 0.0, 1.0]))
case(
    "mel spectrogram",
    (400,),
    lambda: L.MelSpectrogram(fft_length=64, num_mel_bins=8, sequence_stride=32),
)
case(
    "stft spectrogram",
    (400, 1),
    lambda: L.STFTSpectrogram(frame_length=64, frame_step=32, fft_length=64),
)


def _tied(x: Any) -> Any:
    table = L.ReversibleEmbedding(10, 4)
    return table(table(x), reverse=True)


def _masked_attention(x: Any) -> Any:
    h = L.Embedding(10, 4, mask_zero=True)(x)
    return L.MultiHeadAttention(2, 3)(h, h)


# ------------------------------------------------------------------ operations
def _spectra(x: Any) -> Any:
    """Spectra of two axes, and the way back from one."""
    return L.Lambda(
        lambda v: (
            jnp.abs(jnp.fft.fft2(v)) + jnp.fft.irfft(jnp.fft.rfft(v, axis=1), axis=1)
        )
    )(x)


def op(name: str, shape: Any, function: Callable[[Any], Any]) -> None:
    case(f"op {name}", shape, lambda: function)


op("gather", [FLAT, ((3,), "int32")], lambda x: ops.take_along_axis(x[0], x[1], -1))
op("take", FLAT, lambda x: ops.take(x, [2, 0, 5], -1))
op("index", IMAGE, lambda x: x[:, 1, ::2, -1])
op("index by arrays", IMAGE, lambda x: x[:, np.array([0, 2]), np.array([1, 3])])
op("one hot", IDS, lambda x: ops.one_hot(x, 5))
op("where", FLAT, lambda x: ops.where(x > 0, x, -2.0 * x))
op("clip", FLAT, lambda x: ops.clip(x, -0.5, 0.5))
op("cumsum", SEQUENCE, lambda x: ops.cumsum(x, 1))
op("cumprod", SEQUENCE, lambda x: ops.cumprod(x, 1))
op("argmax", SEQUENCE, lambda x: ops.argmax(x, -1))
op("argsort", SEQUENCE, lambda x: ops.argsort(x, 1))
op("sort", SEQUENCE, lambda x: ops.sort(x, 1))
op("top k", SEQUENCE, lambda x: ops.top_k(x, 2))
op("logsumexp", SEQUENCE, lambda x: ops.logsumexp(x, 1))
op("std", SEQUENCE, lambda x: ops.std(x, (1, 2)))
op("prod", SEQUENCE, lambda x: ops.prod(x, 1))
op("any", SEQUENCE, lambda x: ops.any(x > 1, -1))
op("einsum", [SEQUENCE, SEQUENCE], lambda x: ops.einsum("bic,bjc->bij", x[0], x[1]))
op("matmul", [SEQUENCE, (4, 3)], lambda x: ops.matmul(x[0], x[1]))
op("pad reflect", SEQUENCE, lambda x: ops.pad(x, ((0, 0), (2, 1), (0, 0)), "reflect"))
op("roll", SEQUENCE, lambda x: ops.roll(x, 2, 1))
op("flip", SEQUENCE, lambda x: ops.flip(x, 1))
op("tile", SEQUENCE, lambda x: ops.tile(x, (1, 2, 3)))
op("repeat", SEQUENCE, lambda x: ops.repeat(x, 2, 1))
op("stack", SEQUENCE, lambda x: ops.stack([x, 2 * x], 1))
op("split", SEQUENCE, lambda x: ops.split(x, 2, 1))
op("scatter", FLAT, lambda x: ops.slice_update(x, [0, 1], x[:, :2] * 3))
op(
    "while",
    FLAT,
    lambda x: ops.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * 1.5), (0, x))[
        1
    ],
)
op("cond", FLAT, lambda x: ops.cond(ops.sum(x) > 0, lambda: x + 1, lambda: x - 1))
op("fori", FLAT, lambda x: ops.fori_loop(0, 4, lambda i, v: v + i, x))
op("map", SEQUENCE, lambda x: ops.map(lambda row: row * 2 + 1, x))
op("tri", SEQUENCE, lambda x: ops.tril(x))
op("erf", FLAT, ops.erf)
op("trigonometry", FLAT, lambda x: ops.sin(x) + ops.arctan2(x, x + 1) + ops.arctan(x))
op("logs", FLAT, lambda x: ops.log1p(ops.abs(x)) + ops.expm1(x) + ops.rsqrt(x * x + 1))
op("rounding", FLAT, lambda x: ops.round(x) + ops.floor(x) + ops.ceil(x) + ops.sign(x))
op("ties", FLAT, lambda x: ops.round(ops.floor(x * 4) / 2))
op("fourier", SEQUENCE, _spectra)
op("modulo", FLAT, lambda x: ops.mod(x, 0.7) + ops.power(ops.abs(x), 1.3))
op(
    "integers",
    IDS,
    lambda x: (
        (x // 2) * 3
        - x % 2
        + ops.left_shift(x, 1)
        - ops.right_shift(x, 1)
        + ops.bitwise_and(x, 1)
        + ops.bitwise_or(x, 2)
    ),
)
op("logic", IDS, lambda x: ops.logical_xor(x > 1, ops.logical_not(x == 3)))
op(
    "cast",
    FLAT,
    lambda x: (
        ops.cast(ops.cast(x * 3, "int32"), "float32") + ops.cast(x > 0, "float32")
    ),
)
op("normalize", FLAT, lambda x: ops.normalize(x, -1))
op("moments", IMAGE, lambda x: ops.moments(x, (1, 2)))
op("image resize", RGB, lambda x: ops.image.resize(x, (5, 20)))
op("extract patches", RGB, lambda x: ops.image.extract_patches(x, (3, 3)))
op(
    "segment sum",
    FLAT,
    lambda x: ops.transpose(
        ops.segment_sum(ops.transpose(x), np.array([0, 0, 1, 2, 2, 1]), 3)
    ),
)
op(
    "searchsorted",
    FLAT,
    lambda x: ops.reshape(
        ops.searchsorted(np.array([-1.0, 0.0, 1.0], "float32"), ops.reshape(x, (-1,))),
        (-1, 6),
    ),
)
op(
    "unfold",
    IMAGE,
    lambda x: ops.image.extract_patches(x, 2, strides=1, padding="same"),
)
op("vectorized", SEQUENCE, lambda x: ops.vectorized_map(lambda v: v @ v.T, x))
