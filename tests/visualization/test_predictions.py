"""Tests of ``exburn.visualization.predictions``."""

import numpy as np
import pytest

from exburn import visualization
from exburn.errors import ArgumentError, ShapeError, UnknownNameError

metrics = pytest.importorskip("sklearn.metrics")
pytest.importorskip("matplotlib")


def test_the_matrix_is_that_of_scikit_learn():
    rng = np.random.default_rng(0)
    true, scores = rng.integers(0, 5, 200), rng.normal(size=(200, 5))
    wanted = metrics.confusion_matrix(true, scores.argmax(-1), labels=range(5))
    np.testing.assert_array_equal(visualization.confusion_matrix(true, scores), wanted)
    one_hot = np.eye(5)[true]
    np.testing.assert_array_equal(
        visualization.confusion_matrix(one_hot, scores), wanted
    )
    binary = visualization.confusion_matrix([0, 1, 1, 0], [[0.2], [0.9], [0.4], [0.7]])
    assert binary.tolist() == [[1, 1], [1, 1]]


def test_it_is_drawn_with_its_labels():
    figure = visualization.plot_confusion_matrix(
        [[3, 1], [0, 4]], ["cat", "dog"], title="Now"
    )
    axes = figure.axes[0]
    assert axes.get_title(loc="left") == "Now  87.5% correct"
    assert [text.get_text() for text in axes.get_xticklabels()] == ["cat", "dog"]
    many = visualization.plot_confusion_matrix(np.eye(50, dtype=int))
    assert not many.axes[0].texts


def test_what_is_right_is_green_and_what_is_wrong_is_red():
    figure = visualization.plot_prediction_images(
        np.zeros((3, 4, 4, 3)), ["a", "b", "c"], ["a", "x", "c"]
    )
    assert [axes.get_title() for axes in figure.axes] == ["a", "x (b)", "c"]
    colors = [axes.title.get_color() for axes in figure.axes]
    assert colors[0] == colors[2] != colors[1]
    table = visualization.plot_prediction_table(
        [[1.0, 2.34567], [3, 4]], None, ["0.5", "0.7"], ["w", "h"]
    )
    cells = table.axes[0].tables[0].get_celld()
    assert [cells[1, c].get_text().get_text() for c in range(3)] == [
        "1",
        "2.346",
        "0.5",
    ]


def test_dollars_begin_no_formula(tmp_path):
    texts = ["from $5 to $\\frac{6"]
    images = np.zeros((1, 4, 4))
    for figure in (
        visualization.plot_prediction_table(texts, ["$a"], ["$b$"], title="$x_$"),
        visualization.plot_prediction_images(images, ["$a"], ["$_$"]),
        visualization.plot_confusion_matrix([[1]], ["$_$"]),
    ):
        figure.savefig(tmp_path / "a.png")  # an error, where they do


def test_what_does_not_fit_is_refused():
    with pytest.raises(ShapeError, match="one class for each sample"):
        visualization.confusion_matrix([0, 1], [0])
    with pytest.raises(ArgumentError, match="from 0 to 1, received 2"):
        visualization.confusion_matrix([0, 2], [0, 1], classes=2)
    with pytest.raises(ArgumentError, match="no label for 1"):
        visualization.plot_confusion_matrix(np.eye(2, dtype=int), ["cat"])
    with pytest.raises(ShapeError, match="square"):
        visualization.plot_confusion_matrix([[1, 2]])
    with pytest.raises(ShapeError, match="2 samples, and 1 texts"):
        visualization.plot_prediction_images(np.zeros((2, 4, 4)), ["a"], ["a", "b"])
    with pytest.raises(ShapeError, match="2 columns, and 1 names"):
        visualization.plot_prediction_table([[1, 2]], None, ["x"], ["w"])


NAMES = ["cat", "cow", "dog"]
TRUE = np.array([0, 2, 1, 2, 2, 0])
PRED = np.array([0, 2, 2, 2, 0, 1])


