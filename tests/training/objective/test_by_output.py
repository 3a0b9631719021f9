"""What is given for each output of a model: several losses, nested outputs."""

import numpy as np
import pytest
from tests.golden import keras as peer
from tests.training.objective.outputs import (
    BY_NAME,
    X,
    Y,
    functional,
    logs,
    named,
    subclass,
)

import exburn
from exburn.errors import ArgumentError, DataError

SEVERAL = [["mse", "mae"], "mae"]


@pytest.mark.parametrize("weights", [None, [[2.0, 0.5], 3.0]])
@pytest.mark.parametrize("as_dict", [False, True])
def test_an_output_has_several_losses(as_dict, weights, golden):
    outputs, targets, settings = list, Y, {"loss": SEVERAL, "loss_weights": weights}
    if as_dict:
        outputs, targets = named, BY_NAME
        settings = {"loss": dict(zip("zy", SEVERAL, strict=True))}
        if weights:
            settings["loss_weights"] = dict(zip("zy", weights, strict=True))
    case = functional, outputs, targets, settings
    ours, _ = logs(exburn, *case)
    theirs, _ = golden(lambda: logs(peer(), *case))
    assert ours["loss"] == pytest.approx(theirs["loss"], 1e-5)
    first, second = ("z_loss", "y_loss") if as_dict else ("b_loss", "a_loss")
    assert list(ours) == ["loss", first, f"{first}_1", second]
    assert ours[f"{first}_1"] == pytest.approx(theirs[first], 1e-5)  # it logs the last


def test_several_losses_of_the_only_output(tmp_path):
    x = exburn.Input((3,))
    model = exburn.Model(x, exburn.layers.Dense(1)(x))
    model.compile("sgd", loss=[["mse", "mae"]], loss_weights=[[1.0, 10.0]])
    ours = model.evaluate(X, Y[0], verbose=0, return_dict=True)
    assert list(ours) == ["loss", "mse_loss", "mae_loss"]
    assert ours["loss"] == pytest.approx(ours["mse_loss"] + 10 * ours["mae_loss"])
    model.save(path := tmp_path / "m.exburn")
    again = exburn.load_model(path).evaluate(X, Y[0], verbose=0, return_dict=True)
    assert again == ours
    with pytest.raises(ArgumentError, match="3 numbers for the 2 losses of"):
        model.compile("sgd", loss=[["mse", "mae"]], loss_weights=[[1.0, 2.0, 3.0]])
        model.evaluate(X, Y[0], verbose=0)


def test_a_layer_with_two_outputs_gives_its_name_to_both(golden):
    def logged(keras):
        x = keras.Input((3,))
        shared = keras.layers.Dense(2, name="shared")
        model = keras.Model(x, [shared(x), shared(2 * x)])
        assert model.output_names == ["shared", "shared"]
        model.compile("sgd", loss="mse", metrics=["mae", "mae"])
        return [*model.evaluate(X, [Y[1], Y[1]], verbose=0, return_dict=True)]

    theirs = golden(lambda: logged(peer()))
    assert {*logged(exburn)} == {*theirs, "shared_loss_1"}


def three(keras, form):
    x = keras.Input((3,))
    ends = [keras.layers.Dense(n, name=f"d{n}")(x) for n in (1, 2)]
    return keras.Model(x, form(*ends, keras.layers.Dense(1, name="d3")(x)))


FORMS = {
    "dict of lists": lambda a, b, c: {"p": [a, b], "q": {"r": c}},
    "list of lists": lambda a, b, c: [[a, b], c],
    "list of dicts": lambda a, b, c: [{"z": a, "y": b}, c],
}
NESTED = [
    *((name, lambda a, b, c: "mse", None, None) for name in FORMS),
    *((name, FORMS[name], None, None) for name in FORMS),
    ("dict of lists", FORMS["dict of lists"], (1.0, 2.0, 3.0), ("mae", None, "mse")),
]


@pytest.mark.parametrize(("name", "loss", "weights", "measured"), NESTED)
def test_nested_outputs_have_losses(name, loss, weights, measured, tmp_path, golden):
    form = FORMS[name]
    settings = {"loss": loss("mse", "mae", "mse")}
    if weights:
        settings |= {"loss_weights": form(*weights), "metrics": form(*measured)}
    targets = form(Y[0], Y[1], Y[0] * 2)
    case = (lambda keras, _: three(keras, form)), None, targets, settings
    ours, _ = logs(exburn, *case)
    theirs, _ = golden(lambda: logs(peer(), *case))
    assert ours == pytest.approx(theirs, 1e-4)
    model = three(exburn, form)
    model.compile("sgd", **settings)
    data = {"verbose": 0, "validation_data": (X, targets, np.ones(8))}
    before = model.fit(X, targets, epochs=2, batch_size=3, **data).history
    assert before["val_loss"][1] < before["val_loss"][0]
    model.save(path := tmp_path / "m.exburn")
    again = exburn.load_model(path).evaluate(X, targets, verbose=0)
    assert again == model.evaluate(X, targets, verbose=0)


TUPLES = [lambda a, b: (a, (b,)), lambda a, b: {"p": (a, b)}]


@pytest.mark.parametrize("form", TUPLES)
def test_nested_outputs_of_a_subclass(form, golden):
    settings = {"loss": form("mse", "mae"), "metrics": form("mae", "mse")}
    case = subclass, (lambda ends: form(*ends)), form(*Y), settings
    ours, _ = logs(exburn, *case)
    theirs, _ = golden(lambda: logs(peer(), *case))
    assert ours == pytest.approx(theirs, 1e-4)


def test_what_is_nested_otherwise_is_refused():
    model = three(exburn, FORMS["dict of lists"])
    model.compile("sgd", "mse")
    for wrong in ({"p": [Y[0]], "q": {"r": Y[0]}}, {"p": Y, "s": Y[0]}, [Y, Y[0]]):
        with pytest.raises(DataError, match="nested as the outputs are"):
            model.evaluate(X, wrong, verbose=0)
