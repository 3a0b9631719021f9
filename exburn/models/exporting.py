"""A model as one portable program, weights included."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
from jax import export as jax_export

from exburn.core.symbolic_shapes import canonical_spec, dim, spec_of
from exburn.errors import ArgumentError, ExBurnError, NotBuiltError, require
from exburn.kernels.conv.dispatch import for_other_platforms
from exburn.module.building import require_built
from exburn.module.traversal import iter_modules
from exburn.runtime.device import device_info
from exburn.saving.atomic import write_atomically
from exburn.saving.checksum import seal
from exburn.training.module import SplitModule

if TYPE_CHECKING:
    from exburn.models.model import Model


def export(
    self: Model,
    filepath: Any,
    format: str = "stablehlo",
    verbose: Any = None,
    input_signature: Any = None,
    *,
    batch_size: int | None = None,
    platforms: Sequence[str] | None = None,
) -> None:
    """Writes inference as a StableHLO program that runs without ExBurn.

    ``exburn.predict(filepath, x)`` runs it, and so does
    ``jax.export.deserialize(data).call(x)`` in any process with JAX; the program
    takes any number of rows.

    Lookups of strings are no part of the program, which is said by a warning: it
    takes what ``model.encode_inputs(x)`` returns.

    Args:
        filepath: The file, by custom ``….stablehlo``.
        format: ``"stablehlo"``.
        verbose: Taken for Keras' sake; nothing is printed.
        input_signature: Arrays or specs in the structure of the inputs, where the
            model does not know them. Their first axis is taken to be free.
        batch_size: A fixed number of rows, for a model that JAX cannot trace with
            an unknown one.
        platforms: ``("cpu", "cuda", "rocm", "tpu")`` or some of them; by default
            the CPU and the platform in use.

    Raises:
        MissingDependencyError: flatbuffers is not installed.
        NotBuiltError: The model has no weights, or its inputs are not known.
        ArgumentError: Another format, or it cannot be traced with free rows.

    Example:
        >>> import tempfile
        >>> from exburn import Sequential, layers
        >>> model = Sequential([layers.Input((3,)), layers.Dense(2)])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.export(f"{folder}/model.stablehlo")
    """
    if format != "stablehlo":
        raise ArgumentError(
            "export",
            f"the format must be 'stablehlo', received {format!r}",
            hint="TensorFlow and ONNX have converters that start from StableHLO.",
        )
    # jax.export writes with it.
    reason = "writing StableHLO needs flatbuffers"
    require("flatbuffers", "export", reason, extra="export")
    specs = _specs_for_export(self, input_signature, batch_size)
    if (host := self.host_graph) is not None:
        lookups = ", ".join(map(repr, host.lookups))
        warnings.warn(
            f"{lookups} run on the host, and are not in the exported program: its "
            "inputs are those that model.encode_inputs(x) returns",
            stacklevel=2,
        )
    with _without_observers(self):
        split = SplitModule(self)
    groups = split.read()

    def infer(x):
        key = jax.random.key(0)
        return split.forward(groups, x, training=False, key=key)[0]

    here = device_info()["backend"]
    if platforms is None:
        platforms = ("cpu", here) if here in ("cuda", "rocm", "tpu") else ("cpu",)
    elsewhere = set(platforms) != {"cpu"}
    try:
        with for_other_platforms() if elsewhere else contextlib.nullcontext():
            program = jax_export.export(jax.jit(infer), platforms=platforms)(specs)
    except Exception as error:
        if isinstance(error, ExBurnError) or batch_size is not None:
            raise
        raise ArgumentError(
            "export",
            "the model cannot be traced for an unknown number of rows",
            {"cause": str(error).partition("\n")[0]},
            hint="Fix it: model.export(path, batch_size=32).",
        ) from error
    data = seal(program.serialize())  # JAX reads past no program's end
    write_atomically(Path(filepath), lambda file: file.write(data))


def _specs_for_export(model: Model, signature: Any, batch_size: int | None) -> Any:
    require_built(model, "export")
    if signature is None and model.graph is None:
        raise NotBuiltError(
            "export",
            "the inputs of this model are not known",
            hint="model.export(path, input_signature=x[:1]).",
        )
    given = model.program_inputs if signature is None else signature
    rows = dim(0) if batch_size is None else batch_size
    known = jax.tree.map(lambda v: spec_of(tuple(v.shape), v.dtype), given)
    return jax.tree.map(
        lambda v: canonical_spec(jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype)),
        known,
    )


@contextlib.contextmanager
def _without_observers(model: Any) -> Iterator[None]:
    """The model without the functions of ``on_output``, which stay in this process."""
    tapped = [
        (layer, layer._taps)
        for _, layer in iter_modules(model)
        if getattr(layer, "_taps", None) is not None
    ]
    for layer, _ in tapped:
        layer._taps = None
    try:
        yield
    finally:
        for layer, taps in tapped:
            layer._taps = taps
