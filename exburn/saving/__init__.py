"""Models and weights in files, and the names of classes in configurations."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.saving.file_editor import KerasFileEditor
from exburn.saving.model import *
from exburn.saving.registration import *
from exburn.saving.weight_sources import WeightFile, read_weights
from exburn.saving.weights import LoadReport, load_weights, save_weights

__all__ = [
    "CustomObjectScope",
    "KerasFileEditor",
    "LoadReport",
    "WeightFile",
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "load_model",
    "load_weights",
    "model_from_json",
    "model_to_json",
    "read_weights",
    "register_keras_serializable",
    "save_model",
    "save_weights",
    "serialize_keras_object",
]


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
