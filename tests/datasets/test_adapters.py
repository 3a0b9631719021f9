"""The adapters, on the real libraries where they are installed, else on fakes."""

import importlib
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from exburn.dataset import (
    ArrayDataset,
    PyDataset,
    StreamDataset,
    as_dataset,
    check_finite,
)
from exburn.errors import ArgumentError, DataError, DTypeError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]


def values(stream, epoch=0, seed=None):
    return [int(x.flat[0]) for x, _, _ in stream.iterate(epoch, seed)]


# --- iterables --------------------------------------------------------------------


class Reader:
    """A loader of somebody's own."""

    batch_size = 2

    def __init__(self):
        self.epoch = None

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __len__(self):
        return 3

    def __iter__(self):
        return iter([np.full((2, 1), 10 * self.epoch + i) for i in range(3)])


def test_any_reiterable():
    stream = as_dataset(Reader())
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 2, True)
    assert values(stream, 0) == [0, 1, 2]
    assert values(stream, 4) == [40, 41, 42]
    assert stream.name == "Reader"


def test_iterators_give_their_batches_once():
    for source in (iter([np.ones((2, 1))]), map(np.asarray, [[[1.0]]])):
        stream = as_dataset(source)
        assert not stream.reiterable and stream.batches is None
        assert values(stream) == [1]
        with pytest.raises(DataError, match="exhausted"):
            values(stream, 1)


@pytest.mark.parametrize("thing", [{1, 2}, b"bytes", range(3), 5, object()])
def test_containers_and_text_are_not_loaders(thing):
    with pytest.raises(DTypeError, match="must be arrays, a data frame or a loader"):
        as_dataset(thing)


# --- PyDataset --------------------------------------------------------------------


class Squares(PyDataset):
    def __init__(self, count=5, **options):
        super().__init__(**options)
        self.count, self.events = count, []

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        time.sleep(0.002 * (self.count - index))  # later ones are ready first
        self.events.append((index, threading.current_thread().name))
        return np.full((2, 1), index), np.full(2, index**2)

    def on_epoch_begin(self):
        self.events.append("begin")

    def on_epoch_end(self):
        self.events.append("end")


@pytest.mark.parametrize("workers", [0, 1, 3])
def test_py_dataset_in_order(workers):
    data = Squares(workers=workers, max_queue_size=2)
    stream = as_dataset(data)
    assert stream.batches == data.num_batches == 5
    assert values(stream) == values(stream, 1) == [0, 1, 2, 3, 4]
    assert [e for e in data.events if isinstance(e, str)] == ["begin", "end"] * 2
    threads = {e[1] for e in data.events if isinstance(e, tuple)}
    assert all(t.startswith("exburn-batch") for t in threads) == (workers > 1)


def test_py_dataset_shuffles_by_seed_and_epoch():
    stream = as_dataset(Squares(20))
    first = values(stream, 0, seed=3)
    assert sorted(first) == list(range(20)) != first
    assert values(stream, 0, seed=3) == first
    assert values(stream, 1, seed=3) != first
    assert values(stream, 0, seed=4) != first
    assert stream.peek(0, 3)[0].flat[0] == first[0]


def test_the_queue_is_bounded():
    data = Squares(20, workers=2, max_queue_size=3)
    batches = as_dataset(data).iterate()
    next(batches)
    time.sleep(0.2)
    made = len([e for e in data.events if isinstance(e, tuple)])
    batches.close()
    assert made <= 4


def test_on_epoch_end_needs_all_batches_but_no_further_read():
    data = Squares(3)
    batches = as_dataset(data).iterate()
    for _ in range(3):
        next(batches)
    batches.close()
    assert data.events[-1] == "end"
    batches = as_dataset(data).iterate()
    next(batches)
    batches.close()
    assert data.events[-1] != "end"


def test_an_endless_py_dataset():
    class Endless(PyDataset):
        def __getitem__(self, index):
            return np.full((1, 1), index)

    data = Endless()
    assert data.num_batches is None
    stream = as_dataset(data)
    assert stream.batches is None
    batches = stream.iterate(0, 7)
    assert [int(next(batches)[0][0, 0]) for _ in range(4)] == [0, 1, 2, 3]


def test_a_subclass_may_forget_to_call_its_base():
    class Forgetful(PyDataset):
        def __init__(self):
            self.rows = [np.zeros((1, 1))]

        def __len__(self):
            return 1

        def __getitem__(self, index):
            return self.rows[index]

    assert values(as_dataset(Forgetful())) == [0]


