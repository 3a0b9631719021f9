"""The way from a layer's ``__call__`` to its ``call``, on arrays and on symbols."""

from __future__ import annotations

import reprlib
import traceback
import weakref
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from exburn.core import forward_context
from exburn.core.precision import is_float
from exburn.core.substitution import stand_in
from exburn.core.symbolic_shapes import describe, is_text, meeting
from exburn.errors import ArgumentError, DTypeError, ExBurnError, NotBuiltError
from exburn.kernels.dropout_mask import keep_mask
from exburn.module import forward_hooks, remat, stateless_scope
from exburn.module.building import infer, intact, materialize, spec_like, with_masks
from exburn.module.deferred_placement import arrive
from exburn.module.input_spec import check_inputs
from exburn.module.layer.buildable import Buildable
from exburn.module.reached import adopt, as_reached, made_in
from exburn.module.symbolic_tensor import (
    Symbol,
    as_places,
    as_strings,
    has_symbol,
    is_whole,
    record,
    with_given_mask,
)
from exburn.module.traversal import children, iter_modules, iter_weights, survey
from exburn.module.variable import alive
from exburn.runtime.placement import refuse_apart

__all__ = ["Calling"]

_SHOWN = 8  # arrays that a note on an exception describes


def _place(layer: Calling) -> tuple[forward_context.Context, str]:
    """The forward pass under way, and the layer's path in it."""
    ctx, layer = (
        forward_context.current() or forward_context.Context(),
        stand_in(layer),
    )
    return ctx, ctx.paths.get(id(layer), layer.name)


