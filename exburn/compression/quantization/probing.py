"""Running the copy of a model, within interceptors of its layers' calls."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import jax

from exburn.core import forward_context
from exburn.core.forward_context import Interceptor
from exburn.core.substitution import substituting
from exburn.layers import RNN
from exburn.module.copying import paths_of, standing_for
from exburn.module.selection import layer_paths


def watchable_layers(model: Any) -> dict[str, Any]:
    """The layers whose calls can be noted: not those inside of a loop."""
    layers = layer_paths(model)
    loops = [path for path, layer in layers.items() if isinstance(layer, RNN)]
    return {
        path: layer
        for path, layer in layers.items()
        if not any(path.startswith(f"{loop}/") for loop in loops)
    }


@contextlib.contextmanager
def running(
    model: Any, copied: Any, *interceptors: Interceptor
) -> Iterator[forward_context.Context]:
    """In the block a copy of a model runs, its layers' calls within interceptors."""
    ctx, scope = (
        forward_context.Context(key=jax.random.key(0)),
        standing_for(model, copied),
    )
    ctx.paths = paths_of(model, scope)
    ctx.interceptors += interceptors
    with forward_context.forward(ctx), substituting(scope):
        yield ctx
