"""Calls of ops: families with random shapes, dtypes and arguments, and their cases.

Besides the families, every op is called with the arguments of ``tests/ops`` of
which one is of another kind: another dtype, a plain number, another axis.
"""

from __future__ import annotations

import inspect
from typing import Any

import keras
import numpy as np
from tests.fuzz.values import Array, Call, Name, pick
from tests.ops.check import every_case

TOLERANCE = 2e-4
CASES = every_case()
UNARY = (
    "abs absolute angle arccos arcsin arcsinh arctan arctanh cbrt ceil conj conjugate"
    " copy cos cosh deg2rad erf erfc erfinv exp exp2 expm1 fabs floor i0 imag isfinite"
    " isinf isnan isneginf isposinf isreal log log10 log1p log2 log_sigmoid negative"
    " rad2deg ravel real reciprocal round rsqrt sign signbit sin sinc sinh sqrt square"
    " stop_gradient tan tanh trunc ndim size shape dtype flipud fliplr hard_sigmoid"
    " hard_silu hard_swish hard_tanh relu relu6 selu sigmoid silu softplus softsign"
    " sparse_plus sparse_sigmoid squareplus swish tanh_shrink is_tensor"
    " convert_to_tensor convert_to_numpy array view"
).split()
BINARY = (
    "add arctan2 divide divide_no_nan equal floor_divide fmax fmin fmod greater"
    " greater_equal heaviside hypot isclose less less_equal logaddexp logaddexp2"
    " maximum minimum mod multiply nextafter not_equal power subtract true_divide"
    " allclose append"
).split()
BITS = "bitwise_and bitwise_or bitwise_xor left_shift right_shift".split()
SHIFTS = "bitwise_left_shift bitwise_right_shift gcd lcm".split()
LOGIC = "logical_and logical_or logical_xor".split()
REDUCE = (
    "amax amin logsumexp max mean median min nanmax nanmean nanmedian nanmin nanprod"
    " nanstd nansum nanvar prod ptp std sum var"
).split()
SHRINKS = "celu elu glu hard_shrink leaky_relu log_softmax soft_shrink softmax".split()


_NOT_DRAWN = {
    # take functions, hold whatever was there, or are tried by hand
    *"associative_scan cond custom_gradient eig empty empty_like fori_loop jvp".split(),
    *"map scan switch vectorize vectorized_map while_loop".split(),
}
FLOATS = ("float32", "float32", "float32", "float16", "bfloat16")
WHOLE = ("int32", "int8", "uint8", "bool")

# Where the functions are defined and do not lose every digit.
_DOMAINS = {
    "arccos": (-0.9, 0.9),
    "arccosh": (1.1, 4),
    "arcsin": (-0.9, 0.9),
    "arctanh": (-0.9, 0.9),
    "erfinv": (-0.9, 0.9),
    **dict.fromkeys("log log10 log2 log1p rsqrt sqrt reciprocal".split(), (0.1, 4)),
    "tan": (-1, 1),
}


def _shape(rng, least: int = 0, most: int = 4, size: int = 5) -> tuple:
    rank = int(rng.integers(least, most + 1))
    return tuple(int(n) for n in rng.integers(1, size + 1, rank))


def _dtype(rng) -> str:
    return pick(rng, *FLOATS, *FLOATS, *WHOLE)


def _array(rng, shape=None, dtype=None, low=-2.0, high=2.0, **kwargs) -> Array:
    shape = _shape(rng, **kwargs) if shape is None else shape
    dtype = _dtype(rng) if dtype is None else dtype
    if dtype in ("int32", "int8"):
        low, high = -4, 6
    elif dtype == "uint8":
        low, high = 0, 9
    return Array(int(rng.integers(1000)), shape, dtype, low, high)


