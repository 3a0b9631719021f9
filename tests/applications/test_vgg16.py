"""``exburn.applications.vgg16`` beside Keras."""

NAMES = [
    "VGG16",
]
SIZE = 32
