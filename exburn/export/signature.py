"""The inputs of an exported program: structure, sizes, dtypes and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.checks import check_count
from exburn.core.precision import is_float
from exburn.core.symbolic_shapes import canonical_spec, dim, spec_of
from exburn.errors import ArgumentError, NotBuiltError
from exburn.module.building import require_built


class Interface(Protocol):
    """What a program takes and gives, as far as one must know it to run a file.

    Attributes:
        input_names, output_names: A name for each array.
        rows: How many rows it takes; ``None`` for any number.
    """

    @property
    def input_names(self) -> Sequence[str]: ...
    @property
    def output_names(self) -> Sequence[str]: ...
    @property
    def rows(self) -> int | None: ...


def specs_for_export(
    model: Any,
    inputs: Any = None,
    *,
    dynamic: Any = "all",
    batch_size: int | None = None,
    samples: Any = None,
) -> Any:
    """Specs of a model's inputs, with symbols for the sizes that stay open.

    Args:
        inputs: Arrays or specs in the structure of the inputs, where the model does not
            know them. Their first axis is taken to be the rows.
        dynamic: ``"all"`` leaves the number of rows open, and every size that the
            model leaves open; ``"batch"`` the rows alone: other open sizes are those of
            the samples; ``None`` fixes the rows, too: they are ``batch_size`` or 1.
        batch_size: A number of rows; it fixes that alone.

    Raises:
        NotBuiltError: The model has no weights, or its inputs are not known.
        ArgumentError: An argument is none of these, or a size would stay open.
    """
    require_built(model, "export")
    if dynamic not in ("all", "batch", None):
        raise ArgumentError(
            "export", f"dynamic must be 'all', 'batch' or None, received {dynamic!r}"
        )
    if batch_size is not None:
        batch_size = check_count("export", "batch_size", batch_size)
    inputs = _known_inputs(model, inputs, samples)
    rows = batch_size or (1 if dynamic is None else dim(0))
    specs = jax.tree.map(lambda v: spec_of(tuple(v.shape), v.dtype), inputs)
    if dynamic != "all":
        specs = _fix_sizes(specs, samples, dynamic)
    return jax.tree.map(
        lambda v: canonical_spec(jax.ShapeDtypeStruct((rows, *v.shape[1:]), v.dtype)),
        specs,
    )


def declared_dtypes(
    model: Any, inputs: Any = None, samples: Any = None
) -> list[np.dtype]:
    """The dtypes of a model's inputs as it declares them: JAX has 32 bits of 64.

    Args: as of ``specs_for_export``.
    """
    leaves = jax.tree.leaves(_known_inputs(model, inputs, samples))
    return [np.dtype(leaf.dtype) for leaf in leaves]


def _known_inputs(model: Any, inputs: Any, samples: Any) -> Any:
    """Arrays or specs in the structure of a model's inputs.

    Raises:
        NotBuiltError: They are not known.
    """
    if inputs is not None:
        return inputs
    if getattr(model, "graph", None) is not None:
        return model.program_inputs
    if samples is None:
        raise NotBuiltError(
            "export",
            "the inputs of this model are not known",
            hint="model.export(path, input_signature=x[:1]).",
        )
    return samples


def _fix_sizes(specs: Any, samples: Any, dynamic: str | None) -> Any:
    """The specs with the samples' sizes for those that are open, rows aside."""
    leaves, tree = jax.tree.flatten(specs)
    arrays = jax.tree.leaves(samples)
    fixed = []
    for place, spec in enumerate(leaves):
        shape = spec.shape
        if len(arrays) == len(leaves) and np.ndim(arrays[place]) == len(shape):
            sizes = zip(shape, np.shape(arrays[place]), strict=True)
            shape = tuple(
                n if isinstance(n, int) else sample_size for n, sample_size in sizes
            )
        if not all(isinstance(n, int) for n in shape[1:]):
            raise ArgumentError(
                "export",
                f"with dynamic={dynamic!r} every size must be known, received {shape}",
                hint="Pass samples=x[:8] of the sizes to export.",
            )
        fixed.append(jax.ShapeDtypeStruct(shape, spec.dtype))
    return jax.tree.unflatten(tree, fixed)


def exact_spec(spec: Any) -> jax.ShapeDtypeStruct:
    """The spec in float32, if it is one of half floats.

    Example:
        >>> exact_spec(jax.ShapeDtypeStruct((2,), jnp.bfloat16))
        ShapeDtypeStruct(shape=(2,), dtype=float32)
    """
    half = is_float(spec.dtype) and jnp.dtype(spec.dtype).itemsize == 2
    return jax.ShapeDtypeStruct(spec.shape, jnp.float32) if half else spec


def names_of(
    tree: Any, base: str, own_names: Any = None, reserved: Any = ()
) -> list[str]:
    """A name for each leaf: its key in a dict, the model's own, or by number.

    Args:
        base: The name of one that has none.
        own_names: The names that the model has for them, if it has.
        reserved: Names that are taken.
    """
    paths = [path for path, _ in jax.tree_util.tree_flatten_with_path(tree)[0]]
    if isinstance(tree, Mapping):
        candidates = ["_".join(str(_key(entry)) for entry in path) for path in paths]
    elif own_names and len(own_names) == len(paths):
        candidates = list(own_names)
    else:
        candidates = [base] * len(paths)
    names: list[str] = []
    for name in candidates:
        unique, number = name, 1
        while unique in names or unique in reserved:
            unique, number = f"{name}_{number}", number + 1
        names.append(unique)
    return names


def _key(entry: Any) -> Any:
    for attribute in ("key", "idx", "name"):
        if hasattr(entry, attribute):
            return getattr(entry, attribute)
    return entry
