"""``ResNet50`` where Keras has it, too."""

from exburn.applications.resnet import ResNet50, decode_predictions, preprocess_input

__all__ = ["ResNet50", "decode_predictions", "preprocess_input"]
