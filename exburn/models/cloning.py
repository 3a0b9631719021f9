"""Copies of a model with fresh weights, and with other layers in places."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import jax

from exburn.core.substitution import making_clone
from exburn.core.symbolic_shapes import public_shape
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary
from exburn.layers import Input
from exburn.models.copies import set_up_like
from exburn.models.model import Model
from exburn.models.sequential import Sequential
from exburn.module.cloning import copying_parts, fresh_clone, unbuilt_copy
from exburn.module.graph import named_by
from exburn.module.layer import Layer

_Model = TypeVar("_Model", bound=Model)


@api_boundary
def clone_model(
    model: _Model,
    input_tensors: Any = None,
    clone_function: Callable[[Layer], Layer] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
) -> _Model:
    """A model of the same architecture with fresh weights; see ``model.clone()``.

    It has the adapters and the quantized layers of the model, unless a function makes
    its layers, and is compiled as the model is.

    Args:
        model: The model.
        input_tensors: Symbols to start from, instead of new inputs.
        clone_function: Makes a new layer of each, for example another one in its place;
            for Sequential and functional models.
        call_function: Calls a new layer in the place of an old one, as
            ``call_function(layer, *args, **kwargs)``; for functional models.
        recursive: Whether models inside are gone through as well; they are otherwise
            given to ``clone_function`` as a whole.

    Raises:
        ArgumentError: A subclassed model with ``clone_function``, ``call_function`` or
            ``input_tensors``, or a Sequential one with ``call_function``.

    Example:
        >>> from exburn.layers import Dense, Dropout
        >>> model = Sequential([Input((4,)), Dense(2), Dropout(0.1)])
        >>> clone_model(model).count_params()
        10
        >>> stronger = lambda layer: (
        ...     Dropout(0.5)
        ...     if isinstance(layer, Dropout)
        ...     else layer.from_config(layer.get_config())
        ... )
        >>> clone_model(model, clone_function=stronger).layers[-1].rate
        0.5
    """
    if clone_function is call_function is input_tensors is None:
        copy: Any = fresh_clone(model)
    else:
        # A function of the user's may change a configuration, and finds descriptions.
        own = clone_function is not None
        parts = contextlib.nullcontext() if own else copying_parts(model)
        with making_clone(), parts:
            copy = copy_graph(
                model, input_tensors, clone_function, call_function, recursive
            )
        if clone_function is None:
            copy.repeat_changes(model.changes)
    set_up_like(copy, model)
    return copy


def copy_graph(
    model: Model,
    input_tensors: Any = None,
    clone_function: Callable[[Layer], Layer] | None = None,
    call_function: Callable[..., Any] | None = None,
    recursive: bool = False,
) -> Model:
    """The graph of a model over clones of its layers; it is not compiled."""
    graph: Any = model.graph
    if graph is None:
        raise ArgumentError(
            "clone_model",
            "its functions and input_tensors need a Sequential or functional model",
            {"received": type(model).__name__},
        )
    if call_function is not None and isinstance(model, Sequential):
        raise ArgumentError(
            "clone_model",
            "the layers of a Sequential model are not called one by one",
            hint="Leave call_function out.",
        )

    def clone(layer: Any) -> Any:
        if isinstance(layer, Model) and recursive and layer.graph is not None:
            call = None if isinstance(layer, Sequential) else call_function
            return copy_graph(layer, None, clone_function, call, True)
        if clone_function is None:
            return unbuilt_copy(layer)
        return clone_function(layer)

    inputs = input_tensors
    if inputs is None:
        symbols = [
            Input(
                batch_shape=public_shape(s.shape),
                dtype=s.dtype,
                name=name,
                axes=axes,
                optional=free,
            )
            for s, name, axes, free in zip(
                graph.inputs,
                graph.input_names,
                graph.axes,
                graph.optional,
                strict=True,
            )
        ]
        inputs = jax.tree.unflatten(graph.input_tree, symbols)
    if isinstance(model, Sequential):
        stack = [clone(layer) for layer in model.layers]
        with named_by(dict(zip(model._order, stack, strict=True))):
            copy = type(model)([*jax.tree.leaves(inputs), *stack], name=model.name)
        if model._learnt and input_tensors is None:
            copy._learnt = True
        return copy
    nodes = {key: clone(layer) for key, layer in model._node_items()}
    calls: Any = nodes
    if call_function is not None:
        calls = {key: partial(call_function, layer) for key, layer in nodes.items()}
    with named_by(nodes):
        return model._with_graph(inputs, graph.run(calls, inputs))
