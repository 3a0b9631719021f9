"""Predictions and targets of every kind."""

import jax
import numpy as np
from jax.export import symbolic_shape

rng = np.random.default_rng(3)
LOGITS = rng.normal(size=(4, 3)).astype("float32")
PROBS = rng.dirichlet(np.ones(3), size=4).astype("float32")
LABELS = np.array([0, 2, 1, 2], "int32")
ONE_HOT = np.eye(3, dtype="float32")[LABELS]
BITS = (LOGITS > 0).astype("float32")
UNIT_ROWS = LOGITS / np.linalg.norm(LOGITS, axis=1, keepdims=True)
FRAMES = rng.normal(size=(4, 6, 3)).astype("float32")
SEQUENCES = np.array([[1, 2], [1, 0], [2, 1], [2, 0]])


def spec(*shape, dtype="float32"):
    return jax.ShapeDtypeStruct(symbolic_shape(", ".join(map(str, shape))), dtype)
