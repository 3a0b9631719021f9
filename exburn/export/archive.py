"""Functions and variables in a folder: written, and read back."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import random_keys
from exburn.core.printing import print_text
from exburn.core.symbolic_shapes import (
    canonical_spec,
    describe,
    is_shape,
    public_shape,
    spec_of,
)
from exburn.errors import (
    ArgumentError,
    DataError,
    ExBurnError,
    FileFormatError,
    LoadError,
    MissingFileError,
    ModelFormatError,
    NotBuiltError,
    ShapeError,
    require,
)
from exburn.errors.boundary import api_boundary, guard_methods
from exburn.export import stablehlo
from exburn.export.open_sizes import freest, solve_sizes
from exburn.export.signature import names_of
from exburn.export.staging import stage
from exburn.module.input_spec import InputSpec
from exburn.module.stateless_scope import StatelessScope
from exburn.runtime.device import device_info
from exburn.runtime.files.atomic import system_error
from exburn.runtime.files.ordinary import Source
from exburn.runtime.portable import portable
from exburn.saving.seal import read_document, seal_bytes, seal_document
from exburn.saving.shards import TensorFile, write_tensors

FORMAT, ARRAYS = "exburn-archive-1", "exburn-arrays-1"
MANIFEST = "archive.json"
_OP = "ExportArchive"


@guard_methods
class ExportArchive:
    """Functions that are written as StableHLO programs, weights included.

    Each endpoint becomes a file that ``exburn.predict``, and any process with JAX, can
    run; ``exburn.export.load_archive`` reads the whole folder back. Sizes that a
    signature leaves open stay open. An endpoint computes as in inference unless its
    function says otherwise; random layers draw the same numbers at every call.

    Args:
        format: ``"stablehlo"``.

    Raises:
        ArgumentError: Another format is asked for.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(2)])
        >>> archive = ExportArchive()
        >>> serve = archive.track_and_add_endpoint(
        ...     "serve", model, [exburn.InputSpec(shape=(None, 3))]
        ... )
        >>> folder = tempfile.mkdtemp()
        >>> archive.write_out(folder, verbose=False)
        >>> exburn.export.load_archive(folder).serve(np.ones((5, 3))).shape
        (5, 2)

    Source: ``keras.export.ExportArchive``, which writes for TensorFlow.
    """

    def __init__(self, format: str = "stablehlo"):
        if format != "stablehlo":
            raise ArgumentError(
                _OP,
                f"the format must be 'stablehlo', received {format!r}",
                hint="TensorFlow and ONNX have converters that start from StableHLO.",
            )
        self._tracked: list[Any] = []
        self._endpoints: dict[str, tuple[Callable, tuple]] = {}
        self._collections: dict[str, list[Any]] = {}

    @property
    def variables(self) -> list[Any]:
        """The weights of all that is tracked, each once."""
        return self._of("variables")

    @property
    def trainable_variables(self) -> list[Any]:
        return self._of("trainable_variables")

    @property
    def non_trainable_variables(self) -> list[Any]:
        return self._of("non_trainable_variables")

    def _of(self, kind: str) -> list[Any]:
        variables = [v for resource in self._tracked for v in getattr(resource, kind)]
        return list({id(variable): variable for variable in variables}.values())

    def track(self, resource: Any) -> None:
        """Takes the weights of a layer or model into the archive.

        Programs have their weights in any case; these can be read by themselves.

        Raises:
            ArgumentError: It has no variables.
            NotBuiltError: It has no weights yet.
        """
        if not hasattr(resource, "trainable_variables"):
            raise ArgumentError(
                _OP,
                f"a layer or model is tracked, received {type(resource).__name__}",
            )
        if not getattr(resource, "built", True):
            raise NotBuiltError(
                _OP,
                "what is tracked must have its weights",
                hint="Call it on data first, or give the model an Input(shape).",
            )
        if not any(tracked is resource for tracked in self._tracked):
            self._tracked.append(resource)

    def add_endpoint(
        self, name: str, fn: Callable, input_signature: Any = None, **kwargs: Any
    ) -> Callable:
        """Adds a function as a program.

        Args:
            name: Its name, and that of its file.
            fn: A function of arrays, such as ``model.call``, or a layer or model.
            input_signature: A list with one entry for each argument: ``InputSpec``,
                ``KerasTensor``, an array, or a dict or list of them. Of a functional
                model its own inputs by default.
            **kwargs: For Keras code: ``is_static`` has no meaning here.

        Returns:
            The function, compiled, as it will be written.

        Raises:
            ArgumentError: The name is taken or cannot be that of a file, the signature
                is missing or has no shapes, or the function cannot be traced.
        """
        self._check_name(name)
        kwargs.pop("is_static", None)
        if kwargs:
            raise ArgumentError(
                _OP,
                f"unknown argument {next(iter(kwargs))!r}",
                hint="Options of converters to TensorFlow have no place here.",
            )
        specs = _signature(fn, input_signature)
        self._endpoints[name] = fn, _traced_specs(name, fn, specs)
        return jax.jit(_inferring(fn))

    def track_and_add_endpoint(
        self, name: str, resource: Any, input_signature: Any = None, **kwargs: Any
    ) -> Callable:
        """``track`` and ``add_endpoint`` of a layer or model.

        Raises:
            ArgumentError, NotBuiltError: As of both.
        """
        self.track(resource)
        return self.add_endpoint(name, resource, input_signature, **kwargs)

    def add_variable_collection(self, name: str, variables: Iterable[Any]) -> None:
        """Adds variables that can be read by themselves, in their order.

        Args:
            name: Name of the collection, and of its file.
            variables: A list, tuple or set of variables or arrays.

        Raises:
            ArgumentError: The name is taken or cannot be that of a file, or an entry is
                no variable.
        """
        self._check_name(name)
        if not isinstance(variables, list | tuple | set | frozenset):
            raise ArgumentError(
                _OP, f"variables are a list, tuple or set, received {variables!r}"
            )
        for variable in variables:
            if not hasattr(variable, "shape"):
                raise ArgumentError(_OP, f"{variable!r} is no variable")
        self._collections[name] = list(variables)

    def write_out(
        self,
        filepath: Any,
        options: Any = None,
        verbose: bool = True,
        *,
        platforms: Sequence[str] | None = None,
    ) -> None:
        """Writes the archive as a folder; an archive that is there is replaced.

        The new folder takes the old one's place when all of it is on the disk, so that
        there is a whole archive at any moment.

        Args:
            filepath: The folder.
            options: For Keras code; must be ``None``.
            verbose: Whether the endpoints and their inputs are printed.
            platforms: ``("cpu", "cuda", "rocm", "tpu")`` or some of them; by default
                the CPU and the platform in use.

        Raises:
            ArgumentError: There is no endpoint, the path is that of a file, or the
                folder holds something else than an archive.
            MissingDependencyError: flatbuffers is not installed.
            SaveError: The disk is full, or writing is not permitted.
        """
        if options is not None:
            raise ArgumentError(_OP, "options are those of TensorFlow; leave them out")
        if not self._endpoints:
            raise ArgumentError(
                _OP,
                "there is no endpoint to write",
                hint='archive.add_endpoint("serve", model, [InputSpec(…)]).',
            )
        reason = "writing StableHLO needs flatbuffers"
        require("flatbuffers", _OP, reason, extra="export")
        folder = Path(filepath)
        programs = {
            name: _program(name, fn, specs, platforms)
            for name, (fn, specs) in self._endpoints.items()
        }
        trained = {id(variable) for variable in self.trainable_variables}
        collections = {"variables": self.variables, **self._collections}
        _make_parents(folder)
        with stage(folder, own_names=_names_in(folder), op=_OP) as place:
            place.mkdir()
            for name, program in programs.items():
                (place / f"{name}.stablehlo").write_bytes(program)
            for name, variables in collections.items():
                arrays = {str(n): _value(v) for n, v in enumerate(variables)}
                file = place / f"{name}.safetensors"
                write_tensors(file, arrays, {}, format=ARRAYS, op=_OP)
            about = {
                "endpoints": list(self._endpoints),
                "collections": list(self._collections),
                "trainable": [id(variable) in trained for variable in self.variables],
                "names": [getattr(v, "path", "") for v in self.variables],
                "files": sorted(os.listdir(place)),
            }
            (place / MANIFEST).write_bytes(seal_document(FORMAT, about, indent=1))
        if verbose:
            print_text(f"Saved artifact at '{folder}'. Its endpoints:")
            for name, (_, specs) in self._endpoints.items():
                print_text(f"  {name}({_spec_text(specs)})")

    def _check_name(self, name: Any) -> None:
        if not isinstance(name, str) or not name.isidentifier() or name == "variables":
            raise ArgumentError(
                _OP,
                f"a name is a word, which also names a file, received {name!r}",
                hint='"serve"; "variables" are the tracked ones.',
            )
        if name in self._endpoints or name in self._collections:
            raise ArgumentError(_OP, f"the archive has {name!r} already")


def _signature(fn: Any, signature: Any) -> tuple:
    """Specs of a function's arguments."""
    if signature is None:
        if getattr(fn, "graph", None) is None:
            raise ArgumentError(
                _OP,
                "the shapes of the arguments are needed",
                hint="input_signature=[InputSpec(shape=(None, 3), dtype='float32')].",
            )
        signature = [fn.input]
    if not isinstance(signature, list | tuple) or is_shape(signature):
        raise ArgumentError(
            _OP,
            "input_signature is a list with an entry for each argument, received "
            f"{signature!r}",
        )
    return tuple(jax.tree.map(_spec, list(signature), is_leaf=_is_spec))


