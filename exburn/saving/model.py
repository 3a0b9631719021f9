"""Whole models in files: architecture, weights, compile settings, optimizer state.

A file is a safetensors file with digests (``exburn.saving.shards``). Tensors are named
by the paths of the weights; those of the optimizer's state begin with ``/optimizer/``,
and what layers save by methods of their own with ``/own/`` and ``/assets/``; the text
of a tokenizer is ``/tokenizer``; ``beside.py`` has what begins with ``/beside/``.
The description of the model is packed JSON in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.core import registry
from exburn.errors import ArgumentError, ModelFormatError
from exburn.errors.boundary import api_boundary
from exburn.module.building import require_built
from exburn.module.layer import Layer
from exburn.module.traversal import iter_modules
from exburn.runtime.files.atomic import path_of, target_of
from exburn.runtime.files.ordinary import HDF5, ZIP, Source
from exburn.saving.beside import Beside
from exburn.saving.header import MAX_HEADER
from exburn.saving.json_text import fits, pack_text, parse_json
from exburn.saving.keras_config import modernize
from exburn.saving.model_description import (
    calls_too_often,
    check_numbers,
    describe_model,
    from_json,
    hoist,
    largest_size,
    to_json,
    too_many,
)
from exburn.saving.model_reading import TOKENIZER, ModelReader
from exburn.saving.model_tensors import optimizer_leaves, variables
from exburn.saving.own_storage import own_assets, own_variables
from exburn.saving.shards import TensorFile, byte_count, write_tensors

__all__ = ["load_model", "model_from_json", "model_to_json", "save_model"]

FORMAT = "exburn-model-1"


# ---------------------------------------------------------------------- saving
@api_boundary
def save_model(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    zipped: bool | None = None,
    *,
    include_optimizer: bool = True,
    max_shard_size: Any = "5GB",
) -> None:
    """Writes a model to one file; what was there before survives any failure.

    The file holds the architecture, the weights, what ``compile`` was given, the
    optimizer's state and the seed, so that training goes on as if it had not been
    interrupted. It is a safetensors file, whatever its suffix.

    Args:
        model: A built model, or a layer alone, of which there is no training.
        filepath: The file; ``.exburn`` is appended if it has no suffix.
        overwrite: Whether an existing file may be replaced.
        zipped: For Keras code; a model is one file, so ``False`` is an error.
        include_optimizer: Whether the optimizer's state is written.
        max_shard_size: Size, such as ``"5GB"``, from which on the tensors go into
            several files beside an index; ``None`` never splits.

    Raises:
        NotBuiltError: The model has no weights yet.
        ArgumentError: A part cannot be described, such as a lambda that is not
            registered, or the file exists and may not be replaced. Nothing is written.
        SaveError: The disk is full, or writing is not permitted.

    Example:
        >>> import tempfile
        >>> from exburn.layers import Dense, Input
        >>> from exburn.models import Sequential
        >>> path = Path(tempfile.mkdtemp(), "small.exburn")
        >>> save_model(Sequential([Input((4,)), Dense(2)]), path)
        >>> load_model(path).count_params()
        10
    """
    if zipped is not None and not zipped:
        raise ArgumentError(
            "save",
            "a model is saved as one file, received zipped=False",
            hint="Leave the argument out; max_shard_size splits a large file.",
        )
    write_model(
        model,
        filepath,
        overwrite,
        include_optimizer=include_optimizer,
        max_shard_size=max_shard_size,
    )


def write_model(
    model: Any,
    filepath: Any,
    overwrite: bool = True,
    *,
    include_optimizer: bool = True,
    max_shard_size: Any = "5GB",
    beside: Beside | None = None,
) -> Path:
    """As ``save_model``, with what lies beside the model in the file.

    Returns:
        The file.
    """
    path = _path(filepath, overwrite)
    limit = byte_count(max_shard_size, "save")
    if not isinstance(model, Layer):
        raise ArgumentError(
            "save", f"a model or layer is saved, received {type(model).__name__}"
        )
    if not model.is_model:
        _check_alone(model)
    require_built(model, "save")
    with registry.keeping_arrays() as arrays:
        description, lists = hoist(describe_model(model))
    tensors: dict[str, Any] = {**arrays, **lists, **dict(variables(model))}
    tensors |= own_variables(model, "save") | own_assets(model, "save")
    root: Any = model
    tokenizer = root._tokenizer_state() if root.is_model else None
    if tokenizer is not None:
        text = tokenizer.pop("text").encode()
        tensors[TOKENIZER] = np.frombuffer(text, np.uint8)
    _write(
        path,
        description,
        tensors,
        compiled=root.get_compile_config() if root.is_model else None,
        training=root._training_state() if root.is_model else None,
        tokenizer=tokenizer,
        include_optimizer=include_optimizer,
        max_shard_size=limit,
        beside=beside,
    )
    return path


def _write(
    path: Path,
    description: dict[str, Any],
    tensors: dict[str, Any],
    *,
    compiled: dict[str, Any] | None,
    training: dict[str, Any] | None,
    tokenizer: dict[str, Any] | None,
    include_optimizer: bool,
    max_shard_size: int | None,
    beside: Beside | None,
) -> None:
    """Writes what describes a model, which is plain data by now.

    Args:
        description: The architecture, JSON-able.
        tensors: All arrays by their names in the file, but for the optimizer's.
        compiled: What ``compile`` was given, JSON-able.
        training: Seed, step, epochs and the optimizer's state.
        tokenizer: What is told of the tokenizer beside its text, which is a tensor.
        include_optimizer: Whether that state is written.
        max_shard_size: Bytes from which on the tensors go into several files.
        beside: What else lies in the file.
    """
    about: dict[str, Any] = {"model": description, "compile": compiled}
    if tokenizer is not None:
        about["tokenizer"] = tokenizer
    if training is not None:
        opt_state = training.pop("opt_state")
        about["training"] = training
        if include_optimizer and opt_state is not None:
            about["optimizer_state"] = True
            tensors = tensors | optimizer_leaves(opt_state)
    check_numbers(description, largest_size(t.shape for t in tensors.values()))
    text = to_json(about, separators=(",", ":"))
    data = text.encode()
    if len(data) > MAX_HEADER or not fits(data) or too_many(about, len(tensors)):
        raise ArgumentError(
            "save",
            f"the model has more parts than a file may describe ({len(text)} bytes)",
            hint="Save its weights: model.save_weights(path).",
        )
    metadata = {"model": pack_text(text)}
    if beside is not None:
        metadata |= beside.metadata()
        tensors = tensors | beside.tensors()
    write_tensors(path, tensors, metadata, format=FORMAT, max_shard_size=max_shard_size)


def _check_alone(layer: Layer) -> None:
    """Refuses a layer of which only a model would tell what was done to it."""
    for path, part in iter_modules(layer):
        is_quantized = getattr(part, "quantization_mode", None) is not None
        if is_quantized or getattr(part, "_low_ranks", ()):
            raise ArgumentError(
                "save",
                f"{path or layer.name!r} is quantized or has adapters, which the file "
                "of a model tells, but not that of a layer alone",
                hint="Save a model: Sequential([Input(shape), layer]).save(path).",
            )


def _path(filepath: Any, overwrite: bool) -> Path:
    path = path_of(filepath, ".exburn", "save")
    if path.suffix in (".h5", ".hdf5"):
        raise ArgumentError(
            "save",
            f"a model is no HDF5 file, so it cannot be called {path.name!r}",
            hint=f"Save it as {path.stem}.exburn.",
        )
    return target_of(path, "save", overwrite=overwrite)


# ---------------------------------------------------------------------- loading
@api_boundary
def load_model(
    filepath: Any,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Reads a model that ``save_model`` wrote, or Keras.

    Loading runs no code from the file and opens no other: classes and functions are
    those registered here or passed in. Nothing is allocated before the sizes in the
    description fit those of the tensors, and in a file of ours a flipped bit is an
    error. What a file is, is told by its content.

    Args:
        filepath: The file; a ``.keras`` archive or legacy ``.h5`` file of Keras', too,
            of built-in layers and those that are registered or passed in.
        custom_objects: Classes and functions by name, besides the registered ones.
        compile: Whether the model is compiled as it was, with the optimizer's state.
        safe_mode: Kept for Keras code; there is no unsafe mode.

    Raises:
        ModelFormatError: The file is damaged, or names what is not known here.
        ArgumentError: There is no such file.
        LoadError: The system refuses to read it.
        MissingDependencyError: A file of Keras' needs h5py.

    Example:
        >>> import tempfile
        >>> from exburn.layers import Dense, Input
        >>> from exburn.models import Sequential
        >>> path = Path(tempfile.mkdtemp(), "small.exburn")
        >>> Sequential([Input((4,)), Dense(2)], name="small").save(path)
        >>> load_model(path).name
        'small'
    """
    if not safe_mode:
        raise ArgumentError(
            "load_model",
            "files never hold code here, so there is no unsafe mode",
            hint="Pass what the file names: custom_objects={'name': function}.",
        )
    path = path_of(filepath, ".exburn", "load_model", exists=True)
    with Source(path, op="load_model") as file:
        start = file.read(0, 8)
    if start.startswith(ZIP) or start == HDF5:
        from exburn.saving import keras_model

        zipped = start.startswith(ZIP)
        load = keras_model.load_archive if zipped else keras_model.load_hdf5
        return load(path, custom_objects, compile)
    with TensorFile(path, op="load_model") as file:
        if file.format != FORMAT or not file.sealed:
            raise ModelFormatError(
                "load_model",
                f"{path} holds tensors, but no model",
                {"format": file.format or "not of ExBurn's making"},
                hint="Build the model, then model.load_weights(path).",
            )
        file.clean()
        return ModelReader(file, custom_objects).read(compile)


