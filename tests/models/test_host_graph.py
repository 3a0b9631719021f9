"""Models that begin with lookups of strings, which run on the host."""

import copy
import pickle

import jax
import numpy as np
import pytest
from tests.models.lookups import (
    LABELS,
    NUMBERS,
    RNG,
    TEXTS,
    VOCABULARY,
    WORDS,
    Y,
    head,
    looking_up,
    mapped,
    plain,
)

import exburn
from exburn import layers as L
from exburn.errors import DataError, DTypeError, GraphError, NotBuiltError, ShapeError

MINE, THEIRS = [WORDS, NUMBERS], [mapped(WORDS), NUMBERS]


def test_training_is_as_on_data_that_were_mapped_by_hand():
    runs = [
        model.fit(x, Y, epochs=2, validation_split=0.2, verbose=0).history
        for model, x in ((looking_up(), MINE), (plain(), THEIRS))
    ]
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    "use",
    [
        lambda model, x: model.predict(x, verbose=0),
        lambda model, x: model.predict_on_batch(x),
        lambda model, x: model(x),
        lambda model, x: model.evaluate(x, Y, verbose=0),
        lambda model, x: model.train_on_batch(x, Y),
        lambda model, x: model.test_on_batch(x, Y),
    ],
    ids="predict predict_on_batch call evaluate train_on_batch test_on_batch".split(),
)
def test_all_is_as_on_data_that_were_mapped_by_hand(use):
    np.testing.assert_array_equal(use(looking_up(), MINE), use(plain(), THEIRS))


def test_operation_by_operation_too():
    runs = [
        model.fit(x, Y, verbose=0).history
        for model, x in (
            (looking_up(run_eagerly=True), MINE),
            (plain(run_eagerly=True), THEIRS),
        )
    ]
    assert runs[0] == runs[1]


def test_one_program_serves_all_epochs():
    model = looking_up()
    model.fit([WORDS[:64], NUMBERS[:64]], Y[:64], epochs=3, verbose=0)
    assert model.trace_counts["train"] == 1


def sentiment(begin):
    vectorize = L.TextVectorization()
    vectorize.adapt(TEXTS)
    rest = [L.Embedding(16, 4), L.GlobalAveragePooling1D(), L.Dense(2)]
    model = exburn.Sequential([*begin, vectorize, *rest])
    model.compile(exburn.optimizers.Adam(0.05), "cross_entropy", seed=0)
    return model


@pytest.mark.filterwarnings("ignore::exburn.errors.RecompileWarning")
def test_a_stack_without_input_begins_with_the_data():
    model = sentiment([])
    assert not model.built
    model.fit(TEXTS, LABELS, epochs=2, verbose=0, class_weight={0: 1.0, 1: 2.0})
    assert model.input_shape == (None,) and model.inputs[0].dtype == "string"
    fresh = sentiment([])
    assert fresh(["how good"]).shape == (1, 2)
    whole = exburn.Sequential([fresh, L.Softmax()])  # the usual way to ship a model
    np.testing.assert_allclose(whole.predict(TEXTS, verbose=0).sum(-1), 1, rtol=1e-5)


