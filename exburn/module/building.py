"""Making a layer's weights: ``build``, discovering shapes, filling values."""

from __future__ import annotations

import contextlib
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import jax
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from exburn.core import forward_context, random_keys, registry
from exburn.core.forward_context import Interceptor
from exburn.core.making import making
from exburn.core.printing import size_text
from exburn.core.substitution import making_clone, substituting
from exburn.core.symbolic_shapes import (
    canonical_spec,
    common_sizes,
    dim,
    public_shape,
    specs_of,
    trace_shapes,
)
from exburn.errors import ArgumentError, NotBuiltError, OutOfMemoryError
from exburn.errors.boundary import api_boundary
from exburn.module.copying import own_classes, running_copy
from exburn.module.deferred_placement import place_value
from exburn.module.meta import is_layer, spread_freezing
from exburn.module.policies import follow_map, spread_policy
from exburn.module.reached import Discovery
from exburn.module.signature import build_names, init_names
from exburn.module.stateless_scope import set_values
from exburn.module.traced_shapes import call_key, keep_result, result_of
from exburn.module.traversal import children, held_metrics, iter_modules, iter_weights
from exburn.runtime.device import wake
from exburn.runtime.failures import is_exhausted

_LARGE = 1 << 16  # numbers that are worth a thread's while


def keeping_specs() -> contextlib.AbstractContextManager[Any]:
    """Within the block no weights are drawn: those that are specs stay specs."""
    return making.change(draws=False)


@api_boundary
@contextlib.contextmanager
def without_weights() -> Iterator[None]:
    """Within the block models are made, changed and planned without their weights.

    No weight is drawn and no file's tensors are read: a model of any size is there at
    once, and takes no memory. ``quantize``, ``add_lora``, ``remat``, ``compile`` and
    ``plan`` work on it; what needs values does not. Behind the block, weights of a
    folder are an error, and others are drawn when they are first needed.

    Example:
        >>> import exburn
        >>> with exburn.models.without_weights():
        ...     model = exburn.applications.Llama(dtype="bfloat16")  # 7 billion
        ...     _ = model.add_lora(16)
        ...     shapes = [weight.shape for weight in model.trainable_weights]
        >>> shapes[:2]
        [(32000, 16), (16, 4096)]
    """
    with keeping_specs():
        yield


def leave_unread(root: Any) -> None:
    """Notes that the weights of a model were to come from a file, and were not read."""

    def draw(shape: Any, dtype: Any = None, **_: Any) -> Any:
        raise NotBuiltError(
            root.name,
            "its weights were not read: it was made within without_weights(), to be "
            "planned",
            hint="Make it again outside of the block, by from_pretrained.",
        )

    for _, weight, _ in iter_weights(root):
        weight.set_metadata("initializer", draw)


def is_spec(value: Any) -> bool:
    """Whether a value is the shape and dtype of an array that is not there."""
    return isinstance(value, jax.ShapeDtypeStruct)


def are_kept_specs() -> bool:
    """Whether the block is one of ``keeping_specs``."""
    return not making.get().draws


def materialize(root: Any, seed: int | None = None) -> None:
    """Fills the weights that are still specs, from the seed and their paths.

    A model that is being read from a file gets its values from there: its weights stay
    specs until their sizes have been compared. So they do within ``keeping_specs``.
    """
    if registry.from_file() or not making.get().draws:
        return
    seed = random_keys.global_seed() if seed is None else seed
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    values: dict[str, tuple[Any, Any]] = {}  # by path: the weight, and its value
    # Values, not tracers, if a function that JAX traces uses them first.
    with (
        jax.ensure_compile_time_eval(),
        ThreadPoolExecutor(os.cpu_count() or 1) as threads,
    ):
        for path, weight, _ in iter_weights(root):
            spec = weight.get_raw_value()
            if not isinstance(spec, jax.ShapeDtypeStruct):
                continue
            make = weight.get_metadata("initializer")
            rng = random_keys.philox(top + path, seed)
            draw = functools.partial(make, spec.shape, spec.dtype, rng=rng)
            apart = getattr(make, "apart", False) and math.prod(spec.shape) >= _LARGE
            with _needing_memory(top + path, spec):
                values[top + path] = weight, threads.submit(draw) if apart else draw()
        for path, (weight, value) in values.items():  # all are made while a GPU starts
            with _needing_memory(path, weight.get_raw_value()):
                value = value.result() if isinstance(value, Future) else value
                value = np.asarray(value, weight.get_raw_value().dtype)
                array = place_value(value, weight, root._meta.value.initial, path)
            if set_values([(weight, array)]):
                raise TraceContextError(f"{path} is of another trace")
    if values:
        place(root)
    for _, module in iter_modules(root):  # those made with a quantized policy
        if getattr(module, "_given_policy", None) is not None:
            module._pack()


