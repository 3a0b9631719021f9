"""Lookups in one table by many columns: one sum for all of their gradients."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.models.inspection import prepare_plan
from exburn.training.forward_cache import ForwardCache
from exburn.training.memory import state_specs

COLUMNS, ROWS = 5, 40
X = np.random.default_rng(0).integers(0, ROWS, (48, COLUMNS)).astype("int32")
Y = np.random.default_rng(1).standard_normal((48, 1)).astype("float32")


class InLoop(exburn.Model):
    """Looks a table up within a loop of its own, whose indices stay there."""

    def __init__(self):
        super().__init__()
        self.table, self.out = layers.Embedding(ROWS, 4), layers.Dense(1)

    def call(self, x):
        first = self.table(x[:, 0])
        last, _ = jax.lax.scan(
            lambda h, column: (h + self.table(column), None), first, x.T
        )
        return self.out(last)


def columns(**options):
    exburn.set_random_seed(0)
    x = exburn.Input((COLUMNS,), dtype="int32")
    table = layers.Embedding(ROWS, 4, **options)
    h = layers.Concatenate()([table(x[:, i]) for i in range(COLUMNS)])
    return exburn.Model(x, layers.Dense(1)(layers.Dense(8, "relu")(h)))


def tied():
    """The table reads the input twice, and is a matrix of the output."""
    exburn.set_random_seed(0)
    x = exburn.Input((COLUMNS,), dtype="int32")
    table = layers.ReversibleEmbedding(ROWS, 4)
    h = layers.Add()([table(x), table(x[:, ::-1])])
    scores = layers.GlobalAveragePooling1D()(table(h, reverse=True))
    return exburn.Model(x, layers.Dense(1)(scores))


def in_loop():
    exburn.set_random_seed(0)
    return InLoop()


def trained(make, joins, monkeypatch):
    if not joins:
        monkeypatch.setattr(ForwardCache, "joins_lookups", lambda self, parts: False)
    model = make()
    model.compile("adam", loss="mse")
    history = model.fit(X, Y, batch_size=20, epochs=2, verbose=0)
    return history.history["loss"], model.get_weights()


@pytest.mark.parametrize(
    "make",
    [
        columns,
        tied,
        in_loop,
        lambda: columns(mask_zero=True, embeddings_regularizer="l2"),
    ],
)
def test_training_is_as_with_a_gradient_for_each(make, monkeypatch):
    losses, weights = trained(make, True, monkeypatch)
    plain, expected = trained(make, False, monkeypatch)
    np.testing.assert_allclose(losses, plain, rtol=1e-6)
    for found, wanted in zip(weights, expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)


def test_a_step_adds_to_the_table_once():
    model = columns()
    model.compile("sgd", loss="mse")
    trainer, _, batch = prepare_plan(model, 8, X[:8], Y[:8])
    chunk = jax.tree.map(lambda s: jax.ShapeDtypeStruct((1, *s.shape), s.dtype), batch)
    program = trainer.preparer.programs.trace(
        "train", state_specs(trainer.preparer, "train"), chunk
    )
    assert str(program.jaxpr).count("scatter-add[") == 1


def test_indices_of_no_row_are_those_of_the_nearest():
    from exburn.training.lookups import value_and_grad

    def loss(params, lookups):
        wrong = jnp.array([-3, 9])
        rows = [lookups.rows(params["t"], wrong + i) for i in (0, 1)]
        return sum(r.sum() for r in rows), None

    _, grads = value_and_grad(loss)({"t": jnp.ones((4, 2)), "unused": jnp.ones(3)})
    assert grads["t"][:, 0].tolist() == [2, 0, 0, 2]
    assert grads["unused"].tolist() == [0, 0, 0]
