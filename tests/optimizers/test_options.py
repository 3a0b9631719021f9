"""Options that all optimizers share, Keras' stateful calls, and what is refused."""

from __future__ import annotations

import inspect

import jax
import jax.numpy as jnp
import keras
import numpy as np
import pytest
from flax import nnx

from exburn import optimizers
from exburn.errors import (
    ArgumentError,
    DTypeError,
    NotBuiltError,
    ShapeError,
    UnknownNameError,
)
from exburn.optimizers import SGD, Adam, AdamW, LossScaleOptimizer
from exburn.optimizers.trees import initial_state


def plain(rate=1.0, **options):
    return SGD(rate, momentum=0.0, **options)


def one_step(optimizer, grads, params):
    return optimizer.update(grads, optimizer.init(params), params)


def test_an_initial_state_has_the_values_and_memory_of_its_own():
    def make(p):
        zero, one = jnp.zeros_like(p), jnp.ones_like(p)
        return [p, p, zero, zero, one, one, jnp.full_like(p, -0.0), jnp.int32(0)]

    params = jnp.arange(4096.0)
    state, wanted = initial_state(make, params), jax.jit(make)(params)
    for leaf, other in zip(state, wanted, strict=True):
        assert leaf.dtype == other.dtype
        assert np.asarray(leaf).tobytes() == np.asarray(other).tobytes()
    places = {leaf.unsafe_buffer_pointer() for leaf in (params, *state)}
    assert len(places) == len(state) + 1


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


def test_exclusions_hold_for_both_decays():
    params = {"d": {"kernel": np.ones(1, np.float32), "bias": np.ones(1, np.float32)}}
    zeros = jax.tree.map(np.zeros_like, params)
    for option in ("weight_decay", "l2_weight_decay"):
        optimizer = plain(0.5, **{option: 0.5})
        optimizer.exclude_from_weight_decay(var_list=["d/bias"])
        new, _ = one_step(optimizer, zeros, params)
        assert (float(new["d"]["kernel"][0]), float(new["d"]["bias"][0])) == (0.75, 1.0)
        copy = type(optimizer).from_config(optimizer.get_config())
        assert copy.weight_decay_exclusions == optimizer.weight_decay_exclusions
    optimizer.bind(lambda: optimizer.init(params), lambda state: None)
    with pytest.raises(ArgumentError, match="compile"):
        optimizer.exclude_from_weight_decay(var_names=["kernel"])


def test_a_global_norm_that_is_not_finite_is_not_hidden():
    params = {"a": np.ones(2, np.float32), "b": np.ones(2, np.float32)}
    grads = {"a": np.array([np.inf, 1], np.float32), "b": np.ones(2, np.float32)}
    new, _ = one_step(plain(global_clipnorm=1.0), grads, params)
    assert np.all(np.isnan(new["a"])) and np.all(np.isnan(new["b"]))


def test_options_cost_nothing_unless_used():
    params = {"w": np.ones((4, 3), np.float32)}

    def primitives(optimizer):
        state = optimizer.init(params)
        text = str(jax.make_jaxpr(optimizer.update)(params, state, params))
        return text, set(state)

    text, keys = primitives(plain())
    assert keys == {"rate", "inner"}
    arrays = [line for line in text.splitlines() if ":f32[4,3] =" in line]
    # -η·g, p + that (and conversions that are free)
    assert len([a for a in arrays if " = convert" not in a]) <= 3, arrays
    assert not any("select_n" in line for line in arrays)
    _, keys = primitives(plain(use_ema=True, gradient_accumulation_steps=2))
    assert keys == {"rate", "inner", "average", "accumulated"}


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


