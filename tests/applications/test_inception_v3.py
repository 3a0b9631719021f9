"""``exburn.applications.inception_v3`` beside Keras."""

NAMES = [
    "InceptionV3",
]
SIZE = 75
