"""What surrounds a run: loaders are closed, and measurements begin and end with it."""

import pytest
from tests.training.batches import Batches, X, Y, threads

import exburn as keras
from exburn.data import PyDataset
from exburn.errors import ShapeError


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
