"""Tests of ``exburn.optimizers.contract.gradients``."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from exburn.optimizers import SGD, Adam


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def one_step(optimizer, grads, params):
    return optimizer.update(grads, optimizer.init(params), params)


def test_order_is_clip_then_l2_then_rule():
    params = {"w": np.array([2.0], np.float32)}
    grads = {"w": np.array([10.0], np.float32)}
    new, _ = one_step(
        plain(0.5, global_clipnorm=1.0, l2_weight_decay=0.25), grads, params
    )
    # clip(10) = 1, then + 0.25 · 2; after clipping again it would be 1.
    assert float(new["w"][0]) == pytest.approx(2.0 - 0.5 * 1.5)
    new, _ = one_step(plain(0.5, weight_decay=0.25), grads, params)
    assert float(new["w"][0]) == pytest.approx(2.0 - 0.5 * 0.25 * 2.0 - 0.5 * 10.0)


def test_a_global_norm_that_is_not_finite_is_not_hidden():
    params = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    grads = {"a": np.array([np.inf, 1], np.float32), "b": np.ones(2, np.float32)}
    new, _ = one_step(plain(global_clipnorm=1.0), grads, params)
    assert np.all(np.isnan(new["a"])) and np.all(np.isnan(new["b"]))


def test_accumulation_is_one_update_with_the_mean():
    rng = np.random.default_rng(0)
    params = {"w": np.zeros(3, np.float32)}
    grads = {"w": rng.normal(size=(6, 3)).astype(np.float32)}
    split = Adam(gradient_accumulation_steps=3)
    assert split.accumulate == 3
    state = split.init(params)
    moved = []
    current = params
    update = jax.jit(split.update)
    for i in range(6):
        new, state = update({"w": grads["w"][i]}, state, current)
        moved.append(not np.array_equal(new["w"], current["w"]))
        current = new
    assert moved == [False, False, True, False, False, True]
    assert int(state["rate"]["count"]) == 2
    # By whole groups, as the engine does it; and from the mean, without sums.
    plain_adam = Adam()
    grouped, whole = split.init(params), plain_adam.init(params)
    other = mean_of = params
    for part in (range(3), range(3, 6)):
        for i in part:
            grouped = split.accumulate_batch({"w": grads["w"][i]}, grouped)
        other, grouped = split.update_accumulated(grouped, other)
        mean = {"w": grads["w"][list(part)].mean(0)}
        mean_of, whole = plain_adam.update(mean, whole, mean_of)
    np.testing.assert_allclose(current["w"], other["w"], rtol=1e-6)
    np.testing.assert_allclose(current["w"], mean_of["w"], rtol=1e-6)
    assert jax.tree.structure(grouped) == jax.tree.structure(state)
    assert int(grouped["accumulated"]["batches"]) == 0


def test_sixteen_bit_gradients_are_summed_in_float32():
    optimizer = plain(1.0, gradient_accumulation_steps=400)
    params = {"w": jnp.zeros(1, jnp.bfloat16)}
    state = optimizer.init(params)
    ones = {"w": jnp.ones(1, jnp.bfloat16)}

    def step(carry, _):
        return optimizer.update(ones, carry[1], carry[0]), None

    (params, _), _ = jax.lax.scan(step, (params, state), length=400)
    assert float(params["w"][0]) == -1.0  # bfloat16 sums of ones stop at 256


def test_static_loss_scale():
    optimizer = plain(loss_scale_factor=1024.0)
    assert optimizer.scales_loss and float(optimizer.scale_loss(2.0)) == 2048.0
    params = {"w": jnp.zeros(1, jnp.float16)}
    # 2⁻²⁰ is below what a float16 quotient of these could hold with all its digits.
    grads = {"w": jnp.array([3 * 2.0**-22], jnp.float16)}
    new, _ = one_step(plain(2.0**20, loss_scale_factor=1024.0), grads, params)
    assert float(new["w"][0]) == -(3 * 2.0**-12)
    assert not plain().scales_loss and plain().scale_loss(2.0) == 2.0
