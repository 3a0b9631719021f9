"""Core ML's operators as NumPy computes them: what a package says, without a Mac.

Core ML itself runs on macOS only. What can go wrong in a conversion, though, is in the
package: another axis, another padding, an operator that means something else. So the
package is read again, and its program is computed here, operator by operator, as their
documentation in coremltools defines them. That is no test of Apple's kernels.

`conversion` imports it, in a process without ExBurn.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax import lax

_OPERATORS: dict[str, Callable[..., Any]] = {}


class UnknownOperatorError(Exception):
    """An operator that is not defined here; its name is the argument."""


def evaluate(package: str, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Outputs of a package for inputs by name.

    Args:
        package: Path of the ``.mlpackage``.
        inputs: Arrays of just the shapes that the package takes.

    Raises:
        UnknownOperatorError: It holds an operator that is not defined here.
    """
    import coremltools
    from coremltools.converters.mil.frontend.milproto.load import load

    model = coremltools.models.MLModel(package, skip_model_load=True)
    spec = model.get_spec()
    program = load(spec, spec.specificationVersion, model.weights_dir)
    function = program.functions["main"]
    values = {name: np.asarray(value) for name, value in inputs.items()}
    outputs = _run(function, values)
    names = [each.name for each in spec.description.output]
    return dict(zip(names, outputs, strict=True))


def _run(block: Any, values: dict[str, np.ndarray]) -> list[np.ndarray]:
    """The outputs of a block; what its operators compute is added to ``values``."""
    for operation in block.operations:
        if operation.op_type == "const":
            continue
        outputs = _compute(operation, values)
        outputs = outputs if isinstance(outputs, list | tuple) else [outputs]
        for variable, value in zip(operation.outputs, outputs, strict=True):
            values[variable.name] = np.asarray(value)
    return [_value(variable, values) for variable in block.outputs]


def _value(variable: Any, values: dict[str, np.ndarray]) -> Any:
    if isinstance(variable, list | tuple):
        return [_value(each, values) for each in variable]
    if variable.name in values:
        return values[variable.name]
    return variable.val


def _compute(operation: Any, values: dict[str, np.ndarray]) -> Any:
    kind = operation.op_type
    inputs = {
        name: _value(variable, values)
        for name, variable in operation.inputs.items()
        if variable is not None and not name.startswith("_")
    }
    if kind == "while_loop":
        return _loop(operation, inputs["loop_vars"], values)
    if kind == "cond":
        branch = operation.blocks[0 if bool(inputs["pred"]) else 1]
        return _run(branch, dict(values))
    if kind not in _OPERATORS:
        raise UnknownOperatorError(kind)
    with np.errstate(all="ignore"):
        results = _OPERATORS[kind](**inputs)
    if not isinstance(results, list | tuple) and kind not in _OWN_TYPE:
        results = _as_the_first(results, inputs)
    return results


# Operators whose results are not of the type of their input.
_OWN_TYPE = {"cast", "shape", "range_1d", "fill", "non_zero", "argsort", "select"}


def _as_the_first(value: Any, inputs: dict[str, Any]) -> Any:
    """NumPy widens float32 with a scalar of Python, which Core ML does not."""
    array = np.asarray(value)
    if array.dtype == np.float64:
        return array.astype(np.float32)
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _loop(operation: Any, state: list, values: dict[str, np.ndarray]) -> list:
    condition, body = operation.blocks
    while True:
        inside = dict(values)
        inside.update({v.name: s for v, s in zip(condition.inputs, state, strict=True)})
        if not bool(_run(condition, inside)[0]):
            return state
        inside = dict(values)
        inside.update({v.name: s for v, s in zip(body.inputs, state, strict=True)})
        state = _run(body, inside)


def _operator(*names: str) -> Callable[[Callable], Callable]:
    def add(function: Callable) -> Callable:
        for name in names or (function.__name__.strip("_"),):
            _OPERATORS[name] = function
        return function

    return add


# ---------------------------------------------------------------- entry by entry
def _erf(x: Any) -> Any:
    return np.asarray(jax.scipy.special.erf(x))


def _sigmoid(x: Any) -> Any:
    return np.asarray(jax.nn.sigmoid(x))


