"""Masks in the programs that train: where they are among the arrays, how they go on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from exburn.module.variable import exact_weight
from exburn.transforms.pruning.masks import iter_masks, join, masked, places_of
from exburn.transforms.pruning.plan import STEP, Plan, iter_plans

Arrays = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Masking:
    """The masks of a module's trained weights, and the plans that they follow.

    Attributes:
        pairs: The names of masks by those of their weights.
        plans: Each with the name of its count of steps, and the names of its weights
            by their paths in the plan.
    """

    pairs: dict[str, str]
    plans: tuple[tuple[Plan, str, dict[str, str]], ...]

    @classmethod
    def of(cls, module: Any, names: Mapping[int, str], trained: list[str]) -> Masking:
        """The masks that a module has.

        Args:
            module: The module.
            names: The names of its arrays by the ids of their variables.
            trained: Those of the trained parameters; frozen weights stay as they are.
        """
        known = set(trained)
        pairs = {}
        for _, layer, attribute, mask in iter_masks(module):
            weight = names.get(id(exact_weight(getattr(layer, attribute))))
            if weight in known:
                pairs[weight] = names[id(mask)]
        plans = []
        for path, model, plan in iter_plans(module):
            there = {}
            for weight, layer, attribute in places_of(model, plan.axes):
                name = names.get(id(exact_weight(getattr(layer, attribute))), "")
                if name in pairs:
                    there[weight] = name
            if there:
                step = names.get(id(getattr(model, STEP)), join(path, STEP))
                plans.append((plan, step, there))
        return cls(pairs, tuple(plans))

    def apply(self, params: Arrays, others: Arrays) -> Arrays:
        """Parameters with zeros where their masks are."""
        if not self.pairs:
            return params
        return params | {
            name: masked(params[name], others[mask])
            for name, mask in self.pairs.items()
            if name in params
        }

    def advance(
        self, params: Arrays, others: Arrays, batches: Any
    ) -> tuple[Arrays, Arrays]:
        """Parameters and other variables after an update.

        Args:
            params: Parameters after the optimizer's update and their constraints.
            others: Other variables, masks among them.
            batches: Batches that the update was made of.
        """
        for plan, step, names in self.plans:
            count = others[step] + batches
            weights = {path: params[name] for path, name in names.items()}
            masks = {path: others[self.pairs[name]] for path, name in names.items()}
            new = plan.advance(weights, masks, count, others[step])
            moved = {self.pairs[names[path]]: bits for path, bits in new.items()}
            others = others | moved | {step: count}
        return self.apply(params, others), others
