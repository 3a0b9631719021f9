"""An op on a table of cases: Keras' values, and the same shapes on symbols."""

import functools
import importlib
import operator
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.golden import keras
from tests.ops.cases import I8

from exburn import ops
from exburn.module.symbolic_tensor import OPERATIONS, Symbol, has_symbol

# Their results have no shape before the values are known, or are no arrays.
WITHOUT_SYMBOLS = {
    *("array", "bincount", "convert_to_numpy", "dtype", "is_tensor", "ndim"),
    *("nonzero", "shape", "size", "unique"),
}
# Second names of one function, which has the first.
ALIASES = {"swish": "silu", "hard_swish": "hard_silu"}
# Keras' own do not compile.
NOT_COMPILED = {
    *("bartlett", "blackman", "hamming", "hanning", "kaiser", "rearrange"),
}


def find(package, name):
    return operator.attrgetter(name)(package)


class Cases(dict):
    """The names of ops, each with the arguments of some calls."""

    @property
    def rows(self):
        return [
            pytest.param(name, i, id=f"{name}-{i}")
            for name, cases in self.items()
            for i in range(len(cases))
        ]

    @functools.cached_property
    def values(self):
        """What our ops give: those that compile, as one program."""
        keys = [(name, i) for name, cases in self.items() for i in range(len(cases))]
        compiled = [key for key in keys if key[0] not in WITHOUT_SYMBOLS]
        results = jax.jit(lambda: [self.call(ops, *key) for key in compiled])()
        given = dict(zip(compiled, results, strict=True))
        return {k: given[k] if k in given else self.call(ops, *k) for k in keys}

    def call(self, package, name, i):
        args, kwargs = self[name][i]
        return find(package, name)(*args, **kwargs)

    def call_keras(self, name, i):
        if name in WITHOUT_SYMBOLS | NOT_COMPILED:
            return self.call(keras.ops, name, i)
        return jax.jit(lambda: self.call(keras.ops, name, i))()


def every_case():
    """The cases of all files of tests in this folder."""
    files = sorted(Path(__file__).parent.glob("test_*.py"))
    modules = [importlib.import_module(f"tests.ops.{path.stem}") for path in files]
    return {k: v for m in modules for k, v in getattr(m, "CASES", {}).items()}


def check_values(cases, name, i, golden):
    int8 = any(a is I8 for a in cases[name][i][0])
    if int8 and jax.default_backend() != "cpu":
        pytest.skip("XLA's own products of int8 are wrong on a GPU")
    got = jax.tree.leaves(cases.values[name, i])
    wanted = golden(lambda: jax.tree.leaves(cases.call_keras(name, i)))
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


def check_symbols(cases, name, i):
    args, kwargs = cases[name][i]
    args, kwargs = symbolic((args, kwargs), batch=-1)
    if name in WITHOUT_SYMBOLS or not has_symbol((args, kwargs)):
        pytest.skip("takes no symbols")
    got = find(ops, name)(*args, **kwargs)
    wanted = cases.values[name, i]
    assert jax.tree.structure(got) == jax.tree.structure(wanted)
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(wanted), strict=True):
        assert (a.shape, a.dtype) == (b.shape, b.dtype.name)
        if name == "convert_to_tensor":  # gives the symbol itself
            continue
        # What summaries and files call it; Keras has the aliases, too.
        assert a.call.callee.name == ALIASES.get(name, name.rpartition(".")[2])
        function = a.call.callee.fn  # which a saved model must be able to name
        assert any(function is known for known in OPERATIONS.values())


def check_unknown_batch(cases, name, first_is_unknown=False):
    for i, (args, kwargs) in enumerate(cases[name]):
        batch = next(x.shape[0] for x in jax.tree.leaves(args) if np.ndim(x))
        args, kwargs = symbolic((args, kwargs), batch)
        got = jax.tree.leaves(find(ops, name)(*args, **kwargs))
        for a, b in zip(got, jax.tree.leaves(cases.values[name, i]), strict=True):
            assert len(a.shape) == b.ndim
            known = [(x, y) for x, y in zip(a.shape, b.shape, strict=True) if x]
            assert all(x == y for x, y in known)
            if first_is_unknown:
                assert a.shape[0] is None or name in ("ravel",)
