"""Gradient checkpointing: what the backward pass computes again instead of keeping."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx

from exburn.core import forward_context
from exburn.core.making import making
from exburn.core.substitution import substituting
from exburn.errors import ArgumentError, unknown_name
from exburn.errors.boundary import api_boundary
from exburn.module.copying import paths_of, standing_for

_CONTRACTIONS = frozenset({"dot_general", "conv_general_dilated"})


def _keeps_contractions(primitive: Any, *_: Any, **__: Any) -> bool:
    """Matrix products and convolutions are kept, which cost most to compute again."""
    return primitive.name in _CONTRACTIONS


_POLICIES: dict[str, Any] = {
    "full": jax.checkpoint_policies.nothing_saveable,
    "dots": _keeps_contractions,
    "dots_with_no_batch_dims": (
        jax.checkpoint_policies.dots_with_no_batch_dims_saveable
    ),
}
_MODES = ("full", "activations", "larger_than", "list_of_layers")


@dataclasses.dataclass(frozen=True)
class Remat:
    """How a layer's call is rematerialized in training.

    Args:
        policy: ``"full"`` keeps only the layer's inputs; ``"dots"`` also the results of
            matrix products and convolutions; ``"dots_with_no_batch_dims"`` only of
            those that multiply by a weight; or a policy of
            ``jax.checkpoint_policies``.
        larger_than: Only if the outputs of one sample have more elements than this.
        names: Only in layers of these names.

    Raises:
        UnknownNameError: There is no such policy.
    """

    policy: Any = "full"
    larger_than: int | None = None
    names: tuple[str, ...] | None = None

    def __post_init__(self):
        if not callable(self.policy) and self.policy not in _POLICIES:
            raise unknown_name(
                "rematerialization policy", self.policy, _POLICIES, op="remat"
            )

    def __call__(self, layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        """Intercepts a layer's call, in a pass whose gradient may be taken."""
        ctx = forward_context.current()
        assert ctx is not None
        gradient = ctx.training and ctx.builds is None
        if not gradient or any(one.keeps_arrays for one in ctx.interceptors):
            return call(*args, **kwargs)
        if self.names is not None and layer.name not in self.names:
            return call(*args, **kwargs)
        return _call_again(layer, args, kwargs, self, ctx)

    def wrap(self, fn: Callable) -> Callable[..., Any]:
        """The pure function ``fn``, rematerialized."""
        return jax.checkpoint(fn, policy=_POLICIES.get(self.policy, self.policy))


class RematScope:
    """Layers that are made in this block are rematerialized, as in Keras.

    Args:
        mode: ``"full"``; ``"activations"``: matrix products and convolutions are kept;
            ``"larger_than"``: layers with outputs above a size; ``"list_of_layers"``:
            layers of the given names; ``None``: not in this block.
        output_size_threshold: Elements of one sample, for ``"larger_than"``.
        layer_names: Names, for ``"list_of_layers"``.

    Raises:
        UnknownNameError: There is no such mode.
        ArgumentError: ``"list_of_layers"`` without names.

    Example:
        >>> from exburn.layers import Dense
        >>> with RematScope("full"):
        ...     layer = Dense(4)
        >>> layer.rematerialized
        True
    """

    def __init__(
        self,
        mode: str | None = "full",
        output_size_threshold: int = 1024,
        layer_names: Iterable[str] | None = None,
    ):
        if mode is not None and mode not in _MODES:
            raise unknown_name("mode", mode, _MODES, op="RematScope")
        names = None if layer_names is None else tuple(layer_names)
        if mode == "list_of_layers" and not names:
            raise ArgumentError(
                "RematScope",
                "mode 'list_of_layers' needs layer_names",
                hint='RematScope("list_of_layers", layer_names=["block_1"])',
            )
        self.mode, self.output_size_threshold = mode, output_size_threshold
        self.layer_names = list(names or ())
        self._rule = None
        if mode is not None:
            self._rule = Remat(
                "dots" if mode == "activations" else "full",
                output_size_threshold if mode == "larger_than" else None,
                names if mode == "list_of_layers" else None,
            )

    def __enter__(self) -> RematScope:
        self._block = making.change(remat=self._rule)
        self._block.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._block.__exit__(*error)


