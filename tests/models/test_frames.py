"""Frames of every library, at every entry of a model that takes data."""

import jax
import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.errors import DataError, DTypeError, ShapeError, TargetError

ROWS = {
    "name": ["a", "b", "c", "d"],
    "city": ["Delft", "Ghent", "Oslo", "Delft"],
    "age": [1, 2, 3, 4],
    "income": [0.5, 1.5, 2.5, 3.5],
    "price": [1.0, 2.0, 3.0, 4.0],
}
X = {
    "age": np.array([[1], [2], [3], [4]]),
    "city": np.array([["Delft"], ["Ghent"], ["Oslo"], ["Delft"]], object),
}
Y = np.array(ROWS["price"])[:, None]
LIBRARIES = ("pandas", "polars", "pyarrow", "batch")


def frame_of(library, columns):
    if library == "pandas":
        pandas = pytest.importorskip("pandas")
        return pandas.DataFrame(columns, index=[9, 3, 7, 1])
    if library == "polars":
        return pytest.importorskip("polars").DataFrame(columns)
    pyarrow = pytest.importorskip("pyarrow")
    return (pyarrow.record_batch if library == "batch" else pyarrow.table)(columns)


def library_of(frame):
    name = {"RecordBatch": "batch", "Table": "pyarrow"}.get(type(frame).__name__)
    return name or type(frame).__module__.split(".")[0]


def column(frame, name):
    return frame.column(name) if hasattr(frame, "column_names") else frame[name]


@pytest.fixture(params=LIBRARIES)
def frame(request):
    return frame_of(request.param, ROWS)


def by_name():
    """A model with an input for two of the columns, one of strings."""
    exburn.set_random_seed(0)
    age = exburn.Input((1,), name="age")
    city = exburn.Input((1,), dtype="string", name="city")
    lookup = layers.StringLookup(vocabulary=["Delft", "Ghent"], output_mode="one_hot")
    both = layers.concatenate([age, lookup(city)])
    model = exburn.Model([age, city], layers.Dense(1)(both))
    model.compile("sgd", "mse")
    return model


@pytest.fixture(scope="module")
def model():
    return by_name()


def fit(model, x, y):
    model.set_weights([np.ones_like(w) for w in model.get_weights()])
    history = model.fit(x, y, verbose=0, shuffle=False)
    return [*history.history["loss"], *map(np.sum, model.get_weights())]


def fit_validated(model, x, y):
    history = model.fit(X, Y, validation_data=(x, y), verbose=0, shuffle=False)
    return history.history["val_loss"]


def capture(model, x, _):
    return jax.tree.leaves(model.capture(x))


def loader(model, x, y):
    return model.evaluate(iter([(x, y), (x, y)]), verbose=0, steps=2)


# What is done with data, and what comes of it.
ENTRIES = {
    "fit": fit,
    "validation_data": fit_validated,
    "evaluate": lambda model, x, y: model.evaluate(x, y, verbose=0),
    "predict": lambda model, x, _: model.predict(x, verbose=0),
    "train_on_batch": lambda model, x, y: model.train_on_batch(x, y),
    "test_on_batch": lambda model, x, y: model.test_on_batch(x, y),
    "predict_on_batch": lambda model, x, _: model.predict_on_batch(x),
    "loader": loader,
    "capture": capture,
}


@pytest.mark.parametrize("entry", ENTRIES)
def test_columns_go_to_the_inputs_of_their_names(model, frame, entry):
    start = model.get_weights()
    one = ENTRIES[entry](model, X, Y)
    model.set_weights(start)
    other = ENTRIES[entry](model, frame, column(frame, "price"))
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("entry", ENTRIES)
def test_all_columns_at_fault_are_named_at_every_entry(model, library, entry):
    frame = frame_of(
        library, ROWS | {"age": ["1", "?", "3", "4"], "city": [1, 2, 3, 4]}
    )
    with pytest.raises(DTypeError, match="2 columns cannot be read") as caught:
        ENTRIES[entry](model, frame, Y)
    assert "x['age']: must be numeric, but has '?' at row 1" in str(caught.value)
    assert "x['city']: must be text, but holds int64" in str(caught.value)
    others = frame_of(library, {"Age": ROWS["age"], "town": ROWS["city"]})
    with pytest.raises(DataError, match="2 of the model's inputs: 'age', 'city'"):
        ENTRIES[entry](model, others, Y)


