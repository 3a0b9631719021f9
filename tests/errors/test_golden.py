"""The exact texts of the errors that are met most often."""

import copy
import pickle

import numpy as np
import pytest
from tests.errors.bench import (
    FITTING,
    LABELS,
    X,
    classifier,
    pair,
    reader,
    regressor,
    untrained,
)

import exburn
from exburn import errors, layers
from exburn.callbacks import EarlyStopping
from exburn.errors import ExBurnError


def nan_at_row_3():
    x = X.copy()
    x[3, 1] = np.nan
    return x


def nothing(model):
    x, y = FITTING["pair"]
    model.fit({"left": x["left"]}, y)


CASES = {
    "feature width": (
        classifier,
        lambda model: model.fit(X[:, :7], LABELS),
        """\
model: input 'input_layer' must be float32[None, 8], received float32[12, 7]
  in layer 'sequential' (Sequential), which received float32[12, 7]
  → The first axis is the batch. A row must have the shape (8,), as Input(shape) says, \
and has (7,).""",
    ),
    "unequal lengths": (
        classifier,
        lambda model: model.fit(X, LABELS[:11]),
        """\
fit: x and y must have the same number of rows
  x: 12 rows, float32[12, 8]
  y: 11 rows, int32[11]
  → The first axis counts the samples in every array.""",
    ),
    "batch size": (
        classifier,
        lambda model: model.fit(X, LABELS, batch_size=0),
        "fit: batch_size must be an integer ≥ 1, received 0",
    ),
    "not a number": (
        classifier,
        lambda model: model.fit(nan_at_row_3(), LABELS),
        """\
fit: x must be finite, but holds NaN or infinity
  received: float32[12, 8]
  first bad value: nan at row 3, position (3, 1)
  rows affected: 1 of 12
  → Drop or fill these rows (np.nan_to_num); values beyond 3.4e38 do \
not fit float32.""",
    ),
    "label": (
        classifier,
        lambda model: model.fit(X, LABELS + 1),
        """\
cross_entropy: class labels must be whole numbers from 0 to 2
  first offending value: 3
  row: 2
  offending values: 4 of 12
  → The last layer has 3 units, so there are 3 classes, counted from 0.""",
    ),
    "validation label": (
        classifier,
        lambda model: model.fit(X, LABELS, validation_data=(X, LABELS - 1)),
        """\
cross_entropy: class labels must be whole numbers from 0 to 2
  first offending value: -1
  row: 0
  offending values: 4 of 12
  in the validation data
  → The last layer has 3 units, so there are 3 classes, counted from 0.""",
    ),
    "one-hot": (
        lambda: classifier("sparse_categorical_crossentropy"),
        lambda model: model.fit(X, np.eye(3, dtype=np.float32)[LABELS]),
        """\
sparse_categorical_crossentropy: targets must be integer class labels, and these \
look one-hot
  y_true: float32[12, 3]
  y_pred: float32[12, 3]
  → Use 'categorical_crossentropy', or y_true.argmax(-1).""",
    ),
    "broadcast": (
        regressor,
        lambda model: model.fit(X, X[:, :1]),
        """\
mean_squared_error: targets must have the shape of the predictions
  y_true: float32[12, 1]
  y_pred: float32[12, 3]
  → Give the last layer as many units as the targets have columns.""",
    ),
    "not compiled": (
        untrained,
        lambda model: model.fit(X, LABELS),
        """\
fit: the model must be compiled first
  → model.compile(optimizer="adam", loss="cross_entropy")""",
    ),
    "class weight": (
        classifier,
        lambda model: model.fit(X, LABELS, class_weight={0: 1.0, 1: 2.0}),
        """\
fit: class 2 is in the data but not in class_weight
  classes: [0, 1, 2]
  class_weight: {0: 1.0, 1: 2.0}
  → Add it: class_weight={…, 2: 1.0}.""",
    ),
    "input missing": (
        pair,
        nothing,
        """\
model: the input 'right' is missing
  inputs: left, right
  received: 'left'
  in layer 'model' (Model), which received left: float32[12, 8]
  → Pass one array for each input: a list in this order, or a dict by name.""",
    ),
    "ids": (
        reader,
        lambda model: model.predict(np.full((2, 5), 10)),
        """\
predict: the ids in x must be whole numbers from 0 to 9
  first bad value: 10 at row 0, position (0, 0)
  bad values: 10 of 10
  layer: embedding
  → The table of 'embedding' has 10 rows: raise its input_dim, or number \
the ids anew.""",
    ),
    "monitor": (
        classifier,
        lambda model: model.fit(
            X, LABELS, callbacks=[EarlyStopping("val_loss")], verbose=0
        ),
        """\
EarlyStopping: monitor 'val_loss' is not among the logged values
  available: accuracy, loss
  → Pass validation_data or validation_split to fit, or monitor 'loss'.""",
    ),
    "strings": (
        classifier,
        lambda model: model.fit(X, np.array(["cat", "dog", "cow"] * 4, object)),
        """\
fit: y must be numeric, but holds strings: 'cat' at row 0, 'dog' at row 1, 'cow' at \
row 2 … (12 in all)
  received: object[12]
  → Number the classes: names, y = np.unique(labels, return_inverse=True).""",
    ),
    "width of a layer": (
        untrained,
        lambda model: model.layers[0](np.ones((2, 7), np.float32)),
        """\
dense: the layer needs size 8 on axis -1, received float32[2, 7]
  in layer 'dense' (Dense), which received float32[2, 7]
  → It was built for that size; for another, make a new one.""",
    ),
    "disconnected": (
        untrained,
        lambda model: exburn.Model(
            exburn.Input((8,), name="one"),
            layers.Dense(3)(exburn.Input((8,), name="two")),
        ),
        """\
Model: the graph is disconnected: an output depends on 'two', which is not among the \
inputs
  symbol: <Symbol shape=(None, 8) dtype=float32 name=two>
  → Add it to inputs=, or build the outputs from the inputs.""",
    ),
    "branch": (
        untrained,
        lambda model: bool(exburn.Input((8,), name="x") > 0),
        """\
bool: Python cannot branch on <Symbol shape=(None, 8) dtype=bool name=greater>: it \
has no value yet
  → Choose by value: exburn.fn(jnp.where)(condition, a, b).""",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_text_of_a_frequent_error(name):
    make, act, text = CASES[name]
    model = make()
    with pytest.raises(ExBurnError) as caught:
        act(model)
    assert str(caught.value) == text


@pytest.mark.parametrize(
    "kind",
    [
        v
        for v in vars(errors).values()
        if isinstance(v, type) and issubclass(v, errors.ExBurnError)
    ],
)
def test_errors_go_from_process_to_process(kind):
    error = kind("fit", "what must hold", {"x": 3, "device": object()}, hint="Do this.")
    errors.locate(error, "in layer 'dense'")
    error.add_note("in a test")
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind and str(again) == str(error)
        assert (again.op, again.hint) == ("fit", "Do this.")
        assert again.details["x"] == 3 and again.__notes__ == error.__notes__


def test_an_unknown_loss_lists_what_there_is():
    with pytest.raises(ExBurnError) as caught:
        classifier("mean_square_error")
    first, known, hint = str(caught.value).splitlines()
    assert first == "losses.get: unknown loss 'mean_square_error'"
    assert known.startswith("  known: ") and len(known) <= 210
    assert hint.startswith("  → Did you mean 'mean_squared_error'")
