"""Scores from gradients, beside their definitions in NumPy."""

import numpy as np

import exburn
from exburn import layers
from exburn.insight.influence.products import Part, RowFeatures, datainf

RNG = np.random.default_rng(5)


def mean_of_inverses(rows, others, damping):
    """DataInf by its definition, of one part: inverses of each row's moment."""
    width = rows.shape[1]
    level = damping * (rows**2).sum(1).mean() / width
    inverses = [np.linalg.inv(np.outer(g, g) + level * np.eye(width)) for g in rows]
    return rows @ np.mean(inverses, 0) @ others.T


def test_datainf_is_the_mean_of_inverses_of_each_part():
    rows, others = RNG.standard_normal((9, 7)), RNG.standard_normal((4, 7))
    features = RowFeatures(rows, (rows**2).sum(1))
    scores, own = datainf(features, others, 0.1, [Part(3, 3), Part(4, 4)])
    expected, self_expected = 0, 0
    for part in (slice(0, 3), slice(3, 7)):
        expected += mean_of_inverses(rows[:, part], others[:, part], 0.1)
        self_expected += np.diag(mean_of_inverses(rows[:, part], rows[:, part], 0.1))
    assert scores is not None
    np.testing.assert_allclose(scores, expected, rtol=1e-4)
    np.testing.assert_allclose(own, self_expected, rtol=1e-4)


def test_rows_without_gradients_have_no_influence():
    scores, own = datainf(
        RowFeatures(np.zeros((2, 3)), np.zeros(2)), np.ones((1, 3)), 0.1, [Part(3, 3)]
    )
    assert scores is not None and not scores.any() and not own.any()


def test_adapters_alone_have_gradients_each_projected_by_itself():
    model = exburn.Sequential(
        [exburn.Input((6,)), layers.Dense(40, "tanh"), layers.Dense(2)]
    )
    model.add_lora(2)
    model.compile("sgd", "mse", seed=0)
    x = RNG.standard_normal((10, 6)).astype(np.float32)
    y = RNG.standard_normal((10, 2)).astype(np.float32)
    model.fit(x, y, epochs=2, verbose=0)
    exact = model.influence(x, y, on=(x[:3], y[:3]), method="datainf")
    sizes = [w.numpy().size for w in model.trainable_weights]
    assert exact.entries == sum(sizes) == exact.features.shape[1]
    near = model.influence(x, y, on=(x[:3], y[:3]), method="datainf", projection=50)
    assert near.features.shape == (10, sum(min(size, 50) for size in sizes))
    assert "weight by weight" in near.text() and "exact" in exact.text()
    assert near.scores is not None and exact.scores is not None
    assert np.corrcoef(near.scores.ravel(), exact.scores.ravel())[0, 1] > 0.9
