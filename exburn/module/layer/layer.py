"""The class that users subclass: calls on symbols, configurations and copies."""

from __future__ import annotations

import inspect
from typing import Any

import jax

from exburn import activations, constraints, initializers, regularizers
from exburn.core import late_binding, registry
from exburn.core.batch_independence import is_foreign, our_class
from exburn.core.symbolic_shapes import is_shape, public_shape
from exburn.errors import ArgumentError, NotBuiltError, UncalledLayerError
from exburn.module.building import clone
from exburn.module.copying import set_owner
from exburn.module.layer.calling import Calling
from exburn.module.layer.seeds import iter_variables
from exburn.module.layer.signature import init_names
from exburn.module.layer.stateless import stateless_call
from exburn.module.symbolic_tensor import Operation, Symbol
from exburn.module.traversal import children, in_tracked_order

__all__ = ["Layer"]

# Arguments with short forms, whose attributes hold what Keras' configurations hold.
_SETTLED = frozenset(
    "kernel_size pool_size output_size strides dilation_rate padding cropping size"
    " data_format value_dim target_shape dims".split()
)
# What the names of objects stand for, by the last word of the argument.
_CATALOGUES = {
    "activation": lambda value: activations.serialize(activations.get(value)),
    "initializer": lambda value: registry.serialize(initializers.get(value)),
    "regularizer": lambda value: registry.serialize(regularizers.get(value)),
    "constraint": lambda value: registry.serialize(constraints.get(value)),
}


def _settings(layer: Layer) -> dict[str, Any]:
    """What every layer takes and may have been set since."""
    dtype = layer.dtype_policy.identifier
    if layer._given_policy is not None:
        dtype = layer._given_policy.identifier
    return {"name": layer.name, "trainable": layer.trainable, "dtype": dtype}


def _arguments(layer: Layer, cls: type, args: tuple, kwargs: dict) -> dict[str, Any]:
    """What the constructor of a class was given, and the settings set since."""
    signature = inspect.signature(cls.__init__)
    try:
        bound = signature.bind(layer, *args, **kwargs)
    except TypeError:  # a subclass whose own __init__ takes other arguments
        return {"name": layer.name}
    bound.apply_defaults()
    config: dict[str, Any] = {}
    for key, value in list(bound.arguments.items())[1:]:
        kind = signature.parameters[key].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            config.update(value)
        elif kind is inspect.Parameter.VAR_POSITIONAL:
            config[key] = list(value)
        else:
            config[key] = value
    changed = config.keys() & layer._meta.value.changed
    config |= {key: getattr(layer, key) for key in changed}
    settings = _settings(layer)
    return config | {k: settings[k] for k in settings.keys() & init_names(cls)}


def _definer(cls: type, method: str) -> type:
    return next(base for base in cls.__mro__ if method in vars(base))


def _is_described_by_its_own(cls: type) -> bool:
    """Whether its own arguments describe a user's class.

    Else there are none, or a ``get_config`` of the user's goes with its constructor.
    """
    described, made = _definer(cls, "get_config"), _definer(cls, "__init__")
    own = is_foreign(described) and issubclass(described, made)
    return is_foreign(made) and not own