_UNARY: dict[str, Callable[[Any], Any]] = {
    "abs": np.abs,
    "acos": np.arccos,
    "asin": np.arcsin,
    "atan": np.arctan,
    "ceil": np.ceil,
    "cos": np.cos,
    "cosh": np.cosh,
    "erf": _erf,
    "exp": np.exp,
    "floor": np.floor,
    "identity": np.asarray,
    "logical_not": np.logical_not,
    "relu": lambda x: np.maximum(x, 0),
    "round": np.rint,
    "shape": lambda x: np.array(np.shape(x), np.int32),
    "sigmoid": _sigmoid,
    "sign": np.sign,
    "sin": np.sin,
    "sinh": np.sinh,
    "sqrt": np.sqrt,
    "square": np.square,
    "tan": np.tan,
    "tanh": np.tanh,
}
_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "add": np.add,
    "equal": np.equal,
    "floor_div": np.floor_divide,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
    "less": np.less,
    "less_equal": np.less_equal,
    "logical_and": np.logical_and,
    "logical_or": np.logical_or,
    "logical_xor": np.logical_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "mod": np.mod,
    "mul": np.multiply,
    "not_equal": np.not_equal,
    "pow": np.power,
    "real_div": np.divide,
    "sub": np.subtract,
}
_PLAIN: dict[str, Callable[..., Any]] = {
    "expand_dims": lambda x, axes: np.expand_dims(x, _axes(axes) or ()),
    "fill": lambda shape, value=0.0: np.full(np.atleast_1d(shape), value),
    "fill_like": lambda ref_tensor, value=0.0: np.full(np.shape(ref_tensor), value),
    "gather_along_axis": lambda x, indices, axis=0, validate_indices=False: (
        np.take_along_axis(x, indices, axis)
    ),
    "leaky_relu": lambda x, alpha=0.01: np.where(x >= 0, x, alpha * x),
    "linear": lambda x, weight, bias=None: (
        x @ np.transpose(weight) + (0 if bias is None else bias)
    ),
    "log": lambda x, epsilon=1e-45: np.log(x + np.float32(epsilon)),
    "non_zero": lambda x: np.argwhere(x).astype(np.int32),
    "prelu": lambda x, alpha: np.where(x >= 0, x, _by_channel(alpha, x) * x),
    "range_1d": lambda start, end, step: np.arange(
        start, end, step, dtype=np.asarray(start).dtype
    ),
    "reverse": lambda x, axes=None: np.flip(x, _axes(axes)),
    "rsqrt": lambda x, epsilon=1e-12: 1 / np.sqrt(x + np.float32(epsilon)),
    "scaled_tanh": lambda x, alpha=1.0, beta=1.0: alpha * np.tanh(beta * x),
    "select": lambda cond, a, b: np.where(cond, a, b),
    "squeeze": lambda x, axes=None: np.squeeze(x, _axes(axes)),
    "tile": lambda x, reps: np.tile(x, np.atleast_1d(reps)),
    "transpose": lambda x, perm: np.transpose(x, perm),
}
_OPERATORS |= {name: lambda x, f=f: f(x) for name, f in _UNARY.items()}
_OPERATORS |= {name: lambda x, y, f=f: f(x, y) for name, f in _BINARY.items()}
_OPERATORS |= _PLAIN


def _axes(axes: Any) -> tuple[int, ...] | None:
    return None if axes is None else tuple(int(axis) for axis in np.atleast_1d(axes))


@_operator("cast")
def _cast(x, dtype):
    kinds = {"fp32": np.float32, "fp16": np.float16, "bool": np.bool_}
    return np.asarray(x).astype(kinds.get(dtype) or np.dtype(dtype))


@_operator("gelu")
def _gelu(x, mode="EXACT"):
    if mode == "EXACT":
        return 0.5 * x * (1 + _erf(x / math.sqrt(2)))
    if mode == "TANH_APPROXIMATION":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x * _sigmoid(1.702 * x)


# ---------------------------------------------------------------------- reductions
def _reduction(function: Callable) -> Callable:
    def run(x, axes=None, keep_dims=False):
        return function(x, axis=_axes(axes), keepdims=bool(keep_dims))

    return run


def _log_sum_exp(x, axis, keepdims):
    top = np.max(x, axis=axis, keepdims=True)
    total = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return total if keepdims else np.squeeze(total, axis)


