"""What a first start leaves out: inner programs, copies of zeros, draws in turn."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.core import quick_trace, random_keys
from exburn.initializers import GlorotUniform
from exburn.layers.normalization.batch import _normalize
from exburn.optimizers import Adam
from exburn.optimizers.contract.rules import bias_correction
from exburn.random import SeedGenerator
from exburn.runtime.kernels.max_pool import largest
from exburn.runtime.kernels.padded_matmul import wide_product
from exburn.training import program

X: Any = np.random.default_rng(0).standard_normal((4, 5, 5, 3)).astype(np.float32)
ROWS, KERNEL, V = X.reshape(-1, 3), jnp.eye(3, 6), X[0, 0, 0]


# Each operation of jax.numpy in place of one of lax is a program in the program, which
# takes five times as long to trace for every new shape.
@pytest.mark.parametrize(
    "traced",
    [
        lambda: jax.make_jaxpr(jax.grad(lambda x: quick_trace.relu(x).sum()))(ROWS),
        lambda: jax.make_jaxpr(lambda x: wide_product(x, KERNEL, KERNEL[0]))(ROWS),
        lambda: jax.make_jaxpr(lambda x: quick_trace.add_bias(x, V, 3))(X),
        lambda: jax.make_jaxpr(
            lambda x: _normalize.__wrapped__(x, None, None, V, V, None, 3, 1e-3, ())
        )(X),
        lambda: jax.make_jaxpr(Adam(0.1).apply_rule)(
            {"w": V}, {"w": {"m": V, "v": V}}, {"w": V}, np.float32(1), np.int32(0)
        ),
    ],
    ids=["relu", "product", "bias", "batch normalization", "Adam"],
)
def test_what_models_repeat_is_traced_without_inner_programs(traced):
    text = str(traced())
    inner = text.count(" jit[")
    assert inner <= ("_direction" in text)  # traced once for each shape


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int32"])
def test_rectified_is_jax_nn_relu(dtype):
    odd = [] if dtype == "int32" else [jnp.nan, jnp.inf, -jnp.inf]
    x = jnp.array([-2.0, -0.0, 0.0, 1.5, *odd]).astype(dtype)
    functions = [quick_trace.relu, jax.nn.relu]
    if odd:
        functions += [jax.grad(lambda x, f=f: f(x).sum()) for f in functions]
    ours, theirs, *slopes = (f(x) for f in functions)
    for one, other in ((ours, theirs), slopes or (ours, theirs)):
        assert one.dtype == other.dtype == dtype
        np.testing.assert_array_equal(one.astype("float32"), other.astype("float32"))


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_adam_is_its_formula_to_the_last_bit(dtype):
    p, g = jnp.asarray(V), jnp.asarray(V * 3, dtype)
    rule = jax.jit(Adam(0.1, amsgrad=True).apply_rule)
    slots = {"m": p * 2, "v": p**2, "v_max": p**2 * 0.5}
    rate, count = np.float32(0.1), np.int32(4)
    delta, new = rule({"w": g}, {"w": slots}, {"w": p}, rate, count)

    @jax.jit
    def formula(g, m, v, v_max, rate, count):
        root = jnp.sqrt(bias_correction(0.999, count))
        size = -rate * root / bias_correction(0.9, count)
        m = 0.9 * m + (1.0 - 0.9) * g
        v = 0.999 * v + (1.0 - 0.999) * jnp.square(g)
        v_max = jnp.maximum(v_max, v)
        return size * m / (jnp.sqrt(v_max) + 1e-7), m, v, v_max

    wanted = formula(g.astype("float32"), *slots.values(), rate, count)
    got = (delta["w"], *(new["w"][name] for name in ("m", "v", "v_max")))
    for ours, plain in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(ours, plain)


def test_the_largest_of_shifts_gives_its_gradient_to_the_first_of_equals():
    taps = [jnp.array(v) for v in ([1.0, 2.0, jnp.nan], [1.0, 3.0, 0.0])]
    np.testing.assert_array_equal(largest(taps), [1.0, 3.0, np.nan])
    first, second = jax.grad(lambda taps: largest(taps).sum())(taps)
    assert (first.tolist(), second.tolist()) == ([1.0, 0.0, 1.0], [0.0, 1.0, 0.0])


def test_values_drawn_by_threads_are_those_of_seed_and_path():
    exburn.set_random_seed(5)
    wide = [layers.Dense(300, name=f"d{i}") for i in range(4)]
    model = exburn.Sequential([exburn.Input((300,)), *wide])
    for i, layer in enumerate(wide):
        rng = random_keys.philox(f"d{i}/kernel", 5)
        np.testing.assert_array_equal(
            layer.kernel.numpy(), GlorotUniform()((300, 300), "float32", rng=rng)
        )
    assert model.count_params() == 4 * 300 * 301


def test_layers_that_share_a_seed_generator_draw_in_turn():
    def kernels():
        seed = SeedGenerator(3)
        make = [GlorotUniform(seed=seed) for _ in range(3)]
        chain = [layers.Dense(300, kernel_initializer=one) for one in make]
        exburn.Sequential([exburn.Input((300,)), *chain])
        return [layer.kernel.numpy() for layer in chain]

    for one, again in zip(kernels(), kernels(), strict=True):
        np.testing.assert_array_equal(one, again)


@pytest.mark.parametrize("value", [0.0, -0.0, 1.5])
def test_a_state_is_made_again_to_the_last_bit(value):
    array = jnp.full((3, 2), value)
    remake = program._copy_to_host(array)
    copies = [c.cell_contents for c in remake.__closure__ or ()]
    held = any(isinstance(c, np.ndarray) for c in copies)
    array.delete()
    made = remake()
    assert np.array_equal(np.signbit(made), np.signbit(np.full((3, 2), value)))
    assert (made == value).all()
    assert held is (str(value) != "0.0")  # zeros need no copy


def test_keys_of_another_kind_may_be_the_default(tmp_path):
    def trained():
        inputs = exburn.Input((4,))
        h = exburn.layers.Dropout(0.5)(inputs)
        model = exburn.Model(inputs, exburn.layers.Dense(1)(h))
        model.compile("sgd", "mse", seed=3)
        x = np.ones((8, 4), np.float32)
        model.fit(x, x[:, :1], verbose=0)
        model.save(tmp_path / "model.exburn")
        loaded = exburn.load_model(tmp_path / "model.exburn")
        loaded.fit(x, x[:, :1], verbose=0)
        return model.get_weights()[0].copy()

    usual = trained()
    with jax.default_prng_impl("rbg"):
        assert np.isfinite(trained()).all()
    np.testing.assert_array_equal(usual, trained())
