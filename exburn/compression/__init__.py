"""Small models: training a student on a teacher, and whole ways to a small model."""

from exburn.compression.distilling import Distiller

__all__ = ["Distiller"]
