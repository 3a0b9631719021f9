"""Functions of models under the names of ExBurn's reference system, an Elixir package.

A finished model as functions: run it, read it, copy it, move it, write it down; and
trainings that return the model and its history as a list.

Example:
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> data = exburn.serialize_params(model)
    >>> twin = exburn.deserialize_params(exburn.clone(model), data)
    >>> exburn.info(twin)["total_params"]
    15
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.callbacks import LoggingCallback, screen_callback
from exburn.callbacks.contract import Callback, CallbackList, History
from exburn.core.checks import check_count
from exburn.core.precision import is_float
from exburn.data import as_batch
from exburn.errors import (
    ArgumentError,
    DTypeError,
    FileFormatError,
    ShapeError,
    unknown_name,
)
from exburn.errors.boundary import api_boundary
from exburn.models.arguments import check_model
from exburn.models.copies import compile_as_copy
from exburn.models.inferring import require_predictor
from exburn.models.preparing import on_device, prepare
from exburn.models.session import require_trainer
from exburn.module.building import inspect_call, require_built
from exburn.module.traversal import iter_weights
from exburn.module.variable import assign
from exburn.runtime.files.atomic import write_atomically
from exburn.runtime.files.ordinary import BytesSource, read_whole
from exburn.saving.shards import TensorFile, tensor_bytes
from exburn.training.check import check_targets

_FORMAT = "exburn-parameters-1"
_FORMATS = ("json", "safetensors")
#: JSON has no numbers for these.
_NOT_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}
#: Nx' names of types, which the JSON files of ExBurn (Elixir) use.
_NX = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}


@api_boundary
def forward(model: Any, x: Any, *, training: bool = False) -> Any:
    """The outputs for one batch, from one compiled program; they stay on the device.

    `predict` streams any amount of rows into host memory; this is the plain call.

    Args:
        model: A model; compiled or not.
        x: One batch of inputs, in the model's structure.
        training: Whether dropout and the like are active, with a fixed key.

    Raises:
        DataError, ShapeError: The input does not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward(model, np.ones((2, 4))).shape
        (2, 3)

    Source: ExBurn (Elixir), ``ExBurn.Model.forward``.
    """
    check_model("forward", model)
    dataset = as_batch(x, op="forward")
    trainer = require_predictor(model)
    prepare(model, "predict", dataset)
    programs = trainer.preparer.programs

    def make() -> Callable:
        def forward(groups, x):
            key = jax.random.key(0)
            return programs.split.forward(groups, x, training=training, key=key)[0]

        return forward

    with on_device(model):
        program = programs.further(f"forward {training}", make)
        return program(programs.split.read(), dataset.tree[0])


@api_boundary
def compute_loss(model: Any, predictions: Any, targets: Any) -> float:
    """The loss of ``compile`` for given outputs; penalties of weights are not in it.

    Args:
        model: A compiled model.
        predictions: Outputs, as `forward` or ``predict`` returned them.
        targets: The targets.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError: Predictions and targets are no arrays of the same rows.
        ShapeError, TargetError: They do not fit the loss.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> compute_loss(model, np.ones((2, 1)), np.zeros((2, 1)))
        1.0

    Source: ExBurn (Elixir), ``ExBurn.Model.compute_loss``.
    """
    check_model("compute_loss", model)
    predictions, y, _ = as_batch(predictions, targets, op="compute_loss").tree
    loss = float(model.compute_loss(y=y, y_pred=predictions))
    if model.own_compute_loss is None:
        objective = require_trainer(model, "compute_loss").preparer.objective
        check_targets(objective, y, predictions)
    return loss


@api_boundary
def forward_pattern(model: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Shape and type of the outputs; nothing is computed.

    Args:
        model: A model with `Input`, or one that was called or trained.
        batch_size: Rows; None leaves them open.

    Raises:
        UncalledLayerError: The shapes are not known yet.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward_pattern(model, 8)
        {'output_shape': (8, 3), 'output_type': 'float32'}

    Source: ExBurn (Elixir), ``ExBurn.Model.forward_pattern``.
    """
    check_model("forward_pattern", model)
    if batch_size is not None:
        batch_size = check_count("forward_pattern", "batch_size", batch_size)
    called = inspect_call(model) if model.graph is None else None
    if called is None:
        outputs, fixed = model.output, True  # raises if there are none
    else:  # a subclass: what it was called on had some number of rows
        outputs, fixed = called[1][""], False

    def shape(output):
        rows, *rest = (n if isinstance(n, int) else None for n in output.shape)
        return (rows if fixed and rows is not None else batch_size, *rest)

    return {
        "output_shape": jax.tree.map(shape, outputs),
        "output_type": jax.tree.map(lambda s: jnp.dtype(s.dtype).name, outputs),
    }


