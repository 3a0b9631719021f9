"""What ``fit`` asks of loaders, and how it leaves them."""

import itertools
import threading
import warnings

import numpy as np
import pytest
from tests.training.batches import Batches, X, Y
from tests.training.iterators import LABELS, ROWS, Restarting, classifier

import exburn as keras
from exburn.data import PyDataset, StreamDataset
from exburn.errors import ArgumentError, RecompileWarning
from exburn.training.feed.base import StreamFeed


def test_one_generator_for_training_and_validation(model):
    batches = iter(Batches())
    with pytest.raises(ArgumentError, match="generator cannot be x and validation"):
        model.fit(batches, validation_data=batches, verbose=0)

    def endless():
        while True:
            yield from Batches()

    batches = endless()  # as in Keras, each takes what comes next
    held = {"validation_data": batches, "validation_steps": 1}
    model.fit(batches, steps_per_epoch=2, verbose=0, **held)


FORMS = {  # lengths of the batches' rows, rows of a batch, steps and rows of the chunks
    "alternating": ([3, 4] * 3, [2] * 6, [1] * 6, [2] * 6),
    "in runs": ([3] * 9 + [4] * 10, [2] * 19, [8, 1, 8, 1, 1], [2] * 5),
    "growing": ([3] * 5, [1, 2, 3, 9, 10], [1] * 5, [1, 2, 4, 10, 10]),
    "a short last one": ([3] * 6, [2] * 5 + [1], [16], [2]),
}


@pytest.mark.parametrize("form", FORMS)
def test_batches_of_changing_forms_make_few_empty_steps(form):
    lengths, rows, steps, sizes = FORMS[form]
    batches = [
        np.full((n, k, 1), i, np.float32)
        for i, (n, k) in enumerate(zip(rows, lengths, strict=True))
    ]
    feed = StreamFeed(StreamDataset(lambda epoch: iter(batches)), 16, fixed=True)
    chunks = list(feed.epoch(0, 0))
    feed.close()
    shapes = [chunk.data[0].shape for chunk in chunks]
    assert [shape[0] for shape in shapes] == steps
    assert [shape[1] for shape in shapes] == sizes
    seen = [step for c in chunks for step in np.asarray(c.data[0])[: c.steps]]
    assert [int(step[0, 0, 0]) for step in seen] == list(range(len(batches)))
    assert [n for c in chunks for n in np.asarray(c.count[0])[: c.steps]] == rows


@pytest.mark.parametrize("steps", [1, 4])
def test_a_short_batch_that_comes_first_is_padded_as_elsewhere(steps):
    """Its order is shuffled: one program, and each row once, also in reused memory."""
    x, y, seen = np.zeros((4, 4), X.dtype), np.zeros(4, Y.dtype), []

    class Rows(PyDataset):
        def __len__(self):
            return 3

        def __getitem__(self, index):
            seen.append(index)
            rows = slice(4 * index, min(4 * index + 4, 10))
            n = rows.stop - rows.start
            x[:n], y[:n] = X[rows], Y[rows]
            return x[:n], y[:n]

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(3)])
    still = keras.optimizers.SGD(0.0)
    model.compile(still, "cross_entropy", seed=1, steps_per_execution=steps)
    losses = model.fit(Rows(), epochs=8, verbose=0).history["loss"]
    assert {0, 1, 2} == set(seen[::3])
    np.testing.assert_allclose(losses, model.evaluate(X[:10], Y[:10], verbose=0), 1e-5)
    assert model.trace_counts["train"] == 1


@pytest.mark.parametrize(
    "given",
    [
        {"x": Restarting(), "class_weight": {0: 1.0, 1: 2.0}},
        {"x": Restarting(), "steps_per_epoch": 4},
        {"x": ROWS, "y": LABELS, "validation_data": Restarting(column=True)},
    ],
    ids=["class_weight", "steps_per_epoch", "validation_data"],
)
def test_iterators_that_begin_anew_do_so_on_every_way(given):
    history = classifier().fit(epochs=3, verbose=0, **given).history
    assert all(len(values) == 3 for values in history.values())