class Layer(Calling):
    """A piece of a model with weights: subclass it and write ``build`` and ``call``.

    Args:
        activity_regularizer: Regularizer of the output, added to the loss.
        trainable: Whether training changes the weights.
        dtype: Precision policy (name, dtype or ``Precision``), also for layers inside
            that are given none; that of the model or the global one if None.
        autocast: Whether floating inputs are cast to the policy's compute dtype.
        name: Unique within its model; by default the class name in snake case.

    Raises:
        ShapeError: The input does not fit what the layer was built for.
        NotBuiltError: Weights are asked for before any shape is known.

    Example:
        >>> import numpy as np
        >>> class Scale(Layer):
        ...     def build(self, input_shape):
        ...         self.s = self.add_weight((input_shape[-1],), "ones")
        ...     def call(self, x):
        ...         return x * self.s
        >>> Scale()(np.ones((2, 3))).shape
        (2, 3)
    """

    @property
    def path(self) -> str:
        """The path in the outermost model that holds the layer, or its name.

        It is what ``summary()`` and ``freeze`` go by.
        """
        return self._meta.value.path or self.name

    def _direct_layers(self) -> list[Layer]:
        found = in_tracked_order(self, children(self))
        layers = {id(part): part for _, part in found if isinstance(part, Layer)}
        return list(layers.values())  # each once, whatever else it is held by

    @property
    def input(self):
        """The symbols the layer was called on; one call only."""
        args = self._the_call("input").args
        return args[0] if len(args) == 1 else list(args)

    @property
    def output(self):
        """The symbols the layer's call returned; one call only."""
        return self._the_call("output").outputs

    def _the_call(self, what: str):
        calls = self._meta.value.calls
        if not calls:
            raise UncalledLayerError(
                self.name,
                f"{what}: the layer was not called in a functional model",
                hint="Call it on a symbol: layer(exburn.Input(shape)).",
            )
        return calls[0]

    @property
    def input_shape(self):
        return jax.tree.map(lambda s: s.shape, self.input)

    @property
    def output_shape(self):
        return jax.tree.map(lambda s: s.shape, self.output)

    #: For Keras code: every layer runs in compiled programs.
    supports_jit = True

    @property
    def input_dtype(self) -> str:
        """The dtype that floating inputs are cast to."""
        return self.compute_dtype

    @property
    def call_signature_parameters(self) -> list[str]:
        """Names of the parameters of ``call``."""
        return list(inspect.signature(self.call).parameters)

    def symbolic_call(self, *args, **kwargs):
        """The call on symbols, which ``__call__`` leads to if an argument is one."""
        return self._call_symbols(args, kwargs)

    def compute_output_spec(self, *args, **kwargs):
        """The outputs as ``KerasTensor``, which have shapes and dtypes, not values.

        Inputs may be ``KerasTensor`` or ``jax.ShapeDtypeStruct``.

        Example:
            >>> import exburn
            >>> layer = exburn.layers.Dense(2)
            >>> layer.compute_output_spec(exburn.KerasTensor((None, 3))).shape
            (None, 2)
        """

        def symbol(v):
            if not isinstance(v, jax.ShapeDtypeStruct):
                return v
            return Symbol(public_shape(v.shape), v.dtype)

        return self._call_symbols(*jax.tree.map(symbol, (args, kwargs)))

    def compute_output_shape(self, *shapes, **named):
        """Output shape for input shapes (tuples with ``None``).

        By name they are Keras': ``input_shape``, or that of an argument of ``call``, as
        ``query_shape``.

        Raises:
            ArgumentError: Another name is given.

        Example:
            >>> from exburn.layers import Dense
            >>> Dense(2).compute_output_shape(input_shape=(None, 3))
            (None, 2)
        """
        order = type(self)._call_info.order or ["input"]
        first = order[0]
        names = dict.fromkeys(("input_shape", "sequences_shape"), first)
        names |= {f"{name}_shape": name for name in order}
        if unknown := named.keys() - names:
            raise ArgumentError(
                f"{self.name}.compute_output_shape",
                f"unknown argument {min(unknown)!r}",
                {"known": ", ".join(names)},
            )
        given = {names[key]: shape for key, shape in named.items()}
        if not shapes and first in given:
            shapes = (given.pop(first),)
        args, kwargs = jax.tree.map(
            lambda s: Symbol(s, self.compute_dtype), (shapes, given), is_leaf=is_shape
        )
        out = self.compute_output_spec(*args, **kwargs)
        return jax.tree.map(lambda s: s.shape, out)

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; the input of ``from_config``.

        They are JSON-able, but for functions that have no name in files (see
        ``register``), which stand for themselves.

        Called as ``super().get_config()`` by a class of the user's, it returns those
        that the built-in class under it was given, with all defaults.
        """
        config = self._init_config()
        with registry.leaving_functions():
            if _is_described_by_its_own(type(self)):
                return registry.serialize(config)
            for key, value in config.items():
                if describe := _CATALOGUES.get(key.rpartition("_")[2]):
                    config[key] = describe(value)
            config = registry.serialize(config)
        settled = {key for key in config.keys() & _SETTLED if hasattr(self, key)}
        return config | {key: getattr(self, key) for key in settled}

    def _init_config(self) -> dict[str, Any]:
        meta, penalty = self._meta.value, self.activity_regularizer
        if _is_described_by_its_own(type(self)):
            return _arguments(self, type(self), meta.args, meta.kwargs)
        if meta.given is not None and not self.is_model:
            return _arguments(self, *meta.given)
        penalty = {} if penalty is None else {"activity_regularizer": penalty}
        return penalty | _settings(self)

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None):
        """Makes a layer from ``get_config``'s result; weights are fresh.

        What the built-in class takes, and the user's class on it does not, is left out:
        the user's constructor sets it. So are options that a built-in class does not
        have and that are off: other versions of Keras have such.

        Args:
            config: The configuration.
            custom_objects: Classes and functions by name, besides the registered ones.
        """
        left_out = {*init_names(our_class(cls))}.difference(init_names(cls))
        if not is_foreign(cls):
            off = {k for k, v in config.items() if v is None or v is False}
            left_out |= off.difference(init_names(cls))
        with registry.custom_objects(custom_objects):
            config = {
                key: registry.deserialize(value)
                for key, value in config.items()
                if key not in left_out
            }
        varargs = [
            p.name
            for p in inspect.signature(cls.__init__).parameters.values()
            if p.kind is inspect.Parameter.VAR_POSITIONAL
        ]
        args = config.pop(varargs[0], []) if varargs else []
        return cls(*args, **config)

    def stateless_call(
        self,
        trainable_variables,
        non_trainable_variables,
        *args,
        return_losses: bool = False,
        **kwargs,
    ):
        """A pure call: the weights come in as lists of arrays, and go out again.

        Args:
            trainable_variables: Values in the order of ``trainable_variables``.
            non_trainable_variables: The same for ``non_trainable_variables``.
            *args: What the layer is called on.
            return_losses: Whether the losses that layers added, and the penalties of
                trained weights, are returned too.
            **kwargs: More for the call, such as ``training=True``.

        Returns:
            ``(outputs, non_trainable_variables)``, and a list of losses if asked for.

        Raises:
            NotBuiltError: The layer has no weights yet.
            ShapeError: The number of values or a shape differs.
            DTypeError: The seed of a random layer is not of unsigned integers.

        Example:
            >>> import jax.numpy as jnp
            >>> from exburn.layers import Dense
            >>> layer = Dense(1)
            >>> layer.build((None, 2))
            >>> weights = [jnp.ones((2, 1)), jnp.ones(1)]
            >>> y, _ = layer.stateless_call(weights, [], jnp.ones((1, 2)))
            >>> y.tolist()
            [[3.0]]
        """
        if not self.built and not any(True for _ in iter_variables(self)):
            raise NotBuiltError(
                f"{self.name}.stateless_call",
                "the layer must be built before its variables can be replaced",
                hint="Call it once on data, or give the model an Input(shape).",
            )
        self._require_weights()
        outputs, state, losses = stateless_call(
            self, trainable_variables, non_trainable_variables, args, kwargs
        )
        return (outputs, state, losses) if return_losses else (outputs, state)

    def quantize(
        self,
        mode: Any = None,
        type_check: bool = True,
        config: Any = None,
        *,
        block_size: int | None = None,
    ) -> None:
        """Stores the weights of the layer, and of those inside of it, in few bits.

        In place; for a whole model there is ``model.quantize``, which returns another.

        Args:
            mode: ``"int8"``, ``"int8_dynamic"``, ``"int4"`` or ``"float8"``, as there.
            type_check: For Keras code: classes derived from a layer's are quantized in
                either case.
            config: A configuration of ``exburn.quantizers`` instead of the mode.
            block_size: Of int4: at least 2, or -1 for all that an output sums; 64 by
                default.

        Raises:
            NotBuiltError: The layer has no weights yet.
            UnknownNameError: There is no such mode.
            ArgumentError: The layer is quantized already, has an adapter, or has no
                weight that would get smaller; mode and configuration contradict each
                other.

        Example:
            >>> from exburn.layers import Dense
            >>> layer = Dense(64)
            >>> layer.build((None, 32))
            >>> layer.quantize("int8")
            >>> layer.kernel.nbytes
            2176
        """
        late_binding.apply("quantize", self, mode, config, block_size)

    def clone(self):
        """A copy with the same configuration and weights, sharing no arrays.

        Raises:
            ArgumentError: The configuration cannot be described (see ``register``).
        """
        return clone(self)

    def __setstate__(self, state):
        super().__setstate__(state)
        set_owner(self)

    def __deepcopy__(self, memo):
        # The symbols of a graph lead to every layer of it, and back to this one.
        copied = clone(self) if self.built else super().__deepcopy__(memo)
        memo[id(self)] = copied
        return copied


Operation.register(Layer)