@pytest.mark.parametrize("options", [{"workers": -1}, {"max_queue_size": 0}])
def test_py_dataset_options(options):
    with pytest.raises(ArgumentError, match="max_queue_size at least 1"):
        PyDataset(**options)


@pytest.mark.parametrize("workers", [1, 3])
def test_an_error_in_a_worker_is_the_users_own(workers):
    class Failing(Squares):
        def __getitem__(self, index):
            return {}[index]

    with pytest.raises(KeyError) as caught:
        values(as_dataset(Failing(workers=workers)))
    assert caught.value.__notes__ == ["while reading batch 0 of epoch 0 (Failing)"]


def test_py_dataset_is_abstract():
    with pytest.raises(NotImplementedError, match="PyDataset.__getitem__"):
        PyDataset()[0]


def test_processes():
    """One spawned pool lives over the epochs; hooks that change the data are seen."""
    code = """
import os
from batches_in_workers import Growing, Numbers
from exburn.dataset import as_dataset
from exburn.errors import DataError
import exburn.datasets
if __name__ == "__main__":
    stream = as_dataset(Numbers(workers=1, use_multiprocessing=True))
    pids = set()
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert [int(x[0, 0]) for x, _, _ in batches] == [0, 1, 2, 3, 4, 5]
        pids |= {int(y[0]) for _, y, _ in batches}
    assert len(pids) == 1 and os.getpid() not in pids, pids
    try:
        list(as_dataset(Numbers(100, use_multiprocessing=True)).iterate())
    except DataError as error:
        assert "a worker process died" in str(error), error
    else:
        raise AssertionError("the death of a worker went unnoticed")
    stream = as_dataset(Growing(2, use_multiprocessing=True))
    for epoch in range(2):
        firsts = [int(x[0, 0]) for x, _, _ in stream.iterate(epoch)]
        assert firsts == [10 * epoch, 10 * epoch + 1], firsts
    print("fine")
"""
    script = "import sys; sys.argv = ['x']\n" + code
    path = os.pathsep.join([str(ROOT), str(Path(__file__).parent)])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.strip() == "fine", done.stderr


def test_a_data_set_that_cannot_be_pickled():
    data = Squares(use_multiprocessing=True)
    data.lock = threading.Lock()
    with pytest.raises(DataError, match="pickle can copy"):
        values(as_dataset(data))


def test_keras_own_py_dataset():
    keras = pytest.importorskip("keras")

    class Theirs(keras.utils.PyDataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return np.full((1, 1), index)

        def on_epoch_begin(self):
            self.begun = True

        def on_epoch_end(self):
            self.ended = True

    data = Theirs(workers=2)
    stream = as_dataset(data)
    assert stream.batches == 2 and values(stream) == [0, 1]
    assert data.begun and data.ended


# --- tables -----------------------------------------------------------------------


@pytest.fixture(params=["pandas", "polars"])
def table(request):
    return pytest.importorskip(request.param)


def test_frames_are_one_array(table):
    frame = table.DataFrame({"a": [1.5, 2.5], "b": [3, 4], "c": [True, False]})
    data = as_dataset(frame, table.Series([0, 1]))
    assert data.tree[0].dtype == np.float32
    np.testing.assert_array_equal(data.tree[0], [[1.5, 3, 1], [2.5, 4, 0]])
    assert data.tree[1].dtype == np.int32 and data.tree[1].shape == (2, 1)


def test_frames_keep_integers_and_booleans(table):
    whole = table.DataFrame({"a": [1, 2], "b": [3, 4]})
    assert as_dataset(whole).tree[0].dtype == np.int32
    truth = table.DataFrame({"a": [True, False]})
    assert as_dataset(truth).tree[0].dtype == np.bool_
    with pytest.raises(DTypeError, match="int32 cannot"):
        as_dataset(table.DataFrame({"a": [2**40]}))


def test_frames_inside_dicts_and_beside_arrays(table):
    data = as_dataset({"t": table.DataFrame({"a": [1.0, 2.0]})}, np.zeros(2))
    assert data.tree[0]["t"].shape == (2, 1)
    with pytest.raises(DataError, match="x and y must have the same number of rows"):
        as_dataset(table.DataFrame({"a": [1.0, 2.0]}), table.Series([1, 2, 3]))


def test_frames_with_text_or_dates(table):
    import datetime

    for column in (["x", "y"], [datetime.datetime(2020, 1, 1)] * 2):
        frame = table.DataFrame({"fine": [1, 2], "bad": column})
        with pytest.raises(DTypeError, match=r"x\['bad'\] must be numeric") as caught:
            as_dataset(frame)
        assert caught.value.hint


def test_frames_with_missing_values(table):
    if table.__name__ == "pandas":
        frame = table.DataFrame({"a": table.array([1, None, 3], dtype="Int64")})
        fine = table.DataFrame({"a": table.array([1, 3], dtype="Int64")})
    else:
        frame = table.DataFrame({"a": [1, None, 3]})
        fine = table.DataFrame({"a": [1, 3]})
    with pytest.raises(DataError, match=r"x\['a'\] has missing values") as caught:
        as_dataset(frame)
    assert "first at row: 1" in str(caught.value)
    assert as_dataset(fine).tree[0].tolist() == [[1], [3]]


def test_frames_without_columns_or_rows(table):
    with pytest.raises(DataError, match="no columns"):
        as_dataset(table.DataFrame({}))
    frame = table.DataFrame({"a": [1.0]})
    with pytest.raises(DataError, match="is empty"):
        as_dataset(frame.head(0))


def test_nan_in_a_frame_is_found(table):
    data = as_dataset(table.DataFrame({"a": [1.0, float("nan")]}))
    with pytest.raises(DataError, match="nan at row 1"):
        check_finite(data.tree)


def test_pandas_categories():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"c": pandas.Categorical(["a", "b"])})
    with pytest.raises(DTypeError, match="get_dummies"):
        as_dataset(frame)
    assert as_dataset(pandas.get_dummies(frame)).tree[0].shape == (2, 2)


