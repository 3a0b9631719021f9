"""Different optimizers for different parameters of one model."""

from __future__ import annotations

import re
from collections.abc import (
    Callable,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from exburn.core import registry
from exburn.errors import ArgumentError, DTypeError, unknown_name
from exburn.errors.boundary import guard_methods
from exburn.optimizers.contract.live import LiveState
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.rate import initial_rate
from exburn.optimizers.contract.trees import map_with_path, path_of, same_shapes
from exburn.optimizers.loss_scale import LossScaleOptimizer


class _Parameter(NamedTuple):
    """A parameter as a function that chooses an optimizer gets to see it."""

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: Any


@guard_methods
class OptimizerMap(MutableMapping):
    """Optimizers by path pattern, with a default for the rest.

    A pattern is a path, or a regular expression that matches a whole path; the path
    itself goes first: ``"encoder/.*"`` is everything inside of ``encoder``.

    Args:
        default_optimizer: For parameters without a pattern.
        optimizer_map: ``{pattern: optimizer}``.

    Raises:
        DTypeError: A value is not an optimizer.
        ArgumentError: Two patterns match one path, or a pattern is set twice.
        UnknownNameError: From ``fit``, if a pattern matches no weight of the model.

    Example:
        >>> from exburn.optimizers import SGD, Adam
        >>> optimizers = OptimizerMap(Adam(), {"head/.*": SGD(0.5)})
        >>> optimizers["head/kernel"]
        SGD(learning_rate=0.5)
        >>> optimizers["body/kernel"]
        Adam(learning_rate=0.001)
    """

    def __init__(
        self,
        default_optimizer: Optimizer,
        optimizer_map: Mapping[str, Optimizer] | None = None,
    ):
        self.default_optimizer = _check_part(default_optimizer, "default_optimizer")
        self._map: dict[str, Optimizer] = {}
        for pattern, optimizer in (optimizer_map or {}).items():
            self[pattern] = optimizer

    def __getitem__(self, key: str) -> Optimizer:
        if key in self._map:
            return self._map[key]
        patterns = [pattern for pattern in self._map if re.fullmatch(pattern, key)]
        if len(patterns) > 1:
            raise ArgumentError(
                "OptimizerMap",
                f"more than one pattern matches {key!r}",
                {"patterns": ", ".join(patterns)},
            )
        return self._map[patterns[0]] if patterns else self.default_optimizer

    def __setitem__(self, key: str, value: Optimizer) -> None:
        if key in self._map:
            raise ArgumentError("OptimizerMap", f"{key!r} is in the map already")
        try:
            re.compile(key)
        except (TypeError, re.error) as error:
            raise ArgumentError(
                "OptimizerMap", f"{key!r} is not a regular expression: {error}"
            ) from None
        self._map[key] = _check_part(value, repr(key))

    def __delitem__(self, key: str) -> None:
        del self._map[key]

    def __len__(self) -> int:
        return len(self._map)

    def __iter__(self) -> Iterator[str]:
        return iter(self._map)

    def __contains__(self, key: object) -> bool:
        return key in self._map

    def __call__(self, variable: Any) -> Optimizer:
        return self[variable.path]

    def check_paths(self, paths: Sequence[str]) -> None:
        """Raises for a pattern that no weight of a model matches.

        Raises:
            UnknownNameError: There is one; its weights would get the default.
        """
        for pattern in self._map:
            if not any(p == pattern or re.fullmatch(pattern, p) for p in paths):
                raise unknown_name("weight", pattern, paths, op="OptimizerMap")

    def get_config(self) -> dict[str, Any]:
        """Constructor arguments as JSON-able values."""
        return {
            "default_optimizer": registry.serialize(self.default_optimizer),
            "optimizer_map": registry.serialize(self._map),
        }

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> OptimizerMap:
        """The map that ``get_config`` described."""
        return cls(**{k: registry.deserialize(v) for k, v in config.items()})


registry.register_builtin(OptimizerMap)


class MultiOptimizer(Optimizer):
    """Gives every parameter to the optimizer that a map or function names.

    Each optimizer keeps its own options, schedule and learning rate; set those on the
    optimizers, before or during training. ``scale`` scales the rates of all of them.

    Args:
        optimizer_map: An :class:`OptimizerMap`, or a function from a parameter (with
            ``path``, ``name``, ``shape`` and ``dtype``) to an optimizer.
        loss_scale_factor: Replaces that of the optimizers.

    Raises:
        DTypeError: The map or what it gives is of another type.
        ArgumentError: The learning rate is read or set, which is not one number.

    Example:
        >>> from exburn.optimizers import SGD
        >>> slow, fast = SGD(0.5, momentum=0.0), SGD(1.0, momentum=0.0)
        >>> optimizer = MultiOptimizer(OptimizerMap(slow, {"head/.*": fast}))
        >>> params = {"body": {"w": jnp.ones(1)}, "head": {"w": jnp.ones(1)}}
        >>> params, _ = optimizer.update(params, optimizer.init(params), params)
        >>> float(params["body"]["w"][0]), float(params["head"]["w"][0])
        (0.5, 0.0)
    """

    def __init__(
        self,
        optimizer_map: OptimizerMap | Callable[[Any], Optimizer],
        loss_scale_factor: float | None = None,
        name: str | None = None,
    ):
        if not callable(optimizer_map):
            raise DTypeError(
                "MultiOptimizer",
                "optimizer_map must be an OptimizerMap or a function, received "
                f"{type(optimizer_map).__name__}",
                hint="OptimizerMap(default_optimizer, {pattern: optimizer}).",
            )
        self._map = optimizer_map
        self._optimizers: list[Optimizer] = []
        self._index: dict[str, int] = {}  # by path, so that a function is asked once
        super().__init__(0.0, loss_scale_factor=loss_scale_factor, name=name)
        if isinstance(optimizer_map, OptimizerMap):
            for optimizer in optimizer_map._map.values():
                self._add(optimizer)
            self._add(optimizer_map.default_optimizer)

    @property
    def optimizer_map(self) -> Any:
        """The map or function."""
        return self._map

    @property
    def loss_scale_factor(self) -> float | None:
        """Factor on the loss; it is the optimizers' factor, too."""
        return self._loss_scale_factor

    @loss_scale_factor.setter
    def loss_scale_factor(self, value: float | None) -> None:
        self._loss_scale_factor = value
        for optimizer in self._optimizers:
            optimizer.loss_scale_factor = value

    @property
    def optimizers(self) -> list[Optimizer]:
        """The optimizers, in the order of ``opt_state["inner"]``."""
        return list(self._optimizers)

    def _add(self, optimizer: Optimizer) -> int:
        places = [i for i, other in enumerate(self._optimizers) if other is optimizer]
        if places:
            return places[0]
        optimizer.loss_scale_factor = self.loss_scale_factor
        optimizer._by_tokens = self._by_tokens
        if self._scale != 1.0:
            optimizer.scale = self._scale
        self._optimizers.append(optimizer)
        index = len(self._optimizers) - 1
        if self._live.is_bound:
            self._bind_one(index)
        return index

    def check_paths(self, paths: Sequence[str]) -> None:
        if isinstance(self._map, OptimizerMap):
            self._map.check_paths(paths)

    def _index_of(self, path: str, leaf: Any) -> int:
        if path not in self._index:
            name = path.rpartition("/")[2]
            parameter = _Parameter(path, name, jnp.shape(leaf), jnp.result_type(leaf))
            self._index[path] = self._add(_check_part(self._map(parameter), repr(path)))
        return self._index[path]

    def _split(self, tree: Any) -> list[dict[str, Any]]:
        """The leaves of a tree by path, for each of the optimizers."""
        pairs = jax.tree_util.tree_leaves_with_path(tree)
        leaves = {path_of(path): leaf for path, leaf in pairs}
        indices = {path: self._index_of(path, leaf) for path, leaf in leaves.items()}
        return [
            {path: leaf for path, leaf in leaves.items() if indices[path] == i}
            for i in range(len(self._optimizers))
        ]

    def _map_parts(self, function: Callable, params: Any, *trees: Any) -> Any:
        """A tree like ``params`` of what ``function(i, optimizer, part, …)`` gives."""
        new: dict[str, Any] = {}
        columns = zip(*map(self._split, (params, *trees)), strict=True)
        for i, parts in enumerate(columns):
            new |= function(i, self._optimizers[i], *parts)
        return map_with_path(lambda path, _: new[path], params)

    def transformation(self, learning_rate, count):
        raise ArgumentError(
            "MultiOptimizer", "there is one transformation per optimizer"
        )

    def init(self, params: Any) -> dict[str, Any]:
        inner = {
            str(i): self._optimizers[i].init(part)
            for i, part in enumerate(self._split(params))
        }
        return {"rate": jax.device_put(initial_rate(0.0)), "inner": inner}

    @property
    def weighs_batches(self) -> bool:
        return any(optimizer.weighs_batches for optimizer in self._optimizers)

    def update(
        self,
        grads: Any,
        opt_state: Mapping[str, Any],
        params: Any,
        *,
        weight: Any = None,
    ) -> tuple[Any, dict[str, Any]]:
        same_shapes("MultiOptimizer.update", grads, params)
        inner = dict(opt_state["inner"])

        def one(i, optimizer, part, part_grads):
            options = {"weight": weight} if optimizer.weighs_batches else {}
            new, inner[str(i)] = optimizer.update(
                part_grads, inner[str(i)], part, **options
            )
            return new

        new_params = self._map_parts(one, params, grads)
        rate = {**opt_state["rate"], "count": opt_state["rate"]["count"] + 1}
        return new_params, {**opt_state, "rate": rate, "inner": inner}

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_live": LiveState()}  # the optimizers keep their rates

    def bind(self, get_state, set_state) -> None:
        if get_state is None:  # the optimizers still read what they keep of the run
            for optimizer in self._optimizers:
                optimizer.bind(None, None)
        self._live = LiveState(get_state, set_state)
        if get_state is not None:
            for index in range(len(self._optimizers)):
                self._bind_one(index)

    def _bind_one(self, index: int) -> None:
        key, optimizer = str(index), self._optimizers[index]

        def get():
            state = self._live.state
            return None if state is None else state["inner"].get(key)

        def put(new):
            state = self._live.state
            self._live.state = {**state, "inner": {**state["inner"], key: new}}

        optimizer.bind(get, put)

    @property
    def learning_rate(self) -> Any:
        """Each optimizer has its own.

        Raises:
            ArgumentError: Always.
        """
        raise self._many_rates()

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        raise self._many_rates()

    def rate(self, opt_state: Mapping[str, Any]) -> Any:
        raise self._many_rates()

    def _many_rates(self) -> ArgumentError:
        return ArgumentError(
            "MultiOptimizer",
            "there is not one learning rate, but one for each optimizer",
            {str(i): optimizer for i, optimizer in enumerate(self._optimizers)},
            hint="Use optimizer.optimizers[i].learning_rate, or scale all of them by "
            "optimizer.scale.",
        )

    def _set_iterations(self, value: Any) -> None:
        super()._set_iterations(value)
        for optimizer in self._optimizers:
            optimizer._set_iterations(value)

    @property
    def revision(self) -> int:
        return self._revision + sum(o.revision for o in self._optimizers)

    def settings(self) -> dict[str, Any]:
        return {
            f"optimizers[{i}].{name}": value
            for i, optimizer in enumerate(self._optimizers)
            for name, value in optimizer.settings().items()
        }

    def refit(
        self, opt_state: Mapping[str, Any], fresh: Mapping[str, Any], params: Any
    ) -> dict[str, Any]:
        inner, parts = dict(fresh["inner"]), self._split(params)
        for i, optimizer in enumerate(self._optimizers):
            if (key := str(i)) in opt_state["inner"]:
                old = opt_state["inner"][key]
                inner[key] = optimizer.refit(old, inner[key], parts[i])
        return {**fresh, "rate": opt_state["rate"], "inner": inner}

    def as_initial(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        inner = {
            key: self._optimizers[int(key)].as_initial(state)
            for key, state in opt_state["inner"].items()
        }
        return {**opt_state, "inner": inner}

    def as_stored(
        self, opt_state: dict[str, Any], params: Any, paths: Iterable[str]
    ) -> dict[str, Any]:
        inner, parts, paths = dict(opt_state["inner"]), self._split(params), list(paths)
        for i, optimizer in enumerate(self._optimizers):
            start = f"inner/{i}/"
            own = [p.removeprefix(start) for p in paths if p.startswith(start)]
            inner[str(i)] = optimizer.as_stored(inner[str(i)], parts[i], own)
        return {**opt_state, "inner": inner}

    def restart_schedule(
        self, opt_state: Mapping[str, Any], batches: int = 0
    ) -> dict[str, Any]:
        inner = {
            key: self._optimizers[int(key)].restart_schedule(state, batches)
            for key, state in opt_state["inner"].items()
        }
        return {**opt_state, "inner": inner}

    def restart_warm_up(
        self, opt_state: Mapping[str, Any], batches: int = 0
    ) -> dict[str, Any]:
        inner = {
            key: self._optimizers[int(key)].restart_warm_up(state, batches)
            for key, state in opt_state["inner"].items()
        }
        return {**opt_state, "inner": inner}

    def end_warm_up(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        inner = {
            key: self._optimizers[int(key)].end_warm_up(state)
            for key, state in opt_state["inner"].items()
        }
        return {**opt_state, "inner": inner}

    def schedule_start(self, opt_state: Mapping[str, Any]) -> Any:
        return {
            key: self._optimizers[int(key)].schedule_start(state)
            for key, state in opt_state["inner"].items()
        }

    def with_schedule_start(
        self, opt_state: Mapping[str, Any], start: Any
    ) -> dict[str, Any]:
        starts = start or {}
        inner = {
            key: self._optimizers[int(key)].with_schedule_start(state, starts.get(key))
            for key, state in opt_state["inner"].items()
        }
        return {**opt_state, "inner": inner}

    def set_epochs(self, steps_per_epoch: int | None, epochs: int | None) -> None:
        for optimizer in self._optimizers:
            optimizer.set_epochs(steps_per_epoch, epochs)

    def hyperparameters(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        """Hyperparameters of every optimizer, as ``"0/learning_rate"`` and so on."""
        return {
            f"{i}/{name}": value
            for i, optimizer in enumerate(self._optimizers)
            for name, value in optimizer.hyperparameters(
                opt_state["inner"][str(i)]
            ).items()
        }

    def with_hyperparameters(
        self, opt_state: Mapping[str, Any], **values: Any
    ) -> dict[str, Any]:
        """A copy of the state; ``scale`` is for all, ``"0/scale"`` for one."""
        inner = dict(opt_state["inner"])
        for name, value in values.items():
            index, _, own = name.rpartition("/")
            if name != "scale" and index not in inner:
                names = ["scale", *self.hyperparameters(opt_state)]
                op = "MultiOptimizer.with_hyperparameters"
                raise unknown_name("hyperparameter", name, names, op=op)
            for key in [index] if index else inner:
                optimizer = self._optimizers[int(key)]
                inner[key] = optimizer.with_hyperparameters(inner[key], **{own: value})
        return {**opt_state, "inner": inner}

    @property
    def scale(self) -> Any:
        """Factor on every optimizer's learning rate."""
        return self._scale

    @scale.setter
    def scale(self, value: float) -> None:
        for optimizer in self._optimizers:
            optimizer.scale = value
        self._scale = value

    @property
    def keeps_average(self) -> bool:
        return any(optimizer.keeps_average for optimizer in self._optimizers)

    def ema_params(self, opt_state: Mapping[str, Any]) -> Any:
        raise ArgumentError(
            "MultiOptimizer",
            "each optimizer has its own average",
            hint="Use final_params(opt_state, params), which joins them.",
        )

    def final_params(self, opt_state: Mapping[str, Any], params: Any) -> Any:
        return self._map_parts(
            lambda i, optimizer, part: optimizer.final_params(
                opt_state["inner"][str(i)], part
            ),
            params,
        )

    def exclude_from_weight_decay(self, var_list=None, var_names=None) -> None:
        for optimizer in self._optimizers:
            optimizer.exclude_from_weight_decay(var_list, var_names)

    def get_config(self) -> dict[str, Any]:
        if isinstance(self._map, OptimizerMap):
            chosen = {"class_name": "OptimizerMap", "config": self._map.get_config()}
        else:
            chosen = registry.serialize(self._map)
        return {
            "optimizer_map": chosen,
            "loss_scale_factor": self.loss_scale_factor,
            "name": self.name,
        }

    def __repr__(self) -> str:
        return f"MultiOptimizer({', '.join(map(repr, self._optimizers))})"


def _check_part(optimizer: Any, where: str) -> Optimizer:
    if getattr(optimizer, "evaluates_loss", False):
        raise ArgumentError(
            "OptimizerMap",
            f"{where} must be an optimizer for some parameters; {optimizer!r} "
            "evaluates the loss again, with all of them",
            hint="Give it to compile() alone.",
        )
    refused = isinstance(optimizer, LossScaleOptimizer | MultiOptimizer)
    if refused or not isinstance(optimizer, Optimizer):
        raise DTypeError(
            "OptimizerMap",
            f"{where} must be an optimizer for some parameters, received {optimizer!r}",
            hint="Put a LossScaleOptimizer around the MultiOptimizer."
            if refused
            else None,
        )
    return optimizer
