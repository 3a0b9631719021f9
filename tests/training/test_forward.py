"""What a traced forward pass tells of a model."""

import jax

from exburn.training.forward import trace
from exburn.training.module import SplitModule


def test_what_a_recommender_looks_up_is_counted_once():
    from exburn import Input, Model, layers

    x = Input((6,), dtype="int32")
    table = layers.Embedding(50, 4)
    own = layers.Embedding(7, 4)(x[:, 0])
    h = layers.Concatenate()([own, *[table(x[:, i]) for i in range(1, 6)]])
    model = Model(x, layers.Dense(1)(h))
    cost = trace(SplitModule(model), jax.ShapeDtypeStruct((8, 6), "int32")).cost
    assert cost.tables == 57 * 4
    assert cost.kernels < 12 < cost.equations  # a join, a product and a bias
