"""The functions of the reference system."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser as _refuser

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = _refuser(__name__)