def _is_spec(value: Any) -> bool:
    return hasattr(value, "shape")


def _spec(value: Any) -> jax.ShapeDtypeStruct:
    shape = getattr(value, "shape", None)
    if shape is None:
        raise ArgumentError(
            _OP,
            f"an argument needs a shape and a dtype, received {value!r}",
            hint="InputSpec(shape=(None, 3), dtype='float32').",
        )
    dtype = value.dtype or "float32" if isinstance(value, InputSpec) else value.dtype
    return canonical_spec(spec_of(public_shape(tuple(shape)), dtype))


def _inferring(fn: Callable) -> Callable:
    """The function with keys for random layers; what it assigns is not kept."""

    def run(*args: Any) -> Any:
        with random_keys.key_scope(jax.random.key(0)), StatelessScope():
            return jax.tree.map(jnp.asarray, fn(*args))

    return run


def _traced_specs(name: str, fn: Callable, specs: tuple) -> tuple:
    """The specs that a function is traced for, each open size with its own symbol.

    Raises:
        ArgumentError: It cannot be traced.
    """
    from jax import export

    run = jax.jit(_inferring(fn))

    def attempt(specs: tuple) -> tuple:
        jax.eval_shape(run, *specs)
        return specs

    try:
        names = names_of(dict(enumerate(specs)), "input")
        specs = freest(attempt, specs, names, rows=False)
        export.export(run, platforms=("cpu",))(*specs)
        return specs
    except ExBurnError as error:
        if not isinstance(error, ShapeError):
            raise
        cause: Exception = error
    except Exception as error:  # whatever the function raises
        cause = error
    raise ArgumentError(
        _OP,
        f"the endpoint {name!r} cannot be traced",
        {"cause": str(cause).partition("\n")[0]},
        hint="If a size must be known, give it in the signature.",
    ) from cause


