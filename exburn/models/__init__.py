"""Models: the facade a user holds."""

from typing import Any

from exburn.models.model import Model
from exburn.models.sequential import Sequential
from exburn.saving import load_model, model_from_json, save_model

__all__ = [
    "Model",
    "Sequential",
    "clone_model",
    "load_model",
    "model_from_json",
    "save_model",
]


def clone_model(model: Model) -> Any:
    """A model of the same architecture with fresh weights; see ``model.clone()``.

    Example:
        >>> from exburn.layers import Dense, Input
        >>> model = Sequential([Input((4,)), Dense(2)])
        >>> clone_model(model).count_params()
        10
    """
    return type(model).from_config(model.get_config())
