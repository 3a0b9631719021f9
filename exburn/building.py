"""Making a layer's weights: discovering shapes, filling values, copying.

The functions take any ``exburn.layer.Layer``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn import context
from exburn.symbol import INCONCLUSIVE, trace_shapes
from exburn.traversal import iter_modules, iter_weights, module_paths

__all__ = [
    "clone",
    "infer",
    "inspect_call",
    "intact",
    "materialize",
    "reseed",
    "spec_like",
]


def materialize(root: Any, seed: int | None = None) -> None:
    """Fills the weights that are still specs, from the seed and their paths."""
    seed = context.global_seed() if seed is None else seed
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    initial = root._book.value.initial
    for path, weight, _ in iter_weights(root):
        spec = weight.get_raw_value()
        if not isinstance(spec, jax.ShapeDtypeStruct):
            continue
        make = weight.get_metadata("initializer")
        value = make(spec.shape, spec.dtype, rng=context.philox(top + path, seed))
        value = jax.device_put(np.asarray(value, spec.dtype))
        weight.set_raw_value(value)
        weight.set_metadata("path", top + path)
        initial[top + path] = value


def reseed(root: Any, seed: int) -> None:
    """Draws the weights again that nobody has changed since they were made."""
    initial = root._book.value.initial
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    for path, weight, _ in iter_weights(root):
        value = weight.get_raw_value()
        if initial.get(top + path) is value and "initializer" in weight.get_metadata():
            weight.set_raw_value(spec_like(value))
    materialize(root, seed)


def spec_like(value: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array."""
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


def inspect_call(layer: Any) -> tuple[Any, dict[str, Any]] | None:
    """The jaxpr of one call, and the output specs of every layer in it, by path.

    ``None`` if the layer has not been called on a known shape yet.
    """
    if layer._book.value.traced is None:
        return None
    rebuild, specs = layer._book.value.traced
    graphdef, state = nnx.split(layer)
    leaves, treedef = jax.tree.flatten(state)
    shapes: dict[str, Any] = {}

    def run(*values):
        copy = nnx.merge(graphdef, jax.tree.unflatten(treedef, values[len(specs) :]))
        pass_ = context.Context(key=jax.random.key(0))
        pass_.paths, pass_.shapes = module_paths(copy), shapes
        args, kwargs = rebuild(values[: len(specs)])
        with context.forward(pass_):
            return copy._call_arrays(args, kwargs)

    params = [spec_like(v) for v in leaves]
    try:
        return jax.make_jaxpr(run)(*specs, *params), shapes
    except INCONCLUSIVE:  # a size JAX cannot reason about: one row, instead of "batch"
        return jax.make_jaxpr(run)(*map(_one_row, specs), *params), shapes


def _one_row(spec: Any) -> jax.ShapeDtypeStruct:
    sizes = tuple(d if isinstance(d, int) else 1 for d in spec.shape)
    return jax.ShapeDtypeStruct(sizes, spec.dtype)


@contextlib.contextmanager
def intact(root: Any) -> Iterator[None]:
    """If the block raises, no layer below ``root`` stays built or changed by it."""
    layers = [m for _, m in iter_modules(root) if hasattr(m, "_book")]
    before = [
        (layer, dict(vars(layer)), len(layer._book.value.calls))
        for layer in layers
        if layer is root or not layer.built
    ]
    try:
        yield
    except Exception:
        for layer, attributes, calls in before:
            vars(layer).clear()
            vars(layer).update(attributes)
            del layer._book.value.calls[calls:]
        raise


def infer(layer: Any, rebuild, specs: list) -> Any:
    """Output specs for input specs; builds every layer that the call reaches.

    The call is traced on a copy. Layers that the copy met unbuilt are then built in the
    original, outside of the trace, until a trace meets none. If one of them cannot be,
    none is.
    """
    with intact(layer):
        return _infer(layer, rebuild, specs)


def _infer(layer: Any, rebuild, specs: list) -> Any:
    args, kwargs = rebuild(specs)
    info = type(layer)._call_info
    if not layer.built:
        layer._build(info.shapes(layer, args, kwargs))
    while True:
        graphdef, state = nnx.split(layer)
        abstract, treedef = jax.tree.flatten(state)
        found: list[tuple[str, tuple]] = []

        def run(*values, graphdef=graphdef, treedef=treedef, found=found):
            state = jax.tree.unflatten(treedef, values[len(specs) :])
            copy = nnx.merge(graphdef, state)
            pass_ = context.Context(key=jax.random.key(0), discovering=True)
            pass_.paths = module_paths(copy)
            args, kwargs = rebuild(values[: len(specs)])
            with context.forward(pass_):
                out = copy._call_arrays(args, kwargs)
            assert pass_.builds is not None
            for module_id, shapes in pass_.builds:
                if module_id in pass_.paths:
                    found.append((pass_.paths[module_id], shapes))
            return out

        params = [spec_like(v) for v in abstract]
        outputs = trace_shapes(run, [*specs, *params], where=f"layer {layer.name!r}")
        if not found:
            layer._book.value.traced = (rebuild, specs)
            return outputs
        originals = dict(iter_modules(layer))
        for path, shapes in found:
            if not originals[path].built:
                originals[path]._build(shapes)


def clone(layer: Any) -> Any:
    """A layer of the same configuration with copies of the weights."""
    copy = type(layer).from_config(layer.get_config())
    if layer.built and not copy.built and layer._book.value.traced is not None:
        infer(copy, *layer._book.value.traced)
    pairs = {path: w for path, w, _ in iter_weights(layer)}
    for path, weight, _ in iter_weights(copy):
        weight.set_raw_value(jnp.array(pairs[path].get_value(), copy=True))
    return copy
