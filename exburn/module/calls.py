"""The way from a layer's ``__call__`` to its ``call``, on arrays."""

from __future__ import annotations

import contextlib
import traceback
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import jax
import jax.numpy as jnp
from flax.errors import TraceContextError

from exburn.core import forward_context, random_keys
from exburn.core.forward_context import Context, intercept
from exburn.core.substitution import stand_in
from exburn.core.symbolic_shapes import describe, tracer_hint
from exburn.errors import (
    ExBurnError,
    NotBuiltError,
    locate,
    places_of,
    unknown_argument,
)
from exburn.module import remat, stateless_scope
from exburn.module.building import infer, intact, materialize, spec_like, with_masks
from exburn.module.casting import CastOutputs, cast_inputs
from exburn.module.deferred_placement import arrive
from exburn.module.input_spec import check_inputs
from exburn.module.meta import is_layer
from exburn.module.reached import adopt, as_reached, made_in
from exburn.module.traversal import children, iter_weights, survey
from exburn.module.variable import alive
from exburn.runtime import portable
from exburn.runtime.kernels.dropout_mask import keep_mask
from exburn.runtime.placement import refuse_apart

_SHOWN = 8  # arrays that a note on an exception describes
_NO_SCOPE = contextlib.nullcontext()
_NONE = (None,) * 4

# Apart from the layers: what a trace added must not outlive the trace's own copy.
_added: weakref.WeakKeyDictionary[Any, list] = weakref.WeakKeyDictionary()


def find_callee(layer: Any, ctx: Context) -> Any:
    """A layer's stand-in in the pass under way; the layer that calls it holds it."""
    layer = stand_in(layer)
    if id(layer) in ctx.paths or ctx.running is None:
        return layer
    if random_keys.tracing() or made_in(ctx, layer):
        return layer
    return adopt(ctx.running, layer)


def added_losses(layer: Any) -> list[jax.Array]:
    """Losses that the call under way, or else the layer's last one, has added."""
    ctx = forward_context.current()
    if ctx is not None and ctx.root is layer:  # in a model's compute_loss
        return ctx.losses
    return _added.get(layer, [])


def add_loss(self: Any, loss: Any) -> None:
    """Adds a scalar, or the sum of an array, to the loss; call it from ``call``.

    Args:
        loss: The scalar or array, or a list of them.
    """
    ctx = forward_context.current()
    if ctx is not None:
        ctx.losses += loss if isinstance(loss, list | tuple) else [loss]


def random_key(self: Any) -> jax.Array:
    """A fresh PRNG key for this call: a function of seed, step and path."""
    ctx, path = _find_place(self)
    return ctx.random_key(path)


def draw_keep_mask(
    self: Any, rate: float, shape: Any, seed: int | None = None, width: Any = None
) -> Any:
    """The layer's next draw of what dropout keeps at this rate: see ``keep_mask``."""
    ctx, path = _find_place(self)
    key, number = ctx.draw(path)
    draw = random_keys.path_hash(f"{number} {seed}")
    return keep_mask(key, rate, shape, draw, width)


def _find_place(layer: Any) -> tuple[Context, str]:
    """The forward pass under way, and a layer's path in it."""
    ctx = forward_context.current() or Context()
    return ctx, ctx.path_of(stand_in(layer))


def _scope(layer: Any, ctx: Context) -> AbstractContextManager[Any]:
    """The block of a layer's operations, named by its path where files tell layers."""
    if portable.current() is None:
        return _NO_SCOPE
    return portable.layer_scope(ctx.path_of(layer))


