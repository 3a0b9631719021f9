"""Layers that make one array of several."""
