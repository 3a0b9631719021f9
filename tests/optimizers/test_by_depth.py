"""Learning rates that fall from the output to the input."""

import numpy as np
import pytest

from exburn import layers, load_model, models, optimizers
from exburn.errors import ArgumentError, DTypeError, UnknownNameError
from exburn.optimizers import SGD, Adam, by_depth, schedules


def make(count=3):
    parts = [layers.Dense(4, name=f"dense_{i}") for i in range(count)]
    return models.Sequential([layers.Input((4,)), *parts])


def rates(optimizer):
    return [float(part.learning_rate) for part in optimizer.optimizers]


def test_each_layer_learns_at_its_rate(tmp_path):
    model = make()
    optimizer = by_depth(SGD(0.8, momentum=0.0), model, decay=0.5)
    np.testing.assert_allclose(rates(optimizer), [0.2, 0.4, 0.8])
    plain = make()
    plain.set_weights(model.get_weights())
    x = np.random.default_rng(0).normal(size=(8, 4)).astype("float32")
    changes = []
    for one, chosen in ((model, optimizer), (plain, SGD(0.8, momentum=0.0))):
        before = one.get_weights()
        one.compile(chosen, "mse")
        one.fit(x, x, batch_size=8, verbose=0)
        after = one.get_weights()
        changes.append([b - a for b, a in zip(before, after, strict=True)])
    for number, (ours, whole) in enumerate(zip(*changes, strict=True)):
        factor = 0.5 ** (2 - number // 2)
        np.testing.assert_allclose(ours, factor * whole, rtol=1e-4, atol=1e-6)
    model.save(tmp_path / "model.exburn")
    again = load_model(tmp_path / "model.exburn")
    np.testing.assert_allclose(rates(again.optimizer), [0.2, 0.4, 0.8])


def test_groups():
    model = make(5)
    optimizer = by_depth(Adam(1.0), model, decay=0.1, groups=2)
    np.testing.assert_allclose(rates(optimizer), [0.1, 1.0])
    chosen = optimizer.optimizer_map
    assert float(chosen["dense_1/kernel"].learning_rate) == pytest.approx(0.1)
    assert float(chosen["dense_2/kernel"].learning_rate) == 1.0
    groups = ["dense_0/.*", "dense_[12]/.*", "dense_[34]/.*"]
    optimizer = by_depth(Adam(1.0), model, decay=0.1, groups=groups)
    np.testing.assert_allclose(rates(optimizer), [0.01, 0.1, 1.0])
    assert len(by_depth(Adam(), make(20)).optimizers) == 12


def test_a_schedule_is_scaled():
    schedule = schedules.LinearWarmup(1.0, 4)
    optimizer = by_depth(SGD(schedule), make(2), decay=0.5)
    first = optimizer.optimizers[0].schedule
    assert [float(first(step)) for step in (2, 4)] == [0.25, 0.5]
    again = schedules.deserialize(schedules.serialize(first))
    assert float(again(4)) == 0.5
    assert not first.set_epochs(3, 4)
    with pytest.raises(DTypeError, match="a schedule"):
        schedules.Scaled(0.1, 2.0)


def test_arguments():
    model = make()
    with pytest.raises(ArgumentError, match="decay"):
        by_depth(SGD(), model, decay=0.0)
    with pytest.raises(ArgumentError, match="4 groups of 3"):
        by_depth(SGD(), model, groups=4)
    with pytest.raises(ArgumentError, match="regular expressions"):
        by_depth(SGD(), model, groups=[1])
    with pytest.raises(ArgumentError, match="no weights"):
        by_depth(SGD(), models.Sequential([layers.Dense(3)]))
    with pytest.raises(DTypeError, match="single optimizer"):
        by_depth("adam", model)
    model.compile(by_depth(SGD(), model, groups=["nothing/.*", "dense.*"]), "mse")
    x = np.ones((4, 4), "float32")
    with pytest.raises(UnknownNameError, match="nothing"):
        model.fit(x, x, verbose=0)
    assert isinstance(by_depth(SGD(), model), optimizers.MultiOptimizer)
