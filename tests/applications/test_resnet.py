"""``exburn.applications.resnet`` beside Keras."""

NAMES = [
    "ResNet50",
    "ResNet101",
    "ResNet152",
]
SIZE = 32
