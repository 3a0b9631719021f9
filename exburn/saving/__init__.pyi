"""The package to type checkers: its functions that return models say so.

A model's class lies on a level above this one: it comes by the one table that leads up.
"""

from collections.abc import Mapping
from typing import Any

from exburn.core.lazy_names import Model
from exburn.saving.file_editor import KerasFileEditor as KerasFileEditor
from exburn.saving.model import model_to_json as model_to_json
from exburn.saving.model import save_model as save_model
from exburn.saving.registration import CustomObjectScope as CustomObjectScope
from exburn.saving.registration import custom_object_scope as custom_object_scope
from exburn.saving.registration import (
    deserialize_keras_object as deserialize_keras_object,
)
from exburn.saving.registration import get_custom_objects as get_custom_objects
from exburn.saving.registration import get_registered_name as get_registered_name
from exburn.saving.registration import get_registered_object as get_registered_object
from exburn.saving.registration import (
    register_keras_serializable as register_keras_serializable,
)
from exburn.saving.registration import serialize_keras_object as serialize_keras_object
from exburn.saving.weight_sources import WeightFile as WeightFile
from exburn.saving.weight_sources import read_weights as read_weights
from exburn.saving.weights import LoadReport as LoadReport
from exburn.saving.weights import load_weights as load_weights
from exburn.saving.weights import save_weights as save_weights

def load_model(
    filepath: Any,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Model: ...
def model_from_json(
    json_string: str, custom_objects: Mapping[str, Any] | None = None
) -> Model: ...
