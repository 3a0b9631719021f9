"""What the tests of layers share."""

import jax
import jax.numpy as jnp
import numpy as np

from exburn import layers as L
from exburn.core import forward_context

rng = np.random.default_rng(0)
X = rng.normal(size=(4, 6)).astype("float32")
SEQUENCE = rng.normal(size=(2, 3, 4)).astype("float32")
KEY = jax.random.key(0)


def masked(layer, inputs, masks):
    """The output's mask for inputs that carry masks."""
    ctx = forward_context.Context(training=False, key=KEY)
    inputs = [jnp.asarray(x) for x in inputs]
    for x, m in zip(inputs, masks, strict=True):
        if m is not None:
            ctx.set_mask(x, jnp.asarray(m))
    with forward_context.forward(ctx):
        given = (
            inputs if isinstance(layer, L.Add | L.Concatenate | L.Dot) else inputs[0]
        )
        return ctx.mask_of(layer(given))


M = np.array([[True, True, False], [True, False, False]])
