"""A layer's configuration: what its constructor was given, and what was set since."""

from __future__ import annotations

import inspect
from typing import Any

from exburn import activations, constraints, initializers, regularizers
from exburn.core import registry
from exburn.core.batch_independence import is_foreign, our_class
from exburn.module.signature import init_names

# Arguments with short forms, whose attributes hold what Keras' configurations hold.
_SETTLED = frozenset(
    "kernel_size pool_size output_size strides dilation_rate padding cropping size"
    " data_format value_dim target_shape dims".split()
)
# Those that follow from others where they are not given. Configurations hold what they
# came to; a copy in this process, which may have another window or another key, does
# not: the strides of a pooling are its window's size.
_DERIVED = frozenset(["strides", "value_dim"])
# What the names of objects stand for, by the last word of the argument.
_CATALOGUES = {
    "activation": lambda value: activations.serialize(activations.get(value)),
    "initializer": lambda value: registry.serialize(initializers.get(value)),
    "regularizer": lambda value: registry.serialize(regularizers.get(value)),
    "constraint": lambda value: registry.serialize(constraints.get(value)),
}


def get_config(self: Any) -> dict[str, Any]:
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
    if registry.is_copying():
        settled -= {key for key in _DERIVED & settled if config[key] is None}
    return config | {key: getattr(self, key) for key in settled}


def copy_config(self: Any) -> dict[str, Any]:
    """The constructor's arguments for a copy in this process: all of them.

    A ``get_config`` of the user's may leave some out.
    """
    cls: Any = type(self)
    config = self.get_config()
    reads_it_itself = is_foreign(_definer(cls, "from_config"))
    if not is_foreign(_definer(cls, "__init__")) or reads_it_itself:
        return config
    if getattr(self, "graph", None) is not None:
        return config
    arguments = given_arguments(
        self, cls, self._meta.value.args, self._meta.value.kwargs
    )
    missing = {
        k: arguments[k] for k in init_names(cls) if k in arguments and k not in config
    }
    with registry.leaving_functions():
        return config | registry.serialize(missing)


def init_config(self: Any) -> dict[str, Any]:
    """The constructor's arguments as they were given, and the settings as they are."""
    meta, penalty = self._meta.value, self.activity_regularizer
    if _is_described_by_its_own(type(self)):
        return given_arguments(self, type(self), meta.args, meta.kwargs)
    if meta.given is not None and not self.is_model:
        return given_arguments(self, *meta.given)
    penalty = {} if penalty is None else {"activity_regularizer": penalty}
    return penalty | _settings(self)


def arguments_from(
    cls: type, config: dict[str, Any], custom_objects: Any
) -> tuple[list[Any], dict[str, Any]]:
    """A constructor's arguments in a configuration; see ``Layer.from_config``."""
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
    return args, config


def _settings(layer: Any) -> dict[str, Any]:
    """The arguments that every layer takes, as they are now."""
    dtype = layer.dtype_policy.identifier
    if layer._given_policy is not None:
        dtype = layer._given_policy.identifier
    return {"name": layer.name, "trainable": layer.trainable, "dtype": dtype}


def given_arguments(layer: Any, cls: type, args: tuple, kwargs: dict) -> dict[str, Any]:
    """The arguments of a class's constructor, with the settings as they are now."""
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
    """Whether a user's class is described by its own arguments.

    Else there are none, or a ``get_config`` of the user's goes with its constructor.
    """
    described, maker = _definer(cls, "get_config"), _definer(cls, "__init__")
    own = is_foreign(described) and issubclass(described, maker)
    return is_foreign(maker) and not own
