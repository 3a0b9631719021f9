"""Tests of ``exburn.layers.merging.elementwise``."""

import jax.numpy as jnp
import numpy as np
import pytest
from tests.golden import keras
from tests.layers.beside_keras import A, B, C
from tests.layers.inputs import FLAT, SEQUENCE, TIME, TWO
from tests.layers.interface import X

import exburn
from exburn import layers as L
from exburn.errors import ArgumentError

CONTRACT = {
    "Add": (L.Add, (), TWO, TIME),
    "Subtract": (L.Subtract, (), TWO, TIME),
    "Multiply": (L.Multiply, (), TWO, TIME),
    "Average": (L.Average, (), TWO, TIME),
    "Maximum": (L.Maximum, (), TWO, TIME),
    "Minimum": (L.Minimum, (), TWO, TIME),
    "Add-ranks": (L.Add, (), [FLAT[:, :4], SEQUENCE], {}),
}

BAD_ARGUMENTS = [
    (lambda: L.Add()(X), "a list of inputs is needed"),
    (lambda: L.Subtract()([X, X, X]), "two inputs are needed"),
]

BAD_SHAPES = [
    (L.Add(), [X, X[:, :4]], "the inputs do not broadcast"),
]

NAMES = ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum", "Concatenate")
RNG = np.random.default_rng(0)
VALUES = [RNG.standard_normal((4, 5, 3)).astype("float32") for _ in range(3)]
MASKS = [RNG.random((4, 5)) < 0.5 for _ in range(3)]


def masked(library, name, which):
    """What a model of the library computes, and the mask that comes with it."""
    count = 2 if name == "Subtract" else 3
    inputs = [library.Input((5, 3)) for _ in range(count)]
    parts = []
    for x, used in zip(inputs, which, strict=False):
        x = library.layers.Masking()(x) if used else x
        parts.append(library.layers.Activation("sigmoid")(x))  # a half where masked
    model = library.Model(inputs, getattr(library.layers, name)()(parts))
    data = [np.where(m[..., None], v, 0) for v, m in zip(VALUES, MASKS, strict=True)]
    out = model(data[:count])
    return np.asarray(out), getattr(out, "_keras_mask", None)


BESIDE_KERAS = [
    ("Add", {}, [A, B, C]),
    ("Add", {}, [A[:, 0], A]),
    ("Subtract", {}, [A, B[:, :1]]),
    ("Multiply", {}, [A, B, C]),
    ("Average", {}, [A, B, C]),
    ("Maximum", {}, [A, B, C]),
    ("Minimum", {}, [A, B, C]),
]


@pytest.mark.parametrize(
    "which", [(1, 1, 1), (0, 1, 1), (1, 0, 0)], ids=["all", "but the first", "one"]
)
def test_masked_entries_count_as_in_keras(which, golden):
    theirs = golden(lambda: [masked(keras, name, which) for name in NAMES])
    for name, (expected, their_mask) in zip(NAMES, theirs, strict=True):
        y, mask = masked(exburn, name, which)
        np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        assert (mask is None) == (their_mask is None), name
        if mask is not None:
            np.testing.assert_array_equal(mask, their_mask, err_msg=name)


def test_inputs_of_lower_rank_keep_their_masks():
    """Two rows of five steps, and a sample of the batch without steps."""
    steps, row = VALUES[0], VALUES[1][:, 0]
    y = L.Maximum().call([steps, row], mask=[jnp.asarray(MASKS[0]), None])
    expected = np.where(MASKS[0][..., None], np.maximum(steps, row[:, None]), 0)
    expected += np.where(MASKS[0][..., None], 0, row[:, None])
    np.testing.assert_array_equal(y, expected)


@pytest.mark.parametrize("layer", [L.Add(), L.Concatenate()])
def test_there_is_a_mask_for_each_input(layer):
    for masks in (MASKS[0], MASKS[:1]):
        with pytest.raises(ArgumentError, match="2 inputs have a list of as many"):
            layer.compute_mask(VALUES[:2], mask=masks)
