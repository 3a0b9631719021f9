"""A stack of layers."""

from __future__ import annotations

import contextlib
from typing import Any, Self

from flax import nnx

from exburn.core import registry
from exburn.core.checks import check_not_of_keras
from exburn.core.methods import overridable
from exburn.core.registry import deserialize, register_builtin
from exburn.core.symbolic_shapes import TEXT, is_text
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotBuiltError,
    SignatureError,
)
from exburn.layers import Input, Lambda, ModuleLayer
from exburn.models.config import (
    axes_entry,
    input_entry,
    restore_axes,
)
from exburn.models.model import Model
from exburn.models.network import is_other_mode
from exburn.models.session import require_idle
from exburn.module import graph as graphs
from exburn.module.building import intact, materialize
from exburn.module.layer import Layer
from exburn.module.policies import follow_map, spread_precision
from exburn.module.symbolic_tensor import Symbol
from exburn.module.variable import Static

_STACKED = Layer, Symbol


@register_builtin
class Sequential(Model):
    """Layers one after the other.

    Layers, any ``flax.nnx.Module`` and any pure function of an array may be stacked.
    The weights are made at once if the stack begins with ``Input(shape)``, else from
    the first data; then data of other sizes are taken as well, where the layers do.

    Args:
        layers: The layers, first to last.
        trainable: Whether training changes their weights.
        name: Name of the model.
        dtype: Precision policy of the model and of the layers given none of their own.

    Raises:
        ArgumentError: An entry can not be stacked.
        ShapeError: A layer does not fit the one before it.

    Example:
        >>> from exburn.layers import Dense
        >>> model = Sequential([Input((784,)), Dense(10, activation="softmax")])
        >>> model.count_params()
        7850
    """

    _autocast = False  # each layer casts what it needs: ids must stay exact
    takes_one_input = True
    _learnt = False  # whether the sizes are those of the first data, not an `Input`'s

    def __new__(cls, *args, **kwargs):
        parts = [type(part).__name__ for part in args if isinstance(part, _STACKED)]
        if len(parts) > 1:
            raise SignatureError(
                cls.__name__,
                f"the layers must be one list, received {len(parts)} arguments",
                hint=f"Pass a list: {cls.__name__}([{', '.join(parts)}]).",
            )
        return super().__new__(cls, *args, **kwargs)

    def __init__(
        self,
        layers: Any = None,
        trainable: bool = True,
        name: str | None = None,
        dtype: Any = None,
    ):
        super().__init__(name=name, trainable=trainable, dtype=dtype)
        self.nodes = nnx.Dict({})
        self._order = ()
        layers = [] if layers is None else layers
        stack: list[Layer] = []
        for layer in layers if isinstance(layers, list | tuple) else [layers]:
            stack = self._with(layer, stack)
        self._stack(stack)
        self._refresh()

    def add(self, layer: Any, rebuild: bool = True) -> None:
        """Puts a layer on top.

        Args:
            layer: A layer, a model, or an ``Input`` at the beginning.
            rebuild: Kept for Keras code: the weights are made when they can be.

        Raises:
            ArgumentError, DTypeError: It cannot be stacked.
            ShapeError: It does not fit the layer below; the stack stays as it was.
            BusyError: The model is being trained.
        """
        require_idle(self, "Sequential.add")
        with intact(self):
            self._stack(self._with(layer, self.layers))
            self._refresh()

    def pop(self, rebuild: bool = True) -> Layer:
        """Takes the last layer off and returns it.

        Args:
            rebuild: Kept for Keras code.

        Raises:
            ArgumentError: The model has no layers.
            BusyError: The model is being trained.
        """
        require_idle(self, "Sequential.pop")
        stack = self.layers
        if not stack:
            raise ArgumentError(
                "Sequential.pop",
                "the model has no layers",
                hint="Put one on first: model.add(layer).",
            )
        self._stack(stack[:-1])
        self._refresh()
        return stack[-1]

    def _with(self, item: Any, stack: list[Layer]) -> list[Layer]:
        """The stack with one more on top; an input is kept beside it."""
        if isinstance(item, Symbol) or getattr(item, "is_input", False):
            if stack or "_start" in vars(self):
                raise ArgumentError(
                    "Sequential",
                    "Input must come first, and once",
                    {"received": item, "layers": len(stack)},
                    hint="Begin the stack with it: Sequential([Input(shape), …]).",
                )
            self._start = Static(item if isinstance(item, Symbol) else item.output)
            return stack
        layer = as_layer(item)
        if any(layer is other for other in stack):
            raise ArgumentError(
                "Sequential",
                f"the layer {layer.name!r} is in the stack already",
                hint="Make a second layer, or share weights in a functional model.",
            )
        if layer._given_shape is not None and not stack and "_start" not in vars(self):
            dtype = "int32" if _wants_integers(layer) else "float32"
            self._start = Static(Input(layer._given_shape, dtype=dtype))
        return [*stack, layer]

    def _stack(self, layers: list[Layer]) -> None:
        names = graphs.assign_names(layers)
        for layer in layers:  # one named by its place may have to make room
            if layer._auto_name and layer._name != names[id(layer)]:
                layer._name = names[id(layer)]
        self.nodes = nnx.Dict({names[id(layer)]: layer for layer in layers})
        self._order = tuple(names[id(layer)] for layer in layers)

    def _refresh(self) -> None:
        """Runs the stack on its input symbol, if there is one."""
        self._rerun()
        self._training_session.reset()

    def _rerun(self) -> None:
        for key in ("_graph", "_host", "_symbols"):
            if key in vars(self):
                delattr(self, key)
        self.built = False
        start = vars(self).get("_start")
        stack = self.layers
        if self._own_policy:
            spread_precision(self, self.precision)
            follow_map(self)
        if start is None or not stack:
            return
        symbol = start.value
        for layer in stack:
            symbol = layer(symbol)
        self._set_graph(start.value, symbol)
        self._note_shapes(start.value.shape)
        trainer = self._training_session.trainer
        materialize(self, None if trainer is None else trainer.holder.seed)

    @property
    def reads_strings(self) -> bool:
        if self.graph is not None:
            return super().reads_strings
        first = next(iter(self.layers), None)
        return getattr(first, "reads_strings", getattr(first, "on_host", False))

    def begin_with(self, inputs: Any) -> None:
        """Makes the weights for data that layers on the host read first.

        Args:
            inputs: The first data.

        Raises:
            DataError: They are not one array.
        """
        if not hasattr(inputs, "shape"):
            raise DataError(
                self.name,
                f"the input is one array, received {type(inputs).__name__}",
                hint="Begin the stack with its Input(shape, dtype='string').",
            )
        dtype = TEXT if is_text(inputs) else inputs.dtype
        self._begin((None, *inputs.shape[1:]), dtype)

    def build(self, input_shape: Any = None) -> None:
        """Makes the weights for inputs of this shape, batch axis included.

        Args:
            input_shape: A tuple; nothing is made of ``None``.

        Raises:
            NotBuiltError: The model has no layers.
            ArgumentError: This is no shape.
        """
        if self.graph is not None or input_shape is None:
            return
        stack = self.layers
        if not stack:
            raise NotBuiltError(
                self.name, "the model has no layers", hint="model.add(…)"
            )
        if not isinstance(input_shape, tuple | list):
            raise ArgumentError("Sequential.build", f"not a shape: {input_shape!r}")
        dtype = "int32" if _wants_integers(stack[0]) else "float32"
        self._begin(input_shape, TEXT if self.reads_strings else dtype)

    def _begin(self, input_shape: Any, dtype: Any) -> None:
        rows, shape = input_shape[0], tuple(input_shape[1:])
        try:
            self._begin_with(Input(shape, dtype=dtype))
        except Exception:
            # A layer may compute with one number of rows alone: see build_for.
            with contextlib.suppress(Exception):
                if isinstance(rows, int):
                    return self._begin_with(Input(shape, batch_size=rows, dtype=dtype))
            raise

    def _begin_with(self, start: Any) -> None:
        with intact(self):
            self._start = Static(start)
            self._learnt = True
            self._refresh()

    def call(self, inputs, training=None, mask=None):
        """The outputs of the last layer.

        Args:
            inputs: Arrays, or symbols.
            training: Whether layers train; what is around the call decides by default.
            mask: Masks of the inputs.
        """
        if is_other_mode(training):
            return self._call_in_mode(Sequential.call, training, inputs)
        if self.host_graph is not None:
            return super().call(inputs)
        if self.graph is not None:
            (inputs,) = self.graph.match_inputs(inputs, self._learnt)
        for layer in self.layers:
            inputs = layer(inputs)
        return inputs

    @property
    def layers(self) -> list[Layer]:
        """The stack, without the input."""
        # A merged copy's nodes are sorted by name.
        return [self.nodes[key] for key in self._order]

    def get_config(self) -> dict[str, Any]:
        layers = [registry.serialize(layer) for layer in self.layers]
        if (start := vars(self).get("_start")) is not None:
            layers.insert(0, input_entry(start.value, start.value.name or "input"))
        config = {"name": self.name, "trainable": self.trainable, "layers": layers}
        if any(key != self.nodes[key].name for key in self._order):
            config["keys"] = list(self._order)  # layers were renamed
        if self._own_policy:
            policy = self._given_policy
            config["dtype"] = (self.precision if policy is None else policy).identifier
        if self._learnt:
            config["learnt"] = True
        return config | axes_entry(self)

    @classmethod
    @overridable
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        with registry.custom_objects(custom_objects):
            layers = deserialize(config["layers"])
        stack = (layer for layer in layers if not getattr(layer, "is_input", False))
        with graphs.named_by(dict(zip(config.get("keys", ()), stack, strict=False))):
            model: Any = cls(
                layers,
                trainable=config.get("trainable", True),
                name=config.get("name"),
                dtype=config.get("dtype"),
            )
        if not model.built and config.get("build_input_shape"):  # Keras'
            model.build(config["build_input_shape"])
        if model._learnt != bool(config.get("learnt")):  # else as the class says
            model._learnt = bool(config.get("learnt"))
        restore_axes(model, config)
        return model


def as_layer(item: Any) -> Layer:
    """A layer, a wrapped ``nnx.Module``, or a wrapped function."""
    if isinstance(item, Layer):
        return item
    if isinstance(item, nnx.Module):
        return ModuleLayer(item)
    if isinstance(item, type):
        raise DTypeError(
            "Sequential",
            f"a layer is needed, received the class {item.__name__}",
            hint=f"Write {item.__name__}(...).",
        )
    check_not_of_keras("Sequential", item)
    if callable(item):
        return Lambda(item)
    raise DTypeError(
        "Sequential",
        f"a layer, nnx.Module or function is needed, received {type(item).__name__}",
        {"received": repr(item)},
    )


def _wants_integers(layer: Any) -> bool:
    if isinstance(layer, Sequential):
        first = next(iter(layer.layers), None)
        return first is not None and _wants_integers(first)
    return getattr(layer, "integer_input", False)
