"""Layers that are only active, or only matter, in training."""
