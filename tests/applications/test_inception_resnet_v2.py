"""``exburn.applications.inception_resnet_v2`` beside Keras."""

NAMES = [
    "InceptionResNetV2",
]
SIZE = 75
