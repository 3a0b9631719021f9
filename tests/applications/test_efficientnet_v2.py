"""``exburn.applications.efficientnet_v2`` beside Keras."""

from tests.applications.beside_keras import check

NAMES = [
    "EfficientNetV2B0",
    "EfficientNetV2B1",
    "EfficientNetV2B2",
    "EfficientNetV2B3",
    "EfficientNetV2S",
    "EfficientNetV2M",
    "EfficientNetV2L",
]
SIZE = 32


def test_without_preprocessing(tmp_path):
    check("EfficientNetV2B0", 40, tmp_path, include_preprocessing=False)
