"""Making a layer's weights: discovering shapes, filling values, copying.

The functions take any ``exburn.module.layer.Layer``.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import math
import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from flax.errors import TraceContextError

from exburn.core import forward_context, registry
from exburn.core.batch_independence import is_foreign
from exburn.core.forward_context import Interceptor
from exburn.core.precision import DTypePolicy, is_float
from exburn.core.printing import size_text
from exburn.core.scoped import value_scope
from exburn.core.substitution import making_clone, substituting
from exburn.core.symbolic_shapes import canonical_spec, common_sizes, dim, trace_shapes
from exburn.errors import NotBuiltError, OutOfMemoryError
from exburn.module.copying import paths_of, standing_for, twin
from exburn.module.deferred_placement import place_value
from exburn.module.reached import Discovery
from exburn.module.stateless_scope import set_values
from exburn.module.traversal import children, held_metrics, iter_modules, iter_weights
from exburn.module.variable import own_copy
from exburn.runtime.device import wake
from exburn.runtime.failures import is_exhausted

_keeping: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "exburn_keeping_specs", default=False
)
_Layer = TypeVar("_Layer")
_LARGE = 1 << 16  # numbers that are worth a thread's while
_SETTINGS = bool, int, float, str, type(None)  # attributes that a copy may share


def keeping_specs() -> contextlib.AbstractContextManager[Any]:
    """Within the block no weights are drawn: those that are specs stay specs."""
    return value_scope(_keeping, True)


def materialize(root: Any, seed: int | None = None) -> None:
    """Fills the weights that are still specs, from the seed and their paths.

    A model that is being read from a file gets its values from there: its weights stay
    specs until their sizes have been compared. So they do within ``keeping_specs``.
    """
    if registry.from_file() or _keeping.get():
        return
    seed = forward_context.global_seed() if seed is None else seed
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    made: dict[str, tuple[Any, Any]] = {}  # by path: the weight, and its value
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
            rng = forward_context.philox(top + path, seed)
            draw = functools.partial(make, spec.shape, spec.dtype, rng=rng)
            apart = getattr(make, "apart", False) and math.prod(spec.shape) >= _LARGE
            with _needing_memory(top + path, spec):
                made[top + path] = weight, threads.submit(draw) if apart else draw()
        for path, (weight, value) in made.items():  # all are made while a GPU starts
            with _needing_memory(path, weight.get_raw_value()):
                value = value.result() if isinstance(value, Future) else value
                value = np.asarray(value, weight.get_raw_value().dtype)
                array = place_value(value, weight, root._meta.value.initial, path)
            if set_values([(weight, array)]):
                raise TraceContextError(f"{path} is of another trace")
    if made:
        place(root)
    for _, module in iter_modules(root):  # those made with a quantized policy
        if getattr(module, "_given_policy", None) is not None:
            module._pack()


@contextlib.contextmanager
def _needing_memory(path: str, spec: Any) -> Iterator[None]:
    """In the block, memory that is not there for a weight is an error that names it.

    Raises:
        OutOfMemoryError: There is too little, of the host or of the device.
    """
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
    """Refuses a model without weights; those that are still specs are made.

    Raises:
        NotBuiltError: It is not built.
    """
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
        root: A layer whose weights are made.
        seed: The seed.
        shapes: Other shapes of some, as they would be in a narrower layer.
    """
    initial, found = root._meta.value.initial, {}
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    for path, weight, _ in iter_weights(root):
        value = weight.get_raw_value()
        make = weight.get_metadata().get("initializer")
        if make is None or initial.get(top + path) is not value:
            continue
        shape = (shapes or {}).get(path, value.shape)
        rng = forward_context.philox(top + path, seed)
        found[path] = np.asarray(make(shape, value.dtype, rng=rng), value.dtype)
    return found


def spread_precision(
    root: Any, policy: DTypePolicy, before: DTypePolicy | None = None
) -> None:
    """Gives a policy to the root's weights and to the layers that follow the root.

    A layer follows the one around it unless it was given a policy of its own. What it
    passes on itself, as LSTM does to its cell, is none of the inner layer's own.

    Args:
        root: A layer; its own policy is set already.
        policy: The policy.
        before: The root's policy before: layers that were given this one follow, too.
    """
    initial = root._meta.value.initial
    top = "" if getattr(root, "is_model", False) else f"{root.name}/"
    old = {path: w.get_raw_value() for path, w, _ in iter_weights(root)}
    cast_weights(root, policy)
    _spread(root, policy.inner, before, {id(root)}, later=before is not None)
    for path, weight, _ in iter_weights(root):  # they are still nobody's change
        if initial.get(top + path) is old[path]:
            initial[top + path] = weight.get_raw_value()


