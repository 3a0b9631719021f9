"""Models for other runtimes, and several functions of models in one folder."""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser
from exburn.export.archive import ExportArchive, LoadedArchive, load_archive
from exburn.export.exporting import check
from exburn.export.mobile.verification import verify
from exburn.export.report import ExportReport, Problem
from exburn.runtime.portable import portable

__all__ = [
    "ExportArchive",
    "ExportReport",
    "LoadedArchive",
    "Problem",
    "check",
    "load_archive",
    "portable",
    "verify",
]

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
