"""What a classifier says in the end: counted, shown, and never in a training's way."""

import base64
import io
import re

import numpy as np
import pytest
from PIL import Image

import exburn
from exburn import layers, runs
from exburn.command_line.main import main
from exburn.models.fitting import _classifier
from exburn.runs.predictions import Classifier, picture, predictions_of
from exburn.runs.reading import Run
from exburn.runs.report import make_report


class Model:
    """Predicts what its inputs are."""

    def __init__(self, outputs):
        self.outputs, self.place = np.asarray(outputs), 0

    def predict(self, x, batch_size, verbose):
        count = len(next(iter(x.values()))) if isinstance(x, dict) else len(x)
        self.place += count
        return self.outputs[self.place - count : self.place]


SOFTMAX, SIGMOID = Classifier(False, False), Classifier(True, False)
OUTPUTS = [[0.9, 0.1, 0.0], [0.2, 0.7, 0.1], [0.3, 0.3, 0.4], [0.6, 0.3, 0.1]]
MATRIX = [[2, 0, 0], [0, 1, 1], [0, 0, 0]]


def examined(y, outputs=OUTPUTS, classifier=SOFTMAX, x=None, parts=2):
    y = np.asarray(y)
    x = np.zeros((len(y), 2)) if x is None else x
    split = [
        (
            {k: v[at] for k, v in x.items()} if isinstance(x, dict) else x[at],
            y[at],
            None,
        )
        for at in np.array_split(np.arange(len(y)), parts)
    ]
    return predictions_of(Model(outputs), iter(split), classifier, 60)


@pytest.mark.parametrize(
    "y",
    [[0, 1, 1, 0], [[0], [1], [1], [0]], [0.0, 1.0, 1.0, 0.0], np.eye(3)[[0, 1, 1, 0]]],
    ids=["classes", "column", "floats", "one-hot"],
)
def test_labels_of_every_form(y):
    found = examined(y)
    assert found["matrix"] == MATRIX and found["correct"] == 0.75
    wrong, *right = found["examples"]
    assert (wrong["true"], wrong["predicted"], wrong["probability"]) == (1, 2, 0.4)
    assert all(one["true"] == one["predicted"] for one in right) and len(right) == 3


def test_logits_and_one_number():
    logits = np.log(np.maximum(OUTPUTS, 1e-9)) * 2 + 5
    assert examined([0, 1, 1, 0], logits, Classifier(False, True))["matrix"] == MATRIX
    found = examined([0, 1, 1], [[0.2], [0.9], [0.1]], SIGMOID)
    assert found["matrix"] == [[1, 0], [1, 1]]
    found = examined([0, 1, 1], [[-1e4], [2.0], [-2.0]], Classifier(True, True))
    assert found["matrix"] == [[1, 0], [1, 1]]


@pytest.mark.parametrize(
    "y",
    [
        [0.5, 1, 1, 0],
        [0, 3, 1, 0],
        [-1, 1, 1, 0],
        np.full((4, 3), 1 / 3),
        np.ones((4, 3)),
    ],
    ids=["fractions", "beyond", "negative", "shares", "several"],
)
def test_other_targets_are_no_classes(y):
    assert examined(y) is None


def test_of_many_classes_the_commonest_errors_are_told():
    y = np.arange(90) % 30
    outputs = np.eye(30)[np.where(y == 7, 3, y)]
    found = examined(y, outputs)
    assert "matrix" not in found and found["errors"] == [[7, 3, 3]]


def test_rows_are_shown_as_what_they_are():
    images = np.zeros((4, 8, 8, 1))
    images[2, 0, 0] = 4.0
    one = examined([0, 1, 1, 0], x=images)["examples"][0]
    pixels = np.asarray(Image.open(io.BytesIO(base64.b64decode(one["picture"]))))
    assert pixels[0, 0] == 255 and pixels.sum() == 255
    texts = np.array([["a"], ["b"], ["bad"], ["d"]], dtype=object)
    assert examined([0, 1, 1, 0], x=texts)["examples"][0]["text"] == "bad"
    rows = np.arange(40.0).reshape(4, 10)
    one = examined([0, 1, 1, 0], x=rows)["examples"][0]
    assert one["values"] == rows[2, :8].tolist() and one["more"] == 2
    named = {"age": rows[:, 0], "city": texts}
    one = examined([0, 1, 1, 0], x=named)["examples"][0]
    assert one["values"] == {"age": 20.0, "city": "bad"}


