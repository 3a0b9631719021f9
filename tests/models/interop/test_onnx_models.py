"""Predictions of ONNX files, sessions and protos."""

import gc
import math
import resource
import signal
import threading
from pathlib import Path

import numpy as np
import pytest
from tests import limits

import exburn
from exburn.errors import (
    ArgumentError,
    DataError,
    DeadlineExceededError,
    FileFormatError,
    OutOfMemoryError,
    ShapeError,
)
from exburn.models.interop import onnx_models

X = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)


def close(a, b, tolerance=2e-5):
    assert type(a) is np.ndarray
    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.fixture(scope="module")
def onnx_file(tmp_path_factory):
    """Function of rows: the file of a linear model with that batch axis."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kinds = onnx.helper, onnx.TensorProto
    weights = np.arange(8, dtype=np.float32).reshape(4, 2)

    def write(rows, outputs=("y",)):
        nodes = [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
            helper.make_node("Neg", ["h"], ["z"]),
        ]
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            nodes,
            "linear",
            [info("x", kinds.FLOAT, [rows, 4])],
            [info(name, kinds.FLOAT, [rows, 2]) for name in outputs],
            [helper.make_tensor("w", kinds.FLOAT, [4, 2], weights.reshape(-1))],
        )
        proto = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9
        )
        path = tmp_path_factory.mktemp("onnx") / "linear.onnx"
        onnx.save(proto, path)
        return path, proto

    write.weights = weights
    return write


@pytest.mark.parametrize("rows", ["N", 8])
def test_onnx_files_sessions_and_protos(onnx_file, rows):
    import onnxruntime

    path, proto = onnx_file(rows)
    session = onnxruntime.InferenceSession(
        str(path), providers=["CPUExecutionProvider"]
    )
    expected = np.maximum(X @ onnx_file.weights, 0)
    for given in (path, proto, session):
        close(exburn.predict(given, X), expected)
    close(exburn.predict(session, {"x": X.astype("float64")}), expected)
    close(exburn.predict(session, [X], batch_size=7), expected)
    with pytest.raises(ShapeError, match="float"):
        exburn.predict(session, X[:, :3])
    with pytest.raises(DataError, match="'x'"):
        exburn.predict(session, {"y": X})
    with pytest.raises(DataError, match="takes 'x'"):
        exburn.predict(session, [X, X])


def test_several_onnx_outputs_come_by_name(onnx_file):
    path, _ = onnx_file("N", outputs=("z", "y"))
    found = exburn.predict(path, X)
    assert list(found) == ["z", "y"]  # the file's order
    close(found["z"], -X @ onnx_file.weights)
    close(found["y"], np.maximum(X @ onnx_file.weights, 0))


def test_a_damaged_onnx_file(tmp_path):
    pytest.importorskip("onnxruntime")
    path = tmp_path / "bad.onnx"
    path.write_bytes(b"no model")
    with pytest.raises(FileFormatError, match="onnxruntime"):
        exburn.predict(path, X)


@pytest.fixture
def loop(tmp_path):
    """A file whose loop never ends."""
    onnx = pytest.importorskip("onnx")
    helper, kinds = onnx.helper, onnx.TensorProto

    def write(operation):
        info, real, whole = helper.make_tensor_value_info, kinds.FLOAT, kinds.INT64
        grow = {"axis": 0} if operation == "Concat" else {}
        values = ["v", "v"] if grow else ["v"]
        step = helper.make_node(operation, values, ["w"], **grow)
        on = helper.make_node("Identity", ["on"], ["still"])
        starts = [
            info("i", whole, []),
            info("on", kinds.BOOL, []),
            info("v", real, None),
        ]
        ends = [info("still", kinds.BOOL, []), info("w", real, None)]
        body = helper.make_graph([on, step], "body", starts, ends)
        node = helper.make_node("Loop", ["most", "start", "x"], ["y"], body=body)
        most = helper.make_tensor("most", whole, [], [2**62])
        start = helper.make_tensor("start", kinds.BOOL, [], [True])
        x, y = info("x", real, ["n", 4]), info("y", real, None)
        graph = helper.make_graph([node], "loop", [x], [y], [most, start])
        opsets = [helper.make_opsetid("", 17)]
        proto = helper.make_model(graph, opset_imports=opsets, ir_version=8)
        path = tmp_path / "loop.onnx"
        onnx.save(proto, path)
        return path

    return write


def test_a_program_without_an_end_is_stopped(loop):
    path = loop("Identity")
    with pytest.raises(DeadlineExceededError, match=r"within 0\.2 s"):
        exburn.predict(path, X, timeout=0.2)


def test_ctrl_c_ends_a_program(loop):
    path = loop("Identity")
    main = threading.main_thread().ident
    timer = threading.Timer(0.3, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        exburn.predict(path, X)
    timer.join()


def test_a_program_that_grows_without_an_end_is_an_error(loop, monkeypatch):
    path = loop("Concat")
    monkeypatch.setattr(onnx_models, "free_host_bytes", lambda: 100 << 20)
    onnx_models._bound_memory.cache_clear()
    try:
        with pytest.raises(OutOfMemoryError, match="more memory than there is"):
            limits.bounded(lambda: exburn.predict(path, X), memory=200 << 20)
    finally:
        onnx_models._bound_memory.cache_clear()  # the next one takes what is free


def test_memory_goes_back_to_the_system(onnx_file):
    path, _ = onnx_file("N")
    rows = np.ones((8_000_000, 4), "f4")  # its products are no memory of small parts

    def resident():
        fields = Path("/proc/self/statm").read_text().split()
        return int(fields[1]) * resource.getpagesize()

    exburn.predict(path, X)
    before = resident()
    exburn.predict(path, rows)
    gc.collect()
    assert resident() - before < 96 << 20  # of 128 MB, one array at most is kept


@pytest.mark.parametrize("timeout", [0, -1, float("nan")])
def test_a_timeout_is_a_time(onnx_file, timeout):
    path, _ = onnx_file("N")
    with pytest.raises(ArgumentError, match="above 0"):
        exburn.predict(path, X, timeout=timeout)
    close(
        exburn.predict(path, X, timeout=math.inf), np.maximum(X @ onnx_file.weights, 0)
    )
    with pytest.raises(ArgumentError, match="for ONNX programs"):
        exburn.predict(lambda x: x, X, timeout=1)
