"""``exburn.applications.mobilenet_v2`` beside Keras."""

import pytest
from tests.applications.beside_keras import check

NAMES = [
    "MobileNetV2",
]
SIZE = 32


@pytest.mark.parametrize("alpha", [0.5, 1.4])
def test_other_widths(alpha, tmp_path):
    check("MobileNetV2", 48, tmp_path, alpha=alpha, pooling="max", include_top=False)
