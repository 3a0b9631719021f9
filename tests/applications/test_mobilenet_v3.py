"""``exburn.applications.mobilenet_v3`` beside Keras."""

import pytest
from tests.applications.beside_keras import check

NAMES = [
    "MobileNetV3Small",
    "MobileNetV3Large",
]
SIZE = 32


@pytest.mark.parametrize("settings", [{"minimalistic": True}, {"alpha": 1.5}])
def test_other_widths_and_a_minimal_network(settings, tmp_path):
    check("MobileNetV3Small", 48, tmp_path, include_preprocessing=False, **settings)
