"""Influence at the weights of checkpoints: their sum, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import ModelCheckpoint
from exburn.errors import ArgumentError, DataError, MissingFileError
from exburn.optimizers.schedules import CosineDecay

RNG = np.random.default_rng(3)
X = RNG.standard_normal((12, 3)).astype(np.float32)
Y = RNG.standard_normal((12, 1)).astype(np.float32)
ON = X[:4], Y[:4]


def build(units: int = 1) -> Any:
    model: Any = exburn.Sequential(
        [exburn.Input((3,)), layers.BatchNormalization(), layers.Dense(units)]
    )
    model.compile(exburn.optimizers.Adam(CosineDecay(0.1, 12)), "mse", seed=0)
    return model


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A model, its checkpoints of whole runs, and the weights after each epoch."""
    folder, weights = tmp_path_factory.mktemp("run"), []
    model = build()
    saves = [
        ModelCheckpoint(str(folder / "whole") + "/", keep=5),
        ModelCheckpoint(str(folder / "{epoch}.safetensors"), save_weights_only=True),
        ModelCheckpoint(str(folder / "{epoch}.exburn")),
        exburn.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: weights.append(model.get_weights())
        ),
    ]
    model.fit(X, Y, epochs=3, batch_size=4, verbose=0, callbacks=saves)
    return model, folder, weights


def by_loading(run, rates):
    """The same sums, by a model that is given the weights of one after another."""
    model, _, weights = run
    other = build()
    scores, own = 0, 0
    for arrays, rate in zip(weights, rates, strict=True):
        other.set_weights(arrays)
        rows = other.influence(X, Y, on=ON)
        scores, own = scores + rate * rows.scores, own + rate * rows.self_influence
    return scores, own


@pytest.mark.parametrize("form", ["files", "models", "weights"])
def test_scores_are_the_sum_by_learning_rates(run, form):
    model, folder, weights = run
    sources = {
        "files": [folder / f"{n}.safetensors" for n in (1, 2, 3)],
        "models": [str(folder / f"{n}.exburn") for n in (1, 2, 3)],
        "weights": weights,
    }[form]
    rates = 0.5, 0.0, 2.0
    before = model.get_weights()
    rows = model.influence(
        X, Y, on=ON, checkpoints=[*zip(sources, rates, strict=True)], batch_size=5
    )
    scores, own = by_loading(run, rates)
    np.testing.assert_allclose(rows.scores, scores, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(rows.self_influence, own, rtol=1e-4)
    assert rows.checkpoints == 3 and "of 3 checkpoints" in rows.text()
    products = rows.features @ rows.features.T
    np.testing.assert_allclose(np.diag(products), own, rtol=1e-4)
    after = model.get_weights()
    assert all(np.array_equal(*pair) for pair in zip(before, after, strict=True))


def test_whole_runs_have_their_learning_rates(run):
    model, folder, _ = run
    rates = [0.05 * (1 + np.cos(np.pi * step / 12)) for step in (3, 6, 9)]
    rows = model.influence(X, Y, on=ON, checkpoints=folder / "whole")
    scores, own = by_loading(run, rates)
    np.testing.assert_allclose(rows.scores, scores, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(rows.self_influence, own, rtol=1e-4)


@pytest.mark.parametrize("method", ["trak", "datainf"])
def test_the_other_methods_take_the_mean(run, method):
    model, _, weights = run
    rows = model.influence(X, Y, on=ON, method=method, checkpoints=weights)
    other, scores = build(), []
    for arrays in weights:
        other.set_weights(arrays)
        scores.append(other.influence(X, Y, on=ON, method=method).scores)
    np.testing.assert_allclose(rows.scores, np.mean(scores, 0), rtol=1e-3, atol=1e-5)


class Shuffled(exburn.utils.PyDataset):
    def __init__(self, moves):
        super().__init__()
        self.order, self.moves = np.arange(len(X)), moves

    def __len__(self):
        return 2

    def __getitem__(self, number):
        rows = self.order[number::2]
        return X[rows], Y[rows]

    def on_epoch_end(self):
        if self.moves:
            self.order = np.roll(self.order, 1)


def test_a_loader_gives_each_checkpoint_the_same_rows(run):
    model = run[0]
    points = [model.get_weights()] * 2
    rows = model.influence(Shuffled(False), checkpoints=points)
    order = [*range(0, len(X), 2), *range(1, len(X), 2)]
    expected = 2 * model.influence(X, Y).self_influence[order]
    np.testing.assert_allclose(rows.self_influence, expected, rtol=1e-5)
    with pytest.raises(DataError, match="in another order each time"):
        model.influence(Shuffled(True), checkpoints=points)


def test_results_at_checkpoints_are_read_back(run, tmp_path):
    model, _, weights = run
    rows = model.influence(X, Y, on=ON, checkpoints=weights)
    rows.save(tmp_path / "rows")
    again = type(rows).load(tmp_path / "rows")
    assert again.checkpoints == 3 and again.text() == rows.text()


def test_what_is_no_checkpoint_of_the_model_is_refused_before_a_program(run, tmp_path):
    model, folder, weights = run
    wide = build(2)
    wide.save_weights(tmp_path / "wide.safetensors")
    deep = exburn.Sequential([exburn.Input((3,)), layers.Dense(1), layers.Dense(1)])
    deep.save_weights(tmp_path / "deep.safetensors")
    programs = model.trace_counts
    for name in ("wide", "deep"):
        paths = [folder / "1.safetensors", tmp_path / f"{name}.safetensors"]
        with pytest.raises(ArgumentError, match=r"checkpoints\[1\] is of another"):
            model.influence(X, Y, checkpoints=paths)
    bad: list[tuple[Any, str]] = [
        ([wide.get_weights()], r"checkpoints\[0\] is of another model"),
        ([], "checkpoints must be"),
        (3, "checkpoints must be"),
        ([3], r"checkpoints\[0\] must be a path"),
        ([(weights[0], -1.0)], "rate"),
        ([(weights[0], 0.0)], "are 0"),
    ]
    for checkpoints, message in bad:
        with pytest.raises(ArgumentError, match=message):
            model.influence(X, Y, checkpoints=checkpoints)
    with pytest.raises(ArgumentError, match="of 'tracin' alone"):
        model.influence(X, Y, method="trak", checkpoints=[(weights[0], 0.1)])
    with pytest.raises(MissingFileError):
        model.influence(X, Y, checkpoints=[tmp_path / "none.safetensors"])
    assert model.trace_counts == programs
