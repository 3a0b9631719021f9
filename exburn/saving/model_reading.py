"""Makes a model from a file."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx

from exburn.core import registry
from exburn.core.substitution import making_clone
from exburn.errors import (
    ExBurnError,
    FileFormatError,
    ModelFormatError,
    UnknownNameError,
)
from exburn.module.building import place
from exburn.module.traversal import iter_weights
from exburn.runtime.files.bounds import DAMAGED
from exburn.saving.json_text import parse_json, unpack_text
from exburn.saving.model_description import (
    check_numbers,
    largest_size,
    lower,
    make_model,
    too_many,
)
from exburn.saving.model_tensors import (
    OPTIMIZER,
    all_variables,
    fill,
    optimizer_leaves,
    put,
    stored_spec,
)
from exburn.saving.own_storage import give_back, is_own
from exburn.saving.shards import TensorFile

TOKENIZER = "/tokenizer"  # the tensor of a tokenizer's text
_LISTS = ("/words/", "/numbers/", "/arrays/")
_NARROW = {
    np.dtype(wide): np.dtype(narrow)
    for wide, narrow in (
        ("float64", "float32"),
        ("int64", "int32"),
        ("uint64", "uint32"),
        ("complex128", "complex64"),
    )
}
# Whose code reads files here; all other is the user's, or of a package that he uses.
_PACKAGES = frozenset("exburn flax h5py jax jaxlib numpy optax safetensors".split())
_MAX_COUNT = 10**6  # of a metric's thresholds or classes


class ModelReader:
    """Makes a model from a file whose header is sound."""

    def __init__(self, file: TensorFile, custom_objects: Mapping[str, Any] | None):
        self.file, self.custom_objects = file, custom_objects

    def read(self, compile: bool) -> Any:
        about = self._about()
        shapes = [entry.shape for entry in self.file.entries.values()]
        try:
            names = registry.custom_objects(self.custom_objects)
            with names, registry.reading_file(shapes), making_clone():
                model = make_model(about["model"])
                weights = dict(all_variables(model))
                self._compare(weights)
                opt_state = None
                text = about.get("compile") if model.is_model else None
                if compile and text is not None:
                    model.compile_from_config(text)
                    if about.get("optimizer_state"):
                        opt_state = self._optimizer_state(model)
        except ModelFormatError:
            raise
        except Exception as error:
            raise self._unusable(error) from error
        own = [name for name in self.file.entries if is_own(name)]
        text = about.get("tokenizer") if model.is_model else None
        if text is not None:
            own.append(TOKENIZER)
        names = [*weights, *(opt_state[0] if opt_state else []), *own]
        arrays = self.file.read(names)
        with model._on_device() if model.is_model else contextlib.nullcontext():
            for path, variable in weights.items():
                fill(variable, arrays[path])
            if opt_state is not None:
                leaves, treedef = opt_state
                values = [put(arrays[name], s.dtype) for name, s in leaves.items()]
                about["training"]["opt_state"] = jax.tree.unflatten(treedef, values)
        place(model)
        give_back(model, {n: arrays[n] for n in own if n != TOKENIZER}, self.file.op)
        if text is not None:
            self._give_tokenizer(model, text, arrays[TOKENIZER])
        if compile and about.get("training") and model.is_model and model.compiled:
            model._set_training_state(about["training"])
        return model

    def _give_tokenizer(self, model: Any, state: Any, data: np.ndarray) -> None:
        try:
            text = data.tobytes().decode()
            model._set_tokenizer_state({**state, "text": text})
        except (TypeError, ExBurnError, UnicodeDecodeError) as error:
            raise self._unusable(error) from error

    def _about(self) -> dict[str, Any]:
        op, path = self.file.op, self.file.path
        packed_text, what = (
            self.file.metadata.get("model", ""),
            "the model's description",
        )
        about = parse_json(unpack_text(packed_text, op, path, what), op, path, what)
        if too_many(about, len(self.file.entries)):
            raise self._unusable(FileFormatError(op, "it has too many layers"))
        if not isinstance(about, dict) or not isinstance(about.get("model"), dict):
            raise self._unusable(FileFormatError(op, "there is no description"))
        try:
            check_numbers(
                about["model"],
                largest_size(e.shape for e in self.file.entries.values()),
            )
        except FileFormatError as error:
            raise self._unusable(error) from error
        state = about.get("training")
        if state is not None and not _is_state(state):
            raise self._unusable(FileFormatError(op, "the training's state is none"))
        settings = about.get("compile")
        if isinstance(settings, dict):
            kinds = ("loss", "metrics", "weighted_metrics")
            if _largest([settings.get(kind) for kind in kinds]) > _MAX_COUNT:
                raise self._unusable(FileFormatError(op, "a metric is too large"))
        if about.get("tokenizer") is not None and TOKENIZER not in self.file.entries:
            raise self._unusable(FileFormatError(op, "the tokenizer's text is missing"))
        lists = [name for name in self.file.entries if name.startswith(_LISTS)]
        if lists:
            try:
                about["model"] = lower(about["model"], self.file.read(lists))
            except (KeyError, TypeError, UnicodeDecodeError) as error:
                raise self._unusable(error) from error
        return about

    def _unusable(self, error: Exception) -> ModelFormatError:
        return unusable(self.file.op, self.file.path, error)

    def _compare(self, weights: Mapping[str, nnx.Variable]) -> None:
        """Every weight has its tensor of the same size, and the other way round."""
        specs = {path: variable.get_raw_value() for path, variable in weights.items()}
        there = {n for n in self.file.entries if not n.startswith("/")}
        self._match(specs, there)

    def _match(self, specs: Mapping[str, Any], there: set[str]) -> None:
        missing, extra = sorted(set(specs) - there), sorted(there - set(specs))
        if missing or extra:
            raise ModelFormatError(
                self.file.op,
                "the description and the tensors in the file do not belong together",
                {
                    "file": self.file.path,
                    "without a tensor": ", ".join(missing[:5]) or "none",
                    "not in the description": ", ".join(extra[:5]) or "none",
                },
                hint="Take another copy of the file, or save the model again.",
            )
        for name, spec in specs.items():
            entry = self.file.entries[name]
            shape, dtype = stored_spec(spec)
            if entry.shape != shape or _narrow(entry.dtype) != _narrow(dtype):
                raise ModelFormatError(
                    self.file.op,
                    f"the description makes {name!r} {dtype}{list(shape)}, the tensor "
                    f"in the file is {entry.dtype}{list(entry.shape)}",
                    {"file": self.file.path},
                    hint="Take another copy of the file, or save the model again.",
                )

    def _optimizer_state(self, model: Any) -> tuple[dict[str, Any], Any]:
        """Names and specs of the optimizer's state, and its structure."""
        params = {
            path: weight.get_raw_value()
            for path, weight, learned in iter_weights(model)
            if learned
        }
        there = {n for n in self.file.entries if n.startswith(OPTIMIZER)}
        paths = [name.removeprefix(OPTIMIZER) for name in there]
        state = model.optimizer.init(params)
        state = model.optimizer.as_stored(state, params, paths)
        leaves = optimizer_leaves(state)
        self._match(leaves, there)
        return leaves, jax.tree.structure(state)


