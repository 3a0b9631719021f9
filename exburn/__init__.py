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

import sys
from typing import TYPE_CHECKING

from exburn.runtime.gc_pause import starting

with starting():
    from exburn.core.lazy_names import importer
    from exburn.core.version import __version__ as __version__
    from exburn.errors.boundary import api_boundary
    from exburn.runtime.compilation_cache import start_compilation_cache
    from exburn.runtime.kept_memory import share_arena

if TYPE_CHECKING:
    from jax import named_scope as name_scope

    from exburn import (
        activations,
        applications,
        backend,
        callbacks,
        compression,
        compute,
        config,
        constraints,
        datasets,
        distillation,
        distribution,
        dtype_policies,
        errors,
        export,
        initializers,
        insight,
        layers,
        legacy,
        losses,
        metrics,
        mixed_precision,
        models,
        ops,
        optimizers,
        preprocessing,
        quantizers,
        random,
        regularizers,
        runs,
        saving,
        serving,
        text,
        tree,
        tuning,
        utils,
        visualization,
        weights,
        wrappers,
    )
    from exburn.compression import prune, quantize_aware
    from exburn.compute import vectorize
    from exburn.core.precision import (
        PrecisionPolicy,
        get_matmul_precision,
        get_precision,
        set_matmul_precision,
        set_precision,
    )
    from exburn.core.random_keys import key_scope, set_random_seed
    from exburn.core.registry import register
    from exburn.core.symbolic_shapes import SymbolicScope
    from exburn.datasets import loader as data_loader
    from exburn.diagnostics.benchmark import benchmark
    from exburn.diagnostics.doctor import (
        configure,
        doctor,
        smoke_test,
        summary,
        version,
    )
    from exburn.diagnostics.gradient_check import check_gradients
    from exburn.diagnostics.gradients import compute_gradients, profile_step, train_step
    from exburn.distillation import Distiller
    from exburn.dtype_policies import DTypePolicy, FloatDTypePolicy
    from exburn.initializers import Initializer
    from exburn.layers import Input
    from exburn.losses import Loss
    from exburn.metrics import Metric
    from exburn.models import Function, Model, Sequential, load_model
    from exburn.models.elixir import (
        clone,
        compute_loss,
        deserialize_params,
        export_params,
        fit_with_accuracy,
        fit_with_progress,
        forward,
        forward_pattern,
        import_params,
        info,
        parameters,
        serialize_params,
        to_device,
        update_params,
    )
    from exburn.models.interop import predict
    from exburn.module.input_spec import InputSpec
    from exburn.module.layer import Layer
    from exburn.module.remat import RematScope, remat
    from exburn.module.stateless_scope import StatelessScope
    from exburn.module.symbolic_tensor import Operation, Symbol
    from exburn.module.symbolic_tensor import Symbol as KerasTensor
    from exburn.module.symbolic_tensor import lift as fn
    from exburn.module.variable import Variable
    from exburn.optimizers import Optimizer
    from exburn.quantizers import Quantizer
    from exburn.regularizers import Regularizer
    from exburn.runtime.compilation_cache import set_compilation_cache
    from exburn.runtime.device import (
        cuda_available,
        default_device,
        describe,
        device,
        device_info,
        device_name,
        metal_available,
    )
    from exburn.serving import Serving
    from exburn.training.privacy.accounting import Privacy
    from exburn.tuning import (
        PBT,
        Halving,
        Hyperband,
        choice,
        log_uniform,
        sweep,
        uniform,
    )
    from exburn.utils.keras_alias import KerasAlias

