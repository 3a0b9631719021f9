"""How far a model's predictions can be believed: ``model.uncertainty(x, y)``."""
