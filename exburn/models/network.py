"""The architecture of a model: a graph of layers, or a subclass's ``call``."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, Unpack

import jax
from flax import nnx

from exburn.core import forward_context, registry
from exburn.core.methods import overridable
from exburn.core.precision import DTypePolicy
from exburn.core.symbolic_shapes import is_shape, public_shape
from exburn.data import as_batch, as_values, has_columns
from exburn.errors import ArgumentError, GraphError, UncalledLayerError, unknown_name
from exburn.models.changes import records
from exburn.models.config import describe, entry_names, input_layer, rebuild
from exburn.models.encoding import read_options
from exburn.models.host_graph import HostGraph, split_off
from exburn.models.session import (
    Session,
)
from exburn.module import graph as graphs
from exburn.module.building import intact, materialize, place
from exburn.module.layer import Layer
from exburn.module.layer_options import ModelOptions
from exburn.module.policies import follow_map, spread_policy, spread_precision
from exburn.module.symbolic_tensor import Lifted, Symbol, has_symbol, record
from exburn.module.traversal import direct_layers
from exburn.module.variable import OwnState, Static
from exburn.training.packed_rows import enter

if TYPE_CHECKING:

    class _ModelMembers(Layer):
        """Members of `Model` that the files of its methods use."""

        compiled: Any
        history: Any
        optimizer: Any
        tokenizer: Any
        _generation: Any

else:
    _ModelMembers = Layer


class Network(_ModelMembers):
    """A model without its training: layers in a graph, or what a subclass calls.

    The functions of the other files take a network, and ``Model`` lists them as its
    methods. The only subclass is ``Model``.

    Args:
        inputs, outputs, name, trainable, dtype: As of ``Model``.
    """

    is_model = True
    takes_one_input = False  # whatever its graph, which it may not have yet
    _run: OwnState  # of a Session
    _own_build = ""  # how far a subclass's method is: "running" or "done"

    def __new__(cls, *args, **kwargs):
        self = super().__new__(cls, *args, **kwargs)
        object.__setattr__(self, "_run", OwnState(Session()))
        return self

    @property
    def _training_session(self) -> Session:
        """What the network holds for training."""
        return self._run.value

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if (build := cls.__dict__.get("build")) is not None:
            cls.build = _once(build)

    def __init__(
        self,
        inputs: Any = None,
        outputs: Any = None,
        *,
        name: str | None = None,
        trainable: bool = True,
        dtype: Any = None,
        **kwargs: Unpack[ModelOptions],
    ):
        super().__init__(name=name, trainable=trainable, dtype=dtype, **kwargs)
        if (inputs is None) != (outputs is None):
            missing = "inputs" if inputs is None else "outputs"
            raise GraphError(
                "Model",
                f"inputs and outputs must be given together, received no {missing}",
                hint="Model(inputs, outputs); a subclass takes neither.",
            )
        if inputs is not None:
            self._set_graph(inputs, outputs)
            if self._own_policy:
                spread_precision(self, self.precision)
                follow_map(self)
                self._retrace()
            materialize(self)

    def _set_graph(self, inputs: Any, outputs: Any) -> None:
        with graphs.named_by(dict(_items(vars(self).get("nodes")))):
            graph, layers = graphs.trace(inputs, outputs)
        self._autocast = False  # each layer casts what it needs: ids must stay exact
        host = split_off(graph, layers)
        self._graph, self._host = Static(graph), Static(host)
        self._symbols = Static((inputs, outputs))
        self.nodes = nnx.Dict(layers)
        specs = jax.tree.map(lambda s: s.spec, inputs) if host is None else host.specs
        flat, treedef = jax.tree.flatten(specs)
        self._meta.value.traced = (
            lambda values: ((jax.tree.unflatten(treedef, values),), {}),
            flat,
        )
        self.built = True
        place(self)

    def _retrace(self) -> None:
        """Calls the layers once more: their outputs have other dtypes now."""
        assert self.graph is not None
        layers = [layer for layer in _values(self.nodes) if isinstance(layer, Layer)]
        calls = [len(layer._meta.value.calls) for layer in layers]
        inputs = self._symbols.value[0]
        outputs = self.graph.run(self.nodes, inputs)
        for layer, count in zip(layers, calls, strict=True):
            del layer._meta.value.calls[:count]
        self._set_graph(inputs, outputs)

    @property
    def precision(self) -> DTypePolicy:
        """The policy; setting one casts the weights, also in the layers that follow.

        Raises:
            ArgumentError: The model is quantized, so that none would follow.
        """
        return super().precision

    @precision.setter
    def precision(self, policy: Any) -> None:
        if any(record["kind"] == "quantization" for record in records(self)):
            raise ArgumentError(
                "precision",
                "the layers of a quantized model have precisions of their own, which "
                "that of the model would not change",
                {"received": policy},
                hint="Set that of the exact model and quantize it then, or that of "
                "single layers: model.get_layer(name).precision = ...",
            )
        Layer.precision.__set__(self, policy)
        if self.graph is not None:
            self._retrace()
            self._training_session.reset()

    @property
    def graph(self) -> graphs.Graph | None:
        """The calls of a functional model; ``None`` for a subclass."""
        stored = vars(self).get("_graph")
        return None if stored is None else stored.value

    @property
    def host_graph(self) -> HostGraph | None:
        """What runs on the host in front of the program: lookups of strings.

        ``None`` if nothing does.
        """
        stored = vars(self).get("_host")
        return None if stored is None else stored.value

    @property
    def program_inputs(self) -> Any:
        """Specs of what the program of a functional model takes."""
        if self.host_graph is not None:
            return self.host_graph.specs
        return jax.tree.map(lambda symbol: symbol.spec, self.input)

    @property
    def reads_strings(self) -> bool:
        """Whether its data are looked up on the host first."""
        return self.host_graph is not None

    def encode_inputs(self, inputs: Any) -> Any:
        """What the model's program takes: the inputs, with numbers for strings.

        ``fit``, ``predict`` and calls do this themselves, and take what it returns as
        well; an exported program takes nothing else.

        Args:
            inputs: Arrays in the structure of the model's inputs.

        Returns:
            Arrays by name, if there are lookups in front of the program; else the
            inputs as they are.

        Raises:
            DataError, ShapeError, DTypeError: They do not fit the model.

        Example:
            >>> from exburn import Model
            >>> from exburn.layers import Dense, Input, StringLookup
            >>> word = Input((1,), dtype="string")
            >>> lookup = StringLookup(vocabulary=["a", "b"], output_mode="one_hot")
            >>> model = Model(word, Dense(2)(lookup(word)))
            >>> model.encode_inputs([["b"], ["c"]])["string_lookup"].tolist()
            [[0, 0, 1], [1, 0, 0]]
        """
        if self.graph is None and self.reads_strings:
            inputs = as_values(inputs)
            self.begin_with(inputs)
        host = self.host_graph
        if host is None or host.is_encoded(inputs):
            return inputs
        return host.encode(self.nodes, inputs)

    def begin_with(self, inputs: Any) -> None:
        """Makes the graph for the first data; a model of symbols has one.

        Args:
            inputs: The first data.
        """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if not args:
            args, kwargs = self._call_info.by_place(kwargs)
        if args and has_columns(args[0]):
            frame = as_batch(args[0], op=self.name, options=read_options(self, "call"))
            args = (frame.tree[0], *args[1:])
        if args and self.reads_strings and not has_symbol((args, kwargs)):
            args = (self.encode_inputs(args[0]), *args[1:])
        return super().__call__(*args, **kwargs)

    def _enter(self, ctx: Any, args: tuple) -> tuple:
        return (enter(args[0], ctx), *args[1:]) if args else args

    @overridable
    def build(self, input_shape: Any = None) -> None:
        """Makes a subclass's weights for inputs of this shape, batch axis included.

        Args:
            input_shape: A tuple, or a (nested) list or dict of them.
        """
        if self.built or input_shape is None or self._own_build == "running":
            return
        self(jax.tree.map(Symbol, input_shape, is_leaf=is_shape))
        materialize(self)

    def _build(self, shapes: tuple) -> None:
        if type(self).build is not Network.build and self._own_build != "done":
            self._own_build = "running"
            self.build(*shapes)
            self._own_build = "done"
        self._note_shapes(*shapes)
        spread_policy(self)
        follow_map(self)
        self.built = True
        place(self)

    @overridable
    def call(self, inputs, training=None, mask=None) -> Any:
        """The outputs; write it in a class of your own.

        Args:
            inputs: Arrays, or symbols.
            training: Whether layers train; what is around the call decides by default.
            mask: Masks of the inputs.

        Raises:
            ArgumentError: The model has no graph, and its class no ``call``.
        """
        if self.graph is None:
            raise ArgumentError(
                type(self).__name__,
                "a subclassed model needs a method call(self, inputs)",
                hint="Write def call(self, inputs): … in the class.",
            )
        if is_other_mode(training):
            return self._call_in_mode(Network.call, training, inputs)
        host = self.host_graph
        graph = self.graph if host is None else host.program
        return _unpack_single(graph.run(self.nodes, inputs))

    def _call_in_mode(self, call: Callable, training: Any, inputs: Any) -> Any:
        """The outputs of a class's own ``call``, in the mode that its caller says."""
        if (ctx := forward_context.current()) is None:  # called by hand
            return self(inputs, training=training)
        before = ctx.training, ctx.asked
        ctx.training, ctx.asked = bool(training), True
        try:
            return call(self, inputs)
        finally:
            ctx.training, ctx.asked = before

    def _call_symbols(self, args, kwargs):
        if self.host_graph is not None:
            inside = self._symbols_for(args[0])
            specs = jax.tree.map(lambda symbol: symbol.spec, inside)
            symbols = record(self, args, kwargs, specs)
            leaves = jax.tree.leaves(symbols)
            self._meta.value.calls.append(leaves[0].call)
            for symbol, source in zip(leaves, jax.tree.leaves(inside), strict=True):
                symbol.mask = source.mask
            return symbols
        symbols = super()._call_symbols(args, kwargs)
        if self.graph is None:
            return symbols
        # As in Keras a list of one stays one on symbols.
        return jax.tree.unflatten(self.graph.output_tree, jax.tree.leaves(symbols))

    def _symbols_for(self, inputs: Any) -> Any:
        """What the graph makes of symbols, of which some are strings."""
        assert self.graph is not None
        layers = [layer for _, layer in _items(self.nodes)]
        calls = [len(layer._meta.value.calls) for layer in layers]
        try:
            return self.graph.run(self.nodes, inputs)
        finally:  # they are calls of this model's, not of its layers'
            for layer, count in zip(layers, calls, strict=True):
                del layer._meta.value.calls[count:]

    @property
    def callable(self) -> bool:
        return self.graph is not None or type(self).call is not Network.call

    @property
    def layers(self) -> list[Layer]:
        """The layers directly inside, inputs included.

        Those of a functional model are in Keras' order, which is that of their distance
        from the outputs.
        """
        if self.graph is None:
            layers = direct_layers(self)
            graphs.assign_names(layers)
            return layers
        layers = (
            self.nodes[key] if isinstance(key, str) else input_layer(self.inputs[key])
            for key in self.graph.order
            if isinstance(key, str) or key >= 0
        )
        return [layer for layer in layers if layer is not None]

    @property
    def operations(self) -> list[Any]:
        """The layers of a functional model with the operations between them.

        An operation has a ``name``. The order is that of ``layers``.
        """
        graph, names = self._require_graph("operations"), entry_names(self)
        operations: list[Any] = []
        for target in graph.order:
            if isinstance(target, str):
                operation: Any = self.nodes[target]
            elif target >= 0:
                operation = input_layer(self.inputs[target])
            else:
                operation = graph.nodes[-1 - target].target
                if isinstance(operation, Lifted):
                    operation = operation.with_name(names[target])
            operations.append(operation)
        return [operation for operation in operations if operation is not None]

    def get_layer(self, name: str | None = None, index: int | None = None) -> Layer:
        """A layer by its name, or by its place in ``layers``.

        Args:
            name: The layer's name.
            index: Its place, from 0.

        Raises:
            UnknownNameError: No layer has that name.
            ArgumentError: Neither or both are given, or the index is out of range.
        """
        if (name is None) == (index is None):
            raise ArgumentError(
                "get_layer",
                f"give either a name or an index, received name={name!r} and "
                f"index={index!r}",
            )
        layers = self.layers
        if index is not None:
            if not isinstance(index, int) or not -len(layers) <= index < len(layers):
                raise ArgumentError(
                    "get_layer",
                    f"index must be below {len(layers)}, the number of layers, "
                    f"received {index!r}",
                )
            return layers[index]
        named = {layer.name: layer for layer in layers}
        if self.graph is not None:
            named |= dict(_items(self.nodes))
        if name not in named:
            raise unknown_name("layer", name, named, op="get_layer")
        return named[name]

    def _node_items(self) -> list[tuple[str, Any]]:
        """The layers of the graph by their names in it."""
        return _items(self.nodes)

    @property
    def inputs(self) -> list[Symbol]:
        """The input symbols, flat."""
        return jax.tree.leaves(self.input)

    @property
    def outputs(self) -> list[Symbol]:
        """The output symbols, flat."""
        return jax.tree.leaves(self.output)

    @property
    def input(self):
        """The symbols that the model was made from, or a subclass was called on."""
        if self.graph is None and self._meta.value.calls:
            return super().input
        return self._require_symbols("input")[0]

    @property
    def output(self):
        """The symbols that the model returns, or a subclass returned."""
        if self.graph is None and self._meta.value.calls:
            return super().output
        return self._require_symbols("output")[1]

    def _require_graph(self, what: str) -> graphs.Graph:
        if self.graph is None:
            raise UncalledLayerError(
                self.name,
                f"{what}: the model has no symbols: it was not made from Input()",
                hint="Call it on a symbol: model(exburn.Input(shape)).",
            )
        return self.graph

    def _require_symbols(self, what: str) -> tuple[Any, Any]:
        self._require_graph(what)
        return self._symbols.value

    @property
    def input_names(self) -> list[str]:
        return list(self._require_graph("input_names").input_names)

    @property
    def output_names(self) -> list[str]:
        return list(self._require_graph("output_names").output_names)

    @property
    def input_shape(self):
        return _shapes(self.input)

    @property
    def output_shape(self):
        return _shapes(_unpack_single(self.output))

    @property
    def input_axes(self) -> list[tuple[str, ...] | None] | None:
        """Names of each input's axes, as given to ``Input(axes=…)``.

        Example:
            >>> import exburn
            >>> x = exburn.Input((None, 8), axes=("time", "feature"))
            >>> model = exburn.Model(x, exburn.layers.Dense(2)(x))
            >>> model.input_axes, model.output_axes
            ([('batch', 'time', 'feature')], [('batch', 'time', None)])
            >>> model.output_axes = ("batch", "time", "class")
            >>> model.output_axes
            [('batch', 'time', 'class')]
        """
        return None if self.graph is None else list(self.graph.axes)

    @property
    def output_axes(self) -> list[tuple[str | None, ...]] | None:
        """Names of each output's axes; may be set, for summaries.

        By default an axis that is as long as a named open axis of an input, such as
        the batch, has that one's name.
        """
        own = self._training_session.output_axes
        return _infer_output_axes(self) if own is None else own

    @output_axes.setter
    def output_axes(self, names: Any) -> None:
        self._training_session.output_axes = _check_output_axes(self, names)

    def get_config(self) -> dict[str, Any]:
        """The architecture: layers, their calls, inputs and outputs, as in Keras.

        It is JSON-able, but for functions that have no name in files (see
        ``exburn.register``), which stand for themselves.
        """
        if self.graph is None or _makes_its_graph(type(self)):
            return super().get_config()
        return describe(self)

    @classmethod
    @overridable
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        """The model of a ``get_config``, with fresh weights.

        Args:
            config: The configuration.
            custom_objects: Classes and functions by name, besides the registered ones.
        """
        with registry.custom_objects(custom_objects):
            if "input_layers" not in config:
                return super().from_config(config)
            model: Any = rebuild(cls, config)
            return model


