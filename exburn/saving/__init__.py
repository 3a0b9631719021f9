"""Weights in files."""

from exburn.saving.weights import load_weights, save_weights

__all__ = ["load_weights", "save_weights"]
