"""Whole models in files: architecture, weights, compile settings, optimizer state.

A file is a safetensors file with digests (``exburn.saving.shards``). Tensors are named
by the paths of the weights; those of the optimizer's state begin with ``/optimizer/``.
The description of the model is JSON in the metadata.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn import registry
from exburn.building import materialize, place
from exburn.errors import (
    ArgumentError,
    FileFormatError,
    ModelFormatError,
    NotBuiltError,
    UnknownNameError,
)
from exburn.saving.atomic import HDF5, ZIP, Source, path_of, target_of
from exburn.saving.header import STORED_AS, fits, parse_json
from exburn.saving.model_description import (
    check_numbers,
    describe_model,
    from_json,
    hoist,
    largest_size,
    lower,
    make_model,
    to_json,
)
from exburn.saving.shards import TensorFile, byte_count, write_tensors
from exburn.saving.weights import refuse_own_storage
from exburn.traversal import iter_modules, iter_weights

__all__ = ["load_model", "model_from_json", "model_to_json", "save_model"]

FORMAT = "exburn-model-1"
_OPTIMIZER = "/optimizer/"
_LISTS = ("/words/", "/numbers/")
_MAX_CLASSES = (500, 30)  # objects of a model, and more for each of its tensors
_MAX_COUNT = 10**6  # of a metric's thresholds or classes


# ---------------------------------------------------------------------- saving
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
        model: A built model.
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
    refuse_own_storage(model, "save")
    path = _path(filepath, overwrite)
    limit = byte_count(max_shard_size, "save")
    if not model.built:
        raise NotBuiltError(
            "save",
            "the model has no weights before it is built",
            hint="Give it an Input(shape), or call it on data first.",
        )
    materialize(model)
    described, lists = hoist(describe_model(model))
    tensors: dict[str, Any] = {**lists, **dict(_variables(model))}
    about: dict[str, Any] = {"model": described, "compile": model.get_compile_config()}
    state = model._training_state()
    if state is not None:
        opt_state = state.pop("opt_state")
        about["training"] = state
        if include_optimizer and opt_state is not None:
            leaves = _optimizer_leaves(opt_state)
            about["optimizer_state"] = True
            tensors |= leaves
    check_numbers(described, largest_size(tensors.values()))
    text = to_json(about, separators=(",", ":"))
    if not fits(text.encode()) or _too_many(text, len(tensors)):
        raise ArgumentError(
            "save",
            f"the model has more parts than a file may describe ({len(text)} bytes)",
            hint="Save its weights: model.save_weights(path).",
        )
    write_tensors(
        path,
        tensors,
        {"model": text},
        format=FORMAT,
        max_shard_size=limit,
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


def _variables(model: Any) -> Iterator[tuple[str, Any]]:
    """Every array of the model by its path; streams of keys as their key data."""
    seen: set[str] = set()
    for path, variable in _all_variables(model):
        if path in seen:
            raise ArgumentError("save", f"two weights have the path {path!r}")
        seen.add(path)
        value = variable.get_raw_value()
        if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
        yield path, value


def _all_variables(model: Any) -> Iterator[tuple[str, nnx.Variable]]:
    yield from ((path, weight) for path, weight, _ in iter_weights(model))
    for path, module in iter_modules(model):
        for key, value in vars(module).items():
            if isinstance(value, nnx.RngState):
                yield f"{path}/{key}" if path else key, value


def _optimizer_leaves(opt_state: Any) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(opt_state)
    named = {
        _OPTIMIZER + jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in leaves
    }
    if len(named) != len(leaves):
        raise ArgumentError(
            "save",
            "parts of the optimizer's state have the same name",
            hint="Save without it: include_optimizer=False.",
        )
    return {k: v if hasattr(v, "dtype") else np.asarray(v) for k, v in named.items()}


# ---------------------------------------------------------------------- loading
def load_model(
    filepath: Any,
    custom_objects: Mapping[str, Any] | None = None,
    compile: bool = True,
    safe_mode: bool = True,
) -> Any:
    """Reads a model that ``save_model`` wrote.

    Loading runs no code from the file and opens no other: classes and functions are
    those registered here or passed in. Nothing is allocated before the sizes in the
    description fit those of the tensors, and a flipped bit is an error.

    Args:
        filepath: The file.
        custom_objects: Classes and functions by name, besides the registered ones.
        compile: Whether the model is compiled as it was, with the optimizer's state.
        safe_mode: Kept for Keras code; there is no unsafe mode.

    Raises:
        ModelFormatError: The file is damaged, or names what is not known here.
        ArgumentError: There is no such file.
        LoadError: The system refuses to read it.

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
    _refuse_keras(path)
    with TensorFile(path, op="load_model") as file:
        if file.format != FORMAT:
            raise ModelFormatError(
                "load_model",
                f"{path} holds tensors, but no model",
                {"format": file.format or "not of ExBurn's making"},
                hint="Build the model, then model.load_weights(path).",
            )
        file.clean()
        return _Reader(file, custom_objects).read(compile)


def _refuse_keras(path: Path) -> None:
    """Says what to do with a file that Keras itself wrote; the suffix tells nothing."""
    with Source(path, op="load_model") as file:
        start = file.read(0, 8)
    if start.startswith(ZIP) or start == HDF5:
        raise ModelFormatError(
            "load_model",
            f"{path} is a zip or HDF5 file, as Keras writes them",
            hint="Build the same model here, then model.load_weights(path).",
        )


