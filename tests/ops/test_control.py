"""Tests of ``exburn.ops.control``."""

import jax
import numpy as np
import pytest
from tests.ops.small import ROWS

from exburn import Input, Model, errors, ops


def test_control_flow():
    carry, ys = ops.scan(lambda c, x: (c + x, c * x), 0.0, np.arange(3.0))
    assert (float(carry), ys.tolist()) == (3.0, [0.0, 0.0, 2.0])
    assert ops.associative_scan(ops.add, np.array([1, 2, 3])).tolist() == [1, 3, 6]
    assert ops.while_loop(lambda i: i < 9, lambda i: i + 2, 0, 3).tolist() == 6
    got = ops.while_loop(lambda i, s: i < 4, lambda i, s: [i + 1, s * 2], [0, 1])
    assert [int(v) for v in got] == [4, 16]
    assert int(ops.fori_loop(0, 3, lambda i, v: v + i, 4)) == 7
    assert ops.map(lambda x: x * 2, np.arange(3)).tolist() == [0, 2, 4]
    assert ops.vectorized_map(ops.sum, ROWS).shape == (4,)
    a, b = ops.vectorized_map(lambda xy: (xy[0] + xy[1], xy[0]), (ROWS, ROWS))
    np.testing.assert_allclose(a, 2 * b)
    assert int(ops.switch(1, [lambda x: x, lambda x: x * 10], 4)) == 40
    assert ops.cond(True, lambda: "yes", lambda: "no") == "yes"
    assert int(jax.jit(lambda p: ops.cond(p, lambda: 1, lambda: 2))(False)) == 2
    primal, tangent = ops.jvp(ops.square, (3.0,), (1.0,))
    assert (float(primal), float(tangent)) == (9.0, 6.0)
    assert ops.vectorize(lambda a, b: a + b)(np.arange(2), 1).tolist() == [1, 2]


def test_branches_on_symbols_select():
    x = Input((6,), name="x")
    total = ops.sum(x)
    model = Model(x, ops.cond(total > 0, lambda: x * 2, lambda: -x))
    np.testing.assert_allclose(model(np.abs(ROWS)), 2 * np.abs(ROWS))
    np.testing.assert_allclose(model(-np.abs(ROWS)), np.abs(ROWS))
    with pytest.raises(errors.GraphError):
        ops.cond(total > 0, lambda: x, lambda: (x, x))
