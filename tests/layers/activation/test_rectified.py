"""Tests of ``exburn.layers.activation.rectified``."""

from functools import partial

import pytest
from tests.layers.beside_keras import FLAT as FLAT_BESIDE_KERAS
from tests.layers.beside_keras import IMAGE as IMAGE_BESIDE_KERAS
from tests.layers.beside_keras import SEQUENCE as SEQUENCE_BESIDE_KERAS
from tests.layers.beside_keras import check_same_as_keras
from tests.layers.check_layer import check_layer
from tests.layers.inputs import FLAT, IMAGE, PLACE, SEQUENCE, TIME

from exburn import layers as L
from exburn.errors import ArgumentError

CONTRACT = {
    "ReLU": (L.ReLU, (1.5, 0.1, 0.2), FLAT, TIME),
    "LeakyReLU": (L.LeakyReLU, (), FLAT, TIME),
    "PReLU": (L.PReLU, (), SEQUENCE, {}),
    "PReLU-shared": (L.PReLU, ("ones", None, None, [1, 2]), IMAGE, PLACE),
    "ELU": (L.ELU, (), FLAT, TIME),
}

BAD_ARGUMENTS = [
    (lambda: L.ReLU(max_value=-1), "max_value is >= 0"),
    (lambda: L.LeakyReLU(None), "negative_slope"),
]

BESIDE_KERAS = [
    ("ReLU", {}, FLAT_BESIDE_KERAS),
    (
        "ReLU",
        {"max_value": 1.0, "threshold": 0.3, "negative_slope": 0.2},
        FLAT_BESIDE_KERAS,
    ),
    ("ReLU", {"max_value": 6, "negative_slope": 0.1}, FLAT_BESIDE_KERAS * 5),
    ("LeakyReLU", {}, FLAT_BESIDE_KERAS),
    ("LeakyReLU", {"negative_slope": 0.05}, FLAT_BESIDE_KERAS),
    ("PReLU", {}, SEQUENCE_BESIDE_KERAS),
    ("PReLU", {"shared_axes": [1, 2]}, IMAGE_BESIDE_KERAS),
    ("ELU", {"alpha": 0.7}, FLAT_BESIDE_KERAS),
]


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


@pytest.mark.filterwarnings("ignore:You passed `rms_scaling")  # Keras', not ours
@pytest.mark.parametrize(
    ("name", "options", "x"),
    BESIDE_KERAS,
    ids=[f"{i}-{c[0]}" for i, c in enumerate(BESIDE_KERAS)],
)
def test_same_as_keras(name, options, x):
    check_same_as_keras(name, options, x)
