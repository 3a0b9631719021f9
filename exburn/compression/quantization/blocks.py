"""The layers of a model that data goes through one after the other."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from exburn.errors import ArgumentError
from exburn.layers import RNN
from exburn.module.selection import layer_paths


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A ``quantization_layer_structure``, with paths in the place of layers.

    Attributes:
        before: What tokens go through first: paths of layers, or functions.
        reached: Paths of the blocks, and of all layers in them that can be watched.
    """

    before: tuple[str | Callable[[Any], Any], ...]
    paths: tuple[str, ...]
    reached: frozenset[str]

    @classmethod
    def of(cls, model: Any, structure: Any) -> Blocks:
        """The blocks of a model.

        Args:
            model: The model.
            structure: ``{"pre_block_layers": […], "sequential_blocks": […]}``.

        Raises:
            ArgumentError: It is something else, or names no layer of the model.
        """
        if not isinstance(structure, Mapping):
            raise _refusal(
                "the layers that the data goes through are needed as a dict, received "
                f"{structure!r}"
            )
        unknown = set(structure) - {"pre_block_layers", "sequential_blocks"}
        lists = [
            structure.get(k, ()) for k in ("pre_block_layers", "sequential_blocks")
        ]
        if unknown or not all(isinstance(part, list | tuple) for part in lists):
            raise _refusal(
                f"it holds lists of layers under two keys, received {structure!r}"
            )
        first, blocks = lists
        if not blocks:
            raise _refusal("there are no sequential_blocks to quantize")
        layers = {"": model, **layer_paths(model)}
        places: dict[int, str] = {id(layer): path for path, layer in layers.items()}
        for part in first:
            if not callable(part):
                raise _refusal(f"pre_block_layers are layers, received {part!r}")
        for part in blocks:
            if id(part) not in places:
                raise _refusal(
                    f"sequential_blocks are layers of the model, received {part!r}"
                )
        paths = tuple(places[id(part)] for part in blocks)
        reached = {
            p
            for p in watchable_layers(model)
            if any(within(p, outer) for outer in paths)
        }
        before = tuple(places[id(p)] if id(p) in places else p for p in first)
        return cls(before, paths, frozenset(reached))


def within(path: str, outer: str) -> bool:
    """Whether a layer is another one, or inside of it."""
    return not outer or path == outer or path.startswith(f"{outer}/")


def _refusal(problem: str) -> ArgumentError:
    return ArgumentError(
        "quantize",
        problem,
        hint='Give quantization_layer_structure={"pre_block_layers": [embedding], '
        '"sequential_blocks": [block, …]}, or override '
        "model.get_quantization_layer_structure(mode).",
    )


def watchable_layers(model: Any) -> dict[str, Any]:
    """The layers whose calls can be noted: not those inside of a loop."""
    layers = layer_paths(model)
    loops = [path for path, layer in layers.items() if isinstance(layer, RNN)]
    return {
        path: layer
        for path, layer in layers.items()
        if not any(path.startswith(f"{loop}/") for loop in loops)
    }
