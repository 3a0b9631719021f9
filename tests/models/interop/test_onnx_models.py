"""Predictions of ONNX files, sessions and protos."""

import numpy as np
import pytest

import exburn
from exburn.errors import (
    DataError,
    FileFormatError,
    ShapeError,
)

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
