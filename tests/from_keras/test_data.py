"""The page's section "Data"."""

import itertools
import sys
import warnings
from pathlib import Path

import jax
import numpy as np
import pytest
from tests.from_keras.page import says
from tests.from_keras.small import BOTH, LABELS, X, Y, compiled, evaluate, fit

import exburn
from exburn.data.adapting import ADAPTERS
from exburn.errors import ArgumentError, DataError, DTypeError

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.filterwarnings(
    "ignore:__array__ implementation",  # Keras'
    "ignore:`shuffle=True` was passed, but will be ignored",
)
each = pytest.mark.parametrize("framework", BOTH)
ROOT = Path(__file__).resolve().parents[2]
STARTS = (0, 16, 32)


def batches(count=3, y=Y):
    return ((X[i : i + 16], y[i : i + 16]) for i in STARTS[:count])


# ----------------------------------------------------------------------- kinds of data
def embedded(framework, ids):
    """Rows of a table in which row i is i everywhere."""
    point = framework.Input((2,), dtype="int32")
    model = framework.Model(point, framework.layers.Embedding(5, 1)(point))
    model.set_weights([np.arange(5.0)[:, None]])
    return model.predict(ids, verbose=0)[..., 0]


@says("64-bit integers become int32, with an error if a value does not fit")
def test_wide_integers():
    assert embedded(exburn, np.array([[1, 4]], "int64")).tolist() == [[1, 4]]
    with pytest.raises(DTypeError, match="int32 cannot"):
        embedded(exburn, np.array([[1, 2**40 + 3]]))
    assert embedded(keras, np.array([[1, 2**32 + 3]])).tolist() == [[1, 3]]


@says("An `Input` of integers takes floats that are whole numbers")
def test_floats_for_integers():
    for framework in BOTH:
        assert embedded(framework, np.array([[1.0, 4.0]])).tolist() == [[1, 4]]
    with pytest.raises(DataError, match="whole numbers"):
        embedded(exburn, np.array([[1.0, 2.5]]))
    assert embedded(keras, np.array([[1.0, 2.5]])).tolist() == [[1, 2]]


class Iterable:
    def __len__(self):
        return 3

    def __iter__(self):
        return batches()


@says("any object that can be iterated again for every epoch")
@each
def test_any_iterable(framework):
    model = compiled(framework)
    if framework is exburn:
        assert len(model.fit(Iterable(), epochs=2, verbose=0).history["loss"]) == 2
    else:
        with pytest.raises(ValueError, match="Unrecognized data type"):
            model.fit(Iterable(), epochs=2, verbose=0)


@says("any object that can be iterated again for every epoch")
@each
def test_hugging_face(framework, monkeypatch):
    kept = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
    monkeypatch.setattr(sys, "path", kept)
    hugging_face = pytest.importorskip("datasets")
    rows = hugging_face.Dataset.from_dict({"x": X, "y": Y}).with_format("numpy")
    if framework is exburn:
        point = exburn.Input((4,), name="x")
        model = exburn.Model({"x": point}, exburn.layers.Dense(1)(point))
        assert model.predict(rows.remove_columns("y"), verbose=0).shape == (48, 1)
    else:
        with pytest.raises(ValueError, match="Unrecognized data type"):
            compiled(keras).fit(rows, verbose=0)


