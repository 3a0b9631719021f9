"""Functions of ONNX files are counted before a file is loaded."""

import numpy as np
import pytest
from tests import limits

import exburn
from exburn.errors import FileFormatError
from exburn.models.interop.onnx_functions import _has_functions, check_calls

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
helper = onnx.helper
SETS = [helper.make_opsetid("", 17), helper.make_opsetid("f", 1)]


def function(number, called):
    """A function that calls others, one after the other."""
    names = ["a", *(f"t{i}" for i in range(len(called) - 1)), "b"]
    nodes = [
        helper.make_node(name, [names[i]], [names[i + 1]], domain=domain)
        for i, (domain, name) in enumerate(called)
    ]
    return helper.make_function("f", f"F{number}", ["a"], ["b"], nodes, SETS)


def model(functions, name):
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], ["y"], domain="f")],
        "graph",
        [info("x", 1, ["n", 3])],
        [info("y", 1, ["n", 3])],
    )
    return helper.make_model(
        graph, opset_imports=SETS, functions=functions, ir_version=8
    )


def doubling(levels):
    first = [function(0, [("", "Neg")])]
    later = [function(n, [("f", f"F{n - 1}")] * 2) for n in range(1, levels)]
    return model(first + later, f"F{levels - 1}")


def test_a_few_functions_are_called(tmp_path):
    onnx.save(doubling(4), tmp_path / "m.onnx")
    x = np.ones((2, 3), "f4")
    np.testing.assert_array_equal(exburn.predict(tmp_path / "m.onnx", x), x)


@pytest.mark.parametrize("levels", [20, 60, 3000])
def test_calls_that_double_are_refused(levels, tmp_path):
    path = tmp_path / "m.onnx"
    onnx.save(doubling(levels), path)
    for call in (
        lambda: exburn.predict(path, np.ones((2, 3), "f4")),
        lambda: check_calls(path.read_bytes()),
    ):
        with pytest.raises(FileFormatError, match="far too often"):
            limits.bounded(call)


def test_functions_that_call_themselves_are_refused(tmp_path):
    path = tmp_path / "m.onnx"
    circle = [function(0, [("f", "F1")]), function(1, [("f", "F0")])]
    onnx.save(model(circle, "F0"), path)
    with pytest.raises(FileFormatError, match="calls itself"):
        exburn.predict(path, np.ones((2, 3), "f4"))


def test_only_files_with_functions_are_parsed():
    assert _has_functions(doubling(2).SerializeToString())
    plain = model([], "Neg").SerializeToString()
    assert not _has_functions(plain)
    for data in (
        b"",
        b"no model",
        b"\xff" * 40,
        plain[:20],
        b"\x3a\xff\xff\xff\xff\x7f",
    ):
        assert not _has_functions(data)
