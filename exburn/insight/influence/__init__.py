"""Which rows of the training a prediction goes back to: ``model.influence(x, y)``."""
