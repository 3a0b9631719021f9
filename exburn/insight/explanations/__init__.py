"""Explanations of predictions: ``model.explain``."""
