"""Parameter trees: paths, widening of 16-bit floats, and cheap initial states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.core
import jax.numpy as jnp
import numpy as np
from jax import lax

from exburn.errors import ShapeError


def path_of(key_path: tuple) -> str:
    """The path of a leaf as a string of its keys, joined by slashes."""
    names = []
    for key in key_path:
        for attribute in ("key", "idx", "name"):
            if hasattr(key, attribute):
                names.append(str(getattr(key, attribute)))
                break
    return "/".join(names)


def map_with_path(function: Callable, tree: Any, *rest: Any) -> Any:
    """``jax.tree.map`` whose function gets the leaf's path string first."""
    return jax.tree_util.tree_map_with_path(
        lambda path, *leaves: function(path_of(path), *leaves), tree, *rest
    )


def is_narrow(leaf: Any) -> bool:
    """Whether a leaf is a 16-bit float."""
    dtype = jnp.dtype(leaf.dtype)
    return jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4


def widen(tree: Any) -> Any:
    """16-bit floats become float32; everything else stays as it is."""
    return jax.tree.map(
        lambda leaf: leaf.astype(jnp.float32) if is_narrow(leaf) else leaf, tree
    )


def has_narrow(tree: Any) -> bool:
    """Whether a leaf is a 16-bit float."""
    return any(map(is_narrow, jax.tree.leaves(tree)))


def no_remainders(params: Any) -> Any:
    """Remainders before the first update; a zero beside parameters of 32 bits."""
    return jax.tree.map(
        lambda p: jnp.zeros(p.shape if is_narrow(p) else (), p.dtype), params
    )


def split_off_remainders(exact: Any, params: Any) -> tuple[Any, Any]:
    """Updated parameters in their own dtypes, and what rounding took off them."""

    def round_one(e, p):
        if not is_narrow(p):
            return e
        info = jnp.finfo(p.dtype)
        # Not by a cast, which XLA may take out between two operations in float32.
        return lax.reduce_precision(e, info.nexp, info.nmant)

    rounded_pairs = jax.tree.map(round_one, exact, params)
    new = jax.tree.map(lambda k, p: k.astype(p.dtype), rounded_pairs, params)
    rests = jax.tree.map(
        lambda e, k, p: (e - k if is_narrow(p) else jnp.zeros(())).astype(p.dtype),
        exact,
        rounded_pairs,
        params,
    )
    return new, rests


def with_remainders(wide: Any, remainders: Any) -> Any:
    """Widened parameters with what had been rounded off."""
    return jax.tree.map(
        lambda w, r: w + r.astype(w.dtype) if r.dtype != w.dtype else w,
        wide,
        remainders,
    )


def like(op: str, new: Any, old: Any) -> Any:
    """``new`` with exactly the dtypes (and no weak types) of ``old``.

    Raises:
        ShapeError: The structure or a shape of the state changed, so that it could
            not be carried through a scan.
    """
    same_structure(op, old, new)

    def one(path, n, o):
        if jnp.shape(n) != jnp.shape(o):
            raise ShapeError(
                op,
                f"optimizer state {path!r} changed its shape in an update",
                {"before": jnp.shape(o), "after": jnp.shape(n)},
            )
        return jax.lax.convert_element_type(n, jnp.result_type(o))

    return map_with_path(one, new, old)


def same_structure(op: str, state: Any, example: Any) -> None:
    """Checks that a rule's state is the one that its ``init`` makes.

    Raises:
        ShapeError: The state was made for other parameters or other options.
    """
    received, expected = jax.tree.structure(state), jax.tree.structure(example)
    if received != expected:
        raise ShapeError(
            op,
            "the state does not fit: it was made for other parameters or options",
            {"received": received, "init makes": expected},
            hint="Call init(params) again after changing the optimizer.",
        )


def same_shapes(op: str, grads: Any, params: Any) -> None:
    """Checks that there is one gradient of the right shape for every parameter.

    Raises:
        ShapeError: Naming the first parameter without a fitting gradient.
    """
    grad_leaves = jax.tree_util.tree_flatten_with_path(grads)[0]
    param_leaves = jax.tree_util.tree_flatten_with_path(params)[0]
    grad_shapes = {path_of(path): jnp.shape(leaf) for path, leaf in grad_leaves}
    param_shapes = {path_of(path): jnp.shape(leaf) for path, leaf in param_leaves}
    if grad_shapes == param_shapes and jax.tree.structure(grads) == jax.tree.structure(
        params
    ):
        return
    for path, shape in param_shapes.items():
        if grad_shapes.get(path) != shape:
            received = grad_shapes.get(path, "no gradient")
            raise ShapeError(
                op,
                f"parameter {path!r} needs a gradient of its own shape",
                {"parameter": shape, "gradient": received},
            )
    raise ShapeError(
        op,
        "gradients and parameters must be the same tree",
        {
            "gradients without a parameter": sorted(
                set(grad_shapes) - set(param_shapes)
            ),
            "gradients": jax.tree.structure(grads),
            "parameters": jax.tree.structure(params),
        },
    )


