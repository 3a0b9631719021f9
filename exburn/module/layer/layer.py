"""The class that users subclass: a piece of a model with weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from exburn import regularizers
from exburn.core import forward_context, late_binding
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_flag
from exburn.core.containers import in_order, may_hold_parts
from exburn.core.precision import DTypePolicy, Precision, get_precision
from exburn.core.substitution import moment
from exburn.core.symbolic_shapes import checked_sizes, public_shape
from exburn.errors import ArgumentError, NotBuiltError, UncalledLayerError
from exburn.kernels.dropout_mask import keep_mask
from exburn.module import remat
from exburn.module.building import clone, spread_precision
from exburn.module.copying import set_owner
from exburn.module.layer import given_policy
from exburn.module.layer.build import (
    build_config_of,
    build_from_config,
    build_once,
    complete_build,
    follow_call,
)
from exburn.module.layer.call import (
    added_losses,
    call_arrays,
    call_outermost,
    find_callee,
    find_place,
)
from exburn.module.layer.config import arguments_from, describe_arguments, init_config
from exburn.module.layer.meta import LayerMeta, LayerType, note_arguments
from exburn.module.layer.seeds import iter_variables
from exburn.module.layer.signature import CallInfo, check_name, init_names, snake_case
from exburn.module.layer.stateless import stateless_call
from exburn.module.layer.symbols import call_symbols, symbols_for_shapes
from exburn.module.layer.weights import (
    count_params,
    fill_weights,
    list_own_weights,
    list_weights,
    load_weights,
    make_weight,
    replace_weights,
)
from exburn.module.symbolic_tensor import Operation, Symbol, has_symbol
from exburn.module.traversal import (
    children,
    held_metrics,
    in_tracked_order,
    iter_modules,
    iter_weights,
)
from exburn.module.variable import (
    Buffer,
    Parameter,
    Static,
    Weight,
    alive,
    refuse_overwriting,
)

__all__ = ["Layer"]


class Layer(nnx.Module, metaclass=LayerType):
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

    #: What is kept of an attribute, whenever it is set: a function of the value.
    kept_as: ClassVar[dict[str, Callable[[Any], Any]]] = {}
    #: Whether it works in NumPy: in a model, in front of the program.
    on_host = False
    #: Whether it only moves its inputs' entries, and so takes strings.
    moves_text = False
    #: For Keras code: every layer runs in compiled programs.
    supports_jit = True
    is_model = False
    built = False
    supports_masking = False
    input_spec: Any = None
    activity_regularizer: Any = None

    # Of the class.
    __signature__: inspect.Signature
    _call_info: ClassVar[CallInfo]
    _has_build: ClassVar[bool] = False  # of its own
    _makes_mask: ClassVar[bool] = False  # by a ``compute_mask`` of its own
    # Of the layer: what nobody sets is no attribute.
    _meta: Any
    _name: str | None = None
    _auto_name = True
    _trainable = True
    _policy: DTypePolicy | None = None
    _given_policy: DTypePolicy | None = None  # if it is more than dtypes
    _own_policy = False
    _policy_was_set = False  # after it was made: no configuration tells
    _remat: remat.Remat | None = None
    _autocast = True
    _taps: Static | None = None
    _given_shape: tuple | None = None

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        object.__setattr__(self, "_meta", Static(LayerMeta(args, kwargs)))
        return self

    def __init__(
        self,
        *,
        activity_regularizer=None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs,
    ):
        for key in ("input_shape", "batch_input_shape", "input_dim"):
            if (value := kwargs.pop(key, None)) is not None:
                shape = checked_sizes(type(self).__name__, value)
                self._given_shape = shape[1:] if key.startswith("batch") else shape
        if kwargs:
            raise ArgumentError(
                type(self).__name__,
                f"unknown argument {next(iter(kwargs))!r}",
                {"known": ", ".join(init_names(type(self)))},
            )
        if name is not None:
            self._name, self._auto_name = check_name(type(self).__name__, name), False
        if not check_flag(type(self).__name__, "trainable", trainable):
            self._trainable = False
        self._take_policy(Precision.of(dtype))
        if dtype is not None:
            self._own_policy = True
        if (rule := remat.rule_in_scope()) is not None:
            self._remat = rule
        if not autocast:
            self._autocast = False
        if activity_regularizer is not None:
            self.activity_regularizer = regularizers.get(activity_regularizer)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        _describe(cls)
        own = vars(cls)
        if "__init__" in own and not is_foreign(cls):
            cls.__init__ = note_arguments(cls, cls.__init__)
        if isinstance(name := own.get("name"), str):  # it hides the property
            type.__delattr__(cls, "name")
            cls._name, cls._auto_name = check_name(cls.__name__, name), False
        if "build" in own and not cls.is_model:
            cls.build = complete_build(cls.build)
        cls._has_build = cls.build is not Layer.build
        cls._makes_mask = cls.compute_mask is not Layer.compute_mask

    def __setattr__(self, name: str, value: Any) -> None:
        convert = self.kept_as.get(name)
        value = in_order(value) if convert is None else convert(value)
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property):
            object.__setattr__(self, name, value)
            return
        holds = may_hold_parts(value)
        if vars(self).get(name) is not value and (holds or nnx.is_data(value)):
            self._meta.value.held_since[name] = moment()
        if name in vars(self):
            if self._pytree__nodes.get(name, False) != (holds or nnx.is_data(value)):
                delattr(self, name)  # `self.bias = None` in __init__, a weight in build
            meta = self._meta.value
            if meta.made and not meta.building:
                meta.changed |= {name}
        try:
            super().__setattr__(name, nnx.data(value) if holds else value)
        except TraceContextError:
            if holds or nnx.is_data(value):
                raise
            object.__setattr__(self, name, value)  # no array: it may leave the trace

    # ------------------------------------------------------------------ settings
    @property
    def name(self) -> str:
        return self._name or snake_case(type(self).__name__.lstrip("_"))

    @name.setter
    def name(self, value: str):
        self._name, self._auto_name = check_name(type(self).__name__, value), False

    @property
    def path(self) -> str:
        """The path in the outermost model that holds the layer, or its name.

        It is what ``summary()`` and ``freeze`` go by.
        """
        return self._meta.value.path or self.name

    @property
    def trainable(self) -> bool:
        return self._trainable

    @trainable.setter
    def trainable(self, value: bool):
        self._trainable = bool(value)
        for _, module in iter_modules(self):
            if isinstance(module, Layer) and module is not self:
                module._trainable = bool(value)

    def _spread_freezing(self) -> None:
        """Freezes the layers inside that nobody froze or thawed, if this one is frozen.

        Those of a layer that was made frozen, and those that its ``build`` makes.
        """
        if self._trainable:
            return
        for _, module in iter_modules(self):
            if isinstance(module, Layer) and "_trainable" not in vars(module):
                module._trainable = False

    @property
    def autocast(self) -> bool:
        """Whether floating inputs are cast to the policy's compute dtype."""
        return self._autocast

    @autocast.setter
    def autocast(self, value: bool) -> None:
        self._autocast = bool(value)

    @property
    def rematerialized(self) -> bool:
        """Whether training computes the layer's results again for the gradient."""
        return self._remat is not None

    @rematerialized.setter
    def rematerialized(self, rule: remat.Remat | bool) -> None:
        if isinstance(rule, bool):
            rule = remat.Remat() if rule else None  # type: ignore[assignment]
        self._remat = rule  # type: ignore[assignment]

    @property
    def precision(self) -> DTypePolicy:
        """The dtypes; setting them casts the weights, also in the layers that follow.

        A quantized policy packs the weights, if the layer has any.
        """
        if self._policy is None:  # a subclass that did not call super().__init__()
            self._take_policy(Precision.of(None))
        return self._policy  # type: ignore[return-value]

    @precision.setter
    def precision(self, policy: Any) -> None:
        before = self.precision
        self._take_policy(Precision.of(policy))
        self._own_policy = self._policy_was_set = True
        spread_precision(self, self.precision, before)
        given_policy.follow_map(self)
        given_policy.pack(self)

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The policy as Keras has it: it also says how weights are packed."""
        return given_policy.policy_for_keras(self)

    @dtype_policy.setter
    def dtype_policy(self, policy: Any) -> None:
        given_policy.replace(self, policy)

    def _take_policy(self, policy: DTypePolicy) -> None:
        self._policy = policy.plain
        self._given_policy = None if policy is self._policy else policy

    def _spread_policy(self) -> None:
        """Has layers that were made in ``build`` follow this one, not the process."""
        if self._own_policy or self.precision != get_precision().plain:
            spread_precision(self, self.precision)

    @property
    def dtype(self) -> str:
        return self.precision.param

    variable_dtype = dtype

    @property
    def compute_dtype(self) -> str:
        return self.precision.compute

    @property
    def input_dtype(self) -> str:
        """The dtype that floating inputs are cast to."""
        return self.compute_dtype

    @property
    def quantization_mode(self) -> str | None:
        """How ``quantize`` has stored the layer's own weights: ``"int8"``, or None."""
        for value in vars(self).values():
            scheme = getattr(value, "scheme", None)
            if scheme is not None and not isinstance(value, nnx.Module):
                return getattr(scheme, "mode", None)
        return None

    # ------------------------------------------------------------------ building
    def build(self, *shapes) -> None:
        """Creates the weights. Shapes are tuples with ``None`` for unknown sizes.

        A class that does not override it has its weights in the layers inside, which
        are found by following ``call`` for such inputs; nothing is computed.

        Raises:
            ArgumentError: No shape is given for an argument that ``call`` needs.

        Example:
            >>> from exburn.layers import Dense, TimeDistributed
            >>> layer = TimeDistributed(Dense(3))
            >>> layer.build((None, 10, 4))
            >>> [weight.shape for weight in layer.weights]
            [(4, 3), (3,)]
        """
        if self._has_build:  # super().build(…) of such a class
            self._build_parts(*shapes)
            return
        if not self.built and any(children(self)):
            follow_call(self, shapes)
        self._note_shapes(*shapes)
        self.built = True

    def _build(self, shapes: tuple) -> None:
        """Runs ``build`` once, on public shapes."""
        build_once(self, shapes)

    def _build_parts(self, *shapes) -> None:
        """What ``super().build(…)`` does in a class that overrides ``build``."""

    def _note_shapes(self, *shapes, **named) -> None:
        self._meta.value.shapes = shapes, named

    def get_build_config(self) -> dict[str, Any] | None:
        """The shapes that the layer was built for; ``None`` before.

        A class may override it, and ``build_from_config``, to keep more: files of
        models have what such a class returns.

        Example:
            >>> from exburn.layers import Dense
            >>> layer = Dense(2)
            >>> layer.build((None, 3))
            >>> layer.get_build_config()
            {'input_shape': (None, 3)}

        Source: Keras, ``Layer.get_build_config``.
        """
        return build_config_of(self)

    def build_from_config(self, config: Mapping[str, Any] | None) -> None:
        """Makes the weights for the shapes that ``get_build_config`` told."""
        build_from_config(self, config)

    @property
    def _own_build_config(self) -> dict[str, Any] | None:
        """What files have of a class that says itself how it is built."""
        return self.get_build_config() if self.built and self._builds_itself else None

    @property
    def _builds_itself(self) -> bool:
        own = type(self).build_from_config is not Layer.build_from_config
        return own and type(self).get_build_config is not Layer.get_build_config

    # ------------------------------------------------------------------ weights
    def add_weight(
        self,
        shape=None,
        initializer=None,
        dtype=None,
        trainable: bool = True,
        autocast: bool = True,
        regularizer=None,
        constraint=None,
        aggregation: str = "none",
        overwrite_with_gradient: bool = False,
        name: str | None = None,
    ) -> Weight:
        """Creates a weight, filled from the seed and its path when the model is known.

        Args:
            shape: Its shape; ``()`` by default.
            initializer: ``glorot_uniform`` for floats by default, else zeros.
            dtype: The layer's parameter dtype by default; a given one stays when the
                layer's policy changes.
            trainable: Whether the optimizer updates it.
            regularizer: Function of the weight, added to the loss.
            constraint: Projection applied after every update.
            autocast, aggregation: For Keras code, see ``exburn.Variable``.
            overwrite_with_gradient: Must be False.
            name: Shown in paths until the weight is an attribute; then that name is.

        Raises:
            ShapeError: A size is unknown.
            ArgumentError: ``overwrite_with_gradient`` is asked for.
        """
        refuse_overwriting(f"{self.name}.add_weight", overwrite_with_gradient)
        kind = Parameter if trainable else Buffer
        rules = {"regularizer": regularizer, "constraint": constraint}
        return make_weight(self, kind, shape, initializer, dtype, name, rules)

    def add_variable(self, shape, initializer, *args: Any, **kwargs: Any) -> Weight:
        """As :meth:`add_weight`, with a shape and an initializer that must be given."""
        return self.add_weight(shape, initializer, *args, **kwargs)

    def cast(self, value, dtype=None):
        """A weight or array in the compute dtype."""
        read = getattr(value, "get_value", None)  # of a variable, or what stands for it
        value, dtype = value if read is None else read(), dtype or self.compute_dtype
        if isinstance(value, jax.Array) and value.dtype == dtype:
            if not value.weak_type:
                return value  # as ``jnp.asarray`` would, ten times as slowly
        return jnp.asarray(value, jax.dtypes.canonicalize_dtype(dtype))

    def _require_weights(self) -> list[Weight]:
        """All weights; those that had no values have got them."""
        return [weight for weight, _ in fill_weights(self, iter_weights(self))]

    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order: layer by layer, the trainable ones first."""
        return list_weights(self)

    @property
    def variables(self) -> list[Weight]:
        """The weights, the states of stateful layers, and the seeds of random ones."""
        return list_weights(self, carried=True)

    @property
    def trainable_weights(self) -> list[Weight]:
        return list_weights(self, True)

    @property
    def non_trainable_weights(self) -> list[Weight]:
        return list_weights(self, False)

    trainable_variables = trainable_weights

    @property
    def non_trainable_variables(self) -> list[Weight]:
        return list_weights(self, False, carried=True)

    @property
    def metrics(self) -> list[Any]:
        """The metrics that the layer and those inside of it hold."""
        return held_metrics(self)

    @property
    def metrics_variables(self) -> list[Any]:
        """The variables of all ``metrics``, in their order."""
        return [variable for metric in self.metrics for variable in metric.variables]

    def get_weights(self) -> list[np.ndarray]:
        """Host copies of the weights, in the order of ``weights``."""
        return [np.array(alive(w.get_value())) for w in self.weights]

    def set_weights(self, weights) -> None:
        """Replaces the weights by arrays of the same shapes, in the same order.

        Raises:
            ShapeError: The number of arrays or a shape differs; nothing is changed.
            DTypeError: One of them cannot become an array of numbers; as before.
        """
        replace_weights(self, weights)

    def save_own_variables(self, store: dict[str, Any]) -> None:
        """Puts what is to be saved into a dict; override it to save more.

        Weights are saved without it. It is called if a class overrides it, and what it
        stores is given to ``load_own_variables``, after the weights have their values.
        To save files, define ``save_assets(self, folder)`` and ``load_assets``.

        Args:
            store: Takes arrays of numbers by name. This method stores the layer's own
                weights as ``"0"``, ``"1"`` …, without those of layers inside.

        Source: Keras, ``Layer.save_own_variables``.
        """
        for number, weight in enumerate(list_own_weights(self)):
            store[str(number)] = np.array(weight.get_value())

    def load_own_variables(self, store: Mapping[str, Any]) -> None:
        """Takes up what ``save_own_variables`` stored; override both or none.

        Raises:
            ShapeError: The number of arrays or a shape differs.
        """
        load_weights(self, store)

    def count_params(self) -> int:
        """Number of scalars in all weights."""
        return count_params(self)

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

    # ------------------------------------------------------------------ calls
    def call(self, *args, **kwargs):
        """Computes the output. May take ``training`` and ``mask`` if it wants them."""
        raise ArgumentError(
            type(self).__name__,
            "a layer needs a method call(self, inputs)",
            hint="Write def call(self, inputs): … in the class.",
        )

    @property
    def callable(self) -> bool:
        """Whether the class says how to compute an output."""
        return type(self).call is not Layer.call

    @property
    def call_signature_parameters(self) -> list[str]:
        """Names of the parameters of ``call``."""
        return list(inspect.signature(self.call).parameters)

    def compute_mask(self, inputs, previous_mask=None):
        """Mask of the output; by default the input's, if the layer supports masking."""
        return previous_mask if self.supports_masking else None

    def __call__(self, *args, **kwargs):
        if not args:
            args, kwargs = self._call_info.by_place(kwargs)
        if has_symbol((args, kwargs)):
            return self._call_symbols(args, kwargs)
        if (ctx := forward_context.current()) is None:
            return call_outermost(self, args, kwargs)
        return call_arrays(find_callee(self, ctx), args, kwargs)

    # A call in a pass that is under way, for who runs one; no frame of its own.
    _call_arrays = call_arrays

    def _call_symbols(self, args, kwargs):
        return call_symbols(self, args, kwargs)

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
        args, kwargs = symbols_for_shapes(self, shapes, named)
        out = self.compute_output_spec(*args, **kwargs)
        return jax.tree.map(lambda s: s.shape, out)

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

    def add_loss(self, loss) -> None:
        """Adds a scalar, or the sum of an array, to the loss; call it from ``call``."""
        ctx = forward_context.current()
        if ctx is not None:
            ctx.losses += loss if isinstance(loss, list | tuple) else [loss]

    @property
    def losses(self) -> list[jax.Array]:
        """What the last call of this layer added, and the penalties of its weights.

        Example:
            >>> from exburn.layers import Dense
            >>> layer = Dense(1, kernel_initializer="ones", kernel_regularizer="l2")
            >>> layer.build((None, 3))
            >>> [round(float(loss), 3) for loss in layer.losses]  # 0.01 · (1 + 1 + 1)
            [0.03]
        """
        penalties = [
            regularizer(weight.get_value())
            for weight in self.trainable_weights
            if (regularizer := weight.get_metadata().get("regularizer"))
        ]
        return [*added_losses(self), *penalties]

    def random_key(self) -> jax.Array:
        """A fresh PRNG key for this call: a function of seed, step and path."""
        ctx, path = find_place(self)
        return ctx.random_key(path)

    def _keep_mask(self, rate: float, shape: Any, seed: int | None = None) -> Any:
        """What dropout at this rate keeps (`keep_mask`): the layer's next draw."""
        ctx, path = find_place(self)
        key, number = ctx.draw(path)
        return keep_mask(
            key, rate, shape, forward_context.path_hash(f"{number} {seed}")
        )

    # ------------------------------------------------------------------ symbols
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

    def _direct_layers(self) -> list[Layer]:
        found = in_tracked_order(self, children(self))
        layers = {id(part): part for _, part in found if isinstance(part, Layer)}
        return list(layers.values())  # each once, whatever else it is held by

    # ------------------------------------------------------------------ copies
    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; the input of ``from_config``.

        They are JSON-able, but for functions that have no name in files (see
        ``register``), which stand for themselves.

        Called as ``super().get_config()`` by a class of the user's, it returns those
        that the built-in class under it was given, with all defaults.
        """
        return describe_arguments(self, self._init_config())

    def _init_config(self) -> dict[str, Any]:
        return init_config(self)

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
        args, kwargs = arguments_from(cls, config, custom_objects)
        return cls(*args, **kwargs)

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

    # By identity, also beside a dataclass among the bases.
    __hash__, __eq__ = object.__hash__, object.__eq__

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"

    __str__ = __repr__


def _describe(cls: type[Layer]) -> None:
    """Notes what a class's constructor takes, and its ``call``."""
    # ``__new__`` takes anything, and would hide what ``__init__`` takes.
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    cls.__signature__ = inspect.Signature(parameters)
    if (call := vars(cls).get("call")) is not None:
        cls._call_info = CallInfo(call)


_describe(Layer)
Operation.register(Layer)