def unusable(
    op: str,
    path: Any,
    error: Exception,
    hint: str = DAMAGED,
    **details: Any,
) -> ModelFormatError:
    """The error for a file that no model can be made of.

    Args:
        error: What went wrong.
        hint: What to do, unless a name is not registered.
        **details: More to say.
    """
    if (origin := _in_users_code(error)) is not None:
        hint = (
            "The file is sound: mend that code, or pass the class that the model was "
            "saved with, as custom_objects={'name': class}."
        )
        details = {**details, "raised in": origin}
    if isinstance(error, UnknownNameError):
        hint = (
            "Register it before loading (@exburn.register), or pass "
            "custom_objects={'name': class or function}."
        )
    text = str(error).splitlines() or [""]
    cause = f"{type(error).__name__}: {text[0]}"
    return ModelFormatError(
        op,
        "the model in the file cannot be made",
        {"file": path, **details, "cause": cause},
        hint=hint,
    )


def _in_users_code(error: BaseException) -> str | None:
    """Where code of the user's raised an error, or led to it; ``None`` elsewhere."""
    origin = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        if package not in _PACKAGES and package not in sys.stdlib_module_names:
            code = frame.f_code
            name = os.path.basename(code.co_filename)
            origin = f"{code.co_qualname}, line {line} of {name}"
    return origin


def _narrow(dtype: np.dtype) -> np.dtype:
    """A dtype in the 32 bits that JAX makes of 64, unless it is told to keep them.

    A file and the process that reads it may have been told different things.
    """
    return _NARROW.get(dtype, dtype)


def _is_state(value: Any) -> bool:
    if not isinstance(value, dict):
        return False
    numbers = [value.get("seed"), value.get("step"), value.get("epochs", 0)]
    return all(type(n) is int and 0 <= n < 2**63 for n in numbers)


def _largest(value: Any) -> int:
    """The largest integer in a description."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0
