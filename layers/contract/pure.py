"""What layers of pure functions share: weights in any pytree."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Unpack

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core.precision import is_float, standardize_dtype
from exburn.core.symbolic_shapes import is_shape
from exburn.errors import ArgumentError
from exburn.initializers import ArrayInitializer
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.seed_generator import SeedOfLayer
from exburn.module.variable import Static, assign


class PureLayer(Layer):
    """A layer whose parameters and state are pytrees, handed to a pure function.

    A subclass says what the function takes (``_takes``), calls it (``_outputs``), and
    makes the first parameters and state (``_first``).

    Args:
        takes: What the function takes of ``params``, ``state``, ``rng``, ``inputs`` and
            ``training``.
        params: The first parameters, if they are given.
        state: The first state, if it is given.
        seed: Seed of what is made and drawn.
        **kwargs: As for every layer.
    """

    params_leaves: Any
    state_leaves: Any
    _params_form: Static
    _state_form: Static

    seed_generator = SeedOfLayer(lambda layer: "rng" in layer._takes)

    def __init__(
        self,
        takes: tuple[str, ...],
        params: Any,
        state: Any,
        seed: Any,
        **kwargs: Unpack[LayerOptions],
    ):
        super().__init__(**kwargs)
        self.seed, self._takes = seed, takes
        self._given = Static((params, state))

    def _first(self, rng: jax.Array, inputs: Any) -> tuple[Any, Any]:
        """Parameters and state for inputs of these shapes."""
        raise NotImplementedError

    def _outputs(self, values: dict[str, Any]) -> Any:
        """The outputs; with ``state`` among the values, outputs and the new state."""
        raise NotImplementedError

    def build(self, input_shape):
        params, state = self._given.value
        drawn = None
        if params is None and state is None:
            drawn = _Drawn(self._first, self.seed_generator.next(), input_shape)
            params, state = drawn.specs
        self._hold("params", params, drawn)
        self._hold("state", state, drawn)

    def _hold(self, kind: str, tree: Any, drawn: _Drawn | None) -> None:
        """Makes a weight of each leaf, and keeps the form of the tree."""
        leaves, form = jax.tree.flatten_with_path(tree)
        weights: dict[str, Any] = {}
        for number, (path, leaf) in enumerate(leaves):
            if drawn is None:
                leaf, start = jnp.asarray(leaf), ArrayInitializer(leaf)
            else:
                start = drawn.initializer(kind, number)
            dtype = standardize_dtype(leaf.dtype)
            name = jax.tree_util.keystr(path, simple=True, separator="_") or kind
            name = name if name not in weights else f"{name}_{number}"
            weights[name] = self.add_weight(
                leaf.shape,
                start,
                # float32 follows the layer's policy
                None if kind == "params" and dtype == "float32" else dtype,
                trainable=kind == "params" and is_float(dtype),
            )
        setattr(self, f"{kind}_leaves", nnx.Dict(weights))
        setattr(self, f"_{kind}_form", Static((form, tuple(weights))))

    def _tree(self, kind: str, value_of: Callable) -> Any:
        form, names = getattr(self, f"_{kind}_form").value
        weights = getattr(self, f"{kind}_leaves")
        return jax.tree.unflatten(form, [value_of(weights[name]) for name in names])

    @property
    def params(self) -> Any:
        """The parameters as arrays, in their structure."""
        return self._values("params")

    @property
    def state(self) -> Any:
        """The state as arrays, in its structure."""
        return self._values("state")

    def _values(self, kind: str) -> Any:
        if not self.built:
            return self._given.value[kind == "state"]
        self._require_weights()
        return self._tree(kind, _value)

    def call(self, inputs, training=False):
        values = {"inputs": inputs, "training": training}
        if "params" in self._takes:
            values["params"] = self._tree("params", self._in_compute_dtype)
        if "state" in self._takes:
            values["state"] = self._tree("state", _value)
        if "rng" in self._takes:
            values["rng"] = jax.random.key_data(self.random_key())
        outputs = self._outputs(values)
        if "state" in self._takes:
            outputs, state = outputs
            self._follow(state, training)
        return outputs

    def _in_compute_dtype(self, weight):
        value = _value(weight)
        return self.cast(value) if is_float(value.dtype) else value

    def _follow(self, state: Any, training: bool) -> None:
        """Keeps a new state while training."""
        form, names = self._state_form.value
        new, new_form = jax.tree.flatten(state)
        weights = [self.state_leaves[name] for name in names]
        if new_form != form or any(
            jnp.shape(value) != weight.shape
            for value, weight in zip(new, weights, strict=True)
        ):
            raise ArgumentError(
                self.name,
                "the state that is returned must have the form of the one given",
                {"given": form, "returned": new_form},
            )
        if training:
            for weight, value in zip(weights, new, strict=True):
                assign(weight, jnp.asarray(value))


class _Drawn:
    """What is made for inputs of a shape: forms at once, values when asked for."""

    def __init__(self, first: Callable, key: jax.Array, input_shape: Any):
        self.first, self.key = first, key
        self.inputs = jax.tree.map(_spec_of, input_shape, is_leaf=is_shape)
        self.specs = jax.eval_shape(first, key, self.inputs)
        self.values: dict[tuple[str, int], jax.Array] = {}

    def initializer(self, kind: str, number: int) -> Callable:
        def initialize(shape, dtype=None):
            if (kind, number) not in self.values:
                self._make()
            # A weight has its own array then: none is kept twice.
            return self.values.pop((kind, number)).astype(dtype)

        return initialize

    def _make(self) -> None:
        with jax.ensure_compile_time_eval():
            ones = jax.tree.map(lambda s: jnp.ones(s.shape, s.dtype), self.inputs)
            trees = zip(("params", "state"), self.first(self.key, ones), strict=True)
        for kind, tree in trees:
            for number, leaf in enumerate(jax.tree.leaves(tree)):
                self.values[kind, number] = leaf


def _spec_of(shape: tuple) -> jax.ShapeDtypeStruct:
    sizes = (size if isinstance(size, int) else 1 for size in shape)
    return jax.ShapeDtypeStruct(tuple(sizes), jnp.float32)


def _value(weight):
    return weight.get_value()
