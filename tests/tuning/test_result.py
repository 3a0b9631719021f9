"""The result of a sweep: order, table, intervals, models, files."""

import copy
import sys

import numpy as np
import pandas
import pytest
from tests.tuning.models import X, Y, make_model
from tests.visualization.html_pages import Page

from exburn import Input, Sequential, layers, load_model
from exburn.errors import ArgumentError, FileFormatError, MissingFileError
from exburn.saving.seal import seal_document
from exburn.tuning import Halving, sweep
from exburn.tuning.folds import confidence_interval
from exburn.tuning.records import LaneRecord
from exburn.tuning.result import SweepResult

NAN = float("nan")


def result_of(scores, mode="min", folds=None, build=None):
    lanes = []
    for i, (trial, score) in enumerate(scores):
        status = "nan" if np.isnan(score) else "finished"
        fold = None if folds is None else i % folds
        lanes.append(LaneRecord(trial, {"loss": [9, score]}, 2, status, fold, score))
    return SweepResult(lanes, build, "loss", mode)


TRIALS = [({"seed": s, "rate": r}, r + s / 10) for r in (0.5, 0.1, 0.3) for s in (1, 0)]


def test_the_table_has_the_best_first():
    found = result_of([*TRIALS, ({"rate": 9, "act": "relu"}, NAN)])
    table = found.table()
    assert isinstance(table, pandas.DataFrame)
    columns = ["seed", "rate", "act", "epochs", "status", "score", "loss"]
    assert list(table.columns) == columns
    assert table.index.tolist() == [3, 2, 5, 4, 1, 0, 6] == found.order()
    assert table.loc[6, "status"] == "nan" and table.loc[3, "score"] == 0.1
    assert found.best_trial == {"seed": 0, "rate": 0.1} and found.best_score == 0.1
    assert result_of(TRIALS, "max").order() == [0, 1, 4, 5, 2, 3]
    assert repr(found) == "<SweepResult: 7 lanes (6 finished, 1 nan), best loss 0.1>"
    assert "relu" in str(found) and len(str(found).splitlines()) == 12


def test_a_notebook_shows_a_table():
    result = result_of([*TRIALS, ({"rate": 9, "act": "<b>x"}, NAN)])
    page = Page(result._repr_html_()).check()
    assert page.names.count("tr") == 1 + 7 and "b" not in page.names
    assert "best" in page.text and "<b>x" in page.text


def test_whole_numbers_stay_whole_where_some_lanes_have_none():
    trials = [{"deep": True, "seed": 2**60 + 1}, {"deep": False}, {"deep": True}]
    found = result_of([(trial, 0.1 * at) for at, trial in enumerate(trials)]).table()
    assert found["seed"].tolist()[0] == 2**60 + 1
    assert found["seed"].isna().tolist() == [False, True, True]
    assert str(found["seed"].dtype) == "Int64" and str(found["deep"].dtype) == "bool"


def test_without_pandas_the_table_is_a_list(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert result_of(TRIALS).table()[0]["rate"] == 0.1


def test_folds_of_a_trial_are_compared_by_their_mean():
    scores = [
        ({"r": r}, s)
        for r, s in ((1, 0.1), (1, 0.9), (2, 0.3), (2, 0.2), (3, NAN), (3, 0.0))
    ]
    found = result_of(scores, folds=2)
    assert found.order() == [3, 2, 0, 1, 5, 4]
    assert found.best_score == pytest.approx(0.25)
    assert "fold" in found.table().columns
    best = found.configurations()[0]
    expected = confidence_interval([0.3, 0.2], folds=2)
    assert best.trial == {"r": 2} and best.interval == expected and best.lanes == (2, 3)


def test_configurations_have_the_mean_over_seeds():
    found = result_of(TRIALS).configurations(0.9)
    assert [one.trial["rate"] for one in found] == [0.1, 0.3, 0.5]
    assert found[0].interval == confidence_interval([0.2, 0.1], 0.9)
    assert [one.interval.n for one in found] == [2, 2, 2]
    assert np.isnan(result_of([({"a": 1}, NAN)]).configurations()[0].interval.mean)


@pytest.fixture(scope="module")
def built():
    made = []
    for seed in range(6):
        model = Sequential([Input((4,)), layers.Dense(3)], name=f"lane_{seed}")
        model.compile("adam", "cross_entropy")
        made.append(model)
    return made


def test_models_are_built_when_they_are_asked_for(built):
    asked = []

    def build(number):
        asked.append(number)
        return built[number]

    found = result_of([*TRIALS[:5], ({"rate": 9}, NAN)], build=build)
    assert found.best_model() is built[3] and asked == [3]
    assert [model.name for model in found.models(2)] == ["lane_3", "lane_2"]
    assert len(found.models(top=50)) == 5  # never the one that turned NaN
    committee = found.ensemble(top=3)
    x = np.ones((2, 4), "float32")
    each = np.stack([built[i].predict(x, verbose=0) for i in (3, 2, 4)], 1)
    p = np.exp(each) / np.exp(each).sum(-1, keepdims=True)
    np.testing.assert_allclose(committee.predict(x, verbose=0), p.mean(1), rtol=1e-5)


def test_the_plot_has_all_three_drawings():
    figure = result_of(TRIALS).plot()
    titles = [axes.get_title() for axes in figure.axes]
    assert titles == ["6 lanes", "importance", "values of each lane, the best dark"]
    assert len(result_of(TRIALS[:2]).plot().axes) == 1  # too few for importance
    assert result_of(TRIALS).plot("importance").axes[0].patches
    with pytest.raises(ArgumentError, match="kind is one of curves"):
        result_of(TRIALS).plot("pie")
    with pytest.raises(ArgumentError, match="options are of one kind"):
        result_of(TRIALS).plot(color="rate")


def test_records_survive_a_file(tmp_path):
    found = result_of([*TRIALS, ({"rate": 9}, NAN)], "max")
    found.save(tmp_path / "sweep.json")
    again = SweepResult.load(tmp_path / "sweep.json")
    assert again.order() == found.order() and str(again) == str(found)
    with pytest.raises(ArgumentError, match="records, but no models"):
        again.best_model()


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}', "\0"])
def test_what_is_no_file_of_a_sweep(text, tmp_path):
    file = tmp_path / "sweep.json"
    file.write_text(text)
    with pytest.raises(FileFormatError, match="not of the format exburn-sweep-1"):
        SweepResult.load(file)
    with pytest.raises(MissingFileError, match="there is no file"):
        SweepResult.load(tmp_path / "nothing.json")


