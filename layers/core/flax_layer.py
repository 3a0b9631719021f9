"""Modules of ``flax.linen`` as layers."""

from __future__ import annotations

import inspect
from typing import Any, Unpack

from exburn.core import registry
from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.layers.contract.pure import PureLayer
from exburn.module.layer_options import LayerOptions
from exburn.module.variable import Static


@register_builtin
class FlaxLayer(PureLayer):
    """Wraps a ``flax.linen.Module``; one of ``flax.nnx`` is a ``ModuleLayer``.

    Args:
        module: The module.
        method: What is called: a method, its name, or a function of the module;
            ``__call__`` by default. It takes the inputs, and ``training`` if it has a
            parameter of that name.
        variables: The variables by collection, ``{"params": …, "batch_stats": …}``; the
            module's own first values by default. ``"params"`` is trained.
        seed: Seed of the first values and of what is drawn; one from the global seed by
            default.
        **kwargs: ``name``, ``dtype``, ``trainable``.

    Shape:
        x: what the module takes → what it returns

    Raises:
        ArgumentError: ``module`` is no ``flax.linen.Module``. Saving raises it for a
            module whose class is not registered, or has no ``get_config``.

    Example:
        >>> import flax.linen
        >>> import jax.numpy as jnp
        >>> layer = FlaxLayer(flax.linen.Dense(2))
        >>> layer(jnp.ones((3, 4))).shape, layer.params["params"]["kernel"].shape
        ((3, 2), (4, 2))
    """

    def __init__(
        self,
        module: Any,
        method: Any = None,
        variables: Any = None,
        *,
        seed: Any = None,
        **kwargs: Unpack[LayerOptions],
    ):
        import flax.linen as nn

        if not isinstance(module, nn.Module):
            raise ArgumentError(
                "FlaxLayer",
                f"a flax.linen.Module is needed, not {type(module).__name__}",
                hint="exburn.layers.ModuleLayer(module) takes those of flax.nnx.",
            )
        values = (None, None) if variables is None else _split_variables(variables)
        super().__init__(("params", "state", "rng"), *values, seed, **kwargs)
        called = module.__call__ if method is None else method
        called = getattr(module, called) if isinstance(called, str) else called
        self._called = Static((module, called))
        self._tells_training = "training" in inspect.signature(called).parameters

    @property
    def module(self) -> Any:
        """The module."""
        return self._called.value[0]

    def _first(self, rng, inputs):
        module, called = self._called.value
        variables = module.init(
            rng, inputs, method=called, **self._training_argument(True)
        )
        return _split_variables(variables)

    def _outputs(self, values):
        module, called = self._called.value
        params, state = values["params"] or {}, values["state"] or {}
        outputs = module.apply(
            {**params, **state},
            values["inputs"],
            rngs=values["rng"],
            method=called,
            mutable=list(state) or False,
            **self._training_argument(values["training"]),
        )
        return outputs if state else (outputs, values["state"])

    def _training_argument(self, training: bool) -> dict[str, Any]:
        return {"training": training} if self._tells_training else {}

    def _init_config(self) -> dict[str, Any]:
        config = super()._init_config()
        method = config.get("method")
        name = getattr(method, "__name__", "")
        own = getattr(type(self.module), name, None)
        if own is not None and own is getattr(method, "__func__", method):
            config["method"] = name
        return config | {"module": None, "variables": None}  # the module makes them

    def get_config(self) -> dict[str, Any]:
        """The constructor's arguments; a module without ``get_config`` as it is.

        Modules of ``flax.linen`` do not change, so that copies may share one; a file
        refuses it.
        """
        module = self.module
        if hasattr(module, "get_config"):
            module = registry.serialize(module)
        return super().get_config() | {"module": module}


def _split_variables(variables: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The collection that is trained, and the others."""
    state = dict(variables)
    return {name: state.pop(name) for name in ("params",) if name in state}, state
