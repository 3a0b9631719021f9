"""Tests of ``exburn.layers.preprocessing.spectrogram``."""

import jax
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.check_layer import check_layer

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError, DTypeError, ShapeError, UnknownNameError

_rng = np.random.default_rng(0)
SOUND = _rng.standard_normal((3, 900)).astype("float32")
STEREO = _rng.standard_normal((4, 120, 2)).astype("float32")


@pytest.mark.parametrize(
    "options",
    [
        {"fft_length": 512, "sequence_stride": 100, "num_mel_bins": 40},
        {"fft_length": 256, "sequence_length": 200, "window": "hamming"},
        {"fft_length": 256, "power_to_db": False, "mag_exp": 1.0, "window": None},
        {"fft_length": 256, "ref_power": 2.0, "min_power": 1e-3, "top_db": 20.0},
        {"fft_length": 64, "window": np.hanning(64).astype("float32")},
        {"fft_length": 256, "sampling_rate": 8000, "min_freq": 0.0, "max_freq": 3000},
    ],
    ids=lambda options: "-".join(options),
)
def test_mel_as_in_keras(options, golden):
    ours, peer = L.MelSpectrogram(**options), lambda: keras.layers.MelSpectrogram
    theirs = golden(lambda: [peer()(**options)(x) for x in (SOUND, SOUND[0])])
    run = jax.jit(ours)  # a tenth of the time of one operation after another
    for sound, expected in zip((SOUND, SOUND[0]), theirs, strict=True):
        np.testing.assert_allclose(run(sound), expected, rtol=1e-4, atol=2e-3)


def test_mel_defaults_shapes_and_half_precision():
    layer = L.MelSpectrogram()
    assert layer.compute_output_shape((None, 16000)) == (None, 128, 32)
    assert layer(exburn.Input((None,))).shape == (None, 128, None)
    half = L.MelSpectrogram(fft_length=128, dtype="bfloat16")(SOUND)
    full = L.MelSpectrogram(fft_length=128)(SOUND)
    assert half.dtype == "bfloat16"
    np.testing.assert_allclose(half.astype("float32"), full, rtol=5e-3, atol=5e-3)


def test_rows_that_fill_a_batch_up_are_not_the_loudest():
    x = np.concatenate([SOUND, SOUND[:1] * 10])
    model = exburn.Sequential(
        [exburn.Input((900,)), L.MelSpectrogram(fft_length=128, top_db=10.0)]
    )
    got = model.predict(x, batch_size=3, verbose=0)
    layer = model.layers[0]
    expected = np.concatenate([layer(x[:3]), layer(x[3:])])
    np.testing.assert_allclose(got, expected, atol=1e-3)


@pytest.mark.parametrize("data_format", ["channels_last", "channels_first"])
@pytest.mark.parametrize("expand_dims", [False, True])
@pytest.mark.parametrize("padding", ["valid", "same"])
@pytest.mark.parametrize(
    "mode", ["log", "magnitude", "psd", "real", "imag", "angle", "stft"]
)
def test_stft_as_in_keras(mode, padding, expand_dims, data_format, golden):
    options = {
        "mode": mode,
        "frame_length": 20,
        "padding": padding,
        "expand_dims": expand_dims,
        "data_format": data_format,
    }
    x = STEREO if data_format == "channels_last" else STEREO.transpose(0, 2, 1)
    ours = L.STFTSpectrogram(**options)

    def of_keras():
        peer = keras.layers.STFTSpectrogram(**options)
        return peer(x), [w.name for w in peer.weights]

    got, (expected, names) = np.asarray(ours(x)), golden(of_keras)
    gap = np.abs(got - expected)
    if mode == "angle":  # which has a jump
        gap = np.minimum(gap, 2 * np.pi - gap)
    assert got.shape == expected.shape
    # noise around 0 has any angle
    assert np.quantile(gap, 0.99 if mode == "angle" else 1) < 1e-3
    assert [w.name for w in ours.weights] == names


@pytest.mark.parametrize(
    "options",
    [
        {
            "frame_step": 7,
            "fft_length": 64,
            "frame_length": 40,
            "window": "hamming",
            "periodic": True,
            "scaling": "spectrum",
        },
        {"scaling": None, "window": None, "frame_length": 16},
        {"window": np.hanning(16), "frame_length": 16},
    ],
    ids=["settings", "plain", "own window"],
)
def test_stft_windows_as_in_keras(options, golden):
    ours = L.STFTSpectrogram("magnitude", **options)
    peer = lambda: keras.layers.STFTSpectrogram("magnitude", **options)  # noqa: E731
    theirs = golden(lambda: peer()(STEREO))
    np.testing.assert_allclose(ours(STEREO), theirs, rtol=1e-4, atol=5e-4)
    copy = L.STFTSpectrogram.from_config(ours.get_config())
    np.testing.assert_array_equal(copy(STEREO), ours(STEREO))


def test_contracts():
    check_layer(lambda **o: L.STFTSpectrogram(frame_length=16, **o), STEREO, free=(1,))
    check_layer(
        lambda **o: L.MelSpectrogram(32, 16, num_mel_bins=8, power_to_db=False, **o),
        STEREO[..., 0],
        free=(1,),
        differentiable=False,  # the root has no slope at 0
    )


def test_kernels_train_unless_they_are_frozen():
    model = exburn.Sequential([L.STFTSpectrogram(frame_length=16), L.Dense(1)])
    model.build((None, 120, 2))
    assert len(model.trainable_weights) == 4
    frozen = L.STFTSpectrogram(frame_length=16, trainable=False)
    frozen.build((None, 120, 2))
    assert not frozen.trainable_weights and len(frozen.weights) == 2


def test_errors():
    for make, error in (
        (lambda: L.MelSpectrogram(256, sequence_length=300), ArgumentError),
        (lambda: L.MelSpectrogram(0), ArgumentError),
        (lambda: L.MelSpectrogram(min_freq=9000.0), ArgumentError),
        (lambda: L.MelSpectrogram(window="bell")(SOUND), UnknownNameError),
        (lambda: L.STFTSpectrogram("power"), ArgumentError),
        (lambda: L.STFTSpectrogram(frame_step=300), ArgumentError),
        (lambda: L.STFTSpectrogram(frame_step=0), ArgumentError),
        (lambda: L.STFTSpectrogram(fft_length=128), ArgumentError),
        (lambda: L.STFTSpectrogram(scaling="loud"), ArgumentError),
        (lambda: L.STFTSpectrogram(padding="causal"), ArgumentError),
        (lambda: L.STFTSpectrogram(window="bell"), UnknownNameError),
        (lambda: L.STFTSpectrogram()(SOUND), ShapeError),
        (lambda: L.STFTSpectrogram()(np.ones((1, 300, 1), "int16")), DTypeError),
    ):
        with pytest.raises(error):
            make()
