"""Models: the facade a user holds."""

from exburn.models.model import Model
from exburn.models.sequential import Sequential

__all__ = ["Model", "Sequential"]
