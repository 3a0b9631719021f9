"""A graph of layers and operations as a function, without a model's weights."""

from __future__ import annotations

from typing import Any

import jax

from exburn.core.symbolic_shapes import describe, is_shape
from exburn.errors import ArgumentError, DataError, ShapeError
from exburn.errors.boundary import guard_methods
from exburn.module import graph as graphs
from exburn.module.layer import Layer
from exburn.module.symbolic_tensor import Lifted, Operation, Symbol, has_symbol


class _FunctionType(type(Operation)):
    """Functional models are functions, too, for ``isinstance``."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if super().__instancecheck__(instance):
            return True
        has_graph = getattr(instance, "graph", None) is not None
        return cls is Function and has_graph and getattr(instance, "is_model", False)


@guard_methods
class Function(Operation, metaclass=_FunctionType):
    """The computation between symbols, to be repeated on other inputs.

    It is no layer: it neither owns, trains nor saves the weights of layers in it.
    Called on symbols it makes the calls in it again, so that a model which is built
    from the result has its layers. Inputs may be symbols from inside of a model.

    Args:
        inputs: Symbols, or a (nested) list or dict of them.
        outputs: Symbols computed from them, in the structure to be returned.
        name: Name of the function.

    Raises:
        GraphError: An output does not depend on the inputs alone, or there are none.

    Example:
        >>> import exburn, numpy as np
        >>> a, b = exburn.KerasTensor((None, 2)), exburn.KerasTensor((None, 2))
        >>> function = Function([a, b], exburn.ops.maximum(a, b) + 1)
        >>> function([np.zeros((1, 2)), np.ones((1, 2))]).tolist()
        [[2.0, 2.0]]

    Source: ``keras.Function``.
    """

    def __init__(self, inputs: Any, outputs: Any, name: str | None = None):
        super().__init__(name=name)
        self._structures = inputs, outputs
        self._graph, self._layers = graphs.trace(inputs, outputs, op="Function")

    @property
    def inputs(self) -> list[Symbol]:
        """The input symbols, flat."""
        return jax.tree.leaves(self._structures[0])

    @property
    def outputs(self) -> list[Symbol]:
        """The output symbols, flat."""
        return jax.tree.leaves(self._structures[1])

    @property
    def operations(self) -> list[Operation | Layer]:
        """The layers and operations in it, and the layers of ``Input``."""
        operations: list[Any] = []
        for entry in self._graph.order:
            if isinstance(entry, str):
                operations.append(self._layers[entry])
            elif entry < 0:
                node: Any = self._graph.nodes[-1 - entry]
                lifted = isinstance(node.target, Lifted)
                operations.append(
                    node.target.with_name(node.name) if lifted else node.target
                )
            elif (call := self.inputs[entry].call) is not None:
                if getattr(call.callee, "is_input", False):
                    operations.append(call.callee)
        return operations

    def __call__(self, inputs: Any) -> Any:
        """The outputs for arrays, or for symbols.

        Raises:
            DataError: The inputs have another structure.
            ShapeError: A rank or a known size differs.
        """
        if has_symbol(inputs):
            return self.symbolic_call(inputs)
        return self.call(inputs)

    def call(self, inputs: Any) -> Any:
        self._check(inputs)
        return self._graph.run(self._layers, inputs)

    def symbolic_call(self, inputs: Any) -> Any:
        return self.call(inputs)

    def compute_output_spec(self, inputs: Any) -> Any:
        """The outputs as ``KerasTensor`` for inputs that are some."""
        return jax.tree.map(lambda s: Symbol.unmade(s.spec), self.call(inputs))

    def compute_output_shape(self, input_shape: Any) -> Any:
        """Output shapes for input shapes, in the structure of inputs and outputs."""
        leaves, tree = jax.tree.flatten(input_shape, is_leaf=is_shape)
        dtypes = [symbol.dtype for symbol in self.inputs]
        symbols = map(Symbol, leaves, dtypes)
        outputs = self.compute_output_spec(jax.tree.unflatten(tree, symbols))
        return jax.tree.map(lambda s: s.shape, outputs)

    def get_config(self) -> dict[str, Any]:
        raise ArgumentError(
            self.name,
            "a function has no configuration",
            hint="Make it a model: Model(inputs, outputs).",
        )

    def _check(self, inputs: Any) -> None:
        structure, received = map(jax.tree.structure, (self._structures[0], inputs))
        if structure != received:
            raise DataError(
                self.name,
                "the inputs must have the structure that the function was made with",
                {"needed": self._structures[0], "received": inputs},
            )
        for symbol, value in zip(self.inputs, jax.tree.leaves(inputs), strict=True):
            sizes = value.shape if hasattr(value, "shape") else ()
            fits = len(sizes) == symbol.ndim and all(
                want is None or got is None or want == got
                for want, got in zip(symbol.shape, sizes, strict=True)
            )
            if not fits:
                raise ShapeError(
                    self.name,
                    f"an input must be {describe(symbol)}, received {describe(value)}",
                )