def test_loss_scale_judges_a_group_of_batches_by_its_mean():
    optimizer = optimizers.LossScaleOptimizer(
        plain(1.0, gradient_accumulation_steps=2), initial_scale=8.0
    )
    params = {"w": np.zeros(1, np.float32)}
    state, seen = optimizer.init(params), []
    for grad in (8.0, 24.0, np.inf, 8.0, 4.0, 4.0):
        params, state = optimizer.update({"w": jnp.array([grad])}, state, params)
        seen.append((float(params["w"][0]), float(state["loss_scale"]["factor"])))
    # One finite group; one that is left out and halves the scale; one more.
    assert seen == [(0, 8), (-2, 8), (-2, 8), (-2, 4), (-2, 4), (-3, 4)]


def test_sixteen_bit_gradients_are_summed_in_float32():
    optimizer = plain(1.0, gradient_accumulation_steps=400)
    params = {"w": jnp.zeros(1, jnp.bfloat16)}
    state = optimizer.init(params)
    ones = {"w": jnp.ones(1, jnp.bfloat16)}

    def step(carry, _):
        return optimizer.update(ones, carry[1], carry[0]), None

    (params, _), _ = jax.lax.scan(step, (params, state), length=400)
    assert float(params["w"][0]) == -1.0  # bfloat16 sums of ones stop at 256


def test_bfloat16_parameters_have_float32_moments():
    optimizer = Adam(0.01)
    params = {"w": jnp.ones(4, jnp.bfloat16)}
    state = optimizer.init(params)
    moments = jax.tree.leaves(state["inner"])
    assert {m.dtype for m in moments} == {jnp.dtype("float32")}


def test_moving_average_and_final_parameters():
    optimizer = plain(1.0, use_ema=True, ema_momentum=0.5)
    params = {"w": np.zeros(1, np.float32)}
    state = optimizer.init(params)
    np.testing.assert_array_equal(optimizer.ema_params(state)["w"], [0.0])
    ones = {"w": np.ones(1, np.float32)}
    for _ in range(3):  # −1, −2, −3
        params, state = optimizer.update(ones, state, params)
    assert float(optimizer.ema_params(state)["w"][0]) == -2.25
    assert float(optimizer.final_params(state, params)["w"][0]) == -2.25
    without = plain()
    assert without.final_params(without.init(params), params) is params
    with pytest.raises(ArgumentError, match="use_ema=True"):
        without.ema_params(without.init(params))


def test_final_parameters_have_the_dtype_of_the_parameters():
    optimizer = plain(use_ema=True)
    params = {"w": jnp.ones(2, jnp.bfloat16)}
    state = optimizer.init(params)
    assert optimizer.ema_params(state)["w"].dtype == jnp.float32
    assert optimizer.final_params(state, params)["w"].dtype == jnp.bfloat16


def test_static_loss_scale():
    optimizer = plain(loss_scale_factor=1024.0)
    assert optimizer.scales_loss and float(optimizer.scale_loss(2.0)) == 2048.0
    params = {"w": jnp.zeros(1, jnp.float16)}
    # 2⁻²⁰ is below what a float16 quotient of these could hold with all its digits.
    grads = {"w": jnp.array([3 * 2.0**-22], jnp.float16)}
    new, _ = one_step(plain(2.0**20, loss_scale_factor=1024.0), grads, params)
    assert float(new["w"][0]) == -(3 * 2.0**-12)
    assert not plain().scales_loss and plain().scale_loss(2.0) == 2.0


def test_loss_scale_stays_finite_and_above_zero():
    optimizer = LossScaleOptimizer(plain(), initial_scale=2.0**99)
    params = {"w": np.zeros(1, np.float32)}
    for grad, end in ((0.0, 2.0**100), (np.nan, 2.0**-100)):
        optimizer.dynamic_growth_steps = 1

        def step(carry, _, grad=grad):
            return optimizer.update({"w": jnp.full(1, grad)}, *carry[::-1]), None

        carry, _ = jax.lax.scan(step, (params, optimizer.init(params)), length=300)
        assert float(carry[1]["loss_scale"]["factor"]) == end
        assert float(carry[0]["w"][0]) == 0.0


