"""What Keras code asks ``keras.preprocessing`` for: other names of ``exburn.utils``."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser as _refuser
from exburn.preprocessing import image as image
from exburn.preprocessing import sequence as sequence
from exburn.utils import image_dataset_from_directory as image_dataset_from_directory
from exburn.utils import text_dataset_from_directory as text_dataset_from_directory
from exburn.utils import timeseries_dataset_from_array as timeseries_dataset_from_array

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = _refuser(__name__)
