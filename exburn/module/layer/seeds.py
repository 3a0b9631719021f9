"""Seeds of random layers, which Keras lists among a layer's variables.

ExBurn's own programs have no use for them: their keys come from the step. A loop by
hand gives their values to ``stateless_call`` and gets those for the next call back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import jax

from exburn.core.forward_context import SEED_STATE, layer_seed
from exburn.module.seed_generator import SeedGenerator
from exburn.module.traversal import iter_weights
from exburn.module.variable import Weight


class SeedOfLayer:
    """The attribute ``seed_generator`` of a layer, unless a subclass sets its own.

    Args:
        draws: Whether a layer draws random numbers; by default it does.
    """

    def __init__(self, draws: Callable[[Any], bool] = lambda layer: True):
        self.draws = draws

    def __get__(self, layer: Any, owner: type | None = None) -> Any:
        if layer is None:
            return self
        if layer not in _made:
            seed = getattr(layer, "seed", None)
            with jax.ensure_compile_time_eval():
                _made[layer] = SeedGenerator(layer_seed() if seed is None else seed)
        return _made[layer]


# Apart from the layers: their graph is part of what a program is compiled for.
_made: weakref.WeakKeyDictionary[Any, SeedGenerator] = weakref.WeakKeyDictionary()


def iter_variables(root: Any) -> Iterator[tuple[str, Weight, bool]]:
    """``iter_weights``, and after each layer's own weights the states of its seeds.

    Args:
        root: A layer.
    """
    return iter_weights(root, beside=_states)


def _states(module: Any) -> Iterator[tuple[str, Weight]]:
    held = {name: v for name, v in vars(module).items() if isinstance(v, SeedGenerator)}
    seed = getattr(type(module), "seed_generator", None)
    if isinstance(seed, SeedOfLayer) and seed.draws(module):
        held["seed_generator"] = module.seed_generator
    for name, generator in held.items():
        yield f"{name}/{SEED_STATE}", generator.state