_OPERATORS |= {
    "reduce_max": _reduction(np.max),
    "reduce_mean": _reduction(np.mean),
    "reduce_min": _reduction(np.min),
    "reduce_prod": _reduction(np.prod),
    "reduce_sum": _reduction(np.sum),
    "reduce_log_sum_exp": _reduction(_log_sum_exp),
    "reduce_sum_square": _reduction(lambda x, **how: np.sum(x * x, **how)),
    "reduce_l2_norm": _reduction(lambda x, **how: np.sqrt(np.sum(x * x, **how))),
    "reduce_l1_norm": _reduction(lambda x, **how: np.sum(np.abs(x), **how)),
}


@_operator("softmax")
def _softmax(x, axis=-1):
    powers = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return powers / np.sum(powers, axis=axis, keepdims=True)


@_operator("topk")
def _topk(
    x,
    k=1,
    axis=-1,
    ascending=False,
    sort=True,
    return_indices=True,
    output_indices_dtype="int32",
):
    order = np.argsort(x if ascending else -x, axis=axis, kind="stable")
    order = np.take(order, np.arange(x.shape[axis] if k == -1 else k), axis=axis)
    values = np.take_along_axis(x, order, axis)
    return [values, order.astype(output_indices_dtype)] if return_indices else [values]


@_operator("argsort")
def _argsort(x, axis=-1, ascending=False, output_dtype="int32"):
    order = np.argsort(x if ascending else -x, axis=axis, kind="stable")
    return order.astype(output_dtype)


# -------------------------------------------------------------------- rearrangement
@_operator("reshape")
def _reshape(x, shape):
    sizes = [n or x.shape[i] for i, n in enumerate(np.atleast_1d(shape).tolist())]
    return np.reshape(x, sizes)


@_operator("concat")
def _concat(values, axis, interleave=False):
    if interleave:
        raise UnknownOperatorError("concat with interleave")
    return np.concatenate([np.atleast_1d(v) for v in values], axis=int(axis))


@_operator("pad")
def _pad(x, pad, mode="constant", constant_val=0.0):
    pairs = np.reshape(pad, (-1, 2)).tolist()
    pairs = [[0, 0]] * (x.ndim - len(pairs)) + pairs
    if mode == "constant":
        return np.pad(x, pairs, constant_values=np.asarray(constant_val, x.dtype))
    how: Any = {"reflect": "reflect", "replicate": "edge"}[mode]
    return np.pad(x, pairs, how)


def _slices(shape, begin, end, stride, begin_mask, end_mask, squeeze_mask) -> tuple:
    rank = len(shape)

    def flags(mask):
        return [False] * rank if mask is None else np.atleast_1d(mask).tolist()

    steps = [1] * rank if stride is None else np.atleast_1d(stride).tolist()
    first, last = np.atleast_1d(begin).tolist(), np.atleast_1d(end).tolist()
    out: list[Any] = []
    for i, (no_begin, no_end, point) in enumerate(
        zip(flags(begin_mask), flags(end_mask), flags(squeeze_mask), strict=True)
    ):
        if point:
            out.append(first[i])
            continue
        start, stop = None if no_begin else first[i], None if no_end else last[i]
        if steps[i] < 0 and stop is not None and stop < 0:
            stop = stop + shape[i] if stop + shape[i] >= 0 else None
        out.append(slice(start, stop, steps[i]))
    return tuple(out)


@_operator("slice_by_index")
def _slice_by_index(
    x, begin, end, stride=None, begin_mask=None, end_mask=None, squeeze_mask=None
):
    return x[_slices(x.shape, begin, end, stride, begin_mask, end_mask, squeeze_mask)]


@_operator("slice_by_size")
def _slice_by_size(x, begin, size):
    begin, size = np.atleast_1d(begin).tolist(), np.atleast_1d(size).tolist()
    ends = [None if n == -1 else b + n for b, n in zip(begin, size, strict=True)]
    return x[tuple(slice(b, e) for b, e in zip(begin, ends, strict=True))]


@_operator("slice_update")
def _slice_update(
    x,
    update,
    begin,
    end,
    stride=None,
    begin_mask=None,
    end_mask=None,
    squeeze_mask=None,
):
    result = np.array(x)
    place = _slices(x.shape, begin, end, stride, begin_mask, end_mask, squeeze_mask)
    result[place] = update
    return result


