"""Walking through a module: its layers, its weights, and their paths."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import jax
from flax import nnx

from exburn.weights import Weight

__all__ = ["children", "is_abstract", "iter_modules", "iter_weights", "module_paths"]


def children(module: Any) -> Iterator[tuple[str, Any]]:
    """Modules and variables directly inside, in the order they were assigned.

    Containers that a model keeps its layers in (``nodes``) add no path segment.
    """
    for key, value in vars(module).items():
        if key.startswith("_pytree__"):
            continue
        if isinstance(value, nnx.List | nnx.Dict):
            prefix = "" if key == "nodes" else f"{key}/"
            yield from ((prefix + k, v) for k, v in children(value))
        elif isinstance(value, nnx.Module | nnx.Variable):
            yield key, value
        elif isinstance(value, nnx.Pytree):
            yield from ((f"{key}/{k}", v) for k, v in children(value))


def iter_modules(root: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every module below (and with) ``root``, each once, with its path."""
    seen: set[int] = set()

    def walk(module, path):
        if id(module) in seen:
            return
        seen.add(id(module))
        yield path, module
        for key, child in children(module):
            if isinstance(child, nnx.Module):
                yield from walk(child, f"{path}/{key}" if path else key)

    yield from walk(root, prefix)


def module_paths(root: Any) -> dict[int, str]:
    """``id(module) -> path`` below the root."""
    return {id(m): path for path, m in iter_modules(root)}


def iter_weights(root: Any) -> Iterator[tuple[str, Weight, bool]]:
    """Every weight below ``root`` once: its path, itself, and whether it is trained.

    A parameter whose metadata say ``frozen`` is not, whatever its layer says.

    In Keras' order: a layer's own weights, the trainable ones first, then those of
    the layers in it.
    """
    seen: set[int] = set()

    def walk(module, path, trainable):
        if id(module) in seen:
            return
        seen.add(id(module))
        trainable = trainable and getattr(module, "_trainable", True)
        own, inner = [], []
        for key, child in children(module):
            child_path = f"{path}/{key}" if path else key
            if isinstance(child, nnx.Module):
                inner.append((child, child_path))
            elif id(child) not in seen and not isinstance(child, nnx.RngState):
                seen.add(id(child))
                learns = isinstance(child, nnx.Param)
                frozen = child.get_metadata().get("frozen", False)
                own.append(
                    (child_path, child, trainable and learns and not frozen, learns)
                )
        for child_path, child, learned, _ in sorted(own, key=lambda w: not w[3]):
            yield child_path, child, learned
        for child, child_path in inner:
            yield from walk(child, child_path, trainable)

    yield from walk(root, "", True)


def is_abstract(weight: Any) -> bool:
    return isinstance(weight.get_raw_value(), jax.ShapeDtypeStruct)
