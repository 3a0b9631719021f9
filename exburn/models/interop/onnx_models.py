"""ONNX files and sessions, run by onnxruntime.

A file is a program, which may have loops without an end, make arrays of any size, and
call its own functions two to the power of their number. So the memory of all programs
of the process is bounded, a batch has a time, and calls are counted before a file is
loaded.
"""

from __future__ import annotations

import concurrent.futures
import functools
import math
import weakref
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from exburn.core.symbolic_shapes import describe
from exburn.errors import (
    DataError,
    DeadlineExceededError,
    DTypeError,
    ExBurnError,
    FileFormatError,
    OutOfMemoryError,
    ShapeError,
    require,
)
from exburn.export.open_sizes import solve_sizes
from exburn.export.structure import KEY, decode
from exburn.models.interop.onnx_functions import check_calls
from exburn.models.interop.rows import as_dtype, in_batches
from exburn.runtime.host_memory import free_host_bytes

_SECONDS = 600.0  # of a batch
_SHARE = 0.9  # of the memory that is free when the first program is loaded
_SHRINK = ("memory.enable_memory_arena_shrinkage", "cpu:0")
_OUT_OF_MEMORY = ("Available memory of", "Failed to allocate memory", "bad_alloc")
_LOADED: weakref.WeakSet[Any] = weakref.WeakSet()  # sessions of files
# onnxruntime's names of element types.
_DTYPES = {
    "float": np.float32,
    "double": np.float64,
    "float16": np.float16,
    "bool": np.bool_,
    "string": np.object_,
} | {
    f"{sign}int{bits}": np.dtype(f"{sign}int{bits}")
    for sign in ("", "u")
    for bits in (8, 16, 32, 64)
}


def is_session(model: Any) -> bool:
    """Whether a value is an ``onnxruntime.InferenceSession``."""
    kind = type(model)
    return kind.__module__.startswith("onnxruntime.") and hasattr(model, "get_inputs")


def load(source: str | bytes) -> Any:
    """A session for a file, or for the bytes of one."""
    reason = "an ONNX model is run by onnxruntime"
    onnxruntime = require("onnxruntime", "predict", reason, extra="onnx")
    _bound_memory(onnxruntime)
    check_calls(source)
    options = onnxruntime.SessionOptions()
    options.add_session_config_entry("session.use_env_allocators", "1")
    try:
        session = onnxruntime.InferenceSession(
            source,
            options,
            providers=onnxruntime.get_available_providers(),
            # It computes with memory of its own, while the file is loaded.
            disabled_optimizers=["ConstantFolding"],
        )
        _LOADED.add(session)
        return session
    except Exception as error:  # onnxruntime's exceptions have no common base
        raise FileFormatError(
            "predict",
            "onnxruntime cannot read the model",
            {"cause": f"{type(error).__name__}: {error}"},
        ) from error


@functools.cache
def _bound_memory(onnxruntime: Any) -> None:
    """Bounds the memory of all programs that are loaded here, now and later.

    A loop that doubles an array is an error then, and not the end of the process.
    """
    about = onnxruntime.OrtMemoryInfo(
        "Cpu",
        onnxruntime.OrtAllocatorType.ORT_ARENA_ALLOCATOR,
        0,
        onnxruntime.OrtMemType.DEFAULT,
    )
    most = int(free_host_bytes() * _SHARE)
    exact = {"max_mem": most, "arena_extend_strategy": 1}  # no powers of two
    arena = onnxruntime.OrtArenaCfg(exact)
    onnxruntime.create_and_register_allocator(about, arena)


def dtype_of(spec: Any) -> np.dtype:
    """The dtype of a session's input; ``object`` of texts, and of what is unknown."""
    element = spec.type.removeprefix("tensor(").removesuffix(")")
    return np.dtype(_DTYPES.get(element, np.object_))


