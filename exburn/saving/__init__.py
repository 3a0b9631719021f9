"""Weights in files, and the names that classes have in configurations."""

from exburn.saving.registration import (
    custom_object_scope,
    deserialize_keras_object,
    get_custom_objects,
    get_registered_name,
    get_registered_object,
    register_keras_serializable,
    serialize_keras_object,
)
from exburn.saving.weights import load_weights, save_weights

__all__ = [
    "custom_object_scope",
    "deserialize_keras_object",
    "get_custom_objects",
    "get_registered_name",
    "get_registered_object",
    "load_weights",
    "register_keras_serializable",
    "save_weights",
    "serialize_keras_object",
]
