"""Tests of ``exburn.utils.stream``."""

import numpy as np
import pytest

import exburn
from exburn import errors, utils
from exburn.layers import Dense


def test_fit_takes_a_stream():
    series = np.sin(np.arange(80) / 5).astype("float32")[:, None]
    stream = utils.timeseries_dataset_from_array(series, series[4:], 4, batch_size=16)
    model = exburn.Sequential([exburn.Input((4, 1)), exburn.layers.Flatten(), Dense(1)])
    model.compile("sgd", "mse")
    history = model.fit(stream, epochs=3, verbose=0).history["loss"]
    assert history[-1] < history[0]
    with pytest.raises(errors.ArgumentError, match="batch"):
        model.fit(stream.unbatch(), verbose=0)


def test_stream_methods():
    stream = utils.Stream(lambda epoch: iter([(i, -i) for i in range(7)]), 7)
    pairs = stream.map(lambda a, b: (a * 2, b)).skip(1).take(4)
    assert (list(pairs), len(pairs)) == ([(2, -1), (4, -2), (6, -3), (8, -4)], 4)
    batches = stream.batch(3)
    assert [x.tolist() for x, _ in batches] == [[0, 1, 2], [3, 4, 5], [6]]
    assert (len(batches), len(stream.batch(3, drop_remainder=True))) == (3, 2)
    assert [int(x) for x, _ in batches.unbatch()] == list(range(7))
    mixed = stream.shuffle(4, seed=1)
    first, second = list(mixed), list(mixed)
    assert sorted(first) == sorted(second) == sorted(stream) and first != second
    assert stream.prefetch(2) is stream and stream.cardinality() == 7
    made = []
    cached = utils.Stream(lambda epoch: (made.append(i) or i for i in range(3))).cache()
    assert list(cached) == list(cached) == made == [0, 1, 2]


def test_streams_are_repeated_filtered_and_joined():
    stream = utils.Stream(lambda epoch: iter([(i, epoch) for i in range(3)]), 3)
    twice = stream.repeat(2)
    assert [e for _, e in twice] == [0, 0, 0, 1, 1, 1] and len(twice) == 6
    assert [e for _, e in twice] == [2, 2, 2, 3, 3, 3]
    endless = stream.repeat()
    assert (endless.cardinality(), endless.batch(2).cardinality()) == (-1, -1)
    assert [int(a) for a, _ in endless.take(7)] == [0, 1, 2, 0, 1, 2, 0]
    with pytest.raises(TypeError, match="infinite"):
        len(endless)
    odd = stream.filter(lambda a, _: a % 2)
    assert [a for a, _ in odd.concatenate(stream)] == [1, 0, 1, 2]
    assert (odd.cardinality(), stream.concatenate(stream).cardinality()) == (-2, 6)
    model = exburn.Sequential([exburn.Input((4,)), Dense(1)])
    model.compile("sgd", "mse")
    x, y = np.ones((10, 4)), np.ones((10, 1))
    batches = utils.Stream(lambda epoch: iter([(x, y), (x, y)]), 2, batch_size=10)
    history = model.fit(batches.repeat(), steps_per_epoch=3, epochs=2, verbose=0)
    assert history.params["steps"] == 3 and len(history.history["loss"]) == 2
    with pytest.raises(errors.ArgumentError, match="steps_per_epoch"):
        model.fit(batches.repeat(), verbose=0)


@pytest.mark.parametrize("name", ["tf", "grain"])
def test_the_format_says_how_functions_are_called(name):
    x, y = np.arange(6.0), np.arange(6)
    stream = utils.timeseries_dataset_from_array(x, y, 2, batch_size=2, format=name)
    if name == "grain":
        stream = stream.filter(lambda e: e[1][0] > 0).map(lambda e: (-e[0], e[1]))
    else:
        stream = stream.filter(lambda x, y: y[0] > 0).map(lambda x, y: (-x, y))
    assert [x.tolist() for x, _ in stream] == [[[-2, -3], [-3, -4]], [[-4, -5]]]


def numbers(count):
    return utils.Stream(lambda epoch: map(np.int64, range(count)), count)


def lists(stream):
    return [np.asarray(element).tolist() for element in stream]


def windowed(stream, *args, **options):
    windows = stream.window(*args, **options)
    return [[int(x) for x in window] for window in windows]


