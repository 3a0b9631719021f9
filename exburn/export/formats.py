"""The formats that models are exported in, and the module that writes each.

A writer's module has

- ``require_packages()``: raises ``MissingDependencyError`` before anything is traced;
- ``write(program, path, options) -> WriteResult``: writes a program to a path
  that does not exist yet, and that gets its true name once the file is checked;
- ``runner(interface, path) -> (name, runs) | None``: what runs the file (``onnxruntime
  1.20``), and for each way into it a function from the list of inputs to the list of
  outputs, NumPy arrays in the program's order; ``None`` where nothing here runs it, or
  ``write`` compares itself;
- ``problems(program) -> list[Problem]``: what it cannot express, without writing.

What it cannot express, ``write`` raises as an ``ExportError`` with layer and primitive.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from exburn.errors import ArgumentError, unknown_name


@dataclasses.dataclass(frozen=True)
class Format:
    """A format of files, or of folders.

    Attributes:
        name: Its name.
        suffix: Of its files; empty if none tells it.
        target: The target of ``portable`` that its programs are traced for; ``None``
            if the writer decides.
        own_names: If it is a folder: the names that its writer puts into it.
        fixed: Whether its files know every size, the rows' too.
        options: Names of the options that its writer takes.
    """

    name: str
    suffix: str
    target: str | None = None
    own_names: frozenset[str] | None = None
    fixed: bool = False
    options: frozenset[str] = frozenset()

    @property
    def writer(self) -> Any:
        """The module, imported when it is first asked for."""
        from exburn.export import core_ml, litert, mobile, onnx, stablehlo

        modules = {"stablehlo": stablehlo, "onnx": onnx, "litert": litert}
        return (modules | {"coreml": core_ml, "mobile": mobile})[self.name]

    def check_options(self, options: dict[str, Any]) -> None:
        """Raises for an option that the format does not have.

        Raises:
            ArgumentError: There is one.
        """
        for option in options:
            if option not in self.options:
                names = ", ".join(sorted(self.options)) or "none"
                raise ArgumentError(
                    "export",
                    f"the format {self.name!r} has no option {option!r}",
                    {"options": names},
                )


FORMATS = {
    form.name: form
    for form in (
        Format("stablehlo", ".stablehlo", options=frozenset({"platforms"})),
        Format("onnx", ".onnx", "onnx", options=frozenset({"integers"})),
        Format(
            "litert",
            ".tflite",
            "litert",
            fixed=True,
            options=frozenset({"batch_sizes", "quantize"}),
        ),
        Format(
            "coreml",
            ".mlpackage",
            "coreml",
            own_names=frozenset({"Manifest.json", "Data"}),
            fixed=True,
            options=frozenset({"precision"}),
        ),
        Format(
            "mobile",
            "",
            own_names=frozenset(
                {"contract.json", "golden.safetensors"}
                | {"model.tflite", "model.mlpackage", "model.onnx"}
            ),
            options=frozenset(
                {"formats", "labels", "preprocessing"}
                | {"batch_sizes", "quantize", "precision"}
            ),
        ),
    )
}
#: What a name without a suffix means.
DEFAULT = "stablehlo"


def format_named(name: Any, op: str = "export") -> Format:
    """The format of a name.

    Raises:
        UnknownNameError: There is none.

    Example:
        >>> format_named("onnx").suffix
        '.onnx'
    """
    if not isinstance(name, str) or name not in FORMATS:
        hint = ""
        if name in ("tf_saved_model", "openvino", "torch"):
            hint = "docs/export.md says how to get there from ONNX or StableHLO."
        raise unknown_name("format", name, FORMATS, op=op, hint=hint)
    return FORMATS[name]


def format_of(path: Path, name: Any = None) -> Format:
    """The format that is named, or that the path's suffix tells.

    Raises:
        UnknownNameError: There is no format of that name.
        ArgumentError: No name is given, and none has that suffix.

    Example:
        >>> format_of(Path("model.onnx")).name, format_of(Path("model")).name
        ('onnx', 'stablehlo')
    """
    if name is not None:
        return format_named(name)
    suffix = path.suffix.lower()
    if not suffix:
        return FORMATS[DEFAULT]
    for form in FORMATS.values():
        if form.suffix == suffix:
            return form
    suffixes = ", ".join(form.suffix for form in FORMATS.values() if form.suffix)
    raise ArgumentError(
        "export",
        f"the suffix of {path.name!r} does not tell the format",
        {"known": suffixes},
        hint='Name it: model.export(path, format="onnx").',
    )
