"""What Keras code asks ``keras.utils`` for.

Each group of functions has a module; optional packages (Pillow, pydot, Graphviz) are
looked for when they are needed.
"""

from typing import TYPE_CHECKING

from exburn.backend import clear_session as clear_session
from exburn.backend import is_keras_tensor as is_keras_tensor
from exburn.config import disable_interactive_logging as disable_interactive_logging
from exburn.config import enable_interactive_logging as enable_interactive_logging
from exburn.config import (
    is_interactive_logging_enabled as is_interactive_logging_enabled,
)
from exburn.core.missing_names import refuser as _refuser
from exburn.core.precision import standardize_dtype as standardize_dtype
from exburn.core.random_keys import set_random_seed as set_random_seed
from exburn.data import PyDataset as PyDataset
from exburn.data.packing import pack_x_y_sample_weight as pack_x_y_sample_weight
from exburn.data.packing import unpack_x_y_sample_weight as unpack_x_y_sample_weight
from exburn.saving.registration import *
from exburn.utils import bounding_boxes as bounding_boxes
from exburn.utils import legacy as legacy
from exburn.utils.arrays import normalize as normalize
from exburn.utils.arrays import pad_sequences as pad_sequences
from exburn.utils.arrays import to_categorical as to_categorical
from exburn.utils.config import Config as Config
from exburn.utils.directories import *
from exburn.utils.drawing import model_to_dot as model_to_dot
from exburn.utils.drawing import plot_model as plot_model
from exburn.utils.feature_space import FeatureSpace as FeatureSpace
from exburn.utils.files import get_file as get_file
from exburn.utils.images import array_to_img as array_to_img
from exburn.utils.images import img_to_array as img_to_array
from exburn.utils.images import load_img as load_img
from exburn.utils.images import save_img as save_img
from exburn.utils.progress import Progbar as Progbar
from exburn.utils.sources import get_source_inputs as get_source_inputs
from exburn.utils.splitting import split_dataset as split_dataset
from exburn.utils.splitting import (
    timeseries_dataset_from_array as timeseries_dataset_from_array,
)
from exburn.utils.stream import Stream as Stream

Sequence = PyDataset


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = _refuser(__name__)
