"""Named arrays in a folder, written and read by Orbax."""

from __future__ import annotations

import errno
import logging
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from exburn.runtime.files.bounds import ArrayBudget, is_shape
from exburn.saving.checkpoint.writers import Writers

_ALONE = Writers()
WEIGHTS = ("state/params/", "state/frozen/", "state/others/")  # beginnings of names

Specs = dict[str, list[Any]]
_BESIDE = 1 << 18  # bytes that Orbax' own files take, at least
_MERGED = "manifest.ocdbt"  # names the chunks of every array


def describe(arrays: Mapping[str, Any]) -> Specs:
    """``{name: [dtype, shape]}``, what ``read_arrays`` has to be told."""
    return {name: [a.dtype.name, list(a.shape)] for name, a in arrays.items()}


def weights_of(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The weights among the arrays of a run, by their paths in the model.

    Example:
        >>> weights_of({"state/params/dense/bias": np.ones(1), "state/step": 3})
        {'dense/bias': array([1.])}
    """
    return {
        name.split("/", 2)[2]: array
        for name, array in arrays.items()
        if name.startswith(WEIGHTS)
    }


def write_arrays(
    folder: Path, arrays: Mapping[str, Any], writers: Writers = _ALONE, turn: str = ""
) -> None:
    """Writes the arrays; the folder must not exist.

    Args:
        folder: Where to.
        arrays: Arrays by name. Several processes write those of JAX that span them,
            each what is on its own devices, and the first one all others.
        turn: A name that all of them use once.

    Raises:
        OSError: The disk refused; Orbax raises errors of other classes, too.
    """
    # Trained weights hardly compress (8 % with zstd), and it takes six times as long.
    options = {"multiprocessing_options": writers.options(turn)}
    full = {name: array for name, array in arrays.items() if array.size}
    _check_space(folder, full)
    _quiet_threads()
    handler = _orbax().PyTreeCheckpointHandler(
        use_zarr3=True, use_compression=False, **options
    )
    with _orbax().Checkpointer(handler, **options) as checkpointer:
        checkpointer.save(folder.resolve(), args=_orbax().args.PyTreeSave(full))
    # Orbax looks with glob() for what it has to merge into this file. If the disk does
    # not let the folder be listed, it finds nothing, merges nothing, and is content.
    if writers.leads and full and not (folder / _MERGED).is_file():
        raise OSError(f"{_MERGED} is missing from what Orbax wrote")


def _check_space(folder: Path, arrays: Mapping[str, Any]) -> None:
    """Raises if the disk has no room, before Orbax' threads fail one by one.

    Raises:
        OSError: It has not.
    """
    facts = os.statvfs(folder.parent)
    size = sum(array.nbytes for array in arrays.values()) + _BESIDE
    if facts.f_blocks and facts.f_bavail * facts.f_frsize < size:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(folder))


def _quiet_threads() -> None:
    """Keeps Orbax' threads from printing the errors that its call raises anyway."""
    logger = logging.getLogger("absl")
    if _raised_anyway not in logger.filters:
        logger.addFilter(_raised_anyway)


def _raised_anyway(record: logging.LogRecord) -> bool:
    """Tells whether a line is printed: none of threads failed at our checkpoint."""
    text = record.getMessage()
    return not ("_SignalingThread.run() raised" in text and "/.unfinished-" in text)


def read_arrays(
    folder: Path, specs: Specs, layouts: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Reads the arrays with exactly these names, dtypes and shapes.

    Args:
        folder: Where they are; it may hold others.
        specs: As of ``describe``.
        layouts: Shardings by name, of arrays that are read onto devices: each process
            reads the parts of its own.

    Raises:
        ValueError: The folder holds something else, or arrays that its files do not
            explain.
    """
    _check_memory(folder, specs)
    empty = {
        name: np.zeros(shape, _dtype(dtype))
        for name, (dtype, shape) in specs.items()
        if 0 in shape
    }
    items = {
        name: np.empty(0, _dtype(dtype))
        for name, (dtype, _) in specs.items()
        if name not in empty
    }
    layouts = {n: s for n, s in (layouts or {}).items() if n in items}
    arguments = {
        name: _orbax().RestoreArgs(restore_type=np.ndarray, dtype=spec.dtype)
        for name, spec in items.items()
    } | {
        name: _orbax().ArrayRestoreArgs(
            sharding=sharding, global_shape=tuple(specs[name][1]), strict=True
        )
        for name, sharding in layouts.items()
    }
    values = _restore(folder, items, specs, arguments) if items else {}
    arrays = {}
    for name, (dtype, shape) in specs.items():
        array = empty[name] if name in empty else values[name]
        array = array if name in layouts else np.asarray(array)
        if array.dtype.name != dtype or list(array.shape) != shape:
            raise ValueError(
                f"{name} is {array.dtype.name}{list(array.shape)}, not {dtype}{shape}"
            )
        arrays[name] = array
    return arrays


def _check_memory(folder: Path, specs: Specs) -> None:
    """Refuses arrays that are far larger than the files that hold them."""
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    total = 0
    for name, (dtype, shape) in specs.items():
        itemsize = _dtype(dtype).itemsize
        if not is_shape(shape, itemsize):
            raise ValueError(f"{name} has no shape of an array: {shape}")
        total += math.prod(shape) * itemsize
    ArrayBudget(size, ValueError).add(folder.name, total, size)


def _check_stored(items: Any, specs: Specs, there: Any) -> None:
    """Refuses arrays that Orbax would make of other shapes, or by larger chunks."""
    for name in items:
        metadata, (_, shape) = there.get(name), specs[name]
        if metadata is None or list(metadata.shape) != shape:
            raise ValueError(f"{name} is not in the folder with the shape {shape}")
        chunks = metadata.storage.chunk_shape or shape
        if any(step > max(1, size) for step, size in zip(chunks, shape, strict=True)):
            raise ValueError(f"{name} is stored in chunks larger than itself")


def _restore(folder: Path, items: Any, specs: Specs, arguments: Any) -> Any:
    options = {"multiprocessing_options": _ALONE.options()}
    handler = _orbax().PyTreeCheckpointHandler(use_zarr3=True, **options)
    _check_stored(items, specs, handler.metadata(folder.resolve()).tree)
    restored = _orbax().args.PyTreeRestore(
        item=items, restore_args=arguments, partial_restore=True
    )
    with _orbax().Checkpointer(handler, **options) as checkpointer:
        return checkpointer.restore(folder.resolve(), args=restored)


def own_files(folder: Path, index: int) -> list[Path]:
    """The files of a checkpoint's arrays that a process has written by itself."""
    own = folder / f"ocdbt.process_{index}"
    return [path for path in own.rglob("*") if path.is_file()]


def _dtype(name: str) -> np.dtype:
    """A dtype by its name, those of JAX (bfloat16, float8 …) included."""
    import jax.numpy as jnp

    return jnp.dtype(name)


def _orbax() -> Any:
    import orbax.checkpoint  # heavy, and only needed here

    return orbax.checkpoint
