"""The policy ``mixed_float8``: products in 8 bits, in training, where they pay."""

import json
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn import PrecisionPolicy, layers
from exburn.distribution import tensor_parallel
from exburn.errors import ArgumentError, DTypeError, UnknownNameError
from exburn.runtime.kernels import float8_product, float8_rounding
from exburn.runtime.kernels.float8_product import product
from exburn.runtime.sharding.current import in_force
from exburn.runtime.sharding.strategies import make_distribution

RNG = np.random.default_rng(0)
X = RNG.standard_normal((256, 64)).astype(np.float32)
Y = np.tanh(X @ RNG.standard_normal((64, 8)).astype(np.float32) / 8)


@pytest.fixture
def small(monkeypatch):
    """Small products pay, too."""
    monkeypatch.setattr(float8_product, "LEAST", (20, 0))


def network(dtype="mixed_float8", last=None):
    return exburn.Sequential(
        [
            exburn.Input((64,)),
            layers.Dense(128, "relu", name="first"),
            layers.Dense(128, "relu", name="second"),
            layers.Dense(8, name="last", dtype=last),
        ],
        dtype=dtype,
    )


def trained(model, weights=None, **options):
    if weights is not None:
        model.set_weights(weights)
    model.compile(**{"optimizer": "adam", "loss": "mse", "seed": 0, **options})
    history = model.fit(X, Y, batch_size=64, epochs=4, shuffle=False, verbose=0)
    return history.history["loss"]


def test_the_policy_by_its_name():
    policy = PrecisionPolicy.of("mixed_float8")
    assert (policy.param, policy.compute, policy.matmul) == (
        *("float32", "bfloat16", "float8"),
    )
    assert policy.name == policy.identifier == "mixed_float8"
    assert policy == exburn.dtype_policies.DTypePolicy("mixed_float8")
    assert policy != PrecisionPolicy.of("mixed_bfloat16")
    halves = PrecisionPolicy("bfloat16", "bfloat16", matmul="float8")
    described = json.loads(json.dumps(halves.identifier))
    assert PrecisionPolicy.of(described) == halves


def test_what_cannot_be_is_refused():
    with pytest.raises(ArgumentError, match="not of float32"):
        PrecisionPolicy(matmul="float8")
    with pytest.raises(UnknownNameError, match="float8"):
        exburn.set_matmul_precision("float8")
    for dtype in ("float8_e4m3fn", jnp.float8_e5m2, "float4_e2m1fn"):
        with pytest.raises(DTypeError, match="neither store weights nor compute"):
            layers.Dense(4, dtype=dtype)
    with pytest.raises(DTypeError, match="'mixed_float8' has products in 8 bits"):
        PrecisionPolicy(output="float8_e4m3fn")


def test_training_is_near_that_in_bfloat16_and_the_rest_is_the_same(small):
    plain, few = network("mixed_bfloat16"), network()
    start = plain.get_weights()
    expected, found = trained(plain), trained(few, start)
    assert found != expected and found[-1] < 0.7 * found[0]
    np.testing.assert_allclose(found, expected, rtol=0.02)
    plain.set_weights(few.get_weights())  # in prediction no row depends on another
    np.testing.assert_array_equal(few.predict(X), plain.predict(X))
    assert few.evaluate(X, Y, verbose=0) == plain.evaluate(X, Y, verbose=0)
    assert {str(w.dtype) for w in few.weights} == {"float32"}


def share(model, rows=64):
    plan = model.plan(rows, largest=False)
    return round(plan.float8_flops / plan.flops, 3), plan


