"""Tests of ``model.compress``, ``exburn.compression.plan`` and their report."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.compression import compressing
from exburn.compression.recipes import RECIPES, Recipe
from exburn.compression.report import Attempt
from exburn.errors import (
    ArgumentError,
    DataError,
    DTypeError,
    NotCompiledError,
    UnknownNameError,
)

RNG = np.random.default_rng(0)
X = RNG.normal(size=(240, 32)).astype("float32")
Y = (X[:, :4] @ RNG.normal(size=(4, 3))).argmax(-1)
FEW = (Recipe("int8"), Recipe("int4"), Recipe("int8", cut=0.5))


def make():
    stack = [exburn.Input((32,)), layers.Dense(512, "relu"), layers.Dense(3)]
    made = exburn.Sequential(stack)
    made.compile("adam", "cross_entropy", metrics=["accuracy"], seed=0)
    return made


@pytest.fixture(scope="module")
def model():
    made = make()
    made.fit(X, Y, epochs=6, verbose=0)
    return made


def test_the_ways_are_in_the_order_of_what_they_cost():
    names = [recipe.name for recipe in RECIPES]
    assert names[:4] == ["float16", "int8", "int4", "int4, trained"]
    assert names[-1] == "25 % of units, int4, trained"
    assert [recipe.trains for recipe in RECIPES] == [False] * 3 + [True] * 7
    ways = [Attempt(Recipe(mode), size, 100 / size) for mode, size in
            (("float16", 50), ("int8", 25), ("int4", 20))]  # fmt: skip
    order = [way.bytes for way in compressing._in_order(ways, 4.0)]
    assert order == [25, 20, 50]
    order = [way.bytes for way in compressing._in_order(ways, 10.0)]
    assert order == [20, 25, 50]


def test_a_plan_tells_sizes_before_anything_is_trained(model, monkeypatch):
    monkeypatch.setattr(compressing, "RECIPES", FEW)
    monkeypatch.setattr(compressing, "_SECONDS", 0.001)
    found = exburn.compression.plan(model)
    exact, int8, int4, narrow = found.attempts
    assert exact.bytes == compressing.file_bytes(model) and exact.recipe is None
    assert exact.flops == 2 * (32 * 512 + 512 * 3)
    assert int8.bytes == compressing.file_bytes(model.quantize("int8"))
    assert narrow.flops == exact.flops / 2 and int4.flops == exact.flops
    assert all(one.speed > 0 and one.score is None for one in found.attempts)
    assert found.chosen is None and not found.reached
    assert "50 % of units, int8" in str(found)


def test_what_reaches_the_target_is_returned(model, monkeypatch, tmp_path):
    monkeypatch.setattr(compressing, "RECIPES", FEW)
    before, options = model.get_weights(), {"validation_split": 0.25, "epochs": 4}
    small = model.compress(X, Y, "3x", 4, **options)
    report = small.compression_report
    held_out = model.evaluate(X[180:], Y[180:], verbose=0, return_dict=True)
    assert report.attempts[0].score == held_out["accuracy"]
    assert report.reached and report.chosen.bytes == compressing.file_bytes(small)
    small.save(tmp_path / "small.exburn", include_optimizer=False)
    assert (tmp_path / "small.exburn").stat().st_size == report.chosen.bytes
    # The narrow one is trained beside the given model, which stays as it is.
    monkeypatch.setattr(compressing, "RECIPES", FEW[::2])
    narrow = model.compress(X, Y, 4.5, 30, **options)
    assert narrow.compression_report.chosen.name == "50 % of units, int8"
    assert narrow.layers[0].units == 256
    for one, other in zip(model.get_weights(), before, strict=True):
        np.testing.assert_array_equal(one, other)
    assert model.trainable_weights and model.compression_report is None


def test_the_smallest_of_those_without_training_is_returned(model, monkeypatch):
    monkeypatch.setattr(compressing, "RECIPES", FEW[:2])
    report = model.compress(X, Y, "3x", 30).compression_report
    assert report.chosen.name == "int4" and report["int8"].score is not None


def test_without_a_target_the_smallest_within_the_points_is_returned(
    model, monkeypatch
):
    monkeypatch.setattr(compressing, "RECIPES", FEW[:2])
    report = model.compress(X, Y, None, 30).compression_report
    assert report.chosen.name == "int4" and report["int8"].score is None
    assert report.reached and "As small as can be within 30 points" in str(report)
    monkeypatch.setattr(compressing._Judge, "is_within", lambda *_: False)
    with pytest.warns(UserWarning, match="nothing stayed within 30 points"):
        report = model.compress(X, Y, None, 30).compression_report
    assert not report.reached


def test_what_is_not_good_enough_is_not_returned(model, monkeypatch):
    monkeypatch.setattr(compressing, "RECIPES", FEW[:2])
    with pytest.warns(UserWarning, match="nothing reached 50 ×"):
        small = model.compress(X, Y, "50x", 4)
    report = small.compression_report
    assert not report.reached and report.chosen.name == "int4"
    monkeypatch.setattr(compressing._Judge, "score", lambda *_: float("nan"))
    with pytest.warns(UserWarning, match="the given model"):
        same = model.compress(X, Y, "3x", 4)
    assert same is not model and same.compression_report.chosen is None
    np.testing.assert_array_equal(
        same.predict(X[:5], verbose=0), model.predict(X[:5], verbose=0)
    )


def test_a_way_that_cannot_be_trained_does_not_end_the_others(model, monkeypatch):
    def refuse(self, recipe):
        if recipe.mode == "int8":
            raise ArgumentError("quantize_aware", "this layer cannot")
        return self.outline(recipe)

    monkeypatch.setattr(compressing, "RECIPES", FEW[:2])
    monkeypatch.setattr(compressing.Workshop, "make", refuse)
    report = model.compress(X, Y, "3x", 50).compression_report
    assert report["int8"].note == "this layer cannot"
    assert report.chosen.name == "int4"


def test_points_of_a_loss_are_per_cent(model, monkeypatch):
    data = {"x": X, "y": Y}
    judge = compressing._Judge(model, data, "loss", 32, 5.0)
    assert not judge.is_share
    assert judge.points_lost(1.04 * judge.exact) == pytest.approx(4.0)
    judge = compressing._Judge(model, data, None, 32, 5.0)
    assert judge.metric == "accuracy"
    assert judge.points_lost(judge.exact - 0.02) == pytest.approx(2.0)
    assert not judge.is_within(Attempt(None, lost=float("nan")))
    with pytest.raises(UnknownNameError, match="auc"):
        compressing._Judge(model, data, "auc", 32, 5.0)


def test_ways_that_are_not_open_are_told_with_the_reason(monkeypatch):
    class Net(exburn.Model):
        def __init__(self):
            super().__init__()
            self.last = layers.Dense(3)

        def call(self, x):
            return self.last(x)

    model = Net()
    model(X)
    monkeypatch.setattr(compressing, "RECIPES", FEW[::2])
    found = exburn.compression.plan(model, timed=False)
    assert found["int8"].bytes and found["50 % of units, int8"].bytes is None
    assert "not possible" in str(found) and "Sequential or functional" in str(found)


def test_what_cannot_be_asked_for():
    model = make()
    for target in ("four", 1, "1x", 0.5, True, float("nan")):
        with pytest.raises(ArgumentError, match="target"):
            model.compress(X, Y, target)
    with pytest.raises(ArgumentError, match="within"):
        model.compress(X, Y, within=-1)
    for argument, value in (
        ("epochs", 0),
        ("temperature", 0),
        ("student_loss_weight", 2),
        ("verbose", "loud"),
    ):
        with pytest.raises(ArgumentError, match=argument):
            model.compress(X, Y, **{argument: value})
    with pytest.raises(ArgumentError, match="x is an iterator"):
        model.compress(iter([(X, Y)]), validation_data=(X, Y))
    with pytest.raises(ArgumentError, match="validation_data is an iterator"):
        model.compress(X, Y, validation_data=iter([(X, Y)]))
    with pytest.raises(ArgumentError, match="validation_split"):
        model.compress(X, Y, validation_split=0.0)
    with pytest.raises(DataError):
        model.compress(X, Y[:10])
    plain = exburn.Sequential([exburn.Input((4,)), layers.Dense(2)])
    with pytest.raises(NotCompiledError):
        plain.compress(X, Y)
    with pytest.raises(ArgumentError, match="quantized already"):
        exburn.compression.plan(model.quantize("int8"))


def test_what_cannot_be_planned():
    plan, model = exburn.compression.plan, make()
    with pytest.raises(ArgumentError, match="plan: target"):
        plan(model, "four")
    with pytest.raises(ArgumentError, match="a model is needed, received NoneType"):
        plan(None)
    with pytest.raises(DTypeError, match="not str"):
        plan(model, x="rows")
    free = exburn.Sequential([exburn.Input((None, 4)), layers.Dense(2)])
    with pytest.raises(ArgumentError, match=r"compression.plan\(model, x=x\)"):
        plan(free)


def test_the_first_metric_is_that_of_compile():
    x = exburn.Input((4,))
    model = exburn.Model(x, [layers.Dense(2, name=name)(x) for name in "ab"])
    data = {"x": X[:, :4], "y": [X[:, :2], X[:, :2]]}
    for metrics, first in ((None, "loss"), ([["mae"], ["mae"]], "a_mae")):
        model.compile("adam", ["mse", "mse"], metrics=metrics)
        assert compressing._Judge(model, data, None, 32, 1.0).metric == first
