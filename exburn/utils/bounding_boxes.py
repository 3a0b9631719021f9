"""What Keras code asks ``keras.utils.bounding_boxes`` for."""

from exburn.layers.preprocessing.image.boxes import *  # noqa: F403
from exburn.layers.preprocessing.image.boxes import __all__ as __all__