def test_pandas_rows_go_by_position():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2.0], "b": [0, 1]}, index=[7, 3])
    data = as_dataset(frame[["a"]], frame["b"])
    assert data.take([1])[0].tolist() == [[2.0]]


def test_polars_lazy_categories_and_arrays():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"a": [1.0]})
    with pytest.raises(DTypeError, match="collect"):
        as_dataset(frame.lazy())
    with pytest.raises(DTypeError, match="to_physical"):
        as_dataset(polars.Series(["a", "b"], dtype=polars.Categorical))
    rows = polars.Series(
        [[1.0, 2.0], [3.0, 4.0]], dtype=polars.Array(polars.Float32, 2)
    )
    assert as_dataset(rows).tree[0].tolist() == [[1, 2], [3, 4]]


def test_scipy_sparse(monkeypatch):
    sparse = pytest.importorskip("scipy.sparse")
    from exburn.datasets.adapters import scipy_sparse

    for make in (sparse.csr_matrix, sparse.coo_array):
        x = as_dataset({"s": make(np.eye(3))}).tree[0]["s"]
        assert type(x) is np.ndarray and x.dtype == np.float32
        np.testing.assert_array_equal(x, np.eye(3))
    monkeypatch.setattr(scipy_sparse, "LIMIT", 71)
    with pytest.raises(DataError, match="GiB when dense"):
        as_dataset(sparse.csr_matrix(np.eye(3)))


# --- tf.data ----------------------------------------------------------------------


def tensorflow_dataset(elements, cardinality):
    """What the adapter sees of a tf.data.Dataset."""

    class _TensorSliceDataset:
        def __iter__(self):
            raise AssertionError("gives tensors, and needs TensorFlow's runtime")

        def as_numpy_iterator(self):
            return iter(elements)

        def cardinality(self):
            return np.int64(cardinality)

    _TensorSliceDataset.__module__ = "tensorflow.python.data.ops.from_tensor_slices_op"
    return _TensorSliceDataset()


def test_tensorflow_data():
    batch = (np.ones((2, 3)), np.zeros(2, np.int64))
    stream = as_dataset(tensorflow_dataset([batch, batch], 2))
    assert stream.batches == 2 and stream.reiterable
    for _ in range(2):
        assert [x.shape for x, _, _ in stream.iterate()] == [(2, 3), (2, 3)]


@pytest.mark.parametrize("cardinality", [-1, -2])
def test_tensorflow_data_of_unknown_length(cardinality):
    assert as_dataset(tensorflow_dataset([], cardinality)).batches is None


