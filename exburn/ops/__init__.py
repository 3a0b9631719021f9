"""Keras' ops, bound to ``jax.numpy``, ``jax.nn`` and ``jax.lax``.

They work on arrays, weights and NumPy arrays, inside ``jax.jit`` and, in a functional
model, on symbols. They are grouped as in Keras: ``ops.numpy``, ``ops.nn``,
``ops.linalg``, ``ops.image``, and all of them but the last here.

Example:
    >>> from exburn import ops
    >>> ops.relu([-1.0, 2.0]).tolist()
    [0.0, 2.0]
"""

from typing import TYPE_CHECKING

from exburn.core.missing_names import refuser as _refuser
from exburn.ops import image as image
from exburn.ops import linalg as linalg
from exburn.ops import nn as nn
from exburn.ops import numpy as numpy
from exburn.ops.blocks import rearrange as rearrange
from exburn.ops.control import *
from exburn.ops.core import *
from exburn.ops.derivatives import *
from exburn.ops.fourier import *
from exburn.ops.indexing import *
from exburn.ops.linalg import *
from exburn.ops.linalg import logdet as logdet
from exburn.ops.nn import *
from exburn.ops.numpy import *
from exburn.ops.special import *

if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = _refuser(__name__)
