"""Every op is there, gives what Keras' gives, and the same shapes on symbols."""

import functools
import inspect
import operator

import jax
import keras
import numpy as np
import pytest
from tests.namespaces.cases import CASES, I8, REDUCE, UNARY

from exburn import ops
from exburn.module.symbolic_tensor import OPERATIONS, Symbol, has_symbol

ALL = [
    pytest.param(name, i, id=f"{name}-{i}")
    for name, cases in CASES.items()
    for i in range(len(cases))
]

# Tried in test_ops_own.py: they take functions, make no comparable numbers, or, as
# sparsemax of Keras 3.15.1 on rows, are wrong there.
ELSEWHERE = {
    *("associative_scan", "cond", "custom_gradient", "eig", "fori_loop", "jvp"),
    *("image.elastic_transform", "map", "scan", "sparsemax", "switch", "vectorize"),
    *("vectorized_map", "while_loop"),
}
# Their results have no shape before the values are known, or are no arrays.
WITHOUT_SYMBOLS = {
    *("array", "bincount", "convert_to_numpy", "dtype", "is_tensor", "ndim"),
    *("nonzero", "shape", "size", "unique"),
}
# Keras' own do not compile.
NOT_COMPILED = {
    *("bartlett", "blackman", "hamming", "hanning", "kaiser", "rearrange"),
}


def public(namespace):
    return {
        name: value
        for name in dir(namespace)
        if not name.startswith("_") and callable(value := getattr(namespace, name))
    }


PUBLIC = {
    **public(keras.ops),
    **{f"image.{name}": op for name, op in public(keras.ops.image).items()},
}


def ours(name):
    return operator.attrgetter(name)(ops)


def compute(op, name, i, compiled=True):
    """As one compiled program where it can be: quicker than step by step."""
    args, kwargs = CASES[name][i]
    if name in WITHOUT_SYMBOLS or not compiled:
        return op(*args, **kwargs)
    return jax.jit(lambda: op(*args, **kwargs))()


@functools.cache
def value(name, i):
    return compute(ours(name), name, i)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_op_of_keras_is_here_with_its_arguments(name):
    got = inspect.signature(ours(name)).parameters
    wanted = inspect.signature(PUBLIC[name]).parameters
    named = [n for n, p in wanted.items() if p.kind is not p.VAR_KEYWORD]
    assert list(got)[: len(named)] == named
    for n in named:
        default = wanted[n].default
        assert got[n].default in (default, None if default is False else default), n


@pytest.mark.parametrize("part", ["numpy", "nn", "linalg", "image"])
def test_parts_hold_what_keras_parts_hold(part):
    missing = set(public(getattr(keras.ops, part))) - set(dir(getattr(ops, part)))
    assert missing == set()


def test_every_op_has_a_case():
    assert set(PUBLIC) - set(CASES) - ELSEWHERE == set()


def test_products_of_int8_are_exact():
    """On a GPU, too, where Keras' are twice as large (XLA, jax 0.11)."""
    wanted = I8.astype(int) @ I8.T.astype(int)
    np.testing.assert_array_equal(ops.matmul(I8, I8.T), wanted)
    np.testing.assert_array_equal(ops.einsum("ij,kj->ik", I8, I8), wanted)


@pytest.mark.parametrize(("name", "i"), ALL)
@pytest.mark.filterwarnings("ignore:invalid value|overflow|divide by zero")
def test_values_are_those_of_keras(name, i):
    int8 = any(a is I8 for a in CASES[name][i][0])
    if int8 and jax.default_backend() != "cpu":
        pytest.skip("XLA's own products of int8 are wrong on a GPU")
    got = jax.tree.leaves(value(name, i))
    wanted = jax.tree.leaves(compute(PUBLIC[name], name, i, name not in NOT_COMPILED))
    assert len(got) == len(wanted)
    for a, b in zip(got, wanted, strict=True):
        if not hasattr(b, "dtype"):
            assert a == b
            continue
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        if name not in ("empty", "empty_like"):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


def symbolic(tree, batch):
    """Arrays as symbols; the size ``batch`` of a first axis becomes unknown."""

    def symbol(leaf):
        if not isinstance(leaf, np.ndarray) or not leaf.ndim:
            return leaf
        known = leaf.shape[1:] if leaf.shape[0] == batch else leaf.shape
        shape = leaf.shape[: leaf.ndim - len(known)]
        return Symbol((*[None] * len(shape), *known), leaf.dtype)

    return jax.tree.map(symbol, tree)


@pytest.mark.parametrize(("name", "i"), ALL)
def test_shapes_of_symbols_are_those_of_arrays(name, i):
    args, kwargs = CASES[name][i]
    args, kwargs = symbolic((args, kwargs), batch=-1)
    if name in WITHOUT_SYMBOLS or not has_symbol((args, kwargs)):
        pytest.skip("takes no symbols")
    got = ours(name)(*args, **kwargs)
    wanted = value(name, i)
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype.name)
        if name == "convert_to_tensor":  # gives the symbol itself
            continue
        function = a.call.callee.fn  # which a saved model must be able to name
        assert any(function is known for known in OPERATIONS.values())


BATCHED = [
    *(set(UNARY) - WITHOUT_SYMBOLS),
    *REDUCE,
    *("adaptive_average_pool", "adaptive_max_pool", "average_pool", "max_pool"),
    *("batch_normalization", "layer_normalization", "rms_normalization", "normalize"),
    *("conv", "conv_transpose", "depthwise_conv", "separable_conv", "multi_hot"),
    *("dot_product_attention", "ctc_loss", "ctc_decode", "one_hot", "glu", "softmax"),
    *("concatenate", "expand_dims", "matmul", "einsum", "squeeze", "cumsum", "clip"),
    *("unfold", "fold", "depth_to_space", "space_to_depth", "rearrange", "fft", "stft"),
    *("image.affine_transform", "image.crop_images", "image.extract_patches"),
    *("image.gaussian_blur", "image.pad_images", "image.resize", "image.rgb_to_hsv"),
    *("image.sobel_edges", "image.ssim", "top_k", "sort", "argsort", "where", "add"),
]


@pytest.mark.parametrize("name", sorted(BATCHED))
def test_batches_of_unknown_size(name):
    for i, (args, kwargs) in enumerate(CASES[name]):
        batch = next(x.shape[0] for x in jax.tree.leaves(args) if np.ndim(x))
        args, kwargs = symbolic((args, kwargs), batch)
        got = jax.tree.leaves(ours(name)(*args, **kwargs))
        for a, b in zip(got, jax.tree.leaves(value(name, i)), strict=True):
            assert len(a.shape) == b.ndim
            known = [(x, y) for x, y in zip(a.shape, b.shape, strict=True) if x]
            assert all(x == y for x, y in known)
            if name in UNARY:
                assert a.shape[0] is None or name in ("ravel",)