def test_tensorflow_data_without_batches():
    with pytest.raises(DataError, match="same number of rows|scalar"):
        next(as_dataset(tensorflow_dataset([(X1, np.array([1, 2]))], 1)).iterate())


X1 = np.ones((3, 3))


# --- PyTorch ----------------------------------------------------------------------


def test_torch_loader_and_tensors():
    torch = pytest.importorskip("torch")
    data = torch.utils.data
    x, y = torch.arange(10.0).reshape(5, 2), torch.arange(5)
    loader = data.DataLoader(data.TensorDataset(x, y), batch_size=2)
    stream = as_dataset(loader)
    assert (stream.batches, stream.batch_size, stream.reiterable) == (3, 2, True)
    for _ in range(2):
        rows = np.concatenate([b[1] for b in stream.iterate()])
        assert rows.tolist() == [0, 1, 2, 3, 4] and rows.dtype == np.int32
    with pytest.raises(DTypeError, match="DataLoader"):
        as_dataset(data.TensorDataset(x, y))

    class Lines(data.IterableDataset):
        def __iter__(self):
            return iter([torch.ones(2), torch.zeros(2)])

    assert as_dataset(data.DataLoader(Lines(), batch_size=2)).batches is None

    held = as_dataset(x.requires_grad_(), y)
    assert held.tree[0].dtype == np.float32 and held.size == 5
    half = as_dataset(torch.ones(3, dtype=torch.bfloat16)).tree[0]
    assert half.tolist() == [1, 1, 1]
    assert as_dataset(torch.eye(2).to_sparse()).tree[0].tolist() == [[1, 0], [0, 1]]
    with pytest.raises(ArgumentError, match="y must not be given"):
        as_dataset(loader, y)


def test_torch_samplers_are_told_the_epoch():
    """A fake with what the adapter uses; the test above runs the real library."""

    class Sampler:
        def set_epoch(self, epoch):
            self.epoch = epoch

    class DataLoader:
        batch_size, batch_sampler = 1, None

        def __init__(self):
            self.sampler = Sampler()

        def __len__(self):
            return 1

        def __iter__(self):
            return iter([np.full((1, 1), self.sampler.epoch)])

    DataLoader.__module__ = "torch.utils.data.dataloader"
    assert values(as_dataset(DataLoader()), epoch=6) == [6]


# --- grain ------------------------------------------------------------------------


@pytest.fixture
def grain():
    return pytest.importorskip("grain")


def test_grain_map_dataset(grain):
    source = grain.MapDataset.source(np.arange(10)).map(lambda i: (np.ones(2) * i, i))
    stream = as_dataset(source.batch(4))
    assert stream.batches == 3
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert np.concatenate([y for _, y, _ in batches]).tolist() == list(range(10))
        assert batches[0][0].shape == (4, 2)
    assert as_dataset(source.batch(4).repeat()).batches is None


def test_grain_iter_dataset(grain):
    source = grain.MapDataset.source(np.arange(6)).map(lambda i: {"v": np.ones(2) * i})
    stream = as_dataset(source.to_iter_dataset().batch(3))
    assert stream.batches is None
    assert [x["v"].shape for x, _, _ in stream.iterate()] == [(3, 2), (3, 2)]


def test_grain_data_loader(grain):
    loader = grain.DataLoader(
        data_source=np.arange(6),
        sampler=grain.samplers.IndexSampler(6, num_epochs=1, shuffle=True, seed=1),
        operations=[grain.transforms.Batch(2)],
    )
    stream = as_dataset(loader)
    for epoch in range(2):
        rows = np.concatenate([x for x, _, _ in stream.iterate(epoch)])
        assert sorted(rows.tolist()) == list(range(6))


# --- Hugging Face -----------------------------------------------------------------


@pytest.fixture(scope="module")
def hugging_face():
    """Their package, although this folder's root may hold one of the same name."""
    kept = sys.path[:]
    sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
    try:
        return pytest.importorskip("datasets")
    finally:
        sys.path[:] = kept


@pytest.fixture
def reviews(hugging_face):
    return hugging_face.Dataset.from_dict(
        {
            "ids": [[1, 2], [3, 4], [5, 6]],
            "score": [0.5, 1.5, 2.5],
            "label": [0, 1, 1],
            "text": ["a", "b", "c"],
        }
    )


