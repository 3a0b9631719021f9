"""Tests of ``exburn.callbacks.pictures``."""

import numpy as np
import pytest

from exburn.callbacks import ConfusionMatrix, Every, PredictionGallery
from exburn.errors import CallbackError

pytest.importorskip("matplotlib")


@pytest.fixture
def predicting(model):
    model.outputs = np.eye(3, dtype=np.float32)[[0, 1, 2, 2]]
    model.predict = lambda x, verbose: model.outputs[: len(x)]
    return model


ROWS = [{"loss": 1.0}] * 4


def test_a_confusion_matrix_is_written_when_it_is_due(predicting, drive, tmp_path):
    callback = ConfusionMatrix(np.zeros((4, 2)), [0, 1, 1, 2], tmp_path, every=2)
    drive(callback, predicting, ROWS)
    assert callback.matrix.tolist() == [[1, 0, 0], [0, 1, 1], [0, 0, 1]]
    names = [f"confusion_epoch_{n:04d}.png" for n in (2, 4)]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    assert callback.last_path.read_bytes()[:4] == b"\x89PNG"
    steps = ConfusionMatrix(
        np.zeros((4, 2)), [0, 1, 1, 2], tmp_path / "s", every=Every(steps=3, once=True)
    )
    drive(steps, predicting, ROWS[:2])
    assert [p.name for p in (tmp_path / "s").iterdir()] == [
        "confusion_epoch_0001_step_000003.png"
    ]


@pytest.mark.parametrize(
    ("x", "options", "kind"),
    [
        (np.zeros((4, 8, 8)), {"labels": ["a", "b", "c"]}, "images"),
        (np.array(["a good film", "dull " * 40, "so so", ""]), {}, "text"),
        (np.zeros((4, 2)), {"names": ["width", "height"]}, "table"),
        (np.zeros((4, 9), int), {"shown": ["one", "two", "three", "four"]}, "text"),
    ],
)
def test_galleries_of_images_texts_and_tables(
    predicting, drive, tmp_path, x, options, kind
):
    gallery = PredictionGallery(x, [0, 1, 1, 2], tmp_path, most=3, **options)
    assert gallery.kind == kind and len(gallery.x) == 3
    drive(gallery, predicting, ROWS[:1])
    assert [p.name for p in tmp_path.iterdir()] == ["predictions_epoch_0001.png"]
    predicting.outputs = np.array([[0.25], [-3.5], [2.0]])
    assert gallery._texts(predicting.outputs)[0] == (
        "b" if "labels" in options else "0.25"
    )


X = np.zeros((4, 2))
REFUSED = {
    "fewer classes than samples": (ConfusionMatrix, (X, [0, 1]), {}, "y: 2 samples"),
    "no samples": (ConfusionMatrix, (X[:0], []), {}, "x: 0 samples"),
    "numbers": (ConfusionMatrix, (X, [0.5, 1, 2, 0]), {}, "y must be classes"),
    "names": (ConfusionMatrix, (X, list("abab")), {}, "y must be classes"),
    "fewer texts": (PredictionGallery, (X,), {"shown": ["a"]}, "shown: 1 samples"),
    "a dict": (PredictionGallery, ({"a": X, "b": X},), {}, "Pass shown="),
    "two inputs": (PredictionGallery, ([X, X],), {}, "Pass shown="),
    "five channels": (PredictionGallery, (np.zeros((4, 2, 2, 5)),), {}, "x[..., :3]"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_data_that_cannot_be_drawn_are_refused_before_the_training(name, tmp_path):
    make, data, options, said = REFUSED[name]
    with pytest.raises(CallbackError) as caught:
        make(*data, folder=tmp_path, **options)
    assert said in str(caught.value)


def test_a_folder_that_cannot_be_made_is_told_before_the_training(tmp_path):
    (tmp_path / "file").write_text("")
    matrix = ConfusionMatrix(X, [0, 1, 1, 2], tmp_path / "file" / "pictures")
    with pytest.raises(CallbackError, match="folder of the pictures cannot be made"):
        matrix.on_train_begin()


def test_columns_of_a_frame_are_named(predicting, drive, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=["width", "height"])
    gallery = PredictionGallery(frame, [0, 1, 1, 2], tmp_path)
    assert gallery.names == ["width", "height"] and gallery.shown.shape == (4, 2)
    drive(gallery, predicting, ROWS[:1])
    assert gallery.last_path is not None


def test_what_they_refuse(predicting, drive, tmp_path):
    with pytest.raises(CallbackError, match="kind is 'images'"):
        PredictionGallery(np.zeros((2, 2)), kind="sound")
    predicting.predict = lambda x, verbose: [np.zeros(2), np.zeros(2)]
    with pytest.raises(CallbackError, match="one output"):
        drive(ConfusionMatrix(np.zeros((2, 2)), [0, 1], tmp_path), predicting, ROWS[:1])
