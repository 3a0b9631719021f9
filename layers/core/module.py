"""Any ``flax.nnx`` module as a layer."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator
from typing import Any, Unpack

import jax
from flax import nnx

from exburn.core.registry import register_builtin
from exburn.errors import ArgumentError
from exburn.module.layer import Layer
from exburn.module.layer_options import LayerOptions
from exburn.module.seed_generator import SeedOfLayer

_FLAGS = {"deterministic": False, "use_running_average": False}


@register_builtin
class ModuleLayer(Layer):
    """Wraps any ``flax.nnx.Module`` as a layer.

    While the layer runs, the flags ``deterministic`` and ``use_running_average`` of the
    module's parts follow ``training``, and its random streams take their keys from the
    layer's own, so that a resumed run draws the same numbers. Statistics of
    ``nnx.BatchNorm`` count the padding rows of a short last batch: use
    :class:`exburn.layers.BatchNormalization` where that matters.

    Args:
        module: The module; its arguments are the layer's. It takes ``training`` if its
            ``__call__`` has a parameter of that name.

    Raises:
        ArgumentError: ``module`` is no ``nnx.Module``. ``get_config`` raises it always:
            a module does not know how it was made.

    Example:
        >>> import jax.numpy as jnp
        >>> from flax import nnx
        >>> layer = ModuleLayer(nnx.Linear(4, 2, rngs=nnx.Rngs(0)))
        >>> layer(jnp.ones((3, 4))).shape
        (3, 2)
    """

    seed_generator = SeedOfLayer(lambda layer: bool(layer._random_streams()))

    def __init__(self, module: Any, **kwargs: Unpack[LayerOptions]):
        super().__init__(**kwargs)
        if not isinstance(module, nnx.Module):
            raise ArgumentError(
                "ModuleLayer", f"an nnx.Module is needed, not {type(module).__name__}"
            )
        self.module = module
        self._tells_training = "training" in inspect.signature(module).parameters
        self.built = True

    def call(self, *args, training=False, **kwargs):
        if self._tells_training:
            kwargs["training"] = training
        with _flags(self.module, training), self._streams(training):
            return self.module(*args, **kwargs)

    def get_config(self) -> dict[str, Any]:
        raise ArgumentError(
            "get_config",
            f"{self.name!r} wraps a {type(self.module).__name__}, "
            "which has no configuration",
            hint="Write a registered Layer that makes the module in its __init__.",
        )

    def clone(self) -> ModuleLayer:
        """A copy with a module of the same weights, sharing no arrays."""
        return ModuleLayer(
            nnx.clone(self.module),
            name=None if self._auto_name else self.name,
            trainable=self.trainable,
            dtype=self.precision,
        )

    def _random_streams(self) -> list[nnx.RngStream]:
        parts = nnx.iter_graph(self.module)
        return [part for _, part in parts if isinstance(part, nnx.RngStream)]

    @contextlib.contextmanager
    def _streams(self, training: bool) -> Iterator[None]:
        """Random streams that start from this call's key, and their state put back."""
        streams = self._random_streams()
        if not (training and streams):
            yield
            return
        key = self.random_key()
        before = [(s.key.get_raw_value(), s.count.get_raw_value()) for s in streams]
        for i, (stream, (_, count)) in enumerate(zip(streams, before, strict=True)):
            stream.key.set_raw_value(jax.random.fold_in(key, i))
            stream.count.set_raw_value(jax.numpy.zeros_like(count))
        try:
            yield
        finally:
            for stream, (old_key, count) in zip(streams, before, strict=True):
                stream.key.set_raw_value(old_key)
                stream.count.set_raw_value(count)


@contextlib.contextmanager
def _flags(module: nnx.Module, training: bool) -> Iterator[None]:
    """The flags of train or eval mode, and the old ones put back."""
    before = [
        (part, flag, getattr(part, flag))
        for _, part in nnx.iter_graph(module)
        if isinstance(part, nnx.Module)
        for flag in _FLAGS
        if isinstance(getattr(part, flag, None), bool)
    ]
    module.train() if training else module.eval()
    try:
        yield
    finally:
        for part, flag, value in before:
            setattr(part, flag, value)
