"""What lets the rows of a batch see each other, and what does not."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from exburn.core.batch_independence import mixes_rows

TABLE, STEPS, IMAGES = (32, 4), (32, 5, 4), (32, 8, 8, 3)


def convolved(x, kernel, form):
    numbers = lax.conv_dimension_numbers(x.shape, kernel.shape, form)
    strides = (1,) * (x.ndim - 2)
    return lax.conv_general_dilated(
        x, kernel, strides, "SAME", dimension_numbers=numbers
    )


IMAGE_FORM = ("NHWC", "HWIO", "NHWC")
APART = {
    "a layer": (lambda x: jnp.tanh(x @ jnp.ones((4, 3)) + 1), TABLE),
    "softmax": (lambda x: jax.nn.softmax(x, -1), TABLE),
    "time in the batch": (lambda x: x.reshape(-1, 4).reshape(-1, 5, 4) * 2, STEPS),
    "convolution": (
        lambda x: convolved(x, jnp.ones((3, 3, 3, 4)), IMAGE_FORM),
        IMAGES,
    ),
    "pooling": (
        lambda x: lax.reduce_window(
            x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID"
        ),
        IMAGES,
    ),
    "picking": (
        lambda x: jnp.take_along_axis(x, jnp.argmax(x, -1)[:, None], -1),
        TABLE,
    ),
    "setting": (lambda x: x.at[:, 0].set(1.0), TABLE),
    "attention": (lambda x: jnp.einsum("btd,bsd->bts", x, x), STEPS),
    "frequencies": (lambda x: jnp.fft.fft(x).real, TABLE),
    "sorting": (lambda x: jnp.sort(x, -1), TABLE),
    "dropout": (
        lambda x: x * jax.random.bernoulli(jax.random.key(0), 0.5, x.shape),
        TABLE,
    ),
    "a mask of steps": (
        lambda x: jnp.where(jnp.arange(5)[None, :, None] < 3, x, 0),
        STEPS,
    ),
    "time first": (lambda x: jnp.swapaxes(x, 0, 1).sum(0), STEPS),
    "over time": (
        lambda x: lax.scan(lambda c, v: (c + v, c), x[:, 0], jnp.swapaxes(x, 0, 1))[0],
        STEPS,
    ),
    "as many zeros": (lambda x: jnp.zeros((x.shape[0], 4)) + x, TABLE),
    "looking up": (lambda x: jnp.ones((10, 4))[x.astype(int)], TABLE),
    "a fixed number": (lambda x: x.reshape(4, 8, 4) - x.mean(), TABLE),
}
TOGETHER = {
    "mean": lambda x: x - x.mean(0),
    "in a program": lambda x: jax.jit(lambda v: v - v.mean(0))(x),
    "their number": lambda x: x / (x.shape[0] - 1),
    "its root": lambda x: x * np.sqrt(x.shape[0]),
    "numbered": lambda x: x * jnp.arange(x.shape[0])[:, None],
    "numbered outside": lambda x: x * np.linspace(0, 1, x.shape[0])[:, None],
    "pairs": lambda x: x[0::2] - x[1::2],
    "turned": lambda x: x[::-1],
    "rolled": lambda x: jnp.roll(x, 1, 0),
    "sorted": lambda x: jnp.sort(x, 0),
    "over the rows": lambda x: lax.scan(lambda c, v: (c + v, c), x[0], x)[1],
    "groups": lambda x: jax.ops.segment_sum(x, x[:, 0].astype(int), x.shape[0]),
    "another order": lambda x: x.reshape(4, -1).T,
    "diagonal": lambda x: jnp.einsum("bi,ci->bi", x, x),
    "softmax": lambda x: jax.nn.softmax(x, 0),
    "attention": lambda x: jax.nn.softmax(x @ x.T) @ x,
    "unseen": lambda x: jax.pure_callback(
        lambda v: v, jax.ShapeDtypeStruct(x.shape, x.dtype), x
    ),
    "frequencies": lambda x: jnp.fft.fft(x, axis=0).real,
    "neighbours": lambda x: lax.reduce_window(x, 0.0, lax.add, (2, 1), (1, 1), "SAME"),
    "convolution": lambda x: convolved(
        x[None], jnp.ones((3, 4, 4)), ("NWC", "WIO", "NWC")
    )[0],
}


@pytest.mark.parametrize("case", APART)
def test_rows_apart(case):
    function, shape = APART[case]
    assert not mixes_rows(function, jax.ShapeDtypeStruct(shape, "float32"))


@pytest.mark.parametrize("case", TOGETHER)
def test_rows_together(case):
    assert mixes_rows(TOGETHER[case], jax.ShapeDtypeStruct(TABLE, "float32"))
