"""Tests of ``exburn.initializers.windows``."""

import numpy as np
import pytest
from tests.golden import keras

from exburn import initializers

WINDOWS = (
    *("barthann", "bartlett", "blackman", "blackmanharris", "bohman", "boxcar"),
    *("cosine", "exponential", "flattop", "hamming", "hann", "lanczos", "nuttall"),
    *("parzen", "taylor", "triang", "tukey"),
)


@pytest.mark.parametrize("side", ["real", "imag"])
@pytest.mark.parametrize(
    ("window", "scaling", "periodic"),
    [
        ("hann", "density", False),
        ("hamming", "spectrum", True),
        ("blackman", None, True),
        (None, "density", False),
        (np.linspace(0.1, 1, 24), "density", False),
    ],
)
def test_stft_agrees_with_keras(side, window, scaling, periodic, golden):
    args = (side, window, scaling, periodic)
    own = initializers.STFT(*args)((24, 1, 17))
    theirs = golden(lambda: keras.initializers.STFT(*args)((24, 1, 17)))
    np.testing.assert_allclose(own, theirs, atol=2e-5)


@pytest.mark.parametrize("name", WINDOWS)
def test_windows_agree_with_scipy(name):
    signal = pytest.importorskip("scipy.signal")
    for length in (1, 2, 5, 12, 33):
        for periodic in (False, True):
            own = initializers.window(name, length, periodic)
            expected = signal.get_window(name, length, periodic)
            np.testing.assert_allclose(own, expected, atol=1e-9, err_msg=str(length))
