"""``model.info()``, ``model.plan()``, and what happens when memory runs out."""

import numpy as np

import exburn
from exburn import layers

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def network(compiled=True, **settings):
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(8, "relu"), layers.Dense(3)]
    )
    if compiled:
        settings = {"loss": "cross_entropy", "metrics": ["accuracy"]} | settings
        model.compile("adam", seed=0, **settings)
    return model


def test_a_plan_knows_the_data_of_the_last_fit():
    model = network()
    model.fit(X, Y, verbose=0)
    plan = model.plan(16, largest=False)
    assert plan.batch_bytes == 4 * 6 * 16 + 4 * 16
