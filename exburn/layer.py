"""The contract of a layer: ``build`` makes parameters, ``call`` computes.

``Layer.__call__`` is the only place that knows symbols. Weights are created as specs
and filled from the seed and their path once the root of the model is known, so the
same model has the same weights whatever the order in which it was built.
"""

from __future__ import annotations

import functools
import inspect
import re
import reprlib
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn import (
    constraints,
    context,
    initializers,
    registry,
    regularizers,
    rematerialize,
    taps,
)
from exburn.building import clone, infer, materialize, spec_like, spread_precision
from exburn.dtypes import Precision, get_precision, is_float
from exburn.errors import (
    ArgumentError,
    DTypeError,
    GraphError,
    NotBuiltError,
    ShapeError,
)
from exburn.symbol import Symbol, describe, has_symbol, public_shape, record
from exburn.traversal import (
    children,
    is_abstract,
    iter_modules,
    iter_weights,
    module_paths,
)
from exburn.weights import Buffer, Parameter, Static, Weight, assign, scalars

_SHOWN = 8  # arrays that a note on an exception describes

__all__ = ["Layer", "clone", "infer", "iter_weights", "materialize"]


class Layer(nnx.Module):
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

    _book: Any
    built = False
    supports_masking = False
    input_spec: Any = None
    _name: str | None = None
    _auto_name = True
    _trainable = True
    _policy: Precision | None = None
    _own_policy = False
    _remat: rematerialize.Remat | None = None
    _autocast = True
    _taps: Static | None = None
    _given_shape: tuple | None = None
    activity_regularizer: Any = None

    def __new__(cls, *args, **kwargs):
        self = object.__new__(cls)
        object.__setattr__(self, "_book", Static(_Book(args, kwargs)))
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
            if key in kwargs:
                value = kwargs.pop(key)
                shape = (value,) if isinstance(value, int) else tuple(value)
                self._given_shape = shape[1:] if key.startswith("batch") else shape
        if kwargs:
            raise ArgumentError(
                type(self).__name__,
                f"unknown argument {next(iter(kwargs))!r}",
                {"known": ", ".join(_init_names(type(self)))},
            )
        if name is not None:
            self._name, self._auto_name = _check_name(type(self).__name__, name), False
        if not trainable:
            self._trainable = False
        self._policy = Precision.of(dtype)
        if dtype is not None:
            self._own_policy = True
        if (rule := rematerialize.scoped()) is not None:
            self._remat = rule
        if not autocast:
            self._autocast = False
        if activity_regularizer is not None:
            self.activity_regularizer = regularizers.get(activity_regularizer)

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        # ``__new__`` takes anything, and would hide what ``__init__`` takes.
        parameters = list(inspect.signature(cls.__init__).parameters.values())[1:]
        cls.__signature__ = inspect.Signature(parameters)
        if "call" in cls.__dict__:
            cls._call_info = _CallInfo(cls.call)

    def __setattr__(self, name: str, value: Any) -> None:
        value = _as_nnx_container(value)
        descriptor = getattr(type(self), name, None)
        if isinstance(descriptor, property):
            object.__setattr__(self, name, value)
            return
        old = vars(self).get(name, _MISSING)
        if old is not _MISSING and nnx.is_data(old) != nnx.is_data(value):
            delattr(self, name)  # `self.bias = None` in __init__, a weight in build
        super().__setattr__(name, value)

    # ------------------------------------------------------------------ identity
    @property
    def name(self) -> str:
        return self._name or snake_case(type(self).__name__)

    @name.setter
    def name(self, value: str):
        raise ArgumentError(
            self.name, "a layer's name is fixed", hint="Pass name= when making it."
        )

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
    def rematerialized(self) -> bool:
        """Whether training computes the layer's results again for the gradient."""
        return self._remat is not None

    @rematerialized.setter
    def rematerialized(self, rule: rematerialize.Remat | bool) -> None:
        if isinstance(rule, bool):
            rule = rematerialize.Remat() if rule else None  # type: ignore[assignment]
        self._remat = rule  # type: ignore[assignment]

    @property
    def precision(self) -> Precision:
        """The policy; setting one casts the weights, also in the layers that follow."""
        if self._policy is None:  # a subclass that did not call super().__init__()
            self._policy = Precision.of(None)
        return self._policy

    @precision.setter
    def precision(self, policy: Any) -> None:
        before, self._own_policy = self.precision, True
        self._policy = Precision.of(policy)
        spread_precision(self, self._policy, before)

    dtype_policy = precision

    @property
    def dtype(self) -> str:
        return self.precision.param

    variable_dtype = dtype

    @property
    def compute_dtype(self) -> str:
        return self.precision.compute

    def __repr__(self) -> str:
        return f"<{type(self).__name__} name={self.name}, built={self.built}>"

    __str__ = __repr__

    # ------------------------------------------------------------------ to override
    def build(self, *shapes) -> None:
        """Creates the weights. Shapes are tuples with ``None`` for unknown sizes."""

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

    def compute_mask(self, inputs, previous_mask=None):
        """Mask of the output; by default the input's, if the layer supports masking."""
        return previous_mask if self.supports_masking else None

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
            name: Shown in paths until the weight is an attribute; then that name is.

        Raises:
            ShapeError: A size is unknown.
        """
        shape = tuple(shape or ())
        if any(d is None or not isinstance(d, int | np.integer) for d in shape):
            raise ShapeError(
                self.name,
                f"a weight's shape must be known, received {shape}",
                hint="Give the sizes in Input(shape), except for free axes.",
            )
        own_dtype = dtype is not None
        dtype = jnp.dtype(dtype or self.variable_dtype)
        if initializer is None:
            initializer = "glorot_uniform" if is_float(dtype) else "zeros"
        meta: dict[str, Any] = {"initializer": initializers.get(initializer)}
        if own_dtype:
            meta["own_dtype"] = True
        if name:
            meta["label"] = name
        if regularizer is not None:
            meta["regularizer"] = regularizers.get(regularizer)
        if constraint is not None:
            meta["constraint"] = constraints.get(constraint)
        kind = Parameter if trainable else Buffer
        pass_ = context.current()
        if pass_ is not None and pass_.builds is not None:
            return kind(jnp.zeros(shape, dtype), **meta)
        return kind(
            jax.ShapeDtypeStruct(tuple(map(int, shape)), jnp.dtype(dtype)), **meta
        )

    def add_loss(self, loss) -> None:
        """Adds a scalar to the training loss; call it from ``call``."""
        pass_ = context.current()
        if pass_ is not None:
            pass_.losses += loss if isinstance(loss, list | tuple) else [loss]

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
        return [*_added.get(self, ()), *penalties]

    def random_key(self) -> jax.Array:
        """A fresh PRNG key for this call: a function of seed, step and path."""
        pass_ = context.current() or context.Context()
        return pass_.random_key(pass_.paths.get(id(self), self.name))

    def cast(self, value, dtype=None):
        """A weight or array in the compute dtype."""
        return jnp.asarray(_value(value), dtype or self.compute_dtype)

    # ------------------------------------------------------------------ calling
    def __call__(self, *args, **kwargs):
        if has_symbol((args, kwargs)):
            return self._call_symbols(args, kwargs)
        if context.current() is None:
            if self.built:
                self._require_weights()
            pass_ = context.Context(training=bool(kwargs.get("training") or False))
            pass_.asked = kwargs.get("training") is not None
            pass_.paths = module_paths(self)
            with context.forward(pass_):
                outputs = self._call_arrays(args, kwargs)
            _added[self] = pass_.losses
            return outputs
        return self._call_arrays(args, kwargs)

    def _call_symbols(self, args, kwargs):
        leaves, treedef = jax.tree.flatten((args, kwargs))
        is_symbol = [isinstance(leaf, Symbol) for leaf in leaves]
        specs = [v.spec for v in leaves if isinstance(v, Symbol)]

        def rebuild(values):
            values = iter(values)
            full = [
                next(values) if s else v for s, v in zip(is_symbol, leaves, strict=True)
            ]
            return jax.tree.unflatten(treedef, full)

        outputs = infer(self, rebuild, specs)
        symbols = record(self, args, kwargs, outputs)
        if made := jax.tree.leaves(symbols):  # `rebuild` still needs the leaves
            self._book.value.calls.append(made[0].call)
        return symbols

    def _call_arrays(self, args, kwargs):
        info = type(self)._call_info
        pass_ = context.current()
        assert pass_ is not None
        args, kwargs = self._cast_inputs(args, kwargs)
        try:
            self._ensure_built(info, args, kwargs, pass_)
            self._check_input(args)
            outer = pass_.training, pass_.frozen
            if kwargs.get("training") is not None:
                pass_.training = bool(kwargs["training"])
            pass_.frozen = pass_.frozen or not self._trainable
            try:
                if info.takes_training:
                    kwargs["training"] = pass_.training
                elif not info.takes_any:
                    kwargs.pop("training", None)
                masks = self._input_masks(info, args, kwargs, pass_)
                with self.precision.matmuls():
                    outputs = self._run_call(args, kwargs, pass_)
            finally:
                pass_.training, pass_.frozen = outer
            if self.precision.output is not None:
                outputs = self._cast_outputs(outputs, pass_)
        except Exception as error:
            self._note(error, args, pass_)
            raise
        if pass_.shapes is not None:
            path = pass_.paths.get(id(self), self.name)
            pass_.shapes.setdefault(path, jax.tree.map(spec_like, outputs))
        if self._taps is not None or pass_.captured is not None:
            taps.observe(self, outputs, pass_)
        discovering = pass_.builds is not None  # and then masks are not all there
        keeps = masks is not None and self.supports_masking
        if (keeps or self._makes_mask()) and not discovering:
            mask = self.compute_mask(args[0] if args else None, masks)
            self._attach_masks(outputs, mask, pass_)
        if self.activity_regularizer is not None:
            pass_.losses += [
                self._activity_penalty(out, pass_) for out in jax.tree.leaves(outputs)
            ]
        return outputs

    def _run_call(self, args, kwargs, pass_):
        gradient = pass_.training and pass_.builds is None and pass_.captured is None
        if self._remat is None or not gradient:
            return self.call(*args, **kwargs)
        return rematerialize.call(self, args, kwargs, self._remat)

    def _cast_outputs(self, outputs, pass_):
        """The outputs in the policy's output dtype, with their masks."""

        def cast(value):
            dtype = jnp.dtype(self.precision.output)
            floating = hasattr(value, "dtype") and is_float(value.dtype)
            if not floating or value.dtype == dtype:
                return value
            mask, value = pass_.mask_of(value), value.astype(dtype)
            if mask is not None:
                pass_.set_mask(value, mask)
            return value

        return jax.tree.map(cast, outputs)

    def _activity_penalty(self, out, pass_):
        """The regularizer's mean over the real rows."""
        if not out.ndim:
            return self.activity_regularizer(out)
        rows, real = max(out.shape[0], 1), pass_.row_mask
        if real is not None and real.shape[0] == out.shape[0]:
            out = jnp.where(real.reshape((-1,) + (1,) * (out.ndim - 1)), out, 0)
            rows = jnp.maximum(real.sum(), 1)
        return self.activity_regularizer(out) / rows

    def _makes_mask(self) -> bool:
        return type(self).compute_mask is not Layer.compute_mask

    def _input_masks(self, info, args, kwargs, pass_):
        """The mask of the first argument; passed to ``call`` if it takes one."""
        if not args:
            return kwargs.get("mask")
        leaves = jax.tree.leaves(args[0])
        found = [pass_.mask_of(leaf) for leaf in leaves]
        if isinstance(args[0], list | tuple | dict):
            mask = found if any(m is not None for m in found) else None
        else:
            mask = found[0] if found else None
        if info.takes_mask and kwargs.get("mask") is None and mask is not None:
            kwargs["mask"] = mask
        return kwargs["mask"] if kwargs.get("mask") is not None else mask

    def _attach_masks(self, outputs, mask, pass_):
        leaves = jax.tree.leaves(outputs)
        masks = mask if isinstance(mask, list | tuple) else [mask] * len(leaves)
        for leaf, m in zip(leaves, masks, strict=False):
            if m is not None:
                pass_.set_mask(leaf, m)

    def _cast_inputs(self, args, kwargs):
        dtype = jnp.dtype(self.compute_dtype)
        cast = self._autocast
        done: dict[int, Any] = {}  # one array given twice stays one array

        def convert(value):
            if id(value) not in done:
                done[id(value)] = convert_one(value)
            return done[id(value)]

        def convert_one(value):
            if not hasattr(value, "dtype") or not hasattr(value, "shape"):
                return value
            if isinstance(value, nnx.Variable):
                value = value.get_value()
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                return value
            if cast and is_float(value.dtype) and value.dtype != dtype:
                before, pass_ = value, context.current()
                assert pass_ is not None
                value = jnp.asarray(value, dtype)
                pass_.set_source(value, before)
                if (mask := pass_.mask_of(before)) is not None:
                    pass_.set_mask(value, mask)
                return value
            if not isinstance(value, np.ndarray):
                return value
            if value.dtype.kind in "OUSmM":
                raise DTypeError(
                    self.name,
                    f"arrays must hold numbers, received {describe(value)}",
                    hint="Convert it: np.asarray(values, dtype=np.float32).",
                )
            return jnp.asarray(value)

        missing = bool(args) and args[0] is None and not self.built
        for value in [None] if missing else jax.tree.leaves(args[:1]):
            if not hasattr(value, "shape") or not hasattr(value, "dtype"):
                raise DTypeError(
                    self.name,
                    "a layer is called on arrays or symbols, received "
                    f"{type(value).__name__}",
                    {"received": reprlib.repr(args[0])},
                    hint="Look for a missing `return` in what computed it."
                    if missing
                    else "Make an array of it: np.array(…).",
                )
        args = jax.tree.map(convert, args)
        return args, {
            k: v if k in ("mask", "training") else jax.tree.map(convert, v)
            for k, v in kwargs.items()
        }

    def _ensure_built(self, info, args, kwargs, pass_):
        if self.built:
            return
        shapes = info.shapes(self, args, kwargs)
        if pass_.builds is not None:
            self._build(shapes)
            pass_.builds.append((id(self), shapes))
            return
        if context.tracing():
            if type(self).build is Layer.build and not any(children(self)):
                return  # nothing to build
            raise NotBuiltError(
                self.name,
                "a layer must be built before it is called inside jax.jit",
                hint="Call it once on data, or give the model an Input(shape).",
            )
        leaves, treedef = jax.tree.flatten((args, kwargs))
        arrays = [i for i, v in enumerate(leaves) if hasattr(v, "shape")]

        def rebuild(values):
            full = list(leaves)
            for i, value in zip(arrays, values, strict=True):
                full[i] = value
            return jax.tree.unflatten(treedef, full)

        specs = [spec_like(leaves[i]) for i in arrays]
        for i in arrays:
            leaves[i] = None  # the layer remembers the call, not the data
        infer(self, rebuild, specs)
        materialize(self)

    def _build(self, shapes: tuple) -> None:
        """Runs ``build`` once, on public shapes."""
        self.build(*shapes)
        self._spread_policy()
        self.built = True

    def _spread_policy(self) -> None:
        """Layers that were made in ``build`` follow this one, not the process."""
        if self._own_policy or self.precision != get_precision():
            spread_precision(self, self.precision)

    def _check_input(self, args) -> None:
        if self.input_spec is None or not args:
            return
        specs = self.input_spec
        specs = list(specs) if isinstance(specs, list | tuple) else [specs]
        values = jax.tree.leaves(args[0])
        if len(specs) != len(values):
            raise ShapeError(
                self.name,
                f"{len(specs)} inputs are needed, received {len(values)}",
                hint="Pass them as one list.",
            )
        for spec, value in zip(specs, values, strict=True):
            if spec is not None and hasattr(value, "shape"):
                spec.check(self.name, value)

    def _note(self, error: Exception, args, pass_) -> None:
        if getattr(error, "_exburn_noted", False):
            return
        path = pass_.paths.get(id(self)) or self.name
        leaves = jax.tree.leaves(args)
        shapes = ", ".join(describe(v) for v in leaves[:_SHOWN])
        shapes += ", …" if len(leaves) > _SHOWN else ""
        error.add_note(f"in layer {path!r} ({type(self).__name__}): received {shapes}")
        error._exburn_noted = True  # type: ignore[attr-defined]

    # ------------------------------------------------------------------ accessors
    def _direct_layers(self) -> list[Layer]:
        return [child for _, child in children(self) if isinstance(child, Layer)]

    def _weights(self, trainable: bool | None = None) -> list[Weight]:
        self._require_weights()
        return [
            w
            for _, w, learns in iter_weights(self)
            if trainable is None or learns is trainable
        ]

    def _require_weights(self) -> None:
        if any(is_abstract(w) for _, w, _ in iter_weights(self)):
            materialize(self)

    @property
    def weights(self) -> list[Weight]:
        """All weights, in Keras' order: layer by layer, the trainable ones first."""
        return self._weights()

    variables = weights

    @property
    def trainable_weights(self) -> list[Weight]:
        return self._weights(True)

    @property
    def non_trainable_weights(self) -> list[Weight]:
        return self._weights(False)

    trainable_variables = trainable_weights
    non_trainable_variables = non_trainable_weights

    def get_weights(self) -> list[np.ndarray]:
        """Host copies of the weights, in the order of ``weights``."""
        return [np.array(w.get_value()) for w in self.weights]

    def set_weights(self, weights) -> None:
        """Replaces the weights by arrays of the same shapes, in the same order.

        Raises:
            ShapeError: The number of arrays or a shape differs; nothing is changed.
        """
        own = self.weights
        weights = list(weights)
        if len(own) != len(weights):
            raise ShapeError(
                f"{self.name}.set_weights",
                f"{len(own)} arrays are needed, received {len(weights)}",
                {"weights": ", ".join(path for path, _, _ in iter_weights(self))},
                hint="Take them from get_weights() of an equal model.",
            )
        paths = [path for path, _, _ in iter_weights(self)]
        for path, w, new in zip(paths, own, weights, strict=True):
            if tuple(np.shape(new)) != tuple(w.shape):
                raise ShapeError(
                    f"{self.name}.set_weights",
                    f"{path} has shape {tuple(w.shape)}, received {np.shape(new)}",
                    hint="Take them from get_weights() of an equal model.",
                )
            dtype = getattr(new, "dtype", None) or np.asarray(new).dtype
            if not (jnp.issubdtype(dtype, np.number) or dtype == np.bool_):
                raise DTypeError(
                    f"{self.name}.set_weights",
                    f"{path} must hold numbers, received {describe(np.asarray(new))}",
                )
        for w, new in zip(own, weights, strict=True):
            assign(w, new)

    def count_params(self) -> int:
        """Number of scalars in all weights."""
        if not self.built:
            raise NotBuiltError(
                self.name,
                "it has no weights before it is built",
                hint="Call it on data first, or give the model an Input(shape).",
            )
        return sum(scalars(w) for _, w, _ in iter_weights(self))

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
        calls = self._book.value.calls
        if not calls:
            raise GraphError(
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

    def compute_output_spec(self, *args, **kwargs):
        """Specs of the outputs for symbols or specs, without computing anything."""
        to_symbol = lambda v: Symbol(v) if isinstance(v, jax.ShapeDtypeStruct) else v  # noqa: E731
        args, kwargs = jax.tree.map(to_symbol, (args, kwargs))
        out = self._call_symbols(args, kwargs)
        return jax.tree.map(lambda s: s.spec, out)

    def compute_output_shape(self, *shapes):
        """Output shape for input shapes (tuples with ``None``), as in Keras."""
        from exburn.symbol import spec_of

        def is_shape(v):
            return isinstance(v, tuple) and all(
                d is None or isinstance(d, int) for d in v
            )

        symbols = jax.tree.map(
            lambda s: Symbol(spec_of(s, self.compute_dtype)), shapes, is_leaf=is_shape
        )
        out = self.compute_output_spec(*symbols)
        return jax.tree.map(lambda s: public_shape(s.shape), out)

    # ------------------------------------------------------------------ config
    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments, JSON-able; the input of ``from_config``."""
        return registry.serialize(self._init_config())

    def _init_config(self) -> dict[str, Any]:
        signature = inspect.signature(type(self).__init__)
        try:
            book = self._book.value
            bound = signature.bind(self, *book.args, **book.kwargs)
        except TypeError:  # a subclass whose own __init__ takes other arguments
            return {"name": self.name}
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
        takes = set(_init_names(type(self)))
        if "name" in takes:
            config["name"] = self.name
        if "trainable" in takes:
            config["trainable"] = self.trainable
        if "dtype" in takes:
            config["dtype"] = self.precision.identifier
        return config

    @classmethod
    def from_config(cls, config: dict[str, Any]):
        """Makes a layer from ``get_config``'s result; weights are fresh."""
        config = {k: registry.deserialize(v) for k, v in config.items()}
        varargs = [
            p.name
            for p in inspect.signature(cls.__init__).parameters.values()
            if p.kind is inspect.Parameter.VAR_POSITIONAL
        ]
        args = config.pop(varargs[0], []) if varargs else []
        return cls(*args, **config)

    def clone(self):
        """A copy with the same configuration and weights, sharing no arrays.

        Raises:
            ArgumentError: The configuration cannot be described (see ``register``).
        """
        return clone(self)

    def __deepcopy__(self, memo):
        # The symbols of a graph lead to every layer of it, and back to this one.
        copied = clone(self) if self.built else super().__deepcopy__(memo)
        memo[id(self)] = copied
        return copied


_MISSING = object()
# Apart from the layers: what a trace added must not outlive the trace's own copy.
_added: weakref.WeakKeyDictionary[Layer, list] = weakref.WeakKeyDictionary()


class _Book:
    """What a layer remembers that is neither its state nor its graph.

    Attributes:
        args, kwargs: The constructor's arguments, for ``get_config``.
        calls: The symbolic calls, for ``layer.output``.
        initial: Weights as they were first filled, by path, for ``reseed``.
        traced: The last call whose shapes were inferred: how to rebuild its arguments
            from specs, and the specs.
    """

    def __init__(self, args: tuple, kwargs: dict):
        self.args, self.kwargs = args, kwargs
        self.calls: list[Any] = []
        self.initial: dict[str, Any] = {}
        self.traced: tuple[Any, list] | None = None


class _CallInfo:
    """What a ``call`` method takes; looked up once a class."""

    def __init__(self, call):
        parameters = list(inspect.signature(call).parameters.values())[1:]
        names = {p.name for p in parameters}
        self.takes_training = "training" in names
        self.takes_mask = "mask" in names
        self.takes_any = any(p.kind is p.VAR_KEYWORD for p in parameters)
        self.order = [
            p.name
            for p in parameters
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]

    def shapes(self, layer: Layer, args: tuple, kwargs: dict) -> tuple:
        """The shapes that ``layer.build`` takes, as Keras passes them."""
        named = dict(zip(self.order, args, strict=False))
        named.update(kwargs)
        wanted = [
            p.name
            for p in inspect.signature(layer.build).parameters.values()
            if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)
        ]
        if len(wanted) > 1:
            given = [named.get(name.removesuffix("_shape")) for name in wanted]
            if given[0] is None and args:  # a subclass gave its input another name
                given[0] = args[0]
            return tuple(map(_shapes, given))
        first = args[0] if args else next(iter(kwargs.values()), None)
        return (_shapes(first),)