@api_boundary
def remat(f: Any, *, policy: Any = "full") -> Any:
    """A function whose intermediate results are computed again for its gradient.

    Args:
        f: A pure function of arrays, such as a part of a layer's ``call``; it may read
            weights, but not assign to them. Or a layer, which is then rematerialized
            in training, and returned.
        policy: What is kept all the same: ``"full"`` (nothing), ``"dots"`` … as for
            ``Model.remat``.

    Raises:
        UnknownNameError: There is no such policy.

    Example:
        >>> double = remat(lambda x: jnp.sin(jnp.sin(x)))
        >>> float(jax.grad(double)(0.0))
        1.0

    Source: Chen et al., *Training Deep Nets with Sublinear Memory Cost*, 2016.
    """
    rule = Remat(policy)
    if hasattr(f, "rematerialized"):
        f.rematerialized = rule
        return f

    @functools.wraps(f)
    def run_wrapped(*args, **kwargs):
        arrays, rebuild = _traceable((args, kwargs))

        def run(arrays):
            args, kwargs = rebuild(arrays)
            return f(*args, **kwargs)

        return rule.wrap(run)(arrays)

    return run_wrapped


def _call_again(
    layer: Any, args: tuple, kwargs: dict, rule: Remat, outer: forward_context.Context
) -> Any:
    """``layer.call`` under a rule: its results are computed again for the gradient.

    The call is traced on a copy of the layer. What the copy assigns to its variables,
    the losses it adds and the masks of its outputs come back as results.
    """
    path = outer.path_of(layer)
    graphdef, state = nnx.split(layer)
    arrays, rebuild = _traceable((args, kwargs))
    masks = [outer.mask_of(value) for value in arrays]
    lookups: list[tuple[int, int | None, str]] = []

    def run(state, arrays, masks):
        flat = nnx.to_flat_state(state)
        before = {p: v.get_raw_value() for p, v in flat if isinstance(v, nnx.Param)}

        def has_changed(path, variable):
            return path not in before or variable.get_raw_value() is not before[path]

        copy = nnx.merge(graphdef, state)
        part, scope = outer.within(), standing_for(layer, copy)
        part.paths = paths_of(layer, scope, path)
        for value, mask in zip(arrays, masks, strict=True):
            if mask is not None:
                part.set_mask(value, mask)
        args, kwargs = rebuild(arrays)
        with forward_context.forward(part), substituting(scope):
            outputs = copy.call(*args, **kwargs)
        others = nnx.state(copy, has_changed)
        out_masks = [part.mask_of(leaf) for leaf in jax.tree.leaves(outputs)]
        sources = [part.source_of(lookup[0]) for lookup in part.lookups]
        lookups[:] = [
            (i, rows, name)
            for source, (_, rows, name) in zip(sources, part.lookups, strict=True)
            for i, value in enumerate(arrays)
            if value is source
        ]
        return outputs, others, part.losses, out_masks

    if rule.larger_than is not None:
        draws = Counter(outer._draws)
        outputs = jax.eval_shape(run, state, arrays, masks)[0]
        outer._draws.clear()
        outer._draws.update(draws)
        sizes = [math.prod(v.shape[1:]) for v in jax.tree.leaves(outputs)]
        if sum(sizes) <= rule.larger_than:
            return layer.call(*args, **kwargs)
    outputs, others, losses, out_masks = rule.wrap(run)(state, arrays, masks)
    nnx.update(layer, others)
    outer.losses += losses
    outer.lookups += [(arrays[i], rows, name) for i, rows, name in lookups]
    for leaf, mask in zip(jax.tree.leaves(outputs), out_masks, strict=True):
        if mask is not None:
            outer.set_mask(leaf, mask)
    return outputs


def arrays_of(tree: Any) -> tuple[list[Any], Callable]:
    """The arrays of a tree, and how to put others in their places.

    The function that does so holds none of them.
    """
    leaves, treedef = jax.tree.flatten(tree)
    places = [i for i, leaf in enumerate(leaves) if hasattr(leaf, "shape")]
    arrays = [leaves[i] for i in places]
    for i in places:
        leaves[i] = None

    def rebuild(values):
        full = list(leaves)
        for i, value in zip(places, values, strict=True):
            full[i] = value
        return jax.tree.unflatten(treedef, full)

    return arrays, rebuild


def _traceable(tree: Any) -> tuple[list[jax.Array], Callable]:
    """``arrays_of`` with NumPy's arrays as JAX's."""
    arrays, rebuild = arrays_of(tree)
    return [v if isinstance(v, jax.Array) else jnp.asarray(v) for v in arrays], rebuild
