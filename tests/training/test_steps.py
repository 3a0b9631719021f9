"""One step of training or evaluation, as pure functions."""

import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn.errors import ShapeError
from exburn.training.placement import OneDevice
from exburn.training.steps import (
    _batch,
    _if_active,
    _items,
    _run_once,
    one_number,
    own_loss,
)

ROWS = np.arange(12, dtype=np.float32).reshape(3, 2, 2)


def test_a_chunk_is_cut_into_batches_streamed_or_resident():
    chunk = (ROWS, None, None)
    source, count, steps = _items(chunk, None, None)
    assert steps.tolist() == [0, 1, 2] and count is None
    first = tuple(p if p is None else p[1] for p in source)
    batch, mask = _batch(chunk, (first, None, 1), OneDevice())
    np.testing.assert_array_equal(batch[0], ROWS[1])
    assert mask is None
    held = (ROWS.reshape(6, 2), None, None)
    item = np.array([5, 0]), (jnp.asarray(1),), 0
    batch, mask = _batch(held, item, OneDevice())
    np.testing.assert_array_equal(batch[0], [[10, 11], [0, 1]])
    assert mask.tolist() == [True, False]


def test_parts_are_joined_and_a_step_of_no_rows_changes_nothing():
    source, *_ = _items([(ROWS[:1],), (ROWS[1:],)], None, None)
    np.testing.assert_array_equal(source[0], ROWS)
    for active, wanted in ((True, 5), (False, 3)):
        item = (None, (jnp.asarray(2), jnp.asarray(active)), 0)
        assert int(_if_active(item, jnp.asarray(5), jnp.asarray(3))) == wanted
    assert _if_active((None, None, 0), 5, 3) == 5


def test_one_step_is_no_loop_but_has_its_form():
    carry, out = _run_once(lambda c, x: (c + x, c), jnp.asarray(1), jnp.asarray([4]))
    assert int(carry) == 5 and out.tolist() == [1]


def test_what_is_minimized_is_one_number():
    assert one_number(jnp.asarray(2.0)) == 2
    with pytest.raises(ShapeError, match=r"the loss has shape \(3,\)"):
        one_number(jnp.ones(3))
    assert own_loss(lambda x: 2, True, x=1).dtype == "float32"
    assert own_loss(lambda x, training: x * training, False, x=1) == 0


def test_a_step_of_sgd_is_its_formula():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.set_weights([np.ones((2, 1)), np.zeros(1)])
    model.compile(exburn.optimizers.SGD(0.5), "mse")
    x, y = ROWS[0], np.zeros((2, 1), np.float32)
    assert model.train_on_batch(x, y) == pytest.approx((1 + 25) / 2)
    slope = 2 * (x * [[1], [5]]).mean(0)
    np.testing.assert_allclose(model.layers[0].kernel[:, 0], 1 - 0.5 * slope)