@pytest.mark.parametrize("shape", [(8, 8), (9, 7, 1), (300, 200, 3), (5, 6, 4)])
def test_pictures(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape).astype(float)
    image = Image.open(io.BytesIO(base64.b64decode(picture(pixels, 0, 255))))
    step = 1 if max(shape) < 100 else 4
    np.testing.assert_array_equal(np.asarray(image), pixels[::step, ::step].squeeze())


def model_of(units, activation=None, loss="cross_entropy"):
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(units, activation)])
    model.compile("adam", loss, seed=0)
    return model


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ((3, "softmax", "sparse_categorical_crossentropy"), Classifier(False, False)),
        ((3, None, "cross_entropy"), Classifier(False, True)),
        ((1, "sigmoid", "binary_crossentropy"), Classifier(True, False)),
        ((3, "sigmoid", "binary_crossentropy"), None),
        ((1, None, "mse"), None),
        ((3, None, "mse"), None),
    ],
)
def test_how_outputs_tell_a_class(model, expected):
    assert _classifier(model_of(*model)) == expected


def test_a_training_is_the_same_beside_it(tmp_path):
    x = np.random.default_rng(0).normal(size=(40, 2))
    y = (x[:, 0] > 0).astype(int)
    weights = []
    for run in (None, tmp_path / "run"):
        model = model_of(2)
        for epochs in (2, 3):
            model.fit(x, y, epochs=epochs, verbose=0, run=run, validation_split=0.25)
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_array_equal(one, other)
    found = runs.read(tmp_path / "run").predictions
    assert (found["part"], found["rows"]) == ("validation", 10)
    assert np.sum(found["matrix"]) == 10
    text = (tmp_path / "run" / "report.html").read_text()
    assert (
        "of 10 validation rows are right" in text and '<table class="matrix">' in text
    )


def test_a_failure_costs_a_warning(tmp_path):
    model, x = model_of(2), np.ones((8, 2))
    model.predict = None
    with pytest.warns(RuntimeWarning, match="predictions of the run are not recorded"):
        model.fit(x, np.zeros(8, int), verbose=0, run=tmp_path / "run")
    assert runs.read(tmp_path / "run").state == "finished"


def test_a_damaged_file_is_told(first, tmp_path, capsys):
    import shutil

    shutil.copytree(first, tmp_path / "run")
    path = tmp_path / "run" / "predictions.json"
    data = bytearray(path.read_bytes())
    data[-5] ^= 1
    path.write_bytes(data)
    assert main(["verify", str(tmp_path / "run")]) == 1
    assert "predictions.json is damaged" in capsys.readouterr().out
    assert "predictions.json is damaged" in make_report(runs.read(tmp_path / "run"))


NASTY = '"><script>alert(1)</script>'


@pytest.mark.parametrize(
    "found",
    [
        {"names": [NASTY] * 2, "matrix": [[1, 2], [3, 4]]},
        {"matrix": [[1], 3, {}], "errors": [3, [NASTY, NASTY, 4]], "part": NASTY},
        {"matrix": [["x", None], [{}, []]], "names": [{}], "correct": "1"},
        {"examples": [{"true": NASTY, "predicted": NASTY, "picture": NASTY}]},
        {
            "examples": [
                {"values": {NASTY: NASTY}, "more": NASTY},
                {"values": [[NASTY]]},
            ]
        },
        {"examples": [{"text": NASTY, "probability": "x"}, 3, None]},
    ],
)
def test_nothing_in_the_file_is_markup(found, monkeypatch, tmp_path):
    monkeypatch.setattr(Run, "predictions", found)
    text = make_report(Run(tmp_path, "finished", {}, {}, [], [], [], 0))
    assert "<script" not in text and "Predictions" in text
    assert not re.search(r"src=\"data:image/png;base64,[^\"]*[^A-Za-z0-9+/=\"]", text)
