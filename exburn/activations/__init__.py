"""Activation functions: pure functions of arrays, most of them ``jax.nn``'s.

All act on one value at a time, ``x: […] → […]``, unless they take an ``axis``. Integers
and lists are taken as well. ``get("gelu")`` finds one by name.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import jax

from exburn.activations import rectifiers, squashing, vectors
from exburn.activations.rectifiers import *
from exburn.activations.squashing import *
from exburn.activations.vectors import *
from exburn.core import registry
from exburn.core.docstrings import complete_arguments
from exburn.core.jax_dispatch import original
from exburn.core.missing_names import refuser
from exburn.errors import ArgumentError
from exburn.errors.boundary import api_boundary

# fmt: off
__all__ = [
    "celu", "deserialize", "elu", "exponential", "gelu", "gelu_tanh", "get", "glu",
    "hard_shrink", "hard_sigmoid", "hard_silu", "hard_swish", "hard_tanh", "leaky_relu",
    "linear", "log_sigmoid", "log_softmax", "mish", "quick_gelu", "relu", "relu6",
    "selu", "serialize", "sigmoid", "silu", "soft_shrink", "softmax", "softplus",
    "softsign", "sparse_plus", "sparse_sigmoid", "sparsemax", "squared_relu",
    "squareplus", "swish", "tanh", "tanh_shrink", "threshold",
]
# fmt: on

swish, hard_swish = silu, hard_silu

_names: dict[str, Callable[..., Any]] = {
    name: getattr(module, name)
    for module in (rectifiers, squashing, vectors)
    for name in module.__all__
}
for _function in _names.values():
    registry.register(_function, package="activations")
    _function.__doc__ = complete_arguments(
        _function.__doc__,
        inspect.signature(_function).parameters,
        {"x": "An array of any shape."},
    )
_names |= {"swish": silu, "hard_swish": hard_silu}

# A model made with jax.nn.relu can be saved too.
for _name in (
    *("celu", "elu", "gelu", "glu", "hard_sigmoid", "hard_silu", "hard_tanh"),
    *("identity", "leaky_relu", "log_sigmoid", "log_softmax", "mish", "relu", "relu6"),
    *("selu", "sigmoid", "silu", "soft_sign", "softmax", "softplus", "sparse_plus"),
    *("sparse_sigmoid", "squareplus", "tanh"),
):
    registry.register(getattr(jax.nn, _name), package="jax.nn", name=_name)


_catalogue = registry.Catalogue("activation", _names)


def acts_on_rows(activation: Callable[..., Any]) -> bool:
    """Whether an activation is known to look at the last axis at most.

    Example:
        >>> acts_on_rows(relu), acts_on_rows(softmax), acts_on_rows(lambda x: x[:1])
        (True, True, False)
    """
    return any(activation is own for own in _names.values())


@api_boundary
def get(identifier: Any) -> Callable[..., Any]:
    """The activation that an identifier stands for.

    Args:
        identifier: A name, a configuration, any callable (a function, a layer), or
            ``None`` for :func:`linear`.

    Raises:
        UnknownNameError: Nothing has that name.
        ArgumentError: The identifier is none of the above.

    Example:
        >>> get("swish") is silu, get(None) is linear, get(max) is max
        (True, True, True)
    """
    if identifier is None:
        return linear
    if isinstance(identifier, Mapping):
        return deserialize(identifier)
    hint = "Pass a name such as 'relu', a function, or a layer."
    return _catalogue.resolve(identifier, hint)


@api_boundary
def serialize(activation: Any) -> Any:
    """The name of an activation, or the configuration of one that is not built in.

    Args:
        activation: A function, or a name.

    Raises:
        ArgumentError: It is a function that is not registered.

    Example:
        >>> serialize(swish)
        'silu'
    """
    activation = original(activation)
    name = getattr(activation, "__name__", None)
    if name and _names.get(name) is activation:
        return name
    return registry.serialize(activation)


@api_boundary
def deserialize(config: Any, custom_objects: Mapping[str, Any] | None = None) -> Any:
    """The inverse of :func:`serialize`; also reads Keras' configurations.

    Args:
        config: A name or configuration.
        custom_objects: Further classes and functions by name.

    Raises:
        UnknownNameError: No activation, and no object of ``custom_objects``, has that
            name.

    Example:
        >>> deserialize({"class_name": "function", "config": "relu"}) is relu
        True
    """
    with registry.custom_objects(custom_objects):
        if isinstance(config, Mapping):
            if config.get("class_name") == "function":
                return get(config.get("config"))
            if "class_name" not in config or "config" not in config:
                raise ArgumentError(
                    "activations.deserialize",
                    "a configuration needs 'class_name' and 'config'",
                    {"received": dict(config)},
                )
            config = registry.deserialize(config)
        return get(config)


if not TYPE_CHECKING:  # to a type checker, a name that is not here is an error
    __getattr__ = refuser(__name__)
