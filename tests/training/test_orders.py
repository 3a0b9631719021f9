"""Orders of rows go on from one ``fit`` to the next."""

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.callbacks import BackupAndRestore, Callback
from exburn.datasets import loader

RNG = np.random.default_rng(0)
X = RNG.standard_normal((50, 4)).astype(np.float32)
Y = RNG.integers(0, 3, 50)


def make():
    model = exburn.Sequential(
        [exburn.Input((4,)), layers.Dropout(0.5), layers.Dense(3)]
    )
    model.compile("adam", "cross_entropy", seed=1)
    return model


def fit(model, **options):
    model.fit(X, Y, batch_size=8, verbose=0, **options)
    return model


def same(one, other):
    return all(
        a.tobytes() == b.tobytes()
        for a, b in zip(one.get_weights(), other.get_weights(), strict=True)
    )


@pytest.mark.parametrize(
    "options",
    [{}, {"shuffle": "batch"}, {"steps_per_epoch": 3}, {"resident": False}],
    ids=str,
)
def test_short_fits_are_a_long_one(options):
    parts = make()
    for _ in range(3):
        fit(parts, epochs=1, **options)
    assert same(parts, fit(make(), epochs=3, **options))
    first = fit(make(), epochs=1, **options)
    assert not same(first, fit(make(), epochs=1, initial_epoch=0, shuffle=False))


class Seen(Callback):
    """The first row of each batch."""

    def on_train_begin(self, logs=None):
        self.rows = []

    def on_train_batch_end(self, batch, logs=None):
        self.rows.append(int(self.model.seen[0]))


@pytest.fixture
def sees():
    class Sees(exburn.Sequential):
        def compute_loss(self, x=None, y=None, y_pred=None, **kwargs):
            self.seen.assign(x[0])
            return (y_pred**2).mean()

    model = Sees([exburn.Input((1,)), layers.Dense(1)])
    model.seen = model.add_weight((1,), trainable=False, name="seen")
    model.compile("sgd")
    x, seen = np.arange(40, dtype="float32")[:, None], Seen()

    def fit(**options):
        options |= {"callbacks": [seen, *options.get("callbacks", [])]}
        given = {"batch_size": 8, "shuffle": False, "verbose": 0} | options
        model.fit(x, **given)
        return seen.rows

    return fit


@pytest.mark.parametrize("resident", [True, False])
@pytest.mark.parametrize("first", [0, 1, 4])
def test_without_shuffling_each_begins_with_the_first_row(sees, first, resident):
    options = {"steps_per_epoch": 2, "resident": resident, "initial_epoch": first}
    for _ in range(2):  # as Keras does, which ends the third epoch after row 32
        assert sees(epochs=first + 3, **options) == [0, 8, 16, 24, 32, 0]


def test_a_run_that_is_taken_up_goes_on_with_its_rows(sees, tmp_path):
    class Stop(Callback):
        def on_epoch_end(self, epoch, logs=None):
            if epoch == 4:
                raise KeyboardInterrupt

    options = {"steps_per_epoch": 2, "initial_epoch": 3, "epochs": 7}
    backup = BackupAndRestore(tmp_path / "run", delete_checkpoint=False)
    with pytest.raises(KeyboardInterrupt):
        sees(callbacks=[backup, Stop()], **options)
    # From the end of the epoch before on: its own was not saved yet.
    assert sees(callbacks=[backup], **options) == [16, 24, 32, 0, 8, 16]


def test_so_are_fits_that_go_on_with_its_numbers():
    model = fit(make(), epochs=2)
    fit(model, initial_epoch=2, epochs=3)
    assert same(model, fit(make(), epochs=3))


def test_a_compiled_model_begins_anew():
    one, other = fit(make(), epochs=1), make()
    one.compile("adam", "cross_entropy", seed=1)
    one.set_weights(other.get_weights())
    assert same(fit(one, epochs=1), fit(other, epochs=1))


def test_a_loader_is_told_the_next_epoch():
    seen, parts = [], make()

    class Rows(exburn.utils.PyDataset):
        def __len__(self):
            return 5

        def __getitem__(self, index):
            seen.append(index)
            return X[index * 10 :][:10], Y[index * 10 :][:10]

    def orders():
        taken = [tuple(seen[i : i + 5]) for i in range(0, len(seen), 5)]
        seen.clear()
        return taken

    for _ in range(3):
        parts.fit(Rows(), verbose=0)
    found = orders()
    whole = make()
    whole.fit(Rows(), epochs=3, verbose=0)
    assert found == orders() and len(set(found)) == 3
    assert same(parts, whole)
    for model, epochs in ((parts, (1, 1)), (whole, (2,))):
        for n in epochs:
            model.fit(loader(X, Y, batch_size=8, seed=3), epochs=n, verbose=0)
    assert same(parts, whole)


def test_files_and_twins_go_on(tmp_path):
    model = fit(make(), epochs=2)
    model.save(tmp_path / "model.exburn")
    twin = exburn.clone(model)
    loaded = exburn.load_model(tmp_path / "model.exburn")
    expected = fit(model, epochs=1)
    assert same(fit(loaded, epochs=1), expected)
    assert same(fit(twin, epochs=1), expected)


def test_a_further_fit_that_was_interrupted_is_taken_up(tmp_path):
    class Breaks(Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise RuntimeError("power cut")

    model = fit(make(), epochs=2)
    model.save(tmp_path / "model.exburn")
    with pytest.raises(RuntimeError, match="power cut"):
        fit(model, epochs=3, callbacks=[BackupAndRestore(tmp_path / "b"), Breaks()])
    again = make()
    fit(again, epochs=3, callbacks=[BackupAndRestore(tmp_path / "b")])
    whole = fit(exburn.load_model(tmp_path / "model.exburn"), epochs=3)
    assert same(again, whole)
    assert same(fit(again, epochs=1), fit(whole, epochs=1))