@contextlib.contextmanager
def _needing_memory(path: str, spec: Any) -> Iterator[None]:
    """In the block, memory that is not there for a weight is an error that names it."""
    try:
        yield
    except (MemoryError, jax.errors.JaxRuntimeError) as error:
        if not (isinstance(error, MemoryError) or is_exhausted(error)):
            raise
        if isinstance(error, OutOfMemoryError):
            raise
        size = math.prod(spec.shape) * spec.dtype.itemsize
        raise OutOfMemoryError(
            "build",
            "there is not enough memory for the weights of the model",
            {
                "weight": path,
                "shape": tuple(spec.shape),
                "needed for it": size_text(size),
                "said": str(error).partition("\n")[0],
            },
            hint="Make the layer smaller; or compile(mesh=…) divides weights over "
            "several devices.",
        ) from None


def require_built(model: Any, op: str) -> None:
    """Refuses a model without weights; those that are still specs are made."""
    if not model.built:
        raise NotBuiltError(
            op,
            "the model has no weights before it is built",
            hint="Give it an Input(shape), or call it on data first.",
        )
    materialize(model)


def place(root: Any) -> None:
    """Tells layers and weights their paths below this root, the outermost so far."""
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    for path, module in iter_modules(root):
        if path and hasattr(module, "_meta"):
            module._meta.value.path = top + path
    for path, weight, _ in iter_weights(root):
        if (where := weight.get_metadata().get("place")) is not None:  # not flax's own
            where.path = top + path


def reseed(root: Any, seed: int) -> None:
    """Draws the weights again that nobody has changed since they were made."""
    initial = root._meta.value.initial
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    for path, weight, _ in iter_weights(root):
        value = weight.get_raw_value()
        if initial.get(top + path) is value and "initializer" in weight.get_metadata():
            weight.set_raw_value(spec_like(value))
    materialize(root, seed)


def redraw(
    root: Any, seed: int, shapes: Mapping[str, tuple[int, ...]] | None = None
) -> dict[str, np.ndarray]:
    """What ``reseed`` would give the weights, by path; it gives them nothing.

    Args:
        shapes: Other shapes of some, as they would be in a narrower layer.
    """
    initial, arrays = root._meta.value.initial, {}
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    for path, weight, _ in iter_weights(root):
        value = weight.get_raw_value()
        make = weight.get_metadata().get("initializer")
        if make is None or initial.get(top + path) is not value:
            continue
        shape = (shapes or {}).get(path, value.shape)
        rng = random_keys.philox(top + path, seed)
        arrays[path] = np.asarray(make(shape, value.dtype, rng=rng), value.dtype)
    return arrays


