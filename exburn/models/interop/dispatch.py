"""Finds out what was given, and asks it for predictions."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.errors import ArgumentError, DTypeError
from exburn.errors.boundary import api_boundary
from exburn.models import Model
from exburn.models.arguments import positive
from exburn.models.interop import core_ml, litert, onnx_models, stablehlo
from exburn.models.interop.flax_modules import is_linen, predict_linen, predict_nnx
from exburn.models.interop.rows import in_batches, on_host
from exburn.runtime.files.ordinary import check_ordinary, read_whole
from exburn.saving import load_model

_OWN = (".exburn", ".keras", ".h5", ".hdf5", ".safetensors")
_STABLEHLO = (".stablehlo", ".jax_exported")
_CORE_ML = (".mlmodel", ".mlpackage", ".mlmodelc")


@api_boundary
def predict(
    model: Any,
    x: Any,
    *,
    batch_size: int | None = None,
    variables: Any = None,
    timeout: float | None = None,
) -> Any:
    """The outputs of any model for every row of ``x``, as NumPy arrays.

    ======================================  =============================  ===========
    ``model``                               what runs                      needs
    ======================================  =============================  ===========
    ExBurn model, ``.exburn``, ``.keras``,  ``model.predict``
    ``.h5``
    ``nnx.Module``, alone or with a state   the module, in inference mode
    linen module with ``variables``         ``module.apply``
    ``.onnx``, ``InferenceSession``         onnxruntime                    [onnx]
    ``.tflite``, LiteRT ``Interpreter``     ai-edge-litert                 [litert]
    ``.mlmodel``, ``.mlpackage``,           Core ML, on macOS              [coreml]
    ``MLModel``
    ``.stablehlo``, ``bytes``,              ``jax.export``                 [export]
    ``jax.export.Exported``
    scikit-learn estimator, anything        its ``predict``
    with ``predict``
    any callable                            ``model(x)``
    ======================================  =============================  ===========

    Files are read at every call: load a model that is asked often, and pass that.

    Args:
        model: See above. A file is recognised by its suffix.
        x: An array or a tree of arrays, rows first; for files that ``model.export``
            wrote, and all ONNX, LiteRT and Core ML models, also a dict by input names.
        batch_size: Rows of a batch. By default 32 for ExBurn and flax models; all rows
            at once for the others, unless their batch size is fixed.
        variables: Of a linen module; or the state of an ``nnx.Module``.
        timeout: Seconds after which an ONNX program is stopped, for each batch: ten
            minutes by default, ``math.inf`` for ever. Other programs cannot be stopped.

    Returns:
        Arrays in the structure of the model's outputs.

    Raises:
        MissingDependencyError: An optional package is needed; it names the extra.
        ArgumentError, DTypeError: This is not a model, or there is no such file.
        DataError, ShapeError: The inputs are not those of the model.
        FileFormatError: The file is damaged.
        OutOfMemoryError, DeadlineExceededError: An ONNX program takes more memory than
            there is, or more time than it may.

    Example:
        >>> from exburn.layers import Dense, Input
        >>> from exburn.models import Sequential
        >>> model = Sequential([Input((3,)), Dense(2, kernel_initializer="ones")])
        >>> predict(model, np.ones((1, 3)))
        array([[3., 3.]], dtype=float32)
        >>> predict(lambda x: x + 1, np.zeros(2))
        array([1., 1.])
    """
    if batch_size is not None:
        batch_size = positive("predict", "batch_size", batch_size)
    if timeout is not None and not timeout > 0:
        raise ArgumentError(
            "predict", f"timeout is a number of seconds above 0, received {timeout!r}"
        )
    if isinstance(model, str | os.PathLike):
        model = load(Path(model))
    elif isinstance(model, bytes | bytearray):
        model = stablehlo.read(model)
    elif variables is not None:
        model = (model, variables)
    if type(model).__module__.startswith("onnx."):  # onnx.ModelProto
        model = onnx_models.load(model.SerializeToString())
    if onnx_models.is_session(model):
        return onnx_models.predict_session(model, x, batch_size, timeout)
    if timeout is not None:
        raise ArgumentError(
            "predict",
            f"timeout is for ONNX programs, received {type(model).__name__}",
            hint="Run other programs in a process of their own, which can be ended.",
        )
    return _predict(model, x, batch_size)


def _predict(model: Any, x: Any, batch_size: int | None) -> Any:
    first, second = _pair(model)
    if isinstance(first, nnx.GraphDef):
        return predict_nnx(first, second, x, batch_size)
    if isinstance(first, nnx.Module):
        return predict_nnx(nnx.graphdef(first), second, x, batch_size)
    if is_linen(first):
        return predict_linen(first, second, x, batch_size)
    if isinstance(model, Model):
        return model.predict(x, batch_size=batch_size, verbose=0)
    if isinstance(model, nnx.Module):
        return predict_nnx(*nnx.split(model), x, batch_size)
    if is_linen(model):
        return predict_linen(model, None, x, batch_size)
    if stablehlo.is_exported(model):
        return stablehlo.predict_exported(model, x, batch_size)
    if litert.is_interpreter(model):
        return litert.predict_litert(model, x, batch_size)
    if core_ml.is_core_ml(model):
        return core_ml.predict_core_ml(model, x)
    if callable(getattr(model, "predict", None)) and not isinstance(model, type):
        return _plain(model.predict, x, batch_size)
    if callable(model) and not isinstance(model, type):
        return _plain(model, x, batch_size)
    raise DTypeError(
        "predict",
        f"a model is needed, received {type(model).__name__}",
        {"received": repr(model)},
        hint="A model, module, session, estimator or function, or the path of a file.",
    )


def _pair(model: Any) -> tuple[Any, Any]:
    """What defines a flax module, and its state, if that is what was given."""
    return model if isinstance(model, tuple) and len(model) == 2 else (None, None)


def _plain(run: Any, x: Any, batch_size: int | None) -> Any:
    if batch_size is None:
        return on_host(run(x))
    leaves, treedef = jax.tree.flatten(x)
    leaves = [v if hasattr(v, "shape") else np.asarray(v) for v in leaves]
    return in_batches(
        lambda part: run(treedef.unflatten(part)), leaves, batch_size, padded=False
    )


def load(path: Path) -> Any:
    """The model in a file that ``predict`` reads, by its suffix."""
    suffix = path.suffix.lower()
    if not (suffix in _CORE_ML and path.is_dir()):  # whose packages are folders
        check_ordinary(path, "predict")
    if suffix in _OWN:
        return load_model(path)
    if suffix == ".onnx":
        return onnx_models.load(str(path))
    if suffix == ".tflite":
        return litert.load(path)
    if suffix in _STABLEHLO:
        return stablehlo.read(read_whole(path, "predict"))
    if suffix in _CORE_ML:
        return core_ml.load(str(path))
    suffixes = ", ".join((*_OWN, ".onnx", ".tflite", *_STABLEHLO, *_CORE_ML))
    raise ArgumentError(
        "predict",
        f"the suffix of {path.name!r} does not tell what it is",
        {"known": suffixes},
        hint="Load the file yourself, and pass the model.",
    )
