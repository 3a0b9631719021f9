"""What a plan did is measured: bytes, and errors against the exact model."""

import jax.numpy as jnp
import numpy as np
from tests.compression.quantization.classifier import make

from exburn.compression.quantization.measure import _compare, _nearest
from exburn.module.traversal import iter_weights


def test_errors_are_relative_to_the_exact_values():
    exact = {"a": jnp.array([3.0, 4.0]), "n": jnp.array([1])}
    other = {"a": jnp.array([3.5, 4.0]), "n": jnp.array([9])}
    mean, worst = _compare(exact, other)
    size = np.sqrt((9 + 16) / 2)
    np.testing.assert_allclose([mean, worst], [0.25 / size, 0.5 / size], rtol=1e-6)
    assert np.isnan(_compare({"n": exact["n"]}, {"n": other["n"]})[0])
    assert _compare([jnp.zeros(2)], [jnp.ones(2)])[1] == 1  # nothing to be relative to


def test_a_layer_that_is_not_called_by_itself_is_measured_by_the_one_around_it():
    assert _nearest("a/b/c", {"": 0, "a": 1, "a/b/d": 2}) == "a"
    assert _nearest("x", {"": 0}) == ""


def test_bytes_are_those_of_the_weights_before_and_after():
    model = make()
    report = model.quantize("int8").quantization_report
    before = sum(w.get_value().nbytes for _, w, _ in iter_weights(model))
    assert report.bytes_before == before > report.bytes_after
    assert not report.calibrated
    assert all(0 < row.mean_error < row.worst_error < 0.02 for row in report.layers)