def test_loss_scale_optimizer_passes_the_rate_through():
    inner = AdamW(0.5, use_ema=True)
    optimizer = LossScaleOptimizer(inner)
    params = {"w": np.ones(2, np.float32)}
    box = [optimizer.init(params)]
    optimizer.bind(lambda: box[0], lambda new: box.__setitem__(0, new))
    optimizer.learning_rate = 0.25
    optimizer.scale = 0.5
    assert (inner.learning_rate, inner.scale) == (0.25, 0.5)
    assert float(optimizer.rate(box[0])) == 0.125
    box[0] = optimizer.with_hyperparameters(box[0], loss_scale=4.0, learning_rate=1.0)
    found = optimizer.hyperparameters(box[0])
    assert (found["loss_scale"], found["learning_rate"]) == (4.0, 1.0)
    np.testing.assert_array_equal(optimizer.final_params(box[0], params)["w"], [1, 1])


def test_loss_scale_around_several_optimizers_divides_once():
    parts = optimizers.OptimizerMap(plain(), {"b": plain(0.5)})
    several = optimizers.MultiOptimizer(parts, loss_scale_factor=8.0)
    assert [o.loss_scale_factor for o in several.optimizers] == [8.0, 8.0]
    optimizer = LossScaleOptimizer(several, initial_scale=4.0)
    params = {"a": np.zeros(1, np.float32), "b": np.zeros(1, np.float32)}
    grads = {"a": np.full(1, 4.0, np.float32), "b": np.full(1, 4.0, np.float32)}
    new, _ = one_step(optimizer, grads, params)
    assert (float(new["a"][0]), float(new["b"][0])) == (-1.0, -0.5)


# Refused


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"learning_rate": -0.1}, ArgumentError, "learning_rate"),
        ({"learning_rate": float("nan")}, ArgumentError, "nan"),
        ({"learning_rate": float("inf")}, ArgumentError, "inf"),
        ({"learning_rate": True}, ArgumentError, "True"),
        ({"learning_rate": None}, ArgumentError, "None"),
        ({"learning_rate": ("cosin", 0.1)}, UnknownNameError, "cosine"),
        ({"beta_1": 1.0}, ArgumentError, "beta_1"),
        ({"epsilon": -1e-8}, ArgumentError, "epsilon"),
        ({"clipnorm": 0.0}, ArgumentError, "clipnorm"),
        ({"clipnorm": 1.0, "clipvalue": 1.0}, ArgumentError, "only one kind"),
        ({"weight_decay": -0.1}, ArgumentError, "weight_decay"),
        ({"ema_momentum": 1.5}, ArgumentError, "ema_momentum"),
        ({"ema_overwrite_frequency": 0}, ArgumentError, "ema_overwrite"),
        ({"gradient_accumulation_steps": 1}, ArgumentError, "≥ 2"),
        ({"loss_scale_factor": 0.0}, ArgumentError, "loss_scale_factor"),
        ({"lr": 0.1}, ArgumentError, "Use learning_rate"),
        ({"clip_norm": 0.1}, UnknownNameError, "Did you mean 'clipnorm'"),
    ],
)
def test_bad_options_are_refused(options, error, text):
    with pytest.raises(error, match=text) as caught:
        Adam(**options)
    assert isinstance(caught.value, ValueError | TypeError)


def test_other_bad_values_are_refused():
    for make in (
        lambda: SGD(momentum=1.5),
        lambda: optimizers.Lion(beta_1=0.0),
        lambda: AdamW(weight_decay=None),  # type: ignore[arg-type]
        lambda: optimizers.Ftrl(learning_rate_power=0.5),
        lambda: optimizers.Ftrl(0.0),
        lambda: LossScaleOptimizer(plain(), initial_scale=0.0),
    ):
        with pytest.raises(ArgumentError):
            make()
    with pytest.raises(DTypeError, match="inner_optimizer"):
        LossScaleOptimizer("adam")  # type: ignore[arg-type]