def _axis(rng, rank: int, several: bool = True) -> Any:
    """An axis of each kind there is."""
    if not rank:
        return pick(rng, None, ())
    one = int(rng.integers(-rank, rank))
    choices = [None, one, one, Name(f"np.int64({one})")]
    if several:
        count = int(rng.integers(1, rank + 1))
        some = [int(a) for a in rng.permutation(rank)[:count]]
        some = [a - rank * int(rng.integers(2)) for a in some]
        choices += [tuple(some), tuple(some), some]
    return pick(rng, *choices)


def _like(rng, x: Array) -> tuple:
    """A shape that broadcasts with that of another array."""
    shape = [n if rng.random() < 0.7 else 1 for n in x.shape]
    return tuple(shape[int(rng.integers(len(shape) + 1)) :])


# ------------------------------------------------------------------------ families
def _unary(rng):
    names = [n for n in UNARY if n not in ("array", "convert_to_numpy", "view")]
    name = pick(rng, *names, *SHRINKS)
    low, high = _DOMAINS.get(name, (-2, 2))
    x = _array(rng, low=low, high=high, least=1 if name == "glu" else 0)
    if name == "glu":
        x = Array(x.seed, (*x.shape[:-1], 4), x.dtype, x.low, x.high)
    if name in _DOMAINS and x.dtype in WHOLE:
        x = Array(x.seed, x.shape, "float32", low, high)
    return Call(f"ops.{name}", [x])


def _binary(rng):
    name = pick(rng, *BINARY[:-2], *LOGIC)
    x = _array(rng)
    y = pick(
        rng,
        _array(rng, _like(rng, x), pick(rng, x.dtype, _dtype(rng))),
        _array(rng, x.shape, x.dtype),
        pick(rng, 2, 0.5, True, -1, Name("np.float32(0.5)"), Name("np.int64(3)")),
    )
    args = [y, x] if rng.random() < 0.2 else [x, y]
    return Call(f"ops.{name}", args)


def _bits(rng):
    name = pick(rng, *BITS, "gcd", "lcm")
    dtype = pick(rng, "int32", "int8", "uint8")
    x = _array(rng, dtype=dtype)
    low, high = (0, 5) if "shift" in name else (1, 8)
    y = Array(int(rng.integers(1000)), _like(rng, x), dtype, low, high)
    return Call(f"ops.{name}", [x, pick(rng, y, y, 3)])


def _reduction(rng):
    name = pick(rng, *REDUCE, "all", "any", "count_nonzero", "average")
    x = _array(rng)
    options = {"axis": _axis(rng, len(x.shape))}
    if name not in ("count_nonzero", "average") and rng.random() < 0.5:
        options["keepdims"] = pick(rng, True, True, False, Name("np.bool_(True)"))
    return Call(f"ops.{name}", [x], _some(rng, options))


def _ordering(rng):
    name = pick(
        rng,
        *"sort argsort argmax argmin cumsum cumprod nancumsum nancumprod".split(),
        *"flip softmax log_softmax diff".split(),
    )
    x = _array(rng, least=1)
    several = name in ("flip", "softmax", "log_softmax")
    options = _some(rng, {"axis": _axis(rng, len(x.shape), several)})
    if name in ("argmax", "argmin") and rng.random() < 0.4:
        options["keepdims"] = True
    if name in ("sort", "argsort", "argmax", "argmin") and x.dtype in WHOLE:
        x = Array(x.seed, x.shape, "float32")  # equal entries have any order
    return Call(f"ops.{name}", [x], options)


