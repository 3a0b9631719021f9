"""The class that users subclass: a piece of a model with weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Self, Unpack

import jax
from flax import nnx
from flax.errors import TraceContextError

from exburn import regularizers
from exburn.core import forward_context, lazy_names
from exburn.core.annotations import Identifier
from exburn.core.batch_independence import is_foreign
from exburn.core.checks import check_flag
from exburn.core.containers import in_order, may_hold_parts
from exburn.core.docstrings import complete_docstring
from exburn.core.making import making
from exburn.core.methods import overridable, with_methods
from exburn.core.precision import DTypePolicy
from exburn.core.registry import check_name, snake_case
from exburn.core.substitution import moment
from exburn.core.symbolic_shapes import checked_sizes
from exburn.core.tensorflow_graphs import as_node, has_graph_tensor
from exburn.errors import (
    ArgumentError,
    printable,
    unknown_argument,
)
from exburn.errors.boundary import boundary_itself, guard_methods, leave_boundary
from exburn.module import (
    building,
    calls,
    casting,
    configuration,
    own_weights,
    policies,
    remat,
    stateless,
    symbolic_calls,
)
from exburn.module.cloning import clone
from exburn.module.copying import set_owner
from exburn.module.layer_options import InputOptions
from exburn.module.meta import LayerMeta, LayerType, note_arguments
from exburn.module.signature import CallInfo, init_names
from exburn.module.symbolic_tensor import Operation, has_symbol
from exburn.module.traversal import (
    children,
    held_metrics,
    iter_modules,
)
from exburn.module.variable import Static, Weight


@guard_methods
@with_methods
class Layer(nnx.Module, metaclass=LayerType):
    """A piece of a model with weights: subclass it and write ``build`` and ``call``.

    Args:
        activity_regularizer: Regularizer of the output, added to the loss.
        trainable: Whether training changes the weights.
        dtype: Precision policy (name, dtype or ``PrecisionPolicy``), also for layers
            inside that are given none; that of the model or the global one if None.
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
    # TensorFlow's AutoGraph, which translates Python, calls what has this as it is.
    autograph_info__: ClassVar[dict[str, Any]] = {}
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
    _ranges: Any = None  # of activations that are rounded
    _given_shape: tuple | None = None

    # Its methods are functions of the files that they belong to: see docs/layout.md.
    get_build_config = building.get_build_config
    build_from_config = building.build_from_config
    _build = building.build_once

    add_weight, add_variable = own_weights.add_weight, own_weights.add_variable
    get_weights, set_weights = own_weights.get_weights, own_weights.set_weights
    save_own_variables = own_weights.save_own_variables
    load_own_variables = own_weights.load_own_variables
    count_params = own_weights.count_params
    cast, quantize = casting.cast, lazy_names.quantize
    _pack = policies.pack
    _require_weights = own_weights.require_weights

    add_loss, random_key = calls.add_loss, calls.random_key
    stateless_call = stateless.stateless_call
    symbolic_call = symbolic_calls.symbolic_call
    compute_output_spec = symbolic_calls.compute_output_spec
    compute_output_shape = symbolic_calls.compute_output_shape
    _call_arrays, _call_symbols = calls.call_arrays, symbolic_calls.call_symbols
    _keep_mask = calls.draw_keep_mask

    get_config, _init_config = configuration.get_config, configuration.init_config
    _copy_config = configuration.copy_config

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        object.__setattr__(self, "_meta", Static(LayerMeta(args, kwargs)))
        return self

    def __init__(
        self,
        *,
        activity_regularizer: Identifier = None,
        trainable: bool = True,
        dtype: Any = None,
        autocast: bool = True,
        name: str | None = None,
        **kwargs: Unpack[InputOptions],
    ):
        cls: Any = type(self)
        others: dict[str, Any] = {**kwargs}
        for key in ("input_shape", "batch_input_shape", "input_dim"):
            if (value := others.pop(key, None)) is not None:
                shape = checked_sizes(cls.__name__, value)
                self._given_shape = shape[1:] if key.startswith("batch") else shape
        if others:
            raise unknown_argument(cls.__name__, others, init_names(cls))
        if name is not None:
            self._name, self._auto_name = check_name(cls.__name__, name), False
        if not check_flag(cls.__name__, "trainable", trainable):
            self._trainable = False
        policies.take(self, dtype)
        if dtype is not None:
            self._own_policy = True
        if (rule := making.get().remat) is not None:
            self._remat = rule
        if not autocast:
            self._autocast = False
        if activity_regularizer is not None:
            self.activity_regularizer = regularizers.get(activity_regularizer)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        _describe(cls)
        if not is_foreign(cls):
            guard_methods(cls)
            complete_docstring(cls)
        _wrap_methods(cls)
        own = vars(cls)
        if isinstance(name := own.get("name"), str):  # it hides the property
            type.__delattr__(cls, "name")
            cls._name, cls._auto_name = check_name(cls.__name__, name), False
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
                building.refuse_other_weights(self, name, value)
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
        self._remat = remat.Remat() if rule is True else rule or None

    @property
    def precision(self) -> DTypePolicy:
        """The dtypes; setting them casts the weights, also in the layers that follow.

        A quantized policy packs the weights, if the layer has any.
        """
        if self._policy is None:  # a subclass that did not call super().__init__()
            policies.take(self, None)
        return self._policy  # type: ignore[return-value]

    @precision.setter
    def precision(self, policy: Any) -> None:
        policies.change(self, policy)

    @property
    def dtype_policy(self) -> DTypePolicy:
        """The policy as Keras has it: it also says how weights are packed."""
        return policies.policy_for_keras(self)

    @dtype_policy.setter
    def dtype_policy(self, policy: Any) -> None:
        policies.replace(self, policy)

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
    def lora_enabled(self) -> bool:
        """Whether the layer has an adapter."""
        return getattr(self, "_low_rank", None) is not None

    @property
    def quantization_mode(self) -> str | None:
        """How ``quantize`` has stored the layer's own weights: ``"int8"``, or None."""
        return policies.storage_mode(self)

    # ------------------------------------------------------------------ building
    @overridable
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
            building.follow_call(self, shapes)
        self._note_shapes(*shapes)
        self.built = True

    def _build_parts(self, *shapes) -> None:
        """What ``super().build(…)`` does in a class that overrides ``build``."""

    def _note_shapes(self, *shapes, **named) -> None:
        self._meta.value.shapes = shapes, named

    @property
    def _own_build_config(self) -> dict[str, Any] | None:
        """What files have of a class that says itself how it is built."""
        return self.get_build_config() if self.built and self._builds_itself else None

    @property
    def _builds_itself(self) -> bool:
        own = type(self).build_from_config is not Layer.build_from_config
        return own and type(self).get_build_config is not Layer.get_build_config

    def _flatten_layers(
        self, include_self: bool = True, recursive: bool = True
    ) -> Iterator[Layer]:
        """The layers in this one. Packages written for Keras call it by this name."""
        below = iter_modules(self) if recursive else children(self)
        if include_self:
            yield self
        yield from (m for _, m in below if isinstance(m, Layer) and m is not self)

    # ------------------------------------------------------------------ weights
    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order: layer by layer, the trainable ones first."""
        return own_weights.list_weights(self)

    @property
    def variables(self) -> list[Weight]:
        """The weights, the states of stateful layers, and the seeds of random ones."""
        return own_weights.list_weights(self, carried=True)

    @property
    def trainable_weights(self) -> list[Weight]:
        return own_weights.list_weights(self, True)

    @property
    def non_trainable_weights(self) -> list[Weight]:
        return own_weights.list_weights(self, False)

    trainable_variables = trainable_weights

    @property
    def non_trainable_variables(self) -> list[Weight]:
        return own_weights.list_weights(self, False, carried=True)

    @property
    def metrics(self) -> list[Any]:
        """The metrics that the layer and those inside of it hold."""
        return held_metrics(self)

    @property
    def metrics_variables(self) -> list[Any]:
        """The variables of all ``metrics``, in their order."""
        return [variable for metric in self.metrics for variable in metric.variables]

    # ------------------------------------------------------------------ calls
    @overridable
    def call(self, *args, **kwargs) -> Any:
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

    @overridable
    def compute_mask(self, inputs, previous_mask=None) -> Any:
        """Mask of the output; by default the input's, if the layer supports masking.

        Args:
            inputs: The inputs of the call.
            previous_mask: Their masks, ``None`` where there is none.
        """
        return previous_mask if self.supports_masking else None

    @boundary_itself
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        try:
            if not args:
                args, kwargs = self._call_info.by_place(kwargs)
            if has_symbol((args, kwargs)):
                return self._call_symbols(args, kwargs)
            if has_graph_tensor((args, kwargs)):
                return as_node(self, self, args, kwargs)
            if (ctx := forward_context.current()) is None:
                return calls.call_outermost(self, args, kwargs)
            return calls.call_arrays(calls.find_callee(self, ctx), args, kwargs)
        except BaseException as error:
            leave_boundary(error)
            raise

    def _enter(self, ctx: Any, args: tuple) -> tuple:
        """The arguments of a call that begins a forward pass, which may be told more.

        Args:
            ctx: The context of the pass.
        """
        return args

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
        return [*calls.added_losses(self), *own_weights.penalties(self)]

    # ------------------------------------------------------------------ symbols
    @property
    def input(self):
        """The symbols the layer was called on; one call only."""
        return symbolic_calls.read_inputs(self)

    @property
    def output(self):
        """The symbols the layer's call returned; one call only."""
        return symbolic_calls.read_call(self, "output").outputs

    @property
    def input_shape(self):
        return jax.tree.map(lambda s: s.shape, self.input)

    @property
    def output_shape(self):
        return jax.tree.map(lambda s: s.shape, self.output)

    # ------------------------------------------------------------------ copies
    @classmethod
    @overridable
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """Makes a layer from ``get_config``'s result; weights are fresh.

        What the built-in class takes, and the user's class on it does not, is left out:
        the user's constructor sets it. So are options that a built-in class does not
        have and that are off: other versions of Keras have such.

        Args:
            config: The configuration.
            custom_objects: Classes and functions by name, besides the registered ones.
        """
        args, kwargs = configuration.arguments_from(cls, config, custom_objects)
        return cls(*args, **kwargs)

    def clone(self) -> Self:
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
        text = f"<{type(self).__name__} name={self.name}, built={self.built}>"
        return printable(text)

    __str__ = __repr__

    def _repr_html_(self) -> str:
        from exburn.module.notebook import layer_page  # which needs this class

        return layer_page(self)


def _describe(cls: type[Layer]) -> None:
    """Notes what a class's constructor takes, and its ``call``."""
    # ``__new__`` takes anything, and would hide what ``__init__`` takes.
    parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
    cls.__signature__ = inspect.Signature(parameters)
    if (call := vars(cls).get("call")) is not None:
        cls._call_info = CallInfo(call)


def _wrap_methods(cls: type[Layer]) -> None:
    """Has the constructor note its arguments, and ``build`` be complete.

    Language servers read an assignment to ``cls.__init__`` in a method of the class as
    what instances have, and would show no arguments of any layer.
    """
    own = vars(cls)
    if "__init__" in own and not is_foreign(cls):
        cls.__init__ = note_arguments(cls, cls.__init__)
    if "build" in own and not cls.is_model:
        cls.build = building.complete_build(cls.build)


_describe(Layer)
Operation.register(Layer)
