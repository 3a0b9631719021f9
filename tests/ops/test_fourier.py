"""Tests of ``exburn.ops.fourier``, beside Keras' and on symbols."""

import numpy as np
import pytest
from tests.ops.cases import SEQUENCE, Draws, K, X, Y, Z, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import errors, ops

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        "fft": [case((X, Y))],
        "fft2": [case((X, Y))],
        "ifft2": [case((X, Y))],
        "rfft": [case(X), case(X, 6)],
        "irfft": [case((X, Y)), case((X, Y), 5)],
        "extract_sequences": [case(SEQUENCE, 2, 1), case(floats(2, 20), 5, 3)],
        "stft": [
            case(floats(2, 40), 8, 4, 8),
            case(floats(2, 40), 6, 3, 8, window="hamming", center=False),
        ],
        "istft": [
            case((floats(2, 11, 5), floats(2, 11, 5)), 8, 4, 8),
            case((floats(11, 5), floats(11, 5)), 6, 3, 8, length=30),
            case(
                (floats(11, 5), floats(11, 5)), 8, 2, 8, center=False, window="hamming"
            ),
        ],
        "polar": [case(X, Y)],
        "view_as_complex": [case(floats(3, 2)), case(K[:, :2])],
        "view_as_real": [case(Z)],
    }
)


UNKNOWN_BATCH = ["fft", "stft"]


@pytest.mark.parametrize("window", ["hann", None])
def test_istft_inverts_stft(window):
    signal = np.random.default_rng(1).normal(size=(2, 64)).astype("float32")
    parts = ops.stft(signal, 16, 4, 32, window)
    back = ops.istft(parts, 16, 4, 32, length=64, window=window)
    np.testing.assert_allclose(back, signal, atol=1e-5)


def test_parts_of_whole_numbers_are_transformed():
    real, imag = ops.fft((np.array([1, 0]), np.array([0, 0])))
    assert (real.tolist(), imag.tolist()) == ([1, 1], [0, 0])


REFUSALS = [
(lambda: ops.stft(ROWS, 4, 2, 2), errors.ArgumentError),
(lambda: ops.stft(ROWS, 4, 2, 4, "han"), errors.UnknownNameError),
(lambda: ops.stft(ROWS, 4, 0, 4), errors.ArgumentError),
(lambda: ops.istft((ROWS, ROWS), 4, 2.0, 10), errors.ArgumentError),
(lambda: ops.extract_sequences(ROWS, 0, 1), errors.ArgumentError),
(lambda: ops.fft((ROWS, ROWS[0])), errors.ShapeError),
(lambda: ops.view_as_complex(ROWS), errors.ShapeError),
]  # fmt: skip