# ---------------------------------------------------------------------- JSON
@api_boundary
def model_to_json(model: Any, **options: Any) -> str:
    """The architecture as JSON; the inverse of :func:`model_from_json`.

    Args:
        model: The model.
        **options: Of ``json.dumps``.

    Raises:
        ArgumentError: A part of it cannot be described (see ``exburn.register``).

    Example:
        >>> from exburn import Input, Sequential, layers
        >>> text = model_to_json(Sequential([Input((2,)), layers.Dense(3)]))
        >>> model_from_json(text).output_shape
        (None, 3)
    """
    return to_json(describe_model(model), **options)


@api_boundary
def model_from_json(
    json_string: str, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """A model of this architecture, with fresh weights.

    Args:
        json_string: What ``model.to_json()`` returned, here or in Keras 2 or 3.
        custom_objects: Classes and functions by name, besides the registered ones.

    Raises:
        ModelFormatError: It is no description of a model.
        UnknownNameError: It names what is not registered.

    Example:
        >>> from exburn.layers import Dense, Input
        >>> from exburn.models import Sequential
        >>> text = model_to_json(Sequential([Input((4,)), Dense(2)]))
        >>> model_from_json(text).count_params()
        10
    """
    op = "model_from_json"
    description = parse_json(json_string, op, "the string", "the description")
    if not isinstance(description, dict):
        raise ModelFormatError(op, "the description must be a JSON object")
    if calls_too_often(description):
        raise ModelFormatError(op, "its models call each other far too often")
    with registry.custom_objects(custom_objects):
        try:
            own = "frozen" in description
            return from_json(description if own else modernize(description))
        except (AttributeError, IndexError, KeyError, TypeError) as error:
            raise ModelFormatError(
                op,
                "the string describes no model",
                {"cause": f"{type(error).__name__}: {error}"},
            ) from error
