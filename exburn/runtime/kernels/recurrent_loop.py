"""A recurrent layer's loop over time as one kernel of Triton, forwards and backwards.

Replaces: ``lax.scan`` over the steps (`_plain`, `_scanned` and `_scanned_back` of
``layers/contract/recurrent_loop.py``, whose derivatives of derivatives stay). XLA
starts some four kernels for each step, of two microseconds each, most of it to begin.
Here a program takes 16 samples through all steps, with their states in registers and
the recurrent kernel in the multiprocessor's own memory.

Runs: where `fits` says so: on NVIDIA GPUs, for SimpleRNN, LSTM and GRU with their
usual activations; float32, bfloat16 or float16; units a power of two from 16 on, with
recurrent kernels of up to 64 KiB, 128 on A100, H100 and their like.

Gain: on an H100, forward and back, 64 samples, in ms, XLA's loop and this: LSTM of 64
units and 100 steps 0.98 and 0.45, GRU of 64 and 120 steps 1.29 and 0.50, of 32 and
1,000 steps 9.7 and 2.3, LSTM of 128 in bfloat16 1.14 and 0.67. cuDNN's by way of
`jax.experimental.rnn` took 4.0 for the first.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import jax.numpy as jnp

from exburn.core.precision import get_matmul_precision
from exburn.runtime.kernels.dispatch import by_rows, device_part, options, runs_kernels
from exburn.runtime.kernels.memory_bound import has_known_sizes

_ROWS = 16  # of a program: the fewest that a product on tensor cores takes
_LEAST = 16  # units
# Bytes of the recurrent kernel, which a program keeps in its multiprocessor: what one
# of any GPU has room for, and those of these. With 192 KiB, a GRU of 128 units, the
# loop took 1.05 times as long as XLA's; for 256 an H100 has no room.
_MOST, _MOST_OF_LARGE = 1 << 16, 1 << 17
_LARGE = ("8.0", "9.0", "10.0")  # compute capabilities
# In these Triton multiplies as XLA does.
_PRECISIONS = (None, "default", "tensorfloat32", "high", "highest", "float32")
_INDICES = 1 << 31  # bytes of a piece of all steps


def fits(step: Any, xs: Any, w: dict, states: tuple) -> bool:
    """Whether the kernels run a step over projected inputs ``[time, batch, …]``.

    Args:
        step: A ``Step``.
        xs: What ``project`` made of the inputs of all steps.
        w: The weights.
        states: First states.

    Example:
        >>> from exburn.layers.recurrent.simple_rnn import SimpleRNNStep
        >>> xs, w = jnp.ones((5, 16, 16)), {"recurrent_kernel": jnp.ones((16, 16))}
        >>> fits(SimpleRNNStep(jnp.tanh), xs, w, (xs[0],))
        False
    """
    if not step.gates or not step.has_kernel or not runs_kernels():
        return False
    if not all(map(has_known_sizes, (xs, *states))) or xs.ndim != 3:
        return False
    if (part := device_part(xs, 1)) is None:
        return False
    units = w["recurrent_kernel"].shape[0]
    return (
        units >= _LEAST
        and units & (units - 1) == 0
        and step.gates * units**2 * xs.dtype.itemsize <= _most()
        and xs.shape[-1] == step.gates * units
        and xs.dtype in (jnp.float32, jnp.bfloat16, jnp.float16)
        and xs.shape[0] > 0
        and part.size * xs.dtype.itemsize < _INDICES
        and get_matmul_precision() in _PRECISIONS
    )


def _most() -> int:
    capability = getattr(jax.devices()[0], "compute_capability", "")
    return _MOST_OF_LARGE if capability in _LARGE else _MOST


def advance_all(
    plan: Any, xs: Any, w: dict, states: tuple, mask: Any, *, keep: bool
) -> tuple[Any, tuple, tuple, Any]:
    """The loop forwards.

    Args:
        plan: How to run it.
        xs, w, states, mask: As ``fits`` takes them.
        keep: Whether the gradient will be wanted.

    Returns:
        The output of every step if the plan wants it, the last states, and to ``keep``:
        the states before each step, and its pre-activations; else empty tuples.
    """
    step = plan.step
    time, batch, _ = xs.shape
    units = w["recurrent_kernel"].shape[0]
    kernel = w["recurrent_kernel"].reshape(units, step.gates, units)
    arrays = {
        "xs": (xs.reshape(time, batch, step.gates, units), 1),
        "kernel": (kernel.swapaxes(0, 1), None),
        **{f"first {i}": (s, 0) for i, s in enumerate(states)},
        **_extras(w, mask),
    }
    if "bias" in w and w["bias"].ndim == 2:  # the second is that of the product
        arrays["bias"] = w["bias"][1].reshape(step.gates, units), None
    forms: dict[str, tuple] = {}
    if keep:
        for i, state in enumerate(states):
            forms[f"before {i}"] = (time, batch, units), state.dtype, 1
        for i, shape in enumerate(_pieces(step, (time, batch, units))):
            forms[f"z {i}"] = shape, xs.dtype, 1
    if plan.sequences:
        forms["outputs"] = (time, batch, units), states[0].dtype, 1
    for i, state in enumerate(states):
        forms[f"last {i}"] = (batch, units), state.dtype, 0
    outputs = _call(functools.partial(_ahead, plan, len(states)), arrays, forms, units)
    places = range(len(states))
    last = tuple(outputs[f"last {i}"] for i in places)
    before = tuple(outputs[f"before {i}"] for i in places) if keep else ()
    zs = _whole(step, [v for k, v in outputs.items() if k.startswith("z ")])
    return outputs.get("outputs"), last, before, zs


def pull_all(
    plan: Any, w: dict, mask: Any, before: tuple, zs: Any, d_outputs: Any, d_states: Any
) -> tuple[tuple, Any]:
    """The loop backwards: the gradients of the first states and of ``zs``."""
    step = plan.step
    units = w["recurrent_kernel"].shape[0]
    kernel = w["recurrent_kernel"].reshape(units, step.gates, units)
    shapes = _pieces(step, before[0].shape)
    zs = zs if step.apart else [zs]
    arrays = {
        **{
            f"z {i}": (z.reshape(shape), 1)
            for i, (z, shape) in enumerate(zip(zs, shapes, strict=True))
        },
        "kernel": (kernel.transpose(1, 2, 0), None),
        **{f"before {i}": (v, 1) for i, v in enumerate(before)},
        **{f"slope {i}": (v, 0) for i, v in enumerate(d_states)},
        **_extras(w, mask),
    }
    if d_outputs is not None:
        arrays["d_outputs"] = d_outputs, 1
    forms = {f"d_z {i}": (s, zs[0].dtype, 1) for i, s in enumerate(shapes)}
    for i, v in enumerate(d_states):
        forms[f"first {i}"] = v.shape, v.dtype, 0
    outputs = _call(functools.partial(_back, plan, len(before)), arrays, forms, units)
    d_states = tuple(outputs[f"first {i}"] for i in range(len(before)))
    return d_states, _whole(step, [outputs[f"d_z {i}"] for i in range(len(shapes))])


def _pieces(step: Any, shape: tuple) -> list[tuple]:
    """Shapes of the arrays that the pieces of all steps are kept in."""
    *rows, units = shape
    if step.apart:
        return [shape] * step.pieces
    return [(*rows, step.pieces, units)]


def _whole(step: Any, arrays: list) -> Any:
    """The pieces in the shape that ``combine`` gives them."""
    if step.apart or not arrays:
        return tuple(arrays)
    (array,) = arrays
    return array.reshape(*array.shape[:2], -1)


def _extras(w: dict, mask: Any) -> dict[str, tuple]:
    """What some steps have beside inputs, states and kernel."""
    extras: dict[str, tuple] = {}
    if "state_mask" in w:
        extras["dropped"] = w["state_mask"], 0
    if mask is not None:
        extras["mask"] = mask.astype(jnp.int32), 1
    return extras


def _call(body: Any, arrays: dict, forms: dict, units: int) -> dict[str, Any]:
    """Runs a kernel on arrays by name, for 16 rows of the batch in each program.

    Args:
        body: Called with all references by name.
        arrays: Each with the axis of its rows; None if all programs read it whole.
        forms: Shape, dtype and axis of each result.
        units: Width of the states.
    """
    axes = {name: axis for name, (_, axis) in arrays.items()}
    results = {name: axis for name, (_, _, axis) in forms.items()}
    static = {"body": body, "axes": axes, "specs": forms, "units": units}
    run = by_rows(_call_on_rows, tuple(axes.values()), results, **static)
    return run(*(value for value, _ in arrays.values()))


def _call_on_rows(
    *arrays: jax.Array, body: Any, axes: dict, specs: dict, units: int
) -> dict[str, Any]:
    from jax.experimental import pallas as pl

    values, count, more = [], 0, 0
    for value, axis in zip(arrays, axes.values(), strict=True):
        if axis is not None:  # rows that fill the last program
            count = value.shape[axis]
            more = -count % _ROWS
            pads = [(0, more if a == axis else 0) for a in range(value.ndim)]
            value = jnp.pad(value, pads) if more else value
        values.append(value)

    def spec(shape, axis):
        rank = len(shape)
        block = [_ROWS if a == axis else n for a, n in enumerate(shape)]
        return pl.BlockSpec(
            tuple(block), lambda i: tuple(i if a == axis else 0 for a in range(rank))
        )

    shapes = {}
    for name, (shape, dtype, axis) in specs.items():
        padded = [count + more if a == axis else n for a, n in enumerate(shape)]
        shapes[name] = jax.ShapeDtypeStruct(tuple(padded), dtype)

    def run_by_name(*refs):
        body(refs=dict(zip([*axes, *specs], refs, strict=True)))

    outputs = pl.pallas_call(
        run_by_name,
        grid=((count + more) // _ROWS,),
        in_specs=[
            spec(v.shape, axis) for v, axis in zip(values, axes.values(), strict=True)
        ],
        out_specs=[spec(shapes[k].shape, axis) for k, (_, _, axis) in specs.items()],
        out_shape=list(shapes.values()),
        **options(warps=min(8, units // 8)),
    )(*values)
    result = dict(zip(specs, outputs, strict=True))
    if not more:
        return result
    return {
        k: jax.lax.slice_in_dim(v, 0, count, axis=specs[k][2])
        for k, v in result.items()
    }


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    return jnp.dot(a.astype(b.dtype), b, preferred_element_type=jnp.float32)


def _keep(new: tuple, old: tuple, real: Any) -> tuple:
    if real is None:
        return new
    return tuple(jnp.where(real, n, o) for n, o in zip(new, old, strict=True))


def _write(step: Any, refs: dict, name: str, t: Any, pieces: tuple) -> None:
    for p, piece in enumerate(pieces):
        if step.apart:
            refs[f"{name} {p}"][t, :, :] = piece
        else:
            refs[f"{name} 0"][t, :, p, :] = piece


def _ahead(plan, count, *, refs):
    step, xs = plan.step, refs["xs"]
    time, gates = xs.shape[0], range(step.gates)
    kernels = [refs["kernel"][g, :, :] for g in gates]
    bias = [refs["bias"][g, :][None] for g in gates] if "bias" in refs else None
    dropped = refs["dropped"][:, :] if "dropped" in refs else None

    def place(turn):
        return time - 1 - turn if plan.reverse else turn

    def read(t):
        return tuple(xs[t, :, g, :] for g in gates)

    def body(turn, carry):
        a, states = carry
        t = place(turn)
        following = read(place(jnp.minimum(turn + 1, time - 1)))  # under way meanwhile
        h = states[0] if dropped is None else states[0] * dropped
        products = [_dot(h, k) for k in kernels]
        if bias is not None:
            products = [p + b for p, b in zip(products, bias, strict=True)]
        z = step.join([v.astype(jnp.float32) for v in a], products)
        if "z 0" in refs:
            z = tuple(v.astype(xs.dtype) for v in z)
            for i, old in enumerate(states):
                refs[f"before {i}"][t, :, :] = old
            _write(step, refs, "z", t, z)
        real = refs["mask"][t, :][:, None] > 0 if "mask" in refs else None
        states = _keep(step.finish(z, states), states, real)
        if "outputs" in refs:
            refs["outputs"][t, :, :] = states[0]
        return following, states

    firsts = tuple(refs[f"first {i}"][:, :] for i in range(count))
    _, states = jax.lax.fori_loop(0, time, body, (read(place(0)), firsts))
    for i, state in enumerate(states):
        refs[f"last {i}"][:, :] = state


def _back(plan, count, *, refs):
    step, time = plan.step, refs["z 0"].shape[0]
    kernels = [refs["kernel"][g, :, :] for g in range(step.gates)]
    dropped = refs["dropped"][:, :] if "dropped" in refs else None

    def place(turn):
        return turn if plan.reverse else time - 1 - turn

    def read(t):
        pieces = range(step.pieces)
        if step.apart:
            z = tuple(refs[f"z {p}"][t, :, :] for p in pieces)
        else:
            z = tuple(refs["z 0"][t, :, p, :] for p in pieces)
        return z, tuple(refs[f"before {i}"][t, :, :] for i in range(count))

    def body(turn, carry):
        (z, old), slopes = carry
        t = place(turn)
        following = read(place(jnp.minimum(turn + 1, time - 1)))
        if "d_outputs" in refs:
            slopes = (slopes[0] + refs["d_outputs"][t, :, :], *slopes[1:])
        real = refs["mask"][t, :][:, None] > 0 if "mask" in refs else None
        _, pull = jax.vjp(lambda z, s: _keep(step.finish(z, s), s, real), z, old)
        d_z, d_old = pull(slopes)
        _write(step, refs, "d_z", t, d_z)
        parts = step.of_products(d_z)
        slopes_of_h = [_dot(d, k) for d, k in zip(parts, kernels, strict=True)]
        d_h = functools.reduce(jnp.add, slopes_of_h)
        if dropped is not None:
            d_h = d_h * dropped
        return following, (d_old[0] + d_h.astype(d_old[0].dtype), *d_old[1:])

    first = tuple(refs[f"slope {i}"][:, :] for i in range(count))
    _, slopes = jax.lax.fori_loop(0, time, body, (read(place(0)), first))
    for i, slope in enumerate(slopes):
        refs[f"first {i}"][:, :] = slope