@_operator("sliding_windows")
def _sliding_windows(x, axis, size, stride=1):
    axis = axis % x.ndim
    windows = np.lib.stride_tricks.sliding_window_view(x, size, axis)
    windows = np.moveaxis(windows, -1, axis + 1)
    return windows[(slice(None),) * axis + (slice(None, None, stride),)]


# ---------------------------------------------------------------------- by indices
@_operator("gather")
def _gather(x, indices, axis=0, batch_dims=0, validate_indices=False):
    if not batch_dims:
        return np.take(x, indices, axis=axis)
    axis = axis % x.ndim
    return np.stack(
        [
            _gather(part, index, axis - 1, batch_dims - 1)
            for part, index in zip(x, indices, strict=True)
        ]
    )


@_operator("gather_nd")
def _gather_nd(x, indices, batch_dims=0, validate_indices=False):
    if batch_dims:
        return np.stack(
            [
                _gather_nd(part, index, batch_dims - 1)
                for part, index in zip(x, indices, strict=True)
            ]
        )
    return x[tuple(np.moveaxis(indices, -1, 0))]


@_operator("scatter_nd")
def _scatter_nd(data, indices, updates, mode="add", validate_indices=False):
    result = np.array(data)
    place = tuple(np.moveaxis(indices, -1, 0))
    if mode == "update":
        result[place] = updates
        return result
    ways = {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "max": np.maximum,
        "min": np.minimum,
    }
    ways[mode].at(result, place, updates)
    return result


# --------------------------------------------------------------- products, windows
@_operator("matmul")
def _matmul(x, y, transpose_x=False, transpose_y=False):
    x = np.swapaxes(x, -1, -2) if transpose_x else x
    return np.matmul(x, np.swapaxes(y, -1, -2) if transpose_y else y)


@_operator("scaled_dot_product_attention")
def _attention(query, key, value, attn_mask=None):
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    if attn_mask is not None:
        mask = np.asarray(attn_mask)
        scores += np.where(mask, 0, -np.inf) if mask.dtype == bool else mask
    return _softmax(scores) @ value


_LAYOUTS = {1: "NCH", 2: "NCHW", 3: "NCHWD"}
_KERNELS = {1: "OIH", 2: "OIHW", 3: "OIHWD"}


def _pairs(pad_type, pad, sizes, reach, strides) -> list[Any]:
    if pad_type == "valid":
        return [(0, 0)] * len(sizes)
    if pad_type == "custom":
        return [tuple(pair) for pair in np.reshape(pad, (-1, 2)).tolist()]
    pairs = lax.padtype_to_pads(sizes, reach, strides, "SAME")
    return [pair[::-1] if pad_type == "same_lower" else pair for pair in pairs]


@_operator("conv")
def _conv(
    x,
    weight,
    bias=None,
    strides=None,
    pad_type="valid",
    pad=None,
    dilations=None,
    groups=1,
):
    rank = x.ndim - 2
    strides = _sizes(strides, rank)
    dilations = _sizes(dilations, rank)
    window = weight.shape[2:]
    reach = [(n - 1) * d + 1 for n, d in zip(window, dilations, strict=True)]
    result = lax.conv_general_dilated(
        x,
        weight,
        strides,
        _pairs(pad_type, pad, x.shape[2:], reach, strides),
        rhs_dilation=dilations,
        dimension_numbers=(_LAYOUTS[rank], _KERNELS[rank], _LAYOUTS[rank]),
        feature_group_count=int(groups),
        precision=lax.Precision.HIGHEST,
    )
    return np.asarray(result) + (0 if bias is None else _by_channel(bias, x))