def test_trees_that_do_not_fit_name_the_parameter():
    optimizer = Adam()
    params = {"d": {"kernel": np.ones((2, 3)), "bias": np.ones(3)}}
    params = jax.tree.map(np.float32, params)
    state = optimizer.init(params)
    with pytest.raises(ShapeError, match="'d/bias'"):
        optimizer.update({"d": {"kernel": params["d"]["kernel"]}}, state, params)
    wrong = {"d": {"kernel": np.ones((3, 2), np.float32), "bias": params["d"]["bias"]}}
    with pytest.raises(ShapeError, match="'d/kernel'"):
        optimizer.update(wrong, state, params)
    with pytest.raises(ShapeError, match="'x'"):
        optimizer.update({**params, "x": np.ones(1, np.float32)}, state, params)
    optimizer.amsgrad = True
    with pytest.raises(ShapeError, match="init"):
        optimizer.update(params, state, params)


def test_signatures_show_every_option():
    for name in ("SGD", "Adam", "AdamW", "Muon", "Ftrl"):
        ours = inspect.signature(getattr(optimizers, name)).parameters
        theirs = inspect.signature(getattr(keras.optimizers, name)).parameters
        assert set(theirs) - {"kwargs"} <= set(ours)


# Keras' stateful calls


def variables():
    return [nnx.Param(jnp.ones((2, 2))), nnx.Param(jnp.ones(2))]


def test_stateful_calls_do_what_update_does():
    optimizer, values = Adam(0.1), variables()
    grads = [jnp.full((2, 2), 0.5), jnp.full(2, -0.5)]
    assert optimizer.apply_gradients(zip(grads, values, strict=True)) == 1
    optimizer.apply(grads)
    assert optimizer.iterations == 2
    np.testing.assert_allclose(values[0][...], 0.8, rtol=1e-5)
    np.testing.assert_allclose(values[1][...], 1.2, rtol=1e-5)
    optimizer.learning_rate = 0.0
    optimizer.apply(grads)
    np.testing.assert_allclose(values[1][...], 1.2, rtol=1e-5)


def test_stateless_apply_takes_lists_and_trees():
    optimizer, values = Adam(0.1), variables()
    grads = [jnp.full((2, 2), 0.5), jnp.full(2, -0.5)]
    optimizer.build(values)
    arrays = [v[...] for v in values]
    new, state = jax.jit(optimizer.stateless_apply)(optimizer.variables, grads, arrays)
    np.testing.assert_allclose(new[1], 1.1, rtol=1e-5)
    assert len(state) == len(optimizer.variables)
    assert float(values[1][0]) == 1.0  # pure
    tree = {"a": arrays[0]}
    new, state = optimizer.stateless_apply(optimizer.init(tree), {"a": grads[0]}, tree)
    np.testing.assert_allclose(new["a"], 0.9, rtol=1e-5)
    assert int(state["rate"]["count"]) == 1
    with pytest.raises(ArgumentError, match="2 gradients, received 1"):
        optimizer.stateless_apply(optimizer.variables, grads[:1], arrays)


def test_finalize_assigns_the_average():
    optimizer, values = plain(1.0, use_ema=True, ema_momentum=0.5), variables()
    for _ in range(2):  # 0, −1
        optimizer.apply([jnp.ones((2, 2)), jnp.ones(2)], values)
    optimizer.finalize_variable_values(values)
    np.testing.assert_allclose(values[1][...], -0.5)


def test_stateful_calls_refuse_what_cannot_work():
    with pytest.raises(NotBuiltError, match="build"):
        Adam().apply([jnp.ones(2)])
    with pytest.raises(NotBuiltError):
        _ = Adam().variables
    with pytest.raises(DTypeError, match="assign"):
        Adam().apply([jnp.ones(2)], [jnp.ones(2)])
    optimizer = Adam()
    optimizer.build(variables())
    with pytest.raises(ArgumentError, match="built with"):
        optimizer.apply([jnp.ones((2, 2)), jnp.ones(2)], variables())
