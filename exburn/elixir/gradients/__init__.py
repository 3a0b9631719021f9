"""Single steps to look into: gradients, by calculus or by differences, and their time.

Example:
    >>> import numpy as np
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> model.compile("adam", "cross_entropy", seed=0)
    >>> batch = np.ones((8, 4), np.float32), np.zeros(8, np.int32)
    >>> sorted(exburn.compute_gradients(model, batch))
    ['dense/bias', 'dense/kernel']
    >>> exburn.check_gradients(model, batch).ok
    True
"""

from __future__ import annotations

from exburn.elixir.gradients.check import GradientCheck, GradientRow, check_gradients
from exburn.elixir.gradients.differences import default_epsilon
from exburn.elixir.gradients.profiling import profile_step
from exburn.elixir.gradients.steps import compute_gradients, train_step

__all__ = [
    "GradientCheck",
    "GradientRow",
    "check_gradients",
    "compute_gradients",
    "default_epsilon",
    "profile_step",
    "train_step",
]
