"""Kernels of experts' products, interpreted: those of copied matrices."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.distribution.devices import on_devices
from tests.runtime.kernels.interpreted import close, derivatives

import exburn
from exburn import layers
from exburn.distribution import tensor_parallel
from exburn.layers.contract.routed_experts import Form, choose_form
from exburn.runtime.cost_model import count
from exburn.runtime.kernels import expert_product

RNG = np.random.default_rng(0)
FAIR = 4  # in place of 128


def interpret(monkeypatch):
    calls = []

    def options(**how):
        calls.append(how)
        return {"interpret": True}

    monkeypatch.setattr(expert_product, "runs_kernels", lambda **_: True)
    monkeypatch.setattr(expert_product, "options", options)
    monkeypatch.setattr(expert_product, "FAIR", FAIR)
    return calls


@pytest.fixture
def kernels(monkeypatch):
    return interpret(monkeypatch)


@pytest.mark.parametrize("run", ["_in_fit", "_values"])
def test_values_and_derivatives_are_those_of_copies(kernels, run):
    x = jnp.asarray(RNG.standard_normal((7, 16, 128)), jnp.bfloat16)
    matrices = jnp.asarray(RNG.standard_normal((4, 128, 256)) / 12, jnp.bfloat16)
    owners = jnp.array([0, 0, 2, 3, 3, 4, 4], jnp.int32)  # nobody's are the last two

    def of(product):
        return lambda x, matrices: jnp.sin(product(x, matrices, owners))

    found = derivatives(of(getattr(expert_product, run)), x, matrices)
    assert kernels
    close(found, derivatives(of(expert_product._plain), x, matrices), 0.02)
    assert not np.asarray(found[0][-2:], np.float32).any()
    program = jax.make_jaxpr(lambda *args: getattr(expert_product, run)(*args, owners))
    assert count(program(x, matrices)).flops == 2 * 7 * 16 * 128 * 256


def test_a_device_with_some_experts_has_blocks_for_its_fair_part():
    form = choose_form(8_192, 128, 8, "gpu", kernels=True)
    assert form == Form("kernels", 128)
    form = choose_form(8_192, 64, 8, "gpu", 2, kernels=True)
    assert form == Form("kernels", 128, 40_960)


def network(policy="mixed_bfloat16"):
    exburn.set_random_seed(0)
    x = exburn.Input((8, 128), dtype="float32")
    y = layers.MixtureOfExperts(4, 2, 128, name="experts", dtype=policy)(x)
    return exburn.Model(x, layers.Dense(2)(y))


X = RNG.standard_normal((16, 8, 128)).astype("float32")
Y = X[..., :2] * 0.5


def losses(**placed):
    model = network()
    if placed.get("layout"):
        placed["layout"] = tensor_parallel(model)
    model.compile(exburn.optimizers.SGD(0.1), "mse", seed=0, **placed)
    return model.fit(X, Y, 8, 2, shuffle=False, verbose=0).history["loss"]


def test_a_model_trains_with_them(monkeypatch):
    expected = losses()
    calls = interpret(monkeypatch)
    np.testing.assert_allclose(losses(), expected, rtol=2e-3)
    assert calls and expected[1] < expected[0]


def test_they_are_for_halves_whole_tiles_and_many_rows(kernels):
    fits, shape = expert_product.fits, (4, 128, 256)
    assert fits(jnp.bfloat16, 4 * FAIR, shape) and fits(jnp.float16, 10_000, shape)
    assert not fits(jnp.float32, 4 * FAIR, shape)
    assert not fits(jnp.bfloat16, 4 * FAIR - 1, shape)
    assert not fits(jnp.bfloat16, 4 * FAIR, (4, 128, 192))
    assert not fits(jnp.bfloat16, 1 << 23, shape)  # places that 32 bits do not hold
    assert not fits(jnp.bfloat16, None, shape)


@on_devices
@pytest.mark.parametrize(
    "placed",
    [{"mesh": "data"}, {"mesh": {"data": 2, "model": 2}, "layout": True}],
    ids=["rows", "experts"],
)
def test_devices_run_them(placed):
    expected = losses()
    with pytest.MonkeyPatch.context() as patch:
        calls = interpret(patch)
        found = losses(**placed)
    assert calls
    np.testing.assert_allclose(found, expected, rtol=5e-3)
