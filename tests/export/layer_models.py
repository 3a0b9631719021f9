"""One small model for each layer of the catalogue that has something to compute.

The grids of the export formats run over them. Weights and statistics are drawn, so that
a bias that is left out, or a mean that is taken for a variance, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import exburn
from exburn import layers

_RANDOM = np.random.default_rng(7)


def _floats(*shape: int) -> np.ndarray:
    return _RANDOM.standard_normal((3, *shape)).astype(np.float32)


def _integers(most: int, *shape: int) -> np.ndarray:
    return _RANDOM.integers(0, most, (3, *shape)).astype(np.int32)


SEQUENCE, IMAGE = _floats(10, 4), _floats(8, 9, 6)
VOLUME, ROW, WORDS = _floats(6, 6, 6, 2), _floats(5), _integers(9, 7)
POSITIVE_IMAGE = np.abs(_floats(8, 9, 3))
FILM = _floats(4, 6, 6, 2)


def _merge(make: Callable[[], Any]) -> Callable[[], Any]:
    def build():
        a, b = exburn.Input((5,)), exburn.Input((5,))
        return exburn.Model([a, b], make()([a, b]))

    return build


def _attention(make: Callable[[], Any], *, pair: bool = False) -> Callable[[], Any]:
    def build():
        a, b = exburn.Input((10, 4)), exburn.Input((10, 4))
        layer = make()
        return exburn.Model([a, b], layer([a, b]) if pair else layer(a, b))

    return build


# name: (what makes the layer, or a model; an input or several)
CASES: dict[str, tuple[Callable[[], Any], Any]] = {
    "Activation elu": (lambda: layers.Activation("elu"), ROW),
    "Activation exponential": (lambda: layers.Activation("exponential"), ROW),
    "Activation gelu": (lambda: layers.Activation("gelu"), ROW),
    "Activation hard_sigmoid": (lambda: layers.Activation("hard_sigmoid"), ROW),
    "Activation log_softmax": (lambda: layers.Activation("log_softmax"), ROW),
    "Activation mish": (lambda: layers.Activation("mish"), ROW),
    "Activation relu6": (lambda: layers.Activation("relu6"), ROW),
    "Activation selu": (lambda: layers.Activation("selu"), ROW),
    "Activation sigmoid": (lambda: layers.Activation("sigmoid"), ROW),
    "Activation silu": (lambda: layers.Activation("silu"), ROW),
    "Activation softplus": (lambda: layers.Activation("softplus"), ROW),
    "Activation softsign": (lambda: layers.Activation("softsign"), ROW),
    "Activation sparsemax": (lambda: layers.Activation("sparsemax"), ROW),
    "Activation tanh": (lambda: layers.Activation("tanh"), ROW),
    "AdaptiveAveragePooling2D": (lambda: layers.AdaptiveAveragePooling2D(4), IMAGE),
    "AdaptiveMaxPooling2D": (lambda: layers.AdaptiveMaxPooling2D(4), IMAGE),
    "Add": (_merge(layers.Add), [ROW, ROW[::-1]]),
    "AdditiveAttention": (
        _attention(layers.AdditiveAttention, pair=True),
        [SEQUENCE, SEQUENCE[::-1]],
    ),
    "AlphaDropout": (lambda: layers.AlphaDropout(0.5), ROW),
    "Attention": (_attention(layers.Attention, pair=True), [SEQUENCE, SEQUENCE[::-1]]),
    "Average": (_merge(layers.Average), [ROW, ROW[::-1]]),
    "AveragePooling1D": (lambda: layers.AveragePooling1D(2), SEQUENCE),
    "AveragePooling2D": (lambda: layers.AveragePooling2D(2), IMAGE),
    "AveragePooling2D same": (
        lambda: layers.AveragePooling2D(3, 2, padding="same"),
        IMAGE,
    ),
    "AveragePooling3D": (lambda: layers.AveragePooling3D(2), VOLUME),
    "BatchNormalization": (layers.BatchNormalization, IMAGE),
    "Bidirectional": (lambda: layers.Bidirectional(layers.GRU(3)), SEQUENCE),
    "CategoryEncoding": (
        lambda: layers.CategoryEncoding(9, output_mode="count"),
        WORDS,
    ),
    "CenterCrop": (lambda: layers.CenterCrop(4, 4), IMAGE),
    "Concatenate": (_merge(layers.Concatenate), [ROW, ROW[::-1]]),
    "Conv1D": (lambda: layers.Conv1D(5, 3), SEQUENCE),
    "Conv1D causal": (
        lambda: layers.Conv1D(5, 3, padding="causal", dilation_rate=2),
        SEQUENCE,
    ),
    "Conv1DTranspose": (lambda: layers.Conv1DTranspose(5, 3, strides=2), SEQUENCE),
    "Conv1DTranspose same": (
        lambda: layers.Conv1DTranspose(5, 3, strides=2, padding="same"),
        SEQUENCE,
    ),
    "Conv2D": (lambda: layers.Conv2D(5, 3), IMAGE),
    "Conv2D dilated": (lambda: layers.Conv2D(5, 3, dilation_rate=2), IMAGE),
    "Conv2D first": (
        lambda: layers.Conv2D(5, 3, data_format="channels_first"),
        IMAGE,
    ),
    "Conv2D grouped": (lambda: layers.Conv2D(8, 3, groups=2), IMAGE),
    "Conv2D pointwise": (lambda: layers.Conv2D(5, 1), IMAGE),
    "Conv2D strided": (lambda: layers.Conv2D(5, 3, strides=2, padding="same"), IMAGE),
    "Conv2DTranspose": (lambda: layers.Conv2DTranspose(5, 3, strides=2), IMAGE),
    "Conv2DTranspose same": (
        lambda: layers.Conv2DTranspose(5, 3, strides=2, padding="same"),
        IMAGE,
    ),
    "Conv2DTranspose padded": (
        lambda: layers.Conv2DTranspose(
            5, 3, strides=2, padding="same", output_padding=0
        ),
        IMAGE,
    ),
    "Conv2DTranspose apart": (lambda: layers.Conv2DTranspose(5, 2, strides=3), IMAGE),
    "Conv3D": (lambda: layers.Conv3D(3, 2), VOLUME),
    "Conv3DTranspose": (lambda: layers.Conv3DTranspose(3, 2, strides=2), VOLUME),
    "ConvLSTM2D": (lambda: layers.ConvLSTM2D(2, 3), FILM),
    "Cropping1D": (lambda: layers.Cropping1D(2), SEQUENCE),
    "Cropping2D": (lambda: layers.Cropping2D(2), IMAGE),
    "Cropping3D": (lambda: layers.Cropping3D(1), VOLUME),
    "Dense": (lambda: layers.Dense(4, activation="relu"), ROW),
    "Dense of sequences": (lambda: layers.Dense(4), SEQUENCE),
    "DepthwiseConv1D": (lambda: layers.DepthwiseConv1D(3), SEQUENCE),
    "DepthwiseConv2D": (
        lambda: layers.DepthwiseConv2D(3, strides=2, depth_multiplier=2),
        IMAGE,
    ),
    "Discretization": (lambda: layers.Discretization([-1.0, 0.0, 0.5]), ROW),
    "Dot": (_merge(lambda: layers.Dot(1)), [ROW, ROW[::-1]]),
    "Dropout": (lambda: layers.Dropout(0.5), ROW),
    "EinsumDense": (
        lambda: layers.EinsumDense("abc,cde->abde", (None, 2, 3), bias_axes="de"),
        SEQUENCE,
    ),
    "ELU": (lambda: layers.ELU(0.7), ROW),
    "Embedding": (lambda: layers.Embedding(9, 4), WORDS),
    "Embedding masked": (
        lambda: exburn.Sequential(
            [layers.Embedding(9, 4, mask_zero=True), layers.LSTM(3)]
        ),
        WORDS,
    ),
    "Flatten": (layers.Flatten, IMAGE),
    "GaussianDropout": (lambda: layers.GaussianDropout(0.5), ROW),
    "GaussianNoise": (lambda: layers.GaussianNoise(0.5), ROW),
    "GlobalAveragePooling1D": (layers.GlobalAveragePooling1D, SEQUENCE),
    "GlobalAveragePooling2D": (layers.GlobalAveragePooling2D, IMAGE),
    "GlobalMaxPooling2D": (layers.GlobalMaxPooling2D, IMAGE),
    "GlobalMaxPooling3D": (layers.GlobalMaxPooling3D, VOLUME),
    "GroupNormalization": (lambda: layers.GroupNormalization(3), IMAGE),
    "GroupQueryAttention": (
        _attention(lambda: layers.GroupQueryAttention(2, 4, 2)),
        [SEQUENCE, SEQUENCE[::-1]],
    ),
    "GRU": (lambda: layers.GRU(3), SEQUENCE),
    "GRU of sequences": (lambda: layers.GRU(3, return_sequences=True), SEQUENCE),
    "LayerNormalization": (layers.LayerNormalization, SEQUENCE),
    "LeakyReLU": (lambda: layers.LeakyReLU(0.3), ROW),
    "LSTM": (lambda: layers.LSTM(3), SEQUENCE),
    "LSTM backwards": (
        lambda: layers.LSTM(3, go_backwards=True, return_sequences=True),
        SEQUENCE,
    ),
    "Masking": (lambda: layers.Masking(0.0), SEQUENCE),
    "Maximum": (_merge(layers.Maximum), [ROW, ROW[::-1]]),
    "MaxPooling1D": (lambda: layers.MaxPooling1D(2), SEQUENCE),
    "MaxPooling2D": (lambda: layers.MaxPooling2D(2), IMAGE),
    "MaxPooling2D same": (lambda: layers.MaxPooling2D(3, 2, padding="same"), IMAGE),
    "MaxPooling3D": (lambda: layers.MaxPooling3D(2), VOLUME),
    "MelSpectrogram": (
        lambda: layers.MelSpectrogram(fft_length=64, num_mel_bins=8),
        _floats(400),
    ),
    "Minimum": (_merge(layers.Minimum), [ROW, ROW[::-1]]),
    "MultiHeadAttention": (
        _attention(lambda: layers.MultiHeadAttention(2, 4)),
        [SEQUENCE, SEQUENCE[::-1]],
    ),
    "MultiHeadAttention causal": (
        lambda: _causal(),
        SEQUENCE,
    ),
    "Multiply": (_merge(layers.Multiply), [ROW, ROW[::-1]]),
    "Normalization": (
        lambda: layers.Normalization(mean=[1.0] * 5, variance=[2.0] * 5),
        ROW,
    ),
    "Permute": (lambda: layers.Permute((2, 1)), SEQUENCE),
    "PReLU": (lambda: layers.PReLU(shared_axes=[1, 2]), IMAGE),
    "RandomFlip": (layers.RandomFlip, POSITIVE_IMAGE),
    "ReLU": (lambda: layers.ReLU(2.0, 0.1, 0.2), ROW),
    "RepeatVector": (lambda: layers.RepeatVector(3), ROW),
    "Rescaling": (lambda: layers.Rescaling(1 / 127.5, -1.0), IMAGE),
    "Reshape": (lambda: layers.Reshape((9, -1)), IMAGE),
    "Resizing bilinear": (lambda: layers.Resizing(5, 13), POSITIVE_IMAGE),
    "Resizing nearest": (
        lambda: layers.Resizing(5, 13, interpolation="nearest"),
        POSITIVE_IMAGE,
    ),
    "RMSNormalization": (layers.RMSNormalization, SEQUENCE),
    "RNN of cells": (
        lambda: layers.RNN([layers.GRUCell(3), layers.SimpleRNNCell(2)]),
        SEQUENCE,
    ),
    "RotaryEmbedding": (layers.RotaryEmbedding, SEQUENCE),
    "SeparableConv1D": (lambda: layers.SeparableConv1D(5, 3), SEQUENCE),
    "SeparableConv2D": (lambda: layers.SeparableConv2D(5, 3), IMAGE),
    "SimpleRNN": (lambda: layers.SimpleRNN(3), SEQUENCE),
    "Softmax": (layers.Softmax, SEQUENCE),
    "Solarization": (lambda: layers.Solarization(0.1), POSITIVE_IMAGE * 100),
    "SpectralNormalization": (
        lambda: layers.SpectralNormalization(layers.Dense(3)),
        ROW,
    ),
    "STFTSpectrogram": (
        lambda: layers.STFTSpectrogram(frame_length=32, frame_step=16, fft_length=32),
        _floats(200, 1),
    ),
    "Subtract": (_merge(layers.Subtract), [ROW, ROW[::-1]]),
    "TimeDistributed": (
        lambda: layers.TimeDistributed(layers.Conv1D(3, 2)),
        FILM[..., 0],
    ),
    "UnitNormalization": (layers.UnitNormalization, SEQUENCE),
    "UpSampling1D": (lambda: layers.UpSampling1D(2), SEQUENCE),
    "UpSampling2D": (lambda: layers.UpSampling2D((2, 3)), IMAGE),
    "UpSampling2D bilinear": (
        lambda: layers.UpSampling2D(2, interpolation="bilinear"),
        IMAGE,
    ),
    "UpSampling3D": (lambda: layers.UpSampling3D(2), VOLUME),
    "ZeroPadding1D": (lambda: layers.ZeroPadding1D(2), SEQUENCE),
    "ZeroPadding2D": (lambda: layers.ZeroPadding2D(2), IMAGE),
    "ZeroPadding3D": (lambda: layers.ZeroPadding3D(1), VOLUME),
}


def _causal():
    x = exburn.Input((10, 4))
    return exburn.Model(x, layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True))


def model_of(name: str) -> tuple[Any, Any]:
    """The model of a case, its weights drawn, and an input."""
    make, x = CASES[name]
    made = make()
    if not isinstance(made, exburn.Model):
        shape, dtype = x.shape[1:], str(x.dtype)
        made = exburn.Sequential([exburn.Input(shape, dtype=dtype), made])
    draws = np.random.default_rng(3)
    made.set_weights(
        [
            np.abs(draws.normal(0.3, 0.4, w.shape)).astype(w.dtype)
            if "variance" in str(getattr(w, "path", ""))
            else draws.normal(0.1, 0.5, w.shape).astype(w.dtype)
            for w in made.weights
        ]
        if all(np.issubdtype(w.dtype, np.floating) for w in made.weights)
        else made.get_weights()
    )
    return made, x
