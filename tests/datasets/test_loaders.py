"""Loaders of other libraries: real where they are installed, else fakes."""

import importlib
import itertools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import exburn
from exburn import layers
from exburn.data import ArrayDataset, StreamDataset, as_dataset
from exburn.errors import ArgumentError, DataError, DTypeError, UnknownNameError

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.parametrize(("cardinality", "batches"), [(-1, sys.maxsize), (-2, None)])
def test_tensorflow_data_of_unknown_length(cardinality, batches):
    assert as_dataset(tensorflow_dataset([], cardinality)).batches == batches


def test_tensorflow_data_without_batches():
    with pytest.raises(DataError, match="same number of rows|scalar"):
        next(as_dataset(tensorflow_dataset([(X1, np.array([1, 2]))], 1)).iterate())


X1 = np.ones((3, 3))


# --- PyTorch ----------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
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
    eye = torch.eye(2)
    for layout in ("coo", "csr", "csc", "bsr", "bsc"):
        block = (1, 1) if layout[0] == "b" else None
        thin = eye.to_sparse(layout=getattr(torch, f"sparse_{layout}"), blocksize=block)
        assert as_dataset(thin).tree[0].tolist() == [[1, 0], [0, 1]]
    assert layers.Dense(3)(eye).shape == (2, 3)
    with pytest.raises(DTypeError, match="received Tensor"):
        layers.Dense(3)(eye.to_sparse())
    rows = [eye, torch.ones(3, 2)]
    for layout in (torch.strided, torch.jagged):
        nested, dense = torch.nested.nested_tensor(rows, layout=layout), layers.Dense(3)
        with pytest.raises(DTypeError, match="received .*Tensor"):
            dense(nested)
        dense.build((None, 2))
        for change in (dense.kernel.assign, lambda v, d=dense: d.set_weights([v] * 2)):
            with pytest.raises(DTypeError, match="received .*Tensor"):
                change(nested)
        dense.set_weights([torch.ones(2, 3), torch.zeros(3)])
        assert dense(eye).tolist() == [[1] * 3] * 2
    with pytest.raises(DTypeError, match="cannot become an array.*\n.*\n.*no data"):
        as_dataset(eye.to("meta"))
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
    ((x, _, _),) = as_dataset(DataLoader()).iterate(6, None)
    assert x.item() == 6


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
    assert as_dataset(source.batch(4).repeat()).batches == sys.maxsize


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


@pytest.mark.parametrize("epochs", [None, 2])
def test_endless_grain_loaders_are_told(grain, epochs):
    sampler = grain.samplers.IndexSampler(6, num_epochs=epochs)
    batch = [grain.transforms.Batch(2)]
    loader = grain.DataLoader(
        data_source=np.arange(6), sampler=sampler, operations=batch
    )
    rows = grain.MapDataset.source(np.arange(6)).repeat(epochs).to_iter_dataset()
    few = grain.experimental.LimitIterDataset(rows.batch(2), 5)
    batches = [as_dataset(v).batches for v in (loader, rows.batch(2), few)]
    assert batches == ([None] * 3 if epochs else [sys.maxsize, sys.maxsize, None])
    if epochs is None:
        model = exburn.Sequential([exburn.Input((1,)), layers.Dense(1)])
        model.compile("sgd", loss="mse")
        for data in (loader, rows.batch(2), itertools.cycle([np.ones((2, 1))])):
            with pytest.raises(ArgumentError, match="must be given: the .* never ends"):
                model.fit(data)


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
