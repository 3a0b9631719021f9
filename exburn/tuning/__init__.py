"""Many variants of a model, trained as one compiled program."""