def test_what_lookups_need_runs_on_the_host():
    word, kind = (exburn.Input((1,), dtype="string", name=n) for n in ("word", "kind"))
    size = exburn.Input((1,), name="size")
    crossed = L.HashedCrossing(10, output_mode="one_hot")([word, kind])
    both = L.Concatenate()([word, kind[:, :1], exburn.ops.reshape(word, (-1, 1))])
    hashed = L.Hashing(7)(both)
    bins = L.Hashing(5, output_mode="one_hot")(L.Discretization([0.0])(size))
    after = L.CategoryEncoding(7, output_mode="count")(hashed)
    merged = L.Concatenate()([crossed, after, bins, size])
    model = exburn.Model({"word": word, "kind": kind, "size": size}, L.Dense(1)(merged))
    host = model.host_graph
    assert {*host.names} == {"hashed_crossing", "hashing", "hashing_1", "size"}
    assert "category_encoding" not in host.lookups and "discretization" in host.lookups
    x = {"word": WORDS, "kind": WORDS[::-1], "size": NUMBERS[:, :1]}
    encoded = model.encode_inputs(x)
    columns = np.stack([WORDS, WORDS[::-1], WORDS], 1)
    np.testing.assert_array_equal(encoded["hashing"], L.Hashing(7)(columns))
    np.testing.assert_array_equal(
        encoded["hashed_crossing"],
        L.HashedCrossing(10, output_mode="one_hot")([WORDS, WORDS[::-1]]),
    )
    assert encoded["size"] is x["size"]
    prediction = model.predict(x, verbose=0)
    np.testing.assert_array_equal(prediction, model.predict(encoded, verbose=0))
    compute = jax.jit(lambda x: model(x))  # the program's inputs may be traced
    np.testing.assert_allclose(compute(encoded), prediction, rtol=1e-5)


def test_models_in_models_are_cut_together():
    inner = looking_up()
    word, number = exburn.Input((1,), dtype="string"), exburn.Input((4,))
    narrow = L.Dense(2)(number)  # of the program, and an input of the inner model
    outer = exburn.Model([word, number], inner([word, narrow]) * 2)
    assert outer.host_graph.lookups == ("model/string_lookup",)
    x = [WORDS, RNG.normal(size=(70, 4)).astype(np.float32)]
    kernel, bias = outer.get_layer("dense").get_weights()
    expected = 2 * inner.predict([WORDS, x[1] @ kernel + bias], verbose=0)
    np.testing.assert_allclose(outer.predict(x, verbose=0), expected, atol=1e-5)
    outer.compile("sgd", "mse")
    before = inner.get_weights()[0].copy()
    outer.fit(x, Y, verbose=0)
    assert not np.allclose(before, inner.get_weights()[0])


def test_integers_that_no_program_can_look_up():
    number = exburn.Input((1,), dtype="int64")
    for options in (
        {"vocabulary": [2**40, 5]},
        {"vocabulary": [7, 5, 3], "num_oov_indices": 0},
        {"vocabulary": [7], "num_oov_indices": 3, "oov_method": "farmhash"},
    ):
        lookup = L.IntegerLookup(output_mode="one_hot", **options)
        model = exburn.Model(number, lookup(number))
        assert model.host_graph.lookups == ("integer_lookup",)
        x = np.array(options["vocabulary"])
        np.testing.assert_array_equal(
            model.predict(x, verbose=0),
            L.IntegerLookup(output_mode="one_hot", **options)(x[:, None]),
        )
    small = L.IntegerLookup(vocabulary=[7, 5])
    assert exburn.Model(number, small(number)).host_graph is None


def copies(model, folder):
    path = folder / "model.exburn"
    model.save(path)
    yield exburn.load_model(path)
    yield model.clone()
    yield copy.deepcopy(model)
    yield pickle.loads(pickle.dumps(model))
    fresh = type(model).from_config(model.get_config())
    fresh.set_weights(model.get_weights())
    yield fresh


def test_copies_and_files_keep_it(tmp_path):
    model, x = looking_up(), [WORDS, NUMBERS]
    expected = model.predict(x, verbose=0)
    for other in copies(model, tmp_path):
        np.testing.assert_array_equal(other.predict(x, verbose=0), expected)
    text = sentiment([])
    text.fit(TEXTS, LABELS, verbose=0)
    expected = text.predict(TEXTS[:4], verbose=0)
    for other in copies(text, tmp_path):
        np.testing.assert_array_equal(other.predict(TEXTS[:4], verbose=0), expected)