def test_series_in_a_dict_and_in_a_list(model, frame):
    expected = model.evaluate(X, Y, verbose=0)
    age, city = column(frame, "age"), column(frame, "city")
    for x in ({"city": city, "age": age}, [age, city], (age, city)):
        assert model.evaluate(x, column(frame, "price"), verbose=0) == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_missing_values(model, library):
    frame = frame_of(library, ROWS | {"age": [1, None, 3, 4]})
    with pytest.raises(DataError, match=r"x\['age'\] has missing values at row 1"):
        model.fit(frame, Y, verbose=0)
    predictions = model.predict(frame, verbose=0)  # as of arrays: only their own rows
    assert np.isnan(predictions[:, 0]).tolist() == [False, True, False, False]
    frame = frame_of(library, ROWS | {"city": ["Delft", None, "Oslo", "Delft"]})
    with pytest.raises(DataError, match=r"x\['city'\] has missing values at row 1"):
        model.predict(frame, verbose=0)
    price = column(frame_of(library, {"price": [1.0, None, 3.0, 4.0]}), "price")
    with pytest.raises(DataError, match=r"y(\['price'\])? has missing values at row 1"):
        model.fit(X, price, verbose=0)


def test_a_layer_may_take_missing_values(frame):
    exburn.set_random_seed(0)
    model = exburn.Sequential(
        [
            exburn.Input((2,)),
            layers.Lambda(lambda x: exburn.ops.nan_to_num(x)),
            layers.Dense(1),
        ]
    )
    model.compile("sgd", "mse", check_numerics=False)
    library = library_of(frame)
    gaps = frame_of(library, {"a": [1, None, 3, 4], "b": [0.5, 1.5, None, 3.5]})
    filled = np.array([[1, 0.5], [0, 1.5], [3, 0], [4, 3.5]])
    loss = model.evaluate(filled, Y, verbose=0)
    assert model.evaluate(gaps, Y, verbose=0) == loss


def test_a_model_with_one_input_takes_the_columns_in_their_order(frame):
    exburn.set_random_seed(0)
    model = exburn.Sequential([exburn.Input((2,)), layers.Dense(1)])
    model.compile("sgd", "mse")
    library = library_of(frame)
    two = frame_of(library, {key: ROWS[key] for key in ("income", "age")})
    array = np.array([ROWS["income"], ROWS["age"]]).T
    expected = model.predict(array, verbose=0)
    np.testing.assert_array_equal(model.predict(two, verbose=0), expected)
    with pytest.raises(ShapeError, match="(?s)x has 5 columns, .* takes 2 .*'price'"):
        model.predict(frame, verbose=0)


def test_one_input_of_one_number_is_found_by_its_name(frame):
    age = exburn.Input((1,), name="age")
    model = exburn.Model(age, layers.Dense(1)(age))
    expected = model.predict(X["age"], verbose=0)
    np.testing.assert_array_equal(model.predict(frame, verbose=0), expected)
    other = exburn.Input((1,), name="height")
    model = exburn.Model(other, layers.Dense(1)(other))
    with pytest.raises(ShapeError, match="x has 5 columns, and the input 'height'"):
        model.predict(frame, verbose=0)


def test_several_outputs_take_columns_by_name(frame):
    x = exburn.Input((1,), name="age")
    outputs = [layers.Dense(1, name=name)(x) for name in ("price", "income")]
    model = exburn.Model(x, outputs)
    model.compile("sgd", {"price": "mse", "income": "mae"})
    arrays = {name: np.array(ROWS[name])[:, None] for name in ("price", "income")}
    expected = model.evaluate(X["age"], arrays, verbose=0)
    series = {name: column(frame, name) for name in arrays}
    lists = [ROWS["price"], ROWS["income"]]
    for y in (frame, series, list(series.values()), lists):
        assert model.evaluate(X["age"], y, verbose=0) == expected
    with pytest.raises(DataError, match="y lacks columns for 2 of the model's outputs"):
        library = pytest.importorskip("pandas")
        model.evaluate(X["age"], library.DataFrame({"a": ROWS["age"]}), verbose=0)


# Targets of a classifier: all mean classes 0, 1, 1, 0.
LABELS = {
    "list": [0, 1, 1, 0],
    "tuple": (0, 1, 1, 0),
    "list of flags": [False, True, True, False],
    "list of numbers of NumPy": [np.int64(0), np.int64(1), np.int64(1), np.int64(0)],
    "rows": [[0], [1], [1], [0]],
    "array": np.array([0, 1, 1, 0]),
}


@pytest.fixture(scope="module")
def classifier():
    exburn.set_random_seed(0)
    model = exburn.Sequential([exburn.Input((1,)), layers.Dense(2)])
    model.compile("sgd", "cross_entropy", metrics=["accuracy"])
    return model


@pytest.mark.parametrize("case", LABELS)
def test_labels_as_lists(classifier, case):
    x, y = X["age"].tolist(), LABELS[case]
    expected = classifier.evaluate(X["age"], np.array([0, 1, 1, 0]), verbose=0)
    assert classifier.evaluate(x, y, verbose=0) == expected


