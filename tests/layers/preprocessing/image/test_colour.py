"""Tests of ``exburn.layers.preprocessing.image.colour``."""

import pytest
from tests.layers.preprocessing.image.beside import check_colours_as_in_keras


@pytest.mark.parametrize(
    ("name", "options", "highest"),
    [
        ("RandomColorDegeneration", {"factor": (0.7, 0.7)}, 255),
        ("RandomHue", {"factor": (1.0, 1.0)}, 255),
        ("RandomHue", {"factor": (1.0, 1.0)}, 1),
        ("RandomSaturation", {"factor": (0.3, 0.3)}, 1),
        ("RandomGrayscale", {"factor": 1.0}, None),
    ],
)
def test_colours_as_in_keras(name, options, highest):
    check_colours_as_in_keras(name, options, highest)
