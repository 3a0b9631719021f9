"""A finished model as functions: run it, read it, copy it, move it, write it down.

Example:
    >>> import exburn
    >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
    >>> data = exburn.serialize_params(model)
    >>> twin = exburn.deserialize_params(exburn.clone(model), data)
    >>> exburn.info(twin)["total_params"]
    15
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import safetensors
import safetensors.numpy

from exburn.dataset import ArrayDataset, as_dataset
from exburn.errors import (
    ArgumentError,
    DataError,
    FileFormatError,
    NotBuiltError,
    ShapeError,
    unknown_name,
)
from exburn.saving.atomic import write_atomically
from exburn.training.trainer import Trainer
from exburn.traversal import iter_weights
from exburn.weights import assign

__all__ = [
    "clone",
    "compute_loss",
    "deserialize_params",
    "export_params",
    "forward",
    "forward_pattern",
    "import_params",
    "info",
    "parameters",
    "serialize_params",
    "to_device",
    "update_params",
]

_FORMATS = ("json", "safetensors")
#: Nx' names of types, which the JSON files of ExBurn (Elixir) use.
_NX = {"f": "float", "bf": "bfloat", "s": "int", "u": "uint", "c": "complex"}


# -------------------------------------------------------------------------- running
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
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward(model, np.ones((2, 4))).shape
        (2, 3)

    Source: ExBurn (Elixir), ``ExBurn.Model.forward``.
    """
    dataset = as_dataset(x, op="forward")
    if not isinstance(dataset, ArrayDataset):
        raise DataError("forward", "one batch of arrays is needed, received a loader")
    run = model._run.value
    if run.trainer is None:
        run.trainer = Trainer(model)
    model._prepare("predict", dataset)
    programs = run.trainer.programs

    def make() -> Callable:
        def forward(groups, x):
            key = jax.random.key(0)
            return programs.split.forward(groups, x, training=training, key=key)[0]

        return forward

    with model._on_device():
        program = programs.further(f"forward {training}", make)
        return program(programs.split.read(), dataset.tree[0])


def compute_loss(model: Any, predictions: Any, targets: Any) -> float:
    """The loss of ``compile`` for given outputs; penalties of weights are not in it.

    Args:
        model: A compiled model.
        predictions: Outputs, as `forward` or ``predict`` returned them.
        targets: The targets.

    Raises:
        NotCompiledError: ``compile`` was not called.
        ShapeError, TargetError: Predictions and targets do not fit the loss.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(1)])
        >>> model.compile("sgd", "mse")
        >>> compute_loss(model, np.ones((2, 1)), np.zeros((2, 1)))
        1.0

    Source: ExBurn (Elixir), ``ExBurn.Model.compute_loss``.
    """
    predictions = jax.tree.map(jnp.asarray, predictions)
    return float(
        model.compute_loss(y=jax.tree.map(jnp.asarray, targets), y_pred=predictions)
    )


def forward_pattern(model: Any, batch_size: int | None = None) -> dict[str, Any]:
    """Shape and type of the outputs; nothing is computed.

    Args:
        model: A built model.
        batch_size: Rows; None leaves them open.

    Raises:
        NotBuiltError: The shapes are not known yet.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> forward_pattern(model, 8)
        {'output_shape': (8, 3), 'output_type': 'float32'}

    Source: ExBurn (Elixir), ``ExBurn.Model.forward_pattern``.
    """
    symbols = model.output  # raises if there are none

    def shape(symbol):
        first, *rest = symbol.shape
        return (batch_size if first is None else first, *rest)

    return {
        "output_shape": jax.tree.map(shape, symbols),
        "output_type": jax.tree.map(lambda s: jnp.dtype(s.dtype).name, symbols),
    }


# -------------------------------------------------------------------------- reading
def parameters(model: Any) -> dict[str, jax.Array]:
    """All weights by path, those that training does not change included.

    The arrays are the model's own: the next training step may delete them. Copy what
    is to be kept.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> {path: value.shape for path, value in parameters(model).items()}
        {'dense/kernel': (4, 3), 'dense/bias': (3,)}
    """
    _built(model, "parameters")
    return {path: weight.get_value() for path, weight, _ in iter_weights(model)}


def update_params(model: Any, params: Mapping[str, Any]) -> Any:
    """Replaces weights by path; those not named stay. All or nothing.

    Returns:
        The model.

    Raises:
        UnknownNameError: The model has no weight of that path.
        ShapeError: A shape differs.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> model = update_params(model, {"dense/bias": np.ones(3)})
        >>> parameters(model)["dense/bias"].tolist()
        [1.0, 1.0, 1.0]
    """
    _built(model, "update_params")
    own = {path: weight for path, weight, _ in iter_weights(model)}
    for path, value in params.items():
        if path not in own:
            raise unknown_name("weight", path, own, op="update_params")
        if tuple(np.shape(value)) != tuple(own[path].shape):
            raise ShapeError(
                "update_params",
                f"{path} has shape {tuple(own[path].shape)}, received "
                f"{np.shape(value)}; nothing was changed",
            )
    for path, value in params.items():
        assign(own[path], value)
    return model


