"""What a prediction rests on: ``model.explain``."""