class Calling(Buildable):
    """What a ``Layer`` does when it is called.

    Attributes:
        on_host: Whether it works in NumPy: in a model, in front of the program.
        moves_text: Whether it only moves its inputs' entries, and so takes strings.
    """

    on_host = False
    moves_text = False

    def call(self, *args, **kwargs):
        """Computes the output. May take ``training`` and ``mask`` if it wants them."""
        raise ArgumentError(
            type(self).__name__,
            "a layer needs a method call(self, inputs)",
            hint="Write def call(self, inputs): … in the class.",
        )

    @property
    def callable(self) -> bool:
        """Whether the class says how to compute an output."""
        return type(self).call is not Calling.call

    def compute_mask(self, inputs, previous_mask=None):
        """Mask of the output; by default the input's, if the layer supports masking."""
        return previous_mask if self.supports_masking else None

    def add_loss(self, loss) -> None:
        """Adds a scalar, or the sum of an array, to the loss; call it from ``call``."""
        ctx = forward_context.current()
        if ctx is not None:
            ctx.losses += loss if isinstance(loss, list | tuple) else [loss]

    @property
    def losses(self) -> list[jax.Array]:
        """What the last call of this layer added, and the penalties of its weights.

        Example:
            >>> from exburn.layers import Dense
            >>> layer = Dense(1, kernel_initializer="ones", kernel_regularizer="l2")
            >>> layer.build((None, 3))
            >>> [round(float(loss), 3) for loss in layer.losses]  # 0.01 · (1 + 1 + 1)
            [0.03]
        """
        penalties = [
            regularizer(weight.get_value())
            for weight in self.trainable_weights
            if (regularizer := weight.get_metadata().get("regularizer"))
        ]
        ctx = forward_context.current()
        added = _added.get(self, ())
        if ctx is not None and ctx.root is self:  # in a model's compute_loss
            added = ctx.losses
        return [*added, *penalties]

    def random_key(self) -> jax.Array:
        """A fresh PRNG key for this call: a function of seed, step and path."""
        ctx, path = _place(self)
        return ctx.random_key(path)

    def _keep_mask(self, rate: float, shape: Any, seed: int | None = None) -> Any:
        """What dropout at this rate keeps (`keep_mask`): the layer's next draw."""
        ctx, path = _place(self)
        key, number = ctx.draw(path)
        return keep_mask(
            key, rate, shape, forward_context.path_hash(f"{number} {seed}")
        )

    def __call__(self, *args, **kwargs):
        if not args:
            args, kwargs = self._call_info.by_place(kwargs)
        if has_symbol((args, kwargs)):
            return self._call_symbols(args, kwargs)
        if forward_context.current() is None:
            arrive()
            if self.built:
                for weight in self._require_weights():
                    alive(stand_in(weight).get_raw_value())
            ctx = forward_context.Context(
                training=bool(kwargs.get("training") or False)
            )
            ctx.asked = kwargs.get("training") is not None
            ctx.paths, reaching = survey(self)
            try:
                with forward_context.forward(ctx), as_reached(self, reaching):
                    outputs = self._call_arrays(args, kwargs)
            except ValueError as error:
                given = dict(zip(self._call_info.order, args, strict=False)) | kwargs
                held = {path: w.get_raw_value() for path, w, _ in iter_weights(self)}
                refuse_apart(self.name, error, given | {"weights": held})
                raise
            _added[self] = ctx.losses
            if (scope := stateless_scope.current()) and scope.collect_losses:
                scope.losses += ctx.losses
            ctx.carry(outputs)
            return outputs
        return self._here()._call_arrays(args, kwargs)

    def _here(self) -> Calling:
        """What stands for the layer in the pass under way; held by whom it calls it."""
        ctx, layer = forward_context.current(), stand_in(self)
        assert ctx is not None
        if id(layer) in ctx.paths or ctx.running is None:
            return layer
        if forward_context.tracing() or made_in(ctx, layer):
            return layer
        return adopt(ctx.running, layer)

    def _call_symbols(self, args, kwargs):
        leaves, treedef = jax.tree.flatten((args, kwargs), is_leaf=is_whole)
        leaves = [with_given_mask(v) if isinstance(v, Symbol) else v for v in leaves]
        args, kwargs = jax.tree.unflatten(treedef, leaves)
        is_symbol = [isinstance(leaf, Symbol) for leaf in leaves]
        given = [v for v in leaves if isinstance(v, Symbol)]

        def rebuild(values):
            values = iter(values)
            full = [
                next(values) if s else v for s, v in zip(is_symbol, leaves, strict=True)
            ]
            return jax.tree.unflatten(treedef, full)

        if text := any(map(is_text, given)):
            self._require_moves(given)
        specs, masks = [as_places(v.spec) for v in given], [v.mask for v in given]
        outputs, found = meeting(
            lambda specs: infer(self, *with_masks(rebuild, specs, masks)), specs, []
        )
        symbols = record(self, args, kwargs, as_strings(outputs) if text else outputs)
        if made := jax.tree.leaves(symbols):  # `rebuild` still needs the leaves
            self._meta.value.calls.append(made[0].call)
        for symbol, mask in zip(made, found, strict=True):
            symbol.mask = mask
        return symbols

    def _require_moves(self, given: list[Symbol]) -> None:
        """Raises a DTypeError if strings would be computed with."""
        if self.moves_text and all(map(is_text, given)):
            return
        raise DTypeError(
            self.name,
            f"{type(self).__name__} computes with numbers, but is given strings",
            {"received": ", ".join(map(describe, given))},
            hint=self._string_hint(),
        )

    def _string_hint(self) -> str:
        """What to do about strings that a layer is given."""
        layers = (m for _, m in iter_modules(self) if getattr(m, "on_host", False))
        if (lookup := next(layers, None)) is None:
            return (
                "Make numbers of them first: StringLookup, Hashing or "
                "TextVectorization, called on the input."
            )
        return (
            f"Its call becomes a program, which has no strings: call {lookup.name!r} "
            "in front, word = Input((1,), dtype='string'); Model(word, "
            f"{self.name}(lookup(word))), or map the data: lookup(x)."
        )

    def _call_arrays(self, args, kwargs):
        info = type(self)._call_info
        ctx = forward_context.current()
        assert ctx is not None
        args, kwargs = self._cast_inputs(args, kwargs)
        try:
            self._ensure_built(info, args, kwargs, ctx)
            self._check_input(args)
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
                masks = self._input_masks(info, args, kwargs, ctx)
                ctx.running = self
                with self.precision.matmuls():
                    outputs = self._run_call(args, kwargs, ctx)
            finally:
                ctx.training, ctx.asked, ctx.running = outer
            if self.precision.output is not None:
                outputs = self._cast_outputs(outputs, ctx)
        except Exception as error:
            if (unbuilt := _called_unbuilt(error)) is not None:
                told = NotBuiltError(
                    unbuilt.name,
                    "its `call` runs by itself, which builds no layer",
                    hint="Call the layer, layer(x), or build it: layer.build(shape).",
                )
                self._note(told, args, ctx)
                raise told from error
            self._note(error, args, ctx)
            raise
        if ctx.shapes is not None:
            path = ctx.paths.get(id(self), self.name)
            ctx.shapes.setdefault(path, jax.tree.map(spec_like, outputs))
        if self._taps is not None or ctx.captured is not None:
            forward_hooks.observe(self, outputs, ctx)
        keeps = masks is not None and self.supports_masking
        if keeps or self._makes_mask():
            mask = self.compute_mask(args[0] if args else None, masks)
            self._attach_masks(outputs, mask, ctx)
        if self.activity_regularizer is not None:
            ctx.losses += [
                self._activity_penalty(out, ctx) for out in jax.tree.leaves(outputs)
            ]
        return outputs

    def _run_call(self, args, kwargs, ctx):
        gradient = ctx.training and ctx.builds is None and ctx.captured is None
        if self._remat is None or not gradient:
            return self.call(*args, **kwargs)
        return remat.call(self, args, kwargs, self._remat)

    def _ensure_built(self, info, args, kwargs, ctx):
        if self.built:
            return
        shapes = info.shapes(self, args, kwargs)
        if ctx.builds is not None:
            ctx.builds.append((id(self), shapes))
            try:
                self._build(shapes)
            except TraceContextError as error:  # in lax.scan, jax.grad …; see `infer`
                raise self._not_built() from error
            return
        try:
            if forward_context.tracing():
                self._build_in_trace(shapes)
                return
            # The layer remembers the call, not the data.
            arrays, rebuild = remat.arrays_of((args, kwargs))
            specs, masks = map(spec_like, arrays), map(ctx.mask_of, arrays)
            infer(self, *with_masks(rebuild, list(specs), list(masks)))
        except TraceContextError as error:
            raise self._not_built() from error
        materialize(self)

    def _build_in_trace(self, shapes: tuple) -> None:
        """Builds a layer that was made in a call, as by ``layers.add([x, y])``."""
        if type(self).build is Buildable.build and not any(children(self)):
            return  # nothing to build
        with intact(self):
            if not any(children(self)):
                self._build(shapes)
            if any(children(self)):
                raise self._not_built()

    def _not_built(self) -> NotBuiltError:
        return NotBuiltError(
            self.name,
            "a layer must be built before it is called inside jax.jit, jax.grad or "
            "jax.vmap",
            hint="Call it once on data, call build(shape), or give the model an "
            "Input(shape).",
        )

    def _check_input(self, args) -> None:
        if self.input_spec is not None and args:
            check_inputs(self.name, self.input_spec, args[0])

    def _note(self, error: Exception, args, ctx) -> None:
        if getattr(error, "_exburn_noted", False):
            return
        path = ctx.paths.get(id(self)) or self.name
        leaves = jax.tree.leaves(args)
        shapes = ", ".join(describe(v) for v in leaves[:_SHOWN])
        shapes += ", …" if len(leaves) > _SHOWN else ""
        error.add_note(f"in layer {path!r} ({type(self).__name__}): received {shapes}")
        error._exburn_noted = True  # type: ignore[attr-defined]

    def _cast_inputs(self, args, kwargs):
        dtype = jax.dtypes.canonicalize_dtype(self.compute_dtype)
        cast = self._autocast
        done: dict[int, Any] = {}  # one array given twice stays one array

        def convert(value):
            if id(value) not in done:
                done[id(value)] = convert_one(value)
            return done[id(value)]

        def convert_one(value):
            if not _has_shape(value):
                return value
            if isinstance(value, nnx.Variable):
                value = value.get_value()
            if not isinstance(value, jax.Array | np.ndarray | np.generic):
                value = self._array_of(value)
            if jnp.issubdtype(value.dtype, jax.dtypes.prng_key):
                return value
            if cast and is_float(value.dtype) and value.dtype != dtype:
                before, ctx = value, forward_context.current()
                assert ctx is not None
                value = jnp.asarray(value, dtype)
                ctx.set_source(value, before)
                if (mask := ctx.mask_of(before)) is not None:
                    ctx.set_mask(value, mask)
                return value
            if not isinstance(value, np.ndarray):
                return value
            if value.dtype.kind in "OUSTmM":
                text = value.dtype.kind in "UST"
                raise DTypeError(
                    self.name,
                    f"arrays must hold numbers, received {describe(value)}",
                    hint=self._string_hint()
                    if text
                    else "Convert it: np.asarray(values, dtype=np.float32).",
                )
            return jnp.asarray(value)

        missing = bool(args) and args[0] is None and not self.built
        for value in [None] if missing else jax.tree.leaves(args[:1]):
            if not _has_shape(value):
                hint = "Look for a missing `return` in what computed it."
                raise self._no_array(value, args[0], hint if missing else None)
        args = jax.tree.map(convert, args)
        return args, {
            k: v if k in ("mask", "training") else jax.tree.map(convert, v)
            for k, v in kwargs.items()
        }

    def _array_of(self, value) -> np.ndarray:
        """What another library calls an array, such as a tensor, as one."""
        if not hasattr(value, "__array__"):
            dense = hasattr(value, "toarray")
            hint = "Make it dense: x.toarray()." if dense else None
            raise self._no_array(value, value, hint)
        try:
            return np.asarray(value)
        except Exception as error:  # whatever it refuses with
            raise self._no_array(value, value) from error

    def _no_array(self, value, received, hint: str | None = None) -> DTypeError:
        return DTypeError(
            self.name,
            f"a layer is called on arrays or symbols, received {type(value).__name__}",
            {"received": reprlib.repr(received)},
            hint=hint or "Make an array of it: np.array(…).",
        )

    def _cast_outputs(self, outputs, ctx):
        """The outputs in the policy's output dtype, with what is known of them."""

        def cast(value):
            dtype = jnp.dtype(self.precision.output)
            floating = hasattr(value, "dtype") and is_float(value.dtype)
            if not floating or value.dtype == dtype:
                return value
            mask, filled = ctx.mask_of(value), ctx.filled(value)
            value = value.astype(dtype)
            if mask is not None:
                ctx.set_mask(value, mask)
            if filled is not None:
                narrower = jnp.promote_types(dtype, filled.dtype) != dtype
                ctx.set_filled(value, filled.astype(dtype) if narrower else filled)
            return value

        return jax.tree.map(cast, outputs)

    def _activity_penalty(self, out, ctx):
        """The regularizer's mean over the real rows."""
        if not out.ndim:
            return self.activity_regularizer(out)
        rows, real = max(out.shape[0], 1), ctx.row_mask
        if real is not None and real.shape[0] == out.shape[0]:
            out = jnp.where(real.reshape((-1,) + (1,) * (out.ndim - 1)), out, 0)
            rows = jnp.maximum(real.sum(), 1)
        return self.activity_regularizer(out) / rows

    def _makes_mask(self) -> bool:
        return type(self).compute_mask is not Calling.compute_mask

    def _input_masks(self, info, args, kwargs, ctx):
        """The mask of the first argument; passed to ``call`` if it takes one."""
        if not args:
            return kwargs.get("mask")
        leaves = jax.tree.leaves(args[0])
        found = [ctx.mask_of(leaf) for leaf in leaves]
        if isinstance(args[0], list | tuple | dict):
            mask = found if any(m is not None for m in found) else None
        else:
            mask = found[0] if found else None
        if info.takes_mask and kwargs.get("mask") is None and mask is not None:
            kwargs["mask"] = mask
        return kwargs["mask"] if kwargs.get("mask") is not None else mask

    def _attach_masks(self, outputs, mask, ctx):
        masks = mask if isinstance(mask, list | tuple) else [mask]
        for leaf, m in zip(jax.tree.leaves(outputs), masks, strict=False):
            if m is not None:
                ctx.set_mask(leaf, m)


def _has_shape(value: Any) -> bool:
    try:
        return hasattr(value, "shape") and hasattr(value, "dtype")
    except Exception:  # rows of different lengths: torch's nested tensors raise here
        return False


# Apart from the layers: what a trace added must not outlive the trace's own copy.
_added: weakref.WeakKeyDictionary[Calling, list] = weakref.WeakKeyDictionary()


def _called_unbuilt(error: Exception) -> Calling | None:
    """The layer without weights whose ``call`` raised, if ``__call__`` did not call it.

    ``__call__`` builds a layer first.
    """
    if isinstance(error, ExBurnError):
        return None
    for frame, _ in traceback.walk_tb(error.__traceback__):
        layer = frame.f_locals.get("self")
        if frame.f_code.co_name != "call" or not isinstance(layer, Calling):
            continue
        if not layer.built and type(layer).build is not Buildable.build:
            return layer
    return None
