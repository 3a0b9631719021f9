"""What Keras keeps of its second version under ``keras.legacy``."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.legacy import saving as saving

__all__ = ["saving"]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