#: What each method of ``tf.data`` gives; TensorFlow 2.21 agrees where it runs the call.
LIKE_TENSORFLOW = {
    "rebatch": (
        lambda s: lists(s(7).batch(3).rebatch(2)),
        [[0, 1], [2, 3], [4, 5], [6]],
    ),
    "rebatch to less": (
        lambda s: lists(s(7).batch(3).rebatch(4, drop_remainder=True)),
        [[0, 1, 2, 3]],
    ),
    "rebatch in turns": (
        lambda s: lists(s(8).batch(8).rebatch([2, 1])),
        [[0, 1], [2], [3, 4], [5], [6, 7]],
    ),
    "window": (lambda s: windowed(s(7), 3), [[0, 1, 2], [3, 4, 5], [6]]),
    "window, strided": (
        lambda s: windowed(s(7), 3, 1, 2, True),
        [[0, 2, 4], [1, 3, 5], [2, 4, 6]],
    ),
    "window, strided to the end": (
        lambda s: windowed(s(7), 3, 1, 2),
        [[0, 2, 4], [1, 3, 5], [2, 4, 6], [3, 5], [4, 6], [5], [6]],
    ),
    "window, far apart": (lambda s: windowed(s(9), 2, 4), [[0, 1], [4, 5], [8]]),
    "interleave": (
        lambda s: lists(
            s(5)
            .map(lambda n: n + 1)
            .interleave(lambda n: s(1).map(lambda _: n).repeat(6), 2, 4)
        ),
        [*[1] * 4, *[2] * 4, *[1] * 2, *[2] * 2, *[3] * 4, *[4] * 4, *[3] * 2]
        + [*[4] * 2, *[5] * 6],
    ),
    "flat_map": (
        lambda s: lists(s(4).flat_map(lambda n: s(int(n)))),
        [0, 0, 1, 0, 1, 2],
    ),
    "padded_batch": (
        lambda s: lists(s(4).map(lambda n: np.full(n, n)).padded_batch(2)),
        [[[0], [1]], [[2, 2, 0], [3, 3, 3]]],
    ),
    "padded_batch to a size": (
        lambda s: lists(
            s(3)
            .map(lambda n: np.full(n, n))
            .padded_batch(3, padded_shapes=[4], padding_values=-1)
        ),
        [[[-1, -1, -1, -1], [1, -1, -1, -1], [2, 2, -1, -1]]],
    ),
    "scan": (
        lambda s: lists(s(5).scan(0, lambda a, n: (a + n, a * n))),
        [0, 0, 2, 9, 24],
    ),
    "take_while": (lambda s: lists(s(9).take_while(lambda n: n != 4)), [0, 1, 2, 3]),
    "unique": (lambda s: lists(s(9).map(lambda n: n % 3).unique()), [0, 1, 2]),
    "reduce": (lambda s: int(s(5).reduce(0, lambda a, n: a * 2 + n)), 26),
    "apply": (lambda s: lists(s(5).apply(lambda d: d.take(2))), [0, 1]),
    "with_options": (lambda s: lists(s(2).with_options(None)), [0, 1]),
}


@pytest.mark.parametrize("name", LIKE_TENSORFLOW)
def test_methods_give_what_tensorflow_gives(name):
    call, expected = LIKE_TENSORFLOW[name]
    assert call(numbers) == expected
    assert call(numbers) == expected  # streams can be read again


def test_streams_are_zipped():
    pairs = utils.Stream.zip(numbers(5), numbers(3).map(lambda n: -n))
    assert [(int(a), int(b)) for a, b in pairs] == [(0, 0), (1, -1), (2, -2)]
    assert len(pairs) == 3
    nested = utils.Stream.zip({"a": numbers(4), "b": (numbers(9), [7, 8])})
    assert [(int(e["a"]), int(e["b"][0]), e["b"][1]) for e in nested] == [
        (0, 0, 7),
        (1, 1, 8),
    ]
    batched = utils.Stream.zip(numbers(8).batch(4), numbers(8).batch(4))
    assert batched.batch_size == 4
    for wrong in ((), ([1, 2], [3])):
        with pytest.raises(errors.ArgumentError, match="stream"):
            utils.Stream.zip(*wrong)
    with pytest.raises(errors.DTypeError, match="int"):
        list(utils.Stream.zip(numbers(2), 3))


def test_parts_of_samples_are_windowed_and_padded():
    pairs = numbers(5).map(lambda n: (np.full(n, n), {"n": n}))
    windows = pairs.window(2, drop_remainder=True)
    found = [([x.shape for x in a], lists(b["n"])) for a, b in windows]
    assert found == [([(0,), (1,)], [0, 1]), ([(2,), (3,)], [2, 3])]
    x, y = next(iter(pairs.padded_batch(5, ([6], {"n": ()}), (9, {"n": 0}))))
    assert (
        x.shape == (5, 6) and (x[0] == 9).all() and y["n"].tolist() == [0, 1, 2, 3, 4]
    )
    words = utils.Stream(lambda epoch: [np.array(["a"]), np.array(["bb", "c"])])
    assert lists(words.padded_batch(2)) == [[["a", ""], ["bb", "c"]]]


