"""Arrays that were changed in place between two calls: the second call sees it."""

import ctypes
import mmap

import jax
import numpy as np
import pytest
from tests.distribution.devices import on_devices

import exburn
from exburn.callbacks import LambdaCallback
from exburn.training import epochs
from exburn.training.feed import resident_rows
from exburn.training.program import Program

ROWS, WIDTH = 48, 4


@pytest.fixture(params=[False, True], ids=["looked at first", "on trial"])
def on_trial(request, monkeypatch):
    """Whether the first chunk is run before it is known what was changed."""
    monkeypatch.setattr(resident_rows, "_LITTLE", 0 if request.param else 1 << 60)
    return request.param


@pytest.fixture
def trained_on(monkeypatch):
    """The data that programs were called with, the last ones at the end."""
    data, call = [], Program.__call__

    def noting(self, *args, **options):
        out = call(self, *args, **options)
        if self._name == "train":
            data.append(jax.tree.map(np.array, args[1]))
        return out

    monkeypatch.setattr(Program, "__call__", noting)
    return data


def linear():
    model = exburn.Sequential(
        [exburn.Input((WIDTH,)), exburn.layers.Dense(1, use_bias=False)]
    )
    model.compile(exburn.optimizers.SGD(0.0), "mse", seed=0)
    return model


@pytest.fixture(scope="module")
def model():
    return linear()


def data_of(rows=ROWS):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, WIDTH)).astype(np.float32)
    return x, rng.standard_normal((rows, 1)).astype(np.float32)


def assign(x):
    x[:] = np.arange(x.size).reshape(x.shape)


