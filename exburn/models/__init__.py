"""Models: the facade a user holds."""

from exburn.models.cloning import clone_model
from exburn.models.function import Function
from exburn.models.model import Model
from exburn.models.sequential import Sequential
from exburn.saving import load_model, model_from_json, save_model

__all__ = [
    "Function",
    "Model",
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_json",
    "save_model",
]
