"""Any optax transformation as an optimizer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Unpack

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
import optax

from exburn.core import registry
from exburn.core.checks import check_number
from exburn.errors import ArgumentError, DTypeError, NotBuiltError
from exburn.optimizers.contract.live import LiveState
from exburn.optimizers.contract.optimizer import Optimizer
from exburn.optimizers.contract.options import Options
from exburn.optimizers.contract.rate import host_value, replace_leaf


class OptaxOptimizer(Optimizer):
    """An optax transformation, or a factory that makes one from a learning rate.

    A factory, such as ``optax.lion`` or ``functools.partial(optax.adamw, b2=0.95)``,
    gets every feature: schedules, warmup, a learning rate that callbacks change. A
    finished transformation has its learning rate inside; it can be changed if the
    transformation was made by ``optax.inject_hyperparams``, and then every injected
    hyperparameter can. Parameters keep their dtype: optax' own rules hold.

    Args:
        transformation: ``optax.GradientTransformation``, or a function of the rate.
        learning_rate: For a factory only.

    Raises:
        DTypeError: ``transformation`` is neither.
        ArgumentError: A learning rate is given to, read from or set on a transformation
            that has none to change.

    Example:
        >>> import jax.numpy as jnp
        >>> rule = optax.inject_hyperparams(optax.sgd)(learning_rate=0.5)
        >>> optimizer = OptaxOptimizer(rule)
        >>> params = {"w": jnp.array([1.0])}
        >>> state = optimizer.init(params)
        >>> state = optimizer.with_hyperparameters(state, learning_rate=0.25)
        >>> params, state = optimizer.update({"w": jnp.ones(1)}, state, params)
        >>> float(params["w"][0])
        0.75
        >>> OptaxOptimizer(optax.adagrad, learning_rate=0.1).learning_rate
        0.1
    """

    widens = False

    def __init__(
        self,
        transformation: optax.GradientTransformation | Callable[[Any], Any],
        learning_rate: Any = None,
        **options: Unpack[Options],
    ):
        finished = isinstance(transformation, optax.GradientTransformation)
        if not finished and not callable(transformation):
            raise DTypeError(
                "OptaxOptimizer",
                "transformation must be an optax.GradientTransformation or a function "
                f"of the learning rate, received {type(transformation).__name__}",
            )
        if finished and learning_rate is not None:
            raise ArgumentError(
                "OptaxOptimizer",
                "a finished transformation already contains its learning rate",
                hint="Pass the factory: OptaxOptimizer(optax.adam, learning_rate=0.1).",
            )
        super().__init__(0.0 if finished else learning_rate, **options)
        self._source: Any = transformation
        self._finished = finished
        self._wanted: float | None = None  # a rate that was set before init

    def transformation(self, learning_rate, count) -> optax.GradientTransformation:
        if self._finished:
            return self._source
        transformation = self._source(learning_rate)
        if not isinstance(transformation, optax.GradientTransformation):
            raise DTypeError(
                "OptaxOptimizer",
                "the factory must return an optax.GradientTransformation, received "
                f"{type(transformation).__name__}",
            )
        return transformation

    def init(self, params: Any) -> dict[str, Any]:
        state = super().init(params)
        if self._finished:
            rate = _hyperparams_of(state["inner"]).get(
                "learning_rate", jnp.float32(jnp.nan)
            )
            rate = rate if self._wanted is None else self._wanted
            if not isinstance(rate, jax.core.Tracer | jax.ShapeDtypeStruct):
                rate = jax.device_put(np.array(rate, np.float32))
            state["rate"]["learning_rate"] = rate
        return state

    def apply_rule(self, grads, inner, params, learning_rate, count):
        if self._finished and "learning_rate" in _settable(inner):
            inner = _replace_injected(inner, {"learning_rate": learning_rate})
        return super().apply_rule(grads, inner, params, learning_rate, count)

    def is_setting(self, path: tuple) -> bool:
        return any(getattr(key, "name", None) == "hyperparams" for key in path)

    @property
    def learning_rate(self) -> Any:
        """The learning rate, if it can be known.

        Raises:
            ArgumentError: The transformation hides its learning rate.
        """
        if not self._finished:
            return super().learning_rate
        if self._wanted is not None and self._live.state is None:
            return self._with_assign(self._wanted)
        state = self._live.state or self._probe()
        self._need_injected(state["inner"])
        if "learning_rate" not in _settable(state["inner"]):
            return host_value(_hyperparams_of(state["inner"])["learning_rate"])
        return self._with_assign(host_value(state["rate"]["learning_rate"]))

    @learning_rate.setter
    def learning_rate(self, value: Any) -> None:
        if not self._finished:
            Optimizer.learning_rate.__set__(self, value)
            return
        value = check_number("OptaxOptimizer", "learning_rate", value)
        self._need_injected((self._live.state or self._probe())["inner"], to_set=True)
        self._change(learning_rate=value)
        self._wanted = value

    def _probe(self) -> dict[str, Any]:
        try:
            return self.init({"probe": np.zeros((1, 1), np.float32)})
        except Exception as error:
            raise NotBuiltError(
                "OptaxOptimizer",
                "the learning rate is known after init(params), received no state yet",
            ) from error

    def _need_injected(self, inner: Any, *, to_set: bool = False) -> None:
        if "learning_rate" in (_settable(inner) if to_set else _hyperparams_of(inner)):
            return
        injected = "learning_rate" in _hyperparams_of(inner)
        raise ArgumentError(
            "OptaxOptimizer",
            "a schedule inside of the transformation sets the learning rate"
            if injected
            else "the optax transformation hides its learning rate",
            hint="Pass the factory, OptaxOptimizer(optax.adam, learning_rate=0.1), or "
            "inject a number, optax.inject_hyperparams(optax.adam)(learning_rate=0.1).",
        )

    def hyperparameters(self, opt_state: Mapping[str, Any]) -> dict[str, Any]:
        values = super().hyperparameters(opt_state)
        injected = _hyperparams_of(opt_state["inner"])
        if self._finished:
            if "learning_rate" not in _settable(opt_state["inner"]):
                values = {}
            others = set(injected) - set(values)
            values |= {name: host_value(injected[name]) for name in sorted(others)}
        return values

    def with_hyperparameters(
        self, opt_state: Mapping[str, Any], **values: Any
    ) -> dict[str, Any]:
        if not self._finished:
            return super().with_hyperparameters(opt_state, **values)
        op, inner = "OptaxOptimizer.with_hyperparameters", opt_state["inner"]
        settable = _settable(inner)
        own = {n: v for n, v in values.items() if n in settable - {"learning_rate"}}
        rest = {n: v for n, v in values.items() if n not in own}
        if rest:
            self._need_injected(inner, to_set=True)
        leaves = {
            n: replace_leaf(op, n, _hyperparams_of(inner)[n], v) for n, v in own.items()
        }
        state = super().with_hyperparameters(opt_state, **rest)
        return {**state, "inner": _replace_injected(inner, leaves)}

    def __getstate__(self) -> dict[str, Any]:
        live = self._live.state
        if not self._finished or live is None:
            return super().__getstate__()
        state = vars(self) | {"_live": LiveState(), "_scale": self.scale}
        if "learning_rate" in _settable(live["inner"]):  # others hide their rate
            state["_wanted"] = float(self.learning_rate)
        return state

    def get_config(self) -> dict[str, Any]:
        if self._finished:
            raise ArgumentError(
                "OptaxOptimizer.get_config",
                "a finished optax transformation cannot be written to a configuration",
                hint="Register a factory, exburn.register(my_factory), and pass it.",
            )
        names = [n for n in inspect.signature(type(self)).parameters]
        config = {n: getattr(self, n) for n in names if n != "transformation"}
        config["learning_rate"] = self.schedule or self.learning_rate
        config["transformation"] = self._source
        return {name: registry.serialize(value) for name, value in config.items()}


def _is_injected(node: Any) -> bool:
    return hasattr(node, "hyperparams") and hasattr(node, "inner_state")


def _nodes(inner: Any) -> list[Any]:
    nodes = jax.tree.leaves(inner, is_leaf=_is_injected)
    return [node for node in nodes if _is_injected(node)]


def _hyperparams_of(inner: Any) -> dict[str, Any]:
    """Every hyperparameter that ``optax.inject_hyperparams`` put into the state."""
    return {k: v for node in _nodes(inner) for k, v in node.hyperparams.items()}


def _settable(inner: Any) -> set[str]:
    """Injected hyperparameters that no schedule in the transformation overwrites."""
    scheduled = {
        name
        for node in _nodes(inner)
        for name in getattr(node, "hyperparams_states", ())
    }
    return set(_hyperparams_of(inner)) - scheduled


def _replace_injected(inner: Any, values: Mapping[str, Any]) -> Any:
    def one(node):
        if not _is_injected(node):
            return node
        new = dict(node.hyperparams)
        for name in set(values) & set(new):
            dtype = jnp.result_type(new[name])
            value = values[name]
            new[name] = value if isinstance(value, np.ndarray) else value.astype(dtype)
        return node._replace(hyperparams=new)

    return jax.tree.map(one, inner, is_leaf=_is_injected)
