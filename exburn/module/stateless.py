"""A pure call of a layer: its weights come in as arrays, and go out again."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import nnx

from exburn.core import forward_context, random_keys
from exburn.core.random_keys import key_of, next_words
from exburn.core.substitution import substituting
from exburn.errors import DTypeError, NotBuiltError, ShapeError
from exburn.module.copying import paths_of, standing_for
from exburn.module.seed_generator import iter_variables
from exburn.module.traversal import iter_weights


@dataclasses.dataclass
class Bound:
    """A copy of a layer that holds given arrays, and the pass that runs through it."""

    copy: Any
    ctx: forward_context.Context
    _rest: list[Any]

    @property
    def rest(self) -> list[Any]:
        """Values of its ``non_trainable_variables`` now."""
        drew = self.ctx.drew
        return [
            jnp.asarray(next_words(v) if drew else v) if is_seed else v.get_value()
            for v, is_seed in self._rest
        ]


@contextlib.contextmanager
def bind_arrays(
    layer: Any, trained: Any, rest: Any, *, training: bool, op: str
) -> Iterator[Bound]:
    """A block within which a copy of a layer can be called on given arrays.

    Args:
        trained: Values in the order of its ``trainable_variables``.
        rest: The same for ``non_trainable_variables``.
    """
    weights = list(iter_variables(layer))
    values: dict[str, Any] = {}
    for kind, arrays, learned in (
        ("trainable_variables", trained, True),
        ("non_trainable_variables", rest, False),
    ):
        own = [(path, weight) for path, weight, learns in weights if learns is learned]
        values |= _values_by_path(f"{layer.name}.{op}", kind, own, list(arrays))
    outer = forward_context.current()
    copy: Any = nnx.merge(*nnx.split(layer), copy=True)
    scope = standing_for(layer, copy)
    copies = {path: scope.find(weight) for path, weight, _ in iter_weights(layer)}
    seeds = {path: value for path, value in values.items() if path not in copies}
    for path, value in seeds.items():
        dtype = getattr(value, "dtype", type(value).__name__)
        if dtype != np.uint32:
            raise DTypeError(
                f"{layer.name}.{op}",
                f"{path} must be uint32, received {dtype}",
                hint="Pass what the last call returned, as it is.",
            )
    for path, weight in copies.items():
        weight.set_raw_value(values[path])
    key = outer and outer.key
    if key is None and seeds and not random_keys.in_key_scope():
        key = key_of(next(iter(seeds.values())))  # draws depend on paths, too
    ctx = forward_context.Context(training=training, key=key)
    if outer is not None:
        ctx._draws = outer._draws  # a second call in one step draws anew
    ctx.paths, ctx.root = paths_of(layer, scope), copy
    others = [path for path, _, learns in weights if not learns]
    after = [(seeds.get(path, copies.get(path)), path in seeds) for path in others]
    with forward_context.forward(ctx), substituting(scope):
        yield Bound(copy, ctx, after)


def stateless_call(
    self: Any,
    trainable_variables,
    non_trainable_variables,
    *args,
    return_losses: bool = False,
    **kwargs,
):
    """A pure call: the weights come in as lists of arrays, and go out again.

    Args:
        trainable_variables: Values in the order of ``trainable_variables``.
        non_trainable_variables: The same for ``non_trainable_variables``.
        *args: What the layer is called on.
        return_losses: Whether the losses that layers added, and the penalties of
            trained weights, are returned too.
        **kwargs: More for the call, such as ``training=True``.

    Returns:
        ``(outputs, non_trainable_variables)``, and a list of losses if asked for.

    Raises:
        NotBuiltError: The layer has no weights yet.
        ShapeError: The number of values or a shape differs.
        DTypeError: The seed of a random layer is not of unsigned integers.

    Example:
        >>> import jax.numpy as jnp
        >>> from exburn.layers import Dense
        >>> layer = Dense(1)
        >>> layer.build((None, 2))
        >>> weights = [jnp.ones((2, 1)), jnp.ones(1)]
        >>> y, _ = layer.stateless_call(weights, [], jnp.ones((1, 2)))
        >>> y.tolist()
        [[3.0]]
    """
    if not self.built and not any(True for _ in iter_variables(self)):
        raise NotBuiltError(
            f"{self.name}.stateless_call",
            "the layer must be built before its variables can be replaced",
            hint="Call it once on data, or give the model an Input(shape).",
        )
    self._require_weights()
    outer, training = forward_context.current(), kwargs.get("training")
    values = trainable_variables, non_trainable_variables
    with bind_arrays(
        self, *values, training=bool(training), op="stateless_call"
    ) as run:
        run.ctx.asked = training is not None
        args = run.copy._enter(run.ctx, args)
        outputs = run.copy._call_arrays(args, kwargs)
        result = outputs, run.rest, run.copy.losses
    if outer is not None:  # a loss or a metric may follow
        outer.attach(outputs, run.ctx.attachments(outputs)[1])
    return result if return_losses else result[:2]


def _values_by_path(op: str, kind: str, own: list, arrays: list) -> dict[str, Any]:
    if len(own) != len(arrays):
        raise ShapeError(
            op,
            f"{kind} must hold {len(own)} arrays, received {len(arrays)}",
            {"variables": ", ".join(path for path, _ in own)},
            hint=f"Pass those of the layer: layer.{kind}.",
        )
    values = [v.get_value() if hasattr(v, "get_value") else v for v in arrays]
    for (path, weight), value in zip(own, values, strict=True):
        if np.shape(value) != tuple(weight.shape):
            raise ShapeError(
                op,
                f"{path} has shape {tuple(weight.shape)}, received {np.shape(value)}",
                hint=f"Pass {kind} in the order of the layer's.",
            )
    return {path: value for (path, _), value in zip(own, values, strict=True)}