def test_hugging_face_by_column(reviews):
    from exburn.datasets import from_huggingface

    data = from_huggingface(reviews, "ids", "label", sample_weight="score")
    assert isinstance(data, ArrayDataset)
    assert data.tree[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.tree[1].tolist() == [0, 1, 1] and data.tree[2].dtype == np.float32
    several = from_huggingface(reviews, ["ids", "score"], "label")
    assert sorted(several.tree[0]) == ["ids", "score"]
    assert from_huggingface(reviews, "ids").tree[1] is None


def test_hugging_face_with_a_format(reviews):
    chosen = reviews.select_columns(["ids", "score"])
    x = as_dataset(chosen.with_format("numpy")).tree[0]
    assert x["ids"].dtype == np.int32 and x["score"].dtype == np.float32
    with pytest.raises(DTypeError, match=r"with_format\('numpy'\)"):
        as_dataset(chosen)
    with pytest.raises(DTypeError, match="strings"):
        as_dataset(reviews.with_format("numpy"))


def test_a_hugging_face_column_is_an_array(reviews):
    data = as_dataset(reviews["ids"], reviews["label"], reviews["score"])
    assert data.tree[0].tolist() == [[1, 2], [3, 4], [5, 6]]
    assert data.tree[1].tolist() == [0, 1, 1] and data.tree[2].dtype == np.float32
    formatted = reviews.select_columns(["ids"]).with_format("numpy")
    assert as_dataset({"a": formatted["ids"]}).tree[0]["a"].shape == (3, 2)
    with pytest.raises(DTypeError, match="strings"):
        as_dataset(reviews["text"])
    ragged = type(reviews).from_dict({"x": [[1], [2, 3]]})
    with pytest.raises(DTypeError, match="ragged"):
        as_dataset(ragged["x"])


def test_hugging_face_streams(reviews):
    from exburn.datasets import from_huggingface

    stream = from_huggingface(
        reviews.to_iterable_dataset(), "ids", "label", batch_size=2
    )
    assert isinstance(stream, StreamDataset) and stream.batch_size == 2
    for epoch in range(2):
        batches = list(stream.iterate(epoch))
        assert [x.shape for x, _, _ in batches] == [(2, 2), (1, 2)]
    chosen = reviews.select_columns(["ids"]).to_iterable_dataset()
    ((x, y, _),) = as_dataset(chosen.with_format("numpy")).iterate()
    assert x["ids"].shape == (3, 2) and y is None


def test_hugging_face_errors(hugging_face, reviews):
    from exburn.datasets import from_huggingface

    with pytest.raises(UnknownNameError, match="Did you mean 'label'"):
        from_huggingface(reviews, "ids", "lable")
    with pytest.raises(DTypeError, match=r"ds\['train'\]"):
        from_huggingface(hugging_face.DatasetDict(train=reviews), "ids")
    with pytest.raises(ArgumentError, match="batch_size"):
        from_huggingface(reviews, "ids", batch_size=0)
    with pytest.raises(DTypeError, match="strings"):
        from_huggingface(reviews, "text")


# --- the package ------------------------------------------------------------------


def test_the_bare_name_is_refused():
    code = "import datasets"
    # Under PYTHONSAFEPATH, which CI sets, the folder would not be found at all.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONSAFEPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    last = done.stderr.strip().splitlines()
    assert done.returncode == 1
    assert any("MissingDependencyError: import datasets" in line for line in last)
    assert "exburn.datasets" in done.stderr and "Hugging Face" in done.stderr


def test_nothing_optional_is_imported():
    code = (
        "import sys, exburn.datasets as d; assert 'moons' in dir(d)\n"
        "found = {'pandas', 'polars', 'torch', 'grain', 'scipy', 'sklearn', 'absl',"
        " 'tensorflow', 'datasets', 'mnist1d', 'tarfile'} & set(sys.modules)\n"
        "before = set(sys.modules)\n"
        "d.moons.load_data(); d.moons\n"
        "print(sorted(found - allowed))"
    )
    allowed = "import sys, jax, flax.nnx, optax, rich; allowed = set(sys.modules)\n"
    done = subprocess.run(
        [sys.executable, "-c", allowed + code],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


def test_an_unknown_data_set():
    import exburn.datasets

    with pytest.raises(AttributeError, match="no attribute 'mnits'"):
        exburn.datasets.mnits  # noqa: B018
    for name in exburn.datasets.__all__:
        assert getattr(exburn.datasets, name) is not None
    assert importlib.import_module("exburn.datasets.mnist").load_data
