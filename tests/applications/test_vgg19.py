"""``exburn.applications.vgg19`` beside Keras."""

NAMES = [
    "VGG19",
]
SIZE = 32
