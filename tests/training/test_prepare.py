"""A module made ready by the first batch of its data."""

from typing import ClassVar

import pytest
from tests.training.batches import Batches
from tests.training.iterators import LABELS, ROWS, classifier

from exburn.errors import ShapeError


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
    assert f"in batch 7 of the {where}, or after it" in caught.value.places


def test_the_first_batch_of_a_loader_is_read_once(model):
    class Loader(Batches):
        opened = 0

        def __iter__(self):
            self.opened += 1
            return super().__iter__()

    loaders = Loader(), Loader()
    model.fit(loaders[0], validation_data=loaders[1], epochs=2, verbose=0)
    assert [loader.opened for loader in loaders] == [2, 2]


def test_the_first_epoch_is_the_one_that_is_looked_at():
    class Told:
        epochs: ClassVar = []

        def __iter__(self):
            return iter([(ROWS, LABELS)])

        def set_epoch(self, epoch):
            self.epochs.append(epoch)

    classifier().fit(Told(), initial_epoch=3, epochs=5, verbose=0)
    assert Told.epochs == [3, 4]
