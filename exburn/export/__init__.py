"""Several functions of models as portable programs in one folder."""

from exburn.export.archive import ExportArchive
from exburn.export.reading import LoadedArchive, load_archive

__all__ = ["ExportArchive", "LoadedArchive", "load_archive"]
