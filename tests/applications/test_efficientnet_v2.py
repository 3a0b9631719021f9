"""``exburn.applications.efficientnet_v2`` beside Keras."""

import pytest
from tests.applications.beside_keras import check, check_training

NAMES = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2S",
    "EfficientNetV2M",
    "EfficientNetV2L",
]


@pytest.mark.parametrize("name", NAMES)
def test_it_has_the_names_weights_and_outputs_of_keras(name, tmp_path):
    every = (".weights.h5", ".h5", ".keras") if name == NAMES[0] else (".weights.h5",)
    check(name, 32, tmp_path, every)


def test_the_smallest_is_trained():
    check_training(NAMES[0], 32)


def test_without_preprocessing(tmp_path):
    check("EfficientNetV2B0", 40, tmp_path, include_preprocessing=False)