def _moving(rng):
    x = _array(rng, least=1)
    rank = len(x.shape)
    one, other = (int(a) for a in rng.integers(-rank, rank, 2))
    size = int(np.prod(x.shape))
    order = [int(a) for a in rng.permutation(rank)]
    shift = int(rng.integers(-4, 5))
    return pick(
        rng,
        Call(
            "ops.transpose", [x], _some(rng, {"axes": pick(rng, order, tuple(order))})
        ),
        Call("ops.swapaxes", [x, one, other]),
        Call("ops.moveaxis", [x, one, other]),
        Call("ops.expand_dims", [x, pick(rng, 0, -1, (0, -1), [0, 1])]),
        Call("ops.reshape", [x, pick(rng, -1, (size,), (-1, 1), (1, size), [size, 1])]),
        Call("ops.roll", [x, shift], _some(rng, {"axis": _axis(rng, rank, False)})),
        Call("ops.repeat", [x, abs(shift)], _some(rng, {"axis": _axis(rng, rank, 0)})),
        Call("ops.tile", [x, pick(rng, 2, (2, 1), [1, 2], (1,) * rank)]),
        Call("ops.take", [x, _indices(rng, x.shape[one])], {"axis": one}),
        Call("ops.take", [x, _indices(rng, size)], _some(rng, {"axis": None})),
        Call("ops.unstack", [x], _some(rng, {"axis": one})),
        Call("ops.split", [x, x.shape[one]], {"axis": one}),
        Call("ops.ravel", [x]),
        Call("ops.squeeze", [x], _some(rng, {"axis": _axis(rng, rank)})),
        Call("ops.pad", [x, pick(rng, 1, ((1, 2),) * rank, (1, 0), ((0, 1),))]),
        Call("ops.broadcast_to", [x, (2, *x.shape)]),
    )


def _indices(rng, size: int) -> Any:
    return pick(
        rng,
        int(rng.integers(-size, size)),
        [int(i) for i in rng.integers(-size, size, 3)],
        Array(int(rng.integers(1000)), (2, 2), "int32", -size, size),
        Name(f"np.int64({size - 1})"),
    )


def _joining(rng):
    name = pick(rng, "concatenate", "stack", "hstack", "vstack", "dstack", "append")
    x = _array(rng, least=1, most=3)
    others = [
        _array(rng, x.shape, pick(rng, x.dtype, _dtype(rng)))
        for _ in range(int(rng.integers(1, 4)))
    ]
    if name == "append":
        axis = {"axis": _axis(rng, len(x.shape), False)}
        return Call("ops.append", [x, others[0]], _some(rng, axis))
    options = {}
    if name in ("concatenate", "stack"):
        options = _some(rng, {"axis": int(rng.integers(-len(x.shape), len(x.shape)))})
    return Call(f"ops.{name}", [[x, *others]], options)


def _matrices(rng):
    n = int(rng.integers(2, 5))
    batch = _shape(rng, 0, 2, 3)
    seed = int(rng.integers(1000))
    a = Array(seed, (*batch, n, n), after=f" + 3 * np.eye({n}, dtype='float32')")
    b = Array(seed + 1, (*batch, n, int(rng.integers(1, 4))))
    name = pick(rng, *"det inv slogdet solve norm trace triu tril diagonal".split())
    if name == "solve":
        return Call("ops.solve", [a, b])
    if name == "norm":
        x = _array(rng, dtype=pick(rng, "float32", "int32", "float16"), least=1)
        rank = len(x.shape)
        several = rank > 1 and rng.random() < 0.4
        axis = int(rng.integers(-rank, rank))
        options = {"ord": pick(rng, None, 1, 2, 3, Name("np.inf"), Name("-np.inf"))}
        if several:
            axis = tuple(int(i) for i in rng.permutation(rank)[:2])
            options["ord"] = pick(rng, None, "fro", "nuc", 1, -1, 2, Name("np.inf"))
        options |= {"axis": axis, "keepdims": bool(rng.integers(2))}
        return Call("ops.norm", [x], _some(rng, options))
    if name in ("trace", "triu", "tril", "diagonal"):
        x = _array(rng, least=2)
        key = "offset" if name in ("trace", "diagonal") else "k"
        options = {key: int(rng.integers(-2, 3))}
        if name in ("trace", "diagonal") and len(x.shape) > 2:
            options |= {"axis1": -1, "axis2": 0}
        return Call(f"ops.{name}", [x], _some(rng, options))
    return Call(f"ops.{name}", [a])