def info(model: Any) -> dict[str, Any]:
    """Key figures of a model under ExBurn's names; ``model.info()`` tells more.

    Returns:
        ``total_params, layer_count, loss_function, optimizer, learning_rate, device,
        weight_decay, frozen_layers_count, estimated_memory_mb, compiled``. The memory
        is that of the parameters in their own dtypes.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((784,)), exburn.layers.Dense(10)])
        >>> model.compile("adam", "cross_entropy")
        >>> found = info(model)
        >>> found["total_params"], found["optimizer"], found["loss_function"]
        (7850, 'adam', 'cross_entropy')

    Source: ExBurn (Elixir), ``ExBurn.Model.info``.
    """
    found = model.info()
    return {
        "total_params": found.parameters,
        "layer_count": found.layers,
        "loss_function": found.loss,
        "optimizer": found.optimizer,
        "learning_rate": found.learning_rate,
        "device": found.device,
        "weight_decay": getattr(model.optimizer, "l2_weight_decay", None) or 0.0,
        "frozen_layers_count": len(found.frozen_layers),
        "estimated_memory_mb": sum(found.bytes.values()) / 2**20,
        "compiled": found.compiled,
    }


# -------------------------------------------------------------------------- copying
def clone(model: Any) -> Any:
    """A deep copy: weights, compile settings and optimizer state; nothing is shared.

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
    twin = model.clone()
    run = model._run.value
    if not model.compiled:
        return twin
    settings = {
        name: copy.deepcopy(v)
        for name, v in run.settings.items()
        if name != "optimizer"
    }
    optimizer = type(run.optimizer).from_config(run.optimizer.get_config())
    twin.compile(optimizer, **settings)
    if run.trainer.opt_state is not None:
        twin._run.value.trainer.opt_state = jax.tree.map(
            jnp.copy, run.trainer.opt_state
        )
        twin._run.value.trainer.step = run.trainer.step
    return twin


def to_device(model: Any, device: Any) -> Any:
    """Moves a model to ``"cpu"``, ``"gpu"`` or a JAX device: ``model.to_device``.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> to_device(model, "cpu") is model
        True
    """
    return model.to_device(device)


# -------------------------------------------------------------------------- writing
def serialize_params(model: Any) -> bytes:
    """All weights as the bytes of a safetensors file.

    Example:
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((4,)), exburn.layers.Dense(3)])
        >>> data = serialize_params(model)
        >>> deserialize_params(model, data) is model
        True
    """
    arrays = {path: np.asarray(value) for path, value in parameters(model).items()}
    return safetensors.numpy.save(arrays)


def deserialize_params(model: Any, data: bytes) -> Any:
    """Puts the weights of `serialize_params` into a model. All or nothing.

    Returns:
        The model.

    Raises:
        FileFormatError: The bytes are damaged, or of another model.
        ShapeError: A shape differs.
    """
    try:
        arrays = safetensors.numpy.load(bytes(data))
    except (safetensors.SafetensorError, ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            "deserialize_params",
            "the bytes are no intact safetensors data",
            {"bytes": len(data), "cause": error},
        ) from error
    return _replace_all(model, arrays, "deserialize_params")


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


def import_params(model: Any, source: Any, *, format: str | None = None) -> Any:
    """Puts the weights that `export_params` wrote into a model. All or nothing.

    Args:
        model: A built model of the same architecture.
        source: A path, or the contents as ``str`` or ``bytes`` beside a format.
        format: ``"json"`` or ``"safetensors"``; by default what the suffix says.

    Returns:
        The model.

    Raises:
        FileFormatError: Damaged contents, or those of another model.
        ArgumentError: There is no such file.
    """
    if format is None or isinstance(source, Path):
        path = Path(source)
        format = _format("import_params", path, format)
        if not path.is_file():
            raise ArgumentError("import_params", f"there is no file {path}")
        source = path.read_bytes()
    format = _format("import_params", None, format)
    if format == "safetensors":
        return deserialize_params(model, source)
    return _replace_all(model, _from_json(source), "import_params")


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
        arrays = {}
        for name, entry in json.loads(source).items():
            dtype = jnp.dtype(_dtype_name(entry["type"]))
            values = [float(v) if isinstance(v, str) else v for v in entry["data"]]
            array = np.array(values, dtype)
            arrays[name] = array.reshape([int(size) for size in entry["shape"]])
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
    return arrays


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


def _built(model: Any, op: str) -> None:
    if not model.built:
        raise NotBuiltError(
            op,
            "the model has no weights before it is built",
            hint="Give it an Input(shape), or call it on data first.",
        )
    model._require_weights()