def spec_like(value: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array."""
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


class NoteShapes(Interceptor):
    """Notes the specs of what each layer of a pass returns at its first call."""

    def __init__(self, shapes: dict[str, Any]):
        self.shapes = shapes

    def __call__(self, layer: Any, call: Callable, args: tuple, kwargs: dict) -> Any:
        outputs, ctx = call(*args, **kwargs), forward_context.current()
        assert ctx is not None
        specs = jax.tree.map(spec_like, outputs)
        self.shapes.setdefault(ctx.path_of(layer), specs)
        return outputs


def inspect_call(layer: Any) -> tuple[Any, dict[str, Any]] | None:
    """The jaxpr of one call, and the output specs of every layer in it, by path.

    ``None`` if the layer has not been called on a known shape yet, or takes neither an
    unknown number of rows nor a single one.
    """
    if layer._meta.value.traced is None:
        return None
    rebuild, specs = layer._meta.value.traced
    specs = [canonical_spec(spec) for spec in specs]
    # Arrays that are plain attributes stay what they are.
    graphdef, state, constants = nnx.split(layer, nnx.Variable, ...)
    # No array stays here: errors of the trace keep this frame, and what is kept cannot
    # be given to a program.
    state = jax.tree.map(spec_like, state)
    params, treedef = jax.tree.flatten(state)
    shapes: dict[str, Any] = {}

    def run(*values):
        state = jax.tree.unflatten(treedef, values[len(specs) :])
        copy = nnx.merge(graphdef, state, constants)
        with running_copy(layer, copy, NoteShapes(shapes)):
            args, kwargs = rebuild(values[: len(specs)])
            return copy._call_arrays(args, kwargs)

    with untouched_metrics(layer):
        for sizes in (specs, [_one_row(spec) for spec in specs]):
            with contextlib.suppress(Exception):  # an earlier trace told of mistakes
                return jax.make_jaxpr(run)(*sizes, *params), shapes
    return None


@contextlib.contextmanager
def untouched_metrics(root: Any) -> Iterator[None]:
    """Metrics that the layers update hold no tracers after the trace in the block."""
    with contextlib.ExitStack() as stack:
        for metric in held_metrics(root):
            stack.enter_context(metric.kept())
        yield


def _one_row(spec: Any) -> jax.ShapeDtypeStruct:
    sizes = tuple(d if isinstance(d, int) else 1 for d in spec.shape)
    return jax.ShapeDtypeStruct(sizes, spec.dtype)


@contextlib.contextmanager
def intact(root: Any) -> Iterator[None]:
    """If the block raises, no layer below ``root`` stays built or changed by it."""
    layers = [m for _, m in iter_modules(root) if hasattr(m, "_meta")]
    before = [
        (layer, dict(vars(layer)), len(layer._meta.value.calls))
        for layer in layers
        if layer is root or not layer.built
    ]
    try:
        yield
    except Exception:
        for layer, attributes, calls in before:
            vars(layer).clear()
            vars(layer).update(attributes)
            del layer._meta.value.calls[calls:]
        raise


def build_for(layer: Any, x: Any, *, training: bool | None = None) -> None:
    """Builds a layer for inputs like a batch's, of any number of rows.

    A layer that computes with the batch's own number of rows alone, as it draws noise
    for so many, is built for that number.
    """
    free = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((dim(0), *s.shape[1:]), s.dtype), x
    )
    leaves, treedef = jax.tree.flatten(free)
    rebuild = lambda values: ((treedef.unflatten(values),), {})  # noqa: E731
    try:
        _build_on(layer, rebuild, leaves, training)
    except Exception:
        # A symbol for the rows fits no number, and what the layer makes of that may be
        # any error. If its own number fails as well, the first error tells more.
        with contextlib.suppress(Exception):
            _build_on(layer, rebuild, jax.tree.leaves(x), training)
            return
        raise


def _build_on(layer: Any, rebuild, specs: list, training: bool | None) -> None:
    """Builds a layer for specs; one attempt, which leaves nothing if it fails."""
    wake()
    with intact(layer):
        if not layer.built and getattr(layer, "is_model", False):
            layer._build(type(layer)._call_info.shapes(layer, *rebuild(specs)))
            if layer.graph is not None:  # of symbols, for which each layer was traced
                layer._meta.value.traced = rebuild, specs
                return
        infer(layer, rebuild, specs, training=training)


def with_masks(rebuild, specs: list, masks: list) -> tuple[Any, list]:
    """``rebuild`` and ``specs`` of a call, with those of the masks of its values."""
    places = [i for i, mask in enumerate(masks) if mask is not None]
    if not places:
        return rebuild, specs

    def attach(values):
        values, arrays = list(values[: len(specs)]), values[len(specs) :]
        if (ctx := forward_context.current()) is not None:
            for i, mask in zip(places, arrays, strict=True):
                ctx.set_mask(values[i], mask)
        return rebuild(values)

    return attach, [*specs, *(spec_like(masks[i]) for i in places)]


def infer(
    layer: Any, rebuild, specs: list, *, training: bool | None = None
) -> tuple[Any, list]:
    """Output specs for input specs; builds every layer that the call reaches.

    With them come the specs of the outputs' masks, ``None`` where there is no mask.

    The call is traced on a copy. Layers that the copy met unbuilt are then built in the
    original, outside of the trace, and those that nobody held are held, until a trace
    meets none. If one of them cannot be built, none is.
    """
    wake()
    with intact(layer), untouched_metrics(layer):
        args, kwargs = rebuild(specs)
        if not layer.built:
            layer._build(type(layer)._call_info.shapes(layer, args, kwargs))
        key = call_key(layer, args, kwargs, specs, training)
        if (result := result_of(key)) is None:
            result = _infer(layer, rebuild, specs, training)
            keep_result(key, result)
        layer._meta.value.traced = (rebuild, specs)
        return result


def _infer(layer: Any, rebuild, specs: list, training: bool | None) -> tuple[Any, list]:
    while True:
        graphdef, state, rest = nnx.split(layer, nnx.Variable, ...)
        abstract, treedef = jax.tree.flatten(state)
        traces: list[dict[str, tuple]] = []  # of each: layers met unbuilt, and shapes
        discoveries: list[Discovery] = []

        def run(
            *values,
            graph=(graphdef, treedef, rest),
            traces=traces,
            discoveries=discoveries,
        ):
            graphdef, treedef, rest = graph
            state = jax.tree.unflatten(treedef, values[len(specs) :])
            copy = nnx.merge(graphdef, state, rest)
            ctx = forward_context.Context(
                key=jax.random.key(0), discovering=True, training=bool(training)
            )
            ctx.asked = training is not None
            discoveries.append(discovery := Discovery(layer, copy, ctx))
            try:
                with forward_context.forward(ctx), substituting(discovery.scope):
                    args, kwargs = rebuild(values[: len(specs)])
                    outputs = copy._call_arrays(args, kwargs)
                    return outputs, ctx.attachments(outputs)[1]
            finally:
                met: dict[str, tuple] = {}
                for module_id, shapes in ctx.builds or ():
                    if module_id in ctx.paths:
                        met.setdefault(ctx.paths[module_id], shapes)
                traces.append(met)

        params, result = [spec_like(v) for v in abstract], (None, [])
        failed: Exception | None = None
        try:
            where = f"layer {layer.name!r}"
            result = trace_shapes(run, [*specs, *params], where=where)
        except Exception as error:
            failed = error
        if any([discovery.settle() for discovery in discoveries]):
            continue
        # A layer that is met first within another trace is built outside of it.
        if failed and not (isinstance(failed, NotBuiltError) and any(traces)):
            raise failed
        unbuilt = _join_traces(traces)
        if not unbuilt:
            return result
        originals = dict(iter_modules(layer))
        for path, shapes in unbuilt.items():
            if not originals[path].built:
                originals[path]._build(shapes)
        if not failed and not waits_inside(layer):
            return result  # another trace would find the same


def waits_inside(layer: Any) -> bool:
    """Whether a layer inside has weights to make, or may have."""
    return any(
        is_layer(part) and not part.built and (part._has_build or any(children(part)))
        for _, part in iter_modules(layer)
    )


def _join_traces(traces: list[dict[str, tuple]]) -> dict[str, tuple]:
    """The shapes that each layer is built for.

    The first trace knows what is unknown. Those behind it are trials of several sizes,
    where the layer was not reached with symbols: what differs is unknown.
    """
    joint = dict(traces[0])
    for trial in traces[1:]:
        for path, shapes in trial.items():
            if path not in traces[0]:
                joint[path] = common_sizes(joint.get(path, shapes), shapes)
    return joint


# ------------------------------------------------------------------ build itself
def build_once(self: Any, shapes: tuple) -> None:
    """Runs ``build`` on public shapes, for a call that finds the layer unbuilt."""
    follow_map(self)
    if self._has_build:
        with self._meta.value.under_way():
            self.build(*shapes)
    self._note_shapes(*shapes)
    _finish(self)


def complete_build(build: Callable) -> Callable:
    """``build`` of a class: called by hand, it leads to a built layer.

    Layers inside that it leaves to their first call are built as that would, where the
    shapes say what ``call`` takes.
    """

    @functools.wraps(build)
    def run(self, *shapes, **named):
        meta = self._meta.value
        if meta.building:  # as super().build(…), or by a call
            build(self, *shapes, **named)
            return
        with intact(self):
            follow_map(self)
            with meta.under_way():
                build(self, *shapes, **named)
            self._note_shapes(*shapes, **named)
            _finish(self)
            sizes = (*shapes, *named.values())
            if self._call_info.is_enough(len(sizes)) and waits_inside(self):
                follow_call(self, sizes)

    return run


def _finish(layer: Any) -> None:
    """Has the layers that ``build`` made follow this one, which is built now."""
    spread_policy(layer)
    spread_freezing(layer)
    layer.built = True
    follow_map(layer)


def follow_call(layer: Any, shapes: tuple) -> None:
    """Builds what ``call`` reaches for inputs of these shapes."""
    specs, treedef = jax.tree.flatten(
        [specs_of(shape, layer.compute_dtype) for shape in shapes]
    )
    if not specs:
        raise ArgumentError(
            layer.name,
            "the shape of the input is needed to build the layers inside",
            hint=f"{layer.name}.build((None, 4)), with None for the batch.",
        )
    infer(layer, lambda values: (treedef.unflatten(values), {}), specs)


def refuse_other_weights(layer: Any, name: str, value: Any) -> None:
    """Refuses an option of a built layer for which it would have had other weights.

    The weights stay those that were made, so that the option would be a lie: in calls,
    which do not read it, and in files, which could not be read again.
    """
    meta, shapes = layer._meta.value, layer._meta.value.shapes
    if not layer.built or layer.is_model or not any(shapes) or name in meta.harmless:
        return
    before = vars(layer).get(name)
    kinds = bool | int | float | str | tuple | list | None
    if not isinstance(before, kinds) or not isinstance(value, kinds) or before == value:
        return
    if name not in init_names(type(layer)) or not (old := _weights_of(layer, {})):
        return
    new = _weights_of(layer, {name: value})
    if old == new:
        if isinstance(value, float):  # a hook may set a rate for each step
            meta.harmless |= {name}
        return
    differing = next(p for p in old | new if old.get(p) != new.get(p))
    raise ArgumentError(
        layer.name,
        f"{name} cannot change once the layer is built",
        {
            "set": f"{before!r} → {value!r}",
            f"weight {differing!r}": f"{old.get(differing)} → {new.get(differing)}",
        },
        hint=f"Make a new layer: {type(layer).__name__}.from_config(layer.get_config() "
        f"| {{{name!r}: {value!r}}}).",
    )


def _weights_of(layer: Any, options: dict[str, Any]) -> dict[str, tuple[int, ...]]:
    """Shapes of the weights that a layer like this one would have, drawing none."""
    config = layer.get_config() | options
    build_config = layer.get_build_config()

    def make() -> dict[str, Any]:
        with registry.custom_objects(own_classes(layer)), making_clone():
            fresh = type(layer).from_config(config)
            fresh.build_from_config(build_config)
        return {path: weight.get_value() for path, weight, _ in iter_weights(fresh)}

    specs = jax.eval_shape(make)
    return {path: spec.shape for path, spec in specs.items()}


def get_build_config(self: Any) -> dict[str, Any] | None:
    """The shapes that the layer was built for; ``None`` before.

    A class may override it, and ``build_from_config``, to keep more: files of
    models have what such a class returns.

    Example:
        >>> from exburn.layers import Dense
        >>> layer = Dense(2)
        >>> layer.build((None, 3))
        >>> layer.get_build_config()
        {'input_shape': (None, 3)}

    Source: Keras, ``Layer.get_build_config``.
    """
    positional, named = self._meta.value.shapes
    names = build_names(self) or ["input_shape"]  # of ``build(self, *shapes)``
    shapes = dict(zip(names, positional, strict=False)) | named
    if len(shapes) > 1:
        return {"shapes_dict": shapes}
    return {"input_shape": shapes.popitem()[1]} if shapes else None


def build_from_config(self: Any, config: Mapping[str, Any] | None) -> None:
    """Makes the weights for the shapes that ``get_build_config`` told.

    Args:
        config: What it returned; nothing is made of ``None``.
    """
    if config and "shapes_dict" in config:
        self.build(**{k: _as_tuples(v) for k, v in config["shapes_dict"].items()})
    elif config and config.get("input_shape") is not None:
        self.build(_as_tuples(config["input_shape"]))


def _as_tuples(shapes: Any) -> Any:
    """(Lists and dicts of) shapes, as lists in JSON, as tuples."""
    return jax.tree.map(lambda spec: public_shape(spec.shape), specs_of(shapes, "bool"))
