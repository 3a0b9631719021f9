"""Models: the facade a user holds."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.models.cloning import clone_model
from exburn.models.function import Function
from exburn.models.model import Model
from exburn.models.sequential import Sequential
from exburn.module.building import without_weights
from exburn.saving import load_model, model_from_json, save_model

__all__ = [
    "Function",
    "Model",
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_json",
    "save_model",
    "without_weights",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
