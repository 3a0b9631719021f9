"""``exburn.applications.inception_v3`` beside Keras."""

import pytest
from tests.applications.beside_keras import check, check_training

NAMES = [
    "InceptionV3",
]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_names_weights_and_outputs_of_keras(name, tmp_path):
    every = (".weights.h5", ".h5", ".keras") if name == NAMES[0] else (".weights.h5",)
    check(name, 75, tmp_path, every)


def test_the_smallest_is_trained():
    check_training(NAMES[0], 75)
