"""The one pure state of a training run."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.random import key_of

__all__ = ["TrainState"]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class TrainState:
    """Everything a training program reads and writes, as one pytree.

    Attributes:
        params: Trained parameters by path.
        frozen: Parameters that are outside of the gradient and the optimizer.
        others: Running statistics, counters and other variables.
        opt_state: The optimizer's state.
        metrics: Running totals of the loss and the metrics of this epoch.
        step: Number of batches seen, int32.
        seed: Key data of the run; all randomness is a function of it, step and path.
    """

    params: dict[str, jax.Array]
    frozen: dict[str, jax.Array]
    others: dict[str, jax.Array]
    opt_state: Any
    metrics: Any
    step: jax.Array
    seed: jax.Array

    def key(self) -> jax.Array:
        """The key of this step."""
        return jax.random.fold_in(key_of(self.seed), self.step)

    def replace(self, **changes) -> TrainState:
        # ``dataclasses.replace`` takes several times as long, in each epoch.
        return TrainState(**(vars(self) | changes))

    def others_after(self, others: Any, left_out: jax.Array | None) -> Any:
        """The other variables after a step: its own, or ours if it was left out."""
        if left_out is None:
            return others
        choose = lambda new, old: jnp.where(left_out, old, new)  # noqa: E731
        return jax.tree.map(choose, others, self.others)


def seed_data(seed: int) -> np.ndarray:
    """Key data for a seed, without compiling anything."""
    return np.array([seed >> 32, seed & 0xFFFFFFFF], np.uint32)