def one_element(x):
    x[ROWS // 2, 1] += 1


def last_bit(x):
    x.view(np.uint32)[-1, -1] ^= 1


def through_a_view(x):
    x[3:][:, 2:][1] = 5


def other_dtype(x):
    x.view(np.uint8)[7, 9] ^= 255


def swapped_words(x):  # of equal sum
    x[0, 0], x[0, 1] = float(x[0, 1]), float(x[0, 0])


def signs(x):
    np.negative(x, out=x)


def two_signs(x):
    x[1, 1] *= -1
    x[2, 1] *= -1


def shuffled(x):
    np.random.default_rng(1).shuffle(x)


def two_rows(x):
    x[[4, 9]] = x[[9, 4]]


def reversed_rows(x):
    x[:] = x[::-1].copy()


def zero_with_a_sign(x):
    x[0] = np.where(x[0] == 0, -x[0], np.float32(-0.0))


def through_its_buffer(x):
    memoryview(x).cast("B")[5] ^= 1


def through_its_address(x):
    ctypes.memset(x.ctypes.data + 4, 3, 4)


def sorted_in_place(x):
    x.sort(axis=0)


def put(x):
    np.put(x, [11], 2.5)


def flat(x):
    x.flat[13] = -3


WAYS = (
    assign, one_element, last_bit, through_a_view, other_dtype, swapped_words, signs,
    two_signs, shuffled, two_rows, reversed_rows, zero_with_a_sign, through_its_buffer,
    through_its_address, sorted_in_place, put, flat,
)  # fmt: skip


def check(model, trained_on, x, y, weight=None, **options):
    """Trains, and compares what was trained on with the arrays as they are."""
    options = {"batch_size": 16, "verbose": 0, "sample_weight": weight, **options}
    history = model.fit(x, y, **options)
    for array, seen in zip((x, y, weight), trained_on[-1], strict=True):
        if array is not None:
            np.testing.assert_array_equal(
                np.asarray(array).view(np.uint8), seen.view(np.uint8)
            )
    return history


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_in_place(model, trained_on, on_trial, way):
    x, y = data_of()
    for _ in range(2):
        check(model, trained_on, x, y)
    calls = len(trained_on)
    way(x)
    check(model, trained_on, x, y)
    assert len(trained_on) - calls == (2 if on_trial else 1)
    for _ in range(2):
        check(model, trained_on, x, y)


def test_targets_and_weights(model, trained_on, on_trial):
    (x, y), weight = data_of(), np.arange(1, ROWS + 1).astype(np.float32)
    for _ in range(2):
        check(model, trained_on, x, y, weight)
    y[[4, 9]] = y[[9, 4]]
    check(model, trained_on, x, y, weight)
    weight[[4, 9]] = weight[[9, 4]]
    check(model, trained_on, x, y, weight)
    weight[:] = 1
    y[3] *= -1
    check(model, trained_on, x, y, weight)


def test_of_a_large_model_no_copy_is_made(model, trained_on, monkeypatch):
    monkeypatch.setattr(resident_rows, "_LITTLE", 0)
    monkeypatch.setattr(epochs, "_TRIED_BYTES", 0)
    monkeypatch.delattr(epochs, "copies")
    x, y = data_of()
    for _ in range(2):
        check(model, trained_on, x, y)
    assign(x)
    calls = len(trained_on)
    check(model, trained_on, x, y)
    assert len(trained_on) == calls + 1


def test_the_base_of_a_view(model, trained_on, on_trial):
    base = np.vstack(data_of(ROWS // 2)[:1] * 2 + data_of(ROWS)[:1])
    x, (_, y) = base[ROWS // 2 :][:ROWS], data_of()
    for _ in range(2):
        check(model, trained_on, x, y)
    base[ROWS] = 9
    check(model, trained_on, x, y)


def test_a_read_only_view_of_what_is_written(model, trained_on, on_trial):
    x, y = data_of()
    writable = x[:]
    x.flags.writeable = False
    for _ in range(2):
        check(model, trained_on, x, y)
    writable[1, 1] = 8
    check(model, trained_on, x, y)


def test_a_slice_of_a_larger_array(model, trained_on, on_trial):
    x, y = data_of(2 * ROWS)
    for _ in range(3):
        check(model, trained_on, x[::2], y[::2])  # other views each time
    x[2, 0] = 4
    check(model, trained_on, x[::2], y[::2])
    x[3, 0] = 4  # between the rows
    calls = len(trained_on)
    check(model, trained_on, x[::2], y[::2])
    assert len(trained_on) == calls + 1


def test_a_file_that_is_mapped_twice(model, trained_on, on_trial, tmp_path):
    x, y = data_of()
    x.tofile(tmp_path / "x")
    one, two = (
        np.memmap(tmp_path / "x", np.float32, mode, shape=x.shape)
        for mode in ("r", "r+")
    )
    for _ in range(2):
        check(model, trained_on, one, y)
    two[5, 2] = 6
    check(model, trained_on, one, y)
    with open(tmp_path / "x", "r+b") as file:
        file.seek(64)
        file.write(bytes(8))
    check(model, trained_on, one, y)


def test_anonymous_memory(model, trained_on, on_trial):
    x, y = data_of()
    shared = mmap.mmap(-1, x.nbytes)
    shared[:] = x.tobytes()
    view = np.frombuffer(shared, np.float32).reshape(x.shape)
    for _ in range(2):
        check(model, trained_on, view, y)
    shared[8:12] = b"\1\2\3\4"
    check(model, trained_on, view, y)


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_a_column_of_a_frame(model, trained_on, library):
    frames = pytest.importorskip(library)
    x, y = data_of()
    frame = frames.DataFrame({name: x[:, i] for i, name in enumerate("abcd")})
    for _ in range(2):
        model.fit(frame, y, batch_size=16, verbose=0)
    if library == "pandas":
        frame.loc[3, "b"] = 7
    else:
        frame[3, "b"] = 7
    model.fit(frame, y, batch_size=16, verbose=0)
    seen = trained_on[-1][0]
    np.testing.assert_array_equal(np.asarray(frame), seen)
    assert seen[3, 1] == 7


def test_memory_that_a_tensor_shares(model, trained_on, on_trial):
    torch = pytest.importorskip("torch")
    x, y = data_of()
    tensor = torch.from_numpy(x)
    for _ in range(2):
        check(model, trained_on, x, y)
    tensor[2] = 3
    check(model, trained_on, x, y)


def test_another_size(model, trained_on, on_trial):
    x, y = data_of()
    for _ in range(2):
        check(model, trained_on, x, y)
    x.resize((ROWS - 16, WIDTH), refcheck=False)
    check(model, trained_on, x, y[: ROWS - 16])


def test_wider_numbers_are_converted_anew(model, trained_on, on_trial):
    x, y = (array.astype(np.float64) for array in data_of())
    for _ in range(2):
        model.fit(x, y, batch_size=16, verbose=0)
    x[3, 3] = 1.5
    model.fit(x, y, batch_size=16, verbose=0)
    np.testing.assert_array_equal(trained_on[-1][0], x.astype(np.float32))


def test_an_element_of_a_list(trained_on, on_trial):
    inputs = [exburn.Input((WIDTH,)) for _ in range(2)]
    model = exburn.Model(inputs, exburn.layers.Dense(1)(exburn.ops.add(*inputs)))
    model.compile("sgd", "mse")
    (a, y), b = data_of(), data_of()[0] + 1
    both = [a, b]
    for _ in range(2):
        model.fit(both, y, batch_size=16, verbose=0)
    both[1] = b * 2
    model.fit(both, y, batch_size=16, verbose=0)
    np.testing.assert_array_equal(trained_on[-1][0][1], b * 2)
    both[1][:] = 3
    model.fit(both, y, batch_size=16, verbose=0)
    assert (trained_on[-1][0][1] == 3).all()


@pytest.mark.parametrize(
    "hook", ["on_train_begin", "on_epoch_begin", "on_epoch_end", "on_train_end"]
)
def test_a_callback_that_writes_to_the_data(model, trained_on, on_trial, hook):
    x, y = data_of()

    def write(*_):
        x[:] += 1

    begins = hook in ("on_train_begin", "on_epoch_begin")
    for _ in range(3):
        before = x.copy()
        callback = LambdaCallback(**{hook: write})
        model.fit(x, y, batch_size=16, callbacks=[callback], verbose=0)
        np.testing.assert_array_equal(trained_on[-1][0], before + begins)


def test_within_a_run_the_rows_are_those_that_it_began_with(
    model, trained_on, on_trial
):
    x, y = data_of()

    def write(*_):
        x[0] += 1

    for _ in range(2):
        before = x.copy()
        callback = LambdaCallback(on_epoch_end=write)
        model.fit(x, y, batch_size=16, epochs=2, callbacks=[callback], verbose=0)
        np.testing.assert_array_equal(trained_on[-1][0], before)


@pytest.mark.parametrize("epochs", [1, 2])
def test_validation_data(model, on_trial, epochs):
    (x, y), (v, w) = data_of(), data_of(32)
    kernel = np.asarray(model.weights[0])

    def losses():
        options = {"validation_data": (v, w), "validation_batch_size": 16}
        history = model.fit(x, y, batch_size=16, epochs=epochs, verbose=0, **options)
        loss = np.square(v @ kernel - w).mean()
        np.testing.assert_allclose(history.history["val_loss"], loss, rtol=1e-4)

    for _ in range(3):
        losses()
    v[:] = v[::-1].copy()
    losses()
    w[3] = 30
    losses()


def test_a_split_of_the_rows(model, trained_on, on_trial):
    x, y = data_of()
    kernel = np.asarray(model.weights[0])
    for at in (None, 1, ROWS - 1, 2):
        if at is not None:
            x[at] = 10 + at
        options = {"validation_split": 0.25, "epochs": 2, "batch_size": 12}
        history = model.fit(x, y, verbose=0, **options)
        np.testing.assert_array_equal(trained_on[-1][0], x[:36])
        loss = np.square(x[36:] @ kernel - y[36:]).mean()
        np.testing.assert_allclose(history.history["val_loss"], loss, rtol=1e-4)


@pytest.mark.parametrize(
    "way", [assign, one_element, shuffled], ids=lambda w: w.__name__
)
def test_evaluate_and_predict(model, way):
    x, y = data_of()
    kernel = np.asarray(model.weights[0])
    for turn in range(5):
        if turn in (2, 4):
            way(x)
        loss = np.square(x @ kernel - y).mean()
        assert model.evaluate(x, y, verbose=0) == pytest.approx(float(loss), rel=1e-4)
        outputs = model.predict(x, batch_size=16, verbose=0)
        np.testing.assert_allclose(outputs, x @ kernel, rtol=1e-4, atol=1e-5)


def test_two_models_of_the_same_array(trained_on, on_trial):
    x, y = data_of()
    one, two = linear(), linear()
    for model in (one, two, one, two):
        check(model, trained_on, x, y)
    x[0] = 1
    for model in (one, two, one):
        check(model, trained_on, x, y)


def test_what_was_trained_on_trial_is_undone(on_trial):
    """Two models stay equal, of which one is never given the same memory twice."""
    x, y = data_of()
    models = []
    for _ in range(2):
        exburn.utils.set_random_seed(0)
        layers = exburn.layers
        model = exburn.Sequential(
            [
                exburn.Input((WIDTH,)),
                layers.Dense(8, activation="relu"),
                layers.BatchNormalization(),
                layers.Dropout(0.2),
                layers.Dense(1),
            ]
        )
        model.compile("adam", "mse", metrics=["mae"], seed=0)
        models.append(model)
    for turn in range(7):
        if turn in (2, 3, 5):
            x[turn] *= -1
        logs = [
            model.fit(a, b, batch_size=8, verbose=0).history
            for model, (a, b) in zip(
                models, [(x, y), (x.copy(), y.copy())], strict=True
            )
        ]
        assert logs[0] == logs[1]
    for a, b in zip(models[0].get_weights(), models[1].get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)


def test_values_that_became_bad_leave_the_model_as_it_was(on_trial):
    x, y = data_of()
    model = exburn.Sequential([exburn.Input((WIDTH,)), exburn.layers.Dense(1)])
    model.compile("adam", "mse")
    for _ in range(3):
        model.fit(x, y, batch_size=16, verbose=0)
    before = model.get_weights()
    x[7, 1] = np.nan
    for _ in range(2):
        with pytest.raises(exburn.errors.DataError, match="finite"):
            model.fit(x, y, batch_size=16, verbose=0)
    for a, b in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(a, b)
    x[7, 1] = 0
    model.fit(x, y, batch_size=16, verbose=0)
    assert np.isfinite(model.get_weights()[0]).all()


@on_devices
@pytest.mark.parametrize("mesh", ["data", "fsdp"])
def test_rows_on_several_devices(mesh):
    x, y = data_of()
    models = []
    for _ in range(2):
        exburn.utils.set_random_seed(0)
        model = exburn.Sequential([exburn.Input((WIDTH,)), exburn.layers.Dense(1)])
        model.compile("adam", "mse", seed=0, mesh=mesh)
        models.append(model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resident_rows, "_LITTLE", 0)
        for turn in range(5):
            if turn in (2, 3):
                x[turn] *= -1
            logs = [
                model.fit(*arrays, batch_size=8, verbose=0).history
                for model, arrays in zip(
                    models, [(x, y), (x.copy(), y.copy())], strict=True
                )
            ]
            assert logs[0] == logs[1]
    stores = [model._training_session.trainer.stores for model in models]
    assert len(stores[0]["train"].keys()) == 2