def _products(rng):
    n, m, k = (int(i) for i in rng.integers(1, 5, 3))
    batch = _shape(rng, 0, 2, 3)
    dtype = pick(rng, "float32", "float16", "bfloat16", "int32", "int8", "bool")
    other = pick(rng, dtype, dtype, "float32")
    a, b = _array(rng, (*batch, n, m), dtype), _array(rng, (*batch, m, k), other)
    v = _array(rng, (m,), other)
    flat, square = _array(rng, (n, m), dtype), _array(rng, (m, k), other)
    return pick(
        rng,
        Call("ops.matmul", [a, b]),
        Call("ops.matmul", [a, v]),
        Call("ops.dot", [flat, square]),
        Call("ops.dot", [a, v]),
        Call("ops.inner", [a, v]),
        Call("ops.vdot", [v, v]),
        Call("ops.outer", [a, v]),
        Call(
            "ops.tensordot", [flat, square], {"axes": pick(rng, 1, [[1], [0]], (1, 0))}
        ),
        Call("ops.einsum", ["...ij,...jk->...ik", a, b]),
        Call("ops.einsum", [pick(rng, "ij,jk", "ij,jk->ki", "ij,jk->"), flat, square]),
        Call("ops.kron", [flat, square]),
    )


def _networks(rng):
    x = _array(rng, least=2, most=4, dtype=pick(rng, *FLOATS, "int32"))
    rank = len(x.shape)
    axis = int(rng.integers(-rank, rank))
    along = (x.shape[axis],)
    vector = Array(3, along, pick(rng, "float32", x.dtype), 0.5, 1.5)
    some = tuple(sorted(int(a) for a in rng.permutation(rank)[: rng.integers(1, rank)]))
    norm = {"axis": axis, "epsilon": pick(rng, 1e-3, 0.1, 1e-6)}
    return pick(
        rng,
        Call("ops.normalize", [x], {"axis": axis, "order": pick(rng, 1, 2, 3, 2)}),
        Call(
            "ops.rms_normalization",
            [x],
            _some(rng, norm | {"scale": pick(rng, None, vector, 2.0)}),
        ),
        Call(
            "ops.layer_normalization",
            [x],
            {"axis": -1} | _some(rng, {"epsilon": 0.1, "gamma": 2.0, "beta": 1}),
        ),
        Call(
            "ops.layer_normalization",
            [x],
            _some(rng, {"axis": some, "epsilon": 0.1}),
        ),
        Call(
            "ops.batch_normalization",
            [x, vector, vector],
            {"axis": axis} | _some(rng, {"offset": vector, "scale": vector}),
        ),
        Call("ops.moments", [x], {"axes": pick(rng, axis, some, list(some))}),
        Call("ops.softmax", [x], {"axis": pick(rng, None, axis, some, list(some))}),
        Call("ops.logsumexp", [x], {"axis": pick(rng, None, axis, some)}),
        Call(
            "ops.one_hot",
            [_array(rng, dtype="int32", most=2), int(rng.integers(1, 6))],
            _some(rng, {"axis": pick(rng, -1, 0), "dtype": _dtype(rng)}),
        ),
        Call(
            "ops.multi_hot",
            [_array(rng, dtype="int32", least=1, most=3), int(rng.integers(1, 6))],
            _some(rng, {"axis": -1, "dtype": "int32"}),
        ),
        Call("ops.clip", [x, pick(rng, -1, 0.0), pick(rng, 1, 0.5)]),
        Call("ops.threshold", [x, 0.5, 0.1]),
        Call("ops.top_k", [x, 1], _some(rng, {"sorted": bool(rng.integers(2))})),
        Call("ops.cast", [x, _dtype(rng)]),
        Call("ops.saturate_cast", [x, _dtype(rng)]),
        Call("ops.where", [_array(rng, x.shape, "bool"), x, pick(rng, 0, 1.5, x)]),
        Call("ops.nan_to_num", [x], _some(rng, {"nan": 1.0, "posinf": 2})),
    )


