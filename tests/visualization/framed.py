"""Images with something drawn on them."""

import numpy as np
import pytest

matplotlib = pytest.importorskip("matplotlib")
Image = pytest.importorskip("PIL.Image")

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 255, (2, 24, 32, 3)).astype("uint8")


@pytest.fixture(autouse=True)
def no_screen():
    matplotlib.use("Agg")
    yield
    from matplotlib import pyplot

    pyplot.close("all")


MASKS = RNG.integers(0, 4, (2, 24, 32, 1)).astype("int32")
