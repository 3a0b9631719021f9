"""Operations, outputs and convolutions of traced programs are counted."""

import jax
import jax.numpy as jnp
import pytest

import exburn
from exburn.runtime.cost_model import count
from exburn.training.feed.plan import chunk_steps


@pytest.mark.parametrize(
    ("layer", "turned"),
    [
        (exburn.layers.Conv2D(4, 3), False),
        (exburn.layers.Conv2D(4, 9, padding="same"), False),
        (exburn.layers.Conv2D(4, 3, data_format="channels_first"), True),
        (exburn.layers.Conv2DTranspose(4, 3), True),
        (exburn.layers.Conv2DTranspose(4, 9, strides=2), True),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_convolutions_that_a_cpu_evaluates_in_a_loop(layer, turned):
    image = jnp.ones((1, 8, 8, 8))
    layer(image)
    cost = count(jax.make_jaxpr(layer)(image))
    assert (cost.convolutions, cost.turned) == (1, int(turned))
    steps = chunk_steps(cost, "cpu", 1, resident=False, training=False)
    assert (steps == 1) == turned
    assert chunk_steps(cost, "cpu", 1, resident=False) == 1


def test_bytes_of_outputs_are_counted():
    model = exburn.Sequential([exburn.Input((3,)), exburn.layers.Dense(5)])
    program = jax.make_jaxpr(lambda x: (model(x), x.astype("float16")))
    cost = count(program(jnp.ones((7, 3))))
    assert cost.outputs == 7 * 5 * 4 + 7 * 3 * 2
    assert cost.times(3).outputs == 3 * cost.outputs


def test_products_are_counted_apart():
    def both(x, kernel, weight):
        y = jax.lax.conv_general_dilated(
            x, kernel, (1,), "SAME", dimension_numbers=("NWC", "WIO", "NWC")
        )
        return y @ weight

    cost = count(jax.make_jaxpr(both)(*map(jnp.ones, ((2, 8, 3), (5, 3, 4), (4, 6)))))
    assert cost.products == 2 * 2 * 8 * 4 * 6
    assert cost.flops == cost.products + 2 * 2 * 8 * 4 * 3 * 5
    assert cost.times(3).products == 3 * cost.products
