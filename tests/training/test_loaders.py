"""What ``fit`` asks of loaders, and how it leaves them."""

import numpy as np
import pytest
from tests.training.batches import Batches, X, Y, threads

import exburn as keras
from exburn.dataset import PyDataset, StreamDataset
from exburn.errors import ArgumentError, ShapeError
from exburn.training.feed import StreamFeed


@pytest.mark.parametrize("op", ["fit", "validate", "evaluate", "predict", "hook"])
def test_an_early_error_closes_the_loader_even_while_it_is_held(model, op):
    class Rows(PyDataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return (X[:4] if op == "hook" else X[:4, :3]), Y[:4]

    def stop():
        raise ShapeError("hook", "no")

    rows = Rows(workers=2)
    with pytest.raises(ShapeError) as caught:
        if op == "validate":
            model.fit(Batches(), validation_data=rows, verbose=0)
        elif op == "hook":
            begin = keras.callbacks.LambdaCallback(on_train_begin=lambda logs: stop())
            model.fit(rows, verbose=0, callbacks=begin)
        else:
            getattr(model, op)(rows, verbose=0)
    assert threads() == [] and caught.value.__traceback__ is not None


@pytest.mark.parametrize("where", ["epoch", "validation", "evaluation", "prediction"])
def test_a_batch_of_another_width_is_told(model, where):
    class Narrower(Batches):
        def read(self, index):
            x, y = super().read(index)
            return x[:, : 3 if index == 7 else 4], y

    options = {"validation_data": Narrower()} if where == "validation" else {}
    method = {"evaluation": "evaluate", "prediction": "predict"}.get(where, "fit")
    data = Batches() if where == "validation" else Narrower()
    with pytest.raises(ShapeError) as caught:
        getattr(model, method)(data, verbose=0, **options)
    assert f"in batch 7 of the {where}, or after it" in caught.value.__notes__


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


def test_what_measures_begins_with_the_first_batch_and_ends_with_the_last(model):
    read = []

    class Numbered(PyDataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            read.append(index)
            return X[index * 4 : index * 4 + 4], Y[index * 4 : index * 4 + 4]

    loader = Numbered()
    held = {"validation_data": loader, "validation_steps": 2, "epochs": 3}
    history = model.fit(X, Y, verbose=0, **held).history
    assert read == [0, 1] * 3
    few = model.evaluate(X[:8], Y[:8], verbose=0, return_dict=True)
    assert history["val_loss"][-1] == pytest.approx(few["loss"])
    model.fit(loader, shuffle=False, steps_per_epoch=2, epochs=3, verbose=0)
    assert read[6:] == [0, 1, 2, 3, 4, 0]  # training goes on
    assert model.predict(loader, steps=9, verbose=0).shape[0] == 20
    whole = model.evaluate(X[:20], Y[:20], verbose=0)
    assert model.evaluate(loader, steps=9, verbose=0) == pytest.approx(whole)


def test_what_never_ends_needs_steps(model):
    class Endless(PyDataset):
        def __getitem__(self, index):
            return X[:4], Y[:4]

    loader = Endless()
    with pytest.raises(ArgumentError, match="steps_per_epoch must be given: the Endl"):
        model.fit(loader, verbose=0)
    with pytest.raises(ArgumentError, match="validation_steps must be given"):
        model.fit(X, Y, validation_data=loader, verbose=0)
    for op in ("evaluate", "predict"):
        with pytest.raises(ArgumentError, match=f"{op}: steps must be given"):
            getattr(model, op)(loader, verbose=0)
    model.fit(loader, steps_per_epoch=2, verbose=0)


def test_the_first_batch_of_a_loader_is_read_once(model):
    class Loader(Batches):
        opened = 0

        def __iter__(self):
            self.opened += 1
            return super().__iter__()

    loaders = Loader(), Loader()
    model.fit(loaders[0], validation_data=loaders[1], epochs=2, verbose=0)
    assert [loader.opened for loader in loaders] == [2, 2]


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
