"""Keras is the reference; it looks for its backend when it is imported."""

import os

os.environ["KERAS_BACKEND"] = "jax"
