"""Models that bring their own steps, in Keras' JAX form.

A step is a pure function: ``train_step(state, data) -> (logs, state)`` with the state
``(trainable, non_trainable, optimizer, metrics)``, four lists of arrays in the order of
the model's ``*_variables``; ``test_step`` leaves the optimizer out, ``predict_step``
has the first two lists and returns outputs. Here the lists are cut from the
``TrainState`` and put back, so that such a model runs in the same chunks.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from exburn.core import forward_context
from exburn.core.substitution import substituting
from exburn.data.packing import pack_x_y_sample_weight
from exburn.errors import ArgumentError, ShapeError
from exburn.module.seed_generator import iter_variables
from exburn.module.traversal import iter_weights
from exburn.runtime.cost_model import Cost, count
from exburn.training.module import Arrays, SplitModule
from exburn.training.overrides import has_custom_step
from exburn.training.state import TrainState

LOGS = "logs of the step"  # key among the totals, and no name of a metric


def own_steps(custom: CustomSteps | None, kind: str) -> CustomSteps | None:
    """The model's own steps, if it is its ``kind`` of step that runs."""
    return custom if custom is not None and custom.has(kind) else None


class CustomSteps:
    """The steps that a model's class defines itself.

    Attributes:
        costs: Of a step of each kind, known after ``discover``.
    """

    def __init__(self, split: SplitModule, optimizer: Any):
        self.split, self.optimizer = split, optimizer
        self.module: Any = split.module
        variables = list(iter_variables(self.module))
        self._learned = [path for path, _, learns in variables if learns]
        self._rest = [path for path, _, learns in variables if not learns]
        weights = {path for path, _, _ in iter_weights(self.module)}
        self._seeds = [path for path, _, _ in variables if path not in weights]
        self._logs: dict[str, tuple[str, ...]] = {}
        self.costs: dict[str, Cost] = {}

    def has(self, kind: str) -> bool:
        """Whether a kind of step (``"train"``, ``"test"`` …) is the model's own."""
        return has_custom_step(self.module, kind)

    def names(self, kind: str) -> list[str]:
        """Names of the step's logs, known after ``discover``."""
        return list(self._logs.get(kind, ()))

    def recall(self, kind: str, names: Sequence[str]) -> None:
        """Goes back to the logs of batches of another form."""
        self._logs[kind] = tuple(names)

    def train(self, state: TrainState, batch: tuple) -> TrainState:
        """One update by the model's ``train_step``."""
        leaves, treedef = jax.tree.flatten(state.opt_state)
        self.optimizer.adopt(self._learned, treedef, self.split.constraints)
        arrays = {**state.params, **state.frozen, **state.others}
        key = state.key()
        parts = [*self._lists(key, arrays), leaves, state.metrics["variables"]]
        logs, new = self._call("train", parts, batch, key, arrays)
        arrays |= dict(zip(self._learned, new[0], strict=True))
        arrays |= dict(zip(self._rest, new[1], strict=True))
        opt_state = treedef.unflatten(
            [jnp.asarray(n, o.dtype) for n, o in zip(new[2], leaves, strict=True)]
        )
        pick = lambda names: {n: arrays[n] for n in names}  # noqa: E731
        left_out = self.optimizer.skips(state.opt_state, opt_state)
        return state.replace(
            params=pick(state.params),
            frozen=pick(state.frozen),
            others=state.others_after(pick(state.others), left_out),
            opt_state=opt_state,
            metrics=self._totals(logs, new[3]),
            step=state.step + 1,
        )

    def test(
        self, groups: tuple[Arrays, ...], totals: Any, batch: tuple, key: Any
    ) -> Any:
        """The totals after one batch by the model's ``test_step``."""
        parts = [*self._lists(key, *groups), totals["variables"]]
        logs, new = self._call("test", parts, batch, key, *groups)
        return self._totals(logs, new[2])

    def predict(self, groups: tuple[Arrays, ...], x: Any, key: Any) -> Any:
        """The outputs of the model's ``predict_step``."""
        self.split.draws = True  # it may
        state = self._lists(key, *groups)
        outputs, _ = self._step("predict", state, (x, None, None), key, *groups)
        rows = jax.tree.leaves(x)[0].shape[0]
        for path, leaf in jax.tree_util.tree_leaves_with_path(outputs):
            if jnp.shape(leaf)[:1] != (rows,):
                raise ShapeError(
                    "predict_step",
                    f"outputs must have a row for each of the {rows} rows of the "
                    f"inputs, those at {jax.tree_util.keystr(path) or 'the top'} have "
                    f"shape {jnp.shape(leaf)}",
                    hint="Return arrays whose first axis is that of the batch.",
                )
        return jax.tree.map(jnp.asarray, outputs)

    def _lists(self, key: Any, *groups: Arrays) -> tuple[list[Any], list[Any]]:
        """The trainable values and the others, in the order of the model's.

        The seeds of layers are those of the step: what they are after it is left out.
        """
        arrays = dict.fromkeys(self._seeds, jax.random.key_data(key)[-2:])
        arrays |= {name: value for group in groups for name, value in group.items()}
        return [arrays[n] for n in self._learned], [arrays[n] for n in self._rest]

    def _step(
        self, kind: str, state: tuple, batch: tuple, key: Any, *groups: Arrays
    ) -> tuple:
        """What the model's step returns, a pair.

        Weights that the step reads by itself, not through the state, have the values
        that they had before it.
        """
        ctx = forward_context.Context(training=kind == "train", key=key)
        with forward_context.forward(ctx), substituting(self.split.reading(*groups)):
            data = pack_x_y_sample_weight(*batch)
            step = getattr(self.module, f"{kind}_step")
            _check_takes(kind, step, state, data)
            result = step(state, data)
        if not isinstance(result, tuple) or len(result) != 2:
            first, second = "logs", "state"
            if kind == "predict":
                first, second = "outputs", "non_trainable_variables"
            raise ArgumentError(f"{kind}_step", f"it must return ({first}, {second})")
        if kind != "predict" and not isinstance(result[0], Mapping):
            raise ArgumentError(
                f"{kind}_step",
                "what is logged must be a dict of values by their names, received "
                f"{type(result[0]).__name__}",
            )
        return result

    def _call(self, kind: str, parts: list, batch: tuple, key: Any, *groups: Arrays):
        logs, new = self._step(kind, tuple(parts), batch, key, *groups)
        logs = self._in_order(_flatten_logs(logs))
        self._logs[kind] = tuple(logs)
        if len(new) != len(parts):
            raise ArgumentError(
                f"{kind}_step",
                f"the state has {len(parts)} parts, the step returned {len(new)}",
            )
        logs = self._of_epoch(logs, parts[-1], new[-1])
        keep = lambda old, value: jnp.asarray(value, old.dtype)  # noqa: E731
        new = [
            [keep(o, n) for o, n in zip(old, part, strict=True)]
            for old, part in zip(parts, new, strict=True)
        ]
        return logs, new

    def _in_order(self, logs: dict[str, Any]) -> dict[str, Any]:
        """The logs in Keras' order, which is that of what ``evaluate`` returns.

        First the metrics, in the order of ``model.metrics``, then others by name.
        """
        names = [
            one.name
            for metric in self.module.metrics
            for one in getattr(metric, "metrics", None) or [metric]
        ]
        first = [name for name in dict.fromkeys(names) if name in logs]
        return {name: logs[name] for name in [*first, *sorted(logs.keys() - {*first})]}

    def _of_epoch(self, logs: dict[str, Any], old: list, new: list) -> dict[str, Any]:
        """What is logged; of metrics, if they are all that is, the values so far.

        Such a step may have returned those of its batch alone, as in Keras. A metric
        that the step did not update says nothing: what the step returned stays.
        """
        values, updated, start = {}, set(), 0
        for metric in self.module.metrics:
            end = start + len(metric.variables)
            value = _flatten_logs(
                {metric.name: metric.stateless_result(new[start:end])}
            )
            values |= value
            if any(
                a is not b for a, b in zip(old[start:end], new[start:end], strict=True)
            ):
                updated |= value.keys()
            start = end
        if values.keys() != logs.keys():
            return logs
        return {n: values[n] if n in updated else value for n, value in logs.items()}

    def _totals(self, logs: Any, variables: list) -> dict[str, Any]:
        logs = {name: jnp.asarray(v, jnp.float32) for name, v in logs.items()}
        return {LOGS: logs, "variables": variables}

    def discover(self, kind: str, state: Any, batch: tuple) -> None:
        """Learns the names of a step's logs, and its cost, from an abstract call."""
        key = jax.random.key(0)
        call: dict[str, Callable] = {
            "train": self.train,
            "test": lambda s, b: self.test(s, self.fresh(kind), b, key),
            "predict": lambda s, b: self.predict(s, b[0], key),
        }
        self.costs[kind] = count(jax.make_jaxpr(call[kind])(state, batch))

    def fresh(self, kind: str) -> dict[str, Any]:
        """Totals before the first batch of an epoch."""
        variables = [
            np.asarray(value)
            for metric in self.module.metrics
            for value in metric.stateless_reset_state()
        ]
        zeros = {name: np.zeros((), np.float32) for name in self._logs.get(kind, ())}
        return {LOGS: zeros, "variables": variables}


def _check_takes(kind: str, step: Callable, state: tuple, data: tuple) -> None:
    """Refuses a step that is written for Keras with another backend."""
    try:
        inspect.signature(step).bind(state, data)
    except TypeError as error:
        raise ArgumentError(
            f"{kind}_step",
            f"it is called with (state, data), its arguments are "
            f"{inspect.signature(step)}",
            hint=f"def {kind}_step(self, state, data): as in Keras with JAX, see "
            "docs/custom_layers.md; or override compute_loss(x, y, y_pred), which "
            "needs no state.",
        ) from error


def _flatten_logs(logs: Mapping[str, Any]) -> dict[str, Any]:
    """The logs with those of inner dicts, as of ``compile_metrics``, by their names."""
    flat: dict[str, Any] = {}
    for name, value in logs.items():
        flat |= _flatten_logs(value) if isinstance(value, Mapping) else {name: value}
    return flat