def test_the_plan_tells_what_is_computed_in_8_bits(small):
    model = network()
    model.compile("adam", "mse")
    products = np.array([64 * 128, 128 * 128, 128 * 8])
    found, plan = share(model)
    assert found == round(products[:2].sum() / products.sum(), 3)
    assert "in float8" in str(plan) and "%" in str(plan)
    model.get_layer("second").precision = "mixed_bfloat16"
    assert share(model)[0] == round(products[0] / products.sum(), 3)
    model.get_layer("second").precision = PrecisionPolicy(
        compute="bfloat16", matmul="highest"
    )
    assert share(model)[0] == round(products[0] / products.sum(), 3)


def test_the_plan_tells_that_nothing_is():
    model = network()
    model.compile("adam", "mse")
    found, plan = share(model)
    assert found == 0 and "no dense product is large enough" in str(plan)
    model.precision = "mixed_bfloat16"
    assert "float8" not in str(share(model)[1])


def test_files_copies_and_descriptions_keep_it(small, tmp_path):
    model = network(last="mixed_bfloat16")
    first = trained(model)
    names = ["mixed_float8", "mixed_float8", "mixed_bfloat16"]
    for kind in ("exburn", "keras"):
        model.save(tmp_path / f"model.{kind}")
        read = exburn.load_model(tmp_path / f"model.{kind}")
        assert [one.precision.name for one in read.layers] == names
        assert read.precision.name == "mixed_float8"
    copy = exburn.models.clone_model(model)
    assert [one.precision.name for one in copy.layers] == names
    more = model.fit(X, Y, batch_size=64, shuffle=False, verbose=0).history["loss"]
    again = read.fit(X, Y, batch_size=64, shuffle=False, verbose=0).history["loss"]
    assert again == more and more[0] < first[-1]


def test_with_remat_it_computes_the_same(small):
    plain, again = network(), network()
    expected = trained(plain, start := plain.get_weights())
    again.remat("second")
    np.testing.assert_allclose(trained(again, start), expected, rtol=1e-3)


def test_accumulated_batches_and_adapters_train(small):
    model = network()
    optimizer = exburn.optimizers.Adam(1e-2, gradient_accumulation_steps=2)
    losses = trained(model, optimizer=optimizer)
    assert losses[-1] < losses[0]
    second: Any = model.get_layer("second")
    second.enable_lora(4)
    losses = trained(model)
    assert losses[-1] < losses[0] and share(model)[0] > 0.5


@on_devices
@pytest.mark.parametrize("divides", ["rows", "features"])
def test_devices_compute_what_one_does(divides):
    alone, spread = network(), network()
    start, options = alone.get_weights(), {"mesh": "data"}
    if divides == "features":
        options = {"mesh": {"data": 2, "model": 2}, "layout": tensor_parallel(spread)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(float8_product, "LEAST", (20, 0))
        expected = trained(alone)
        found = trained(spread, start, **options)
        assert share(spread)[0] > 0.9
    np.testing.assert_allclose(found, expected, rtol=2e-3)


@on_devices
def test_devices_round_their_rows_by_a_scale_of_all():
    layout = make_distribution("data")
    x = jnp.asarray(RNG.standard_normal((512, 64)), jnp.bfloat16)
    kernel = jnp.asarray(RNG.standard_normal((64, 128)), jnp.bfloat16)

    def gradients(x, kernel):
        total = lambda *sides: jnp.sin(product(*sides)).astype("float32").sum()  # noqa: E731
        return jax.value_and_grad(total, (0, 1))(x, kernel)

    expected = jax.jit(gradients)(x, kernel)
    calls = []

    def options(warps):
        calls.append(warps)
        return {"interpret": True}

    with pytest.MonkeyPatch.context() as patch, in_force(layout):
        patch.setattr(float8_rounding, "runs_kernels", lambda **_: True)
        patch.setattr(float8_rounding, "options", options)
        rows = jax.device_put(x, layout.sharding(layout.batch_spec(512)))
        found = jax.jit(gradients)(rows, kernel)
    assert calls
    for a, b in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float32), np.asarray(b, np.float32)
        np.testing.assert_allclose(a, b, atol=0.02 * abs(b).max())
