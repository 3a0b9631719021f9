"""``model.info()``, ``model.plan()``, and what happens when memory runs out."""

import numpy as np
from tests.models.networks import network

X = np.random.default_rng(0).standard_normal((96, 6)).astype(np.float32)
Y = np.arange(96) % 3


def test_a_plan_knows_the_data_of_the_last_fit():
    model = network()
    model.fit(X, Y, verbose=0)
    plan = model.plan(16, largest=False)
    assert plan.batch_bytes == 4 * 6 * 16 + 4 * 16
