"""``exburn.applications.resnet_v2`` beside Keras."""

NAMES = [
    "ResNet50V2",
    "ResNet101V2",
    "ResNet152V2",
]
SIZE = 32
