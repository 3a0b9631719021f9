"""Tests of ``exburn.ops.arrangement``, beside Keras' and on symbols."""

import numpy as np
from tests.ops.cases import IMAGES, B, C, Draws, J, K, M, S, V, W, X, Y, case
from tests.ops.check import Cases
from tests.ops.small import ROWS

from exburn import Input, Model, errors, ops
from exburn.module.layer import Layer

draws = Draws()
floats, ints = draws.floats, draws.ints
CASES = Cases(
    {
        **{
            name: [case(np.concatenate([X, S]))]
            for name in ("copy ravel ndim size flipud fliplr view").split()
        },
        "append": [case(X, Y), case(S, 0.5), case(J, K)],
        "select": [case([B, C], [X, Y], 0.0)],
        "array_split": [case(X, 3, axis=1)],
        "broadcast_to": [case(V, (3, 4))],
        "concatenate": [case([X, Y]), case([X, K], axis=-1)],
        "diag": [case(V), case(X[:, :3], k=1)],
        "diagflat": [case(V, 1)],
        "diagonal": [case(M, 1, 1, 2)],
        "dsplit": [case(IMAGES, 2)],
        "dstack": [case([X, Y])],
        "expand_dims": [case(X, 1), case(X, (0, -1))],
        "flip": [case(X), case(X, 1)],
        "get_item": [case(X, (slice(None), 1)), case(X, 0)],
        "hsplit": [case(X, 2)],
        "hstack": [case([X, Y])],
        "moveaxis": [case(IMAGES, 1, -1), case(IMAGES, [0, 1], [1, 0])],
        "pad": [
            case(X, ((0, 1), (2, 0))),
            case(X, 1, "reflect"),
            case(X, 1, "constant", 2),
        ],
        "repeat": [case(X, 2), case(X, 2, axis=1)],
        "reshape": [case(X, (2, 6)), case(X, (-1, 2)), case(X, -1)],
        "roll": [case(X, 1), case(X, 2, 1)],
        "rot90": [case(X), case(IMAGES, 2, (1, 2))],
        "split": [case(X, 2, 1), case(X, [1, 3], axis=1)],
        "squeeze": [case(X[:, None]), case(X[:, None], 1)],
        "stack": [case([X, Y]), case([X, Y], axis=-1), case(X)],
        "swapaxes": [case(IMAGES, 1, 2)],
        "take": [case(X, [0, 2]), case(X, K[:, 0] % 3, axis=1), case(X, 1, 0)],
        "take_along_axis": [case(X, K % 3, 0), case(X, K % 4, axis=-1)],
        "tile": [case(X, 2), case(X, (2, 1, 2))],
        "trace": [case(M, axis1=1, axis2=2)],
        "transpose": [case(X), case(IMAGES, (0, 3, 1, 2))],
        "tril": [case(X), case(M, k=-1)],
        "triu": [case(X), case(M, k=1)],
        "unravel_index": [case(ints(3), (2, 3))],
        "vsplit": [case(X, 3)],
        "vstack": [case([X, Y])],
        "meshgrid": [case(V, W[:2]), case(V, W[:2], indexing="ij")],
    }
)


UNKNOWN_BATCH = ["concatenate", "expand_dims", "squeeze"]


UNKNOWN_FIRST = ("copy ravel flipud fliplr view").split()


class Tokens(Layer):
    """Asks for the batch size in ``call``, as much Keras code does."""

    def build(self, input_shape):
        self.token = self.add_weight((1, 1, input_shape[-1]), "ones", name="token")

    def call(self, x):
        batch = ops.shape(x)[0]
        token = ops.broadcast_to(self.token, (batch, 1, ops.shape(x)[-1]))
        steps = ops.arange(ops.shape(x)[1])
        x = x + ops.cast(steps, x.dtype)[None, :, None]
        return ops.concatenate([token, x, ops.zeros((batch, 1, x.shape[-1]))], axis=1)


def test_sizes_are_usable_inside_a_layer():
    x = Input((5, 3))
    model = Model(x, Tokens()(x))
    assert model.output_shape == (None, 7, 3)
    assert model(np.zeros((2, 5, 3), "float32")).shape == (2, 7, 3)


REFUSALS = [
(lambda: ops.reshape(ROWS, (None, -1)), errors.ShapeError),
]  # fmt: skip