# Imported when they are first used: `import exburn` takes hardly longer than JAX. What
# else is listed below is a namespace.
_LAZY_NAMES = {
    "exburn.compression": "prune quantize_aware",
    "exburn.compute": "vectorize",
    "exburn.core.precision": (
        "PrecisionPolicy get_matmul_precision get_precision set_matmul_precision "
        "set_precision"
    ),
    "exburn.core.random_keys": "key_scope set_random_seed",
    "exburn.core.registry": "register",
    "exburn.core.symbolic_shapes": "SymbolicScope",
    "exburn.datasets": "data_loader=loader",
    "exburn.diagnostics.benchmark": "benchmark",
    "exburn.diagnostics.doctor": "configure doctor smoke_test summary version",
    "exburn.diagnostics.gradient_check": "check_gradients",
    "exburn.diagnostics.gradients": "compute_gradients profile_step train_step",
    "exburn.distillation": "Distiller",
    "exburn.dtype_policies": "DTypePolicy FloatDTypePolicy",
    "exburn.initializers": "Initializer",
    "exburn.layers": "Input",
    "exburn.losses": "Loss",
    "exburn.metrics": "Metric",
    "exburn.models": "Function Model Sequential load_model",
    "exburn.models.elixir": (
        "clone compute_loss deserialize_params export_params fit_with_accuracy "
        "fit_with_progress forward forward_pattern import_params info parameters "
        "serialize_params to_device update_params"
    ),
    "exburn.models.interop": "predict",
    "exburn.module.input_spec": "InputSpec",
    "exburn.module.layer": "Layer",
    "exburn.module.remat": "RematScope remat",
    "exburn.module.stateless_scope": "StatelessScope",
    "exburn.module.symbolic_tensor": "Operation Symbol KerasTensor=Symbol fn=lift",
    "exburn.module.variable": "Variable",
    "exburn.optimizers": "Optimizer",
    "exburn.quantizers": "Quantizer",
    "exburn.regularizers": "Regularizer",
    "exburn.runtime.compilation_cache": "set_compilation_cache",
    "exburn.runtime.device": (
        "cuda_available default_device describe device device_info device_name "
        "metal_available"
    ),
    "exburn.serving": "Serving",
    "exburn.training.privacy.accounting": "Privacy",
    "exburn.tuning": "PBT Halving Hyperband choice log_uniform sweep uniform",
    "jax": "name_scope=named_scope",
}

# fmt: off
__all__ = [
    "DTypePolicy", "Distiller", "FloatDTypePolicy", "Function", "Halving", "Hyperband",
    "Initializer", "Input", "InputSpec", "KerasTensor", "Layer", "Loss", "Metric",
    "Model", "Operation", "Optimizer", "PBT", "PrecisionPolicy", "Privacy", "Quantizer",
    "Regularizer", "RematScope", "Sequential", "Serving", "StatelessScope", "Symbol",
    "SymbolicScope", "Variable", "activations", "applications", "as_keras", "backend",
    "benchmark", "callbacks", "check_gradients", "choice", "clone", "compression",
    "compute", "compute_gradients", "compute_loss", "config", "configure",
    "constraints", "cuda_available", "data_loader", "datasets", "default_device",
    "describe", "deserialize_params", "device", "device_info", "device_name",
    "distillation", "distribution", "doctor", "dtype_policies", "errors", "export",
    "export_params",
    "fit_with_accuracy", "fit_with_progress", "fn", "forward", "forward_pattern",
    "get_matmul_precision", "get_precision", "import_params", "info", "initializers",
    "insight", "key_scope", "layers", "legacy", "load_model", "log_uniform", "losses",
    "metal_available", "metrics", "mixed_precision", "models", "name_scope", "ops",
    "optimizers", "parameters", "predict", "preprocessing", "profile_step", "prune",
    "quantize_aware", "quantizers", "random", "register", "regularizers", "remat",
    "runs", "saving", "serialize_params", "serving", "set_compilation_cache",
    "set_matmul_precision", "set_precision", "set_random_seed", "smoke_test", "summary",
    "sweep", "text", "to_device", "train_step", "tree", "tuning", "uniform",
    "update_params", "utils", "vectorize", "version", "visualization", "weights",
    "wrappers",
]
# fmt: on


share_arena()
start_compilation_cache()


@api_boundary
def as_keras() -> "KerasAlias":
    """Makes ``import keras`` mean ExBurn, in this process.

    ``keras``, ``keras.layers`` …, ``keras.api`` and, by their public names, those of
    ``keras.src`` are found here then, whether Keras is installed or not. Call it before
    anything imports Keras: at the top of a program, or run the whole program by
    ``python -m exburn.as_keras script.py``.

    Returns:
        What tells which names were asked for, and are not there.

    Raises:
        ArgumentError: Keras itself is imported already.

    Example:
        >>> import exburn
        >>> alias = exburn.as_keras()  # doctest: +SKIP
        >>> import keras  # doctest: +SKIP
        >>> keras.layers.Dense is exburn.layers.Dense  # doctest: +SKIP
        True
    """
    from exburn.utils.keras_alias import install

    return install(sys.modules[__name__])


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = importer("exburn", _LAZY_NAMES, __all__)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
