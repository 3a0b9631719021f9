"""Layers on images: sizes, and random changes that make more images of a few."""
