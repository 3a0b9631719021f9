"""StableHLO: a program that any process with JAX runs, weights included."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import jax
from jax import export as jax_export

from exburn.errors import (
    ArgumentError,
    ExportError,
    FileFormatError,
    require,
    unknown_name,
)
from exburn.export.program import ExportedProgram, tracing_errors
from exburn.export.report import Problem, WriteResult
from exburn.runtime.device import device_info
from exburn.runtime.portable import layer_of, portable
from exburn.saving.seal import open_bytes, seal_bytes

_NAMES = b"exburn inputs:"
_PLATFORMS = ("cpu", "cuda", "rocm", "tpu")


def require_packages() -> None:
    """Raises ``MissingDependencyError`` where ``jax.export`` cannot write."""
    reason = "writing StableHLO needs flatbuffers"
    require("flatbuffers", "export", reason, extra="export")


def write(program: ExportedProgram, path: Path, options: dict[str, Any]) -> WriteResult:
    """Writes the program as ``jax.export`` does, with names and a digest behind it.

    JAX reads past no program's end, and its programs have no names for the arrays of a
    list.

    Args:
        options: ``platforms``: some of ``("cpu", "cuda", "rocm", "tpu")``; by default
            the CPU and the platform in use.

    Raises:
        ArgumentError: The platforms are no sequence of such names.
        UnknownNameError: There is no such platform.
        ExportError: The model calls code on the host.
    """
    platforms: Any = options.get("platforms")
    if platforms is not None:
        some = isinstance(platforms, Collection) and len(platforms) > 0
        if isinstance(platforms, str) or not some:
            raise ArgumentError(
                "export",
                f"platforms must be a sequence of names, received {platforms!r}",
                hint='For example platforms=("cpu", "cuda").',
            )
        for name in platforms:
            if name not in _PLATFORMS:
                raise unknown_name("platform", name, _PLATFORMS, op="export")
        platforms = tuple(platforms)
    here = device_info()["backend"]
    if platforms is None:
        platforms = ("cpu", here) if here in _PLATFORMS[1:] else ("cpu",)
    elsewhere = set(platforms) != {"cpu"}
    groups, specs = program.groups, program.specs

    def infer(x: Any) -> Any:
        return program.infer(groups, x)

    scope = portable("platforms") if elsewhere else contextlib.nullcontext()
    try:
        with scope, tracing_errors(specs):
            exported = jax_export.export(jax.jit(infer), platforms=platforms)(specs)
            data = exported.serialize()
    except Exception as error:
        with portable("platforms"), tracing_errors(specs):  # names the layers
            jaxpr = jax.make_jaxpr(lambda x: infer(x))(specs).jaxpr  # a trace anew
        if call := host_code(jaxpr):
            layer, primitive = call
            raise ExportError(
                "export",
                f"StableHLO cannot express {primitive!r}"
                + (f" of layer {layer!r}" if layer else ""),
                {"layer": layer, "primitive": primitive},
                hint="Code on the host is no part of a file: do it before or after.",
            ) from error
        raise
    path.write_bytes(seal_bytes(_with_names(data, program.input_names)))
    return WriteResult({})


def host_code(jaxpr: Any, layer: str = "") -> tuple[str, str] | None:
    """The layer and the primitive of the first call of code on the host.

    Args:
        jaxpr: The program, or what is called in it.
        layer: Path of the layer that calls it.

    Example:
        >>> shout = lambda x: (jax.debug.print("{}", x), 2 * x)[1]
        >>> host_code(jax.make_jaxpr(jax.jit(shout))(1.0).jaxpr)
        ('', 'debug_print')
    """
    for eqn in jaxpr.eqns:
        here, name = layer_of(eqn.source_info.name_stack) or layer, eqn.primitive.name
        if name.endswith("_callback") or name == "debug_print":
            return here, name
        for inner in jax.tree.leaves(
            list(eqn.params.values()), is_leaf=lambda v: hasattr(v, "eqns")
        ):
            if hasattr(inner, "eqns") and (call := host_code(inner, here)):
                return call
    return None


def runner(program: ExportedProgram, path: Path) -> Any:
    """Nothing: JAX lowers and runs these programs as it does the model's own."""
    return "it was not run: JAX itself wrote it", []


def problems(program: ExportedProgram) -> list[Problem]:
    """Nothing: JAX writes whatever it traces."""
    return []


def _with_names(data: bytes | bytearray, names: Sequence[str]) -> bytes:
    """The program, then the names of its inputs as JSON, and how long that is."""
    text = json.dumps(list(names)).encode()
    return bytes(data) + _NAMES + text + len(text).to_bytes(4, "little")


def input_names(data: bytes | bytearray) -> list[str] | None:
    """The names of a program's inputs; ``None`` if its file has none.

    Args:
        data: The bytes of the file.

    Raises:
        FileFormatError: They are not those that were written.

    Example:
        >>> input_names(seal_bytes(_with_names(b"program", ["left", "right"])))
        ['left', 'right']
    """
    data = open_bytes(data)
    start = len(data) - 4 - int.from_bytes(data[-4:], "little")
    if start < len(_NAMES) or data[start - len(_NAMES) : start] != _NAMES:
        return None
    return json.loads(bytes(data[start:-4]))


def load(data: bytes | bytearray) -> Any:
    """The program of serialized bytes.

    Raises:
        MissingDependencyError: flatbuffers is not installed.
        FileFormatError: The bytes are something else, or damaged.
    """
    # jax.export reads with it.
    reason = "reading a StableHLO export needs flatbuffers"
    require("flatbuffers", "predict", reason, extra="export")
    data = open_bytes(data)
    try:
        return jax_export.deserialize(bytearray(data))
    except Exception as error:  # whatever flatbuffers makes of other bytes
        raise FileFormatError(
            "predict",
            "this is no program that jax.export wrote",
            {"cause": f"{type(error).__name__}: {error}"},
            hint="Write it with model.export(path), or exported.serialize().",
        ) from error
