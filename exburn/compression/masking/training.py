"""Masks in the programs that train: where they are among the arrays, how they go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn.compression.masking.masks import (
    iter_masks,
    join,
    mask_of,
    mask_values,
    places_of,
)
from exburn.compression.masking.plan import STEP, PruningPlan, iter_plans
from exburn.module.variable import exact_weight

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Planned:
    """A plan, and where among the arrays of a module its own are.

    Attributes:
        trained, frozen: The names of its weights by their paths in the plan.
    """

    plan: PruningPlan
    step: str
    trained: dict[str, str]
    frozen: dict[str, str]
    masks: dict[str, str]


@dataclasses.dataclass(frozen=True)
class WeightMasking:
    """The masks of a module's trained weights, and the plans that they follow.

    Attributes:
        pairs: The names of masks by those of their weights.
    """

    pairs: dict[str, str]
    plans: tuple[Planned, ...]

    @classmethod
    def of(
        cls,
        module: Any,
        names: Mapping[int, str],
        trained: list[str],
        frozen: list[str],
    ) -> WeightMasking:
        """The masks that a module has.

        Args:
            module: The module.
            names: The names of its arrays by the ids of their variables.
            trained: Those of the trained parameters.
            frozen: Those of the others, which stay as they are.
        """
        params, still = set(trained), set(frozen)
        pairs = {}
        for _, layer, attribute, mask in iter_masks(module):
            weight = names.get(id(exact_weight(getattr(layer, attribute))))
            if weight in params:
                pairs[weight] = names[id(mask)]
        plans = []
        for path, model, plan in iter_plans(module):
            learning, resting, masks = {}, {}, {}
            for weight, layer, attribute in places_of(model, plan.axes):
                name = names.get(id(exact_weight(getattr(layer, attribute))), "")
                if name in pairs:
                    learning[weight] = name
                elif name in still:
                    resting[weight] = name
                masks[weight] = names[id(mask_of(layer, attribute))]
            if learning:
                step = names.get(id(getattr(model, STEP)), join(path, STEP))
                plans.append(Planned(plan, step, learning, resting, masks))
        return cls(pairs, tuple(plans))

    def apply(self, params: Arrays, others: Arrays) -> Arrays:
        """Parameters with zeros where their masks are."""
        if not self.pairs:
            return params
        return params | {
            name: mask_values(params[name], others[mask])
            for name, mask in self.pairs.items()
            if name in params
        }

    def advance(
        self, params: Arrays, frozen: Arrays, others: Arrays, batches: Any
    ) -> tuple[Arrays, Arrays]:
        """Parameters and other variables after an update."""
        for each in self.plans:
            count = others[each.step] + batches
            weights = {path: params[name] for path, name in each.trained.items()}
            resting = {path: frozen[name] for path, name in each.frozen.items()}
            masks = {path: others[name] for path, name in each.masks.items()}
            before = others[each.step]
            new = each.plan.advance(weights, masks, count, before, resting)
            moved = {each.masks[path]: bits for path, bits in new.items()}
            others = others | moved | {each.step: count}
        return self.apply(params, others), others
