"""ExBurn: Keras-style deep learning whose programs are JAX.

Example:
    >>> import numpy as np
    >>> import exburn as keras
    >>> model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    >>> model.compile("adam", loss="cross_entropy", metrics=["accuracy"])
    >>> history = model.fit(np.ones((32, 4)), np.zeros(32, int), verbose=0)
    >>> list(history.history)
    ['loss', 'accuracy']
"""

import importlib
from typing import TYPE_CHECKING

from exburn import (
    activations,
    callbacks,
    constraints,
    datasets,
    errors,
    initializers,
    layers,
    losses,
    metrics,
    models,
    optimizers,
    regularizers,
)
from exburn.context import key_scope, set_random_seed
from exburn.device import (
    cuda_available,
    default_device,
    device_info,
    device_name,
    metal_available,
)
from exburn.dtypes import Precision, get_precision, set_precision
from exburn.initializers import Initializer
from exburn.layer import Layer
from exburn.layers import Input
from exburn.losses import Loss
from exburn.metrics import Metric
from exburn.models import Model, Sequential
from exburn.optimizers import Optimizer
from exburn.registry import register
from exburn.regularizers import Regularizer
from exburn.symbol import Symbol
from exburn.symbol import Symbol as KerasTensor
from exburn.symbol import lift as fn
from exburn.weights import InputSpec
from exburn.weights import Parameter as Variable

if TYPE_CHECKING:
    from exburn import (
        backend,
        config,
        mixed_precision,
        ops,
        random,
        saving,
        tree,
        utils,
    )

__version__ = "0.1.0"

# Imported when they are first used, so that `import exburn` stays light.
_LAZY = (
    "backend",
    "config",
    "mixed_precision",
    "ops",
    "random",
    "saving",
    "tree",
    "utils",
)

__all__ = [
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Optimizer",
    "Precision",
    "Regularizer",
    "Sequential",
    "Symbol",
    "Variable",
    "activations",
    "backend",
    "callbacks",
    "config",
    "constraints",
    "cuda_available",
    "datasets",
    "default_device",
    "device_info",
    "device_name",
    "errors",
    "fn",
    "get_precision",
    "initializers",
    "key_scope",
    "layers",
    "losses",
    "metal_available",
    "metrics",
    "mixed_precision",
    "models",
    "ops",
    "optimizers",
    "random",
    "register",
    "regularizers",
    "saving",
    "set_precision",
    "set_random_seed",
    "tree",
    "utils",
]


def __getattr__(name: str):
    if name in _LAZY:
        return importlib.import_module(f"exburn.{name}")
    raise AttributeError(f"module 'exburn' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
