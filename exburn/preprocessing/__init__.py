"""What Keras code asks ``keras.preprocessing`` for: other names of ``exburn.utils``."""

from exburn.preprocessing import image as image
from exburn.preprocessing import sequence as sequence
from exburn.utils import image_dataset_from_directory as image_dataset_from_directory
from exburn.utils import text_dataset_from_directory as text_dataset_from_directory
from exburn.utils import timeseries_dataset_from_array as timeseries_dataset_from_array