Layer._call_info = _CallInfo(Layer.call)  # type: ignore[attr-defined]


def _shapes(tree: Any) -> Any:
    return jax.tree.map(
        lambda v: public_shape(v.shape) if hasattr(v, "shape") else None, tree
    )


def snake_case(name: str) -> str:
    """``Conv2D`` → ``conv2d``, ``LayerNormalization`` → ``layer_normalization``."""
    name = re.sub(r"(.)([A-Z][a-z]+)", r"\1_\2", name.lstrip("_"))
    return re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower()


def _check_name(op: str, name: Any) -> str:
    if not isinstance(name, str) or not name or "/" in name:
        raise ArgumentError(
            op, f"a name is a non-empty string without '/', received {name!r}"
        )
    return name


def _init_names(cls: type) -> tuple[str, ...]:
    return _init_names_of(cls)  # type: ignore[arg-type]


@functools.cache
def _init_names_of(cls: Any) -> tuple[str, ...]:
    """Keyword arguments of a class, following ``**kwargs`` up the inheritance."""
    names: list[str] = []
    for base in cls.__mro__:
        if base is nnx.Module or "__init__" not in base.__dict__:
            continue
        parameters = inspect.signature(base.__init__).parameters.values()
        names += [
            p.name
            for p in parameters
            if p.name != "self" and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if not any(p.kind is p.VAR_KEYWORD for p in parameters):
            break
    return tuple(dict.fromkeys(names))


def _as_nnx_container(value: Any) -> Any:
    """Lists and dicts of modules as nnx containers, so that plain lists work."""
    if isinstance(value, list) and not isinstance(value, nnx.List):
        if not value or any(isinstance(v, nnx.Module | nnx.Variable) for v in value):
            return nnx.List(value)
    elif isinstance(value, tuple) and any(isinstance(v, nnx.Module) for v in value):
        return nnx.List(list(value))
    elif type(value) is dict and any(
        isinstance(v, nnx.Module | nnx.Variable) for v in value.values()
    ):
        return nnx.Dict(value)
    return value


def _value(value: Any) -> Any:
    read = getattr(value, "get_value", None)  # of a variable, or of what stands for one
    return value if read is None else read()
