"""Losses, optimizers, schedules and the order of a step, by ExBurn's own formulas.

Everything is computed again here in NumPy float64, from the text of its guides.
"""

import math

import numpy as np
import pytest
from tests.models.rules import CLOSE, OURS, RULES, STEPS

import exburn
from exburn import optimizers
from exburn.losses.catalogue import as_loss
from exburn.optimizers import schedules


@pytest.mark.parametrize("size", [1.0, 1e-4], ids=["large", "small"])
@pytest.mark.parametrize("name", RULES)
def test_optimizers(name, size):
    rng = np.random.default_rng(0)
    p = rng.normal(size=50).astype(np.float32)
    rule, wanted = RULES[name](), p.astype(np.float64)
    optimizer = OURS[name](learning_rate=0.001)
    params = {"p": p}
    state = optimizer.init(params)
    for _ in range(STEPS):
        g = (size * rng.normal(size=50)).astype(np.float32)
        wanted = rule(wanted, g.astype(np.float64), 0.001)
        params, state = optimizer.update({"p": g}, state, params)
    np.testing.assert_allclose(np.asarray(params["p"]), wanted, **CLOSE)


def test_an_sgd_of_its_own_momentum_keeps_it():
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile(optimizers.SGD(momentum=0.5), "mse", nesterov=True)
    assert (model.optimizer.momentum, model.optimizer.nesterov) == (0.5, True)


def test_schedules():
    total, per_epoch = 7, 10
    formulas = {
        ("step", 0.1, 3, 0.5): lambda e: 0.1 * 0.5 ** ((e - 1) // 3),
        ("exponential", 0.1, 0.9): lambda e: 0.1 * 0.9 ** (e - 1),
        ("cosine", 0.1, 0.01): lambda e: (
            0.01 + 0.5 * 0.09 * (1 + math.cos(math.pi * (e - 1) / (total - 1)))
        ),
    }
    for given, formula in formulas.items():
        schedule = schedules.get(given)
        schedule.set_epochs(per_epoch, total)
        for epoch in range(1, total + 1):
            for step in ((epoch - 1) * per_epoch, epoch * per_epoch - 1):
                assert float(schedule(step)) == pytest.approx(formula(epoch), rel=1e-6)


def test_schedules_in_fit():
    seen = []
    model = exburn.Sequential([exburn.Input((2,)), exburn.layers.Dense(1)])
    model.compile("sgd", "mse")

    def watch(logs):
        seen.append(model.optimizer.learning_rate)

    x, y = np.ones((8, 2), np.float32), np.ones((8, 1), np.float32)
    for epochs in (3, 5):  # E is the run's, also when the same options come again
        seen.clear()
        model.compile("sgd", "mse")
        model.fit(
            x,
            y,
            batch_size=4,
            epochs=epochs,
            verbose=0,
            callbacks=[watch],
            lr_schedule=["cosine", 0.1, 0.0],
        )
        # After epoch e comes the rate of epoch e + 1.
        wanted = [
            0.05 * (1 + math.cos(math.pi * min(e / (epochs - 1), 1)))
            for e in range(1, epochs + 1)
        ]
        np.testing.assert_allclose(seen, wanted, atol=1e-7)


def test_cross_entropy():
    rng = np.random.default_rng(2)
    z, labels = 5 * rng.normal(size=(16, 4)).astype(np.float32), np.arange(16) % 4
    wide = z.astype(np.float64) - z.max(1, keepdims=True)
    wanted = -(wide - np.log(np.exp(wide).sum(1, keepdims=True)))[
        np.arange(16), labels
    ].mean()
    loss = as_loss("cross_entropy")
    hot = np.eye(4, dtype=np.float32)[labels]
    assert float(loss(labels.astype(np.int32), z)) == pytest.approx(wanted, rel=1e-6)
    assert float(loss(hot, z)) == pytest.approx(wanted, rel=1e-6)


def test_mse_is_the_mean_over_all_elements():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 16, 4)).astype(np.float32)
    wanted = ((a.astype(np.float64) - b) ** 2).mean()
    assert float(as_loss("mse")(a, b)) == pytest.approx(wanted, rel=1e-6)


def test_binary_cross_entropy_takes_probabilities_and_clips_them():
    rng = np.random.default_rng(4)
    p = rng.uniform(0.001, 0.999, (16, 1)).astype(np.float32)
    t = rng.integers(0, 2, (16, 1)).astype(np.float32)
    wide = p.astype(np.float64)
    wanted = -(t * np.log(wide) + (1 - t) * np.log(1 - wide)).mean()
    loss = as_loss("binary_cross_entropy")
    assert float(loss(t, p)) == pytest.approx(wanted, rel=1e-6)
    edge = float(loss(np.float32([[1.0]]), np.float32([[0.0]])))
    assert edge == pytest.approx(-math.log(1e-7), rel=1e-6)