def _once(build: Callable) -> Callable:
    """A model's own ``build``: called by hand, it leads to a built model.

    What it calls as ``super().build`` has nothing left to do meanwhile.
    """

    @functools.wraps(build)
    def run(self, *shapes, **named):
        if self._own_build == "running":
            return build(self, *shapes, **named)
        with intact(self):
            self._own_build = "running"
            build(self, *shapes, **named)
            self._own_build = "done"
        Network.build(self, *shapes, **named)

    return run


def _makes_its_graph(cls: type) -> bool:
    """Whether a subclass has arguments of its own, from which it makes the graph."""
    names = set(inspect.signature(cls.__init__).parameters)
    common = {"self", "args", "kwargs", "name", "trainable", "dtype"}
    return "inputs" not in names and bool(names - common)


def _items(nodes: Any) -> list[tuple[str, Any]]:
    children = {} if nodes is None else vars(nodes)
    return [(k, v) for k, v in children.items() if isinstance(v, nnx.Module)]


def _values(nodes: Any) -> list[Layer]:
    return [layer for _, layer in _items(nodes)]


def _unpack_single(outputs: Any) -> Any:
    """What is in a list or tuple of one; else the outputs, as they are."""
    one = type(outputs) in (list, tuple) and len(outputs) == 1
    return outputs[0] if one else outputs


