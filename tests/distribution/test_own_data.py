"""Two processes with rows of their own train as one with all of them."""

import numpy as np
from tests.distribution.processes import DATA, run

BEGIN = (
    DATA
    + """
from exburn import distribution


def make(mesh):
    layers = [keras.Input((8,)), keras.layers.Dense(32, "relu"), keras.layers.Dense(2)]
    model = keras.Sequential(layers)
    model.compile("adam", "cross_entropy", metrics=["accuracy"], mesh=mesh)
    return model


def own():
    return make(distribution.DataParallel(auto_shard_dataset=False))
"""
)
OWN = """
# Batches of 60 are made of the first process' 30 rows and the second one's.
halves = [np.arange(60 * i + 30 * NUMBER, 60 * i + 30 * NUMBER + 30) for i in range(15)]
part = np.concatenate(halves)
ends = [slice(900, 970), slice(970, 1000)]  # one has more rows than the other
held = (x[ends[NUMBER]], y[ends[NUMBER]])
options = dict(epochs=2, shuffle=False, verbose=0, validation_data=held)


class Loader:
    def __iter__(self):
        for rows in halves:
            yield x[rows], y[rows]


model = own()
history = model.fit(x[part], y[part], batch_size=30, **options)
report(history=history.history)
mine = [slice(0, 530), slice(530, 1000)][NUMBER]
report(evaluated=model.evaluate(x[mine], y[mine], batch_size=37, verbose=0))
report(predicted=model.predict(x[mine], batch_size=33, verbose=0).tolist())
report(steps=int(model.optimizer.iterations))
keras.utils.set_random_seed(1)
loaded = own().fit(Loader(), **options)
report(loaded=loaded.history)
"""


def test_the_history_is_that_of_one_process_with_all_rows():
    space = {"np": np}
    exec(BEGIN, space)
    model, x, y = space["make"](None), space["x"], space["y"]
    history = model.fit(
        x[:900],
        y[:900],
        batch_size=60,
        epochs=2,
        shuffle=False,
        verbose=0,
        validation_data=(x[900:], y[900:]),
    )
    first, second = run(BEGIN + OWN)
    predicted = first.pop("predicted") + second.pop("predicted")
    assert first == second and first["steps"] == 30
    for name, values in history.history.items():
        np.testing.assert_allclose(first["history"][name], values, rtol=1e-5)
        np.testing.assert_allclose(first["loaded"][name], values, rtol=1e-5)
    expected = model.evaluate(x, y, verbose=0)
    np.testing.assert_allclose(first["evaluated"], expected, rtol=1e-5)
    expected = model.predict(x, verbose=0)
    np.testing.assert_allclose(predicted, expected, rtol=1e-4, atol=1e-5)


def test_epochs_have_the_fewest_steps_of_a_process_and_say_so():
    found = run(
        BEGIN
        + """
import warnings

class Loader:
    def __init__(self, batches):
        self.batches = batches

    def __iter__(self):
        for i in range(self.batches):
            yield x[30 * i : 30 * i + 30], y[30 * i : 30 * i + 30]


class Sized(Loader):
    def __len__(self):
        return self.batches


few, many = 7, 10
batches = [many, few][NUMBER]
for name, data in {
    "arrays": (x[: 30 * batches - 11], y[: 30 * batches - 11]),
    "sized": (Sized(batches),),
    "loader": (Loader(batches),),
}.items():
    with warnings.catch_warnings(record=True, action="always") as caught:
        model = own()
        history = model.fit(*data, batch_size=30, epochs=2, verbose=0)
    said = [str(w.message) for w in caught]
    report(**{name: [int(model.optimizer.iterations), history.history, said]})
"""
    )
    first, second = found
    for name in ("arrays", "sized", "loader"):
        assert first[name][:2] == second[name][:2]
        assert first[name][0] == 2 * 7
        assert len(first[name][2]) == 1 and not second[name][2]
        assert "process 1" in first[name][2][0]


def test_rows_of_their_own_must_be_declared_and_possible():
    found = run(
        BEGIN
        + """
rows = np.random.default_rng(NUMBER).normal(size=(100, 8)).astype("float32")
model = make("data")
for name in ("fit", "evaluate"):
    try:
        getattr(model, name)(rows, y[:100], verbose=0)
    except Exception as error:
        report(**{name: str(error)})
mesh = distribution.DeviceMesh((1, 4), ["batch", "model"])
layout = distribution.LayoutMap(mesh)
layout["dense/kernel"] = (None, "model")
divided = distribution.ModelParallel(layout_map=layout, auto_shard_dataset=False)
try:
    make(divided).fit(rows, y[:100], verbose=0)
except Exception as error:
    report(shared=f"{type(error).__name__}: {error}")
"""
    )
    for values in found:
        for name in ("fit", "evaluate"):
            assert (
                f"{name}: the processes run with different values of data"
                in (values[name])
            )
            assert "auto_shard_dataset=False" in values[name]
        assert values["shared"].startswith("LayoutError")
        assert "do not divide the batch evenly among them" in values["shared"]