@api_boundary
def parameters(model: Any) -> dict[str, jax.Array]:
    """All weights by path, those that training does not change included.

    The arrays are the model's own: the next training step may delete them. Copy what
    is to be kept.

    Args:
        model: A model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> {path: value.shape for path, value in parameters(model).items()}
        {'dense/kernel': (4, 3), 'dense/bias': (3,)}
    """
    _check_built(model, "parameters")
    return {path: weight.get_value() for path, weight, _ in iter_weights(model)}


@api_boundary
def update_params(model: Any, params: Mapping[str, Any]) -> Any:
    """Replaces weights by path; those not named stay. All or nothing.

    Args:
        model: A model.
        params: Arrays by path.

    Returns:
        The model.

    Raises:
        UnknownNameError: The model has no weight of that path.
        ShapeError: A shape differs.
        DTypeError: A value holds no real numbers.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model = update_params(model, {"dense/bias": np.ones(3)})
        >>> parameters(model)["dense/bias"].tolist()
        [1.0, 1.0, 1.0]
    """
    op = "update_params"
    _check_built(model, op)
    if not isinstance(params, Mapping):
        raise DTypeError(
            op, f"params must be a dict by path, received {type(params).__name__}"
        )
    own = {path: weight for path, weight, _ in iter_weights(model)}
    new = {}
    for path, value in params.items():
        if path not in own:
            raise unknown_name("weight", path, own, op=op)
        new[path] = _numbers(op, path, value)
        if new[path].shape != tuple(own[path].shape):
            raise ShapeError(
                op,
                f"{path} has shape {tuple(own[path].shape)}, received "
                f"{new[path].shape}; nothing was changed",
            )
    for path, value in new.items():
        assign(own[path], value)
    return model


def _numbers(op: str, path: str, value: Any) -> Any:
    """The value as an array of real numbers."""
    try:
        array = value if isinstance(value, jax.Array) else np.asarray(value)
        real = array.dtype.kind in "biu" or is_float(array.dtype)
    except ValueError:  # ragged lists
        real, array = False, None
    if not real:
        kind = type(value).__name__ if array is None else array.dtype
        raise DTypeError(
            op, f"{path} needs real numbers, received {kind}; nothing was changed"
        )
    return array


@api_boundary
def info(model: Any) -> dict[str, Any]:
    """Key figures of a model under ExBurn's names; ``model.info()`` tells more.

    Args:
        model: A model.

    Returns:
        ``total_params, layer_count, loss_function, optimizer, learning_rate, device,
        weight_decay, frozen_layers_count, estimated_memory_mb, compiled``. The memory
        is that of the parameters in their own dtypes.

    Raises:
        DTypeError: This is no model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((784,)), exburn.layers.Dense(10)])
        >>> model.compile("adam", "cross_entropy")
        >>> found = info(model)
        >>> found["total_params"], found["optimizer"], found["loss_function"]
        (7850, 'adam', 'cross_entropy')

    Source: ExBurn (Elixir), ``ExBurn.Model.info``.
    """
    check_model("info", model)
    figures = model.info()
    return {
        "total_params": figures.parameters,
        "layer_count": figures.layers,
        "loss_function": figures.loss,
        "optimizer": figures.optimizer,
        "learning_rate": figures.learning_rate,
        "device": figures.device,
        "weight_decay": getattr(model.optimizer, "l2_weight_decay", None) or 0.0,
        "frozen_layers_count": len(figures.frozen_layers),
        "estimated_memory_mb": sum(figures.bytes.values()) / 2**20,
        "compiled": figures.compiled,
    }


@api_boundary
def clone(model: Any) -> Any:
    """A deep copy: weights, compile settings and optimizer state; nothing is shared.

    Args:
        model: A model.

    Raises:
        ArgumentError: A part of the model cannot be described (see ``register``).

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model.compile("adam", "mse")
        >>> twin = clone(model)
        >>> twin.compiled, twin.optimizer is model.optimizer
        (True, False)

    Source: ExBurn (Elixir), ``ExBurn.Model.clone``.
    """
    check_model("clone", model)
    twin = model.clone()
    if model.compiled:
        compile_as_copy(twin, model, {})
    return twin


@api_boundary
def to_device(model: Any, device: Any) -> Any:
    """Moves a model to ``"cpu"``, ``"gpu"`` or a JAX device: ``model.to_device``.

    Args:
        model: A model.
        device: A device, or its name.

    Raises:
        DTypeError: This is no model.
        ArgumentError: There is no such device.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> to_device(model, "cpu") is model
        True
    """
    check_model("to_device", model)
    return model.to_device(device)


def _check_built(model: Any, op: str) -> None:
    check_model(op, model)
    require_built(model, op)
    model._require_weights()


