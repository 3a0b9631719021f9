"""The data sets that are downloaded: their files, their arrays, and Keras' own."""

import gzip
import hashlib
import importlib
import io
import json
import tarfile
import time

import numpy as np
import pytest

from exburn.datasets import (
    boston_housing,
    california_housing,
    cifar10,
    cifar100,
    download,
    fashion_mnist,
    files,
    imdb,
    mnist,
    reuters,
    sequences,
)
from exburn.errors import (
    ArgumentError,
    DataError,
    ExBurnError,
    FileFormatError,
    UnknownNameError,
)


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def idx(array, code=8):
    head = bytes([0, 0, code, array.ndim])
    return head + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def test_read_idx(tmp_path):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    (tmp_path / "a.gz").write_bytes(gzip.compress(idx(array)))
    np.testing.assert_array_equal(files.read_idx(tmp_path / "a.gz", op="t"), array)
    floats = np.array([1.5, -2], ">f4")
    (tmp_path / "b").write_bytes(idx(floats, 13))
    found = files.read_idx(tmp_path / "b", op="t")
    assert found.tolist() == [1.5, -2] and found.dtype == np.float32


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"PK",
        idx(np.zeros(3, np.uint8))[:-1],
        idx(np.zeros(3, np.uint8)) + b"0",
        idx(np.zeros(3, np.uint8), code=7),
        b"\0\0\x08\xff" + b"\xff" * 40,
    ],
)
def test_read_idx_refuses_other_files(tmp_path, data):
    for name, content in {"a": data, "a.gz": gzip.compress(data), "b.gz": data}.items():
        if name == "b.gz" and not data:
            continue
        (tmp_path / name).write_bytes(content)
        with pytest.raises(FileFormatError, match="not a whole"):
            files.read_idx(tmp_path / name, op="t")


class Bomb:
    def __reduce__(self):
        return (exec, ("raise SystemExit('pickle ran')",))


