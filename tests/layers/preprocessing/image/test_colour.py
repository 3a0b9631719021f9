"""Tests of ``exburn.layers.preprocessing.image.colour``."""

COLOURS = [
    ("RandomColorDegeneration", {"factor": (0.7, 0.7)}, 255),
    ("RandomHue", {"factor": (1.0, 1.0)}, 255),
    ("RandomHue", {"factor": (1.0, 1.0)}, 1),
    ("RandomSaturation", {"factor": (0.3, 0.3)}, 1),
    ("RandomGrayscale", {"factor": 1.0}, None),
]
