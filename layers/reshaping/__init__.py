"""Layers that move numbers around without changing them."""
