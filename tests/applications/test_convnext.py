"""``exburn.applications.convnext`` beside Keras."""

NAMES = [
    "ConvNeXtTiny",
    "ConvNeXtSmall",
    "ConvNeXtBase",
    "ConvNeXtLarge",
    "ConvNeXtXLarge",
]
SIZE = 32
