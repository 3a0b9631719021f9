"""Tests of ``exburn.layers.normalization.layer``."""

from functools import partial

import numpy as np
import pytest
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import IMAGE, PLACE, TIME
from tests.layers.inputs import SEQUENCE as STEPS
from tests.layers.interface import X
from tests.layers.noise_and_masks import SEQUENCE

from exburn import layers as L
from exburn.errors import ArgumentError, ShapeError

CONTRACT = {
    "LayerNormalization": (L.LayerNormalization, (), STEPS, TIME),
    "LayerNormalization-axes": (L.LayerNormalization, ([1, 2],), STEPS, {}),
    "RMSNormalization": (L.RMSNormalization, (), STEPS, TIME),
    "GroupNormalization": (L.GroupNormalization, (2,), IMAGE, PLACE),
    "UnitNormalization": (L.UnitNormalization, (), STEPS, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.GroupNormalization(0), "groups must be an integer ≥ 1"),
]

BAD_SHAPES = [
    (L.GroupNormalization(4), X, "must divide the number of channels"),
]

BESIDE_KERAS = [
    ("LayerNormalization", {}, SEQUENCE_BESIDE_KERAS),
    (
        "LayerNormalization",
        {"axis": [1, 2], "epsilon": 0.1, "center": False},
        IMAGE_BESIDE_KERAS,
    ),
    ("LayerNormalization", {"axis": 1, "scale": False}, SEQUENCE_BESIDE_KERAS),
    ("RMSNormalization", {}, SEQUENCE_BESIDE_KERAS),
    ("RMSNormalization", {"axis": [1, 2], "epsilon": 0.1}, SEQUENCE_BESIDE_KERAS),
    ("GroupNormalization", {"groups": 2}, IMAGE_BESIDE_KERAS),
    (
        "GroupNormalization",
        {"groups": -1, "axis": 1, "epsilon": 0.1},
        IMAGE_BESIDE_KERAS,
    ),
    ("UnitNormalization", {}, SEQUENCE_BESIDE_KERAS),
    ("UnitNormalization", {"axis": [1, 2]}, IMAGE_BESIDE_KERAS),
    (
        "LayerNormalization",
        {"axis": [1, 2], "rms_scaling": True},
        SEQUENCE_BESIDE_KERAS + 3,
    ),
]


def test_rms_over_another_axis():  # Keras 3.15 cannot broadcast its scale there
    layer = L.RMSNormalization(axis=1, epsilon=0)
    expected = SEQUENCE / np.sqrt((SEQUENCE**2).mean(1, keepdims=True))
    np.testing.assert_allclose(layer(SEQUENCE), expected, rtol=1e-5)
    assert layer.scale.shape == (3,)


@pytest.mark.parametrize("name", CONTRACT)
def test_contract(name):
    cls, args, x, options = CONTRACT[name]
    check_layer(partial(cls, *args), x, **options)


@pytest.mark.parametrize(
    ("make", "text"), BAD_ARGUMENTS, ids=[t for _, t in BAD_ARGUMENTS]
)
def test_arguments_that_cannot_work(make, text):
    with pytest.raises(ArgumentError) as caught:
        make()
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("layer", "x", "text"), BAD_SHAPES, ids=[b[2] for b in BAD_SHAPES]
)
def test_shapes_that_do_not_fit(layer, x, text):
    with pytest.raises(ShapeError) as caught:
        layer(x)
    assert text in str(caught.value)
    assert "in layer" in str(caught.value)


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"),
    BESIDE_KERAS,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(BESIDE_KERAS)],
)
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)
