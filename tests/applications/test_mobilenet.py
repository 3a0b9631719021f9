"""``exburn.applications.mobilenet`` beside Keras."""

NAMES = [
    "MobileNet",
]
SIZE = 32
