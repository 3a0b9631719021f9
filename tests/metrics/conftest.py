"""Keras is the reference, on the same backend."""

import os

os.environ["KERAS_BACKEND"] = "jax"