def call_outermost(layer: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call by the user on arrays, which begins a forward pass."""
    arrive()
    if layer.built:
        for weight in layer._require_weights():
            alive(stand_in(weight).get_raw_value())
    ctx = Context(training=bool(kwargs.get("training") or False))
    ctx.asked = kwargs.get("training") is not None
    ctx.paths, reaching = survey(layer)
    try:
        with forward_context.forward(ctx), as_reached(layer, reaching):
            args = layer._enter(ctx, args)
            outputs = call_arrays(layer, args, kwargs)
    except ValueError as error:
        arrays = dict(zip(layer._call_info.order, args, strict=False)) | kwargs
        weights = {path: w.get_raw_value() for path, w, _ in iter_weights(layer)}
        refuse_apart(layer.name, error, arrays | {"weights": weights})
        raise
    _added[layer] = ctx.losses
    if (scope := stateless_scope.current()) and scope.collect_losses:
        scope.losses += ctx.losses
    ctx.carry(outputs)
    return outputs


def call_arrays(self: Any, args: tuple, kwargs: dict[str, Any]) -> Any:
    """A call within a forward pass: ``call``, and all that surrounds it.

    A layer in a model adds two frames to a trace, ``__call__`` and this one. What few
    layers need is a function of its own, which this one has left when ``call`` runs.
    """
    cls, ctx = type(self), forward_context.current()
    assert ctx is not None
    info = cls._call_info
    args, kwargs = cast_inputs(self, args, kwargs, ctx)
    try:
        if not self.built:
            _build_for_call(self, info, args, kwargs, ctx)
        if self.input_spec is not None and args:
            check_inputs(self.name, self.input_spec, args[0])
        outer = ctx.training, ctx.asked, ctx.running
        training = kwargs.get("training")
        if training is None and not ctx.asked:
            training = info.training  # as Keras: what call itself says comes last
        if training is not None:
            ctx.training, ctx.asked = bool(training), True
        try:
            if info.takes_training:
                if ctx.asked or info.needs_training:  # else None, as in Keras
                    kwargs["training"] = ctx.training
            elif not info.takes_any:
                kwargs.pop("training", None)
            masks = _input_masks(info, args, kwargs, ctx)
            ctx.running, policy = self, self.precision
            with policy.matmuls(), _scope(self, ctx):
                own = self._taps, self._ranges, self._remat, policy.output
                if own == _NONE and not ctx.interceptors:
                    outputs = self.call(*args, **kwargs)
                else:
                    chain = (*ctx.interceptors, *_own_interceptors(*own))
                    outputs = intercept(chain, self, args, kwargs)
        finally:
            ctx.training, ctx.asked, ctx.running = outer
    except Exception as error:
        _explain(self, error, args, kwargs, ctx)
        raise
    if cls._makes_mask or (masks is not None and self.supports_masking):
        mask = self.compute_mask(args[0] if args else None, masks)
        _attach_masks(outputs, mask, ctx)
    if self.activity_regularizer is not None:
        ctx.losses += [
            _activity_penalty(self.activity_regularizer, out, ctx)
            for out in jax.tree.leaves(outputs)
        ]
    return outputs


def _own_interceptors(taps: Any, ranges: Any, rule: Any, dtype: Any) -> list[Any]:
    """What surrounds a layer's calls in every pass, the outermost first.

    Functions that get its outputs, the dtype of those, ranges, rematerialization.
    """
    observers = [] if taps is None else taps.value
    cast = None if dtype is None else CastOutputs(dtype)
    return [*observers, *(one for one in (cast, ranges, rule) if one is not None)]


def _input_masks(info: Any, args: tuple, kwargs: dict[str, Any], ctx: Context) -> Any:
    """The mask of the first argument; passed to ``call`` if it takes one."""
    if not args:
        return kwargs.get("mask")
    leaves = jax.tree.leaves(args[0])
    masks = [ctx.mask_of(leaf) for leaf in leaves]
    if isinstance(args[0], list | tuple | dict):
        mask = masks if any(m is not None for m in masks) else None
    else:
        mask = masks[0] if masks else None
    if info.takes_mask and kwargs.get("mask") is None and mask is not None:
        kwargs["mask"] = mask
    return kwargs["mask"] if kwargs.get("mask") is not None else mask


def _attach_masks(outputs: Any, mask: Any, ctx: Context) -> None:
    masks = mask if isinstance(mask, list | tuple) else [mask]
    for leaf, m in zip(jax.tree.leaves(outputs), masks, strict=False):
        if m is not None:
            ctx.set_mask(leaf, m)


def _activity_penalty(regularizer: Any, out: Any, ctx: Context) -> Any:
    """The regularizer's mean over the real rows."""
    if not out.ndim:
        return regularizer(out)
    rows, real = max(out.shape[0], 1), ctx.row_mask
    if real is not None and real.shape[0] == out.shape[0]:
        out = jnp.where(real.reshape((-1,) + (1,) * (out.ndim - 1)), out, 0)
        rows = jnp.maximum(real.sum(), 1)
    return regularizer(out) / rows


def _build_for_call(
    layer: Any, info: Any, args: tuple, kwargs: dict[str, Any], ctx: Context
) -> None:
    """Builds a layer for what it is called on."""
    shapes = info.shapes(layer, args, kwargs)
    if ctx.builds is not None:
        ctx.builds.append((id(layer), shapes))
        try:
            layer._build(shapes)
        except TraceContextError as error:  # in lax.scan, jax.grad …; see `infer`
            raise _not_built(layer) from error
        return
    try:
        if random_keys.tracing():
            _build_in_trace(layer, shapes)
            return
        # The layer remembers the call, not the data.
        arrays, rebuild = remat.arrays_of((args, kwargs))
        specs, masks = map(spec_like, arrays), map(ctx.mask_of, arrays)
        infer(layer, *with_masks(rebuild, list(specs), list(masks)))
    except TraceContextError as error:
        raise _not_built(layer) from error
    materialize(layer)


def _build_in_trace(layer: Any, shapes: tuple) -> None:
    """Builds a layer that was made in a call, as by ``layers.add([x, y])``."""
    if not layer._has_build and not any(children(layer)):
        return  # nothing to build
    with intact(layer):
        if not any(children(layer)):
            layer._build(shapes)
        if any(children(layer)):
            raise _not_built(layer)


def _not_built(layer: Any) -> NotBuiltError:
    return NotBuiltError(
        layer.name,
        "a layer must be built before it is called inside jax.jit, jax.grad or "
        "jax.vmap",
        hint="Call it once on data, call build(shape), or give the model an "
        "Input(shape).",
    )


def _explain(
    layer: Any, error: Exception, args: tuple, kwargs: dict, ctx: Context
) -> None:
    """Says in an error of a call which layer it was."""
    if isinstance(error, TypeError) and not layer._call_info.takes_any:
        names = layer.call_signature_parameters
        if not kwargs.keys() <= {*names}:
            raise unknown_argument(layer.name, kwargs, names) from None
    if (unbuilt := _called_unbuilt(error)) is None:
        _add_place(layer, error, args, ctx)
        return
    cause = NotBuiltError(
        unbuilt.name,
        "its `call` runs by itself, which builds no layer",
        hint="Call the layer, layer(x), or build it: layer.build(shape).",
    )
    _add_place(layer, cause, args, ctx)
    raise cause from error


def _add_place(layer: Any, error: Exception, args: tuple, ctx: Context) -> None:
    if any(place.startswith("in layer ") for place in places_of(error)):
        return
    path = ctx.paths.get(id(layer)) or layer.name
    shown = [f"{name}{describe(value)}" for name, value in _named_arrays(args)]
    shapes = ", ".join(shown[:_SHOWN]) + (", …" if len(shown) > _SHOWN else "")
    received = f", which received {shapes}" if shapes else ""
    place = f"in layer {path!r} ({type(layer).__name__}){received}"
    locate(error, place, hint=tracer_hint(error))


def _named_arrays(args: tuple) -> Iterator[tuple[str, Any]]:
    """The arrays among the arguments; those of a dict of arrays with their names."""
    for value in args:
        if isinstance(value, dict):
            for key, part in value.items():
                yield from ((f"{key}: ", leaf) for leaf in jax.tree.leaves(part))
        else:
            yield from (("", leaf) for leaf in jax.tree.leaves(value))


def _called_unbuilt(error: Exception) -> Any:
    """The layer without weights whose ``call`` raised, if ``__call__`` did not call it.

    ``__call__`` builds a layer first.
    """
    if isinstance(error, ExBurnError):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        layer: Any = frame.f_locals.get("self")
        if frame.f_code.co_name != "call" or not is_layer(layer):
            continue
        if not layer.built and layer._has_build:
            return layer
    return None