@api_boundary
def serialize_params(model: Any) -> bytes:
    """All weights as the bytes of a safetensors file.

    Args:
        model: A built model.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> data = serialize_params(model)
        >>> deserialize_params(model, data) is model
        True
    """
    arrays = {path: np.asarray(value) for path, value in parameters(model).items()}
    return tensor_bytes(arrays, format=_FORMAT)


@api_boundary
def deserialize_params(model: Any, data: bytes) -> Any:
    """Puts the weights of `serialize_params` into a model. All or nothing.

    Args:
        model: A built model of the same architecture.
        data: What `serialize_params` returned.

    Returns:
        The model.

    Raises:
        DTypeError: These are no bytes.
        FileFormatError: The bytes are damaged, or of another model.
        ShapeError: A shape differs.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> deserialize_params(model, serialize_params(model)) is model
        True
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise DTypeError(
            "deserialize_params", f"bytes are needed, received {type(data).__name__}"
        )
    source = BytesSource(bytes(data), op="deserialize_params")
    with TensorFile(source, op="deserialize_params") as file:
        arrays = file.read(file.entries)
    return _replace_all(model, arrays, "deserialize_params")


@api_boundary
def export_params(model: Any, path: Any = None, *, format: str | None = None) -> Any:
    """Writes all weights in a format that other programs read.

    Args:
        model: A built model.
        path: File to write, atomically; None returns the contents.
        format: ``"json"``, ``{path: {shape, type, data}}`` with the numbers in row
            order, or ``"safetensors"``; by default what the file's suffix says.

    Returns:
        The path; without one, a ``str`` (JSON) or ``bytes``.

    Raises:
        UnknownNameError: An unknown format.

    Example:
        >>> import exburn, json
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> json.loads(export_params(model, format="json"))["dense/bias"]
        {'shape': [3], 'type': 'float32', 'data': [0.0, 0.0, 0.0]}
    """
    format = _format("export_params", path, format)
    if format == "safetensors":
        data: str | bytes = serialize_params(model)
    else:
        data = json.dumps(
            {
                name: {
                    "shape": list(value.shape),
                    "type": jnp.dtype(value.dtype).name,
                    "data": _to_json(value),
                }
                for name, value in parameters(model).items()
            },
            allow_nan=False,
        )
    if path is None:
        return data
    raw = data if isinstance(data, bytes) else data.encode()
    write_atomically(Path(path), lambda file: file.write(raw))
    return Path(path)


@api_boundary
def import_params(model: Any, source: Any, *, format: str | None = None) -> Any:
    """Puts the weights that `export_params` wrote into a model. All or nothing.

    Args:
        model: A built model of the same architecture.
        source: A path, or the contents: JSON, or ``bytes`` beside a format.
        format: ``"json"`` or ``"safetensors"``; by default what the suffix says.

    Returns:
        The model.

    Raises:
        FileFormatError: Damaged contents, or those of another model.
        ArgumentError: There is no such file, or bytes without a format.
        DTypeError: This is neither a path nor contents.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> path = tempfile.mkdtemp() + "/weights.json"
        >>> _ = export_params(model, path)
        >>> import_params(model, path) is model
        True
    """
    op, contents = "import_params", source
    if isinstance(source, str | os.PathLike) and not _is_json(source):
        path = Path(source)
        format = _format(op, path, format)
        contents = read_whole(path, op)
    elif not isinstance(source, str | bytes | bytearray):
        raise DTypeError(
            op, f"a path or contents are needed, received {type(source).__name__}"
        )
    elif format is None and not isinstance(source, str):
        raise ArgumentError(op, "bytes need a format", hint='format="safetensors"')
    format = _format(op, None, format)
    if format == "safetensors":
        return deserialize_params(model, contents)
    return _replace_all(model, _from_json(contents), op)


def _is_json(source: Any) -> bool:
    """Whether a string is a document, and not the name of a file."""
    return isinstance(source, str) and source.lstrip()[:1] in ("{", "[")


def _format(op: str, path: Any, format: str | None) -> str:
    if format is None:
        format = Path(path).suffix.lstrip(".") if path is not None else "json"
    if format not in _FORMATS:
        raise unknown_name("format", format, _FORMATS, op=op)
    return format


def _to_json(value: Any) -> list[Any]:
    """Numbers that read back to the same bits; JSON has no NaN and no infinity."""
    array = np.asarray(value)
    if array.dtype.kind not in "biuf":  # bfloat16 and its kin
        array = array.astype(np.float32)
    flat = array.ravel().tolist()
    return [v if math.isfinite(v) else str(v) for v in flat]


def _from_json(source: str | bytes) -> dict[str, np.ndarray]:
    try:
        return {name: _array(entry) for name, entry in json.loads(source).items()}
    except (
        AttributeError,
        KeyError,
        OverflowError,
        RecursionError,
        TypeError,
        ValueError,
    ) as error:
        raise FileFormatError(
            "import_params",
            "the contents are not {path: {shape, type, data}} in JSON",
            {"cause": f"{type(error).__name__}: {error}"},
        ) from error


def _array(entry: Mapping[str, Any]) -> np.ndarray:
    """The array that an entry describes in full, or one of several errors."""
    dtype, shape = jnp.dtype(_dtype_name(entry["type"])), entry["shape"]
    values = [_NOT_FINITE[v] if isinstance(v, str) else v for v in entry["data"]]
    kind = float if is_float(dtype) else int
    if not (is_float(dtype) or dtype.kind in "biu"):
        raise TypeError(f"{dtype} is no type of numbers")
    if any(not isinstance(n, int) or n < 0 for n in shape):
        raise ValueError(f"{shape} is no shape")
    if any(not isinstance(v, int | kind) for v in values):
        raise TypeError(f"the data are not all of {dtype}")
    return np.array(values, dtype).reshape(shape)


def _dtype_name(name: str) -> str:
    """A dtype's name; Nx' ``f32`` and ``s64`` are understood, too."""
    kind = name.rstrip("0123456789")
    return _NX.get(kind, kind) + name[len(kind) :]


def _replace_all(model: Any, arrays: Mapping[str, Any], op: str) -> Any:
    own = parameters(model)
    missing, extra = set(own) - set(arrays), set(arrays) - set(own)
    if missing or extra:
        raise FileFormatError(
            op,
            "the weights belong to another model",
            {
                "missing": ", ".join(sorted(missing)) or "none",
                "not in the model": ", ".join(sorted(extra)) or "none",
            },
        )
    return update_params(model, arrays)


@api_boundary
def fit_with_progress(
    model: Any,
    data: Any,
    *,
    epochs: int = 10,
    verbose: bool = True,
    screen: Any = None,
    callbacks: Any = None,
    **options: Any,
) -> tuple[Any, list[dict[str, Any]]]:
    """Trains, with a line for every epoch, and returns the model and its history.

    Args:
        model: A compiled model.
        data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
        epochs: Number of epochs.
        verbose: Whether `LoggingCallback` prints.
        screen: A queue or function that gets progress messages: see
            ``exburn.callbacks.screen_callback``.
        callbacks: Further callbacks.
        **options: Of ``model.fit``.

    Returns:
        ``(model, history)``; an entry of the history holds ``epoch`` (from 1),
        ``loss``, ``val_loss`` (None without validation), and all else that is logged.

    Raises:
        NotCompiledError: ``compile`` was not called.
        DataError, ShapeError, TargetError: The data do not fit the model.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> data = np.ones((8, 2)), np.zeros(8, int)
        >>> model, history = fit_with_progress(model, data, epochs=2, verbose=False)
        >>> [entry["epoch"] for entry in history]
        [1, 2]

    Source: Dala.ML, ``Burn.Training.fit_with_progress``.
    """
    check_model("fit_with_progress", model)
    own = CallbackList(callbacks).callbacks
    extra: list[Callback] = [LoggingCallback()] if verbose else []
    if screen is not None:
        extra.append(screen_callback(screen))
    parts = data if isinstance(data, tuple) else (data,)
    names = dict(zip(("x", "y", "sample_weight"), parts, strict=False))
    history: History = model.fit(
        **names, epochs=epochs, verbose=0, callbacks=[*own, *extra], **options
    )
    return model, _entries(history)


@api_boundary
def fit_with_accuracy(
    model: Any, data: Any, **options: Any
) -> tuple[Any, list[dict[str, Any]]]:
    """`fit_with_progress` with accuracy among the metrics.

    Args:
        model: A compiled model.
        data: ``(x, y)``, ``(x, y, sample_weight)`` or a loader.
        **options: As of `fit_with_progress`.

    Example:
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(2)])
        >>> model.compile("adam", "cross_entropy")
        >>> data = np.ones((8, 2)), np.zeros(8, int)
        >>> model, history = fit_with_accuracy(model, data, epochs=1, verbose=False)
        >>> "accuracy" in history[0]
        True

    Source: Dala.ML, ``Burn.Training.fit_with_accuracy``.
    """
    return fit_with_progress(model, data, accuracy=True, **options)


def _entries(history: History) -> list[dict[str, Any]]:
    entries = [{"epoch": e + 1, "loss": None, "val_loss": None} for e in history.epoch]
    at = {epoch: entry for epoch, entry in zip(history.epoch, entries, strict=True)}
    for name, values in history.history.items():
        for epoch, value in zip(history.epochs_of(name), values, strict=True):
            at[epoch][name] = value
    return entries
