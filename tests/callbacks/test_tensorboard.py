"""TensorBoard's files, read back with the protocol buffers that it reads."""

import struct
import sys

import numpy as np
import pytest

import exburn
from exburn import callbacks, layers
from exburn.errors import CallbackError, MissingDependencyError

pytest.importorskip("tensorboardX")

X = np.random.default_rng(0).normal(size=(12, 4)).astype(np.float32)
Y = np.arange(12) % 3


def events(folder):
    from tensorboardX.proto.event_pb2 import Event

    for path in sorted(folder.glob("events.*")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            (size,) = struct.unpack_from("<Q", data, at)
            yield Event.FromString(data[at + 12 : at + 12 + size])
            at += 12 + size + 4


def values(folder):
    """``{(tag, step): scalar, or the kind of the value}``."""
    found = {}
    for event in events(folder):
        for value in event.summary.value:
            kind = value.WhichOneof("value")
            scalar = value.simple_value if kind == "simple_value" else kind
            found[value.tag, event.step] = scalar
    return found


@pytest.fixture(scope="module")
def model():
    x = exburn.Input((4,), name="x")
    inner = layers.Dense(5, "relu", name="inner")(x)
    made = exburn.Model(x, layers.Dense(3, name="outer")(inner) + 1.0)
    made.compile("sgd", "cross_entropy", metrics=["accuracy"], learning_rate=0.01)
    return made


def fit(model, board, **options):
    options = {"batch_size": 4, "epochs": 2, "verbose": 0} | options
    return model.fit(X, Y, callbacks=[board], **options)


def test_values_of_epochs(model, tmp_path):
    board = callbacks.TensorBoard(tmp_path, write_steps_per_second=True)
    assert board.light
    history = fit(model, board, validation_data=(X, Y)).history
    train, validation = (values(tmp_path / n) for n in ("train", "validation"))
    for epoch in range(2):
        for name in ("loss", "accuracy"):
            tag = f"epoch_{name}", epoch
            assert train[tag] == pytest.approx(history[name][epoch])
            assert validation[tag] == pytest.approx(history[f"val_{name}"][epoch])
        assert train["epoch_learning_rate", epoch] == pytest.approx(0.01)
        assert train["epoch_steps_per_second", epoch] > 0
    assert not any(tag.startswith("batch") for tag, _ in train)
    loss = model.evaluate(X, Y, verbose=0, callbacks=[board])[0]
    steps = model.optimizer.iterations
    validation = values(tmp_path / "validation")
    assert validation["evaluation_loss_vs_iterations", steps] == pytest.approx(loss)


def test_the_graph_of_a_functional_model(model, tmp_path):
    from tensorboardX.proto.graph_pb2 import GraphDef

    fit(model, callbacks.TensorBoard(tmp_path), epochs=1)
    (graph,) = (e.graph_def for e in events(tmp_path / "train") if e.graph_def)
    nodes = {n.name: (n.op, list(n.input)) for n in GraphDef.FromString(graph).node}
    assert nodes == {
        "x": ("Input", []),
        "0_inner": ("Dense", ["x"]),
        "1_outer": ("Dense", ["0_inner"]),
        "2_add": ("add", ["1_outer"]),
    }


@pytest.mark.parametrize(
    ("freq", "steps"), [("batch", [1, 2, 3, 4, 5, 6]), (2, [2, 5])]
)
def test_values_of_steps(model, tmp_path, freq, steps):
    fit(model, callbacks.TensorBoard(tmp_path, update_freq=freq))
    found = values(tmp_path / "train")
    assert [step for tag, step in found if tag == "batch_loss"] == steps


class Own(exburn.Model):
    def __init__(self):
        super().__init__()
        self.table = layers.Embedding(3, 2, name="table")
        self.last = layers.Dense(3)

    def call(self, x):
        return self.last(self.table(x)[:, 0])


def test_weights_tables_and_the_summary_of_another_model(tmp_path):
    model, x = Own(), Y[:, None]
    model.compile("sgd", "cross_entropy")
    (tmp_path / "labels.tsv").write_text("a\nb\nc\n")
    board = callbacks.TensorBoard(
        tmp_path,
        histogram_freq=2,
        write_images=True,
        embeddings_freq=1,
        embeddings_metadata={"table": str(tmp_path / "labels.tsv")},
    )
    assert not board.light
    model.fit(x, Y, epochs=3, verbose=0, callbacks=[board])
    found = values(tmp_path / "train")
    for path in ("table/embeddings", "last/kernel", "last/bias"):
        for kind, value in (("histogram", "histo"), ("image", "image")):
            tag = f"{path}/{kind}"
            assert {s: v for (t, s), v in found.items() if t == tag} == {
                0: value,
                2: value,
            }
    assert any("model" in tag for tag, _ in found)
    projector = (tmp_path / "train" / "projector_config.pbtxt").read_text()
    assert projector.count("tensor_path") == 3 and "metadata" in projector
    (tmp_path / "labels.tsv").write_text("a\n")
    with pytest.raises(CallbackError, match="a line for each of the 3 rows"):
        model.fit(x, Y, verbose=0, callbacks=[board])


def test_a_profile_of_steps(model, tmp_path):
    fit(model, callbacks.TensorBoard(tmp_path, profile_batch=(2, 3)))
    assert list(tmp_path.glob("plugins/profile/*/*.xplane.pb"))


def test_a_trace_ends_whatever_happens(model, tmp_path):
    def fail(logs):
        raise ZeroDivisionError

    board = callbacks.TensorBoard(tmp_path / "a", profile_batch=(1, 100))
    with pytest.raises(ZeroDivisionError):
        model.fit(X, Y, verbose=0, callbacks=[board, fail])
    fit(model, callbacks.TensorBoard(tmp_path / "b", profile_batch=1))
    for name in "ab":
        assert list((tmp_path / name).glob("plugins/profile/*/*.xplane.pb"))


def test_bad_options_and_a_missing_package(tmp_path, monkeypatch):
    for options in (
        {"histogram_freq": -1},
        {"update_freq": 0},
        {"update_freq": "step"},
        {"profile_batch": (3, 2)},
        {"embeddings_freq": 1.5},
    ):
        with pytest.raises(CallbackError):
            callbacks.TensorBoard(tmp_path, **options)
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(MissingDependencyError, match=r"exburn\[tensorboard\]"):
        callbacks.TensorBoard(tmp_path)
