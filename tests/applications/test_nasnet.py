"""``exburn.applications.nasnet`` beside Keras."""

NAMES = [
    "NASNetMobile",
    "NASNetLarge",
]
SIZE = 32