def _shapes(symbols: Any) -> Any:
    return jax.tree.map(lambda s: public_shape(s.spec.shape), symbols)


def _infer_output_axes(network: Network) -> list[tuple[str | None, ...]] | None:
    """Axes of outputs, named after open axes of inputs that are as long."""
    if network.graph is None:
        return None
    names = {
        str(size): name
        for spec, axes in zip(network.graph.inputs, network.graph.axes, strict=True)
        for size, name in zip(spec.shape, axes or (), strict=axes is not None)
        if not isinstance(size, int)
    }
    return [
        tuple(names.get(str(size)) for size in symbol.spec.shape)
        for symbol in network.outputs
    ]


def _check_output_axes(network: Network, names: Any) -> list[tuple[str | None, ...]]:
    """The names of each output's axes, as a user gave them."""
    outputs = network.outputs
    if len(outputs) == 1 and all(isinstance(name, str | None) for name in names):
        names = [names]
    ranks = [len(symbol.shape) for symbol in outputs]
    if [len(axes) for axes in names] != ranks:
        raise ArgumentError(
            "output_axes",
            f"a name is needed for each axis, received {names!r}",
            {"shapes": ", ".join(str(symbol.shape) for symbol in outputs)},
        )
    return [tuple(axes) for axes in names]


def is_other_mode(training: Any) -> bool:
    """Whether a caller of ``call`` says something else than the pass under way."""
    if training is None:
        return False
    ctx = forward_context.current()
    return ctx is None or ctx.training != bool(training)