class _Reader:
    """Makes a model from a file whose header is sound."""

    def __init__(self, file: TensorFile, custom_objects: Mapping[str, Any] | None):
        self.file, self.custom_objects = file, custom_objects

    def read(self, compile: bool) -> Any:
        about = self._about()
        try:
            with registry.custom_objects(self.custom_objects), registry.reading_file():
                model = make_model(about["model"])
                weights = dict(_all_variables(model))
                self._compare(weights)
                opt_state = None
                if compile and about.get("compile") is not None:
                    model.compile_from_config(about["compile"])
                    if about.get("optimizer_state"):
                        opt_state = self._optimizer_state(model)
        except ModelFormatError:
            raise
        except Exception as error:
            raise self._unusable(error) from error
        names = [*weights, *(opt_state[0] if opt_state else [])]
        arrays = self.file.read(names)
        with model._on_device():
            for path, variable in weights.items():
                _fill(variable, arrays[path])
            if opt_state is not None:
                leaves, treedef = opt_state
                values = [_put(arrays[name], s.dtype) for name, s in leaves.items()]
                about["training"]["opt_state"] = jax.tree.unflatten(treedef, values)
        place(model)
        if compile and about.get("training") and model.compiled:
            model._set_training_state(about["training"])
        return model

    def _about(self) -> dict[str, Any]:
        op, path = self.file.op, self.file.path
        text = self.file.metadata.get("model", "")
        if _too_many(text, len(self.file.entries)):
            raise self._unusable(FileFormatError(op, "it has too many layers"))
        about = parse_json(text, op, path, "the model's description")
        if not isinstance(about, dict) or not isinstance(about.get("model"), dict):
            raise self._unusable(FileFormatError(op, "there is no description"))
        try:
            check_numbers(about["model"], largest_size(self.file.entries.values()))
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
        lists = [name for name in self.file.entries if name.startswith(_LISTS)]
        if lists:
            try:
                about["model"] = lower(about["model"], self.file.read(lists))
            except (KeyError, TypeError, UnicodeDecodeError) as error:
                raise self._unusable(error) from error
        return about

    def _unusable(self, error: Exception) -> ModelFormatError:
        hint = (
            "Take another copy of the file; this one is damaged or not to be trusted."
        )
        if isinstance(error, UnknownNameError):
            hint = (
                "Register it before loading (@exburn.register), or pass "
                "custom_objects={'name': class or function}."
            )
        text = str(error).splitlines() or [""]
        return ModelFormatError(
            self.file.op,
            "the model in the file cannot be made",
            {"file": self.file.path, "cause": f"{type(error).__name__}: {text[0]}"},
            hint=hint,
        )

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
            shape, dtype = _stored(spec)
            if entry.shape != shape or entry.dtype != dtype:
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
        state = model.optimizer.init(params)
        leaves = _optimizer_leaves(state)
        there = {n for n in self.file.entries if n.startswith(_OPTIMIZER)}
        self._match(leaves, there)
        return leaves, jax.tree.structure(state)


def _too_many(text: str, tensors: int) -> bool:
    """Whether a description has more objects than so many tensors stand for."""
    return text.count('"class_name"') > _MAX_CLASSES[0] + _MAX_CLASSES[1] * tensors


def _is_state(value: Any) -> bool:
    numbers = isinstance(value, dict) and [value.get(k) for k in ("seed", "step")]
    return bool(numbers) and all(type(n) is int and 0 <= n < 2**63 for n in numbers)


def _largest(value: Any) -> int:
    """The largest integer in a description."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return max(map(_largest, value), default=0)
    return value if isinstance(value, int) else 0


def _stored(spec: Any) -> tuple[tuple[int, ...], np.dtype]:
    """Shape and dtype that a value has in a file."""
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        spec = jax.eval_shape(jax.random.key_data, spec)
    dtype = np.dtype(spec.dtype)
    return tuple(spec.shape), STORED_AS.get(dtype, dtype)


def _put(array: np.ndarray, dtype: Any) -> jax.Array:
    return jax.device_put(array.astype(dtype, copy=False))


def _fill(variable: nnx.Variable, array: np.ndarray) -> None:
    spec = variable.get_raw_value()
    if jnp.issubdtype(spec.dtype, jax.dtypes.prng_key):
        variable.set_raw_value(jax.random.wrap_key_data(jax.device_put(array)))
        return
    variable.set_raw_value(_put(array, spec.dtype))


# ---------------------------------------------------------------------- JSON
def model_to_json(model: Any, **options: Any) -> str:
    """The architecture as JSON; the inverse of :func:`model_from_json`.

    Args:
        model: The model.
        **options: Of ``json.dumps``.

    Raises:
        ArgumentError: A part of it cannot be described (see ``exburn.register``).
    """
    return to_json(describe_model(model), **options)


def model_from_json(
    json_string: str, custom_objects: Mapping[str, Any] | None = None
) -> Any:
    """A model of this architecture, with fresh weights.

    Args:
        json_string: What ``model.to_json()`` returned.
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
    described = parse_json(json_string, op, "the string", "the description")
    if not isinstance(described, dict):
        raise ModelFormatError(op, "the description must be a JSON object")
    with registry.custom_objects(custom_objects):
        return from_json(described)