@says("Polars frames and grain datasets are taken")
@each
def test_polars_and_grain(framework):
    polars, grain = (pytest.importorskip(name) for name in ("polars", "grain"))
    columns = list("abcd")
    frame = polars.DataFrame(dict(zip(columns, X.T, strict=True)))
    fit(compiled(framework), frame, polars.DataFrame({"y": Y[:, 0]}))
    source = grain.MapDataset.source(list(zip(X, Y, strict=True))).batch(16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras counts them wrong
        compiled(framework).fit(source, verbose=0)


@says("is divided by the names of the inputs")
@each
def test_frames_by_name(framework):
    pandas = pytest.importorskip("pandas")
    points = [framework.Input((1,), name=name) for name in "ab"]
    merged = framework.layers.Concatenate()(points)
    model = framework.Model(points, framework.layers.Dense(1)(merged))
    frame = pandas.DataFrame({"b": [1.0, 2.0], "a": [3.0, 4.0]})
    columns = {name: frame[[name]].to_numpy() for name in "ab"}
    expected = model.predict(columns, verbose=0)
    if framework is exburn:
        assert model.predict(frame, verbose=0).tolist() == expected.tolist()
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of the structure
            with pytest.raises(ValueError, match="expects 2 input|not connected"):
                model.predict(frame, verbose=0)


@says("has the columns of `fit` in the same order")
@each
def test_columns_in_another_order(framework):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd"))
    model = compiled(framework)
    fit(model, frame, Y)
    turned = frame[list("dcba")]
    if framework is exburn:
        with pytest.raises(DataError, match="another order than in fit"):
            model.predict(turned, verbose=0)
    else:
        assert model.predict(turned, verbose=0).shape == (48, 1)


@says("Several columns of one name are an error")
@each
def test_columns_of_one_name(framework):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abca"))
    if framework is exburn:
        with pytest.raises(DataError, match="several columns of one name"):
            compiled(framework).predict(frame, verbose=0)
    else:
        assert compiled(framework).predict(frame, verbose=0).shape == (48, 1)


@says("Lists of numbers, and of rows of numbers, are arrays")
@each
def test_lists_of_numbers(framework):
    rows, values = X.tolist(), Y[:, 0].tolist()
    if framework is exburn:
        expected = evaluate(compiled(framework), X, Y)
        assert evaluate(compiled(framework), rows, values) == expected
    else:
        with pytest.raises(ValueError, match="Unrecognized data type"):
            compiled(framework).fit(rows, values, verbose=0)


@says("register_adapter` adds a kind of your own")
def test_an_adapter():
    class Ones:
        shape = (48, 4)

    @exburn.data.register_adapter
    class Adapter:
        def accepts(self, value):
            return isinstance(value, Ones)

        def to_array(self, value, *, name, op):
            return np.ones(value.shape, "float32")

    try:
        assert compiled(exburn).predict(Ones(), verbose=0).shape == (48, 1)
    finally:
        ADAPTERS[:] = [a for a in ADAPTERS if not isinstance(a, Adapter)]
    with pytest.raises((ValueError, AttributeError)):
        compiled(keras).predict(Ones(), verbose=0)


@says("`class_weight` works with loaders, too")
@each
def test_class_weights_of_loaders(framework):
    dense = framework.layers.Dense(3, kernel_initializer="ones")
    model = compiled(framework, dense, loss="sparse_categorical_crossentropy")
    options = {"class_weight": {0: 1.0, 1: 0.0, 2: 3.0}, "verbose": 0}
    if framework is keras:
        with pytest.raises(ValueError, match="class_weight.*is not supported"):
            model.fit(batches(y=LABELS), **options)
    else:
        history = model.fit(batches(y=LABELS), **options).history
        other = compiled(
            exburn,
            exburn.layers.Dense(3, kernel_initializer="ones"),
            loss="sparse_categorical_crossentropy",
        )
        expected = fit(
            other,
            X,
            LABELS,
            shuffle=False,
            sample_weight=np.array([1.0, 0.0, 3.0])[LABELS],
        )
        assert history["loss"] == pytest.approx(expected["loss"], rel=1e-5)


# ----------------------------------------------------------------------------- images
@pytest.fixture
def pictures(tmp_path):
    """Pictures of 4 x 4 pixels of 16 bits, of 32-bit integers and of floats."""
    Image = pytest.importorskip("PIL.Image")
    ramp = np.arange(16).reshape(4, 4)
    paths = []
    for name, values in {
        "wide.png": (ramp * 4096).astype("uint16"),
        "wider.tiff": (ramp * 40000).astype("int32"),
        "floats.tiff": (ramp / 16).astype("float32"),
    }.items():
        Image.fromarray(values).save(tmp_path / name)
        paths.append(tmp_path / name)
    return ramp, paths


def loaded(framework, path, mode):
    image = framework.utils.load_img(path, color_mode=mode)
    return np.asarray(framework.utils.img_to_array(image))[..., 0]


@says("`load_img` in colour, take the upper 8 of 16 bits")
def test_images_of_many_bits(pictures):
    ramp, (wide, wider, floats) = pictures
    np.testing.assert_array_equal(loaded(exburn, wide, "rgb"), ramp * 16)
    cut = np.minimum(ramp * 4096, 255)
    np.testing.assert_array_equal(loaded(keras, wide, "rgb"), cut)
    for path in (wider, floats):
        with pytest.warns(UserWarning, match="holds values from"):
            loaded(exburn, path, "rgb")
        loaded(keras, path, "rgb")


@says("`load_img` in colour, take the upper 8 of 16 bits")
def test_folders_of_images_of_many_bits(pictures, capsys):
    ramp, (wide, wider, floats) = pictures
    wider.unlink(), floats.unlink()
    (batch,) = exburn.utils.image_dataset_from_directory(
        wide.parent, labels=None, image_size=(4, 4)
    )
    np.testing.assert_array_equal(batch[0, ..., 0], ramp * 16)


@says('`load_img(path, "grayscale")` keeps all bits')
def test_gray_images_of_many_bits(pictures):
    ramp, (wide, wider, floats) = pictures
    for framework in BOTH:
        for path, factor in ((wide, 4096), (wider, 40000)):
            found = loaded(framework, path, "grayscale")
            np.testing.assert_array_equal(found, ramp * factor)
    np.testing.assert_array_equal(loaded(exburn, floats, "grayscale"), ramp / 16)
    assert not loaded(keras, floats, "grayscale").any()


# ----------------------------------------------------------------------------- streams
def windows(framework, **options):
    return framework.utils.timeseries_dataset_from_array(
        np.arange(6.0), np.arange(6), 2, batch_size=2, **options
    )


@says("and its kin return streams of NumPy batches with the methods of `tf.data`")
def test_streams_of_batches(pictures, capsys):
    stream = windows(exburn)
    x, y = next(iter(stream))
    assert isinstance(x, np.ndarray) and x.tolist() == [[0, 1], [1, 2]]
    made = stream.filter(lambda x, y: y[0] > 0).map(lambda x, y: (-x, y)).cache()
    assert [x.tolist() for x, _ in made] == [[[-2, -3], [-3, -4]], [[-4, -5]]]
    assert len(list(stream.repeat(2))) == 6 and stream.shuffle(3).batch(2)
    folder = pictures[1][0].parent
    images = exburn.utils.image_dataset_from_directory(
        folder, labels=None, image_size=(4, 4), color_mode="grayscale"
    )
    assert "Found" in capsys.readouterr().out
    assert next(iter(images)).shape[1:] == (4, 4, 1)
    with pytest.raises(ImportError, match="tensorflow|TensorFlow"):
        windows(keras)


@says("`tf.data.Dataset.zip` refuses them")
def test_streams_are_zipped_from_this_side():
    """``tests/core/test_tensorflow_graphs.py`` tries it beside TensorFlow."""
    dataset = type("Dataset", (), {"as_numpy_iterator": lambda self: iter(range(3))})
    dataset.__module__ = "tensorflow.python.data.ops.dataset_ops"
    stream = exburn.utils.Stream(lambda epoch: iter(np.arange(3.0)), 3)
    pairs = list(exburn.utils.Stream.zip(stream, dataset()))
    assert [(float(a), int(b)) for a, b in pairs] == [(0, 0), (1, 1), (2, 2)]
    assert [float(x) for x in iter(stream)] == [0, 1, 2]  # as from_generator reads


@says('With `format="grain"` their `map` and `filter` call `f((x, y))`')
def test_streams_in_grains_form():
    stream = windows(exburn, format="grain")
    made = stream.filter(lambda e: e[1][0] > 0).map(lambda e: (-e[0], e[1]))
    assert [x.tolist() for x, _ in made] == [[[-2, -3], [-3, -4]], [[-4, -5]]]
    with pytest.raises(TypeError):
        list(stream.map(lambda x, y: (x, y)))


@says("A loop over a batch gives arrays, numbers and strings")
def test_elements_of_batches(tmp_path, capsys):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.txt").write_text("ember")
    stream = exburn.utils.text_dataset_from_directory(tmp_path)
    texts, labels = next(iter(stream))
    (text,), (label,) = texts, labels
    assert isinstance(text, str) and type(text.numpy()) is str
    assert text.numpy() == "ember"
    assert isinstance(label, np.integer) and label.numpy() == 0
    rows, _ = next(iter(windows(exburn)))
    for row in rows:
        assert isinstance(row, np.ndarray) and (row.numpy() == row).all()


# ------------------------------------------------------------- layers that draw
def always_dropping(framework, form):
    if form == "functional":
        x = framework.Input((4,))
        dropped = framework.layers.Dropout(0.5)(x, training=True)
        model = framework.Model(x, dropped)
    else:

        class Model(framework.Model):
            def __init__(self):
                super().__init__()
                self.dropout = framework.layers.Dropout(0.5)

            def call(self, x):
                return self.dropout(x, training=True)

        model = Model()
    model.compile("sgd", "mse")
    return model


@says("Layers that draw at inference")
@pytest.mark.parametrize("form", ["functional", "subclass"])
@each
def test_dropout_at_inference(framework, form):
    model = always_dropping(framework, form)
    first, second = (model.predict(X, verbose=0) for _ in range(2))
    off = framework is keras and form == "functional"
    assert (first == 0).any() != off and np.array_equal(first, second) == off
    assert (np.asarray(model(X)) == 0).any()
    first, second = (evaluate(model, X, 2 * X) for _ in range(2))
    assert (first == second) == (framework is exburn or off)


@says("in a model whose `call` takes no `training` are told of it by `fit`")
@each
def test_a_call_without_training(framework):
    class Model(framework.Model):
        def __init__(self):
            super().__init__()
            self.norm = framework.layers.BatchNormalization()
            self.dense = framework.layers.Dense(1)

        def call(self, x):
            return self.dense(self.norm(x))

    model = Model()
    model.compile("sgd", "mse")
    fit(model, X + 1, Y)
    assert (np.asarray(model.norm.moving_mean) != 0).any() == (framework is exburn)


@says("have the same number of rows; call the model itself")
@each
def test_graphs_in_one_batch(framework):
    """Sums of the nodes of each of 16 graphs: 48 nodes, 16 rows of membership."""

    class Pool(framework.Model):
        def __init__(self):
            super().__init__()
            self.dense = framework.layers.Dense(1)

        def call(self, inputs):
            nodes, members = inputs
            return framework.ops.matmul(members, self.dense(nodes))

    model, members = Pool(), np.eye(16, 48, dtype="float32")
    assert model((X, members)).shape == (16, 1)
    model.compile("sgd", "mse")
    loader = (batch for batch in [((X, members), Y[:16])])
    if framework is exburn:
        with pytest.raises(DataError, match="the same number of rows"):
            model.fit(loader, verbose=0)
    else:
        model.fit(loader, steps_per_epoch=1, verbose=0)


# ------------------------------------------------------------------------------ masks
IDS = np.array([[1, 2, 0, 0], [3, 0, 0, 0], [1, 2, 3, 4]])


def seeing(framework, seen):
    class Sees(framework.layers.Layer):
        def __init__(self):
            super().__init__()
            self.supports_masking = True

        def call(self, x, mask=None):
            seen.append(mask is not None)
            return x

        def compute_output_shape(self, shape):
            return shape

    return Sees()


@says("A mask goes from layer to layer within a model")
@each
def test_where_a_mask_goes(framework):
    seen = []
    sees = seeing(framework, seen)
    embedding = framework.layers.Embedding(5, 1, mask_zero=True)
    ids = framework.Input((4,), dtype="int32")
    framework.Model(ids, sees(embedding(ids)))(IDS)
    output = embedding(IDS)
    np.testing.assert_array_equal(np.asarray(output._keras_mask), IDS > 0)
    sees(output)
    assert all(seen)
    point = embedding(ids)
    point._keras_mask = None
    model = framework.Model(ids, sees(point))
    seen.clear()
    model(IDS)
    assert seen == [framework is keras]


@says("Between layers that are called one by one in a")
@each
def test_masks_in_ones_own_programs(framework):
    seen = []
    sees = seeing(framework, seen)
    embedding = framework.layers.Embedding(5, 1, mask_zero=True)
    sees(embedding(IDS))
    seen.clear()
    jax.jit(lambda ids: sees(embedding(ids)))(IDS)
    assert seen == [framework is keras]
    pool = framework.layers.GlobalAveragePooling1D()
    pooled = jax.jit(lambda i: pool(embedding(i), mask=embedding.compute_mask(i)))(IDS)
    np.testing.assert_allclose(
        np.asarray(pooled), np.asarray(pool(embedding(IDS))), 1e-5
    )


# --------------------------------------------------------------- weights and generators
@says("Negative weights of samples or classes are an error")
@pytest.mark.parametrize(
    "weights",
    [
        {"sample_weight": -np.ones(48, "float32")},
        {"class_weight": {0: -1.0, 1: -1.0, 2: -1.0}},
    ],
    ids=lambda weights: next(iter(weights)),
)
@each
def test_negative_weights(framework, weights):
    loss = "sparse_categorical_crossentropy"
    model = compiled(framework, framework.layers.Dense(3, "softmax"), loss=loss)
    if framework is exburn:
        with pytest.raises((DataError, ArgumentError), match="not negative|≥ 0"):
            fit(model, X, LABELS, **weights)
    else:
        assert fit(model, X, LABELS, **weights)["loss"][0] < 0


@says("A generator that ends")
@each
def test_a_generator_that_ends(framework):
    model = compiled(framework)
    with pytest.warns(UserWarning, match="training ends here|ran out of data"):
        history = model.fit(batches(), epochs=3, verbose=0).history
    assert len(history["loss"]) == (1 if framework is exburn else 3)
    with pytest.warns(UserWarning, match="ended after 3 of 5|ran out of data"):
        model.evaluate(batches(), steps=5, verbose=0)
    with pytest.warns(UserWarning, match="ended after 3 of 5|ran out of data"):
        model.predict(((x,) for x, _ in batches()), steps=5, verbose=0)
    error = DataError if framework is exburn else ValueError
    with pytest.raises(error, match="no batches|at least one batch"):
        model.fit(batches(0), verbose=0)
    with pytest.raises(error, match="no batches|at least one batch"):
        fit(model, validation_data=batches(0))


@says("each epoch is validated on the next batches of a generator")
@each
def test_steps_of_a_validation_generator(framework):
    def numbers():
        for number in itertools.count():
            yield np.full((4, 4), number, np.float32), np.zeros((4, 1), np.float32)

    dense = framework.layers.Dense(1, kernel_initializer="ones", trainable=False)
    model, options = compiled(framework, dense), {"steps_per_epoch": 2, "epochs": 2}
    options |= {"validation_data": numbers(), "validation_steps": 2}
    found = model.fit(numbers(), **options, verbose=0).history["val_loss"]
    first, then = 16 * 0.5, 16 * 6.5  # of the batches 0 and 1, and of 2 and 3
    assert found == pytest.approx([first, then if framework is exburn else first])


@says("`to_categorical` returns float32")
def test_dtypes_of_one_hot_vectors():
    ours, theirs = (f.utils.to_categorical([0, 2]) for f in BOTH)
    assert (ours.dtype, theirs.dtype) == (np.float32, np.float64)
    np.testing.assert_array_equal(ours, theirs)


@says("`PyDataset.on_epoch_end` is called after the last batch of a pass")
@each
def test_the_end_of_a_pass(framework):
    events = []

    class Rows(framework.utils.PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            events.append(index)
            return X[16 * index :][:16], Y[16 * index :][:16]

        def on_epoch_end(self):
            events.append("end")

    options = {"epochs": 3, "steps_per_epoch": 2, "shuffle": False, "verbose": 0}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Keras runs out of data
        compiled(framework).fit(Rows(), **options)
    if framework is exburn:
        assert events == [0, 1, 2, "end", 0, 1, 2, "end"]
    else:  # after every epoch, wherever the pass is
        assert events == [0, "end", 0, 1, "end", 2, "end", 0, 1, "end"]