def _spread(
    parent: Any, policy: DTypePolicy, before: Any, seen: set[int], later: bool
) -> None:
    modules: list[Any] = [
        child for _, child in children(parent) if isinstance(child, nnx.Module)
    ]
    for child in modules:
        if id(child) in seen:
            continue
        seen.add(id(child))
        if not hasattr(child, "_own_policy"):  # a plain module may hold layers
            _spread(child, policy, before, seen, later)
        elif not child._own_policy or child.precision == before:
            old, child._policy = child.precision, policy
            child._policy_was_set |= later and child._own_policy
            cast_weights(child, policy)
            model = getattr(child, "is_model", False)
            _spread(child, policy, before if model else old, seen, later)


def cast_weights(layer: Any, policy: DTypePolicy) -> None:
    """Gives a policy's dtype to the layer's own weights that have none of theirs."""
    for _, weight in children(layer):
        if not isinstance(weight, nnx.Variable) or isinstance(weight, nnx.RngState):
            continue
        value = weight.get_raw_value()
        dtype = getattr(value, "dtype", None)
        if dtype is None or weight.get_metadata().get("own_dtype"):
            continue
        if not is_float(dtype) or dtype == policy.param:
            continue
        if isinstance(value, jax.ShapeDtypeStruct):
            value = jax.ShapeDtypeStruct(value.shape, jnp.dtype(policy.param))
        else:
            value = value.astype(policy.param)
        weight.set_raw_value(value)


def spec_like(value: Any) -> jax.ShapeDtypeStruct:
    """Shape and dtype of an array."""
    return jax.ShapeDtypeStruct(value.shape, value.dtype)


class NoteShapes(Interceptor):
    """Notes the specs of what each layer of a pass returns at its first call.

    Args:
        shapes: Receives them, by path.
    """

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
        scope = standing_for(layer, copy)
        ctx = forward_context.Context(key=jax.random.key(0))
        ctx.paths = paths_of(layer, scope)
        ctx.interceptors += (NoteShapes(shapes),)
        with forward_context.forward(ctx), substituting(scope):
            args, kwargs = rebuild(values[: len(specs)])
            return copy._call_arrays(args, kwargs)

    with untouched_metrics(layer):
        for given in (specs, [_one_row(spec) for spec in specs]):
            with contextlib.suppress(Exception):  # an earlier trace told of mistakes
                return jax.make_jaxpr(run)(*given, *params), shapes
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

    Args:
        layer: The layer.
        x: Specs of the batch's inputs.
        training: What its call is told, if it is.
    """
    free = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((dim(0), *s.shape[1:]), s.dtype), x
    )
    leaves, treedef = jax.tree.flatten(free)
    rebuild = lambda values: ((treedef.unflatten(values),), {})  # noqa: E731
    try:
        if not _build_on_symbols(layer, rebuild, leaves):
            infer(layer, rebuild, leaves, training=training)
    except Exception:
        # A symbol for the rows fits no number, and what the layer makes of that may be
        # any error. If its own number fails as well, the first error tells more.
        with contextlib.suppress(Exception):
            infer(layer, rebuild, jax.tree.leaves(x), training=training)
            return
        raise


def _build_on_symbols(layer: Any, rebuild, specs: list) -> bool:
    """Whether ``build`` made a graph of symbols, for which each layer was traced."""
    if layer.built or not getattr(layer, "is_model", False):
        return False
    wake()
    with intact(layer):
        layer._build(type(layer)._call_info.shapes(layer, *rebuild(specs)))
    if layer.graph is None:
        return False
    layer._meta.value.traced = rebuild, specs
    return True


def with_masks(rebuild, specs: list, masks: list) -> tuple[Any, list]:
    """``rebuild`` and ``specs`` of a call, with those of the masks of its values.

    Args:
        rebuild: Makes the arguments of the call from values.
        specs: Those of the values.
        masks: For each value its mask, or a spec of it, or ``None``.
    """
    places = [i for i, mask in enumerate(masks) if mask is not None]
    if not places:
        return rebuild, specs

    def attach(values):
        values, given = list(values[: len(specs)]), values[len(specs) :]
        if (ctx := forward_context.current()) is not None:
            for i, mask in zip(places, given, strict=True):
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

    Args:
        layer: The layer.
        rebuild: Makes the arguments of the call from values.
        specs: Those of the values.
        training: What the call is told, if it is.
    """
    wake()
    with intact(layer), untouched_metrics(layer):
        return _infer(layer, rebuild, specs, training)


def _infer(layer: Any, rebuild, specs: list, training: bool | None) -> tuple[Any, list]:
    args, kwargs = rebuild(specs)
    info = type(layer)._call_info
    if not layer.built:
        layer._build(info.shapes(layer, args, kwargs))
    while True:
        graphdef, state, rest = nnx.split(layer, nnx.Variable, ...)
        abstract, treedef = jax.tree.flatten(state)
        traces: list[dict[str, tuple]] = []  # of each: layers met unbuilt, and shapes
        found: list[Discovery] = []

        def run(*values, graph=(graphdef, treedef, rest), traces=traces, found=found):
            graphdef, treedef, rest = graph
            state = jax.tree.unflatten(treedef, values[len(specs) :])
            copy = nnx.merge(graphdef, state, rest)
            ctx = forward_context.Context(
                key=jax.random.key(0), discovering=True, training=bool(training)
            )
            ctx.asked = training is not None
            found.append(discovery := Discovery(layer, copy, ctx))
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
        if any([discovery.settle() for discovery in found]):
            continue
        # A layer that is met first within another trace is built outside of it.
        if failed and not (isinstance(failed, NotBuiltError) and any(traces)):
            raise failed
        unbuilt = _join_traces(traces)
        if not unbuilt:
            layer._meta.value.traced = (rebuild, specs)
            return result
        originals = dict(iter_modules(layer))
        for path, shapes in unbuilt.items():
            if not originals[path].built:
                originals[path]._build(shapes)
        if not failed and not waits_inside(layer):
            layer._meta.value.traced = (rebuild, specs)
            return result  # another trace would find the same


