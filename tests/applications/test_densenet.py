"""``exburn.applications.densenet`` beside Keras."""

NAMES = [
    "DenseNet121",
    "DenseNet169",
    "DenseNet201",
]
SIZE = 32