def as_frame(package, values):
    library = pytest.importorskip(package)
    frame = {"pyarrow": "table"}.get(package, "DataFrame")
    return getattr(library, frame)({"y": values})["y"]


# Labels and predictions, all of which mean TRUE and PRED.
FORMS = {
    "lists": (TRUE.tolist(), PRED.tolist()),
    "columns": (TRUE[:, None], PRED[:, None]),
    "floats": (TRUE.astype(float), PRED.astype(float)),
    "one-hot": (np.eye(3)[TRUE], np.eye(3)[PRED]),
    "probabilities": (TRUE, np.eye(3)[PRED] * 0.8 + 0.1),
    "pandas": (as_frame("pandas", TRUE), as_frame("pandas", PRED)),
    "polars": (as_frame("polars", TRUE), as_frame("polars", PRED)),
    "pyarrow": (as_frame("pyarrow", TRUE), as_frame("pyarrow", PRED)),
    "names": ([NAMES[i] for i in TRUE], [NAMES[i] for i in PRED]),
    "names of NumPy": (np.array(NAMES)[TRUE], np.array(NAMES, object)[PRED]),
    "names of pandas": (
        as_frame("pandas", np.array(NAMES)[TRUE]),
        as_frame("pandas", np.array(NAMES)[PRED]),
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_is_drawn_of_labels_and_predictions(form):
    true, pred = FORMS[form]
    wanted = metrics.confusion_matrix(TRUE, PRED)
    np.testing.assert_array_equal(visualization.confusion_matrix(true, pred), wanted)
    for labels in (None, NAMES):
        figure = visualization.plot_confusion_matrix(true, pred, labels)
        axes = figure.axes[0]
        numbers = [int(text.get_text()) for text in axes.texts]
        assert numbers == wanted.reshape(-1).tolist()
        ticks = [text.get_text() for text in axes.get_yticklabels()]
        named = labels is not None or form.startswith("names")
        assert ticks == (NAMES if named else ["0", "1", "2"])


def test_labels_order_and_complete_the_classes():
    figure = visualization.plot_confusion_matrix(
        ["a", "b"], ["b", "b"], ["b", "c", "a"]
    )
    texts = [text.get_text() for text in figure.axes[0].texts]
    assert texts == ["1", "0", "0", "0", "0", "0", "1", "0", "0"]
    figure = visualization.plot_confusion_matrix(
        [0, 1], [1, 1], {0: "x", 1: "y", 2: "z"}
    )
    assert len(figure.axes[0].texts) == 9
    by_number = visualization.plot_confusion_matrix([[1, 0], [0, 1]], {0: "x", 1: "y"})
    ticks = [text.get_text() for text in by_number.axes[0].get_xticklabels()]
    assert ticks == ["x", "y"]


def test_probabilities_of_one_class():
    figure = visualization.plot_confusion_matrix([0, 1, 1], [[0.2], [0.9], [0.4]])
    assert [t.get_text() for t in figure.axes[0].texts] == ["1", "0", "1", "1"]


def test_labels_and_predictions_that_do_not_fit():
    plot = visualization.plot_confusion_matrix
    with pytest.raises(ArgumentError, match="(?s)1.5 at row 1.*sigmoid"):
        plot([0, 1], [-2.0, 1.5])
    with pytest.raises(ArgumentError, match="(?s)beside y_pred.*matrix, labels="):
        plot([[8, 2], [1, 9]], [0, 1])
    with pytest.raises(ShapeError, match="one class for each sample"):
        plot([0, 1, 1], [0, 1])
    with pytest.raises(ArgumentError, match="both be names"):
        plot(["a", "b"], [0, 1])
    with pytest.raises(UnknownNameError, match="dgo"):
        plot(["cat", "dgo"], ["cat", "cat"], ["cat", "dog"])
    with pytest.raises(ShapeError, match="(?s)square.*y_true, y_pred"):
        plot([0, 1, 1])