def initial_state(function: Callable[[Any], Any], params: Any) -> Any:
    """``function(params)``, without compiling one program per shape.

    An optimizer's initial state is constants and copies of parameters. They are read
    off the traced program and made by NumPy; anything else in it makes the whole
    function run as one compiled program instead. Values are the same either way.

    Args:
        function: A pure function of the parameters, such as ``optax.adam(0.1).init``.
        params: Tree of arrays; tracers are allowed, and specs, whose result is specs.

    Returns:
        Arrays on the default device with buffers of their own, so that they can be
        donated together with the parameters.
    """
    leaves = jax.tree.leaves(params)
    specs = jax.tree.map(
        lambda leaf: jax.ShapeDtypeStruct(jnp.shape(leaf), jnp.result_type(leaf)),
        params,
    )
    program, shapes = jax.make_jaxpr(function, return_shape=True)(specs)
    if any(isinstance(leaf, jax.ShapeDtypeStruct) for leaf in leaves):
        return shapes
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        # Arrays of the host would be constants of the program, as large as the state.
        return jax.tree.map(
            lambda v, s: jnp.asarray(v, s.dtype), function(params), shapes
        )
    treedef = jax.tree.structure(shapes)
    try:
        values = _read_off(program.jaxpr, program.consts, leaves)
    except _NotConstant:
        return jax.jit(function)(params)
    dtypes = [shape.dtype for shape in jax.tree.leaves(shapes)]
    arrays = [_own(v, d) for v, d in zip(values, dtypes, strict=True)]
    return treedef.unflatten(jax.device_put(arrays))


def _own(value: Any, dtype: Any) -> np.ndarray:
    """The values in memory of their own: no two leaves may share what is donated."""
    value = np.asarray(value)
    one_value = value.size and not any(value.strides)
    if one_value and not any(value.flat[0].tobytes()):  # a -0.0 has a bit that is set
        return np.zeros(value.shape, dtype)  # of memory that nobody has to fill
    return np.array(value, dtype)


class _NotConstant(Exception):
    """The program computes something that is neither a constant nor a copy."""


def _read_off(jaxpr, consts, arguments) -> list:
    """Values of a program's outputs, evaluated backwards from what is needed."""
    values = dict(zip(jaxpr.constvars, consts, strict=True))
    values.update(zip(jaxpr.invars, arguments, strict=True))
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}

    def value(atom):
        if hasattr(atom, "val"):  # a literal
            return atom.val
        if atom not in values:
            eqn = makers[atom]
            name = eqn.primitive.name
            inner = eqn.params.get("jaxpr")
            if name in ("jit", "pjit") and inner is not None:
                inputs = [value(v) for v in eqn.invars]
                outputs = _read_off(inner.jaxpr, inner.consts, inputs)
                values.update(zip(eqn.outvars, outputs, strict=True))
            elif (
                name == "broadcast_in_dim"
                and eqn.params["shape"] == ()
                or (name in ("copy", "copy_p"))
            ):
                values[atom] = value(eqn.invars[0])
            elif name == "broadcast_in_dim" and eqn.invars[0].aval.shape == ():
                scalar = value(eqn.invars[0])
                if isinstance(scalar, jax.core.Tracer):  # an option of a lane's own
                    raise _NotConstant(name)
                scalar = np.asarray(scalar, eqn.invars[0].aval.dtype)
                values[atom] = np.broadcast_to(scalar, eqn.params["shape"])
            elif name == "convert_element_type":
                source = value(eqn.invars[0])
                if not isinstance(source, jax.core.Tracer):
                    source = np.asarray(source)
                values[atom] = source.astype(eqn.params["new_dtype"])
            else:
                raise _NotConstant(name)
        return values[atom]

    try:
        return [value(var) for var in jaxpr.outvars]
    finally:
        values.clear()  # `value` refers to itself: until it is collected, it holds them