@pytest.mark.parametrize(
    "call, error",
    [
        (lambda s: s.rebatch(0), errors.ArgumentError),
        (lambda s: s.rebatch([]), errors.ArgumentError),
        (lambda s: s.window(2, 0), errors.ArgumentError),
        (lambda s: s.interleave(lambda n: [n], 0), errors.ArgumentError),
        (lambda s: s.interleave(lambda n: [n], 1, 0), errors.ArgumentError),
        (lambda s: list(s.flat_map(lambda n: 3)), errors.DTypeError),
        (lambda s: list(s.flat_map(lambda n: "text")), errors.DTypeError),
        (lambda s: list(s.map(lambda n: (n, n)).unique()), errors.DTypeError),
        (lambda s: s.padded_batch(0), errors.ArgumentError),
        (
            lambda s: list(s.map(lambda n: np.zeros(n)).padded_batch(5, [2])),
            errors.ShapeError,
        ),
        (
            lambda s: list(s.map(lambda n: np.zeros(n)).padded_batch(5, [2, 2])),
            errors.ShapeError,
        ),
        (
            lambda s: list(s.map(lambda n: (n, n)).padded_batch(5, ((), (), ()))),
            errors.ArgumentError,
        ),
    ],
)
def test_what_cannot_be_grouped_is_refused(call, error):
    with pytest.raises(error):
        call(numbers(5))


def test_fit_takes_windows_of_a_series():
    series = utils.Stream(lambda epoch: np.sin(np.arange(60) / 5).astype("float32"), 60)
    samples = series.window(5, shift=1, drop_remainder=True).flat_map(
        lambda window: window.batch(5)
    )
    data = samples.map(lambda x: (x[:4], x[4:])).batch(8)
    model = exburn.Sequential([exburn.Input((4,)), Dense(1)])
    model.compile("adam", "mse")
    history = model.fit(data, epochs=2, verbose=0).history["loss"]
    assert history[1] < history[0]
    rows = data.rebatch(16)
    assert rows.batch_size == 16 and next(iter(rows))[0].shape == (16, 4)
    model.fit(rows, verbose=0)


IMAGES = [(np.zeros((2, 4, 3), "float32"), np.array([0, 1]))] * 3
# A stream, and its text.
TEXTS = {
    "batches": (
        utils.Stream(lambda e: IMAGES, 3, batch_size=2, class_names=["cat", "dog"]),
        "3 batches of 2 rows · 2 classes (cat, dog) · shapes not known yet",
    ),
    "one": (utils.Stream(lambda e: [1], 1), "1 element · shapes not known yet"),
    "unknown": (
        utils.Stream(lambda e: [1]),
        "elements · number not known · shapes not known yet",
    ),
    "endless": (
        utils.Stream(lambda e: IMAGES, 3, batch_size=2).repeat(),
        "endless batches of 2 rows · shapes not known yet",
    ),
    "many classes": (
        utils.Stream(lambda e: IMAGES, 1, class_names=list("abcdefg")),
        "1 element · 7 classes (a, b, c, d, e, …) · shapes not known yet",
    ),
    "windows": (
        utils.timeseries_dataset_from_array(np.ones((9, 2), "float32"), np.ones(9), 3),
        "1 batch of 128 rows · (float32[None, 3, 2], float64[None])",
    ),
    "split": (
        utils.split_dataset({"a": np.ones((4, 3)), "b": np.ones(4)}, 0.5)[0],
        "2 elements · {'a': float64[3], 'b': float64[]}",
    ),
}


@pytest.mark.parametrize("case", TEXTS)
def test_the_text_of_a_stream(case):
    stream, text = TEXTS[case]
    assert repr(stream) == f"<Stream {stream.name!r}: {text}>"


def test_the_first_element_tells_the_form():
    made = []
    stream = utils.Stream(lambda e: (made.append(x) or x for x in IMAGES), 3)
    assert "shapes not known yet" in repr(stream) and not made
    next(iter(stream))
    assert repr(stream).endswith("(float32[2, 4, 3], int64[2])>") and len(made) == 1
    batches = utils.Stream(lambda e: IMAGES, 3, batch_size=2)
    batches.peek()  # as fit does
    assert repr(batches).endswith("(float32[None, 4, 3], int64[None])>")
    row, batch = batches.unbatch(), batches.unbatch().batch(4)
    assert repr(row).endswith("(float32[4, 3], int64[])>")
    assert repr(batch).endswith("(float32[None, 4, 3], int64[None])>")
    for method in ("take", "skip", "shuffle", "repeat"):
        assert repr(getattr(batches, method)(2)).endswith("int64[None])>")
    assert repr(batches.cache()).endswith("int64[None])>")
    assert "not known" in repr(batches.map(lambda x, y: x))
    windows = utils.Stream(lambda e: range(4), 4).window(2)
    list(windows)
    assert repr(windows).endswith("Stream>")
    words = utils.Stream(lambda e: [{"a": "x", "b": 1.0}], 1)
    list(words)
    assert repr(words).endswith("{'a': string[], 'b': float64[]}>")