@pytest.mark.parametrize("library", LIBRARIES)
def test_labels_and_weights_of_frames(classifier, library):
    frame = frame_of(
        library, {"label": [0, 1, 1, 0], "weight": [1, 2, 3, 4], "word": list("abba")}
    )
    x, label, weight = X["age"], column(frame, "label"), column(frame, "weight")
    expected = classifier.evaluate(
        x, np.array([0, 1, 1, 0]), sample_weight=np.arange(1.0, 5), verbose=0
    )
    for y in (label, [0, 1, 1, 0]):
        for weights in (weight, [1, 2, 3, 4]):
            result = classifier.evaluate(x, y, sample_weight=weights, verbose=0)
            assert result == expected
    classes = {0: 1.0, 1: 2.0}
    for y in (label, [0, 1, 1, 0]):  # that no weight is of an unknown class is checked
        with pytest.raises(TargetError, match="class 1 is in the data"):
            classifier.fit(x, y, class_weight={0: 1.0}, verbose=0)
        assert classifier.train_on_batch(x, label, class_weight=classes)[0] > 0
    for words in (column(frame, "word"), list("abba"), np.array(list("abba"))):
        with pytest.raises(
            DTypeError, match="(?s)^fit: y.*holds strings: 'a' at .*np.u"
        ):
            classifier.fit(x, words, verbose=0)


def test_a_lookup_in_front_of_a_sequential_model(frame):
    exburn.set_random_seed(0)
    lookup = layers.StringLookup(vocabulary=["Delft", "Ghent"], output_mode="multi_hot")
    model = exburn.Sequential([lookup, layers.Dense(1)])
    model.compile("sgd", "mse")
    expected = model.evaluate(X["city"], Y, verbose=0)
    assert model.evaluate(column(frame, "city"), Y, verbose=0) == expected
    assert model.evaluate([[c] for c in ROWS["city"]], Y, verbose=0) == expected


def test_a_sweep_takes_frames():
    frame = frame_of("pyarrow", ROWS)
    losses = []
    for x, y in ((X, Y), (frame, column(frame, "price"))):
        over = {"learning_rate": [0.1, 0.01]}
        result = exburn.sweep(by_name(), x, y, over=over, monitor="loss", verbose=0)
        losses.append([row["loss"] for row in result.table().to_dict("records")])
    assert losses[0] == losses[1]


def test_columns_go_by_the_order_of_fit(frame):
    exburn.set_random_seed(0)
    model = exburn.Sequential([layers.Dense(1)])
    model.compile("sgd", "mse")
    library = library_of(frame)
    columns = {name: ROWS[name] for name in ("age", "income")}
    ordered = frame_of(library, columns)
    turned = frame_of(library, dict(reversed(columns.items())))
    other = frame_of(library, {"age": ROWS["age"], "price": ROWS["price"]})
    model.fit(ordered, Y, verbose=0)
    text = "x has its columns in another order than in fit"
    for entry in ("fit", "evaluate", "predict", "validation_data", "loader"):
        with pytest.raises(DataError, match=text) as caught:
            if entry == "validation_data":
                model.fit(ordered, Y, validation_data=(turned, Y), verbose=0)
            else:
                ENTRIES[entry](model, turned, Y)
        assert "in fit: 'age', 'income'" in str(caught.value)
    with pytest.raises(
        DataError, match="(?s)other columns.*missing: 'income'"
    ) as caught:
        model.predict(other, verbose=0)
    assert "not in fit: 'price'" in str(caught.value)
    with pytest.raises(DataError, match="not in fit: 'name', 'city', 'price'"):
        model.predict(frame, verbose=0)
    array = np.array([ROWS["age"], ROWS["income"]], "float32").T
    expected = model.predict(array, verbose=0)  # no names, nothing to compare
    np.testing.assert_array_equal(model.predict(ordered, verbose=0), expected)
    model.fit(other, Y, verbose=0)  # a training may go on with others
    with pytest.raises(DataError, match="missing: 'price'"):
        model.evaluate(ordered, Y, verbose=0)
    model.fit(array, Y, verbose=0)
    model.evaluate(ordered, Y, verbose=0)


def test_columns_by_name_have_no_order(model):
    frame = frame_of("pandas", ROWS)
    expected = model.predict(frame, verbose=0)
    turned = frame[frame.columns[::-1]]
    model.fit(frame, Y, verbose=0)
    model.evaluate(turned, Y, verbose=0)
    assert model.predict(turned, verbose=0).shape == expected.shape


def test_columns_of_a_dict_that_nobody_reads(model):
    expected = model.predict(X, verbose=0)
    dates = np.array(["2024-01-01"] * 4, "M8[D]")
    for extra in (dates, ROWS["name"], list(dates), object()):
        np.testing.assert_array_equal(
            model.predict(X | {"extra": extra}, verbose=0), expected
        )
    frame = frame_of("pandas", ROWS).assign(day=dates)
    np.testing.assert_array_equal(model.predict(dict(frame), verbose=0), expected)


def test_one_column_for_several_inputs(model, frame):
    with pytest.raises(DataError, match="x is one column, .* 2 inputs") as caught:
        model.predict(column(frame, "age"), verbose=0)
    assert "frame.iloc[[0]]" in caught.value.hint
    row = frame_of("pandas", ROWS).iloc[0]
    with pytest.raises(DataError, match="x is one column"):
        model.predict(row, verbose=0)