def predict_session(
    session: Any, x: Any, batch_size: int | None, timeout: float | None = None
) -> Any:
    """Outputs of a session: an array, or a dict in its order if there are several.

    Those of a file that ``model.export`` wrote come in the model's structure.

    Args:
        x: One array; a list of arrays in the session's order; or a dict by its names.
        batch_size: Rows of a batch. Models of a fixed batch size run in that one.
        timeout: Seconds that a batch may take; ten minutes by default.
    """
    inputs = session.get_inputs()
    names = [spec.name for spec in inputs]
    values = _by_name(x, names)
    values = [_fit(v, spec) for v, spec in zip(values, inputs, strict=True)]
    outputs = [spec.name for spec in session.get_outputs()]
    about = session.get_modelmeta()
    if about.producer_name == "exburn":  # others' are but names
        shapes = [tuple(spec.shape)[1:] for spec in inputs]
        solve_sizes("predict", shapes, [value.shape[1:] for value in values])

    def run(part: list[Any]) -> Any:
        feed = dict(zip(names, part, strict=True))
        try:
            results = _run(session, outputs, feed, timeout)
        except ExBurnError:
            raise
        except Exception as error:  # onnxruntime's exceptions have no common base
            if any(sign in str(error) for sign in _OUT_OF_MEMORY):
                raise OutOfMemoryError(
                    "predict",
                    "the ONNX program asks for more memory than there is",
                    {"received": ", ".join(map(describe, part))},
                    hint="Fewer rows at once: batch_size=….",
                ) from error
            raise DataError(
                "predict",
                "onnxruntime cannot run the model on these inputs",
                {
                    "received": ", ".join(map(describe, part)),
                    "cause": f"{type(error).__name__}: {error}",
                },
            ) from error
        return dict(zip(outputs, results, strict=True))

    fixed = inputs[0].shape[0] if inputs[0].shape else None
    exact = isinstance(fixed, int)
    arrays = in_batches(
        run, values, fixed if exact else batch_size, padded=exact, exact=exact
    )
    arrays = {name: arrays[name] for name in outputs}  # JAX sorts the keys of dicts
    return decode(about.custom_metadata_map.get(KEY), arrays)


def _run(
    session: Any, outputs: list[str], feed: dict[str, Any], timeout: float | None
) -> list[Any]:
    """Runs a session in a thread, so that time and Ctrl-C can end it."""
    import onnxruntime

    seconds = _SECONDS if timeout is None else timeout
    options = onnxruntime.RunOptions()
    if session in _LOADED:  # else the memory stays with the process
        options.add_run_config_entry(*_SHRINK)
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(session.run, outputs, feed, options)
        try:
            return running.result(None if math.isinf(seconds) else seconds)
        except concurrent.futures.TimeoutError:
            raise DeadlineExceededError(
                "predict",
                f"the ONNX program did not end within {seconds:g} s",
                hint="timeout=… gives it more; a file from strangers may have a loop "
                "without an end.",
            ) from None
        finally:
            options.terminate = True


def _by_name(x: Any, names: list[str]) -> list[Any]:
    if isinstance(x, Mapping):
        if set(x) == set(names):
            return [x[name] for name in names]
        received = ", ".join(map(repr, x))
    else:
        values = list(x) if isinstance(x, list | tuple) else [x]
        if len(values) == len(names):
            return values
        received = f"{len(values)} arrays"
    raise DataError(
        "predict",
        f"the ONNX model takes {', '.join(map(repr, names))}",
        {"received": received},
        hint="Pass the arrays in this order, or a dict by these names.",
    )


def _fit(value: Any, spec: Any) -> np.ndarray:
    element = spec.type.removeprefix("tensor(").removesuffix(")")
    if element not in _DTYPES:
        raise DTypeError(
            "predict", f"input {spec.name!r} is a {spec.type}, which is no array"
        )
    array, dtype = np.asarray(value), np.dtype(_DTYPES[element])
    fits = array.ndim == len(spec.shape) and all(
        got == size or not isinstance(size, int)
        for size, got in zip(spec.shape[1:], array.shape[1:], strict=True)
    )
    if not fits:
        raise ShapeError(
            "predict",
            f"input {spec.name!r} must be {element}{spec.shape}, received "
            f"{describe(array)}",
            hint="The first axis counts the rows.",
        )
    if dtype.kind == "O":  # strings
        return array.astype(dtype)
    return as_dtype(array, dtype, f"input {spec.name!r}")