def _program(name: str, fn: Callable, specs: tuple, platforms: Any) -> bytes:
    from jax import export

    here = device_info()["backend"]
    if platforms is None:
        platforms = ("cpu", here) if here in ("cuda", "rocm", "tpu") else ("cpu",)
    elsewhere = set(platforms) != {"cpu"}
    with portable("platforms") if elsewhere else contextlib.nullcontext():
        program = export.export(jax.jit(_inferring(fn)), platforms=platforms)(*specs)
    return seal_bytes(program.serialize())


def _value(variable: Any) -> Any:
    if isinstance(variable, nnx.Variable):
        return variable.get_value()
    value = getattr(variable, "value", variable)
    return variable if callable(value) else value


def _make_parents(folder: Path) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        reason = f"{os.fspath(folder.parent)!r} is a file, and no folder"
        raise ArgumentError(_OP, reason) from error
    except OSError as error:
        raise system_error(_OP, folder.parent, error) from error


def _names_in(folder: Path) -> set[str]:
    """Names of the files of an earlier archive; none where there is no sound one."""
    try:
        files = read_document(folder / MANIFEST, FORMAT, _OP).get("files")
    except (FileFormatError, MissingFileError, LoadError):
        return set()
    return {MANIFEST, *map(str, files)} if isinstance(files, list) else set()


def _spec_text(specs: tuple) -> str:
    leaves = jax.tree.leaves(specs)
    return ", ".join(f"{s.dtype}{list(public_shape(s.shape))}" for s in leaves)


_LOAD = "load_archive"


