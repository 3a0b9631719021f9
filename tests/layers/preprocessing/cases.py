"""Every random layer on images, with settings that make each call random."""

from functools import partial

import numpy as np

from exburn import layers as L

UNIT = {"value_range": (0, 1)}

AUGMENTATIONS = {
    "RandomFlip": (L.RandomFlip, (), {}),
    "RandomFlip-vertical": (L.RandomFlip, ("vertical",), {}),
    "RandomRotation": (L.RandomRotation, (0.2,), {}),
    "RandomRotation-nearest": (
        L.RandomRotation,
        (0.2, "constant", "nearest"),
        {"fill_value": 0.5},
    ),
    "RandomZoom": (L.RandomZoom, (0.4, (-0.3, 0.3)), {"fill_mode": "wrap"}),
    "RandomTranslation": (L.RandomTranslation, (0.3, 0.2), {"fill_mode": "nearest"}),
    "RandomShear": (L.RandomShear, (0.4, 0.2), {}),
    "RandomPerspective": (L.RandomPerspective, ((1.0, 1.0), 0.5), {}),
    "RandomElasticTransform": (L.RandomElasticTransform, ((1.0, 1.0),), UNIT),
    "RandomErasing": (L.RandomErasing, ((1.0, 1.0),), UNIT),
    "RandomErasing-colour": (
        L.RandomErasing,
        ((1.0, 1.0),),
        {"fill_value": [0.1, 0.5, 0.9], **UNIT},
    ),
    "RandomBrightness": (L.RandomBrightness, (0.3,), UNIT),
    "RandomContrast": (L.RandomContrast, (0.5,), UNIT),
    "RandomInvert": (L.RandomInvert, ((0.5, 0.5),), UNIT),
    "RandomPosterization": (L.RandomPosterization, ([1, 6],), UNIT),
    "Solarization": (L.Solarization, (0.3, 0.9), UNIT),
    "RandomHue": (L.RandomHue, (0.5,), UNIT),
    "RandomSaturation": (L.RandomSaturation, (0.9,), UNIT),
    "RandomColorDegeneration": (L.RandomColorDegeneration, (0.9,), UNIT),
    "RandomGrayscale": (L.RandomGrayscale, (0.5,), {}),
    "RandomColorJitter": (
        partial(L.RandomColorJitter, brightness_factor=0.2, contrast_factor=0.3),
        (),
        {"saturation_factor": (0.3, 0.7), "hue_factor": 0.2, **UNIT},
    ),
    "RandomGaussianBlur": (L.RandomGaussianBlur, ((1.0, 1.0), (3, 5), (0.5, 2)), UNIT),
    "RandomSharpness": (L.RandomSharpness, (0.9,), UNIT),
    "RandomCrop": (L.RandomCrop, (5, 4), {}),
    "MixUp": (L.MixUp, (1.0,), {}),
    "CutMix": (L.CutMix, (), {}),
    "Mosaic": (L.Mosaic, ((0.2, 0.8),), {}),
    "RandAugment": (L.RandAugment, (), UNIT),
    "AugMix": (L.AugMix, (), UNIT),
}

CORRECTIONS = {
    "AutoContrast": (L.AutoContrast, (), UNIT),
    "Equalization": (L.Equalization, (), UNIT),
    "ContrastLimitedAdaptiveHistogramEqualization": (
        L.ContrastLimitedAdaptiveHistogramEqualization,
        (),
        {"tile_grid_size": (2, 3), **UNIT},
    ),
}


def make(name, **options):
    """The layer of a case; in the given data format, and so on."""
    cls, args, kwargs = (AUGMENTATIONS | CORRECTIONS)[name]
    return cls(*args, **{**kwargs, **options})


def images(*shape, seed=0):
    """Images with values from 0 to 1."""
    return np.random.default_rng(seed).random(shape, "float32")
