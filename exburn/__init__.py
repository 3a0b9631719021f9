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

from exburn.garbage import starting

with starting():
    from jax import named_scope as name_scope

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
    from exburn.absent import missing
    from exburn.compilation_cache import set_compilation_cache, start_compilation_cache
    from exburn.context import key_scope, set_random_seed
    from exburn.datasets import loader as data_loader
    from exburn.device import (
        cuda_available,
        default_device,
        device,
        device_info,
        device_name,
        metal_available,
    )
    from exburn.dtypes import (
        Precision,
        get_matmul_precision,
        get_precision,
        set_matmul_precision,
        set_precision,
    )
    from exburn.initializers import Initializer
    from exburn.input_spec import InputSpec
    from exburn.layer import Layer
    from exburn.layers import Input
    from exburn.losses import Loss
    from exburn.metrics import Metric
    from exburn.models import Function, Model, Sequential, load_model
    from exburn.optimizers import Optimizer
    from exburn.registry import register
    from exburn.regularizers import Regularizer
    from exburn.rematerialize import RematScope, remat
    from exburn.shapes import SymbolicScope
    from exburn.stateless_scope import StatelessScope
    from exburn.symbol import Operation, Symbol
    from exburn.symbol import Symbol as KerasTensor
    from exburn.symbol import lift as fn
    from exburn.weights import Variable

if TYPE_CHECKING:
    from exburn import (
        backend,
        compute,
        config,
        distillation,
        dtype_policies,
        export,
        legacy,
        mixed_precision,
        ops,
        preprocessing,
        quantizers,
        random,
        saving,
        serving,
        tree,
        utils,
        visualization,
        wrappers,
    )
    from exburn.compute import vectorize
    from exburn.dtype_policies import DTypePolicy, FloatDTypePolicy
    from exburn.gradients import (
        check_gradients,
        compute_gradients,
        profile_step,
        train_step,
    )
    from exburn.health import configure, doctor, smoke_test, summary, version
    from exburn.inference import predict
    from exburn.management import (
        clone,
        compute_loss,
        deserialize_params,
        export_params,
        forward,
        forward_pattern,
        import_params,
        info,
        parameters,
        serialize_params,
        to_device,
        update_params,
    )
    from exburn.progress import fit_with_accuracy, fit_with_progress
    from exburn.quantizers import Quantizer
    from exburn.serving import Serving
    from exburn.timing import benchmark

__version__ = "0.1.0"

# Imported when they are first used, so that `import exburn` stays light.
_LAZY = (
    "backend",
    "compute",
    "config",
    "distillation",
    "dtype_policies",
    "export",
    "legacy",
    "mixed_precision",
    "ops",
    "preprocessing",
    "quantizers",
    "random",
    "saving",
    "serving",
    "tree",
    "utils",
    "visualization",
    "wrappers",
)
_LAZY_NAMES = {
    "DTypePolicy": "exburn.dtype_policies",
    "FloatDTypePolicy": "exburn.dtype_policies",
    "Quantizer": "exburn.quantizers",
    "Serving": "exburn.serving",
    "benchmark": "exburn.timing",
    "check_gradients": "exburn.gradients",
    "clone": "exburn.management",
    "compute_gradients": "exburn.gradients",
    "compute_loss": "exburn.management",
    "configure": "exburn.health",
    "deserialize_params": "exburn.management",
    "doctor": "exburn.health",
    "export_params": "exburn.management",
    "fit_with_accuracy": "exburn.progress",
    "fit_with_progress": "exburn.progress",
    "forward": "exburn.management",
    "forward_pattern": "exburn.management",
    "import_params": "exburn.management",
    "info": "exburn.management",
    "parameters": "exburn.management",
    "predict": "exburn.inference",
    "profile_step": "exburn.gradients",
    "serialize_params": "exburn.management",
    "smoke_test": "exburn.health",
    "summary": "exburn.health",
    "to_device": "exburn.management",
    "train_step": "exburn.gradients",
    "update_params": "exburn.management",
    "vectorize": "exburn.compute",
    "version": "exburn.health",
}

__all__ = [
    "DTypePolicy",
    "FloatDTypePolicy",
    "Function",
    "Initializer",
    "Input",
    "InputSpec",
    "KerasTensor",
    "Layer",
    "Loss",
    "Metric",
    "Model",
    "Operation",
    "Optimizer",
    "Precision",
    "Quantizer",
    "Regularizer",
    "RematScope",
    "Sequential",
    "Serving",
    "StatelessScope",
    "Symbol",
    "SymbolicScope",
    "Variable",
    "activations",
    "backend",
    "benchmark",
    "callbacks",
    "check_gradients",
    "clone",
    "compute",
    "compute_gradients",
    "compute_loss",
    "config",
    "configure",
    "constraints",
    "cuda_available",
    "data_loader",
    "datasets",
    "default_device",
    "deserialize_params",
    "device",
    "device_info",
    "device_name",
    "distillation",
    "doctor",
    "dtype_policies",
    "errors",
    "export",
    "export_params",
    "fit_with_accuracy",
    "fit_with_progress",
    "fn",
    "forward",
    "forward_pattern",
    "get_matmul_precision",
    "get_precision",
    "import_params",
    "info",
    "initializers",
    "key_scope",
    "layers",
    "legacy",
    "load_model",
    "losses",
    "metal_available",
    "metrics",
    "mixed_precision",
    "models",
    "name_scope",
    "ops",
    "optimizers",
    "parameters",
    "predict",
    "preprocessing",
    "profile_step",
    "quantizers",
    "random",
    "register",
    "regularizers",
    "remat",
    "saving",
    "serialize_params",
    "serving",
    "set_compilation_cache",
    "set_matmul_precision",
    "set_precision",
    "set_random_seed",
    "smoke_test",
    "summary",
    "to_device",
    "train_step",
    "tree",
    "update_params",
    "utils",
    "vectorize",
    "version",
    "visualization",
    "wrappers",
]


start_compilation_cache()


def __getattr__(name: str):
    if name in _LAZY:
        return importlib.import_module(f"exburn.{name}")
    if name in _LAZY_NAMES:
        return getattr(importlib.import_module(_LAZY_NAMES[name]), name)
    raise missing("exburn", name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY, *_LAZY_NAMES})