def test_npz_never_unpickles_what_was_not_checked(tmp_path):
    np.savez(tmp_path / "a.npz", x=np.array([Bomb()], object), y=np.zeros(1))
    with pytest.raises(FileFormatError, match="not an npz file with x"):
        files.read_npz(tmp_path / "a.npz", ["x"], op="t")
    with pytest.raises(FileFormatError, match="holds pickles"):
        imdb.load_data(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no zip")
    with pytest.raises(FileFormatError):
        files.read_npz(tmp_path / "b.npz", ["x"], op="t")


def npz(**arrays):
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def publish(server, monkeypatch, module, name, data, attribute="DIGEST"):
    """Makes the server the origin of a module's file."""
    server.files[name] = data
    monkeypatch.setattr(module, attribute, sha256(data))
    for owner in (files, fashion_mnist, sequences):
        monkeypatch.setattr(owner, "KERAS_FOLDER", server.url)
    if hasattr(module, "ORIGIN"):
        monkeypatch.setattr(module, "ORIGIN", server.url + name)


def test_mnist(cache, server, monkeypatch):
    rng = np.random.default_rng(0)
    arrays = {
        "x_train": rng.integers(0, 256, (20, 28, 28)).astype(np.uint8),
        "y_train": np.arange(20, dtype=np.uint8) % 10,
        "x_test": rng.integers(0, 256, (5, 28, 28)).astype(np.uint8),
        "y_test": np.arange(5, dtype=np.uint8),
    }
    publish(server, monkeypatch, mnist, "mnist.npz", npz(**arrays))
    (x, y), (xt, yt) = mnist.load_data()
    for name, found in zip(arrays, (x, y, xt, yt), strict=True):
        np.testing.assert_array_equal(found, arrays[name])
    (x1, y1), (_, yt1) = mnist.load_data(seed=4)
    assert y1.tolist() != y.tolist() and sorted(y1) == sorted(y)
    assert sorted(yt1) == sorted(yt)
    for image, label in zip(x1, y1, strict=True):
        assert any((image == x[i]).all() for i in np.flatnonzero(y == label))
    np.testing.assert_array_equal(mnist.load_data(seed=4)[0][0], x1)
    assert mnist.load_data(seed=5)[0][1].tolist() != y1.tolist()
    assert len(server.requests) == 1
    own = cache.parent / "mine.npz"
    own.write_bytes(npz(**{**arrays, "y_test": np.ones(5)}))
    assert mnist.load_data(own)[1][1].tolist() == [1] * 5  # no digest: no pickles
    with pytest.raises(DataError, match="no such file"):
        mnist.load_data(cache.parent / "absent.npz")


def fashion_files():
    rng = np.random.default_rng(1)
    for name in fashion_mnist.DIGESTS:
        rows = 6 if name.startswith("train") else 3
        shape = (rows, 28, 28) if "images" in name else (rows,)
        yield name, rng.integers(0, 10, shape).astype(np.uint8)


def test_fashion_mnist_from_a_folder_the_cache_and_the_net(
    cache, server, monkeypatch, tmp_path
):
    arrays = dict(fashion_files())
    own = tmp_path / "own"
    own.mkdir()
    digests = {}
    for name, array in arrays.items():
        (own / name).write_bytes(gzip.compress(idx(array)))
        server.files[name] = gzip.compress(idx(array), 1)
        digests[name] = sha256(idx(array))
    monkeypatch.setattr(fashion_mnist, "DIGESTS", digests)
    monkeypatch.setattr(fashion_mnist, "KERAS_FOLDER", server.url)
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")
    train, test = fashion_mnist.load_data(own)
    np.testing.assert_array_equal(train[0], arrays["train-images-idx3-ubyte.gz"])
    np.testing.assert_array_equal(test[1], arrays["t10k-labels-idx1-ubyte.gz"])
    assert server.requests == []
    for _ in range(2):  # from the net, then from the cache
        found = fashion_mnist.load_data()
        np.testing.assert_array_equal(found[0][0], train[0])
    assert len(server.requests) == 4
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", own)
    assert fashion_mnist.load_data(seed=1)[0][0].shape == (6, 28, 28)
    (own / "t10k-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(DataError, match="lacks t10k-labels"):
        fashion_mnist.load_data(own)


def test_fashion_mnist_offline(cache, monkeypatch, tmp_path):
    monkeypatch.setattr(fashion_mnist, "DEBIAN_FOLDER", tmp_path / "nowhere")
    monkeypatch.setattr(fashion_mnist, "KERAS_FOLDER", "http://127.0.0.1:1/")
    with pytest.raises(DataError) as caught:
        fashion_mnist.load_data()
    assert "apt-get install dataset-fashion-mnist" in str(caught.value)
    assert str(cache / "fashion-mnist") in caught.value.hint


def test_fashion_mnist_with_files_that_do_not_fit(tmp_path):
    for name, array in fashion_files():
        array = array[:-1] if name.startswith("train-labels") else array
        (tmp_path / name).write_bytes(gzip.compress(idx(array)))
    with pytest.raises(FileFormatError, match="do not fit"):
        fashion_mnist.load_data(tmp_path)


@pytest.mark.skipif(
    not fashion_mnist.DEBIAN_FOLDER.is_dir(),
    reason="Debian's dataset-fashion-mnist is not installed",
)
def test_the_real_fashion_mnist():
    for name, digest in fashion_mnist.DIGESTS.items():
        path = fashion_mnist.DEBIAN_FOLDER / name
        assert download.digest_of(path, contents=True) == digest
    started = time.perf_counter()
    (x, y), (xt, yt) = fashion_mnist.load_data()
    assert time.perf_counter() - started < 10
    assert (x.shape, xt.shape) == ((60000, 28, 28), (10000, 28, 28))
    assert x.dtype == y.dtype == np.uint8
    assert np.bincount(y).tolist() == [6000] * 10
    assert np.bincount(yt).tolist() == [1000] * 10
    assert fashion_mnist.CLASSES[y[0]] == "Ankle boot"


def archive(members):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def records(rng, rows, labels):
    pixels = rng.integers(0, 256, (rows, 3, 32, 32)).astype(np.uint8)
    marks = rng.integers(0, 10, (rows, labels)).astype(np.uint8)
    data = np.concatenate([marks, pixels.reshape(rows, -1)], axis=1).tobytes()
    return data, pixels.transpose(0, 2, 3, 1), marks


def test_cifar10(cache, server, monkeypatch):
    rng = np.random.default_rng(2)
    made = {f"data_batch_{i}.bin": records(rng, 2, 1) for i in (2, 1, 3, 4, 5)}
    made["test_batch.bin"] = records(rng, 3, 1)
    members = {f"cifar-10-batches-bin/{n}": m[0] for n, m in made.items()}
    name = "cifar-10-binary.tar.gz"
    publish(server, monkeypatch, cifar10, name, archive(members))
    (x, y), (xt, yt) = cifar10.load_data()
    assert (x.shape, y.shape, xt.shape) == ((10, 32, 32, 3), (10, 1), (3, 32, 32, 3))
    np.testing.assert_array_equal(x[2:4], made["data_batch_2.bin"][1])
    np.testing.assert_array_equal(y[:2], made["data_batch_1.bin"][2])
    np.testing.assert_array_equal(xt, made["test_batch.bin"][1])
    np.testing.assert_array_equal(yt, made["test_batch.bin"][2])
    shuffled = cifar10.load_data(seed=0)[0][0]
    assert sorted(a.sum() for a in shuffled) == sorted(a.sum() for a in x)
    assert len(cifar10.CLASSES) == 10
    bad = cache.parent / "bad.tar.gz"
    for data in (archive({"data_batch_1.bin": b"12"}), archive({}), b"x", archive(
        members)[:-500]):  # fmt: skip
        bad.write_bytes(data)
        with pytest.raises(FileFormatError):
            cifar10.load_data(bad)


def test_cifar100(cache, server, monkeypatch):
    rng = np.random.default_rng(3)
    made = {"train.bin": records(rng, 4, 2), "test.bin": records(rng, 2, 2)}
    members = {f"cifar-100-binary/{n}": m[0] for n, m in made.items()}
    name = "cifar-100-binary.tar.gz"
    publish(server, monkeypatch, cifar100, name, archive(members))
    (x, fine), (_, fine_test) = cifar100.load_data()
    (_, coarse), _ = cifar100.load_data("coarse")
    np.testing.assert_array_equal(x, made["train.bin"][1])
    np.testing.assert_array_equal(coarse, made["train.bin"][2][:, :1])
    np.testing.assert_array_equal(fine, made["train.bin"][2][:, 1:])
    np.testing.assert_array_equal(fine_test, made["test.bin"][2][:, 1:])
    with pytest.raises(UnknownNameError, match="Did you mean 'fine'"):
        cifar100.load_data("find")


def keras_loader(name, data, monkeypatch, tmp_path):
    """Keras' own loader reading the same bytes."""
    module = pytest.importorskip(f"keras.src.datasets.{name}")
    path = tmp_path / f"{name}.npz"
    path.write_bytes(data)
    monkeypatch.setattr(module, "get_file", lambda *args, **kwargs: str(path))
    return module.load_data


def same(found, expected):
    for ours, theirs in zip(found, expected, strict=True):
        for a, b in zip(ours, theirs, strict=True):
            assert a.dtype == b.dtype and a.tolist() == b.tolist()


@pytest.mark.parametrize("module", [boston_housing, california_housing])
def test_housing(module, cache, server, monkeypatch, tmp_path):
    name = module.__name__.rsplit(".", 1)[-1]
    rng = np.random.default_rng(5)
    data = npz(x=rng.normal(size=(700, 8)), y=rng.normal(size=700))
    publish(server, monkeypatch, module, f"{name}.npz", data)
    theirs = keras_loader(name, data, monkeypatch, tmp_path)
    same(module.load_data(), theirs())
    same(module.load_data(test_split=0.3, seed=7), theirs(test_split=0.3, seed=7))
    if module is california_housing:
        same(module.load_data("small"), theirs("small"))
        with pytest.raises(UnknownNameError, match="large, small"):
            module.load_data("tiny")
    with pytest.raises(ArgumentError, match="test_split"):
        module.load_data(test_split=1.0)


def texts(rng, rows):
    x = np.empty(rows, object)
    for i in range(rows):
        x[i] = rng.integers(1, 50, rng.integers(1, 12)).tolist()
    return x


OPTIONS = [
    {"num_words": 30},
    {"num_words": 20, "skip_top": 5, "maxlen": 8, "seed": 3},
    {"num_words": 25, "oov_char": None, "start_char": None},
    {"num_words": 25, "start_char": None, "index_from": 0},
]


@pytest.mark.parametrize("module", [imdb, reuters])
def test_texts_are_as_in_keras(module, cache, server, monkeypatch, tmp_path):
    name = module.__name__.rsplit(".", 1)[-1]
    rng = np.random.default_rng(6)
    arrays = {"x": texts(rng, 30), "y": rng.integers(0, 2, 30)}
    if module is imdb:
        arrays = {
            "x_train": texts(rng, 30),
            "y_train": rng.integers(0, 2, 30),
            "x_test": texts(rng, 20),
            "y_test": rng.integers(0, 2, 20),
        }
    data = npz(**arrays)
    publish(server, monkeypatch, module, f"{name}.npz", data)
    theirs = keras_loader(name, data, monkeypatch, tmp_path)
    for options in OPTIONS:
        same(module.load_data(**options), theirs(**options))
    (x, _), (xt, _) = module.load_data()  # Keras drops the most frequent-last word here
    words = {w for text in [*x, *xt] for w in text}
    assert 2 not in words and max(words) == 52
    with pytest.raises(DataError, match="no text is shorter than maxlen=1"):
        module.load_data(maxlen=1)
    with pytest.raises(ArgumentError, match="num_words must be at least 1"):
        module.load_data(num_words=0)


@pytest.mark.parametrize("module", [imdb, reuters])
def test_word_index(module, cache, server, monkeypatch):
    name = module.__name__.rsplit(".", 1)[-1] + "_word_index.json"
    data = json.dumps({"the": 1, "über": 2}).encode()
    publish(server, monkeypatch, module, name, data, "INDEX_DIGEST")
    assert module.get_word_index() == {"the": 1, "über": 2}
    own = cache.parent / "own.json"
    own.write_text("{")
    with pytest.raises(FileFormatError, match="not JSON"):
        module.get_word_index(own)


def test_reuters_label_names():
    keras = pytest.importorskip("keras")
    assert reuters.get_label_names() == keras.datasets.reuters.get_label_names()


NAMES = "mnist cifar10 cifar100 imdb reuters boston_housing california_housing".split()


@pytest.mark.parametrize("name", NAMES)
def test_every_loader_says_where_its_file_goes(name, cache, monkeypatch):
    module = importlib.import_module(f"exburn.datasets.{name}")
    monkeypatch.setattr(files, "KERAS_FOLDER", "http://127.0.0.1:1/")
    monkeypatch.setattr(sequences, "KERAS_FOLDER", "http://127.0.0.1:1/")
    if hasattr(module, "ORIGIN"):
        monkeypatch.setattr(module, "ORIGIN", "http://127.0.0.1:1/x")
    with pytest.raises(ExBurnError) as caught:
        module.load_data()
    text = str(caught.value)
    assert text.startswith(f"{name}.load_data: ")
    assert f"Put the file at {cache}/{name.replace('cifar', 'cifar-')}" in text