RECORD = {
    "trial": {"rate": 0.1, "units": [1, 2]},
    "history": {"loss": [2.0, 1.0], "val_loss": [1.5]},
    "epochs": 2,
    "status": "finished",
    "fold": None,
    "score": 1.0,
}
ODD = [
    None,
    "x",
    -1,
    7,
    True,
    1.5,
    [],
    {},
    [None],
    ["x"],
    [[1.0]],
    {"a": None},
    10**400,
]


def use(result):
    """Everything that reads the records."""
    result.rows(), result.table(), str(result), repr(result), result.order()
    result.best, result.best_trial, result.best_score, result.configurations()
    result.plot("curves", metric="loss")


@pytest.mark.parametrize("place", [*RECORD, "loss", "rate", "extra"])
def test_records_that_are_none_are_errors_when_they_are_read(place, tmp_path):
    """With digests that fit, as whoever changes a file can compute them."""
    file, refused = tmp_path / "sweep.json", 0
    for odd in [value for value in ODD if value != RECORD.get(place)]:
        record = copy.deepcopy(RECORD)
        parts = {"loss": record["history"], "rate": record["trial"]}
        parts.get(place, record)[place] = odd
        content = {"monitor": "loss", "mode": "min", "notes": []}
        records = [copy.deepcopy(RECORD), record]
        data = seal_document("exburn-sweep-1", {**content, "records": records})
        file.write_bytes(data)
        try:
            result = SweepResult.load(file)
        except FileFormatError:
            refused += 1
        else:
            use(result)
    assert refused > (0 if place == "rate" else len(ODD) // 2)


@pytest.mark.parametrize("place", ["monitor", "mode", "notes", "records", "all"])
def test_results_that_are_none(place, tmp_path):
    file = tmp_path / "sweep.json"
    for odd in ODD:
        content = {"monitor": "loss", "mode": "min", "notes": [], "records": [RECORD]}
        content = {} if place == "all" else content | {place: odd}
        file.write_bytes(seal_document("exburn-sweep-1", content))
        if (place, odd) in [("monitor", "x"), ("notes", []), ("notes", ["x"])]:
            use(SweepResult.load(file))
            continue
        with pytest.raises(FileFormatError):
            SweepResult.load(file)


def test_what_cannot_be_a_result():
    with pytest.raises(ArgumentError, match="there are no lanes"):
        SweepResult([], None, "loss", "min")
    with pytest.raises(ArgumentError, match="mode is one of"):
        result_of(TRIALS, "auto")
    with pytest.raises(ArgumentError, match="top must be an integer ≥ 1"):
        result_of(TRIALS).models(0)
    none = result_of([({"rate": 1}, NAN)], build=lambda number: None)
    with pytest.raises(ArgumentError, match="no lane has a loss that is a number"):
        none.best_model()


def test_a_halved_sweep_and_the_committee_of_its_best(tmp_path):
    over = {"seed": range(2), "learning_rate": [0.3, 0.1, 0.03, 1e-4]}
    found = sweep(
        make_model(loss="cross_entropy"),
        *(X, Y),
        over=over,
        epochs=4,
        validation_data=(X, Y),
        halving=Halving(2),
        verbose=0,
    )
    # What sequential halving keeps of the scores that were logged.
    left, ends = list(range(8)), {1: 8, 2: 4, 4: 2}
    for epochs, lanes in ends.items():
        assert len(left) == lanes
        assert all(found.records[i].epochs >= epochs for i in left)
        scores = [found.records[i].history["val_loss"][epochs - 1] for i in left]
        left = [
            left[k] for k in sorted(np.argsort(scores, kind="stable")[: lanes // 2])
        ]
    ways = [record.status for record in found.records]
    assert (ways.count("finished"), ways.count("stopped")) == (2, 6)
    # A lane's score is that of the model which is built of it.
    best = found.best_model()
    assert best.evaluate(X, Y, verbose=0, return_dict=True)["loss"] == pytest.approx(
        found.best_score, rel=1e-5
    )
    committee = found.ensemble(top=3)
    logits = np.stack([m.predict(X, verbose=0) for m in found.models(3)], 1)
    p = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    np.testing.assert_allclose(committee.predict(X, verbose=0), p.mean(1), rtol=1e-4)
    committee.save(tmp_path / "committee.exburn")
    again = load_model(tmp_path / "committee.exburn")
    np.testing.assert_array_equal(
        again.predict(X, verbose=0), committee.predict(X, verbose=0)
    )
    assert found.plot().axes and len(found.table()) == 8