def _convolution(rng):
    spatial = int(rng.integers(1, 4))
    sizes = tuple(int(n) for n in rng.integers(3, 8, spatial))
    channels = int(rng.integers(1, 4))
    first = rng.random() < 0.25
    shape = (2, channels, *sizes) if first else (2, *sizes, channels)
    x = _array(rng, shape, pick(rng, "float32", "float32", "float16", "int32"))
    window = tuple(int(n) for n in rng.integers(1, 4, spatial))
    strides = pick(rng, 1, 2, tuple(int(n) for n in rng.integers(1, 3, spatial)))
    options = {"padding": pick(rng, "valid", "same")}
    if first:
        options["data_format"] = "channels_first"
    pooling = {"strides": pick(rng, None, strides)} | options
    size = pick(rng, 2, window)
    if x.dtype == "int32" or rng.random() < 0.4:
        name = pick(rng, "max_pool", "average_pool")
        return Call(f"ops.{name}", [x, size], pooling)
    groups = channels if rng.random() < 0.2 else 1
    filters = groups * int(rng.integers(1, 3))
    k = Array(int(rng.integers(1000)), (*window, channels // groups, filters), x.dtype)
    if rng.random() < 0.3 and spatial < 3:
        k = Array(k.seed, (*window, channels, 2), x.dtype)
        if len({strides} if isinstance(strides, int) else set(strides)) > 1:
            strides = 1
        return Call("ops.depthwise_conv", [x, k], {"strides": strides} | options)
    if rng.random() < 0.3:
        k = Array(k.seed, (*window, 2, channels), x.dtype)
        return Call("ops.conv_transpose", [x, k], {"strides": strides} | options)
    dilation = {"dilation_rate": 2} if strides == 1 and rng.random() < 0.3 else {}
    return Call("ops.conv", [x, k], {"strides": strides} | options | dilation)


def _images(rng):
    h, w = (int(n) for n in rng.integers(2, 8, 2))
    shape = pick(rng, (2, h, w, 3), (h, w, 3))
    dtype = pick(rng, "float32", "float32", "uint8", "float16")
    x = Array(int(rng.integers(1000)), shape, dtype, 0, 1 if "float" in dtype else 256)
    size = tuple(int(n) for n in rng.integers(1, 10, 2))
    method = pick(rng, "nearest", "bilinear", "bicubic", "lanczos3")
    ratio = pick(rng, {}, {"crop_to_aspect_ratio": True}, {"pad_to_aspect_ratio": True})
    return pick(
        rng,
        Call(
            "ops.image.resize",
            [x, size],
            {"interpolation": method}
            | _some(rng, {"antialias": True, "fill_value": 1})
            | ratio,
        ),
        Call("ops.image.rgb_to_grayscale", [x]),
        Call(
            "ops.image.pad_images",
            [x, 1, 2],
            {"target_height": h + 3, "target_width": w + 4},
        ),
        Call(
            "ops.image.crop_images",
            [x, 0, 1],
            {"target_height": max(h - 1, 1), "target_width": max(w - 1, 1)},
        ),
        Call(
            "ops.image.extract_patches",
            [x, pick(rng, 2, (1, 2))],
            _some(rng, {"strides": 1, "padding": "same"}),
        ),
    )


def _creation(rng):
    dtype = pick(rng, None, "float32", "int32", "float16", "bool")
    shape = _shape(rng, 0, 3)
    start, stop = int(rng.integers(-3, 3)), int(rng.integers(3, 9))
    return pick(
        rng,
        Call("ops.zeros", [shape], _some(rng, {"dtype": dtype})),
        Call(
            "ops.full", [shape, pick(rng, 2, 1.5, True)], _some(rng, {"dtype": dtype})
        ),
        Call("ops.arange", [start, stop], _some(rng, {"step": 2, "dtype": "float32"})),
        Call("ops.arange", [pick(rng, stop, stop / 2)]),
        Call("ops.linspace", [start, stop], _some(rng, {"num": 4, "endpoint": False})),
        Call("ops.eye", [3], _some(rng, {"M": 2, "k": -1, "dtype": dtype})),
        Call("ops.tri", [3], _some(rng, {"M": 4, "k": 1})),
        Call("ops.full_like", [_array(rng), 2], _some(rng, {"dtype": dtype})),
        Call("ops.convert_to_tensor", [pick(rng, 1, 1.5, True, [1, 2.5], [[True]])]),
        Call("ops.logspace", [0, 2], _some(rng, {"num": 5, "base": 2})),
    )


# ------------------------------------------------------------------------ of cases
def _mutated(rng):
    """A call of the table of tests, with one argument of another kind."""
    name = pick(rng, *[n for n in CASES if n not in _NOT_DRAWN])
    function = keras.ops
    for part in name.split("."):
        function = getattr(function, part)
    given, options = pick(rng, *CASES[name])
    args, options = list(map(_drawn, given)), {k: _drawn(v) for k, v in options.items()}
    parameters = [p for p in inspect.signature(function).parameters]
    places = [("args", i) for i, v in enumerate(args) if isinstance(v, Array)]
    axes = [p for p in parameters if p in ("axis", "axes", "axis1", "axis2")]
    if axes and rng.random() < 0.4:
        key = pick(rng, *axes)
        place = parameters.index(key)
        value = pick(rng, None, 0, -1, 1, (0,), (0, 1), [-1], Name("np.int64(0)"), ())
        if place < len(args):
            args[place] = value
        else:
            options[key] = value
    elif places:
        _, i = pick(rng, *places)
        args[i] = _other_kind(rng, args[i])
    return Call(f"ops.{name}", args, options)


def _drawn(value: Any) -> Any:
    """An array of the table as one that prints; others as they are."""
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "c" or value.size > 2000:
            return Name(f"np.array({value.tolist()!r})") if value.size < 40 else value
        finite = value[np.isfinite(value)] if value.dtype.kind == "f" else value
        low = finite.min() if finite.size else 0
        high = finite.max() + (value.dtype.kind in "iu") if finite.size else 1
        return Array(0, value.shape, str(value.dtype), low.item(), high.item())
    if isinstance(value, list | tuple):
        return type(value)(_drawn(v) for v in value)
    return value


def _other_kind(rng, x: Array) -> Any:
    return pick(
        rng,
        Array(x.seed, x.shape, pick(rng, *FLOATS, *WHOLE), x.low, x.high),
        Array(x.seed, x.shape, "float64", x.low, x.high),
        Array(x.seed, x.shape, "int64", x.low, x.high),
        Array(x.seed, (), x.dtype, x.low, x.high),
        pick(rng, 1, 0.5, True, Name("np.float32(0.5)"), Name("np.array(1)")),
        Array(x.seed, x.shape, x.dtype, x.low, x.high, after=".tolist()"),
        Array(x.seed, (1, *x.shape), x.dtype, x.low, x.high),
    )


def _some(rng, options: dict) -> dict:
    """Some of the options."""
    return {k: v for k, v in options.items() if rng.random() < 0.7}


_FAMILIES = (
    *(_unary, _binary, _binary, _bits, _reduction, _reduction, _ordering, _moving),
    *(_moving, _joining, _matrices, _products, _networks, _networks, _convolution),
    *(_images, _creation, _mutated, _mutated, _mutated),
)


def draw(rng: np.random.Generator) -> Call:
    return pick(rng, *_FAMILIES)(rng)


def render(spec: Call) -> str:
    return f"result = {spec!r}"