def test_a_loader_that_keeps_its_workers_is_not_restarted_in_the_middle():
    stream = StreamDataset(
        lambda epoch: iter(Restarting()), batches=4, shared=True, name="DataLoader"
    )
    model = classifier()
    model.fit(stream, validation_data=stream, epochs=2, verbose=0)
    with pytest.raises(ArgumentError, match="steps_per_epoch"):
        model.fit(stream, validation_data=stream, steps_per_epoch=3, verbose=0)


@pytest.mark.parametrize("named", ["training", "validation"])
def test_validation_data_by_name_or_in_a_list(named):
    image, age = keras.Input((4, 4), name="image"), keras.Input((2,), name="age")
    h = keras.layers.Concatenate()([keras.layers.Flatten()(image), age])
    z = keras.layers.Dense(2, name="z")(h)
    model = keras.Model([image, age], [z, keras.layers.Dense(1, name="a")(h)])
    model.compile("sgd", {"z": "cross_entropy", "a": "mse"}, seed=0)
    x = [np.ones((8, 4, 4), np.float32), np.ones((8, 2), np.float32)]
    y = [np.ones(8, np.int32), np.zeros((8, 1), np.float32)]
    by_name = (
        {"image": x[0], "age": x[1], "id": np.arange(8)},
        {"z": y[0], "a": y[1]},
    )
    data, held = (by_name, (x, y)) if named == "training" else ((x, y), by_name)
    history = model.fit(*data, validation_data=held, verbose=0).history
    assert history["val_loss"][0] == pytest.approx(
        model.evaluate(*held, verbose=0, return_dict=True)["loss"]
    )


def test_means_are_shown_while_the_next_chunk_is_awaited(monkeypatch):
    monkeypatch.setattr("exburn.training.chunk_loop.GLANCE", 0.0)
    monkeypatch.setattr("exburn.runtime.threads._GLANCE", 0.02)
    shown = threading.Event()

    def batches():
        for step in range(24):
            assert step < 16 or shown.wait(10), "its means are not shown"
            yield np.ones((4, 4), "float32"), np.ones((4, 1), "float32")

    class Note(keras.callbacks.Callback):
        def on_chunk_end(self, step, logs=None):
            if step == 16:
                shown.set()

    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=8)
    model.fit(batches(), verbose=0, callbacks=[Note()])
    assert shown.is_set()


def compiled_for(model, sizes, **options):
    """What programs a generator of such batches needs: reasons, to the last."""

    def endless():
        for size in itertools.cycle(sizes):
            yield np.ones((*size, 4), "float32"), np.ones((size[0], 1), "float32")

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RecompileWarning)
        model.fit(endless(), verbose=0, **options)
    return [entry.reason for entry in model.compile_report()]


def test_epochs_of_batches_that_grow_share_programs():
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", steps_per_execution=4)
    sizes = [(3,), (8,), (5,), (6,), (7,)]  # each epoch begins with another one
    options = {"steps_per_epoch": 16}
    once = compiled_for(model, sizes, epochs=1, **options)
    model.compile("sgd", "mse", steps_per_execution=4)
    again = compiled_for(model, sizes, epochs=5, **options)
    assert len(again) == len(once)


def test_a_batch_of_a_form_of_its_own_does_not_wait_for_the_next():
    came = threading.Event()

    def lengths():
        for length in (3, 4, 5, 6):
            assert length < 6 or came.wait(10), "the batch before is not there"
            yield np.ones((2, length), "float32")

    seen = []
    for chunk in StreamFeed(StreamDataset(lambda epoch: lengths()), 8).epoch(0, 0):
        seen.append((chunk.data[0].shape, chunk.steps))
        if seen[-1][0][2] == 5:
            came.set()
    assert seen == [((1, 2, length), 1) for length in (3, 4, 5, 6)]
