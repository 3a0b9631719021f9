"""The progress bar of `fit`, `evaluate` and `predict`."""
