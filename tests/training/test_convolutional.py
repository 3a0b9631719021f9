"""Models of convolutions: their pointwise ones are products in programs for a GPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.module.building import spec_like
from exburn.runtime.cost_model import inner_jaxprs
from exburn.runtime.kernels.conv import dispatch
from exburn.runtime.kernels.conv.dispatch import convolve, pointwise_products
from exburn.runtime.xla_options import convolutional


@pytest.fixture
def on_gpu(monkeypatch):
    monkeypatch.setattr(dispatch, "chosen_platform", lambda: "gpu")


def bottlenecks(units=4, policy="float32"):
    """Blocks of convolutions, and a product of matrices of so many units."""
    x = h = exburn.Input((8, 8, 16))
    typed = {"dtype": policy}
    for _ in range(3):
        z = layers.Conv2D(8, 1, **typed)(h)
        z = layers.ReLU(**typed)(layers.BatchNormalization(**typed)(z))
        z = layers.Conv2D(16, 3, padding="same", **typed)(z)
        h = layers.Add(**typed)([h, layers.BatchNormalization(**typed)(z)])
    h = layers.Dense(units, **typed)(layers.Flatten(**typed)(h))
    model = exburn.Model(x, h)
    model.compile("sgd", "mse", seed=0)
    return model


def trained(model):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8, 8, 8, 16)).astype(np.float32)
    y = rng.standard_normal((8, *model.output_shape[1:])).astype(np.float32)
    model.fit(x, y, batch_size=4, verbose=0)
    return model.get_weights(), model.predict(x, verbose=0)


def windows(jaxpr):
    """The windows of a program's convolutions."""
    found = []
    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "conv_general_dilated":
            numbers, shape = eqn.params["dimension_numbers"], eqn.invars[1].aval.shape
            found.append(tuple(shape[axis] for axis in numbers.rhs_spec[2:]))
        for inner in inner_jaxprs(eqn.params):
            found += windows(inner)
    return found


def windows_of_training(model):
    trainer = model._training_session.trainer
    shapes = model.input_shape, model.output_shape
    specs = [jax.ShapeDtypeStruct((1, 4, *shape[1:]), np.float32) for shape in shapes]
    state = jax.tree.map(spec_like, trainer.preparer.initial_state())
    traced = trainer.preparer.programs.trace("train", state, (*specs, None))
    return windows(traced.jaxpr.jaxpr)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(("units", "wanted"), [(4, True), (512, False)])
def test_pointwise_ones_are_products_where_there_are_few_others(
    on_gpu, units, wanted, policy
):
    model = bottlenecks(units, policy)
    trained(model)
    cost = model._training_session.preparer.passes.first_cost()
    assert convolutional(cost) == wanted
    assert (cost.halves == cost.convolutions) == (policy != "float32")
    assert cost.products == 2 * 4 * 8 * 8 * 16 * units  # no convolution among them
    found = windows_of_training(model)
    assert (3, 3) in found
    assert ((1, 1) not in found) == (wanted or policy != "float32")


def test_the_numbers_are_those_of_convolutions(on_gpu, monkeypatch):
    ours = trained(bottlenecks())
    monkeypatch.setattr(dispatch, "why_not", lambda: "XLA's, to compare")
    theirs = trained(bottlenecks())
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("wanted", [True, False, None])
def test_what_is_wanted_holds_within_its_block(on_gpu, dtype, wanted):
    x, kernel = jnp.ones((2, 4, 4, 3), dtype), jnp.ones((1, 1, 3, 5), dtype)
    layout = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}

    def pointwise(x, kernel):
        return convolve(x, kernel, (1, 1), "SAME", **layout)

    usual = [] if dtype == "bfloat16" else [(1, 1)]
    with pointwise_products(wanted):
        found = windows(jax.make_jaxpr(pointwise)(x, kernel).jaxpr)
    assert found == ([(1, 1)] if wanted is False else [] if wanted else usual)
    again = jax.make_jaxpr(lambda x, kernel: pointwise(x, kernel))(x, kernel)
    assert windows(again.jaxpr) == usual