def test_summaries_say_what_is_on_the_host():
    lines = []
    looking_up().summary(print_fn=lines.append)
    shown = "\n".join(lines)
    row = next(
        line
        for line in shown.splitlines()
        if "StringLookup" in line or "string_lookup" in line
    )
    assert "(None, 1)" in row and "host" in shown and " string " in shown


def test_exported_programs_take_encoded_inputs(tmp_path):
    model, x = looking_up(), [WORDS, NUMBERS]
    with pytest.warns(
        UserWarning, match=r"'string_lookup' run on the host.*encode_inp"
    ):
        model.export(tmp_path / "model.stablehlo")
    found = exburn.predict(tmp_path / "model.stablehlo", model.encode_inputs(x))
    np.testing.assert_allclose(found, model.predict(x, verbose=0), rtol=1e-5)


def test_requests_of_strings_are_served():
    model, x = looking_up(), [WORDS, NUMBERS]
    expected = model.predict(x, verbose=0)
    with exburn.serving.Serving(model, batch_size=16, partitions=1) as serving:
        np.testing.assert_allclose(serving(x), expected, rtol=1e-5)
        parts = list(serving.batches({"word": WORDS, "n": NUMBERS}))
        np.testing.assert_allclose(np.concatenate(parts), expected, rtol=1e-5)


def test_a_step_of_ones_own_gets_encoded_inputs():
    class Model(exburn.Model):
        def train_step(self, state, data):
            assert set(data[0]) == {"string_lookup", "n"}
            return super().train_step(state, data)

    word, number = exburn.Input((1,), dtype="string"), exburn.Input((2,), name="n")
    ids = L.StringLookup(vocabulary=VOCABULARY)(word)
    model = Model([word, number], head(ids, number))
    model.compile("sgd", "mse")
    assert np.isfinite(model.fit([WORDS, NUMBERS], Y, verbose=0).history["loss"][0])


WORD = exburn.Input((1,), dtype="string", name="word")


class Net(exburn.Model):
    def __init__(self):
        super().__init__()
        self.lookup = L.StringLookup(vocabulary=["a"], name="words")

    def call(self, x):
        return self.lookup(x)


REFUSALS = [
    (lambda: L.Dense(2, name="top")(WORD), DTypeError, "top: Dense .* given strin"),
    (lambda: WORD + 1, DTypeError, "add: .* strings"),
    (lambda: L.Concatenate()([WORD, exburn.Input((1,))]), DTypeError, "concaten"),
    (lambda: exburn.Model(WORD, WORD[:, 0]), GraphError, "'get_item' holds string"),
    (
        lambda: exburn.Model(n := exburn.Input((1,)), L.Hashing(3)(L.Dense(1)(n))),
        GraphError,
        "'dense' has weights.*'hashing'",
    ),
    (
        lambda: L.StringLookup(output_mode="one_hot")(WORD),
        NotBuiltError,
        "no vocabulary",
    ),
    (lambda: Net()(WORD), DTypeError, "call 'words' in front"),
    (lambda: Net()(np.array(["a"])), DTypeError, "call 'words' in front"),
    (lambda: Net().predict(np.array(["a"])), DTypeError, "StringLookup"),
    (lambda: Net().predict(np.array([1])), GraphError, "words: StringLookup works"),
]


@pytest.mark.parametrize(
    ("x", "error", "said"),
    [
        ([WORDS, NUMBERS[:9]], DataError, "same number of rows"),
        ([np.ones(70), NUMBERS], DataError, "'word' must hold strings"),
        ([np.stack([WORDS, WORDS], 1), NUMBERS], ShapeError, r"string\[None, 1\]"),
        ([np.array([None] * 70), NUMBERS], DTypeError, "strings are needed"),
        ([WORDS, np.full((70, 2), 2**40)], DTypeError, r"x\['n'\].*int32 cannot"),
        ({"word": WORDS}, DataError, "'n' is missing"),
    ],
)
def test_data_that_do_not_fit(x, error, said):
    with pytest.raises(error, match=said):
        looking_up().predict(x, verbose=0)
