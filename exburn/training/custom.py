"""Models that bring their own ``train_step`` or ``test_step``, in Keras' JAX form.

A step is a pure function: ``train_step(state, data) -> (logs, state)`` with the state
``(trainable, non_trainable, optimizer, metrics)``, four lists of arrays in the order of
the model's ``*_variables``; ``test_step`` leaves the optimizer out. Here the lists are
cut from the ``TrainState`` and put back, so that such a model runs in the same chunks.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn import context
from exburn.errors import ArgumentError
from exburn.training.module import Arrays, SplitModule
from exburn.training.state import TrainState
from exburn.traversal import iter_weights

__all__ = ["CustomSteps"]


class CustomSteps:
    """The steps that a model's class defines itself.

    Args:
        split: The model, split.
        optimizer: Its optimizer, or ``None``.
    """

    def __init__(self, split: SplitModule, optimizer: Any):
        self.split, self.optimizer = split, optimizer
        self.module: Any = split.module
        weights = list(iter_weights(self.module))
        self._learned = [path for path, _, learns in weights if learns]
        self._rest = [path for path, _, learns in weights if not learns]
        self._logs: dict[str, tuple[str, ...]] = {}

    def has(self, kind: str) -> bool:
        """Whether the class defines this step (``"train"`` or ``"test"``)."""
        return callable(getattr(self.module, f"{kind}_step", None))

    def names(self, kind: str) -> list[str]:
        """Names of the step's logs, known after ``discover``."""
        return list(self._logs.get(kind, ()))

    def recall(self, kind: str, names: Sequence[str]) -> None:
        """Goes back to the logs of batches of another form."""
        self._logs[kind] = tuple(names)

    def train(self, state: TrainState, batch: tuple) -> TrainState:
        """One update by the model's ``train_step``."""
        leaves, treedef = jax.tree.flatten(state.opt_state)
        self.optimizer.adopt(self._learned, treedef)
        arrays = {**state.params, **state.frozen, **state.others}
        parts = [
            [arrays[n] for n in self._learned],
            [arrays[n] for n in self._rest],
            leaves,
            state.metrics["variables"],
        ]
        logs, new = self._call("train", parts, batch, state.key())
        arrays |= dict(zip(self._learned, new[0], strict=True))
        arrays |= dict(zip(self._rest, new[1], strict=True))
        opt_state = treedef.unflatten(
            [jnp.asarray(n, o.dtype) for n, o in zip(new[2], leaves, strict=True)]
        )
        pick = lambda names: {n: arrays[n] for n in names}  # noqa: E731
        return state.replace(
            params=pick(state.params),
            frozen=pick(state.frozen),
            others=pick(state.others),
            opt_state=opt_state,
            metrics=self._totals(logs, new[3]),
            step=state.step + 1,
        )

    def test(
        self, groups: tuple[Arrays, ...], totals: Any, batch: tuple, key: Any
    ) -> Any:
        """The totals after one batch by the model's ``test_step``."""
        arrays = {name: value for group in groups for name, value in group.items()}
        parts = [
            [arrays[n] for n in self._learned],
            [arrays[n] for n in self._rest],
            totals["variables"],
        ]
        logs, new = self._call("test", parts, batch, key)
        return self._totals(logs, new[2])

    def _call(self, kind: str, parts: list, batch: tuple, key: Any):
        pass_ = context.Context(training=kind == "train", key=key)
        with context.forward(pass_):
            result = getattr(self.module, f"{kind}_step")(tuple(parts), _pack(batch))
        if not isinstance(result, tuple) or len(result) != 2:
            raise ArgumentError(f"{kind}_step", "it must return (logs, state)")
        logs, new = result
        self._logs[kind] = tuple(logs)
        if len(new) != len(parts):
            raise ArgumentError(
                f"{kind}_step",
                f"the state has {len(parts)} parts, the step returned {len(new)}",
            )
        keep = lambda old, value: jnp.asarray(value, old.dtype)  # noqa: E731
        new = [
            [keep(o, n) for o, n in zip(old, part, strict=True)]
            for old, part in zip(parts, new, strict=True)
        ]
        return logs, new

    def _totals(self, logs: Any, variables: list) -> dict[str, Any]:
        logs = {name: jnp.asarray(v, jnp.float32) for name, v in logs.items()}
        return {"logs": logs, "variables": variables}

    def discover(self, kind: str, state: Any, batch: tuple) -> None:
        """Learns the names of a step's logs from an abstract call."""
        if kind == "train":
            jax.eval_shape(self.train, state, batch)
        else:
            key = jax.random.key(0)
            jax.eval_shape(
                lambda s, b: self.test(s, self.fresh(kind), b, key), state, batch
            )

    def fresh(self, kind: str) -> dict[str, Any]:
        """Totals before the first batch of an epoch."""
        variables = [
            np.asarray(value)
            for metric in self.module.metrics
            for value in metric.stateless_reset_state()
        ]
        zeros = {name: np.zeros((), np.float32) for name in self._logs.get(kind, ())}
        return {"logs": zeros, "variables": variables}


def _pack(batch: tuple) -> Any:
    """As Keras packs it: ``x``, ``(x,)`` of several, ``(x, y)`` or ``(x, y, w)``."""
    x, y, w = batch
    if w is not None:
        return x, y, w
    if y is not None:
        return x, y
    return (x,) if isinstance(x, list | tuple) else x