@guard_methods
class LoadedArchive:
    """What ``load_archive`` read: endpoints and collections are attributes.

    Args:
        endpoints: The programs by name; the first is ``serving_default``, too.
        collections: Lists of arrays by name.
        variables: Arrays of the tracked weights, in the order of the model's.
        trainable: Which of them are trained.

    Attributes:
        endpoints: The programs by name; the first is ``serving_default``, too.
        collections: Lists of arrays by name.
        variables, trainable_variables, non_trainable_variables: Arrays of the tracked
            weights, in the order of the model's.

    Example:
        >>> archive = LoadedArchive({"double": lambda x: 2 * x}, {}, [], [])
        >>> archive.double(3)
        6
    """

    def __init__(
        self,
        endpoints: Mapping[str, Callable],
        collections: Mapping[str, list],
        variables: list,
        trainable: list[bool],
    ):
        self.endpoints, self.collections = dict(endpoints), dict(collections)
        self.variables = variables
        pairs = list(zip(variables, trainable, strict=True))
        self.trainable_variables = [v for v, learns in pairs if learns]
        self.non_trainable_variables = [v for v, learns in pairs if not learns]

    def __getattr__(self, name: str) -> Any:
        fields = vars(self)
        for group in ("endpoints", "collections"):
            if name in fields.get(group, ()):
                return fields[group][name]
        if name == "serving_default" and fields.get("endpoints"):
            return next(iter(self.endpoints.values()))
        raise AttributeError(f"the archive has no {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.endpoints, *self.collections]

    def __repr__(self) -> str:
        return f"<LoadedArchive endpoints={list(self.endpoints)}>"


@api_boundary
def load_archive(filepath: Any) -> LoadedArchive:
    """Reads a folder that ``ExportArchive.write_out`` wrote.

    Args:
        filepath: The folder.

    Raises:
        ArgumentError: There is no archive in it.
        ModelFormatError, FileFormatError: It is damaged.
        MissingDependencyError: flatbuffers is not installed.

    Example:
        >>> import tempfile
        >>> import exburn
        >>> model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(2)])
        >>> folder = tempfile.mkdtemp()
        >>> archive = exburn.export.ExportArchive()
        >>> specs = [exburn.InputSpec(shape=(None, 3))]
        >>> _ = archive.track_and_add_endpoint("serve", model, specs)
        >>> archive.write_out(folder, verbose=False)
        >>> sorted(load_archive(folder).endpoints)
        ['serve']
    """
    folder = Path(filepath)
    if not (folder / MANIFEST).is_file():
        raise ArgumentError(
            _LOAD, f"there is no archive in the folder {os.fspath(folder)!r}"
        )
    about = read_document(folder / MANIFEST, FORMAT, _LOAD)
    if not _is_sound(about):
        raise _damage_error(folder, f"{MANIFEST} does not describe an archive")
    try:
        endpoints = {name: _endpoint(folder, name) for name in about["endpoints"]}
        collections = {name: _arrays(folder, name) for name in about["collections"]}
        variables = _arrays(folder, "variables")
    except MissingFileError as error:
        raise _damage_error(folder, error) from error
    if len(variables) != len(about["trainable"]):
        raise _damage_error(folder, "its variables are not those that are described")
    return LoadedArchive(endpoints, collections, variables, about["trainable"])


def _is_sound(about: Mapping[str, Any]) -> bool:
    """Tells whether a description has what is read of it, and names plain files."""
    endpoints, collections = about.get("endpoints"), about.get("collections")
    trainable = about.get("trainable")
    if not all(isinstance(v, list) for v in (endpoints, collections, trainable)):
        return False
    names = [*about["endpoints"], *about["collections"]]
    return (
        all(isinstance(name, str) and name.isidentifier() for name in names)
        and len({*names, "variables"}) == len(names) + 1
        and all(isinstance(learns, bool) for learns in about["trainable"])
    )


def _damage_error(folder: Path, cause: Any) -> ModelFormatError:
    reason = f"the archive in {os.fspath(folder)!r} is damaged"
    return ModelFormatError(_LOAD, reason, {"cause": cause})


def _arrays(folder: Path, name: str) -> list[np.ndarray]:
    path = folder / f"{name}.safetensors"
    with TensorFile(path, op=_LOAD) as file:
        numbers = [str(number) for number in range(len(file.entries))]
        if file.format != ARRAYS or not file.sealed or {*file.entries} != {*numbers}:
            raise _damage_error(folder, f"{path.name} does not hold its arrays")
        arrays = file.read(numbers)
    return [arrays[number] for number in numbers]


def _endpoint(folder: Path, name: str) -> Callable[..., Any]:
    with Source(folder / f"{name}.stablehlo", op=_LOAD) as file:
        return _callable(name, file.read(0, file.size))


def _callable(name: str, data: bytes) -> Callable[..., Any]:
    """A function of the program's arguments, cast to its dtypes."""
    program = stablehlo.load(data)
    arguments = program.in_tree.children()[0]
    call = jax.jit(program.call)

    def run(*args: Any) -> Any:
        leaves, tree = jax.tree.flatten(args)
        if tree != arguments:
            raise DataError(
                name,
                "the arguments have another structure",
                {"needed": arguments, "received": tree},
            )
        for value, spec in zip(leaves, program.in_avals, strict=True):
            sizes = zip(spec.shape, np.shape(value), strict=False)
            fits = len(spec.shape) == np.ndim(value) and all(
                want == got or not isinstance(want, int) for want, got in sizes
            )
            if not fits:
                raise DataError(
                    name, f"it takes {describe(spec)}, received {describe(value)}"
                )
        solve_sizes(
            name,
            [spec.shape for spec in program.in_avals],
            [np.shape(value) for value in leaves],
        )
        cast = [
            jnp.asarray(value, spec.dtype)
            for value, spec in zip(leaves, program.in_avals, strict=True)
        ]
        return call(*jax.tree.unflatten(tree, cast))

    run.__name__ = name
    return run
