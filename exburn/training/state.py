"""The one pure state of a training run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core.random_keys import key_of


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """Everything a training program reads and writes, as one pytree.

    Attributes:
        params: Trained parameters by path.
        frozen: Parameters that are outside of the gradient and the optimizer.
        others: Running statistics, counters and other variables.
        metrics: Running totals of the loss and the metrics of this epoch.
        step: Number of batches seen, int32.
        seed: Key data of the run; all randomness is a function of it, step and path.
        stacks: How parameters of equal blocks are put together, where they are: a
            ``BlockStacks``.
    """

    params: dict[str, jax.Array]
    frozen: dict[str, jax.Array]
    others: dict[str, jax.Array]
    opt_state: Any
    metrics: Any
    step: jax.Array
    seed: jax.Array
    stacks: Any = dataclasses.field(default=None, metadata={"static": True})

    def key(self) -> jax.Array:
        """The key of this step."""
        return jax.random.fold_in(key_of(self.seed), self.step)

    def replace(self, **changes) -> TrainState:
        # ``dataclasses.replace`` takes several times as long, in each epoch.
        return TrainState(**(vars(self) | changes))

    def assign(self, arrays: Any) -> TrainState:
        """The state with what a pass assigned: see ``SplitModule.others_of``."""
        frozen = {name: arrays.get(name, old) for name, old in self.frozen.items()}
        others = {name: arrays[name] for name in self.others}
        return self.replace(frozen=frozen, others=others)

    def assigned_frozen(self, new: TrainState) -> set[str]:
        """Names of the frozen parameters that a step assigned, while it is traced."""
        return {n for n, v in new.frozen.items() if v is not self.frozen[n]}

    def others_after(self, others: Any, left_out: jax.Array | None) -> Any:
        """Variables after a step: its own, or ours if it was left out."""
        if left_out is None:
            return others
        ours = self.frozen | self.others
        return {n: jnp.where(left_out, ours[n], new) for n, new in others.items()}


def seed_data(seed: int) -> np.ndarray:
    """Key data for a seed, without compiling anything."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
