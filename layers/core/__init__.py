"""Layers that everything else is made of."""
