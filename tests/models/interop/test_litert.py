"""Predictions of LiteRT files."""

import numpy as np
import pytest

import exburn
from exburn.errors import DataError, FileFormatError, MissingDependencyError, ShapeError

X = np.random.default_rng(0).standard_normal((11, 3)).astype(np.float32)


def details(name, shape, dtype=np.float32, scale=None):
    scales, zeros = ([], []) if scale is None else ([scale[0]], [scale[1]])
    return {
        "name": name,
        "shape": np.array(shape),
        "shape_signature": np.array(shape),
        "dtype": dtype,
        "quantization_parameters": {"scales": scales, "zero_points": zeros},
    }


class Runner:
    """A signature that doubles its rows."""

    def __init__(self, rows, calls, scale=None):
        self.rows, self.calls, self.scale = rows, calls, scale
        self.dtype = np.float32 if scale is None else np.int8

    def get_input_details(self):
        return {"x": details("x", (self.rows, 3), self.dtype, self.scale)}

    def get_output_details(self):
        scale = self.scale and (self.scale[0] * 2, self.scale[1])
        return {"y": details("y", (self.rows, 3), self.dtype, scale)}

    def __call__(self, x):
        assert x.shape == (self.rows, 3)
        assert x.dtype == self.dtype
        self.calls.append(self.rows)
        return {"y": x * 2 if self.scale is None else x}


class Interpreter:
    """What ai-edge-litert offers, as far as it is used."""

    def __init__(self, *sizes, scale=None):
        self.calls = []
        self.runners = {f"rows_{n}": Runner(n, self.calls, scale) for n in sizes}

    def get_signature_list(self):
        return {name: {} for name in self.runners}

    def get_signature_runner(self, name):
        return self.runners[name]

    def invoke(self):
        raise AssertionError("signatures are called")


def test_rows_go_to_the_largest_signatures_that_fit():
    model = Interpreter(1, 4, 8)
    np.testing.assert_array_equal(exburn.predict(model, X), X * 2)
    assert model.calls == [8, 1, 1, 1]
    np.testing.assert_array_equal(exburn.predict(model, {"x": X}, batch_size=4), X * 2)
    assert model.calls[4:] == [4, 4, 1, 1, 1]


def test_the_last_batch_is_filled_up():
    model = Interpreter(4)
    np.testing.assert_array_equal(exburn.predict(model, [X]), X * 2)
    assert model.calls == [4, 4, 4]


def test_integers_stand_for_the_numbers_that_they_mean():
    model = Interpreter(1, scale=(0.05, 3))
    np.testing.assert_allclose(exburn.predict(model, X), X * 2, atol=0.051)


@pytest.mark.parametrize(
    "x, error, says",
    [
        (X[:, :2], ShapeError, r"float32\[None, 3\]"),
        ({"z": X}, DataError, "takes 'x'"),
        ([X, X], DataError, "2 arrays"),
    ],
)
def test_other_inputs_are_refused(x, error, says):
    with pytest.raises(error, match=says):
        exburn.predict(Interpreter(1), x)


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "m.tflite"
    path.write_bytes(b"no model at all")
    with pytest.raises((FileFormatError, MissingDependencyError), match="LiteRT"):
        exburn.predict(path, X)