def waits_inside(layer: Any) -> bool:
    """Whether a layer inside has weights to make, or may have."""
    return any(
        hasattr(part, "_has_build")
        and not part.built
        and (part._has_build or any(children(part)))
        for _, part in iter_modules(layer)
    )


def _join_traces(traces: list[dict[str, tuple]]) -> dict[str, tuple]:
    """The shapes that each layer is built for.

    The first trace knows what is unknown. Those behind it are trials of several sizes,
    where the layer was not reached with symbols: what differs is unknown.
    """
    found = dict(traces[0])
    for trial in traces[1:]:
        for path, shapes in trial.items():
            if path not in traces[0]:
                found[path] = common_sizes(found.get(path, shapes), shapes)
    return found


def clone(layer: _Layer) -> _Layer:
    """A layer of the same configuration with copies of the weights."""
    made = fresh_clone(layer)
    pairs = {path: w for path, w, _ in iter_weights(layer)}
    own = {path: w for path, w, _ in iter_weights(made)}
    if own.keys() != pairs.keys():  # of one layer that was quantized or adapted
        return twin(layer)
    keep_settings(layer, made)
    for path, weight in own.items():
        weight.set_raw_value(own_copy(pairs[path].get_value()))
    return made


def keep_settings(layer: Any, made: Any, but: tuple[Any, str] | None = None) -> None:
    """Gives a copy what was set of a layer and of those in it since they were made.

    Args:
        layer: The layer.
        made: One of the same structure.
        but: A layer in it, and an attribute of which its copy has a value of its own.
    """
    modules = dict(iter_modules(layer))
    for path, module in iter_modules(made):
        if (old := modules.get(path)) is None:
            continue
        for name in ("_trainable", "_policy", "_own_policy"):  # of layers in layers
            if hasattr(module, name) and hasattr(old, name):
                setattr(module, name, getattr(old, name))
        if not hasattr(old, "_meta") or type(old) is not type(module):
            continue
        for name in old._meta.value.changed:
            value, own = vars(old).get(name), but is not None and but == (old, name)
            if own or name.startswith("_") or type(value) not in _SETTINGS:
                continue
            if vars(module).get(name) != value:
                setattr(module, name, value)
    frozen = {
        path
        for path, weight, _ in iter_weights(layer)
        if weight.get_metadata().get("frozen")
    }
    for path, weight, _ in iter_weights(made):
        if path in frozen:
            weight.set_metadata("frozen", True)


def fresh_clone(layer: Any) -> Any:
    """A layer of the same configuration and changes with fresh weights.

    Classes of the user's need not be registered: nothing is looked up by name.
    """
    with making_clone():
        made = unbuilt_copy(layer)
    if layer.built and not made.built and layer._meta.value.traced is not None:
        infer(made, *layer._meta.value.traced)
    if changes := getattr(layer, "changes", None):  # by quantize(), add_lora() …
        made.repeat_changes(changes)
    return made


def unbuilt_copy(layer: Any) -> Any:
    """A layer of the same configuration that has no weights yet."""
    with copying_parts(layer):
        return type(layer).from_config(layer._copy_config())


@contextlib.contextmanager
def copying_parts(layer: Any) -> Iterator[None]:
    """In the block, configurations make copies of a layer's parts, by no names.

    What users' own objects hold of the layer, as functions may, stays as it is.
    """
    modules = [module for _, module in iter_modules(layer)]
    weights = [weight for _, weight, _ in iter_weights(layer)]
    names = registry.custom_objects(own_classes(layer))
    with names, registry.copying([*modules, *weights]):
        yield


def own_classes(module: Any) -> dict[str, type]:
    """The classes of a module's parts that are the user's, by name."""
    parts = [part for _, part in iter_modules(module)]
    graphs = [getattr(part, "graph", None) for part in parts]
    nodes = [node for graph in graphs for node in getattr(graph, "nodes", ())]
    parts += [node.target for node in nodes if not isinstance(node.target, str)]
    kinds = {type(part) for part in parts}
    classes = {getattr(kind, "stands_for", kind) for kind in kinds}  # quantized layers'
    own = filter(is_foreign, classes)
    return {c.__name__: c for c in own if not c.__module__.startswith("flax.")}