@_operator("conv_transpose")
def _conv_transpose(
    x,
    weight,
    bias=None,
    pad: Any = None,
    output_shape=None,
    pad_type="valid",
    strides=None,
    dilations=None,
    groups=1,
):
    """The scatter that it is: each entry adds the window to its places."""
    rank = x.ndim - 2
    strides, dilations = _sizes(strides, rank), _sizes(dilations, rank)
    groups = int(groups)
    batch, channels, *sizes = x.shape
    window = weight.shape[2:]
    whole = [
        (n - 1) * s + (k - 1) * d + 1
        for n, s, k, d in zip(sizes, strides, window, dilations, strict=True)
    ]
    each = channels // groups
    out = weight.shape[1]
    result = np.zeros((batch, groups, out, *whole), np.float64)
    parts = x.reshape(batch, groups, each, *sizes).astype(np.float64)
    kernels = weight.reshape(groups, each, out, *window).astype(np.float64)
    for tap in np.ndindex(*window):
        place = tuple(
            slice(t * d, t * d + (n - 1) * s + 1, s)
            for t, d, n, s in zip(tap, dilations, sizes, strides, strict=True)
        )
        product = np.einsum("bgc...,gco->bgo...", parts, kernels[(..., *tap)])
        result[(slice(None),) * 3 + place] += product
    result = result.reshape(batch, groups * out, *whole)
    if pad_type == "custom":
        cut = np.reshape(pad, (-1, 2)).tolist()
    elif pad_type == "same":
        extra = [w - n * s for w, n, s in zip(whole, sizes, strides, strict=True)]
        cut = [(e // 2, e - e // 2) for e in extra]
    else:
        cut = [(0, 0)] * rank
    lengths = whole if output_shape is None else list(output_shape)[2:]
    for axis, ((low, high), n) in enumerate(zip(cut, lengths, strict=True), 2):
        size = result.shape[axis] - low - high if output_shape is None else int(n)
        missing = low + size - result.shape[axis]
        if missing > 0:
            edges = [(0, 0)] * result.ndim
            edges[axis] = (0, missing)
            result = np.pad(result, edges)
        result = np.take(result, np.arange(low, low + size), axis=axis)
    return result.astype(np.float32) + (0 if bias is None else _by_channel(bias, x))


def _sizes(sizes: Any, rank: int) -> list[int]:
    return [1] * rank if sizes is None else [int(n) for n in sizes]


def _by_channel(value: Any, x: Any) -> Any:
    return np.reshape(value, (-1,) + (1,) * (x.ndim - 2))


@_operator("max_pool")
def _max_pool(
    x, kernel_sizes, strides=None, pad_type="valid", pad=None, ceil_mode=False
):
    if ceil_mode:
        raise UnknownOperatorError("pooling with ceil_mode")
    rank = x.ndim - 2
    sizes, strides = [int(n) for n in kernel_sizes], _sizes(strides, rank)
    pairs = _pairs(pad_type, pad, x.shape[2:], sizes, strides)
    window = (1, 1, *sizes), (1, 1, *strides), ((0, 0), (0, 0), *pairs)
    return np.asarray(lax.reduce_window(x, np.float32(-np.inf), lax.max, *window))


# -------------------------------------------------------------------- normalization
def _scale(x, gamma, beta, along):
    x = x if gamma is None else x * along(gamma)
    return x if beta is None else x + along(beta)


@_operator("batch_norm")
def _batch_norm(x, mean, variance, gamma=None, beta=None, epsilon=1e-5):
    def along(value):
        return _by_channel(value, x)

    result = (x - along(mean)) / np.sqrt(along(variance) + epsilon)
    return _scale(result, gamma, beta, along)


def _standardize(x, axes, epsilon):
    mean, variance = np.mean(x, axes, keepdims=True), np.var(x, axes, keepdims=True)
    return (x - mean) / np.sqrt(variance + epsilon)


@_operator("layer_norm")
def _layer_norm(x, axes=None, gamma=None, beta=None, epsilon=1e-5):
    axes = tuple(range(x.ndim)) if axes is None else tuple(a % x.ndim for a in axes)
    sizes = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    result = _standardize(x, axes, epsilon)
    return _scale(result, gamma, beta, lambda value: np.reshape(value, sizes))


@_operator("instance_norm")
def _instance_norm(x, gamma=None, beta=None, epsilon=1e-5):
    result = _standardize(x, tuple(range(2, x.ndim)), epsilon)
    return _scale(result, gamma, beta, lambda value: _by_channel(value, x))


@_operator("l2_norm")
def _l2_norm(x, epsilon=1e-6):
    axes = (-3, -2, -1)
    return x / np.sqrt(np.sum(x * x, axes, keepdims=True) + epsilon)
